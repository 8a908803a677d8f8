import type { Clock } from "../../core/runtime/clock.ts";
import type { Settlement } from "../store/store.ts";
import type { Batch } from "./offer.ts";

/** Filtered events are settled together: each settlement is a disk write. */
const SETTLE_EVENTS = 1_000;
const SETTLE_MS = 5_000;

/** How far a sink has looked beyond its cursor without anything to write. */
export function createSkipped(clock: Clock, settle: (settlement: Settlement) => Promise<void>) {
  let through = 0;
  let events = 0;
  let sinceMs = 0;

  async function settleAll(): Promise<void> {
    if (events === 0) return;
    events = 0;
    await settle({ again: false, through, rejected: [] });
  }

  /** Both callers use this sum, so that rounding cannot make one of them wake too early. */
  const dueInMs = () => (events === 0 ? Number.POSITIVE_INFINITY : sinceMs + SETTLE_MS - clock.monotonic());

  async function settleIfDue(): Promise<void> {
    if (events >= SETTLE_EVENTS || dueInMs() <= 0) await settleAll();
  }

  return {
    through: () => through,

    async add(portion: Batch): Promise<void> {
      // Marks to send again have no cursor that could wait; there are few, and they are taken off at once.
      if (portion.again) return settle({ again: true, through: portion.through, rejected: [] });
      if (events === 0) sinceMs = clock.monotonic();
      through = portion.through;
      events += portion.seen;
      await settleIfDue();
    },

    settleIfDue,
    /** After how many milliseconds that is due; infinite when nothing is to be settled. */
    dueInMs,
    settle: settleAll,

    /** A settlement of what came later has settled this too. */
    forget(settlement: Settlement): void {
      if (settlement.again || settlement.urgent === true) return;
      if (settlement.through >= through) events = 0;
    },
  };
}
