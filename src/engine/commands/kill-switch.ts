import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface KillSwitch {
  /** How a person allows writing again, e.g. `remove /var/lib/plenum/state/WRITES-STOPPED`. */
  readonly remedy: string;
  isOn(): boolean;
  /** This worker stops writing before the function returns, the whole fleet before the promise resolves. */
  turnOn(by: string, at: string): Promise<void> | void;
}

/** The kill switch of a state folder is on while this file exists, so any program can turn it on. */
export const KILL_SWITCH_FILE = "WRITES-STOPPED";

export function createKillSwitch(stateFolder: string) {
  const killSwitchFile = join(stateFolder, KILL_SWITCH_FILE);
  return {
    file: killSwitchFile,
    remedy: `remove ${killSwitchFile}`,
    // Treat the kill switch as on if the state folder cannot be read.
    isOn(): boolean {
      try {
        return lstatSync(killSwitchFile, { throwIfNoEntry: false }) !== undefined;
      } catch {
        return true;
      }
    },
    turnOn(by: string, at: string): void {
      try {
        writeFileSync(killSwitchFile, `Writing was stopped by ${by} at ${at}.\n`, { flag: "wx", mode: 0o600 });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    },
    turnOff: (): void => rmSync(killSwitchFile, { force: true }),
  };
}
