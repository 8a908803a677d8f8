import type { Pin } from "./approval/approval.ts";
import { readPin, writePin } from "./approval/files.ts";
import { type ArmRequest, armRequestIn } from "./arming.ts";
import { freeBytesOf } from "./audit/space.ts";
import { createKillSwitch, type KillSwitch } from "./kill-switch.ts";

/**
 * State outside the store that decides about writing. A single worker has files in its state folder; a fleet shares
 * one.
 */
export interface Guards {
  /** For people, such as `the state /var/lib/plenum/state`. */
  readonly place: string;
  readonly killSwitch: KillSwitch;
  readonly armRequest: ArmRequest;
  /** Why this machine may not write although the state is armed; null where it may. */
  unarmedHere(): string | null;
  readonly pin: Pin;
  /** Bytes that are left where the audit log lies; null where that cannot be known. */
  freeBytes(): number | null;
}

/** The guards of one state, as files in its folder. */
export function folderGuards(folder: string): Guards {
  return {
    place: `the state ${folder}`,
    killSwitch: createKillSwitch(folder),
    armRequest: armRequestIn(folder),
    unarmedHere: () => null,
    pin: {
      read: () => readPin(folder),
      write: (pinned) => writePin(folder, pinned),
      // The folder is locked, so no other process writes.
      mark: () => "",
    },
    freeBytes: () => freeBytesOf(folder),
  };
}
