import type { Settlement } from "../store/store.ts";
import { type Batch, countedAfter } from "./offer.ts";

/**
 * Events that a sink buffers (`gathered` in its receipt). The cursor stays before them:
 *
 *   cursor ─► 5 6 7 8 9 ─► through      offered next: 10; after a crash or a failure, 5 is offered again
 */
export function createBuffered() {
  let through = 0;
  let events = 0;
  let rejected: Settlement["rejected"] = [];
  let counted: Settlement["counted"];

  function forget(): void {
    through = 0;
    events = 0;
    rejected = [];
    counted = undefined;
  }

  return {
    /** The last position that was taken or looked at; 0 while nothing is in its hands. */
    through: () => through,
    isEmpty: () => through === 0,
    /** How many of them passed the filter. */
    events: () => events,
    /** How many of them it has not rejected. */
    taken: () => events - rejected.length,

    add(portion: Pick<Batch, "batch" | "through" | "counted">, refused: Settlement["rejected"]): void {
      through = portion.through;
      events += portion.batch.length;
      counted = countedAfter(portion.counted, portion.batch.length);
      rejected = [...rejected, ...refused];
    },

    /** A settlement that covers what was gathered before it as well. */
    with(settlement: Settlement): Settlement {
      if (settlement.again || rejected.length === 0) return settlement;
      return { ...settlement, rejected: [...rejected, ...settlement.rejected] };
    },

    /** All of it, once the sink says that it is durable. */
    settlement: (): Settlement => ({ again: false, through, rejected, counted }),

    forget,
  };
}
