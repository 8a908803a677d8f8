import { type Clock, systemClock } from "#src/core/runtime/clock.ts";

/** The clock equals the machine's at `sinceMs` and runs `factor` times faster. */
export interface Hurry {
  readonly sinceMs: number;
  readonly factor: number;
}

export function hurriedClock({ sinceMs, factor }: Hurry): Clock {
  return {
    now: () => Math.floor(sinceMs + (Date.now() - sinceMs) * factor),
    monotonic: () => performance.now() * factor,
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  };
}
