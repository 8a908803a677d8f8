import type { Clock } from "../clock.ts";
import { Throttled } from "../errors.ts";

/** What a receiver is called for. */
export type Call = "open" | "update" | "close" | "find";

/** A documented limit of a receiver: at most `count` calls in any `inMs` milliseconds, e.g. 4 in 1,000. */
export interface Rate {
  readonly count: number;
  readonly inMs: number;
  /** The calls that count; all of them without this. */
  readonly of?: readonly Call[];
}

/** One incident may need two calls, such as a search and an opening; the second waits no longer than this. */
const LONGEST_WAIT_MS = 2_500;

/** Keeps to the limits of a receiver, all of them at once. */
export interface RateLimiter {
  /** Milliseconds until a call is within the limits; 0 when it is now. */
  waitMs(call: Call): number;
  /** Counts a call, after a short wait where there has to be one; throws `Throttled` where that would be long. */
  enter(call: Call, signal: AbortSignal): Promise<void>;
}

export function createRateLimiter(rates: readonly Rate[], clock: Clock): RateLimiter {
  const limits = rates.map((rate) => ({ rate, last: [] as number[] }));
  const limitsOf = (call: Call) => limits.filter(({ rate }) => rate.of?.includes(call) ?? true);

  function waitMs(call: Call): number {
    const waits = limitsOf(call).map(({ rate, last }) => {
      const oldest = last.length < rate.count ? undefined : last[0];
      return oldest === undefined ? 0 : oldest + rate.inMs - clock.monotonic();
    });
    return Math.max(0, ...waits);
  }

  return {
    waitMs,
    async enter(call, signal) {
      const ms = waitMs(call);
      if (ms > LONGEST_WAIT_MS) throw new Throttled("The receiver's rate limit is used up for now.", ms);
      if (ms > 0) await clock.sleep(ms, signal);
      for (const { rate, last } of limitsOf(call)) {
        last.push(clock.monotonic());
        if (last.length > rate.count) last.shift();
      }
    },
  };
}
