import { readApprovers, writePinnedApprovers } from "./approval/approval-files.ts";
import type { ApproverStore } from "./approval/check-approval.ts";
import { readFreeDiskBytes } from "./audit/audit-log-space.ts";
import { createKillSwitch, type KillSwitch } from "./kill-switch.ts";
import { type ArmWritingRequest, readArmWritingRequest } from "./write-arming.ts";

/** Conditions outside the store that may forbid tag writes: files in the state folder, or rows that a fleet shares. */
export interface WritingGuards {
  readonly stateDescription: string;
  readonly killSwitch: KillSwitch;
  readonly armRequest: ArmWritingRequest;
  findUnarmedReason(): string | null;
  readonly approverStore: ApproverStore;
  freeDiskBytes(): number | null;
}

export function createFolderWritingGuards(folder: string): WritingGuards {
  return {
    stateDescription: `the state ${folder}`,
    killSwitch: createKillSwitch(folder),
    armRequest: readArmWritingRequest(folder),
    findUnarmedReason: () => null,
    approverStore: {
      read: () => readApprovers(folder),
      write: (pinned) => writePinnedApprovers(folder, pinned),
      // The version is constant, because the state folder is locked and no other process changes it.
      version: () => "",
    },
    freeDiskBytes: () => readFreeDiskBytes(folder),
  };
}
