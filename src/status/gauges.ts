import type { Clock } from "../clock.ts";
import type { Metrics } from "../metrics.ts";
import type { Outbox } from "../store/store.ts";

/** Sets the gauges that are true at a moment only, so that a scrape sees how it is and not how it was. */
export async function refreshGauges(options: {
  readonly outbox: Pick<Outbox, "lag">;
  readonly metrics: Pick<Metrics, "outboxDepth" | "outboxOldestAge">;
  readonly clock: Clock;
}): Promise<void> {
  const { outbox, metrics, clock } = options;
  for (const { sink, depth, oldest, ended } of await outbox.lag()) {
    if (ended !== null) continue;
    metrics.outboxDepth.set({ sink }, depth);
    metrics.outboxOldestAge.set(
      { sink },
      oldest === null ? 0 : Math.max(0, clock.now() - Date.parse(oldest)) / 1_000,
    );
  }
}
