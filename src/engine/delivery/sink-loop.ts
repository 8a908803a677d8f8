import type { BuildingView, FailedRequest, Receipt, Sink, SinkStateChange, TickResult } from "../../core/connector.ts";
import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, withoutCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { combineSignals, ENDED_EARLY, retryUntilDone, sleepFor } from "../../core/runtime/waiting.ts";
import type { Outbox, Settlement, Store } from "../store/store.ts";
import {
  applyReceipt,
  type Batch,
  buildSinkStateChanges,
  createEventChooser,
  EMPTY_OFFER,
  keepEventsFrom,
  sequenceAfter,
  sequenceAt,
  takeBatch,
  type WriteOutcome,
} from "./batches.ts";
import type { DeliveryConfig } from "./config.ts";
import { createFailurePolicy } from "./failure-policy.ts";
import { isOutdatedHeartbeat, matchesFilter, passesEverything } from "./filter.ts";
import { createRestartWatch } from "./restart-watch.ts";
import type { SinkStatusTracker } from "./sink-status.ts";
import { createSnapshot } from "./snapshot.ts";
import { createBufferedEvents, createFilteredEvents } from "./unsettled-events.ts";

/**
 * Offers the log to one sink:
 *
 *    open ─► tick ─► choose events ─► filter ─► write ─► settle ─┐
 *     ▲       ▲                                  └ failure      │
 *     │       └── wait: the sink may stay open ◄────┤           │
 *     └────────── wait: reopen ◄────────────────────┘           │
 *             └─────────────────────────────────────────────────┘
 */
export type SinkDelivery = ReturnType<typeof createSinkDelivery>;

interface FailedWrite {
  readonly what: string;
  readonly giveUp: (() => Promise<void>) | null;
  readonly letsUrgentPass?: boolean;
}

/** Milliseconds until the next step; null when the sink has ended or nothing new may begin. */
type DelayMs = number | null;

const SHORTEST_TICK_MS = 100;

export interface DeliveryContext {
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly building: BuildingView;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  readonly checkEveryMs: number;
}

interface DeliveryOptions extends DeliveryContext {
  readonly name: string;
  readonly sink: Sink;
  readonly config: DeliveryConfig;
  readonly state: SinkStatusTracker;
  endForGood(reason: string): Promise<void>;
  readonly draining: AbortSignal;
  readonly forced: AbortSignal;
}

