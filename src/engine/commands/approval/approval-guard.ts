import { statSync } from "node:fs";
import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { errorText } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { WriteApprovalConfig } from "../config.ts";
import { refuse, type WriteRefusal } from "../gate.ts";
import { readApprovals } from "./approval-files.ts";
import { type ApproverStore, checkRuleApproval, type PinnedApprovers, type RuleSet } from "./check-approval.ts";

/** Checks before each tag write whether the write rules are approved. */
export type WriteApprovalGuard = ReturnType<typeof createWriteApprovalGuard>;

export function createWriteApprovalGuard(options: {
  readonly config: WriteApprovalConfig | null;
  readonly rules: RuleSet;
  readonly approverStore: ApproverStore;
  readonly clock: Clock;
}) {
  const { clock, approverStore } = options;
  let { config, rules } = options;
  let checkedRulesVersion = "";
  let lastApprovalRefusal: WriteRefusal | null = null;
  let pinned: PinnedApprovers | null = null;

  const readRulesVersion = (file: string | null) => `${approverStore.version()} ${approvalsFileVersion(file)}`;

  function checkRulesApproval(): WriteRefusal | null {
    pinned = approverStore.read();
    const file = approvalsFilePath(config, pinned);
    const approvals = file === null ? null : readApprovals(file);
    const refusal = checkRuleApproval({ rules, approvals, configured: config, pinned, nowMs: clock.now() });
    if (refusal !== null || approvals === null || file === null) return refusal;
    const { at } = approvals;
    const nextApprovers = config === null ? null : { approvers: config.approvers, needed: config.needed, at, file };
    // A fleet stores the approvers asynchronously; nothing is approved before they are stored.
    if (JSON.stringify(nextApprovers) !== JSON.stringify(pinned) && approverStore.write(nextApprovers) !== undefined)
      return refuse(
        "unapproved",
        "The write rules are approved, but the approvers are not stored yet; try again in a moment.",
      );
    pinned = nextApprovers;
    return null;
  }

  return {
    findRefusal(): WriteRefusal | null {
      try {
        const rulesVersion = readRulesVersion(config === null ? (pinned?.file ?? null) : config.file);
        if (rulesVersion === checkedRulesVersion && lastApprovalRefusal === null) return null;
        lastApprovalRefusal = checkRulesApproval();
        checkedRulesVersion = readRulesVersion(approvalsFilePath(config, pinned));
      } catch (error) {
        const message = `The approval of the write rules cannot be checked: ${errorText(error)}`;
        lastApprovalRefusal = refuse("unapproved", message);
      }
      return lastApprovalRefusal;
    },
    approvedAt: () => pinned?.at ?? null,
    /** Replaces the rules; they count as approved only after the next check. */
    replaceRules(next: { readonly config: WriteApprovalConfig | null; readonly rules: RuleSet }): void {
      if (isDeepStrictEqual(next.rules, rules) && isDeepStrictEqual(next.config, config)) return;
      ({ config, rules } = next);
      lastApprovalRefusal = refuse(
        "unapproved",
        "What may be written has just changed, and Plenum has not checked yet whether it is approved.",
      );
    },
  };
}

export function approvalsFilePath(config: WriteApprovalConfig | null, pinned: PinnedApprovers | null): string | null {
  return config === null ? (pinned?.file ?? null) : resolve(config.file);
}

function approvalsFileVersion(file: string | null): string {
  if (file === null) return "none";
  const fileStats = statSync(file, { throwIfNoEntry: false });
  return fileStats === undefined
    ? "absent"
    : `${fileStats.ino} ${fileStats.size} ${fileStats.mtimeMs} ${fileStats.ctimeMs}`;
}
