import { statSync } from "node:fs";
import { resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { sentence } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { ApprovalConfig } from "../config.ts";
import type { Refusing } from "../gate.ts";
import { checkApproval, type Pin, type Pinned, type Rules } from "./approval.ts";
import { readApprovals } from "./files.ts";

/** Checks before each write whether the rules are approved. A changed approvals file counts without a restart. */
export type ApprovalGuard = ReturnType<typeof createApprovalGuard>;

export function createApprovalGuard(options: {
  readonly config: ApprovalConfig | null;
  readonly rules: Rules;
  readonly pin: Pin;
  readonly clock: Clock;
}) {
  const { clock, pin } = options;
  let { config, rules } = options;
  let checkedVersion = "";
  let verdict: Refusing | null = null;
  let pinned: Pinned | null = null;

  const versionOf = (file: string | null) => `${pin.version()} ${fileVersion(file)}`;

  function check(): Refusing | null {
    pinned = pin.read();
    const file = fileOf(config, pinned);
    const approvals = file === null ? null : readApprovals(file);
    const refusing = checkApproval({ rules, approvals, configured: config, pinned, nowMs: clock.now() });
    if (refusing !== null || approvals === null || file === null) return refusing;
    const { at } = approvals;
    const next = config === null ? null : { approvers: config.approvers, needed: config.needed, at, file };
    // A fleet stores the pin asynchronously; until then nothing is approved.
    if (JSON.stringify(next) !== JSON.stringify(pinned) && pin.write(next) !== undefined)
      return unapproved("What may be written is approved, and who approved it is being remembered first.");
    pinned = next;
    return null;
  }

  return {
    refusing(): Refusing | null {
      try {
        const version = versionOf(config === null ? (pinned?.file ?? null) : config.file);
        if (version === checkedVersion && verdict === null) return null;
        verdict = check();
        checkedVersion = versionOf(fileOf(config, pinned));
      } catch (error) {
        verdict = unapproved(`What may be written cannot be checked: ${sentence(error)}`);
      }
      return verdict;
    },
    approvedAt: () => pinned?.at ?? null,
    /** Replaces the rules; they count as approved only after the next check. */
    change(next: { readonly config: ApprovalConfig | null; readonly rules: Rules }): void {
      if (isDeepStrictEqual(next.rules, rules) && isDeepStrictEqual(next.config, config)) return;
      ({ config, rules } = next);
      verdict = unapproved(
        "What may be written has just been changed, and nobody has looked yet whether it is approved.",
      );
    },
  };
}

function unapproved(message: string): Refusing {
  return { reason: "unapproved", message };
}

export function fileOf(config: ApprovalConfig | null, pinned: Pinned | null): string | null {
  return config === null ? (pinned?.file ?? null) : resolve(config.file);
}

function fileVersion(file: string | null): string {
  if (file === null) return "none";
  const found = statSync(file, { throwIfNoEntry: false });
  return found === undefined ? "absent" : `${found.ino} ${found.size} ${found.mtimeMs} ${found.ctimeMs}`;
}
