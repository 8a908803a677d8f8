import { type Clock, systemClock } from "#src/core/runtime/clock.ts";

/** The clock equals the machine's at `sinceMs` and runs `factor` times faster. */
export interface ClockSpeed {
  readonly sinceMs: number;
  readonly factor: number;
}

export function fastClock({ sinceMs, factor }: ClockSpeed): Clock {
  return {
    now: () => Math.floor(sinceMs + (Date.now() - sinceMs) * factor),
    monotonic: () => performance.now() * factor,
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  };
}
