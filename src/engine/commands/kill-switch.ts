import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface KillSwitch {
  /** How a person continues, e.g. `remove /var/lib/plenum/state/WRITES-STOPPED`. */
  readonly remedy: string;
  isThrown(): boolean;
  /** Stops this worker when it returns, and all members of a fleet when it resolves. */
  throwIt(by: string, at: string): Promise<void> | void;
}

/** Kill switch of one state folder: thrown while its file exists, so any program can throw it. */

export const KILL_FILE = "WRITES-STOPPED";

export function createKillSwitch(stateFolder: string) {
  const file = join(stateFolder, KILL_FILE);
  return {
    file,
    remedy: `remove ${file}`,
    // Checks the file each time, because a watcher may fail. An unreadable folder counts as stopped.
    isThrown(): boolean {
      try {
        return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
      } catch {
        return true;
      }
    },
    throwIt(by: string, at: string): void {
      try {
        writeFileSync(file, `Writing was stopped by ${by} at ${at}.\n`, { flag: "wx", mode: 0o600 });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    },
    release: (): void => rmSync(file, { force: true }),
  };
}
