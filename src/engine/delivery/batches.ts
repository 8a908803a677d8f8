import type { Receipt, SinkState, SinkStateChange } from "../../core/connector.ts";
import { Retryable } from "../../core/errors/errors.ts";
import type { EventNumber } from "../../core/model/delivery-sequence.ts";
import { type Event, isUrgentKind } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import {
  type DocumentChange,
  type LoggedEvent,
  type OfferedEvents,
  type Outbox,
  type SettledBatch,
  type Store,
  sinkStateSet,
} from "../store/store.ts";

/** Number of events that are read at once when the filter leaves out most of them. */
const MAX_FILTERED_EVENTS = 500;
/** Maximum consecutive batches of urgent events; then other events get one batch. */
const MAX_URGENT_BATCHES = 4;
export const EMPTY_OFFER: OfferedEvents = { isRepeat: false, events: [], counted: undefined };

/**
 * Chooses the events that a sink gets next, in this order unless the sink needs the order of the log:
 *
 *   marked to be sent again and urgent → urgent → marked to be sent again → all others
 */
export function createEventChooser(options: {
  readonly sink: string;
  readonly outbox: Pick<Outbox, "next" | "nextUrgent">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly batchSize: number;
  readonly acceptsAllEvents: boolean;
  readonly sendsUrgentFirst: boolean;
}) {
  const { sink, outbox, clock, batchSize, acceptsAllEvents, sendsUrgentFirst } = options;
  /** Number of events per read, e.g. 10 for a batch of 1 if one event in ten passes the filter. */
  let limit = acceptsAllEvents ? batchSize : Math.max(batchSize, MAX_FILTERED_EVENTS);
  /** Position up to which the sink's filter leaves out all urgent events. */
  let filteredUrgentPosition = 0;
  let urgentBatchesInRow = 0;
  let isNonUrgentTurn = false;
  /** Monotonic time until which events that are not urgent wait after a rejection. */
  let otherEventsWaitUntilMs = Number.NEGATIVE_INFINITY;
  // A wait of less than a millisecond counts as over, because sums of fractions are inexact.
  const doOthersWait = () => otherEventsWaitUntilMs - clock.monotonic() >= 1;

  return {
    async offerUrgent(afterPosition: number): Promise<OfferedEvents> {
      isNonUrgentTurn = urgentBatchesInRow >= MAX_URGENT_BATCHES && !doOthersWait();
      const urgentOffer =
        sendsUrgentFirst && !isNonUrgentTurn
          ? await outbox.nextUrgent(sink, batchSize, { after: afterPosition, seenThrough: filteredUrgentPosition })
          : EMPTY_OFFER;
      urgentBatchesInRow = urgentOffer.events.length > 0 ? urgentBatchesInRow + 1 : 0;
      return urgentOffer;
    },
    isNonUrgentNext: () => isNonUrgentTurn,
    offerNonUrgent: async (afterPosition: number): Promise<OfferedEvents> =>
      doOthersWait() ? EMPTY_OFFER : outbox.next(sink, limit, afterPosition),
    recordBatch({ events, passedCount }: EventBatch): void {
      if (acceptsAllEvents || passedCount === 0) return;
      limit = Math.max(batchSize, Math.min(events.length < batchSize ? 4 * limit : passedCount, MAX_FILTERED_EVENTS));
    },
    recordFilteredUrgent(throughPosition: number): void {
      filteredUrgentPosition = throughPosition;
    },
    pauseNonUrgent(durationMs: number): boolean {
      if (sendsUrgentFirst) otherEventsWaitUntilMs = clock.monotonic() + durationMs;
      return sendsUrgentFirst;
    },
    isNonUrgentPaused: doOthersWait,
    nonUrgentDueInMs: () => (doOthersWait() ? otherEventsWaitUntilMs - clock.monotonic() : Number.POSITIVE_INFINITY),
  };
}

export interface EventBatch {
  readonly isRepeat: boolean;
  readonly urgent?: boolean | undefined;
  readonly events: readonly LoggedEvent[];
  /** Position of the last event that the batch contains or the filter left out. */
  readonly lastPosition: number;
  /** Number of events that the batch contains or the filter left out. */
  readonly passedCount: number;
  /** Sequence number before the first event of the batch; undefined if the sink's events are not numbered. */
  readonly counted: EventNumber | undefined;
}

export function takeBatch(offer: OfferedEvents, passesFilter: (event: Event) => boolean, size: number): EventBatch {
  const { isRepeat, urgent, counted } = offer;
  const events: LoggedEvent[] = [];
  let lastPosition = 0;
  let passedCount = 0;
  const isEventUnsettled = ({ event, position }: LoggedEvent) =>
    isRepeat || position > (offer.urgentThrough ?? 0) || !isUrgentKind(event.type);
  for (const loggedEvent of offer.events) {
    if (isEventUnsettled(loggedEvent) && passesFilter(loggedEvent.event)) {
      if (events.length === size) break;
      events.push(loggedEvent);
    }
    lastPosition = loggedEvent.position;
    passedCount += 1;
  }
  return { isRepeat, urgent, events, lastPosition, passedCount, counted };
}

