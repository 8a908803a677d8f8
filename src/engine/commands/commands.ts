import type { Accept } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { type Service, Stopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { loop, within } from "../../core/runtime/waiting.ts";
import type { Source } from "../source/source.ts";
import type { Store } from "../store/store.ts";
import { createAllowList } from "./allow-list.ts";
import { type Rules, rulesOf } from "./approval/approval.ts";
import { createApprovalGuard } from "./approval/guard.ts";
import { openArming } from "./arming.ts";
import { createAuditSpace } from "./audit/space.ts";
import { viewOf } from "./building-view.ts";
import { createClosedWindows } from "./closed-windows.ts";
import type { CommandsConfig } from "./config.ts";
import { createEndings, type Endings } from "./endings.ts";
import { waitOf } from "./expected-wait.ts";
import { createFreshValues } from "./fresh-values.ts";
import { checkClock } from "./gate.ts";
import type { Guards } from "./guards.ts";
import { createIntake } from "./intake.ts";
import { type Accepted, type Journal, openJournal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { createReadBack, type ReadBack } from "./read-back.ts";
import { createRefusals } from "./refusals.ts";
import { createRestores } from "./restores.ts";
import { type WritableTag, writableTag } from "./writable.ts";
import { createWriter, type Writer } from "./writer.ts";

/**
 * The way back into the building: intake (gate and journal) → writer → read-back → result.
 *
 * At a start nothing is written by itself: a command that was accepted but had not left ends as `expired`, and
 * one that may have left is read back.
 */
export interface Commands extends Service {
  readonly accept: Accept;
  readonly killSwitch: KillSwitch;
  status(): CommandsStatus;
  /** Sentences that a person should read; empty when all is well. */
  notices(): readonly string[];
  /** How long the quota would make a command wait that came now, in milliseconds; of the only source when null. */
  expectedWaitMs(source: string | null): number;
  /**
   * Other rules from now on, all at once. What has left is read back as before; what waits ends where its own entry was
   * changed. Where the two-person rule holds, writing is closed until somebody finds the new rules approved. Throws what
   * is wrong with them, and then nothing has changed.
   */
  change(config: CommandsConfig, around: Rules): void;
  /** Values that a person may write to a tag; null when the allow-list does not contain it. */
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
  readonly guards: Guards;
  /** Arms the state, should it not be armed yet; see `Arming`. */
  readonly armAtStart?: boolean;
  /** Other settings that decide what is written where, e.g. addresses of sources; approved with the configuration. */
  readonly around?: Rules;
  /** The whole of what is approved, where `config` is a part of it. */
  readonly approved?: CommandsConfig;
  readonly clock: Clock;
  /** Nothing is written while it is in doubt. */
  readonly clockDoubt: Pick<ClockCheck, "stepped">;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface CommandsSource {
  readonly source: Source;
  readonly timeZone: string;
}

interface Line {
  readonly source: Source;
  readonly writer: Writer;
  readonly readBack: ReadBack;
}

const HOUR_MS = 3_600_000;
/** While the clock cannot be trusted, it is looked so often whether it can. */
const LOOK_AGAIN_MS = 60_000;
/** Time at a stop for recording counted rejections, even after the deadline, in milliseconds. */
const LAST_WORDS_MS = 100;
const HOURLY_BACKOFF = { firstMs: 60_000, maxMs: 600_000 };

export async function createCommands(options: CommandsOptions): Promise<Commands> {
  const { clock, clockDoubt, log, metrics, store } = options;
  let config = options.config;
  const inForce = () => config;
  const names = options.sources.map(({ source }) => source.name);
  const allowList = createAllowList(config, names);
  const lines = new Map<string, Line>();
  const expectedWaitMs = (name: string) => {
    const line = lines.get(name);
    return line === undefined ? 0 : config.group_window + waitOf(line.source, line.writer.waiting(), clock);
  };
  const journal = await openJournal({ store, clock, rehearsal: config.rehearsal, expectedWaitMs });
  const { around = {}, guards } = options;
  const { killSwitch } = guards;
  const approval = createApprovalGuard({
    config: config.approval ?? null,
    rules: rulesOf(options.approved ?? config, around),
    pin: guards.pin,
    clock,
  });
  const arming = await openArming({
    store,
    place: guards.place,
    request: guards.armRequest,
    unarmedHere: guards.unarmedHere,
    atStart: options.armAtStart ?? false,
    journal,
    clock,
    log,
  });
  const auditSpace = createAuditSpace({
    size: journal.auditSize,
    maxBytes: config.audit_max_bytes,
    freeBytes: guards.freeBytes,
    metrics,
    log,
  });
  const closures = createClosedWindows({
    config: inForce,
    killSwitch,
    arming,
    approval,
    auditSpace,
    journal,
    clock,
    log,
  });
  const view = viewOf(store);
  const count = (outcome: string, reason: string | null) => metrics.commands.inc({ outcome, reason: reason ?? "none" });
  const dispatch = (accepted: Accepted) => lines.get(accepted.command.source)?.writer.add(accepted);
  const clockRefusal = (source: Source) => checkClock(source.clockSkewMs(), clockDoubt.stepped());
  const isTrusted = (source: Source) => source.clockSkewMs() !== null && clockRefusal(source) === null;
  const isClockTrusted = (name: string) => {
    const line = lines.get(name);
    return line !== undefined && isTrusted(line.source);
  };
  const restores = createRestores({ journal, allowList, view, clock, isClockTrusted, log, dispatch });
  const endings = createEndings({ journal, clock, log, count, putsOff: restores.putsOff });
  const refusals = createRefusals({ journal, clock, log });

  for (const { source, timeZone } of options.sources) {
    const shared = { source, view, journal, endings, clock, log: log.child({ source: source.name }) };
    const values = createFreshValues(shared);
    const readBack = createReadBack({ ...shared, values, settleMs: () => config.read_back_after });
    const writer = createWriter({
      ...shared,
      timeZone,
      config: inForce,
      holds: allowList.holds,
      values,
      closed: () => closures.closed() ?? clockRefusal(source),
      readBack,
    });
    lines.set(source.name, { source, readBack, writer });
  }
  const accept = createIntake({
    config: inForce,
    allowList,
    view,
    journal,
    refusals,
    killSwitch,
    closed: closures.closed,
    clock,
    clockDoubt,
    clockSkewMs: (name) => lines.get(name)?.source.clockSkewMs() ?? null,
    dispatch,
    onSecond: (name) => lines.get(name)?.writer.wake(),
    count,
  });
  const stopping = new AbortController();
  const cutting = new AbortController();
  let running: Promise<unknown> | null = null;
  let stopped: Promise<void> | null = null;

  return {
    name: "commands",
    accept,
    killSwitch,
    notices: () => [...closures.notices(), ...restores.notices()],
    status: () => ({
      enabled: config.enabled,
      rehearsal: config.rehearsal,
      stopped: killSwitch.thrown(),
      writable: config.allow.length,
      waiting: [...lines.values()].reduce((sum, line) => sum + line.writer.waiting(), 0),
    }),
    change(next, nextAround) {
      allowList.change(next);
      approval.change({ config: next.approval ?? null, rules: rulesOf(next, nextAround) });
      auditSpace.change(next.audit_max_bytes);
      config = next;
      for (const { writer } of lines.values()) writer.wake();
    },
    writable(name, tagId) {
      const entry = allowList.entry(name, tagId);
      const line = lines.get(name);
      if (entry === undefined || line === undefined) return null;
      return writableTag(entry, config, closures.closed() ?? clockRefusal(line.source));
    },
    expectedWaitMs: (named) => expectedWaitMs(allowList.sourceOf(named) ?? ""),
    async start(signal) {
      if (running !== null || stopping.signal.aborted) return;
      const ending = AbortSignal.any([signal, stopping.signal]);
      const cut = AbortSignal.any([signal, cutting.signal]);
      running = Promise.allSettled([
        recover(journal, lines, endings, cut),
        ...[...lines.values()].flatMap(({ writer, readBack }) => [writer.run(ending, cut), readBack.run(ending)]),
        refusals.run(ending),
        restores.run(endings, ending),
        hourly(tidy, "old commands could not be forgotten", { clock, log, signal: ending }),
        hourly(tellHead, "how far the audit log reaches could not be told", { clock, log, signal: ending }),
        closures.watch(ending),
      ]);
    },
    /** Sends nothing more; a running request may finish, and waiting commands end with a result. */
    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },
  };

  async function tidy(): Promise<number> {
    // An id that is forgotten by a clock that is a week ahead could be used again, so it has to be trusted first.
    if (![...lines.values()].every(({ source }) => isTrusted(source))) return LOOK_AGAIN_MS;
    await journal.tidy();
    return HOUR_MS;
  }

  async function tellHead(): Promise<number> {
    await journal.publishHead();
    return HOUR_MS;
  }

  async function end(deadlineMs: number): Promise<void> {
    const until = clock.monotonic() + deadlineMs;
    stopping.abort(new Stopping());
    await within(clock, deadlineMs, running ?? Promise.resolve());
    cutting.abort(new Stopping());
    const flushed = refusals.flush().catch((error: unknown) => {
      log.error({ err: error }, "refusals could not be recorded");
    });
    await within(clock, Math.max(LAST_WORDS_MS, until - clock.monotonic()), flushed);
  }
}

/** Ends what the last run left open. */
async function recover(
  journal: Journal,
  lines: ReadonlyMap<string, Line>,
  endings: Endings,
  signal: AbortSignal,
): Promise<void> {
  for (const { command, state, changedAt } of journal.open()) {
    const line = lines.get(command.source);
    // A restore stays open: the old value is put back as soon as possible.
    if (state === "accepted" && journal.restoreBy(command.id) !== undefined) continue;
    if (state === "accepted") {
      const message = "The worker stopped before the command left; nothing was written.";
      await endings.end(command, { outcome: "expired", reason: "stopped", message }, signal);
    } else if (line === undefined) {
      const message = `Source ${command.source} is no longer configured, so the tag cannot be read back.`;
      await endings.end(command, { outcome: "unknown", reason: "in-doubt", message }, signal);
    } else {
      const sentAtMs = Date.parse(changedAt);
      line.readBack.add([{ command, sent: "in-doubt", complaint: null, before: null, sentAtMs }]);
    }
  }
}

/** Repeats something about once an hour; `turn` answers after how many milliseconds it is wanted again. */
function hourly(
  turn: () => Promise<number>,
  trouble: string,
  { clock, log, signal }: { readonly clock: Clock; readonly log: Log; readonly signal: AbortSignal },
): Promise<void> {
  const fault = (error: unknown) => log.warn({ err: error }, trouble);
  return loop({ clock, signal, turn, fault, backoff: HOURLY_BACKOFF });
}
