import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Stops all writing at once and for as long as its file exists, restarts included. Anything that can create a
 * file can throw it: a person with a shell, the command line, a message, the worker itself.
 */
export interface KillSwitch {
  readonly file: string;
  thrown(): boolean;
  throwIt(by: string, at: string): void;
  release(): void;
}

/** Name of the file inside the state folder. */
export const KILL_FILE = "WRITES-STOPPED";

export function createKillSwitch(stateFolder: string): KillSwitch {
  const file = join(stateFolder, KILL_FILE);
  return {
    file,
    // Asked before every single write, so that it works within the second, without any watcher to fail. A folder
    // that cannot be looked into counts as stopped.
    thrown() {
      try {
        return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
      } catch {
        return true;
      }
    },
    throwIt(by, at) {
      try {
        writeFileSync(file, `Writing was stopped by ${by} at ${at}.\n`, { flag: "wx", mode: 0o600 });
      } catch (error) {
        // Whatever is there stops writing already, and what a link points to is not ours to change.
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    },
    release: () => rmSync(file, { force: true }),
  };
}
