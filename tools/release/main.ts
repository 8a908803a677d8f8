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
  if (commit === null)
    throw new Error("This folder is not a Git clone, so the commit is unknown: run the release in a clone.");
  if (git("status", "--porcelain") === "") return commit;
  if (isDirtyAllowed) return `${commit}.dirty`;
  throw new Error("Some files are not committed (git status): commit them, or add --dirty for a trial.");
}

/** Replaces an earlier release; throws for a folder with anything else in it. */
function emptyTarget(folder: string): string {
  if (!existsSync(folder) || readdirSync(folder).length === 0) return folder;
  if (!existsSync(join(folder, CHECKSUMS)))
    throw new Error(`${folder} is not empty and contains no release: choose another folder with --out.`);
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
  const print = (line: string) => process.stdout.write(`${line}\n`);
  print(`Commit ${commit}, in ${target}:`);
  for (const [name, bytes] of files) print(`${megabytes(bytes)}  ${name}`);
  print(`Unpacked ${megabytes(parts.reduce((sum, [, bytes]) => sum + bytes, 0)).trim()}, largest parts:`);
  for (const [name, bytes] of parts.slice(0, SHOWN_PARTS)) print(`${megabytes(bytes)}  ${name}`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
// Modules of the command line keep timers running, which would keep the process from ending.
process.exit();
