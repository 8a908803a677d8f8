import { statSync } from "node:fs";
import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { errorText } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { ApprovalConfig } from "../config.ts";
import type { WriteRefusal } from "../gate.ts";
import { readApprovals } from "./approval-files.ts";
import { checkApproval, type Pin, type PinnedApprovers, type RuleSet } from "./check-approval.ts";

/** Checks before each write whether the rules are approved. A changed approvals file counts without a restart. */
export type ApprovalGuard = ReturnType<typeof createApprovalGuard>;

export function createApprovalGuard(options: {
  readonly config: ApprovalConfig | null;
  readonly rules: RuleSet;
  readonly pin: Pin;
  readonly clock: Clock;
}) {
  const { clock, pin } = options;
  let { config, rules } = options;
  let checkedVersion = "";
  let lastRefusal: WriteRefusal | null = null;
  let pinned: PinnedApprovers | null = null;

  const readRulesVersion = (file: string | null) => `${pin.version()} ${fileVersion(file)}`;

  function checkRules(): WriteRefusal | null {
    pinned = pin.read();
    const file = approvalsPath(config, pinned);
    const approvals = file === null ? null : readApprovals(file);
    const refusal = checkApproval({ rules, approvals, configured: config, pinned, nowMs: clock.now() });
    if (refusal !== null || approvals === null || file === null) return refusal;
    const { at } = approvals;
    const nextPin = config === null ? null : { approvers: config.approvers, needed: config.needed, at, file };
    // A fleet stores the pin asynchronously; until then nothing is approved.
    if (JSON.stringify(nextPin) !== JSON.stringify(pinned) && pin.write(nextPin) !== undefined)
      return buildRefusal("What may be written is approved, and who approved it is being remembered first.");
    pinned = nextPin;
    return null;
  }

  return {
    refusing(): WriteRefusal | null {
      try {
        const version = readRulesVersion(config === null ? (pinned?.file ?? null) : config.file);
        if (version === checkedVersion && lastRefusal === null) return null;
        lastRefusal = checkRules();
        checkedVersion = readRulesVersion(approvalsPath(config, pinned));
      } catch (error) {
        lastRefusal = buildRefusal(`What may be written cannot be checked: ${errorText(error)}`);
      }
      return lastRefusal;
    },
    approvedAt: () => pinned?.at ?? null,
    /** Replaces the rules; they count as approved only after the next check. */
    change(next: { readonly config: ApprovalConfig | null; readonly rules: RuleSet }): void {
      if (isDeepStrictEqual(next.rules, rules) && isDeepStrictEqual(next.config, config)) return;
      ({ config, rules } = next);
      lastRefusal = buildRefusal(
        "What may be written has just been changed, and nobody has looked yet whether it is approved.",
      );
    },
  };
}

function buildRefusal(message: string): WriteRefusal {
  return { reason: "unapproved", message };
}

export function approvalsPath(config: ApprovalConfig | null, pinned: PinnedApprovers | null): string | null {
  return config === null ? (pinned?.file ?? null) : resolve(config.file);
}

function fileVersion(file: string | null): string {
  if (file === null) return "none";
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats === undefined ? "absent" : `${stats.ino} ${stats.size} ${stats.mtimeMs} ${stats.ctimeMs}`;
}
