import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** Uncompressed, the archive has some 30 MB. */
const MAX_BYTES = 500_000_000;

/** The same files give the same bytes: sorted, without users, all with one time in seconds since 1970. */
export function packFolder(parent: string, name: string, target: string, seconds: number): void {
  const same = ["--sort=name", `--mtime=@${seconds}`, "--owner=0", "--group=0", "--numeric-owner"];
  const args = [...same, "--format=ustar", "--mode=u=rwX,go=rX", "-C", parent, "-cf", "-", name];
  const { status, stdout, stderr, error } = spawnSync("tar", args, { maxBuffer: MAX_BYTES });
  if (status !== 0) throw new Error(`GNU tar failed: ${error?.message ?? stderr}`);
  writeFileSync(target, gzipSync(stdout, { level: 9 }));
}
