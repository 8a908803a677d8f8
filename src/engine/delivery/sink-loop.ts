import type { BuildingView, FailedRequest, Receipt, Sink, SinkStateChange, TickResult } from "../../core/connector.ts";
import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, maskCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { combineSignals, retryUntilDone, sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import type { Outbox, Settlement, Store } from "../store/store.ts";
import {
  applyReceipt,
  type Batch,
  buildSinkStateChanges,
  createEventChooser,
  EMPTY_OFFER,
  keepEventsFrom,
  sequenceAfter,
  sequenceOfEvent,
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

const SHORTEST_SINK_TICK_MS = 100;

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
  const windowMs = config.replay_after_restart;
  const restartWatch = createRestartWatch({ ...options, windowMs, onRestart: state.onRestart });
  const snapshot = createSnapshot({ sink: name, store, building, passes, clock, log });
  let isOpen = false;
  let failingRequest: FailedRequest | null = null;
  let tickAtMs = sink.tick === undefined ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  let snapshotWaitsMs: number | null = null;
  let lane: "urgent" | "others" = "others";

  async function runStep(): Promise<DelayMs> {
    const wasOpened = isOpen;
    if (!wasOpened) {
      const failure = await catchWorkError(() => withDeadline((signal) => sink.open(signal), draining));
      if (draining.aborted) return null;
      if (failure !== null) return afterFailure(failure.error, { what: "open", giveUp: null });
      isOpen = true;
    }
    await restartWatch.checkIfDue(wasOpened ? "open" : "opened", draining);
    if (draining.aborted) return null;
    if (clock.monotonic() >= tickAtMs) {
      const failure = await catchWorkError(runTick);
      if (draining.aborted) return null;
      if (failure !== null) return afterFailure(failure.error, { what: "tick", giveUp: null });
    }

    let snapshotEvents: readonly Event[] | null = [];
    if (snapshotWaitsMs === null || clock.monotonic() >= snapshotWaitsMs) {
      snapshotEvents = await retryStoreWork(() => snapshot.next(maxEvents));
      if (snapshotEvents === null) return null;
      snapshotWaitsMs = snapshot.waits() ? clock.monotonic() + options.checkEveryMs : null;
    }
    const afterPosition = Math.max(filteredOut.through(), buffered.through());
    const mayUrgentPass = snapshotEvents.length === 0 || snapshot.letsUrgentPass();
    const urgent = mayUrgentPass ? await retryStoreWork(() => chooser.urgent(afterPosition)) : EMPTY_OFFER;
    if (urgent === null) return null;
    const isUrgent = urgent.events.length > 0;
    if (!isUrgent && snapshotEvents.length > 0) return writeSnapshot(snapshotEvents);

    const offer = isUrgent ? urgent : await retryStoreWork(() => chooser.others(afterPosition));
    if (offer === null) return null;
    lane = isUrgent ? "urgent" : "others";
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
    const dueMs = Math.min(tickAtMs, snapshotWaitsMs ?? Number.POSITIVE_INFINITY) - clock.monotonic();
    return Math.max(0, Math.min(dueMs, filteredOut.dueInMs(), restartWatch.dueInMs(), chooser.othersDueInMs()));
  }

  async function writeEvents(batch: Batch, letsUrgentPass: boolean): Promise<DelayMs> {
    const writeOutcome = await write(batch, (settlement) => outbox.settle(name, settlement));
    if (writeOutcome.buffered !== null) buffered.addBatch(batch, writeOutcome.buffered);
    if (writeOutcome.settlement !== null) {
      const settlement = buffered.withRejections(writeOutcome.settlement);
      await retryStoreWork(() => restartWatch.deliveredAgain(redeliveredPositions(batch, settlement)));
      await settleEventsThrough(settlement);
      if (!settlement.again) countBuffered();
    }
    const failedHead = `${batch.again} ${writeOutcome.kept?.head.position}`;
    return afterWrite(writeOutcome, { what: failedHead, giveUp: () => giveUp(batch, writeOutcome), letsUrgentPass });
  }

  /** Writes events of a snapshot. They are not in the log, so the snapshot stores their progress. */
  async function writeSnapshot(events: readonly Event[]): Promise<DelayMs> {
    const logged = events.map((event) => ({ position: 0, committedAt: "", event }));
    const batch = { again: false, events: logged, through: 0, passed: logged.length, counted: undefined };
    const writeOutcome = await write(batch, async () => undefined);
    const settled = logged.length - (writeOutcome.kept?.count ?? 0);
    const rejected = writeOutcome.settlement?.rejected ?? [];
    if (rejected.length > 0)
      log.warn({ sink: name, rejected }, "some events of a snapshot were refused; they are sent when they change");
    await retryStoreWork(() => snapshot.settle(settled, writeOutcome.settlement?.documents ?? []));
    const event = events[settled]?.id;
    return afterWrite(writeOutcome, {
      what: `state ${event}`,
      async giveUp() {
        log.warn({ sink: name, event }, "an event of a snapshot was refused too often");
        await retryStoreWork(() => snapshot.settle(settled + 1, []));
      },
    });
  }

  async function afterWrite(outcome: WriteOutcome, failed: FailedWrite): Promise<DelayMs> {
    const { accepted, kept, settlement } = outcome;
    if (settlement !== null) failurePolicies[lane].reset();
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
      failingRequest !== null || (!buffered.isEmpty() && failurePolicies[lane].attempts() > 0) || chooser.othersWait()
    );
  }

  function reportFailing(failing: FailedRequest | undefined): void {
    failingRequest = failing ?? null;
    if (failing === undefined) return;
    const as = asFailure(failing.error).kind === "throttled" ? "throttled" : "retrying";
    state.showTrouble(as, failing.error, failing.attempts, failing.retryInMs);
  }

  /** Writes a batch. `settleEarly` settles its beginning meanwhile, so that a kill repeats only the event in flight. */
  async function write(batch: Batch, settleEarly: (settlement: Settlement) => Promise<void>): Promise<WriteOutcome> {
    const { again: isRedelivery, events: logged, urgent } = batch;
    const positions = logged.map(({ position }) => position);
    const committedAt = logged.map((each) => each.committedAt);
    const sequences = () => logged.map((_, index) => sequenceOfEvent(batch, index) ?? null);
    const batchInfo = { positions, committedAt, isRedelivery, ...(config.sequence ? { sequences: sequences() } : {}) };
    const earlySettlements: Promise<void>[] = [];
    let settled = 0;
    function accepted(count: number, remembered?: SinkStateChange): void {
      const latest = logged[count - 1];
      // The receipt settles the last event together with the filtered events after it.
      if (latest === undefined || count <= settled || count === logged.length) return;
      settled = count;
      const counted = sequenceAfter(batch.counted, count);
      const documents = buildSinkStateChanges(name, remembered);
      const settlement = { again: isRedelivery, urgent, through: latest.position, rejected: [], counted, documents };
      earlySettlements.push(settleEarly(settlement).catch(() => undefined));
    }
    let receipt: Receipt | undefined;
    state.showWriting();
    const events = logged.map(({ event }) => event);
    const failure = await catchWorkError(async () => {
      receipt = await withDeadline((signal) => sink.write(events, signal, accepted, batchInfo), forced);
    });
    await Promise.all(earlySettlements);
    if (failure !== null) return keepEventsFrom(batch, 0, failure.error);
    const writeOutcome = applyReceipt(name, batch, receipt);
    reportFailing(receipt?.failing);
    tickAtMs = Math.min(tickAtMs, clock.monotonic() + (receipt?.tickInMs ?? Number.POSITIVE_INFINITY));
    if (writeOutcome.settlement === null) await saveStateChanges(receipt?.stateChanges);
    return writeOutcome;
  }

  async function runTick(): Promise<void> {
    const tickResult = await withDeadline(async (signal): Promise<TickResult> => {
      return (await sink.tick?.(signal)) ?? { tickInMs: Number.POSITIVE_INFINITY };
    }, forced);
    const { tickInMs, refused = [], stateChanges } = tickResult;
    reportFailing(tickResult.failing);
    if (refused.length > 0) await rejectSettled(refused);
    if (tickResult.settled === true && !buffered.isEmpty()) {
      await settleEventsThrough({ ...buffered.settlement(), documents: buildSinkStateChanges(name, stateChanges) });
      countBuffered();
      failurePolicies[lane].reset();
      state.showWorking("idle");
    } else await saveStateChanges(stateChanges);
    tickAtMs = clock.monotonic() + Math.max(SHORTEST_SINK_TICK_MS, tickInMs);
  }

  /** Makes dead letters of settled events. Position 0 moves neither the cursor nor a mark. */
  async function rejectSettled(refused: NonNullable<TickResult["refused"]>): Promise<void> {
    const rejected = refused.map(({ position, reason }) => ({ position, reason: maskCredentials(reason) }));
    await retryStoreWork(() => outbox.settle(name, { again: true, through: 0, rejected }));
    countDeliveries("rejected", rejected.length);
  }

  async function saveStateChanges(stateChanges: SinkStateChange | undefined): Promise<void> {
    const documents = buildSinkStateChanges(name, stateChanges);
    if (documents.length > 0) await retryStoreWork(() => store.commit({ documents }));
  }

  /** Waits as the error demands; returns null when the sink has ended for good. */
  async function afterFailure(error: unknown, { what, giveUp, letsUrgentPass = false }: FailedWrite): Promise<DelayMs> {
    // Buffered events are offer again from the first one, which is not the rejected one.
    const giveUpEvent = buffered.isEmpty() ? giveUp : null;
    buffered.forgetSettled();
    const decision = failurePolicies[lane].decide(error, what, giveUpEvent !== null);
    if (decision.go === "end") {
      await retryStoreWork(() => options.endForGood(decision.reason));
      state.showEnded(decision.reason);
      return null;
    }
    if (decision.go === "give-up" || decision.reopen) isOpen = false;
    if (decision.go === "give-up") {
      await giveUpEvent?.();
      return 0;
    }
    state.showTrouble(decision.as, decision.failure, decision.attempts, decision.waitMs);
    // The server rejects only this event, so an alarm need not wait for its next attempt.
    const isRejection = letsUrgentPass && decision.failure.kind === "rejected";
    if (!isRejection || !chooser.holdOthers(decision.waitMs)) await sleepFor(clock, decision.waitMs, draining);
    return 0;
  }

  async function giveUp(batch: Batch, { kept }: WriteOutcome): Promise<void> {
    if (kept === null) return;
    const { position } = kept.head;
    const reason = `attempts-exhausted: ${maskCredentials(errorText(kept.error))}`;
    const index = batch.events.indexOf(kept.head);
    const rejected = [{ position, reason, sequence: sequenceOfEvent(batch, index) }];
    const counted = sequenceAfter(batch.counted, index + 1);
    await settleEventsThrough({ again: batch.again, urgent: batch.urgent, through: position, rejected, counted });
    countDeliveries("rejected", 1);
  }

  function countBuffered(): void {
    countDeliveries("accepted", buffered.accepted());
    buffered.forgetSettled();
  }

  function countDeliveries(outcome: "accepted" | "rejected" | "kept", events: number): void {
    if (events > 0) options.metrics.deliveries.inc({ sink: name, outcome }, events);
  }

  async function settleEventsThrough(settlement: Settlement): Promise<void> {
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
    const limitSignal = combineSignals(cancel);
    const doneController = new AbortController();
    const stallWatchPromise = isStalled(doneController.signal).then((isLate) => {
      if (!isLate) return;
      const timeoutError = new Retryable(`${name} did not answer within ${config.deadline / 1_000} seconds.`);
      limitSignal.abort(timeoutError);
      state.showTrouble("retrying", timeoutError, failurePolicies[lane].attempts(), 0);
    });
    try {
      return await call(limitSignal.signal);
    } catch (error) {
      throw limitSignal.signal.aborted ? limitSignal.signal.reason : error;
    } finally {
      limitSignal.end();
      doneController.abort(WAIT_ENDED_EARLY);
      await stallWatchPromise;
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

  return { turn: runStep, end: filteredOut.settle };
}

function redeliveredPositions({ again, events: batch }: Batch, { through }: Settlement): readonly number[] {
  return again ? batch.map(({ position }) => position).filter((position) => position <= through) : [];
}

async function catchWorkError(work: () => Promise<void>): Promise<{ readonly error: unknown } | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return { error };
  }
}
