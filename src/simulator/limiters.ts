import type { LimitModel, RateLimit } from "./limit-options.ts";

export interface Verdict {
  readonly allowed: boolean;
  readonly remaining: number;
  /** Whole seconds, as the service would say them; only of meaning when refused. */
  readonly retryAfterS: number;
}

/** One counter per key. */
export interface Limiter {
  readonly hit: (key: string, nowMs: number) => Verdict;
}

/** The counter of one key. */
type Counter = (nowMs: number) => Verdict;
type Model = (limit: number, windowMs: number, burst: number) => Counter;

const MODELS: Record<LimitModel, Model> = {
  first_hit_window: firstHitWindow,
  calendar_window: calendarWindow,
  sliding_log: (limit, windowMs) => slidingLog(limit, windowMs, false),
  sliding_log_counting_refusals: (limit, windowMs) => slidingLog(limit, windowMs, true),
  token_bucket: tokenBucket,
  leaky_bucket: leakyBucket,
  weighted_counter: weightedCounter,
};

export function createLimiter({ model, limit, window_s, burst }: RateLimit): Limiter {
  const counters = new Map<string, Counter>();
  return {
    hit(key, nowMs) {
      let counter = counters.get(key);
      if (counter === undefined) {
        counter = MODELS[model](limit, window_s * 1000, burst);
        counters.set(key, counter);
      }
      return counter(nowMs);
    },
  };
}

function allowed(remaining: number): Verdict {
  return { allowed: true, remaining: Math.max(0, Math.floor(remaining)), retryAfterS: 0 };
}

function refused(retryAfterS: number): Verdict {
  return { allowed: false, remaining: 0, retryAfterS };
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/** The window opens at the first hit. The waiting time is counted in whole seconds and may be 1 s short, even 0. */
function firstHitWindow(limit: number, windowMs: number): Counter {
  let openedMs = Number.NEGATIVE_INFINITY;
  let hits = 0;
  return (nowMs) => {
    if (nowMs >= openedMs + windowMs) {
      openedMs = nowMs;
      hits = 0;
    }
    if (hits >= limit)
      return refused(Math.floor(openedMs / 1000) + windowMs / 1000 - Math.floor(nowMs / 1000));
    hits += 1;
    return allowed(limit - hits);
  };
}

function calendarWindow(limit: number, windowMs: number): Counter {
  let window = Number.NaN;
  let hits = 0;
  return (nowMs) => {
    const current = Math.floor(nowMs / windowMs);
    if (current !== window) {
      window = current;
      hits = 0;
    }
    if (hits >= limit) return refused(wholeSeconds((current + 1) * windowMs - nowMs));
    hits += 1;
    return allowed(limit - hits);
  };
}

function slidingLog(limit: number, windowMs: number, countRefusals: boolean): Counter {
  let log: number[] = [];
  return (nowMs) => {
    log = log.filter((atMs) => atMs > nowMs - windowMs);
    if (log.length < limit) {
      log.push(nowMs);
      return allowed(limit - log.length);
    }
    if (countRefusals) log.push(nowMs);
    const frees = log[log.length - limit] ?? nowMs;
    return refused(wholeSeconds(frees + windowMs - nowMs));
  };
}

function tokenBucket(limit: number, windowMs: number): Counter {
  let tokens = limit;
  let filledMs = Number.NaN;
  return (nowMs) => {
    if (!Number.isNaN(filledMs)) tokens = Math.min(limit, tokens + ((nowMs - filledMs) * limit) / windowMs);
    filledMs = nowMs;
    if (tokens < 1) return refused(wholeSeconds(((1 - tokens) * windowMs) / limit));
    tokens -= 1;
    return allowed(tokens);
  };
}

/** As nginx `limit_req` with `nodelay`: one request per windowMs / limit, `burst` of them may come early. */
function leakyBucket(limit: number, windowMs: number, burst: number): Counter {
  let excess = Number.NaN;
  let seenMs = 0;
  return (nowMs) => {
    const after = Number.isNaN(excess) ? 0 : Math.max(0, excess - ((nowMs - seenMs) * limit) / windowMs + 1);
    if (after > burst) return refused(wholeSeconds(((after - burst) * windowMs) / limit));
    excess = after;
    seenMs = nowMs;
    return allowed(burst - after);
  };
}

/** Two calendar windows, the earlier one weighted by what of it still lies in the sliding window. */
function weightedCounter(limit: number, windowMs: number): Counter {
  let window = Number.NaN;
  let current = 0;
  let previous = 0;
  return (nowMs) => {
    const now = Math.floor(nowMs / windowMs);
    if (now !== window) {
      previous = now === window + 1 ? current : 0;
      current = 0;
      window = now;
    }
    const shareLeft = 1 - (nowMs - now * windowMs) / windowMs;
    const weight = previous * shareLeft + current;
    if (weight + 1 > limit) {
      const leftMs = windowMs * shareLeft;
      const fadesMs =
        previous === 0 ? Number.POSITIVE_INFINITY : ((weight + 1 - limit) * windowMs) / previous;
      // Otherwise this window has to end, and then to weigh less itself.
      const afterwardsMs = Math.max(0, 1 - (limit - 1) / current) * windowMs;
      return refused(wholeSeconds(fadesMs <= leftMs ? fadesMs : leftMs + afterwardsMs));
    }
    current += 1;
    return allowed(limit - weight - 1);
  };
}
