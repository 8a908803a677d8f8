import { readPin, writePin } from "./approval/approval-files.ts";
import type { Pin } from "./approval/check-approval.ts";
import { readFreeBytes } from "./audit/audit-log-space.ts";
import { createKillSwitch, type KillSwitch } from "./kill-switch.ts";
import { type ArmRequest, readArmRequest } from "./write-arming.ts";

/** State outside the store that may close writing: files in the state folder, or rows that a fleet shares. */
export interface WritingGuards {
  readonly place: string;
  readonly killSwitch: KillSwitch;
  readonly armRequest: ArmRequest;
  unarmedHere(): string | null;
  readonly pin: Pin;
  freeBytes(): number | null;
}

export function folderGuards(folder: string): WritingGuards {
  return {
    place: `the state ${folder}`,
    killSwitch: createKillSwitch(folder),
    armRequest: readArmRequest(folder),
    unarmedHere: () => null,
    pin: {
      read: () => readPin(folder),
      write: (pinned) => writePin(folder, pinned),
      // The folder is locked, so no other process writes.
      version: () => "",
    },
    freeBytes: () => readFreeBytes(folder),
  };
}
