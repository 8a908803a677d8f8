import type { BuildingView, FailedRequest, Receipt, Sink, SinkStateChange, TickResult } from "../../core/connector.ts";
import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, maskCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { combineSignals, retryUntilDone, sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import type { Outbox, SettledBatch, Store } from "../store/store.ts";
import {
  applySinkReceipt,
  buildSinkStateChanges,
  createEventChooser,
  EMPTY_OFFER,
  type EventBatch,
  retryEventsFromIndex,
  sequenceAfter,
  sequenceOfEvent,
  takeBatch,
  type WriteOutcome,
} from "./batches.ts";
import type { DeliveryConfig } from "./config.ts";
import { createDeliveryFailurePolicy } from "./failure-policy.ts";
import { isOutdatedHeartbeat, matchesFilter, passesAllEvents } from "./filter.ts";
import { createStateSnapshot } from "./send-state-snapshot.ts";
import { createRestartWatch } from "./server-restart-watch.ts";
import type { SinkStatusTracker } from "./sink-status.ts";
import { createBufferedEventTracker, createFilteredEventTracker } from "./unsettled-events.ts";

/**
 * Offers the events of the log to one sink:
 *
 *    open ─► tick ─► choose events ─► filter ─► write ─► settle ─┐
 *     ▲       ▲                                  └ failure      │
 *     │       └── wait: the sink may stay open ◄────┤           │
 *     └────────── wait: reopen ◄────────────────────┘           │
 *             └─────────────────────────────────────────────────┘
 */
export type SinkDelivery = ReturnType<typeof createSinkDelivery>;

interface FailedSinkWrite {
  readonly failedStep: string;
  readonly giveUp: (() => Promise<void>) | null;
  readonly letsUrgentPass?: boolean;
}

/** Milliseconds until the next step; null when the sink has ended or is being stopped. */
type NextStepDelayMs = number | null;

const MIN_SINK_TICK_INTERVAL_MS = 100;

export interface SinkDeliveryContext {
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly building: BuildingView;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  readonly checkEveryMs: number;
}

interface SinkDeliveryOptions extends SinkDeliveryContext {
  readonly name: string;
  readonly sink: Sink;
  readonly config: DeliveryConfig;
  readonly statusTracker: SinkStatusTracker;
  endSinkForGood(reason: string): Promise<void>;
  readonly gracefulStop: AbortSignal;
  readonly forcedStop: AbortSignal;
}

export function createSinkDelivery(options: SinkDeliveryOptions) {
  const { name, sink, config, outbox, statusTracker, store, building, log, clock, gracefulStop, forcedStop } = options;
  const maxBatch = Math.min(config.batch, sink.maxBatch ?? config.batch);
  const takesAll = passesAllEvents(config.filter);
  const isForSink = (event: Event) =>
    (takesAll || matchesFilter(config.filter, event)) && (config.sequence || !isOutdatedHeartbeat(event, clock.now()));
  // With `sequence`, each event keeps its number, so the order must be the same after a crash.
  const isUrgentFirst = sink.strictOrder !== true && !config.sequence;
  const eventChooser = createEventChooser({
    sink: name,
    outbox,
    clock,
    batchSize: maxBatch,
    acceptsAllEvents: takesAll,
    sendsUrgentFirst: isUrgentFirst,
  });
  const filteredOut = createFilteredEventTracker(clock, settleInOutbox);
  const buffered = createBufferedEventTracker();
  const failurePolicies = {
    urgent: createDeliveryFailurePolicy(config, options.random),
    others: createDeliveryFailurePolicy(config, options.random),
  };
  const replayWindowMs = config.replay_after_restart;
  const restartWatch = createRestartWatch({ ...options, windowMs: replayWindowMs, onRestart: statusTracker.onRestart });
  const stateSnapshot = createStateSnapshot({ sink: name, store, building, passesFilter: isForSink, clock, log });
  let isSinkOpen = false;
  let failingRequest: FailedRequest | null = null;
  let sinkTickAtMs = sink.tick === undefined ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  let snapshotWaitUntilMs: number | null = null;
  let lane: "urgent" | "others" = "others";

  async function runDeliveryStep(): Promise<NextStepDelayMs> {
    const wasSinkOpen = isSinkOpen;
    if (!wasSinkOpen) {
      const failure = await catchWorkError(() => withDeadline((signal) => sink.open(signal), gracefulStop));
      if (gracefulStop.aborted) return null;
      if (failure !== null) return waitAfterFailure(failure.error, { failedStep: "open", giveUp: null });
      isSinkOpen = true;
    }
    await restartWatch.checkIfDue(wasSinkOpen ? "open" : "opened", gracefulStop);
    if (gracefulStop.aborted) return null;
    if (clock.monotonic() >= sinkTickAtMs) {
      const failure = await catchWorkError(runSinkTick);
      if (gracefulStop.aborted) return null;
      if (failure !== null) return waitAfterFailure(failure.error, { failedStep: "tick", giveUp: null });
    }

    let snapshotEvents: readonly Event[] | null = [];
    if (snapshotWaitUntilMs === null || clock.monotonic() >= snapshotWaitUntilMs) {
      snapshotEvents = await retryStoreWork(() => stateSnapshot.nextEvents(maxBatch));
      if (snapshotEvents === null) return null;
      snapshotWaitUntilMs = stateSnapshot.isWaitingForLists() ? clock.monotonic() + options.checkEveryMs : null;
    }
    const afterPosition = Math.max(filteredOut.lastPosition(), buffered.lastPosition());
    const mayUrgentPass = snapshotEvents.length === 0 || stateSnapshot.allowsUrgentEvents();
    const urgentOffer = mayUrgentPass
      ? await retryStoreWork(() => eventChooser.offerUrgent(afterPosition))
      : EMPTY_OFFER;
    if (urgentOffer === null) return null;
    const isUrgent = urgentOffer.events.length > 0;
    if (!isUrgent && snapshotEvents.length > 0) return writeSnapshotEvents(snapshotEvents);

    const offer = isUrgent ? urgentOffer : await retryStoreWork(() => eventChooser.offerNonUrgent(afterPosition));
    if (offer === null) return null;
    lane = isUrgent ? "urgent" : "others";
    const batch = takeBatch(
      { ...offer, counted: sequenceAfter(offer.counted, buffered.countEvents()) },
      isForSink,
      maxBatch,
    );
    if (!isUrgent) eventChooser.recordBatch(batch);
    return batch.events.length === 0 ? settleFilteredEvents(batch) : writeEventBatch(batch, !isUrgent);
  }

  async function settleFilteredEvents(batch: EventBatch): Promise<number> {
    if (!hasUnresolvedFailure()) statusTracker.showWorking("idle");
    if (batch.urgent === true) {
      eventChooser.recordFilteredUrgent(batch.lastPosition);
      return 0;
    }
    if (batch.passedCount > 0) {
      // The cursor must not pass buffered events, so filtered events after them are settled together with them.
      if (buffered.isEmpty() || batch.isRepeat) await filteredOut.addBatch(batch);
      else buffered.addBatch(batch, []);
      return 0;
    }
    await filteredOut.settleIfDue();
    if (eventChooser.isNonUrgentNext()) return 0;
    const dueMs = Math.min(sinkTickAtMs, snapshotWaitUntilMs ?? Number.POSITIVE_INFINITY) - clock.monotonic();
    return Math.max(0, Math.min(dueMs, filteredOut.dueInMs(), restartWatch.dueInMs(), eventChooser.nonUrgentDueInMs()));
  }

  async function writeEventBatch(batch: EventBatch, letsUrgentPass: boolean): Promise<NextStepDelayMs> {
    const writeOutcome = await write(batch, (settlement) => outbox.settle(name, settlement));
    if (writeOutcome.buffered !== null) buffered.addBatch(batch, writeOutcome.buffered);
    if (writeOutcome.settlement !== null) {
      const settlement = buffered.withRejections(writeOutcome.settlement);
      if (batch.isRepeat) {
        const positions = batch.events.map(({ position }) => position).filter((each) => each <= settlement.through);
        await retryStoreWork(() => restartWatch.recordRedelivery(positions));
      }
      await settleEventsThrough(settlement);
      if (!settlement.isRepeat) countBufferedDeliveries();
    }
    return handleWriteOutcome(writeOutcome, {
      failedStep: `${batch.isRepeat} ${writeOutcome.toRetry?.head.position}`,
      giveUp: () => giveUp(batch, writeOutcome),
      letsUrgentPass,
    });
  }

  /** Writes events of a snapshot. The snapshot stores its progress itself, because its events are not in the log. */
  async function writeSnapshotEvents(events: readonly Event[]): Promise<NextStepDelayMs> {
    const loggedEvents = events.map((event) => ({ position: 0, committedAt: "", event }));
    const batch = {
      isRepeat: false,
      events: loggedEvents,
      lastPosition: 0,
      passedCount: loggedEvents.length,
      counted: undefined,
    };
    const writeOutcome = await write(batch, async () => undefined);
    const settledEventCount = loggedEvents.length - (writeOutcome.toRetry?.count ?? 0);
    const rejected = writeOutcome.settlement?.rejected ?? [];
    if (rejected.length > 0)
      log.warn({ sink: name, rejected }, "some events of a snapshot were refused; they are sent when they change");
    await retryStoreWork(() => stateSnapshot.settleEvents(settledEventCount, writeOutcome.settlement?.documents ?? []));
    const failedEventId = events[settledEventCount]?.id;
    return handleWriteOutcome(writeOutcome, {
      failedStep: `state ${failedEventId}`,
      async giveUp() {
        log.warn({ sink: name, event: failedEventId }, "an event of a snapshot was refused too often");
        await retryStoreWork(() => stateSnapshot.settleEvents(settledEventCount + 1, []));
      },
    });
  }

  async function handleWriteOutcome(outcome: WriteOutcome, failed: FailedSinkWrite): Promise<NextStepDelayMs> {
    const { acceptedCount, toRetry: eventsToRetry, settlement } = outcome;
    if (settlement !== null) failurePolicies[lane].reset();
    countDeliveries("accepted", acceptedCount);
    countDeliveries("rejected", settlement?.rejected.length ?? 0);
    countDeliveries("kept", eventsToRetry?.count ?? 0);
    if (eventsToRetry === null) {
      if (!hasUnresolvedFailure()) statusTracker.showWorking("delivering");
      return 0;
    }
    return forcedStop.aborted ? null : waitAfterFailure(eventsToRetry.error, failed);
  }

  /** True from a failure until the sink stores an ordinary event: one not only buffered, and no alarm or command. */
  function hasUnresolvedFailure(): boolean {
    return (
      failingRequest !== null ||
      (!buffered.isEmpty() && failurePolicies[lane].attempts() > 0) ||
      eventChooser.isNonUrgentPaused()
    );
  }

  function reportFailingRequest(failedRequest: FailedRequest | undefined): void {
    failingRequest = failedRequest ?? null;
    if (failedRequest === undefined) return;
    const sinkState = asFailure(failedRequest.error).kind === "throttled" ? "throttled" : "retrying";
    statusTracker.showFailure(sinkState, failedRequest.error, failedRequest.attempts, failedRequest.retryInMs);
  }

  /** Writes a batch. `settleEarly` settles accepted events during the write, so that a kill repeats only one event. */
  async function write(batch: EventBatch, settleEarly: (settlement: SettledBatch) => Promise<void>) {
    const { isRepeat: isRedelivery, events: loggedEvents, urgent } = batch;
    const positions = loggedEvents.map(({ position }) => position);
    const committedAt = loggedEvents.map((each) => each.committedAt);
    const sequences = () => loggedEvents.map((_, index) => sequenceOfEvent(batch, index) ?? null);
    const batchInfo = { positions, committedAt, isRedelivery, ...(config.sequence ? { sequences: sequences() } : {}) };
    const earlySettlements: Promise<void>[] = [];
    let settledEventCount = 0;
    function settleAcceptedEvents(count: number, stateChanges?: SinkStateChange): void {
      const lastAcceptedEvent = loggedEvents[count - 1];
      // The receipt settles the last event together with the filtered events after it.
      if (lastAcceptedEvent === undefined || count <= settledEventCount || count === loggedEvents.length) return;
      settledEventCount = count;
      const counted = sequenceAfter(batch.counted, count);
      const settlement = {
        isRepeat: isRedelivery,
        urgent,
        through: lastAcceptedEvent.position,
        rejected: [],
        counted,
        documents: buildSinkStateChanges(name, stateChanges),
      };
      earlySettlements.push(settleEarly(settlement).catch(() => undefined));
    }
    let receipt: Receipt | undefined;
    statusTracker.showWriting();
    const events = loggedEvents.map(({ event }) => event);
    const failure = await catchWorkError(async () => {
      receipt = await withDeadline((signal) => sink.write(events, signal, settleAcceptedEvents, batchInfo), forcedStop);
    });
    await Promise.all(earlySettlements);
    if (failure !== null) return retryEventsFromIndex(batch, 0, failure.error);
    const writeOutcome = applySinkReceipt(name, batch, receipt);
    reportFailingRequest(receipt?.failing);
    sinkTickAtMs = Math.min(sinkTickAtMs, clock.monotonic() + (receipt?.tickInMs ?? Number.POSITIVE_INFINITY));
    if (writeOutcome.settlement === null) await saveSinkStateChanges(receipt?.stateChanges);
    return writeOutcome;
  }

  async function runSinkTick(): Promise<void> {
    const sinkTickResult = await withDeadline(async (signal): Promise<TickResult> => {
      return (await sink.tick?.(signal)) ?? { tickInMs: Number.POSITIVE_INFINITY };
    }, forcedStop);
    const { tickInMs, refused = [], stateChanges } = sinkTickResult;
    reportFailingRequest(sinkTickResult.failing);
    if (refused.length > 0) await rejectSettledEvents(refused);
    if (sinkTickResult.settled === true && !buffered.isEmpty()) {
      await settleEventsThrough({ ...buffered.settlement(), documents: buildSinkStateChanges(name, stateChanges) });
      countBufferedDeliveries();
      failurePolicies[lane].reset();
      statusTracker.showWorking("idle");
    } else await saveSinkStateChanges(stateChanges);
    sinkTickAtMs = clock.monotonic() + Math.max(MIN_SINK_TICK_INTERVAL_MS, tickInMs);
  }

  /** Turns settled events into dead letters. `through: 0` leaves the cursor and the marks for resending unchanged. */
  async function rejectSettledEvents(refused: NonNullable<TickResult["refused"]>): Promise<void> {
    const rejected = refused.map(({ position, reason }) => ({ position, reason: maskCredentials(reason) }));
    await retryStoreWork(() => outbox.settle(name, { isRepeat: true, through: 0, rejected }));
    countDeliveries("rejected", rejected.length);
  }

  async function saveSinkStateChanges(stateChanges: SinkStateChange | undefined): Promise<void> {
    const documents = buildSinkStateChanges(name, stateChanges);
    if (documents.length > 0) await retryStoreWork(() => store.commit({ documents }));
  }

  async function waitAfterFailure(error: unknown, { failedStep, giveUp, letsUrgentPass = false }: FailedSinkWrite) {
    // Do not give up while events are buffered: the next offer begins with them, not with the rejected event.
    const giveUpFailedEvent = buffered.isEmpty() ? giveUp : null;
    buffered.forgetSettled();
    const decision = failurePolicies[lane].decide(error, failedStep, giveUpFailedEvent !== null);
    if (decision.action === "end") {
      await retryStoreWork(() => options.endSinkForGood(decision.reason));
      statusTracker.showEnded(decision.reason);
      return null;
    }
    if (decision.action === "give-up" || decision.reopen) isSinkOpen = false;
    if (decision.action === "give-up") {
      await giveUpFailedEvent?.();
      return 0;
    }
    statusTracker.showFailure(decision.sinkState, decision.failure, decision.attempts, decision.waitMs);
    // A rejection concerns one event only, so an alarm need not wait for the next attempt.
    const isRejection = letsUrgentPass && decision.failure.kind === "rejected";
    if (!isRejection || !eventChooser.pauseNonUrgent(decision.waitMs))
      await sleepFor(clock, decision.waitMs, gracefulStop);
    return 0;
  }

  async function giveUp(batch: EventBatch, { toRetry: eventsToRetry }: WriteOutcome): Promise<void> {
    if (eventsToRetry === null) return;
    const { position } = eventsToRetry.head;
    const deadLetterReason = `attempts-exhausted: ${maskCredentials(errorText(eventsToRetry.error))}`;
    const eventIndex = batch.events.indexOf(eventsToRetry.head);
    const rejected = [{ position, reason: deadLetterReason, sequence: sequenceOfEvent(batch, eventIndex) }];
    const counted = sequenceAfter(batch.counted, eventIndex + 1);
    await settleEventsThrough({ isRepeat: batch.isRepeat, urgent: batch.urgent, through: position, rejected, counted });
    countDeliveries("rejected", 1);
  }

  function countBufferedDeliveries(): void {
    countDeliveries("accepted", buffered.countAccepted());
    buffered.forgetSettled();
  }

  function countDeliveries(outcome: "accepted" | "rejected" | "kept", eventCount: number): void {
    if (eventCount > 0) options.metrics.deliveries.inc({ sink: name, outcome }, eventCount);
  }

  async function settleEventsThrough(settlement: SettledBatch): Promise<void> {
    filteredOut.forgetSettled(settlement);
    await settleInOutbox(settlement);
  }

  async function settleInOutbox(settlement: SettledBatch): Promise<void> {
    await retryStoreWork(() => outbox.settle(name, { ...settlement, mayDefer: sink.toleratesRepeats === true }));
  }

  async function retryStoreWork<T>(work: () => Promise<T>): Promise<T | null> {
    try {
      return await retryUntilDone({
        clock,
        signal: gracefulStop,
        random: options.random,
        work,
        onFault: (error, inMs, failedAttempts) => statusTracker.showFailure("retrying", error, failedAttempts, inMs),
      });
    } catch (error) {
      if (gracefulStop.aborted) return null;
      throw error;
    }
  }

  /** Calls the sink with a signal that aborts with `cancel`, or after no progress for `config.deadline` ms. */
  async function withDeadline<T>(call: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
    using deadlineSignal = combineSignals(cancel);
    const callEndController = new AbortController();
    const stallWatchPromise = isSinkCallStalled(callEndController.signal).then((isLate) => {
      if (!isLate) return;
      const timeoutError = new Retryable(`${name} did not answer within ${config.deadline / 1_000} seconds.`);
      deadlineSignal.abort(timeoutError);
      statusTracker.showFailure("retrying", timeoutError, failurePolicies[lane].attempts(), 0);
    });
    try {
      return await call(deadlineSignal.signal);
    } catch (error) {
      throw deadlineSignal.signal.aborted ? deadlineSignal.signal.reason : error;
    } finally {
      callEndController.abort(WAIT_ENDED_EARLY);
      await stallWatchPromise;
    }
  }

  async function isSinkCallStalled(callEndSignal: AbortSignal): Promise<boolean> {
    const callBeganMs = clock.monotonic();
    for (;;) {
      const lastProgressMs = Math.max(callBeganMs, sink.progressMs?.() ?? callBeganMs);
      const timeLeftMs = lastProgressMs + config.deadline - clock.monotonic();
      if (timeLeftMs <= 0) return true;
      if (!(await sleepFor(clock, timeLeftMs, callEndSignal))) return false;
    }
  }

  return { runStep: runDeliveryStep, settleFilteredEvents: filteredOut.settle };
}

async function catchWorkError(work: () => Promise<void>): Promise<{ readonly error: unknown } | null> {
  try {
    await work();
    return null;
  } catch (error) {
    return { error };
  }
}
