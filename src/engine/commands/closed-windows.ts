import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { ApprovalGuard } from "./approval/guard.ts";
import type { Arming } from "./arming.ts";
import type { AuditSpace } from "./audit/space.ts";
import type { CommandsConfig } from "./config.ts";
import type { Refusing } from "./gate.ts";
import type { Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";

/** Conditions that close all writing. Checked when a command arrives and again before it is sent. */
export interface ClosedWindows {
  readonly closed: () => Refusing | null;
  /** Warnings for people. */
  notices(): readonly string[];
  /** Anybody can change these from outside, by a file, so the audit log learns of it by looking. */
  watch(signal: AbortSignal): Promise<void>;
}

const LOOK_EVERY_MS = 1_000;

export function createClosedWindows(options: {
  /** The current configuration. */
  readonly config: () => CommandsConfig;
  readonly killSwitch: KillSwitch;
  readonly arming: Arming;
  readonly approval: ApprovalGuard;
  readonly auditSpace: AuditSpace;
  readonly journal: Pick<Journal, "note">;
  readonly clock: Clock;
  readonly log: Log;
}): ClosedWindows {
  const { approval, arming, auditSpace, clock, config, journal, killSwitch, log } = options;
  // A rehearsal writes nothing, so it may come before.
  const unarmed = () => (config().rehearsal ? null : arming.refusing());

  function closed(): Refusing | null {
    if (!config().enabled) {
      return { reason: "disabled", message: "Writing is switched off (commands.enabled)." };
    }
    if (killSwitch.thrown()) {
      return { reason: "killed", message: `Writing is stopped; ${killSwitch.remedy} to go on.` };
    }
    return unarmed() ?? approval.refusing() ?? auditSpace.full();
  }

  /** Tells a change of the switch or of the approval once; answers how it is now. */
  async function tellChanges(was: Seen): Promise<Seen> {
    auditSpace.look();
    const isThrown = killSwitch.thrown();
    const unapproved = config().enabled ? approval.refusing() : null;
    const now = { isThrown, approval: unapproved?.message ?? approval.approvedAt() };
    if (now.isThrown === was.isThrown && now.approval === was.approval) return now;
    const seenAt = isoUtc(clock.now());
    if (now.isThrown !== was.isThrown) {
      await journal.note(isThrown ? "writing-stopped" : "writing-released", { seenAt });
      log.warn({ remedy: killSwitch.remedy }, isThrown ? "writing is stopped" : "writing is allowed again");
    }
    if (now.approval !== was.approval) {
      const step = unapproved === null ? "rules-approved" : "rules-not-approved";
      await journal.note(step, {
        seenAt,
        approvedAt: approval.approvedAt(),
        why: unapproved?.message ?? null,
      });
      if (unapproved === null) log.info({ approvedAt: approval.approvedAt() }, "what may be written is approved");
      else log.warn({ why: unapproved.message }, "writing is closed until it is approved");
    }
    return now;
  }

  return {
    closed,
    notices() {
      if (!config().enabled) return [];
      const sentences = [unarmed()?.message, approval.refusing()?.message, auditSpace.notice()];
      return sentences.filter((text) => typeof text === "string");
    },
    async watch(signal) {
      let seen: Seen = { isThrown: false, approval: null };
      const everySecond = (look: () => Promise<void>, trouble: string, isOver = () => false) =>
        loop({
          clock,
          signal,
          looks: true,
          async turn() {
            await look();
            return isOver() ? null : LOOK_EVERY_MS;
          },
          fault: (error) => log.warn({ err: error }, trouble),
        });
      // A file's request may fail; the thrown kill switch is reported anyway.
      const telling = everySecond(async () => {
        seen = await tellChanges(seen);
      }, "what closes writing could not be audited");
      // Once a state is armed it stays so as long as the worker runs.
      const isArmed = () => arming.refusing() === null;
      const unrecorded = "what was asked for about arming could not be recorded";
      const arms = everySecond(() => arming.look(), unrecorded, isArmed);
      await Promise.all([telling, arms]);
    },
  };
}

interface Seen {
  readonly isThrown: boolean;
  /** Since when it is approved, or why it is not; null without the rule. */
  readonly approval: string | null;
}
