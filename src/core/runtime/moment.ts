import type { Clock } from "./clock.ts";

export interface Moment {
  readonly monotonicMs: number;
  readonly sinceBootMs: number | null;
}

export type Mark = () => Moment;

/** Mark without the time since boot, for code without leases: reading it takes 50 µs of the 2.2 ms of a request. */
export function monotonicMark(clock: Pick<Clock, "monotonic">): Mark {
  return () => ({ monotonicMs: clock.monotonic(), sinceBootMs: null });
}

export function momentOf(clock: Clock): Moment {
  return { monotonicMs: clock.monotonic(), sinceBootMs: clock.sinceBoot?.()?.ms ?? null };
}

/** By the clock that advanced further, because the monotonic clock stops while a machine is suspended. */
export function elapsedMs(clock: Clock, from: Moment): number {
  const now = momentOf(clock);
  const sinceBootMs = now.sinceBootMs === null || from.sinceBootMs === null ? 0 : now.sinceBootMs - from.sinceBootMs;
  return Math.max(now.monotonicMs - from.monotonicMs, sinceBootMs);
}
