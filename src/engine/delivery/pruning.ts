import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { type Service, Stopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { loop, within } from "../../core/runtime/waiting.ts";
import type { Outbox, RetentionBounds } from "../store/store.ts";
import type { LogSpace } from "./back-pressure.ts";
import type { DeliveryConfig } from "./config.ts";
import { isOutdated, matches } from "./filter.ts";

const PRUNE_EVERY_MS = 60_000;
/** Most running time that is counted at once: a process that was suspended for days was not running. */
const MAX_COUNTED_MS = 2 * PRUNE_EVERY_MS;

export interface PruningOptions {
  readonly outbox: Outbox;
  readonly bounds: Omit<RetentionBounds, "wanted" | "ranMs">;
  readonly sinks: readonly { readonly name: string; readonly delivery: DeliveryConfig }[];
  readonly clock: Clock;
  /** While the clock is in doubt, no event becomes older. */
  readonly clockDoubt: Pick<ClockCheck, "anywhere">;
  readonly space?: Pick<LogSpace, "check">;
  readonly log: Log;
  readonly metrics: Metrics;
}

export interface Pruning extends Service {
  change(next: Pick<PruningOptions, "bounds" | "sinks">): void;
}

export function createPruning(options: PruningOptions): Pruning {
  const { outbox, clock, log, metrics } = options;
  const stopping = new AbortController();
  let { bounds } = options;
  let deliveries = deliveriesOf(options.sinks);
  let countedMs = clock.monotonic();
  let running: Promise<void> | null = null;

  function wanted(sink: string, event: Event): boolean {
    const delivery = deliveries.get(sink);
    if (delivery === undefined) return true;
    return matches(delivery.filter, event) && (delivery.sequence || !isOutdated(event, clock.now()));
  }

  async function prune(): Promise<number> {
    const nowMs = clock.monotonic();
    const ranMs = options.clockDoubt.anywhere() === null ? Math.min(nowMs - countedMs, MAX_COUNTED_MS) : 0;
    const { gaps } = await outbox.prune({ ...bounds, wanted, ranMs });
    countedMs = nowMs;
    for (const { sink, reason, count, firstTime, lastTime } of gaps) {
      metrics.deliveries.inc({ sink, outcome: "dropped" }, count);
      log.warn({ sink, reason, count, firstTime, lastTime }, "Events were lost to a sink that did not take them.");
    }
    await options.space?.check(bounds.maxBytes);
    return PRUNE_EVERY_MS;
  }

  return {
    name: "pruning",
    async start(signal) {
      if (running !== null || stopping.signal.aborted) return;
      const ending = AbortSignal.any([signal, stopping.signal]);
      running = loop({
        clock,
        signal: ending,
        looks: true,
        turn: prune,
        backoff: { firstMs: PRUNE_EVERY_MS, maxMs: PRUNE_EVERY_MS },
        fault: (error) => log.warn({ err: error }, "The log could not be kept inside its bounds; it is tried again."),
      });
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await within(clock, deadlineMs, running ?? Promise.resolve());
    },
    change(next) {
      bounds = next.bounds;
      deliveries = deliveriesOf(next.sinks);
    },
  };
}

function deliveriesOf(sinks: PruningOptions["sinks"]): ReadonlyMap<string, DeliveryConfig> {
  return new Map(sinks.map(({ name, delivery }) => [name, delivery]));
}
