import type { Clock } from "../../core/runtime/clock.ts";
import type { Settlement } from "../store/store.ts";
import { type Batch, sequenceAfter } from "./batches.ts";

/**
 * Events that a sink was offered and that are not settled:
 *
 *   cursor ─► filtered out ─► buffered by the sink ─► offered next
 *
 * Filtered events are settled together, because each settlement is a disk write.
 */
const MAX_FILTERED_OUT_EVENTS = 1_000;
const MAX_SETTLE_DELAY_MS = 5_000;

export function createFilteredEvents(clock: Clock, settle: (settlement: Settlement) => Promise<void>) {
  let lastPosition = 0;
  let events = 0;
  let sinceMs = 0;

  async function settleAll(): Promise<void> {
    if (events === 0) return;
    events = 0;
    await settle({ again: false, through: lastPosition, rejected: [] });
  }

  // Both users need the same sum: rounding must not wake the loop too early.
  const dueInMs = () => (events === 0 ? Number.POSITIVE_INFINITY : sinceMs + MAX_SETTLE_DELAY_MS - clock.monotonic());

  async function settleIfDue(): Promise<void> {
    if (events >= MAX_FILTERED_OUT_EVENTS || dueInMs() <= 0) await settleAll();
  }

  return {
    through: () => lastPosition,
    async addBatch(batch: Batch): Promise<void> {
      // Events that are sent again have no cursor that could wait, and there are few.
      if (batch.again) return settle({ again: true, through: batch.through, rejected: [] });
      if (events === 0) sinceMs = clock.monotonic();
      lastPosition = batch.through;
      events += batch.passed;
      await settleIfDue();
    },
    settleIfDue,
    dueInMs,
    settle: settleAll,
    forgetSettled({ again, urgent, through: settled }: Settlement): void {
      if (!again && urgent !== true && settled >= lastPosition) events = 0;
    },
  };
}

/** Events that the sink buffers (`buffered` in its receipt). After a crash or a failure they are offered again. */
export function createBufferedEvents() {
  const NOTHING_BUFFERED = { through: 0, events: 0, rejected: [], counted: undefined };
  let buffered: Pick<Settlement, "through" | "rejected" | "counted"> & { readonly events: number } = NOTHING_BUFFERED;
  return {
    through: () => buffered.through,
    isEmpty: () => buffered.through === 0,
    events: () => buffered.events,
    accepted: () => buffered.events - buffered.rejected.length,
    addBatch(batch: Pick<Batch, "events" | "through" | "counted">, rejected: Settlement["rejected"]): void {
      buffered = {
        through: batch.through,
        events: buffered.events + batch.events.length,
        rejected: [...buffered.rejected, ...rejected],
        counted: sequenceAfter(batch.counted, batch.events.length),
      };
    },
    withRejections(settlement: Settlement): Settlement {
      if (settlement.again || buffered.rejected.length === 0) return settlement;
      return { ...settlement, rejected: [...buffered.rejected, ...settlement.rejected] };
    },
    settlement(): Settlement {
      const { through, rejected, counted } = buffered;
      return { again: false, through, rejected, counted };
    },
    forgetSettled(): void {
      buffered = NOTHING_BUFFERED;
    },
  };
}
