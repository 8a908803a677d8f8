import { type Clock, systemClock } from "#src/core/runtime/clock.ts";

/** When a hurried clock agrees with the machine's, in milliseconds since 1970, and how many times faster it goes. */
export interface Hurry {
  readonly sinceMs: number;
  readonly factor: number;
}

/**
 * The machine's clock, but faster. The worker and the service that it writes to both go by it, so that the quota of
 * 20 requests a minute, lives, intervals and floods keep their meaning while an hour takes minutes.
 */
export function hurriedClock({ sinceMs, factor }: Hurry): Clock {
  return {
    now: () => Math.floor(sinceMs + (Date.now() - sinceMs) * factor),
    monotonic: () => performance.now() * factor,
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  };
}
