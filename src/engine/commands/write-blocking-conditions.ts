import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { WriteApprovalGuard } from "./approval/approval-guard.ts";
import type { AuditLogSpace } from "./audit/audit-log-space.ts";
import type { CommandsConfig } from "./config.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import type { WriteArming } from "./write-arming.ts";

const BLOCKER_CHECK_INTERVAL_MS = 1_000;

/** Conditions that block all tag writes, checked when a command arrives and again before it is sent. */
export function createWriteBlockers(options: {
  readonly config: () => CommandsConfig;
  readonly killSwitch: KillSwitch;
  readonly arming: WriteArming;
  readonly approval: WriteApprovalGuard;
  readonly auditSpace: AuditLogSpace;
  readonly journal: Pick<Journal, "recordAudit">;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { approval, arming, auditSpace, clock, config, journal, killSwitch, log } = options;
  let auditedRefusals = { isKillSwitchOn: false, approval: null as string | null };
  const findArmingRefusal = () => (config().rehearsal ? null : arming.findRefusal());

  /** Records changes of kill switch and approval in the audit log. Other programs may change these files. */
  async function auditBlockerChanges(): Promise<void> {
    auditSpace.updateMetrics();
    const isKillSwitchOn = killSwitch.isOn();
    const approvalRefusal = config().enabled ? approval.findRefusal() : null;
    const approvedAt = approval.approvedAt();
    const previousRefusals = auditedRefusals;
    const currentRefusals = { isKillSwitchOn, approval: approvalRefusal?.message ?? approvedAt };
    const seenAt = isoUtc(clock.now());
    if (isKillSwitchOn !== previousRefusals.isKillSwitchOn) {
      await journal.recordAudit(isKillSwitchOn ? "writing-stopped" : "writing-released", { seenAt });
      log.warn({ remedy: killSwitch.remedy }, isKillSwitchOn ? "writing is stopped" : "writing is allowed again");
    }
    if (currentRefusals.approval !== previousRefusals.approval) {
      const auditStep = approvalRefusal === null ? "rules-approved" : "rules-not-approved";
      await journal.recordAudit(auditStep, { seenAt, approvedAt, why: approvalRefusal?.message ?? null });
      if (approvalRefusal === null) log.info({ approvedAt }, "the write rules are approved");
      else log.warn({ why: approvalRefusal.message }, "writing is closed until the write rules are approved");
    }
    auditedRefusals = currentRefusals;
  }

  return {
    findRefusal(): WriteRefusal | null {
      if (!config().enabled) return { reason: "disabled", message: "Writing is switched off (commands.enabled)." };
      if (killSwitch.isOn()) return { reason: "killed", message: `Writing is stopped; ${killSwitch.remedy} to go on.` };
      return findArmingRefusal() ?? approval.findRefusal() ?? auditSpace.findFullRefusal();
    },
    notices(): readonly string[] {
      if (!config().enabled) return [];
      const blockerMessages = [findArmingRefusal()?.message, approval.findRefusal()?.message, auditSpace.notice()];
      return blockerMessages.filter((text) => typeof text === "string");
    },
    async watchBlockers(signal: AbortSignal): Promise<void> {
      // Run two loops, so that the kill switch is audited even if the request to arm writing cannot be read.
      const checkRegularly = (step: () => Promise<number | null>, problem: string) =>
        runLoop({ clock, signal, alignSleeps: true, step, onFault: (error) => log.warn({ err: error }, problem) });
      await Promise.all([
        checkRegularly(async () => {
          await auditBlockerChanges();
          return BLOCKER_CHECK_INTERVAL_MS;
        }, "changes of the kill switch or the approval could not be recorded in the audit log"),
        checkRegularly(async () => {
          await arming.armIfRequested();
          return arming.findRefusal() === null ? null : BLOCKER_CHECK_INTERVAL_MS;
        }, "a request to arm writing could not be recorded"),
      ]);
    },
  };
}
