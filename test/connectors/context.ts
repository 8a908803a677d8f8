import { pino } from "pino";
import type { ConnectorContext } from "#src/core/connector.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createSinkState } from "#src/engine/delivery/offer.ts";
import type { Store } from "#src/engine/store/store.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

/** What the engine hands to a connector, without a word on the terminal. */
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
    memory: createSinkState(name, store),
    picture: createBuildingView(store, new Map([["main", "Europe/Oslo"]])),
  };
}

/** A clock that shows what it is told; waiting is real. */
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

export function never(): AbortSignal {
  return new AbortController().signal;
}
