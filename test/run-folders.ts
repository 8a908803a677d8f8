import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

export const RUN_FOLDER_PREFIX = "plenum-tests-";

export function createRunFolder(place: string): string {
  removeKilledRunFolders(place);
  return mkdtempSync(join(place, `${RUN_FOLDER_PREFIX}${process.pid}-`));
}

/** Removes folders of killed runs, which would stay in memory until a reboot. */
function removeKilledRunFolders(place: string): void {
  for (const name of readdirSync(place)) {
    const pid = new RegExp(`^${RUN_FOLDER_PREFIX}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    try {
      removeFolder(join(place, name));
    } catch (error) {
      process.stderr.write(`${join(place, name)} of a killed test run cannot be removed: ${String(error)}\n`);
    }
  }
}

/** Removes a folder and unmounts small disks that a killed test left in it. */
export function removeFolder(folder: string): void {
  for (const mounted of mountsBelow(folder)) {
    try {
      execFileSync("umount", ["-l", mounted], { stdio: "ignore" });
    } catch {}
  }
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

function mountsBelow(folder: string): readonly string[] {
  let table: string;
  try {
    table = readFileSync("/proc/self/mounts", "utf8");
  } catch {
    return [];
  }
  return table
    .split("\n")
    .map((line) => unescaped(line.split(" ")[1] ?? ""))
    .filter((path) => path.startsWith(`${folder}/`))
    .toSorted((a, b) => b.length - a.length);
}

/** Linux writes a blank as `\040`. */
function unescaped(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: a process of another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
