/**
 * Spreads requests evenly over the window, so that an urgent one never finds the whole window just spent: the
 * next slot comes free within one period instead of within one window.
 */
export interface Rate {
  /** When the next paced request may leave. */
  readyAt(): number;
  /** One left at `now`. With catch-up, up to one period that was missed is made good by the next request. */
  left(now: number, periodMs: number, catchUp: boolean): void;
}

export function createRate(now: number): Rate {
  let next = now;
  return {
    readyAt: () => next,
    left(now, periodMs, catchUp) {
      next = catchUp ? Math.max(next + periodMs, now) : now + periodMs;
    },
  };
}
