/** Seven ways in which a service may count "20 per minute". Times are in milliseconds of the service's clock. */
export interface ServerLimiter {
  arrive(now: number): Verdict;
}

export interface Verdict {
  readonly ok: boolean;
  /** The request uses the quota, even if it was refused. */
  readonly counted: boolean;
  /** Whole seconds, rounded down as public services do, so up to one second too short. */
  readonly retryAfterS: number;
  readonly remaining: number | null;
}

const LIMIT = 20;
const WINDOW = 60_000;
const PERIOD = WINDOW / LIMIT;

export type LimiterName = keyof typeof LIMITERS;

export const LIMITERS = {
  "first-hit window": firstHitWindow,
  "calendar minute": calendarMinute,
  "sliding log": () => slidingLog(false),
  "sliding log, 429s count": () => slidingLog(true),
  "token bucket 20": tokenBucket,
  "leaky, burst 1": leakyBucket,
  "weighted counter": weightedCounter,
} satisfies Record<string, () => ServerLimiter>;

function accepted(remaining: number | null): Verdict {
  return { ok: true, counted: true, retryAfterS: 0, remaining };
}

function refused(waitMs: number, remaining: number | null): Verdict {
  return { ok: false, counted: false, retryAfterS: Math.max(0, Math.floor(waitMs / 1000)), remaining };
}

/** Laravel: the window opens with the first request and lasts 60 s; refusals are not counted. */
function firstHitWindow(): ServerLimiter {
  let opened = Number.NEGATIVE_INFINITY;
  let count = 0;
  return {
    arrive(now) {
      if (now >= opened + WINDOW) {
        opened = now;
        count = 0;
      }
      if (count >= LIMIT) {
        const leftS = Math.floor(opened / 1000) + WINDOW / 1000 - Math.floor(now / 1000);
        return refused(leftS * 1000, 0);
      }
      count += 1;
      return accepted(LIMIT - count);
    },
  };
}

function calendarMinute(): ServerLimiter {
  let minute = -1;
  let count = 0;
  return {
    arrive(now) {
      const current = Math.floor(now / WINDOW);
      if (current !== minute) {
        minute = current;
        count = 0;
      }
      if (count >= LIMIT) return refused((current + 1) * WINDOW - now, 0);
      count += 1;
      return accepted(LIMIT - count);
    },
  };
}

function slidingLog(refusalsCount: boolean): ServerLimiter {
  let arrivals: number[] = [];
  return {
    arrive(now) {
      arrivals = arrivals.filter((at) => at > now - WINDOW);
      const ok = arrivals.length < LIMIT;
      const frees = arrivals[arrivals.length - LIMIT] ?? now;
      if (ok || refusalsCount) arrivals.push(now);
      if (ok) return accepted(LIMIT - arrivals.length);
      return { ...refused(frees + WINDOW - now, 0), counted: refusalsCount };
    },
  };
}

function tokenBucket(): ServerLimiter {
  let tokens = LIMIT;
  let filledAt = 0;
  return {
    arrive(now) {
      tokens = Math.min(LIMIT, tokens + (now - filledAt) / PERIOD);
      filledAt = now;
      if (tokens < 1) return refused((1 - tokens) * PERIOD, 0);
      tokens -= 1;
      return accepted(Math.floor(tokens));
    },
  };
}

/** nginx `limit_req rate=20r/m` without a burst: arrivals at least three seconds apart; no headers. */
function leakyBucket(): ServerLimiter {
  let last = Number.NEGATIVE_INFINITY;
  return {
    arrive(now) {
      if (now - last < PERIOD) return refused(last + PERIOD - now, null);
      last = now;
      return accepted(null);
    },
  };
}

/** Two windows: the last one counts for the share of it that still lies within the last minute. */
function weightedCounter(): ServerLimiter {
  let window = -1;
  let current = 0;
  let previous = 0;
  return {
    arrive(now) {
      const index = Math.floor(now / WINDOW);
      if (index !== window) {
        previous = index === window + 1 ? current : 0;
        current = 0;
        window = index;
      }
      const estimate = previous * (1 - (now % WINDOW) / WINDOW) + current;
      if (estimate + 1 > LIMIT) return refused(PERIOD, 0);
      current += 1;
      return accepted(Math.floor(LIMIT - estimate - 1));
    },
  };
}
