import type { AcceptCommand } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { OrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { Store } from "../store/store.ts";
import { createAllowList, type WritableTag, writableTag } from "./allow-list.ts";
import { createApprovalGuard } from "./approval/approval-guard.ts";
import { approvedRules, type RuleSet } from "./approval/check-approval.ts";
import { createAuditSpace } from "./audit/audit-log-space.ts";
import { createBuildingReader } from "./building-reader.ts";
import { createEndings } from "./command-endings.ts";
import { createIntake } from "./command-intake.ts";
import { type CommandWriter, createWriter, STOPPED_END } from "./command-writer.ts";
import type { CommandsConfig } from "./config.ts";
import { createFreshValues } from "./fresh-values.ts";
import { checkClock } from "./gate.ts";
import { type AcceptedCommand, openJournal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { createReadBack, type ReadBack } from "./read-back.ts";
import { createRefusals } from "./refusal-reporter.ts";
import { createRestores } from "./restore-old-values.ts";
import { openArming } from "./write-arming.ts";
import { createClosingConditions } from "./write-closing-conditions.ts";
import type { WritingGuards } from "./writing-guards.ts";

/** Writes to the building: intake (gate and journal) → writer → read-back → result. A restart sends nothing again. */
export interface Commands extends WorkerService {
  readonly accept: AcceptCommand;
  readonly killSwitch: KillSwitch;
  status(): CommandsStatus;
  notices(): readonly string[];
  /** Milliseconds that the quota would delay a command now; null means the only source. */
  expectedWaitMs(source: string | null): number;
  /** Applies other rules, or throws and changes nothing. A queued command ends when its own entry changed. */
  change(config: CommandsConfig, around: RuleSet): void;
  writable(source: string, tagId: string): WritableTag | null;
}

export interface CommandsStatus {
  readonly enabled: boolean;
  readonly rehearsal: boolean;
  readonly stopped: boolean;
  readonly writable: number;
  readonly waiting: number;
}

export interface CommandsOptions {
  readonly config: CommandsConfig;
  readonly sources: readonly CommandsSource[];
  readonly store: Store;
  readonly guards: WritingGuards;
  readonly armAtStart?: boolean;
  readonly around?: RuleSet;
  readonly approved?: CommandsConfig;
  readonly clock: Clock;
  readonly clockDoubt: Pick<ClockCheck, "stepped">;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface CommandsSource {
  readonly source: Source;
  readonly timeZone: string;
}

interface SourceWriter {
  readonly source: Source;
  readonly writer: CommandWriter;
  readonly readBack: ReadBack;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** Time at a stop for recording counted rejections, even after the deadline. */
const FINAL_FLUSH_MS = 100;
const HOURLY_BACKOFF = { firstMs: 60_000, maxMs: 600_000 };

export async function createCommands(options: CommandsOptions): Promise<Commands> {
  const { around = {}, clock, clockDoubt, guards, log, metrics, store } = options;
  const { killSwitch } = guards;
  let currentConfig = options.config;
  const config = () => currentConfig;
  const allowList = createAllowList(
    currentConfig,
    options.sources.map(({ source }) => source.name),
  );
  const sourceWriters = new Map<string, SourceWriter>();
  function expectedWaitMs(name: string): number {
    const sourceWriter = sourceWriters.get(name);
    if (sourceWriter === undefined) return 0;
    return currentConfig.group_window + quotaWaitMs(sourceWriter.source, sourceWriter.writer.waiting(), clock);
  }
  const journal = await openJournal({ store, clock, rehearsal: currentConfig.rehearsal, expectedWaitMs });
  const approval = createApprovalGuard({
    config: currentConfig.approval ?? null,
    rules: approvedRules(options.approved ?? currentConfig, around),
    pin: guards.pin,
    clock,
  });
  const arming = await openArming({ store, guards, atStart: options.armAtStart ?? false, journal, clock, log });
  const auditSpace = createAuditSpace({
    size: journal.auditSize,
    maxBytes: currentConfig.audit_max_bytes,
    freeBytes: guards.freeBytes,
    metrics,
    log,
  });
  const closing = createClosingConditions({ config, killSwitch, arming, approval, auditSpace, journal, clock, log });
  const view = createBuildingReader(store);
  const count = (outcome: string, reason: string | null) => metrics.commands.inc({ outcome, reason: reason ?? "none" });
  const dispatch = (accepted: AcceptedCommand) => sourceWriters.get(accepted.command.source)?.writer.add(accepted);
  const clockRefusal = (source: Source) => checkClock(source.clockSkewMs(), clockDoubt.stepped());
  const isTrusted = (source: Source) => source.clockSkewMs() !== null && clockRefusal(source) === null;
  function isClockTrusted(name: string): boolean {
    const sourceWriter = sourceWriters.get(name);
    return sourceWriter !== undefined && isTrusted(sourceWriter.source);
  }
  const restores = createRestores({ journal, allowList, view, clock, isClockTrusted, log, dispatch });
  const endings = createEndings({ journal, clock, log, count, putsOff: restores.putsOff });
  const refusals = createRefusals({ journal, clock, log });

  for (const { source, timeZone } of options.sources) {
    const sourceDeps = { source, view, journal, endings, clock, log: log.child({ source: source.name }) };
    const values = createFreshValues(sourceDeps);
    const readBack = createReadBack({ ...sourceDeps, values, settleMs: () => currentConfig.read_back_after });
    const closed = () => closing.closed() ?? clockRefusal(source);
    const writer = createWriter({ ...sourceDeps, timeZone, config, holds: allowList.holds, values, closed, readBack });
    sourceWriters.set(source.name, { source, readBack, writer });
  }
  const accept = createIntake({
    ...{ config, allowList, view, journal, refusals, killSwitch, clock, clockDoubt, dispatch, count },
    closed: closing.closed,
    clockSkewMs: (name) => sourceWriters.get(name)?.source.clockSkewMs() ?? null,
    onSecond: (name) => sourceWriters.get(name)?.writer.wake(),
  });
  const stopController = new AbortController();
  const cutController = new AbortController();
  let runPromise: Promise<unknown> | null = null;
  let stopPromise: Promise<void> | null = null;

  async function tidyJournal(): Promise<number> {
    // A clock that is a week ahead would forget ids too early, and they could be used again.
    if (![...sourceWriters.values()].every(({ source }) => isTrusted(source))) return MINUTE_MS;
    await journal.tidy();
    return HOUR_MS;
  }

  async function publishHead(): Promise<number> {
    await journal.publishHead();
    return HOUR_MS;
  }

  async function recover(signal: AbortSignal): Promise<void> {
    for (const { command, state, changedAt } of journal.open()) {
      const sourceWriter = sourceWriters.get(command.source);
      if (state === "accepted") {
        // A restore stays open: the old value is put back as soon as possible.
        if (journal.restoreBy(command.id) === undefined) await endings.end(command, STOPPED_END, signal);
      } else if (sourceWriter === undefined) {
        const message = `Source ${command.source} is no longer configured, so the tag cannot be read back.`;
        await endings.end(command, { outcome: "unknown", reason: "in-doubt", message }, signal);
      } else {
        const sentAtMs = Date.parse(changedAt);
        sourceWriter.readBack.add([{ command, sent: "in-doubt", complaint: null, before: null, sentAtMs }]);
      }
    }
  }

  async function end(deadlineMs: number): Promise<void> {
    const untilMs = clock.monotonic() + deadlineMs;
    stopController.abort(new OrderlyStop());
    await endsWithin(clock, deadlineMs, runPromise ?? Promise.resolve());
    cutController.abort(new OrderlyStop());
    const flushPromise = refusals.flush().catch((error: unknown) => {
      log.error({ err: error }, "refusals could not be recorded");
    });
    await endsWithin(clock, Math.max(FINAL_FLUSH_MS, untilMs - clock.monotonic()), flushPromise);
  }

  return {
    name: "commands",
    accept,
    killSwitch,
    notices: () => [...closing.notices(), ...restores.notices()],
    status: () => ({
      enabled: currentConfig.enabled,
      rehearsal: currentConfig.rehearsal,
      stopped: killSwitch.isThrown(),
      writable: currentConfig.allow.length,
      waiting: [...sourceWriters.values()].reduce((sum, line) => sum + line.writer.waiting(), 0),
    }),
    change(next, nextAround) {
      allowList.change(next);
      approval.change({ config: next.approval ?? null, rules: approvedRules(next, nextAround) });
      auditSpace.change(next.audit_max_bytes);
      currentConfig = next;
      for (const { writer } of sourceWriters.values()) writer.wake();
    },
    writable(name, tagId) {
      const entry = allowList.entry(name, tagId);
      const sourceWriter = sourceWriters.get(name);
      if (entry === undefined || sourceWriter === undefined) return null;
      return writableTag(entry, currentConfig.rehearsal, closing.closed() ?? clockRefusal(sourceWriter.source));
    },
    expectedWaitMs: (named) => expectedWaitMs(allowList.sourceOf(named) ?? ""),
    async start(signal) {
      if (runPromise !== null || stopController.signal.aborted) return;
      const stopSignal = AbortSignal.any([signal, stopController.signal]);
      const cutSignal = AbortSignal.any([signal, cutController.signal]);
      const runHourly = (turn: () => Promise<number>, problem: string) => {
        const fault = (error: unknown) => log.warn({ err: error }, problem);
        return runLoop({ clock, signal: stopSignal, turn, fault, backoff: HOURLY_BACKOFF });
      };
      runPromise = Promise.allSettled([
        recover(cutSignal),
        ...[...sourceWriters.values()].flatMap(({ writer, readBack }) => [
          writer.run(stopSignal, cutSignal),
          readBack.run(stopSignal),
        ]),
        refusals.run(stopSignal),
        restores.run(endings, stopSignal),
        runHourly(tidyJournal, "old commands could not be forgotten"),
        runHourly(publishHead, "the head of the audit log could not be published"),
        closing.watch(stopSignal),
      ]);
    },
    stop(deadlineMs) {
      stopPromise ??= end(deadlineMs);
      return stopPromise;
    },
  };
}

/** Upper bound of the milliseconds that the quota delays a write behind `waiting` other writes. */
function quotaWaitMs(source: Source, waiting: number, clock: Clock): number {
  const { buckets, heldUntilMs } = source.quota();
  const msUntilSlot = (untilMs: number | null) => (untilMs === null ? 0 : untilMs - clock.now());
  const requestsBefore = Math.floor(waiting / TAGS_PER_REQUEST);
  const bucketWaitsMs = buckets.map((bucket) => {
    const freeSlots = bucket.perMinute - bucket.used;
    const slotWaitMs = freeSlots > 0 ? 0 : bucket.nextSlotInMs;
    const queuedWaitMs = Math.max(0, requestsBefore - Math.max(0, freeSlots - 1)) * (MINUTE_MS / bucket.perMinute);
    return Math.max(msUntilSlot(bucket.heldUntilMs), slotWaitMs) + queuedWaitMs;
  });
  return Math.max(0, msUntilSlot(heldUntilMs), ...bucketWaitsMs);
}
