import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import { temporaryFolder } from "./real-servers.ts";

/** Mounts a disk of a few megabytes until the end of the test. Returns null where mounting is not allowed. */
export function smallDisk(megabytes: number): string | null {
  const folder = temporaryFolder("disk");
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  if (!mountSmallDisk(folder, megabytes)) {
    process.stderr.write("A small disk cannot be mounted here: that test is skipped.\n");
    return null;
  }
  onTestFinished(() => void execFileSync("umount", ["-l", folder]));
  return folder;
}

export function mountSmallDisk(folder: string, megabytes: number): boolean {
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
