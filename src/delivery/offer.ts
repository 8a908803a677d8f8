import type { Receipt, Remembered } from "../connector.ts";
import { Retryable } from "../errors.ts";
import type { Event } from "../event.ts";
import { withoutCredentials } from "../log.ts";
import {
  type DocumentChange,
  type LoggedEvent,
  memorySet,
  type Offer,
  type Settlement,
} from "../store/store.ts";

/** The part of an offer that goes into one write. */
export interface Portion {
  readonly again: boolean;
  readonly batch: readonly LoggedEvent[];
  /** The last position that was looked at, whether it is in the batch or was filtered out. */
  readonly through: number;
  /** How many were looked at. */
  readonly seen: number;
}

/** Takes what passes the filter, up to a number, in order. */
export function portionOf(offer: Offer, passes: (event: Event) => boolean, most: number): Portion {
  const batch: LoggedEvent[] = [];
  let through = 0;
  let seen = 0;
  for (const logged of offer.events) {
    if (passes(logged.event)) {
      if (batch.length === most) break;
      batch.push(logged);
    }
    through = logged.position;
    seen += 1;
  }
  return { again: offer.again, batch, through, seen };
}

/** What a receipt says about a portion. */
export interface Outcome {
  /** Null when nothing of it is settled. */
  readonly settlement: Settlement | null;
  readonly accepted: number;
  readonly kept: { readonly head: LoggedEvent; readonly count: number; readonly error: unknown } | null;
}

/**
 * Reads a receipt with suspicion: one that does not fit its batch keeps everything, because an event that may
 * arrive twice can be told by its id, and one that is lost cannot.
 */
export function outcomeOf(sink: string, portion: Portion, receipt: Receipt | undefined): Outcome {
  const { batch, again } = portion;
  const size = batch.length;
  if (!fits(receipt, size)) {
    return keptFrom(
      portion,
      0,
      new Retryable("The connector answered with a receipt that does not fit its batch.", {
        hint: "This is a fault of the connector; the whole batch is kept.",
      }),
    );
  }
  const from = receipt.kept?.from ?? size;
  const documents = memoryChange(sink, receipt.remember);
  const reasons = new Map(
    receipt.rejected.filter(({ index }) => index < from).map(({ index, reason }) => [index, reason]),
  );
  const rejected = batch.flatMap(({ position }, index) => {
    const reason = reasons.get(index);
    return reason === undefined ? [] : [{ position, reason: withoutCredentials(reason) }];
  });
  if (from === size) {
    const settlement = { again, through: portion.through, rejected, documents };
    return { settlement, accepted: size - rejected.length, kept: null };
  }
  const outcome = keptFrom(portion, from, receipt.kept?.error);
  const lastSettled = batch[from - 1];
  if (lastSettled === undefined) return outcome;
  return {
    ...outcome,
    settlement: { again, through: lastSettled.position, rejected, documents },
    accepted: from - rejected.length,
  };
}

/** What a sink wants to be remembered, as a change of documents. */
export function memoryChange(sink: string, remembered: Remembered = new Map()): readonly DocumentChange[] {
  if (remembered.size === 0) return [];
  const all = [...remembered];
  const put = all.filter(([, value]) => value !== null);
  const remove = all.filter(([, value]) => value === null).map(([key]) => key);
  return [{ set: memorySet(sink), put, remove }];
}

/** The outcome when everything from an index on is kept and nothing else is known. */
export function keptFrom(portion: Portion, from: number, error: unknown): Outcome {
  const head = portion.batch[from];
  if (head === undefined) return { settlement: null, accepted: 0, kept: null };
  return { settlement: null, accepted: 0, kept: { head, count: portion.batch.length - from, error } };
}

function fits(receipt: Receipt | undefined, size: number): receipt is Receipt {
  if (receipt === undefined || receipt === null || !Array.isArray(receipt.rejected)) return false;
  const isIndex = (value: unknown, end: number) =>
    Number.isInteger(value) && Number(value) >= 0 && Number(value) < end;
  if (receipt.kept !== undefined && !isIndex(receipt.kept.from, size + 1)) return false;
  return receipt.rejected.every((each) => isIndex(each?.index, size));
}
