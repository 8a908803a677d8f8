import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

/** How the folder of a whole test run or campaign is called: this, its process, and something random. */
export const RUN_FOLDER = "plenum-tests-";

/** A folder for this process, in a place where what others left who were killed is taken away first. */
export function runFolder(place: string): string {
  forgetKilled(place);
  return mkdtempSync(join(place, `${RUN_FOLDER}${process.pid}-`));
}

/**
 * Takes away what a run has left that was killed: in memory it would stay until the machine is started anew. What cannot be
 * taken away is said, and keeps no later run from its work.
 */
export function forgetKilled(place: string, remove: (folder: string) => void = removeWhole): void {
  for (const name of readdirSync(place)) {
    const pid = new RegExp(`^${RUN_FOLDER}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    try {
      remove(join(place, name));
    } catch (error) {
      process.stderr.write(
        `${join(place, name)}, of a test run that was killed, cannot be removed: ${String(error)}\n`,
      );
    }
  }
}

/** Removes a folder, also where a test that was killed had a small disk mounted in it. */
export function removeWhole(folder: string): void {
  for (const mounted of mountsBelow(folder)) {
    try {
      execFileSync("umount", ["-l", mounted], { stdio: "ignore" });
    } catch {
      // The removal says what is in its way.
    }
  }
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

/** The innermost first. */
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
    // Somebody else's.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
