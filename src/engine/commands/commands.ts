import type { AcceptCommand } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { type Service, Stopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { Store } from "../store/store.ts";
import { createAllowList, type WritableTag, writableTag } from "./allow-list.ts";
import { approvedRules, type RuleSet } from "./approval/approval.ts";
import { createApprovalGuard } from "./approval/guard.ts";
import { openArming } from "./arming.ts";
import { createAuditSpace } from "./audit/space.ts";
import { createBuildingReader } from "./building-view.ts";
import { createClosingConditions } from "./closing-conditions.ts";
import type { CommandsConfig } from "./config.ts";
import { createEndings } from "./endings.ts";
import { createFreshValues } from "./fresh-values.ts";
import { checkClock } from "./gate.ts";
import type { WritingGuards } from "./guards.ts";
import { createIntake } from "./intake.ts";
import { type AcceptedCommand, openJournal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { createReadBack, type ReadBack } from "./read-back.ts";
import { createRefusals } from "./refusals.ts";
import { createRestores } from "./restores.ts";
import { type CommandWriter, createWriter, STOPPED_END } from "./writer.ts";

/** Writes to the building: intake (gate and journal) → writer → read-back → result. A restart sends nothing again. */
export interface Commands extends Service {
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
  /** The complete section that is approved, when `config` is a part of it. */
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
  let current = options.config;
  const config = () => current;
  const allowList = createAllowList(
    current,
    options.sources.map(({ source }) => source.name),
  );
  const lines = new Map<string, SourceWriter>();
  function expectedWaitMs(name: string): number {
    const line = lines.get(name);
    return line === undefined ? 0 : current.group_window + quotaWaitMs(line.source, line.writer.waiting(), clock);
  }
  const journal = await openJournal({ store, clock, rehearsal: current.rehearsal, expectedWaitMs });
  const approval = createApprovalGuard({
    config: current.approval ?? null,
    rules: approvedRules(options.approved ?? current, around),
    pin: guards.pin,
    clock,
  });
  const arming = await openArming({ store, guards, atStart: options.armAtStart ?? false, journal, clock, log });
  const auditSpace = createAuditSpace({
    size: journal.auditSize,
    maxBytes: current.audit_max_bytes,
    freeBytes: guards.freeBytes,
    metrics,
    log,
  });
  const closing = createClosingConditions({ config, killSwitch, arming, approval, auditSpace, journal, clock, log });
  const view = createBuildingReader(store);
  const count = (outcome: string, reason: string | null) => metrics.commands.inc({ outcome, reason: reason ?? "none" });
  const dispatch = (accepted: AcceptedCommand) => lines.get(accepted.command.source)?.writer.add(accepted);
  const clockRefusal = (source: Source) => checkClock(source.clockSkewMs(), clockDoubt.stepped());
  const isTrusted = (source: Source) => source.clockSkewMs() !== null && clockRefusal(source) === null;
  function isClockTrusted(name: string): boolean {
    const line = lines.get(name);
    return line !== undefined && isTrusted(line.source);
  }
  const restores = createRestores({ journal, allowList, view, clock, isClockTrusted, log, dispatch });
  const endings = createEndings({ journal, clock, log, count, putsOff: restores.putsOff });
  const refusals = createRefusals({ journal, clock, log });

  for (const { source, timeZone } of options.sources) {
    const shared = { source, view, journal, endings, clock, log: log.child({ source: source.name }) };
    const values = createFreshValues(shared);
    const readBack = createReadBack({ ...shared, values, settleMs: () => current.read_back_after });
    const closed = () => closing.closed() ?? clockRefusal(source);
    const writer = createWriter({ ...shared, timeZone, config, holds: allowList.holds, values, closed, readBack });
    lines.set(source.name, { source, readBack, writer });
  }
  const accept = createIntake({
    ...{ config, allowList, view, journal, refusals, killSwitch, clock, clockDoubt, dispatch, count },
    closed: closing.closed,
    clockSkewMs: (name) => lines.get(name)?.source.clockSkewMs() ?? null,
    onSecond: (name) => lines.get(name)?.writer.wake(),
  });
  const stopping = new AbortController();
  const cutting = new AbortController();
  let running: Promise<unknown> | null = null;
  let stopped: Promise<void> | null = null;

  async function tidyJournal(): Promise<number> {
    // A clock that is a week ahead would forget ids too early, and they could be used again.
    if (![...lines.values()].every(({ source }) => isTrusted(source))) return MINUTE_MS;
    await journal.tidy();
    return HOUR_MS;
  }

  async function publishHead(): Promise<number> {
    await journal.publishHead();
    return HOUR_MS;
  }

  async function recover(signal: AbortSignal): Promise<void> {
    for (const { command, state, changedAt } of journal.open()) {
      const line = lines.get(command.source);
      if (state === "accepted") {
        // A restore stays open: the old value is put back as soon as possible.
        if (journal.restoreBy(command.id) === undefined) await endings.end(command, STOPPED_END, signal);
      } else if (line === undefined) {
        const message = `Source ${command.source} is no longer configured, so the tag cannot be read back.`;
        await endings.end(command, { outcome: "unknown", reason: "in-doubt", message }, signal);
      } else {
        const sentAtMs = Date.parse(changedAt);
        line.readBack.add([{ command, sent: "in-doubt", complaint: null, before: null, sentAtMs }]);
      }
    }
  }

  async function end(deadlineMs: number): Promise<void> {
    const untilMs = clock.monotonic() + deadlineMs;
    stopping.abort(new Stopping());
    await endsWithin(clock, deadlineMs, running ?? Promise.resolve());
    cutting.abort(new Stopping());
    const flushed = refusals.flush().catch((error: unknown) => {
      log.error({ err: error }, "refusals could not be recorded");
    });
    await endsWithin(clock, Math.max(FINAL_FLUSH_MS, untilMs - clock.monotonic()), flushed);
  }

  return {
    name: "commands",
    accept,
    killSwitch,
    notices: () => [...closing.notices(), ...restores.notices()],
    status: () => ({
      enabled: current.enabled,
      rehearsal: current.rehearsal,
      stopped: killSwitch.isThrown(),
      writable: current.allow.length,
      waiting: [...lines.values()].reduce((sum, line) => sum + line.writer.waiting(), 0),
    }),
    change(next, nextAround) {
      allowList.change(next);
      approval.change({ config: next.approval ?? null, rules: approvedRules(next, nextAround) });
      auditSpace.change(next.audit_max_bytes);
      current = next;
      for (const { writer } of lines.values()) writer.wake();
    },
    writable(name, tagId) {
      const entry = allowList.entry(name, tagId);
      const line = lines.get(name);
      if (entry === undefined || line === undefined) return null;
      return writableTag(entry, current.rehearsal, closing.closed() ?? clockRefusal(line.source));
    },
    expectedWaitMs: (named) => expectedWaitMs(allowList.sourceOf(named) ?? ""),
    async start(signal) {
      if (running !== null || stopping.signal.aborted) return;
      const ending = AbortSignal.any([signal, stopping.signal]);
      const cut = AbortSignal.any([signal, cutting.signal]);
      const hourly = (turn: () => Promise<number>, problem: string) => {
        const fault = (error: unknown) => log.warn({ err: error }, problem);
        return runLoop({ clock, signal: ending, turn, fault, backoff: HOURLY_BACKOFF });
      };
      running = Promise.allSettled([
        recover(cut),
        ...[...lines.values()].flatMap(({ writer, readBack }) => [writer.run(ending, cut), readBack.run(ending)]),
        refusals.run(ending),
        restores.run(endings, ending),
        hourly(tidyJournal, "old commands could not be forgotten"),
        hourly(publishHead, "the head of the audit log could not be published"),
        closing.watch(ending),
      ]);
    },
    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },
  };
}

/** Upper bound of the milliseconds that the quota delays a write behind `waiting` other writes. */
function quotaWaitMs(source: Source, waiting: number, clock: Clock): number {
  const { buckets, heldUntilMs } = source.quota();
  const left = (untilMs: number | null) => (untilMs === null ? 0 : untilMs - clock.now());
  const requestsBefore = Math.floor(waiting / TAGS_PER_REQUEST);
  const waits = buckets.map((bucket) => {
    const free = bucket.perMinute - bucket.used;
    const slot = free > 0 ? 0 : bucket.nextSlotInMs;
    const others = Math.max(0, requestsBefore - Math.max(0, free - 1)) * (MINUTE_MS / bucket.perMinute);
    return Math.max(left(bucket.heldUntilMs), slot) + others;
  });
  return Math.max(0, left(heldUntilMs), ...waits);
}
