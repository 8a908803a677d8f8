import { pino } from "pino";
import type { BatchInfo, ConnectorContext } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createSinkState } from "#src/engine/delivery/batches.ts";
import type { Store } from "#src/engine/store/store.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

export function contextFor(
  name: string,
  clock: Clock = systemClock,
  store: Store = createMemoryStore(),
): ConnectorContext {
  return {
    name,
    clock,
    log: pino({ level: "silent" }),
    metrics: createMetrics(),
    sinkState: createSinkState(name, store),
    building: createBuildingView(store, new Map([["main", "Europe/Oslo"]])),
  };
}

export function clockAt(time: string): Clock & { set(time: string): void } {
  let now = Date.parse(time);
  return {
    now: () => now,
    monotonic: () => systemClock.monotonic(),
    sleep: (ms, signal) => systemClock.sleep(ms, signal),
    set(next) {
      now = Date.parse(next);
    },
  };
}

/** The information that the engine passes with a batch whose first event has this position. */
export function offered(events: readonly Event[], position = 1): BatchInfo {
  const first = Date.parse("2026-11-02T06:20:00.000Z");
  return {
    positions: events.map((_, n) => position + n),
    committedAt: events.map((_, n) => new Date(first + (position + n) * 1_000).toISOString()),
    isRedelivery: false,
  };
}

/** The position and sequence information that the engine passes with a batch. */
export function offerWith(sequences: NonNullable<BatchInfo["sequences"]>): BatchInfo {
  return { positions: sequences.map((_, index) => index + 1), committedAt: [], isRedelivery: false, sequences };
}

export const never = (): AbortSignal => new AbortController().signal;
