import type { RateLimitOptions } from "./options.ts";

export interface LimitVerdict {
  readonly allowed: boolean;
  readonly remainingCount: number;
  /** Waiting time in whole seconds that the reply to a refused request states. */
  readonly retryAfterS: number;
}

type RequestCounter = (nowMs: number) => LimitVerdict;
type RequestCounterModel = (limit: number, windowMs: number, burst: number) => RequestCounter;

const REQUEST_COUNTER_MODELS: Record<RateLimitOptions["model"], RequestCounterModel> = {
  first_hit_window: (limit, windowMs) => countInFixedWindow(limit, windowMs, "first-hit"),
  calendar_window: (limit, windowMs) => countInFixedWindow(limit, windowMs, "calendar"),
  sliding_log: (limit, windowMs) => countInSlidingLog(limit, windowMs, false),
  sliding_log_counting_refusals: (limit, windowMs) => countInSlidingLog(limit, windowMs, true),
  token_bucket: countWithTokenBucket,
  leaky_bucket: countWithLeakyBucket,
  weighted_counter: countInWeightedWindows,
};

export function createRateLimiter({ model, limit, window_s, burst }: RateLimitOptions) {
  const requestCounterByKey = new Map<string, RequestCounter>();
  return (key: string, nowMs: number): LimitVerdict => {
    const requestCounter = requestCounterByKey.get(key) ?? REQUEST_COUNTER_MODELS[model](limit, window_s * 1000, burst);
    requestCounterByKey.set(key, requestCounter);
    return requestCounter(nowMs);
  };
}

function allowRequest(remaining: number): LimitVerdict {
  return { allowed: true, remainingCount: Math.max(0, Math.floor(remaining)), retryAfterS: 0 };
}

const refuseRequest = (retryAfterS: number): LimitVerdict => ({ allowed: false, remainingCount: 0, retryAfterS });

const roundUpToSeconds = (ms: number): number => Math.max(1, Math.ceil(ms / 1000));

/** Counts requests per window. With `first-hit`, the first request starts the window, as in Laravel. */
function countInFixedWindow(limit: number, windowMs: number, windowStart: "first-hit" | "calendar"): RequestCounter {
  let windowOpenedMs = Number.NEGATIVE_INFINITY;
  let requestsInWindow = 0;
  return (nowMs) => {
    if (nowMs >= windowOpenedMs + windowMs) {
      windowOpenedMs = windowStart === "first-hit" ? nowMs : Math.floor(nowMs / windowMs) * windowMs;
      requestsInWindow = 0;
    }
    requestsInWindow += 1;
    if (requestsInWindow <= limit) return allowRequest(limit - requestsInWindow);
    if (windowStart === "calendar") return refuseRequest(roundUpToSeconds(windowOpenedMs + windowMs - nowMs));
    return refuseRequest(Math.floor(windowOpenedMs / 1000) + windowMs / 1000 - Math.floor(nowMs / 1000));
  };
}

function countInSlidingLog(limit: number, windowMs: number, shouldCountRefusals: boolean): RequestCounter {
  let requestTimesMs: number[] = [];
  return (nowMs) => {
    requestTimesMs = requestTimesMs.filter((atMs) => atMs > nowMs - windowMs);
    if (requestTimesMs.length < limit) {
      requestTimesMs.push(nowMs);
      return allowRequest(limit - requestTimesMs.length);
    }
    if (shouldCountRefusals) requestTimesMs.push(nowMs);
    const oldestCountedRequestMs = requestTimesMs[requestTimesMs.length - limit] ?? nowMs;
    return refuseRequest(roundUpToSeconds(oldestCountedRequestMs + windowMs - nowMs));
  };
}

function countWithTokenBucket(limit: number, windowMs: number): RequestCounter {
  let tokens = limit;
  let lastRefillMs = Number.NEGATIVE_INFINITY;
  return (nowMs) => {
    tokens = Math.min(limit, tokens + ((nowMs - lastRefillMs) * limit) / windowMs);
    lastRefillMs = nowMs;
    if (tokens < 1) return refuseRequest(roundUpToSeconds(((1 - tokens) * windowMs) / limit));
    tokens -= 1;
    return allowRequest(tokens);
  };
}

/** Counts requests like nginx with `limit_req` and `nodelay`. */
function countWithLeakyBucket(limit: number, windowMs: number, burst: number): RequestCounter {
  let excessRequests = Number.NEGATIVE_INFINITY;
  let lastRequestMs = 0;
  return (nowMs) => {
    const newExcess = Math.max(0, excessRequests - ((nowMs - lastRequestMs) * limit) / windowMs + 1);
    if (newExcess > burst) return refuseRequest(roundUpToSeconds(((newExcess - burst) * windowMs) / limit));
    excessRequests = newExcess;
    lastRequestMs = nowMs;
    return allowRequest(burst - newExcess);
  };
}

/** Counts this calendar window's requests, plus the previous window's times the remaining fraction of this window. */
function countInWeightedWindows(limit: number, windowMs: number): RequestCounter {
  let windowNumber = Number.NaN;
  let currentWindowCount = 0;
  let previousWindowCount = 0;
  return (nowMs) => {
    const currentWindowNumber = Math.floor(nowMs / windowMs);
    if (currentWindowNumber !== windowNumber) {
      previousWindowCount = currentWindowNumber === windowNumber + 1 ? currentWindowCount : 0;
      currentWindowCount = 0;
      windowNumber = currentWindowNumber;
    }
    const remainingWindowFraction = 1 - (nowMs - currentWindowNumber * windowMs) / windowMs;
    const weightedRequestCount = previousWindowCount * remainingWindowFraction + currentWindowCount;
    if (weightedRequestCount + 1 > limit) {
      const windowLeftMs = windowMs * remainingWindowFraction;
      const waitMs = ((weightedRequestCount + 1 - limit) * windowMs) / previousWindowCount;
      const waitAfterWindowMs = Math.max(0, 1 - (limit - 1) / currentWindowCount) * windowMs;
      return refuseRequest(roundUpToSeconds(waitMs <= windowLeftMs ? waitMs : windowLeftMs + waitAfterWindowMs));
    }
    currentWindowCount += 1;
    return allowRequest(limit - weightedRequestCount - 1);
  };
}
