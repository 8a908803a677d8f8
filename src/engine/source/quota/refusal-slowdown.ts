const SLOWDOWN_MARGIN_MIN_MS = 250;
const SLOWDOWN_MARGIN_MAX_MS = 4_000;
const SLOWDOWN_MARGIN_DECAY = 0.8;
const SLOWDOWN_MARGIN_DECAY_EVERY_MS = 3 * 3_600_000;
const REPEATED_REFUSAL_WITHIN_MS = 30 * 60_000;
const FIRST_RATE_SLOWDOWN_MS = 3_600_000;
const REPEATED_RATE_SLOWDOWN_MS = 24 * 3_600_000;
/** If the service refuses a request while at least this many slots are unused, it limits the spacing of requests. */
const UNUSED_REQUEST_SLOTS_MIN = 2;
const RATE_CUT_FACTOR = 2 / 3;
const REQUESTS_PER_WINDOW_MIN = 2;
const REQUEST_RATE_RAISE_INTERVAL_MS = 10 * 60_000;

/** Slows requests down after refusals that our own count of requests does not explain. */
export function createRefusalSlowdown(limit: number) {
  let lastRefusalMs = Number.NEGATIVE_INFINITY;
  let slowdown: "none" | "one slot less" | "spacing" = "none";
  let slowdownEndMs = Number.NEGATIVE_INFINITY;
  let slowdownCount = 0;
  let windowMarginMs = 0;
  let marginUpdatedMs = 0;
  let rateLimit = limit;
  let rateUpdatedMs = 0;
  const maxRequestsPerWindow = () => (slowdown === "none" ? limit : limit - 1);
  const applySlowdownRecovery = (nowMs: number) => {
    if (slowdown !== "none" && nowMs >= slowdownEndMs) {
      slowdown = "none";
      windowMarginMs = 0;
    }
    while (slowdown !== "spacing" && windowMarginMs > 0 && nowMs - marginUpdatedMs >= SLOWDOWN_MARGIN_DECAY_EVERY_MS) {
      marginUpdatedMs += SLOWDOWN_MARGIN_DECAY_EVERY_MS;
      windowMarginMs *= SLOWDOWN_MARGIN_DECAY;
    }
    while (rateLimit < limit && nowMs - rateUpdatedMs >= REQUEST_RATE_RAISE_INTERVAL_MS) {
      rateUpdatedMs += REQUEST_RATE_RAISE_INTERVAL_MS;
      rateLimit = Math.min(limit, rateLimit + 1);
    }
  };
  return {
    noteRefusal(nowMs: number, usedSlots: number, isCountComplete: boolean): void {
      applySlowdownRecovery(nowMs);
      if (rateLimit < limit || nowMs - lastRefusalMs < REPEATED_REFUSAL_WITHIN_MS) {
        rateLimit = Math.max(REQUESTS_PER_WINDOW_MIN, Math.min(rateLimit, maxRequestsPerWindow()) * RATE_CUT_FACTOR);
      } else {
        const limitsRequestSpacing = isCountComplete && usedSlots <= limit - UNUSED_REQUEST_SLOTS_MIN;
        slowdown = limitsRequestSpacing || slowdown === "spacing" ? "spacing" : "one slot less";
        slowdownEndMs = nowMs + (slowdownCount === 0 ? FIRST_RATE_SLOWDOWN_MS : REPEATED_RATE_SLOWDOWN_MS);
        slowdownCount += 1;
        windowMarginMs = limitsRequestSpacing
          ? SLOWDOWN_MARGIN_MAX_MS
          : Math.max(SLOWDOWN_MARGIN_MIN_MS, windowMarginMs * 2);
        windowMarginMs = Math.min(SLOWDOWN_MARGIN_MAX_MS, windowMarginMs);
      }
      lastRefusalMs = nowMs;
      marginUpdatedMs = nowMs;
      rateUpdatedMs = nowMs;
    },
    currentLimits(nowMs: number) {
      applySlowdownRecovery(nowMs);
      return {
        marginMs: windowMarginMs,
        perWindow: Math.max(1, Math.min(maxRequestsPerWindow(), rateLimit)),
        isSlowed: slowdown !== "none" || rateLimit < limit,
        limitsSpacing: slowdown === "spacing",
        suggestsOtherClient: rateLimit < limit,
      };
    },
  };
}

export interface OtherClientUse {
  /** `remaining`: the service counts more requests than ours. `refusals`: our requests do not explain the refusals. */
  readonly evidence: "remaining" | "refusals";
  /** Requests of other clients in one window; null if the service does not state a number. */
  readonly perWindow: number | null;
  readonly sinceMs: number;
}

/** Number of replies that must count more requests than ours before another client is reported. */
const EXCESS_REQUEST_COUNTS_MIN = 3;
const EXCESS_REQUESTS_TIME_MIN_MS = 120_000;
const OTHER_CLIENT_LIFETIME_MS = 30 * 60_000;

export function createOtherClientWatch(windowMs: number, reportUse: (use: OtherClientUse) => void) {
  let excessCounts: { readonly countedAtMs: number; readonly requests: number }[] = [];
  const highestExcessRequests = (counts: typeof excessCounts) => Math.max(0, ...counts.map(({ requests }) => requests));
  let otherUse: OtherClientUse | null = null;
  let lastConfirmedMs = Number.NEGATIVE_INFINITY;
  const currentOtherClientUse = (now: number) => (now - lastConfirmedMs < OTHER_CLIENT_LIFETIME_MS ? otherUse : null);
  const confirmOtherClientUse = (nowMs: number, wallMs: number, evidence: OtherClientUse["evidence"]) => {
    const knownOtherClientUse = currentOtherClientUse(nowMs);
    otherUse = {
      evidence: knownOtherClientUse?.evidence === "remaining" ? "remaining" : evidence,
      perWindow: highestExcessRequests(excessCounts) || null,
      sinceMs: knownOtherClientUse?.sinceMs ?? wallMs,
    };
    lastConfirmedMs = nowMs;
    if (knownOtherClientUse === null) reportUse(otherUse);
  };
  return {
    noteExcess(nowMs: number, wallMs: number, requests: number): void {
      excessCounts = excessCounts.filter(({ countedAtMs }) => nowMs - countedAtMs < OTHER_CLIENT_LIFETIME_MS);
      if (requests <= 0) return;
      excessCounts.push({ countedAtMs: nowMs, requests });
      const firstExcessAtMs = excessCounts[0]?.countedAtMs ?? nowMs;
      if (excessCounts.length >= EXCESS_REQUEST_COUNTS_MIN && nowMs - firstExcessAtMs >= EXCESS_REQUESTS_TIME_MIN_MS)
        confirmOtherClientUse(nowMs, wallMs, "remaining");
    },
    noteRefusals: (nowMs: number, wallMs: number) => confirmOtherClientUse(nowMs, wallMs, "refusals"),
    slotsUsedByOthers(nowMs: number): number {
      return highestExcessRequests(excessCounts.filter(({ countedAtMs }) => nowMs - countedAtMs < windowMs));
    },
    currentUse: currentOtherClientUse,
  };
}
