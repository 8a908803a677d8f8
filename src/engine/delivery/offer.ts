import type { Receipt, SinkState, SinkStateChange } from "../../core/connector.ts";
import { Retryable } from "../../core/errors/errors.ts";
import { type Event, isUrgent } from "../../core/model/event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import {
  type DocumentChange,
  type LoggedEvent,
  type Offer,
  type Settlement,
  type Store,
  sinkStateSet,
} from "../store/store.ts";

export interface Batch {
  readonly again: boolean;
  readonly urgent?: boolean | undefined;
  readonly events: readonly LoggedEvent[];
  /** Last position that is in the batch or was filtered out. */
  readonly through: number;
  /** Number of events in the batch or filtered out. */
  readonly passed: number;
  /** Sequence number of the event before the first; undefined when they are not counted. */
  readonly counted: Sequence | undefined;
}

/** Takes up to `most` events that pass the filter and are not settled, in order. */
export function batchOf(offer: Offer, passes: (event: Event) => boolean, size: number): Batch {
  const events: LoggedEvent[] = [];
  let through = 0;
  let passed = 0;
  const isOpen = ({ event, position }: LoggedEvent) =>
    offer.again || position > (offer.urgentThrough ?? 0) || !isUrgent(event.type);
  for (const logged of offer.events) {
    if (isOpen(logged) && passes(logged.event)) {
      if (events.length === size) break;
      events.push(logged);
    }
    through = logged.position;
    passed += 1;
  }
  return { again: offer.again, urgent: offer.urgent, events, through, passed, counted: offer.counted };
}

export function sequenceOf({ events, counted }: Batch, index: number): Sequence | undefined {
  return events[index]?.sequence ?? countedAfter(counted, index + 1);
}

export function countedAfter(counted: Sequence | undefined, events: number): Sequence | undefined {
  return counted === undefined ? undefined : { epoch: counted.epoch, number: counted.number + events };
}

export interface Outcome {
  readonly settlement: Settlement | null;
  readonly accepted: number;
  readonly gathered: Settlement["rejected"] | null;
  readonly kept: { readonly head: LoggedEvent; readonly count: number; readonly error: unknown } | null;
}

/** Validates a receipt. A receipt that does not fit its batch keeps all events: receivers recognize repeats by id. */
export function outcomeOf(sink: string, portion: Batch, receipt: Receipt | undefined): Outcome {
  const { events, again, urgent } = portion;
  const size = events.length;
  if (!isValidReceipt(receipt, size) || (receipt.gathered === true && !mayBeBuffered(portion))) {
    const hint = "This is a fault of the connector; the whole batch is kept.";
    const message = "The connector answered with a receipt that does not fit its batch.";
    return retryFrom(portion, 0, new Retryable(message, { hint }));
  }
  const from = receipt.kept?.from ?? size;
  const documents = sinkStateChange(sink, receipt.remember);
  const reasons = new Map(
    receipt.rejected.filter(({ index }) => index < from).map(({ index, reason }) => [index, reason]),
  );
  const rejected = events.flatMap(({ position }, index) => {
    const reason = reasons.get(index);
    if (reason === undefined) return [];
    return [{ position, reason: withoutCredentials(reason), sequence: sequenceOf(portion, index) }];
  });
  if (receipt.gathered === true) return { settlement: null, accepted: 0, gathered: rejected, kept: null };
  const counted = countedAfter(portion.counted, from);
  if (from === size) {
    const settlement = { again, urgent, through: portion.through, rejected, counted, documents };
    return { settlement, accepted: size - rejected.length, gathered: null, kept: null };
  }
  const outcome = retryFrom(portion, from, receipt.kept?.error);
  const lastSettled = events[from - 1];
  if (lastSettled === undefined) return outcome;
  return {
    ...outcome,
    settlement: { again, urgent, through: lastSettled.position, rejected, counted, documents },
    accepted: from - rejected.length,
  };
}

export function sinkStateChange(sink: string, change: SinkStateChange = new Map()): readonly DocumentChange[] {
  if (change.size === 0) return [];
  const put = [...change].filter(([, value]) => value !== null);
  const remove = [...change].filter(([, value]) => value === null).map(([key]) => key);
  return [{ set: sinkStateSet(sink), put, remove }];
}

export function createSinkState(sink: string, store: Pick<Store, "document" | "documents" | "commit">): SinkState {
  const set = sinkStateSet(sink);
  return {
    get: (key) => store.document(set, key),
    all: () => store.documents(set),
    async put(change) {
      const documents = sinkStateChange(sink, change);
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}

export function retryFrom(portion: Batch, from: number, error: unknown): Outcome {
  const head = portion.events[from];
  if (head === undefined) return { settlement: null, accepted: 0, gathered: null, kept: null };
  const kept = { head, count: portion.events.length - from, error };
  return { settlement: null, accepted: 0, gathered: null, kept };
}

/** Only events after the cursor are offered again by themselves when the buffered events are lost. */
function mayBeBuffered({ events, again, urgent }: Batch): boolean {
  return !again && urgent !== true && events.every(({ position }) => position > 0);
}

function isValidReceipt(receipt: Receipt | undefined, size: number): receipt is Receipt {
  if (receipt === undefined || receipt === null || !Array.isArray(receipt.rejected)) return false;
  const isIndex = (value: unknown, end: number) => Number.isInteger(value) && Number(value) >= 0 && Number(value) < end;
  if (receipt.kept !== undefined && !isIndex(receipt.kept.from, size + 1)) return false;
  if (receipt.kept !== undefined && receipt.gathered === true) return false;
  return receipt.rejected.every((each) => isIndex(each?.index, size));
}
