import type { BuildingView, Failing, Receipt, Sink, SinkStateChange, Ticked } from "../../core/connector.ts";
import { meaningOf, Retryable, sentence } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, withoutCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { firstOf, persist, sleepFor, WOKEN } from "../../core/runtime/waiting.ts";
import type { Outbox, Settlement, Store } from "../store/store.ts";
import { createBuffered } from "./buffered.ts";
import type { DeliveryConfig } from "./config.ts";
import { createEarly } from "./early.ts";
import { isOutdated, matches, passesEverything } from "./filter.ts";
import {
  type Batch,
  batchOf,
  countedAfter,
  type Outcome,
  outcomeOf,
  retryFrom,
  sequenceOf,
  sinkStateChange,
} from "./offer.ts";
import { createOffers, NOTHING } from "./offers.ts";
import { createRestartWatch, type Restarted } from "./restart-watch.ts";
import { createSetbacks } from "./setbacks.ts";
import type { SinkState } from "./sink-state.ts";
import { createSkipped } from "./skipped.ts";
import { createSnapshot } from "./snapshot.ts";

/** A sink is not called more often than this although nothing happens, in milliseconds. */
const SHORTEST_TICK_MS = 100;

export interface Delivery {
  /**
   * One step; answers after how many milliseconds the next is due if nothing changes in the state (infinite when none
   * is), null when the sink has ended for good or nothing new may begin.
   */
  turn(): Promise<number | null>;
  /** Settles what was only looked at, after the last turn. */
  end(): Promise<void>;
}

export interface DeliveryOptions {
  readonly name: string;
  readonly sink: Sink;
  readonly config: DeliveryConfig;
  readonly outbox: Outbox;
  readonly state: SinkState;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly picture: BuildingView;
  readonly log: Log;
  readonly onRestart: (restarted: Restarted) => void;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly random: () => number;
  /** How long what is believed waits, in milliseconds, before it is looked again whether it is whole. */
  readonly lookEveryMs: number;
  /** Stores that the server is gone for good. */
  endForGood(reason: string): Promise<void>;
  /** Aborts when nothing new may begin. */
  readonly draining: AbortSignal;
  /** Aborts what is under way. */
  readonly forced: AbortSignal;
}

/**
 * Offers the log to one sink, step by step:
 *
 *   open → tick → next → filter → write → settle → tick → next …
 *
 * Whatever goes wrong keeps the events and waits here, where it delays no other sink. The cursor moves only when
 * the sink has answered, so a crash at any point repeats at most the batch that was under way, and up to 100 events where
 * the sink says that it does no harm (`mayRepeat`).
 */
