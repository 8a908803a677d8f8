import type { Clock } from "../../core/runtime/clock.ts";
import type { Offer, Outbox } from "../store/store.ts";
import type { Batch } from "./offer.ts";

/** Events that are read at once when the filter leaves out most of them. */
const LOOK_THROUGH = 500;
/** Batches of urgent events in a row while other events wait; after them the others get one batch. */
const URGENT_BATCHES = 4;
export const NOTHING: Offer = { again: false, events: [], counted: undefined };

/**
 * Chooses what a sink is offered next, unless the sink needs one order:
 *
 *   marked to be sent again and urgent → urgent → marked to be sent again → all others
 */
export function createOffers(options: {
  readonly sink: string;
  readonly outbox: Pick<Outbox, "next" | "nextUrgent">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly most: number;
  readonly takesAll: boolean;
  readonly urgentFirst: boolean;
}) {
  const { sink, outbox, clock, most, takesAll, urgentFirst } = options;
  /** Events read at once: as many as the last batch took. One in ten passes the filter: 10 for a batch of 1. */
  let limit = takesAll ? most : Math.max(most, LOOK_THROUGH);
  /** The filter leaves out the urgent events up to this position. */
  let looked = 0;
  let urgentBatches = 0;
  let isTurn = false;
  /** Until when other events wait after a rejection, on the monotonic clock. */
  let othersWaitMs = Number.NEGATIVE_INFINITY;
  // Less than a millisecond counts as over, because sums of fractions are inexact.
  const othersWait = () => othersWaitMs - clock.monotonic() >= 1;

  return {
    /** Urgent events after a position; empty when there are none, or when it is the turn of the others. */
    async urgent(after: number): Promise<Offer> {
      isTurn = urgentBatches >= URGENT_BATCHES && !othersWait();
      const offer = urgentFirst && !isTurn ? await outbox.nextUrgent(sink, most, { after, looked }) : NOTHING;
      urgentBatches = offer.events.length > 0 ? urgentBatches + 1 : 0;
      return offer;
    },
    isTurn: () => isTurn,
    others: async (after: number): Promise<Offer> => (othersWait() ? NOTHING : outbox.next(sink, limit, after)),
    seen({ batch, seen }: Batch): void {
      if (takesAll || seen === 0) return;
      limit = Math.max(most, Math.min(batch.length < most ? 4 * limit : seen, LOOK_THROUGH));
    },
    /** The filter leaves out the urgent events up to this position. */
    unwanted(through: number): void {
      looked = through;
    },
    holdOthers(forMs: number): boolean {
      if (urgentFirst) othersWaitMs = clock.monotonic() + forMs;
      return urgentFirst;
    },
    othersWait,
    othersDueInMs: () => (othersWait() ? othersWaitMs - clock.monotonic() : Number.POSITIVE_INFINITY),
  };
}
