import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { createLoopService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Outbox, RetentionBounds } from "../store/store.ts";
import type { LogSpaceMonitor } from "./back-pressure.ts";
import type { DeliveryConfig } from "./config.ts";
import { isOutdatedHeartbeat, matchesFilter } from "./filter.ts";

const EVENT_LOG_PRUNE_INTERVAL_MS = 60_000;
/** Longest time by which one pruning ages the events: a process that was suspended for days was not running. */
const MAX_RUN_MS = 2 * EVENT_LOG_PRUNE_INTERVAL_MS;

export interface EventLogPruningOptions {
  readonly outbox: Outbox;
  readonly bounds: Omit<RetentionBounds, "wanted" | "ranMs">;
  readonly sinks: readonly { readonly name: string; readonly delivery: DeliveryConfig }[];
  readonly clock: Clock;
  /** Events do not age while the wall clock may be wrong. */
  readonly clockCheck: Pick<ClockCheck, "deviation">;
  readonly space?: Pick<LogSpaceMonitor, "check">;
  readonly log: Log;
  readonly metrics: Metrics;
}

export type EventLogPruningService = ReturnType<typeof createEventLogPruning>;

export function createEventLogPruning(options: EventLogPruningOptions) {
  const { outbox, clock, log, metrics } = options;
  let { bounds } = options;
  let deliveryConfigs = indexDeliveryConfigs(options.sinks);
  let lastPrunedMs = clock.monotonic();

  function isEventWantedBySink(sink: string, event: Event): boolean {
    const config = deliveryConfigs.get(sink);
    if (config === undefined) return true;
    return matchesFilter(config.filter, event) && (config.sequence || !isOutdatedHeartbeat(event, clock.now()));
  }

  async function pruneEventLog(): Promise<number> {
    const nowMs = clock.monotonic();
    const workerRunningMs = options.clockCheck.deviation() === null ? Math.min(nowMs - lastPrunedMs, MAX_RUN_MS) : 0;
    const { gaps } = await outbox.prune({ ...bounds, wanted: isEventWantedBySink, ranMs: workerRunningMs });
    lastPrunedMs = nowMs;
    for (const { sink, reason, count, firstTime, lastTime } of gaps) {
      metrics.deliveries.inc({ sink, outcome: "dropped" }, count);
      log.warn(
        { sink, reason, count, firstTime, lastTime },
        "Events were removed from the log before a sink received them.",
      );
    }
    await options.space?.check(bounds.maxBytes);
    return EVENT_LOG_PRUNE_INTERVAL_MS;
  }

  return {
    ...createLoopService("pruning", {
      clock,
      alignSleeps: true,
      step: pruneEventLog,
      backoff: { firstMs: EVENT_LOG_PRUNE_INTERVAL_MS, maxMs: EVENT_LOG_PRUNE_INTERVAL_MS },
      onFault: (error) => log.warn({ err: error }, "Old events could not be removed from the log; Plenum tries again."),
    }),
    changeOptions(nextOptions: Pick<EventLogPruningOptions, "bounds" | "sinks">): void {
      bounds = nextOptions.bounds;
      deliveryConfigs = indexDeliveryConfigs(nextOptions.sinks);
    },
  };
}

function indexDeliveryConfigs(sinks: EventLogPruningOptions["sinks"]): ReadonlyMap<string, DeliveryConfig> {
  return new Map(sinks.map(({ name, delivery }) => [name, delivery]));
}
