import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { ApprovalGuard } from "./approval/approval-guard.ts";
import type { AuditSpace } from "./audit/audit-log-space.ts";
import type { CommandsConfig } from "./config.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import type { WriteArming } from "./write-arming.ts";

const CHECK_INTERVAL_MS = 1_000;

/** Conditions that close all writing. Checked when a command arrives and again before it is sent. */
export function createClosingConditions(options: {
  readonly config: () => CommandsConfig;
  readonly killSwitch: KillSwitch;
  readonly arming: WriteArming;
  readonly approval: ApprovalGuard;
  readonly auditSpace: AuditSpace;
  readonly journal: Pick<Journal, "note">;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { approval, arming, auditSpace, clock, config, journal, killSwitch, log } = options;
  let recordedRefusals = { isThrown: false, approval: null as string | null };
  // A rehearsal writes nothing, so it needs no arming.
  const findArmingRefusal = () => (config().rehearsal ? null : arming.refusing());

  /** Audits and logs a change of the kill switch or of the approval. Both are files that anybody may change. */
  async function recordChanges(): Promise<void> {
    auditSpace.look();
    const isKillSwitchOn = killSwitch.isThrown();
    const unapproved = config().enabled ? approval.refusing() : null;
    const approvedAt = approval.approvedAt();
    const previousRefusals = recordedRefusals;
    const currentRefusals = { isThrown: isKillSwitchOn, approval: unapproved?.message ?? approvedAt };
    const seenAt = isoUtc(clock.now());
    if (isKillSwitchOn !== previousRefusals.isThrown) {
      await journal.note(isKillSwitchOn ? "writing-stopped" : "writing-released", { seenAt });
      log.warn({ remedy: killSwitch.remedy }, isKillSwitchOn ? "writing is stopped" : "writing is allowed again");
    }
    if (currentRefusals.approval !== previousRefusals.approval) {
      const auditStep = unapproved === null ? "rules-approved" : "rules-not-approved";
      await journal.note(auditStep, { seenAt, approvedAt, why: unapproved?.message ?? null });
      if (unapproved === null) log.info({ approvedAt }, "what may be written is approved");
      else log.warn({ why: unapproved.message }, "writing is closed until it is approved");
    }
    recordedRefusals = currentRefusals;
  }

  return {
    closed(): WriteRefusal | null {
      if (!config().enabled) return { reason: "disabled", message: "Writing is switched off (commands.enabled)." };
      if (killSwitch.isThrown())
        return { reason: "killed", message: `Writing is stopped; ${killSwitch.remedy} to go on.` };
      return findArmingRefusal() ?? approval.refusing() ?? auditSpace.full();
    },
    notices(): readonly string[] {
      if (!config().enabled) return [];
      const messages = [findArmingRefusal()?.message, approval.refusing()?.message, auditSpace.notice()];
      return messages.filter((text) => typeof text === "string");
    },
    async watch(signal: AbortSignal): Promise<void> {
      // Two loops: when the request to arm cannot be read, the kill switch is still audited.
      const checkRegularly = (check: () => Promise<number | null>, problem: string) =>
        runLoop({ clock, signal, onlyChecks: true, turn: check, fault: (error) => log.warn({ err: error }, problem) });
      await Promise.all([
        checkRegularly(async () => {
          await recordChanges();
          return CHECK_INTERVAL_MS;
        }, "what closes writing could not be audited"),
        checkRegularly(async () => {
          await arming.look();
          // An armed state stays armed while the worker runs.
          return arming.refusing() === null ? null : CHECK_INTERVAL_MS;
        }, "what was asked for about arming could not be recorded"),
      ]);
    },
  };
}
