import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Stops all writing at once and until somebody lets it go on, restarts included: a person with a shell, the command
 * line, a message, the worker itself can throw it.
 */
export interface KillSwitch {
  /** How a person continues, e.g. `remove /var/lib/plenum/state/WRITES-STOPPED`. */
  readonly remedy: string;
  /** Asked before every single write, so it answers at once. */
  thrown(): boolean;
  /** Nothing leaves from here any more when it returns, and nowhere else once it resolves. */
  throwIt(by: string, at: string): Promise<void> | void;
}

/**
 * Kill switch of one state folder: thrown while its file exists, so any program that can create a file can throw it.
 */
export interface FolderKillSwitch extends KillSwitch {
  readonly file: string;
  throwIt(by: string, at: string): void;
  release(): void;
}

/** Name of the file inside the state folder. */
export const KILL_FILE = "WRITES-STOPPED";

export function createKillSwitch(stateFolder: string): FolderKillSwitch {
  const file = join(stateFolder, KILL_FILE);
  return {
    file,
    remedy: `remove ${file}`,
    // Looked at each time, without any watcher to fail. A folder that cannot be looked into counts as stopped.
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
