import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { CHECKSUMS, release } from "./release.ts";

/** `npm run release [-- --out FOLDER] [--dirty]`. Only committed files give a reproducible release; `--dirty` is for trials. */

const ROOT = join(import.meta.dirname, "../..");
const SHOWN_PARTS = 10;

function git(...args: readonly string[]): string | null {
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}

function readReleaseCommit(isDirtyAllowed: boolean): string {
  const commit = git("rev-parse", "HEAD");
  if (commit === null) throw new Error("This folder is no clone, so nobody knows its commit: release from a clone.");
  if (git("status", "--porcelain") === "") return commit;
  if (isDirtyAllowed) return `${commit}.dirty`;
  throw new Error("Some files are not committed (git status): commit them, or say --dirty for a trial.");
}

/** Replaces an earlier release; throws for a folder with anything else in it. */
function emptyTarget(folder: string): string {
  if (!existsSync(folder) || readdirSync(folder).length === 0) return folder;
  if (!existsSync(join(folder, CHECKSUMS)))
    throw new Error(`${folder} is not empty and no release: name another folder with --out.`);
  rmSync(folder, { recursive: true });
  return folder;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1).padStart(6)} MB`;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { out: { type: "string", default: "dist" }, dirty: { type: "boolean", default: false } },
  });
  const commit = readReleaseCommit(values.dirty);
  const target = emptyTarget(resolve(values.out));
  const seconds = Number(git("show", "-s", "--format=%ct", "HEAD"));
  const { files, parts } = await release({ root: ROOT, target, commit, seconds });
  const say = (line: string) => process.stdout.write(`${line}\n`);
  say(`Commit ${commit}, in ${target}:`);
  for (const [name, bytes] of files) say(`${megabytes(bytes)}  ${name}`);
  say(`Unpacked ${megabytes(parts.reduce((sum, [, bytes]) => sum + bytes, 0)).trim()}, most of it:`);
  for (const [name, bytes] of parts.slice(0, SHOWN_PARTS)) say(`${megabytes(bytes)}  ${name}`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
// Modules of the command line keep a process awake.
process.exit();
