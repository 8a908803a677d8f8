import { pino } from "pino";
import { type Clock, systemClock } from "#src/clock.ts";
import type { ConnectorContext } from "#src/connector.ts";
import { createSinkMemory } from "#src/delivery/memory.ts";
import { createMetrics } from "#src/metrics.ts";
import { createPicture } from "#src/picture.ts";
import type { Store } from "#src/store/store.ts";
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
    memory: createSinkMemory(name, store),
    picture: createPicture(store, new Map([["main", "Europe/Oslo"]])),
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
