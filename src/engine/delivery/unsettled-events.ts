import type { Clock } from "../../core/runtime/clock.ts";
import type { SettledBatch } from "../store/store.ts";
import { type EventBatch, sequenceAfter } from "./batches.ts";

/**
 * Events that a sink was offered and that are not settled:
 *
 *   cursor ─► filtered out ─► buffered by the sink ─► offered next
 *
 * Filtered events are settled together, because each settlement is a disk write.
 */
const MAX_UNSETTLED_FILTERED_EVENTS = 1_000;
const MAX_SETTLE_DELAY_MS = 5_000;

export function createFilteredEventTracker(clock: Clock, settle: (settlement: SettledBatch) => Promise<void>) {
  let lastFilteredPosition = 0;
  let eventCount = 0;
  let filteredSinceMs = 0;

  async function settleFilteredEvents(): Promise<void> {
    if (eventCount === 0) return;
    eventCount = 0;
    await settle({ isRepeat: false, through: lastFilteredPosition, rejected: [] });
  }

  const dueInMs = () =>
    eventCount === 0 ? Number.POSITIVE_INFINITY : filteredSinceMs + MAX_SETTLE_DELAY_MS - clock.monotonic();

  async function settleFilteredIfDue(): Promise<void> {
    if (eventCount >= MAX_UNSETTLED_FILTERED_EVENTS || dueInMs() <= 0) await settleFilteredEvents();
  }

  return {
    lastPosition: () => lastFilteredPosition,
    async addBatch(batch: EventBatch): Promise<void> {
      // Settle filtered events of a repeated batch at once, because they do not move the cursor and are few.
      if (batch.isRepeat) return settle({ isRepeat: true, through: batch.lastPosition, rejected: [] });
      if (eventCount === 0) filteredSinceMs = clock.monotonic();
      lastFilteredPosition = batch.lastPosition;
      eventCount += batch.passedCount;
      await settleFilteredIfDue();
    },
    settleIfDue: settleFilteredIfDue,
    dueInMs,
    settle: settleFilteredEvents,
    forgetSettled({ isRepeat, urgent, through: settled }: SettledBatch): void {
      if (!isRepeat && urgent !== true && settled >= lastFilteredPosition) eventCount = 0;
    },
  };
}

/** Events that the sink buffers (`buffered` in its receipt). After a crash or a failure they are offered again. */
export function createBufferedEventTracker() {
  const NO_BUFFERED_EVENTS = { through: 0, events: 0, rejected: [], counted: undefined };
  let buffered: Pick<SettledBatch, "through" | "rejected" | "counted"> & { readonly events: number } =
    NO_BUFFERED_EVENTS;
  return {
    lastPosition: () => buffered.through,
    isEmpty: () => buffered.through === 0,
    countEvents: () => buffered.events,
    countAccepted: () => buffered.events - buffered.rejected.length,
    addBatch(batch: Pick<EventBatch, "events" | "lastPosition" | "counted">, rejected: SettledBatch["rejected"]): void {
      buffered = {
        through: batch.lastPosition,
        events: buffered.events + batch.events.length,
        rejected: [...buffered.rejected, ...rejected],
        counted: sequenceAfter(batch.counted, batch.events.length),
      };
    },
    withRejections(settlement: SettledBatch): SettledBatch {
      if (settlement.isRepeat || buffered.rejected.length === 0) return settlement;
      return { ...settlement, rejected: [...buffered.rejected, ...settlement.rejected] };
    },
    settlement(): SettledBatch {
      const { through, rejected, counted } = buffered;
      return { isRepeat: false, through, rejected, counted };
    },
    forgetSettled(): void {
      buffered = NO_BUFFERED_EVENTS;
    },
  };
}
