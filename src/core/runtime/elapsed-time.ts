import type { Clock } from "./clock.ts";

export interface TimeReading {
  readonly monotonicMs: number;
  readonly sinceBootMs: number | null;
}

export type ClockReader = () => TimeReading;

/** Creates a reader that omits the time since boot, which is slow to read (50 µs). */
export function createMonotonicClockReader(clock: Pick<Clock, "monotonic">): ClockReader {
  return () => ({ monotonicMs: clock.monotonic(), sinceBootMs: null });
}

export function readClocks(clock: Clock): TimeReading {
  return { monotonicMs: clock.monotonic(), sinceBootMs: clock.sinceBoot?.()?.ms ?? null };
}

/** Returns elapsed milliseconds by the clock that advanced further: the monotonic clock stops during a suspension. */
export function elapsedMs(clock: Clock, from: TimeReading): number {
  const now = readClocks(clock);
  const sinceBootMs = now.sinceBootMs === null || from.sinceBootMs === null ? 0 : now.sinceBootMs - from.sinceBootMs;
  return Math.max(now.monotonicMs - from.monotonicMs, sinceBootMs);
}
