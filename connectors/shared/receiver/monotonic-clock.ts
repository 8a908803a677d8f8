import type { Clock } from "../../../src/core/runtime/clock.ts";

/**
 * Milliseconds since 1970 that never go back while the process runs. What waits would wait on for as long as the wall
 * clock was set back. That it goes forward is believed: the machine may have been suspended, when measured time stands
 * still.
 */
export function createMonotonicClock(clock: Pick<Clock, "now" | "monotonic">): () => number {
  let latestMs = clock.now();
  let lookedMs = clock.monotonic();
  return () => {
    const nowMs = clock.monotonic();
    latestMs = Math.max(clock.now(), latestMs + nowMs - lookedMs);
    lookedMs = nowMs;
    return latestMs;
  };
}