export function createSinkDelivery(options: DeliveryOptions) {
  const { name, sink, config, outbox, state, store, building, log, clock, draining, forced } = options;
  const maxEvents = Math.min(config.batch, sink.maxBatch ?? config.batch);
  const takesAll = passesEverything(config.filter);
  const passes = (event: Event) =>
    (takesAll || matchesFilter(config.filter, event)) && (config.sequence || !isOutdatedHeartbeat(event, clock.now()));
  // A number of `sequence` belongs to one event, so the order must be the same after a crash.
  const urgentFirst = sink.strictOrder !== true && !config.sequence;
  const chooser = createEventChooser({ sink: name, outbox, clock, batchSize: maxEvents, takesAll, urgentFirst });
  const filteredOut = createFilteredEvents(clock, settle);
  const buffered = createBufferedEvents();
  const failurePolicies = {
    urgent: createFailurePolicy(config, options.random),
    others: createFailurePolicy(config, options.random),
  };
  const redeliveryWindowMs = config.replay_after_restart;
  const restartWatch = createRestartWatch({
    name,
    sink,
    outbox,
    clock,
    windowMs: redeliveryWindowMs,
    store,
    log,
    onRestart: state.onRestart,
  });
  const snapshot = createSnapshot({ sink: name, store, building, passes, clock, log });
  const now = {
    isOpen: false,
    failing: null as FailedRequest | null,
    tickAtMs: sink.tick === undefined ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY,
    snapshotWaitsMs: null as number | null,
    lane: "others" as "urgent" | "others",
  };

  async function turn(): Promise<DelayMs> {
    const wasOpened = now.isOpen;
    if (!wasOpened) {
      const failure = await captureError(() => withDeadline((signal) => sink.open(signal), draining));
      if (draining.aborted) return null;
      if (failure !== null) return afterFailure(failure.error, { what: "open", giveUp: null });
      now.isOpen = true;
    }
    await restartWatch.checkIfDue(wasOpened ? "open" : "opened", draining);
    if (draining.aborted) return null;
    if (clock.monotonic() >= now.tickAtMs) {
      const failure = await captureError(tick);
      if (draining.aborted) return null;
      if (failure !== null) return afterFailure(failure.error, { what: "tick", giveUp: null });
    }

    let current: readonly Event[] | null = [];
    if (now.snapshotWaitsMs === null || clock.monotonic() >= now.snapshotWaitsMs) {
      current = await retryStoreWork(() => snapshot.next(maxEvents));
      if (current === null) return null;
      now.snapshotWaitsMs = snapshot.waits() ? clock.monotonic() + options.checkEveryMs : null;
    }
    const after = Math.max(filteredOut.through(), buffered.through());
    const mayPass = current.length === 0 || snapshot.letsUrgentPass();
    const urgent = mayPass ? await retryStoreWork(() => chooser.urgent(after)) : EMPTY_OFFER;
    if (urgent === null) return null;
    const isUrgent = urgent.events.length > 0;
    if (!isUrgent && current.length > 0) return writeSnapshot(current);

    const offer = isUrgent ? urgent : await retryStoreWork(() => chooser.others(after));
    if (offer === null) return null;
    now.lane = isUrgent ? "urgent" : "others";
    const batch = takeBatch({ ...offer, counted: sequenceAfter(offer.counted, buffered.events()) }, passes, maxEvents);
    if (!isUrgent) chooser.noteBatch(batch);
    return batch.events.length === 0 ? settleFilteredOut(batch) : writeEvents(batch, !isUrgent);
  }

  async function settleFilteredOut(batch: Batch): Promise<number> {
    if (!hasOpenFailure()) state.showWorking("idle");
    if (batch.urgent === true) {
      chooser.noteUnwantedUrgent(batch.through);
      return 0;
    }
    if (batch.passed > 0) {
      // The cursor must not pass buffered events, so filtered events after them are settled together with them.
      if (buffered.isEmpty() || batch.again) await filteredOut.addBatch(batch);
      else buffered.addBatch(batch, []);
      return 0;
    }
    await filteredOut.settleIfDue();
    if (chooser.isTurn()) return 0;
    const dueMs = Math.min(now.tickAtMs, now.snapshotWaitsMs ?? Number.POSITIVE_INFINITY) - clock.monotonic();
    return Math.max(0, Math.min(dueMs, filteredOut.dueInMs(), restartWatch.dueInMs(), chooser.othersDueInMs()));
  }

  async function writeEvents(batch: Batch, letsUrgentPass: boolean): Promise<DelayMs> {
    const outcome = await write(batch, (settlement) => outbox.settle(name, settlement));
    if (outcome.buffered !== null) buffered.addBatch(batch, outcome.buffered);
    if (outcome.settlement !== null) {
      const settlement = buffered.withRejections(outcome.settlement);
      await retryStoreWork(() => restartWatch.deliveredAgain(redeliveredPositions(batch, settlement)));
      await settleThrough(settlement);
      if (!settlement.again) countBuffered();
    }
    const what = `${batch.again} ${outcome.kept?.head.position}`;
    return afterWrite(outcome, { what, giveUp: () => giveUp(batch, outcome), letsUrgentPass });
  }

  /** Writes events of a snapshot. They are not in the log, so the snapshot stores their progress. */
  async function writeSnapshot(events: readonly Event[]): Promise<DelayMs> {
    const logged = events.map((event) => ({ position: 0, committedAt: "", event }));
    const batch = { again: false, events: logged, through: 0, passed: logged.length, counted: undefined };
    const outcome = await write(batch, async () => undefined);
    const settled = logged.length - (outcome.kept?.count ?? 0);
    const rejected = outcome.settlement?.rejected ?? [];
    if (rejected.length > 0)
      log.warn({ sink: name, rejected }, "some events of a snapshot were refused; they are sent when they change");
    await retryStoreWork(() => snapshot.settle(settled, outcome.settlement?.documents ?? []));
    const event = events[settled]?.id;
    return afterWrite(outcome, {
      what: `state ${event}`,
      async giveUp() {
        log.warn({ sink: name, event }, "an event of a snapshot was refused too often");
        await retryStoreWork(() => snapshot.settle(settled + 1, []));
      },
    });
  }

  async function afterWrite(outcome: WriteOutcome, failed: FailedWrite): Promise<DelayMs> {
    const { accepted, kept, settlement } = outcome;
    if (settlement !== null) failurePolicies[now.lane].reset();
    countDeliveries("accepted", accepted);
    countDeliveries("rejected", settlement?.rejected.length ?? 0);
    countDeliveries("kept", kept?.count ?? 0);
    if (kept === null) {
      if (!hasOpenFailure()) state.showWorking("delivering");
      return 0;
    }
    return forced.aborted ? null : afterFailure(kept.error, failed);
  }

  /** True when a failure is not over: since then the sink has only buffered events or taken urgent ones. */
  function hasOpenFailure(): boolean {
    return (
      now.failing !== null || (!buffered.isEmpty() && failurePolicies[now.lane].attempts() > 0) || chooser.othersWait()
    );
  }

  function reportFailing(failing: FailedRequest | undefined): void {
    now.failing = failing ?? null;
    if (failing === undefined) return;
    const as = asFailure(failing.error).kind === "throttled" ? "throttled" : "retrying";
    state.showTrouble(as, failing.error, failing.attempts, failing.retryInMs);
  }

  /** Writes a batch. `settleEarly` settles its beginning meanwhile, so that a kill repeats only the event in flight. */
  async function write(batch: Batch, settleEarly: (settlement: Settlement) => Promise<void>): Promise<WriteOutcome> {
    const { again: isRedelivery, events: logged, urgent } = batch;
    const positions = logged.map(({ position }) => position);
    const committedAt = logged.map((each) => each.committedAt);
    const sequences = () => logged.map((_, index) => sequenceAt(batch, index) ?? null);
    const offered = { positions, committedAt, isRedelivery, ...(config.sequence ? { sequences: sequences() } : {}) };
    const earlySettlements: Promise<void>[] = [];
    let settled = 0;
    function accepted(count: number, remembered?: SinkStateChange): void {
      const last = logged[count - 1];
      // The receipt settles the last event together with the filtered events after it.
      if (last === undefined || count <= settled || count === logged.length) return;
      settled = count;
      const counted = sequenceAfter(batch.counted, count);
      const documents = buildSinkStateChanges(name, remembered);
      const settlement = { again: isRedelivery, urgent, through: last.position, rejected: [], counted, documents };
      earlySettlements.push(settleEarly(settlement).catch(() => undefined));
    }
    let receipt: Receipt | undefined;
    state.showWriting();
    const events = logged.map(({ event }) => event);
    const failure = await captureError(async () => {
      receipt = await withDeadline((signal) => sink.write(events, signal, accepted, offered), forced);
    });
    await Promise.all(earlySettlements);
    if (failure !== null) return keepEventsFrom(batch, 0, failure.error);
    const outcome = applyReceipt(name, batch, receipt);
    reportFailing(receipt?.failing);
    now.tickAtMs = Math.min(now.tickAtMs, clock.monotonic() + (receipt?.tickInMs ?? Number.POSITIVE_INFINITY));
    if (outcome.settlement === null) await remember(receipt?.stateChanges);
    return outcome;
  }

  async function tick(): Promise<void> {
    const ticked = await withDeadline(async (signal): Promise<TickResult> => {
      return (await sink.tick?.(signal)) ?? { tickInMs: Number.POSITIVE_INFINITY };
    }, forced);
    const { tickInMs, refused = [], stateChanges } = ticked;
    reportFailing(ticked.failing);
    if (refused.length > 0) await rejectSettled(refused);
    if (ticked.settled === true && !buffered.isEmpty()) {
      await settleThrough({ ...buffered.settlement(), documents: buildSinkStateChanges(name, stateChanges) });
      countBuffered();
      failurePolicies[now.lane].reset();
      state.showWorking("idle");
    } else await remember(stateChanges);
    now.tickAtMs = clock.monotonic() + Math.max(SHORTEST_TICK_MS, tickInMs);
  }

  /** Makes dead letters of settled events. Position 0 moves neither the cursor nor a mark. */
  async function rejectSettled(refused: NonNullable<TickResult["refused"]>): Promise<void> {
    const rejected = refused.map(({ position, reason }) => ({ position, reason: withoutCredentials(reason) }));
    await retryStoreWork(() => outbox.settle(name, { again: true, through: 0, rejected }));
    countDeliveries("rejected", rejected.length);
  }

  async function remember(stateChanges: SinkStateChange | undefined): Promise<void> {
    const documents = buildSinkStateChanges(name, stateChanges);
    if (documents.length > 0) await retryStoreWork(() => store.commit({ documents }));
  }

  /** Waits as the error demands; returns null when the sink has ended for good. */
  async function afterFailure(error: unknown, { what, giveUp, letsUrgentPass = false }: FailedWrite): Promise<DelayMs> {
    // Buffered events are offered again from the first one, which is not the rejected one.
    const giveUpEvent = buffered.isEmpty() ? giveUp : null;
    buffered.forgetSettled();
    const next = failurePolicies[now.lane].decide(error, what, giveUpEvent !== null);
    if (next.go === "end") {
      await retryStoreWork(() => options.endForGood(next.reason));
      state.showEnded(next.reason);
      return null;
    }
    if (next.go === "give-up" || next.reopen) now.isOpen = false;
    if (next.go === "give-up") {
      await giveUpEvent?.();
      return 0;
    }
    state.showTrouble(next.as, next.failure, next.attempts, next.waitMs);
    // The server rejects only this event, so an alarm need not wait for its next attempt.
    const isRejection = letsUrgentPass && next.failure.kind === "rejected";
    if (!isRejection || !chooser.holdOthers(next.waitMs)) await sleepFor(clock, next.waitMs, draining);
    return 0;
  }

  async function giveUp(batch: Batch, { kept }: WriteOutcome): Promise<void> {
    if (kept === null) return;
    const { position } = kept.head;
    const reason = `attempts-exhausted: ${withoutCredentials(errorText(kept.error))}`;
    const index = batch.events.indexOf(kept.head);
    await settleThrough({
      again: batch.again,
      urgent: batch.urgent,
      through: position,
      rejected: [{ position, reason, sequence: sequenceAt(batch, index) }],
      counted: sequenceAfter(batch.counted, index + 1),
    });
    countDeliveries("rejected", 1);
  }

  function countBuffered(): void {
    countDeliveries("accepted", buffered.accepted());
    buffered.forgetSettled();
  }

  function countDeliveries(outcome: "accepted" | "rejected" | "kept", events: number): void {
    if (events > 0) options.metrics.deliveries.inc({ sink: name, outcome }, events);
  }

  async function settleThrough(settlement: Settlement): Promise<void> {
    filteredOut.forgetSettled(settlement);
    await settle(settlement);
  }

  async function settle(settlement: Settlement): Promise<void> {
    await retryStoreWork(() => outbox.settle(name, { ...settlement, mayDefer: sink.toleratesRepeats === true }));
  }

  async function retryStoreWork<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await retryUntilDone({
        clock,
        signal: draining,
        random: options.random,
        work,
        fault: (error, inMs, failed) => state.showTrouble("retrying", error, failed, inMs),
      });
    } catch (error) {
      if (draining.aborted) return null;
      throw error;
    }
  }

  /** Calls with a signal that aborts with `cancel`, or when the sink makes no progress for one deadline. */
  async function withDeadline<T>(call: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
    const limit = combineSignals(cancel);
    const done = new AbortController();
    const watch = isStalled(done.signal).then((isLate) => {
      if (!isLate) return;
      const late = new Retryable(`${name} did not answer within ${config.deadline / 1_000} seconds.`);
      limit.abort(late);
      state.showTrouble("retrying", late, failurePolicies[now.lane].attempts(), 0);
    });
    try {
      return await call(limit.signal);
    } catch (error) {
      throw limit.signal.aborted ? limit.signal.reason : error;
    } finally {
      limit.end();
      done.abort(ENDED_EARLY);
      await watch;
    }
  }

  async function isStalled(done: AbortSignal): Promise<boolean> {
    const beganMs = clock.monotonic();
    for (;;) {
      const progressMs = Math.max(beganMs, sink.progressMs?.() ?? beganMs);
      const leftMs = progressMs + config.deadline - clock.monotonic();
      if (leftMs <= 0) return true;
      if (!(await sleepFor(clock, leftMs, done))) return false;
    }
  }

  return { turn, end: filteredOut.settle };
}

function redeliveredPositions({ again, events: batch }: Batch, { through }: Settlement): readonly number[] {
  return again ? batch.map(({ position }) => position).filter((position) => position <= through) : [];
}

async function captureError(work: () => Promise<void>): Promise<{ readonly error: unknown } | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return { error };
  }
}
