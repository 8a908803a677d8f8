import { statSync } from "node:fs";
import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { sentence } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { ApprovalConfig } from "../config.ts";
import type { Refusing } from "../gate.ts";
import { type Approvals, checkApproval, type Pin, type Pinned, type Rules } from "./approval.ts";
import { readApprovals } from "./files.ts";

/**
 * Asked before every write, like the kill switch: looks whether the file of approvals has changed, so that an approval,
 * or its withdrawal, counts at once and without a restart.
 */
export interface ApprovalGuard {
  refusing(): Refusing | null;
  /** Who had approved last, for the audit log. */
  approvedAt(): string | null;
  /** Other rules from now on, which count as approved only when somebody looks and finds them so. */
  change(next: { readonly config: ApprovalConfig | null; readonly rules: Rules }): void;
}

export function createApprovalGuard(options: {
  readonly config: ApprovalConfig | null;
  readonly rules: Rules;
  readonly pin: Pin;
  readonly clock: Clock;
}): ApprovalGuard {
  const { clock, pin } = options;
  let { config, rules } = options;
  let seen = "";
  let verdict: Refusing | null = null;
  let pinned: Pinned | null = null;

  function look(): Refusing | null {
    pinned = pin.read();
    const file = fileOf(config, pinned);
    const approvals = file === null ? null : readApprovals(file);
    const refusing = checkApproval({ rules, approvals, configured: config, pinned, nowMs: clock.now() });
    if (refusing === null && approvals !== null && file !== null) return remember(approvals, file);
    return refusing;
  }

  /** From now on these are the ones whose approval counts; until that is remembered nothing is approved. */
  function remember({ at }: Approvals, file: string): Refusing | null {
    const next = config === null ? null : { approvers: config.approvers, needed: config.needed, at, file };
    const isKnown = JSON.stringify(next) === JSON.stringify(pinned);
    if (isKnown || pin.write(next) === undefined) {
      pinned = next;
      return null;
    }
    return NOT_REMEMBERED;
  }

  return {
    refusing() {
      try {
        const mark = `${pin.mark()} ${markOf(config === null ? (pinned?.file ?? null) : config.file)}`;
        if (mark === seen && verdict === null) return null;
        verdict = look();
        seen = `${pin.mark()} ${markOf(fileOf(config, pinned))}`;
      } catch (error) {
        verdict = {
          reason: "unapproved",
          message: `What may be written cannot be checked: ${sentence(error)}`,
        };
      }
      return verdict;
    },
    approvedAt: () => pinned?.at ?? null,
    change(next) {
      if (isDeepStrictEqual(next.rules, rules) && isDeepStrictEqual(next.config, config)) return;
      ({ config, rules } = next);
      verdict = NOT_LOOKED_AT;
    },
  };
}

const NOT_LOOKED_AT: Refusing = {
  reason: "unapproved",
  message: "What may be written has just been changed, and nobody has looked yet whether it is approved.",
};

const NOT_REMEMBERED: Refusing = {
  reason: "unapproved",
  message: "What may be written is approved, and who approved it is being remembered first.",
};

/** Path of the approvals; null without the rule. */
export function fileOf(config: ApprovalConfig | null, pinned: Pinned | null): string | null {
  return config === null ? (pinned?.file ?? null) : resolve(config.file);
}

/** Tells apart the versions of a file. */
function markOf(file: string | null): string {
  if (file === null) return "none";
  const found = statSync(file, { throwIfNoEntry: false });
  return found === undefined ? "absent" : `${found.ino} ${found.size} ${found.mtimeMs} ${found.ctimeMs}`;
}