export function createDelivery(options: DeliveryOptions): Delivery {
  const { name, sink, config, outbox, state, clock, draining, forced } = options;
  const most = Math.min(config.batch, sink.maxBatch ?? config.batch);
  const takesAll = passesEverything(config.filter);
  const passes = (event: Event) =>
    (takesAll || matches(config.filter, event)) && (config.sequence || !isOutdated(event, clock.now()));
  // The numbers of `sequence` belong to one event each, so the order must be the same again after a crash.
  const urgentFirst = sink.oneOrder !== true && !config.sequence;
  const offers = createOffers({ sink: name, outbox, clock, most, takesAll, urgentFirst });
  const skipped = createSkipped(clock, settle);
  const gathered = createBuffered();
  /** Failures of urgent and other events are counted separately. */
  const setbacksOf = {
    urgent: createSetbacks(config, options.random),
    others: createSetbacks(config, options.random),
  };
  let setbacks = setbacksOf.others;
  const restarts = createRestartWatch({
    name,
    sink,
    outbox,
    clock,
    windowMs: config.replay_after_restart,
    store: options.store,
    log: options.log,
    onRestart: options.onRestart,
  });
  const { store, picture, log } = options;
  const snapshot = createSnapshot({ sink: name, store, picture, passes, clock, log });
  /** Until when what is believed waits, on the monotonic clock; null when it does not. */
  let snapshotWaitsMs: number | null = null;
  let isOpen = false;
  /** A failure that the sink retries by itself. */
  let failing: Failing | null = null;
  /** When the sink wants to be called although nothing happens, on the monotonic clock. */
  let tickAtMs = sink.tick === undefined ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;

  async function turn(): Promise<number | null> {
    if (!isOpen) {
      const failure = await attempt(() => withDeadline((signal) => sink.open(signal), draining));
      if (draining.aborted) return null;
      if (failure !== null) return (await endedBy(failure.error, "open", null)) ? null : 0;
      isOpen = true;
      await restarts.look("opened", draining);
    } else await restarts.look("open", draining);
    if (draining.aborted) return null;
    if (clock.monotonic() >= tickAtMs) {
      const failure = await attempt(tick);
      if (draining.aborted) return null;
      if (failure !== null) return (await endedBy(failure.error, "tick", null)) ? null : 0;
    }

    let told: readonly Event[] | null = [];
    if (snapshotWaitsMs === null || clock.monotonic() >= snapshotWaitsMs) {
      told = await stored(() => snapshot.next(most));
      if (told === null) return null;
      snapshotWaitsMs = snapshot.waits() ? clock.monotonic() + options.lookEveryMs : null;
    }
    const after = Math.max(skipped.through(), gathered.through());
    const mayPass = told.length === 0 || snapshot.letsUrgentPass();
    const urgent = mayPass ? await stored(() => offers.urgent(after)) : NOTHING;
    if (urgent === null) return null;
    const isUrgent = urgent.events.length > 0;
    if (!isUrgent && told.length > 0) return tellState(told);

    const offer = isUrgent ? urgent : await stored(() => offers.others(after));
    if (offer === null) return null;
    setbacks = isUrgent ? setbacksOf.urgent : setbacksOf.others;
    const numbered = { ...offer, counted: countedAfter(offer.counted, gathered.events()) };
    const portion = batchOf(numbered, passes, most);
    if (!isUrgent) offers.seen(portion);
    if (portion.batch.length === 0) {
      if (!isUnproven()) state.well("idle");
      if (portion.urgent === true) {
        offers.unwanted(portion.through);
        return 0;
      }
      if (portion.seen > 0) {
        // The cursor may not pass what is gathered, so what is left out behind it is settled along with it.
        if (gathered.isEmpty() || portion.again) await skipped.add(portion);
        else gathered.add(portion, []);
        return 0;
      }
      await skipped.settleIfDue();
      if (offers.isTurn()) return 0;
      const dueMs = Math.min(tickAtMs, snapshotWaitsMs ?? Number.POSITIVE_INFINITY) - clock.monotonic();
      return Math.max(0, Math.min(dueMs, skipped.dueInMs(), restarts.dueInMs(), offers.othersDueInMs()));
    }

    const outcome = await write(portion, (settlement) => outbox.settle(name, settlement));
    if (outcome.gathered !== null) gathered.add(portion, outcome.gathered);
    const settlement = outcome.settlement === null ? null : gathered.with(outcome.settlement);
    if (settlement !== null) {
      await stored(() => restarts.deliveredAgain(positionsSettled(portion, settlement)));
      skipped.forget(settlement);
      await settle(settlement);
      if (!settlement.again) countGathered();
    }
    const what = `${portion.again} ${outcome.kept?.head.position}`;
    return whatNext(outcome, what, () => giveUp(portion, outcome), !isUrgent);
  }

  /** Tells what is believed already: the same as with the log, but it has its own place to go on from. */
  async function tellState(events: readonly Event[]): Promise<number | null> {
    const batch = events.map((event) => ({ position: 0, committedAt: "", event }));
    const portion = { again: false, batch, through: 0, seen: batch.length, counted: undefined };
    const outcome = await write(portion, async () => undefined);
    const settled = batch.length - (outcome.kept?.count ?? 0);
    const rejected = outcome.settlement?.rejected ?? [];
    if (rejected.length > 0)
      options.log.warn({ sink: name, rejected }, "some of what is believed was refused; it is told when it changes");
    await stored(() => snapshot.settle(settled, outcome.settlement?.documents ?? []));
    return whatNext(outcome, `state ${events[settled]?.id}`, async () => {
      options.log.warn({ sink: name, event: events[settled]?.id }, "what is believed was refused too often");
      await stored(() => snapshot.settle(settled + 1, []));
    });
  }

  /** Decides what follows a write. `giveUpHead` makes the failing event a dead letter. */
  async function whatNext(
    outcome: Outcome,
    what: string,
    giveUpHead: () => Promise<void>,
    letsUrgentPass = false,
  ): Promise<number | null> {
    if (outcome.settlement !== null) setbacks.over();
    count(outcome);
    if (outcome.kept === null) {
      if (!isUnproven()) state.well("delivering");
      return 0;
    }
    if (forced.aborted) return null;
    return (await endedBy(outcome.kept.error, what, giveUpHead, letsUrgentPass)) ? null : 0;
  }

  /** It failed the last time, and what it has taken since shows nothing: only gathered, or urgent. */
  function isUnproven(): boolean {
    return failing !== null || (!gathered.isEmpty() && setbacks.attempts() > 0) || offers.othersWait();
  }

  function showFailing(now: Failing | undefined): void {
    failing = now ?? null;
    if (now === undefined) return;
    const as = meaningOf(now.error).kind === "throttled" ? "throttled" : "retrying";
    state.trouble(as, now.error, now.attempts, now.inMs);
  }

  async function write(portion: Batch, settleEarly: (settlement: Settlement) => Promise<void>): Promise<Outcome> {
    const events = portion.batch.map(({ event }) => event);
    const positions = portion.batch.map(({ position }) => position);
    const committedAt = portion.batch.map((logged) => logged.committedAt);
    const sequences = () => portion.batch.map((_, index) => sequenceOf(portion, index) ?? null);
    const numbered = config.sequence ? { sequences: sequences() } : {};
    const offered = { positions, committedAt, again: portion.again, ...numbered };
    let receipt: Receipt | undefined;
    const early = createEarly(name, portion, settleEarly);
    state.writing();
    const failure = await attempt(async () => {
      receipt = await withDeadline((signal) => sink.write(events, signal, early.accepted, offered), forced);
    });
    await early.done();
    if (failure !== null) return retryFrom(portion, 0, failure.error);
    const outcome = outcomeOf(name, portion, receipt);
    showFailing(receipt?.failing);
    tickAtMs = Math.min(tickAtMs, clock.monotonic() + (receipt?.tickInMs ?? Number.POSITIVE_INFINITY));
    if (outcome.settlement === null) await remember(receipt?.remember);
    return outcome;
  }

  async function tick(): Promise<void> {
    const ticked = await withDeadline(async (signal): Promise<Ticked> => {
      return (await sink.tick?.(signal)) ?? { inMs: Number.POSITIVE_INFINITY };
    }, forced);
    const { inMs, refused = [], remember: remembered } = ticked;
    showFailing(ticked.failing);
    if (refused.length > 0) await refuseSettled(refused);
    if (ticked.settled === true && !gathered.isEmpty()) {
      const settlement = { ...gathered.settlement(), documents: sinkStateChange(name, remembered) };
      skipped.forget(settlement);
      await settle(settlement);
      countGathered();
      setbacks.over();
      state.well("idle");
    } else await remember(remembered);
    tickAtMs = clock.monotonic() + Math.max(SHORTEST_TICK_MS, inMs);
  }

  /** Makes dead letters of events that the cursor has passed. Neither the cursor nor a mark is at position 0, so none moves. */
  async function refuseSettled(refused: NonNullable<Ticked["refused"]>): Promise<void> {
    const rejected = refused.map(({ position, reason }) => ({
      position,
      reason: withoutCredentials(reason),
    }));
    await stored(() => outbox.settle(name, { again: true, through: 0, rejected }));
    options.metrics.deliveries.inc({ sink: name, outcome: "rejected" }, rejected.length);
  }

  async function remember(remembered: SinkStateChange | undefined): Promise<void> {
    const documents = sinkStateChange(name, remembered);
    if (documents.length > 0) await stored(() => options.store.commit({ documents }));
  }

  /** Waits as the error means; true when the sink has ended for good. */
  async function endedBy(
    error: unknown,
    what: string,
    giveUpHead: (() => Promise<void>) | null,
    letsUrgentPass = false,
  ): Promise<boolean> {
    // Buffered events are offered again from the first one; the rejected event is not the first.
    const letGo = gathered.isEmpty() ? giveUpHead : null;
    gathered.forget();
    const next = setbacks.judge(error, what, letGo !== null);
    if (next.go === "end") {
      await stored(() => options.endForGood(next.reason));
      state.end(next.reason);
      return true;
    }
    if (next.go === "give-up") {
      isOpen = false;
      await letGo?.();
      return false;
    }
    if (next.reopen) isOpen = false;
    state.trouble(next.as, next.failure, next.attempts, next.waitMs);
    // The server rejects only this event, so an alarm need not wait for its next attempt.
    const isRefusal = letsUrgentPass && next.failure.kind === "rejected";
    if (!isRefusal || !offers.holdOthers(next.waitMs)) await sleepFor(clock, next.waitMs, draining);
    return false;
  }

  /** The first kept event has used up its schedule; the others have their turn. */
  async function giveUp(portion: Batch, { kept }: Outcome): Promise<void> {
    if (kept === null) return;
    const { position } = kept.head;
    const reason = `attempts-exhausted: ${withoutCredentials(sentence(kept.error))}`;
    const index = portion.batch.indexOf(kept.head);
    const settlement = {
      again: portion.again,
      urgent: portion.urgent,
      through: position,
      rejected: [{ position, reason, sequence: sequenceOf(portion, index) }],
      counted: countedAfter(portion.counted, index + 1),
    };
    skipped.forget(settlement);
    await settle(settlement);
    options.metrics.deliveries.inc({ sink: name, outcome: "rejected" });
  }

  function countGathered(): void {
    const events = gathered.taken();
    if (events > 0) options.metrics.deliveries.inc({ sink: name, outcome: "accepted" }, events);
    gathered.forget();
  }

  function count({ accepted, settlement, kept }: Outcome): void {
    const add = (outcome: string, events: number) => {
      if (events > 0) options.metrics.deliveries.inc({ sink: name, outcome }, events);
    };
    add("accepted", accepted);
    add("rejected", settlement?.rejected.length ?? 0);
    add("kept", kept?.count ?? 0);
  }

  async function settle(settlement: Settlement): Promise<void> {
    const soon = sink.mayRepeat === true;
    await stored(() => outbox.settle(name, { ...settlement, soon }));
  }

  /** Uses the state until it answers: what a sink has accepted is settled, not sent again. Null when stopped. */
  async function stored<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await persist({
        clock,
        signal: draining,
        random: options.random,
        work,
        fault: (error, inMs, failed) => state.trouble("retrying", error, failed, inMs),
      });
    } catch (error) {
      if (draining.aborted) return null;
      throw error;
    }
  }

  /**
   * Calls with a signal that aborts at the deadline, which restarts with each progress of the sink, or with `cancel`. Waits for a
   * sink that ignores the signal, because calls must not overlap; its state shows the problem meanwhile.
   */
  async function withDeadline<T>(call: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
    const limit = firstOf(cancel);
    const done = new AbortController();
    const watch = standsStill(done.signal).then((isLate) => {
      if (!isLate) return;
      const late = new Retryable(`${name} did not answer within ${config.deadline / 1_000} seconds.`);
      limit.abort(late);
      state.trouble("retrying", late, setbacks.attempts(), 0);
    });
    try {
      return await call(limit.signal);
    } catch (error) {
      throw limit.signal.aborted ? limit.signal.reason : error;
    } finally {
      limit.end();
      done.abort(WOKEN);
      await watch;
    }
  }

  /** True once a call has not got a step further for as long as the deadline; false when it was done before. */
  async function standsStill(done: AbortSignal): Promise<boolean> {
    const beganMs = clock.monotonic();
    for (;;) {
      const steppedMs = Math.max(beganMs, sink.lastStepMs?.() ?? beganMs);
      const leftMs = steppedMs + config.deadline - clock.monotonic();
      if (leftMs <= 0) return true;
      if (!(await sleepFor(clock, leftMs, done))) return false;
    }
  }

  return { turn, end: skipped.settle };
}

/** Positions that a settlement of events that are sent again settles; empty for other events. */
function positionsSettled({ again, batch }: Batch, { through }: Settlement): readonly number[] {
  return again ? batch.map(({ position }) => position).filter((position) => position <= through) : [];
}

async function attempt(work: () => Promise<void>): Promise<{ readonly error: unknown } | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return { error };
  }
}
