import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { SBOM } from "../sbom.ts";
import { copyModules, packageSizes } from "./modules.ts";
import { packProgram, writeProgram } from "./program.ts";

export const CHECKSUMS = "SHA256SUMS";

export interface ReleaseOptions {
  readonly root: string;
  readonly target: string;
  /** Null if the commit is unknown. */
  readonly commit: string | null;
  /** Time of all files in seconds since 1970. */
  readonly seconds: number;
}

export interface Release {
  /** Files in the target folder. */
  readonly files: readonly (readonly [name: string, bytes: number])[];
  /** Unpacked sizes of the packages and of the program (`plenum`), the largest first. */
  readonly parts: readonly (readonly [name: string, bytes: number])[];
}

/** Writes the npm package, an archive with all packages, the bill of materials, the changes and the checksums. */
export async function release({ root, target, commit, seconds }: ReleaseOptions): Promise<Release> {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const changes = changesOf(readFileSync(join(root, "CHANGELOG.md"), "utf8"), version);
  const name = `plenum-${version}`;
  const temporaryFolder = mkdtempSync(join(tmpdir(), "plenum-release-"));
  try {
    const folder = join(temporaryFolder, name);
    mkdirSync(folder);
    mkdirSync(target, { recursive: true });
    await writeProgram(root, folder, commit);
    packProgram(folder, target);
    const programBytes = sizeOf(folder);
    const modules = join(folder, "node_modules");
    copyModules(root, modules);
    symlinkSync("tools/start.cjs", join(folder, "plenum"));
    // The archive's name has the platform, because one package is native: with it Kafka's checksums are faster.
    packFolder(temporaryFolder, name, join(target, `${name}-${process.platform}-${process.arch}.tar.gz`), seconds);
    cpSync(join(folder, SBOM), join(target, `${name}.cdx.json`));
    writeFileSync(join(target, `${name}-changes.md`), changes);
    writeChecksums(target);
    const parts: [string, number][] = [
      ["plenum", programBytes],
      ...packageSizes(modules).map((one) => [...one] as [string, number]),
    ];
    return { files: filesOf(target), parts: parts.toSorted(([, a], [, b]) => b - a) };
  } finally {
    rmSync(temporaryFolder, { recursive: true, force: true });
  }
}

/** Writes the checksums of all files for `sha256sum -c SHA256SUMS`. */
function writeChecksums(target: string): void {
  const lines = readdirSync(target)
    .filter((name) => name !== CHECKSUMS)
    .toSorted()
    .map(
      (name) =>
        `${createHash("sha256")
          .update(readFileSync(join(target, name)))
          .digest("hex")}  ${name}\n`,
    );
  writeFileSync(join(target, CHECKSUMS), lines.join(""));
}

function filesOf(folder: string): readonly (readonly [string, number])[] {
  return readdirSync(folder)
    .toSorted()
    .map((name) => [name, readFileSync(join(folder, name)).length] as const);
}

function sizeOf(folder: string): number {
  return packageSizes(folder).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Maximum size of the uncompressed archive, which has about 30 MB. */
const MAX_BYTES = 500_000_000;

/** Packs a folder reproducibly: sorted, without users, all files with the time `seconds` (since 1970). */
function packFolder(parent: string, name: string, target: string, seconds: number): void {
  const reproducibleOptions = ["--sort=name", `--mtime=@${seconds}`, "--owner=0", "--group=0", "--numeric-owner"];
  const args = [...reproducibleOptions, "--format=ustar", "--mode=u=rwX,go=rX", "-C", parent, "-cf", "-", name];
  const { status, stdout, stderr, error } = spawnSync("tar", args, { maxBuffer: MAX_BYTES });
  if (status !== 0) throw new Error(`GNU tar failed: ${error?.message ?? stderr}`);
  writeFileSync(target, gzipSync(stdout, { level: 9 }));
}

/** Returns the part of CHANGELOG.md about one version. */
export function changesOf(changelog: string, version: string): string {
  const parts = changelog.split(/^(?=## )/m);
  const part = parts.find((one) => one.split(/\s/)[1] === version);
  if (part === undefined)
    throw new Error(`CHANGELOG.md has no section “## ${version}”: describe the changes of this version.`);
  return `${part.trimEnd()}\n`;
}
