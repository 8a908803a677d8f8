import type { Clock } from "../../core/runtime/clock.ts";
import type { Offer, Outbox } from "../store/store.ts";
import type { Batch } from "./offer.ts";

/** Events that are read at once when the filter leaves out most of them. */
const MAX_FILTERED_EVENTS = 500;
/** Batches of urgent events in a row while other events wait; after them the others get one batch. */
const URGENT_BATCHES = 4;
export const EMPTY_OFFER: Offer = { again: false, events: [], counted: undefined };

/**
 * Chooses what a sink is offered next, unless the sink needs one order:
 *
 *   marked to be sent again and urgent → urgent → marked to be sent again → all others
 */
export function createOfferOrder(options: {
  readonly sink: string;
  readonly outbox: Pick<Outbox, "next" | "nextUrgent">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly batchSize: number;
  readonly takesAll: boolean;
  readonly urgentFirst: boolean;
}) {
  const { sink, outbox, clock, batchSize, takesAll, urgentFirst } = options;
  /** Events read at once: as many as the last batch took. One in ten passes the filter: 10 for a batch of 1. */
  let limit = takesAll ? batchSize : Math.max(batchSize, MAX_FILTERED_EVENTS);
  /** The filter leaves out the urgent events up to this position. */
  let urgentThrough = 0;
  let urgentBatches = 0;
  let isTurnOfOthers = false;
  /** Until when other events wait after a rejection, on the monotonic clock. */
  let othersWaitMs = Number.NEGATIVE_INFINITY;
  // Less than a millisecond counts as over, because sums of fractions are inexact.
  const othersWait = () => othersWaitMs - clock.monotonic() >= 1;

  return {
    /** Urgent events after a position; empty when there are none, or when it is the turn of the others. */
    async urgent(after: number): Promise<Offer> {
      isTurnOfOthers = urgentBatches >= URGENT_BATCHES && !othersWait();
      const offer =
        urgentFirst && !isTurnOfOthers
          ? await outbox.nextUrgent(sink, batchSize, { after, looked: urgentThrough })
          : EMPTY_OFFER;
      urgentBatches = offer.events.length > 0 ? urgentBatches + 1 : 0;
      return offer;
    },
    isTurn: () => isTurnOfOthers,
    others: async (after: number): Promise<Offer> => (othersWait() ? EMPTY_OFFER : outbox.next(sink, limit, after)),
    noteBatch({ events, passed }: Batch): void {
      if (takesAll || passed === 0) return;
      limit = Math.max(batchSize, Math.min(events.length < batchSize ? 4 * limit : passed, MAX_FILTERED_EVENTS));
    },
    /** The filter leaves out the urgent events up to this position. */
    noteUnwantedUrgent(through: number): void {
      urgentThrough = through;
    },
    holdOthers(forMs: number): boolean {
      if (urgentFirst) othersWaitMs = clock.monotonic() + forMs;
      return urgentFirst;
    },
    othersWait,
    othersDueInMs: () => (othersWait() ? othersWaitMs - clock.monotonic() : Number.POSITIVE_INFINITY),
  };
}
