/** Seven ways in which a service may count "20 per minute". Times are in milliseconds of the service's clock. */
export interface ServerLimiter {
  arrive(now: number): LimiterVerdict;
}

export interface LimiterVerdict {
  readonly ok: boolean;
  /** The request uses the quota, even if it was refused. */
  readonly counted: boolean;
  /** Whole seconds, rounded down as public services do, so up to one second too short. */
  readonly retryAfterS: number;
  readonly remaining: number | null;
}

const LIMIT = 20;
const WINDOW_MS = 60_000;
const PERIOD = WINDOW_MS / LIMIT;

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

function acceptRequest(remaining: number | null): LimiterVerdict {
  return { ok: true, counted: true, retryAfterS: 0, remaining };
}

function refuseRequest(waitMs: number, remaining: number | null): LimiterVerdict {
  return { ok: false, counted: false, retryAfterS: Math.max(0, Math.floor(waitMs / 1000)), remaining };
}

/** Laravel: the window opens with the first request and lasts 60 s; refusals are not counted. */
function firstHitWindow(): ServerLimiter {
  let windowStart = Number.NEGATIVE_INFINITY;
  let count = 0;
  return {
    arrive(now) {
      if (now >= windowStart + WINDOW_MS) {
        windowStart = now;
        count = 0;
      }
      if (count >= LIMIT) {
        const leftS = Math.floor(windowStart / 1000) + WINDOW_MS / 1000 - Math.floor(now / 1000);
        return refuseRequest(leftS * 1000, 0);
      }
      count += 1;
      return acceptRequest(LIMIT - count);
    },
  };
}

function calendarMinute(): ServerLimiter {
  let minute = -1;
  let count = 0;
  return {
    arrive(now) {
      const currentMinute = Math.floor(now / WINDOW_MS);
      if (currentMinute !== minute) {
        minute = currentMinute;
        count = 0;
      }
      if (count >= LIMIT) return refuseRequest((currentMinute + 1) * WINDOW_MS - now, 0);
      count += 1;
      return acceptRequest(LIMIT - count);
    },
  };
}

function slidingLog(refusalsCount: boolean): ServerLimiter {
  let arrivals: number[] = [];
  return {
    arrive(now) {
      arrivals = arrivals.filter((at) => at > now - WINDOW_MS);
      const ok = arrivals.length < LIMIT;
      const frees = arrivals[arrivals.length - LIMIT] ?? now;
      if (ok || refusalsCount) arrivals.push(now);
      if (ok) return acceptRequest(LIMIT - arrivals.length);
      return { ...refuseRequest(frees + WINDOW_MS - now, 0), counted: refusalsCount };
    },
  };
}

function tokenBucket(): ServerLimiter {
  let tokens = LIMIT;
  let filledAtMs = 0;
  return {
    arrive(now) {
      tokens = Math.min(LIMIT, tokens + (now - filledAtMs) / PERIOD);
      filledAtMs = now;
      if (tokens < 1) return refuseRequest((1 - tokens) * PERIOD, 0);
      tokens -= 1;
      return acceptRequest(Math.floor(tokens));
    },
  };
}

/** nginx `limit_req rate=20r/m` without a burst: arrivals at least three seconds apart; no headers. */
function leakyBucket(): ServerLimiter {
  let lastArrival = Number.NEGATIVE_INFINITY;
  return {
    arrive(now) {
      if (now - lastArrival < PERIOD) return refuseRequest(lastArrival + PERIOD - now, null);
      lastArrival = now;
      return acceptRequest(null);
    },
  };
}

/** Two windows: the last one counts for the share of it that still lies within the last minute. */
function weightedCounter(): ServerLimiter {
  let windowIndex = -1;
  let currentCount = 0;
  let previousCount = 0;
  return {
    arrive(now) {
      const index = Math.floor(now / WINDOW_MS);
      if (index !== windowIndex) {
        previousCount = index === windowIndex + 1 ? currentCount : 0;
        currentCount = 0;
        windowIndex = index;
      }
      const estimate = previousCount * (1 - (now % WINDOW_MS) / WINDOW_MS) + currentCount;
      if (estimate + 1 > LIMIT) return refuseRequest(PERIOD, 0);
      currentCount += 1;
      return acceptRequest(Math.floor(LIMIT - estimate - 1));
    },
  };
}