export function sequenceOfEvent({ events, counted }: EventBatch, index: number): EventNumber | undefined {
  return events[index]?.sequence ?? sequenceAfter(counted, index + 1);
}

export function sequenceAfter(sequence: EventNumber | undefined, eventCount: number): EventNumber | undefined {
  return sequence === undefined ? undefined : { epoch: sequence.epoch, number: sequence.number + eventCount };
}

export interface WriteOutcome {
  readonly settlement: SettledBatch | null;
  readonly acceptedCount: number;
  readonly buffered: SettledBatch["rejected"] | null;
  readonly toRetry: { readonly head: LoggedEvent; readonly count: number; readonly error: unknown } | null;
}

/** Validates a receipt. If it does not fit its batch, all events are sent again: receivers recognize repeats by id. */
export function applySinkReceipt(sink: string, batch: EventBatch, receipt: Receipt | undefined): WriteOutcome {
  const { events, isRepeat, urgent } = batch;
  const batchSize = events.length;
  if (!isValidReceipt(receipt, batchSize) || (receipt.buffered === true && !mayBatchBeBuffered(batch))) {
    const hint = "This is a fault of the connector; the whole batch is kept.";
    const message = "The connector answered with a receipt that does not fit its batch.";
    return retryEventsFromIndex(batch, 0, new Retryable(message, { hint }));
  }
  const firstRetriedIndex = receipt.retry?.from ?? batchSize;
  const documents = buildSinkStateChanges(sink, receipt.stateChanges);
  const rejectionReasons = new Map(
    receipt.rejected.filter(({ index }) => index < firstRetriedIndex).map(({ index, reason }) => [index, reason]),
  );
  const rejectedEvents = events.flatMap(({ position }, index) => {
    const reason = rejectionReasons.get(index);
    if (reason === undefined) return [];
    return [{ position, reason: maskCredentials(reason), sequence: sequenceOfEvent(batch, index) }];
  });
  if (receipt.buffered === true) return { settlement: null, acceptedCount: 0, buffered: rejectedEvents, toRetry: null };
  const counted = sequenceAfter(batch.counted, firstRetriedIndex);
  if (firstRetriedIndex === batchSize) {
    const settlement = { isRepeat, urgent, through: batch.lastPosition, rejected: rejectedEvents, counted, documents };
    return { settlement, acceptedCount: batchSize - rejectedEvents.length, buffered: null, toRetry: null };
  }
  const retryOutcome = retryEventsFromIndex(batch, firstRetriedIndex, receipt.retry?.error);
  const lastSettledEvent = events[firstRetriedIndex - 1];
  if (lastSettledEvent === undefined) return retryOutcome;
  return {
    ...retryOutcome,
    settlement: { isRepeat, urgent, through: lastSettledEvent.position, rejected: rejectedEvents, counted, documents },
    acceptedCount: firstRetriedIndex - rejectedEvents.length,
  };
}

export function buildSinkStateChanges(sink: string, change: SinkStateChange = new Map()): readonly DocumentChange[] {
  if (change.size === 0) return [];
  const changedEntries = [...change].filter(([, value]) => value !== null);
  const removedKeys = [...change].filter(([, value]) => value === null).map(([key]) => key);
  return [{ set: sinkStateSet(sink), put: changedEntries, remove: removedKeys }];
}

export function createSinkState(sink: string, store: Pick<Store, "document" | "documents" | "commit">): SinkState {
  const setName = sinkStateSet(sink);
  return {
    get: (key) => store.document(setName, key),
    all: () => store.documents(setName),
    async put(change) {
      const documents = buildSinkStateChanges(sink, change);
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}

export function retryEventsFromIndex(batch: EventBatch, fromIndex: number, error: unknown): WriteOutcome {
  const firstToRetry = batch.events[fromIndex];
  if (firstToRetry === undefined) return { settlement: null, acceptedCount: 0, buffered: null, toRetry: null };
  const eventsToRetry = { head: firstToRetry, count: batch.events.length - fromIndex, error };
  return { settlement: null, acceptedCount: 0, buffered: null, toRetry: eventsToRetry };
}

/** True if the events of a batch are read again from the cursor after a crash, so that the sink may buffer them. */
function mayBatchBeBuffered({ events, isRepeat, urgent }: EventBatch): boolean {
  return !isRepeat && urgent !== true && events.every(({ position }) => position > 0);
}

function isValidReceipt(receipt: Receipt | undefined, batchSize: number): receipt is Receipt {
  if (receipt === undefined || receipt === null || !Array.isArray(receipt.rejected)) return false;
  const isIndex = (value: unknown, end: number) => Number.isInteger(value) && Number(value) >= 0 && Number(value) < end;
  if (receipt.retry !== undefined && !isIndex(receipt.retry.from, batchSize + 1)) return false;
  if (receipt.retry !== undefined && receipt.buffered === true) return false;
  return receipt.rejected.every((each) => isIndex(each?.index, batchSize));
}
