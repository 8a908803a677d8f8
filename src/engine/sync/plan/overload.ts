import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";

export interface ReadClassDemand {
  readonly name: string;
  readonly tags: number;
  readonly everyMs: number;
  readonly firm: boolean;
  /** During an overload, intervals of importance 2 are extended half as much as intervals of importance 1. */
  readonly importance: number;
  /** True if spare requests read the class more often than its interval demands (option `fresher`). */
  readonly fresher: boolean;
}

export type QuotaOverload = ReturnType<typeof computeQuotaOverload>;

/** Share of the quota to plan with: 19.4 of 20 requests a minute; the rest covers integer slots and jitter. */
const PLANNABLE_QUOTA_SHARE = 0.97;
/** Delay of a request to allow for while every request slot is used: a quarter of a slot. */
const STRETCHED_INTERVAL_JITTER_SLOTS = 0.25;
/** Minimum relative change of the demand or of an overload factor before Plenum changes extended intervals. */
const STRETCH_CHANGE_MIN = 0.05;
/** Maximum quota share of all classes with `firm: true`: 16 of 20 requests a minute. Other classes get the rest. */
const MAX_FIRM_CLASSES_SHARE = 0.8;

/**
 * Extends the intervals of read classes until their requests fit `liveQuotaShare` of the quota: at 20 requests a minute
 * for 20 tags each, 800 tags of 60 s are read every 127 s. Extended intervals last until the demand is 5 % below the
 * share, because each change of intervals moves the readings of all tags.
 */
export function computeQuotaOverload(
  classes: readonly ReadClassDemand[],
  slotMs: number,
  tagsPerRequest: number,
  liveQuotaShare = PLANNABLE_QUOTA_SHARE,
  expectedReplyMs = 0,
  factorsBefore: ReadonlyMap<string, number> = new Map(),
) {
  const demandOf = (readClass: ReadClassDemand, factor: number) =>
    requestsPerSlot(readClass, factor, slotMs, tagsPerRequest, expectedReplyMs);
  const sumDemand = (summed: readonly ReadClassDemand[], factorOf: (readClass: ReadClassDemand) => number) =>
    summed.reduce((sum, readClass) => sum + demandOf(readClass, factorOf(readClass)), 0);
  const totalDemand = sumDemand(classes, () => 1);
  const firmClasses = classes.filter((readClass) => readClass.firm);
  const areFirmIntervalsKept = sumDemand(firmClasses, () => 1) <= Math.min(MAX_FIRM_CLASSES_SHARE, liveQuotaShare);
  const classFactor = (overloadScale: number) => (readClass: ReadClassDemand) =>
    readClass.firm && areFirmIntervalsKept ? 1 : 1 + (overloadScale - 1) / readClass.importance;
  const wasStretched = factorsBefore.values().some((factor) => factor > 1);
  const fitsQuota = totalDemand <= (wasStretched ? liveQuotaShare * (1 - STRETCH_CHANGE_MIN) : liveQuotaShare);
  const overloadScale = fitsQuota
    ? 1
    : findSmallestScale((candidate) => sumDemand(classes, classFactor(candidate)), liveQuotaShare);
  const factors = new Map(classes.map((readClass) => [readClass.name, classFactor(overloadScale)(readClass)]));
  return { demand: totalDemand, factors: keepSimilarFactors(factorsBefore, factors) };
}

/**
 * Share of an extended interval after which a tag may be read: 0.5 for one of 60 s extended to 120 s, so that values
 * are never less than 60 s apart. Infinite at a factor of 1: the tag has a fixed time.
 */
export function earliestStretchedReadAge(factor: number): number {
  return factor > 1 ? 1 / factor : Number.POSITIVE_INFINITY;
}

/** Keeps earlier overload factors that still suffice, so that promised ages of values do not change every minute. */
function keepSimilarFactors(factorsBefore: ReadonlyMap<string, number>, neededFactors: ReadonlyMap<string, number>) {
  return new Map(
    [...neededFactors].map(([name, factor]) => {
      const factorBefore = factorsBefore.get(name) ?? 1;
      const isSimilar = factor > 1 && factorBefore >= factor && factorBefore <= factor * (1 + STRETCH_CHANGE_MIN);
      return [name, isSimilar ? factorBefore : factor];
    }),
  );
}

/**
 * Requests of a class per slot: 400 tags every 60 s need 1 request of 20 tags per slot of 3 s. Tags of classes with
 * `fresher` or a longer interval have no fixed times: they are read after whole slots, so their interval is shorter.
 */
export function requestsPerSlot(
  { tags, everyMs, fresher }: ReadClassDemand,
  overloadFactor: number,
  slotMs: number,
  tagsPerRequest: number,
  expectedReplyMs = 0,
): number {
  const slotsPerInterval = (everyMs * overloadFactor) / slotMs;
  const wholeSlots = Math.floor(
    slotsPerInterval - expectedReplyMs / slotMs - (overloadFactor > 1 ? STRETCHED_INTERVAL_JITTER_SLOTS : 0),
  );
  return tags / (Math.max(1, fresher || overloadFactor > 1 ? wholeSlots : slotsPerInterval) * tagsPerRequest);
}

function findSmallestScale(demandAt: (scale: number) => number, quotaShare: number): number {
  let highScale = 2;
  while (demandAt(highScale) > quotaShare && highScale < 1e6) highScale *= 2;
  return findSmallestFit(1, highScale, 40, (scale) => demandAt(scale) <= quotaShare);
}

export function findSmallestFit(
  lowerBound: number,
  upperBound: number,
  remainingSteps: number,
  fits: (middle: number) => boolean,
): number {
  const midpoint = (lowerBound + upperBound) / 2;
  if (remainingSteps === 0) return upperBound;
  return fits(midpoint)
    ? findSmallestFit(lowerBound, midpoint, remainingSteps - 1, fits)
    : findSmallestFit(midpoint, upperBound, remainingSteps - 1, fits);
}

/** Doubles a tag's interval from the third null on: 60, 60, 120 … 600 s; tenfold at once behind an offline gateway. */
export function backOffInterval(intervalMs: number, nullCount: number, gatewayOffline: boolean): number {
  if (gatewayOffline) return intervalMs * 10;
  return nullCount < 3 ? intervalMs : intervalMs * Math.min(10, 2 ** (nullCount - 2));
}

export interface FollowedHistory {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  readonly everyMs: number;
}

const LIVE_SHARE_MIN = 0.5;

/** Requests for recent history per minute: 45 tags every 10 minutes, 20 in a request, need 0.3 requests a minute. */
export function historyRequestsPerMinute(histories: readonly FollowedHistory[], tagsPerRequest: number): number {
  return histories.reduce((sum, { tags, everyMs, resolution, total }) => {
    // A total takes one request per bucket, and a bucket is requested only after the bucket has closed.
    const requestIntervalMs = total ? BUCKET_MS[resolution] : Math.max(everyMs, BUCKET_MS[resolution]);
    // A series that only `plenum backfill` requested has an infinite interval and adds 0.
    return sum + (Math.ceil(tags / tagsPerRequest) * 60_000) / requestIntervalMs;
  }, 0);
}

/** Minimum requests per minute for finding tags that have a history: 0.6 of 20, which checks 720 tags an hour. */
export function logDiscoveryPerMinute(tagCount: number, perMinute: number): number {
  return tagCount === 0 ? 0 : (1 - PLANNABLE_QUOTA_SHARE) * perMinute;
}

/** Share of the quota for live reads: the plannable 0.97 minus the share of history, but at least 0.5. */
export function liveQuotaShare(perMinute: number, historyPerMinute: number, isBucketShared: boolean): number {
  if (!isBucketShared) return PLANNABLE_QUOTA_SHARE;
  const historyShare = Math.min(PLANNABLE_QUOTA_SHARE - LIVE_SHARE_MIN, historyPerMinute / Math.max(0.1, perMinute));
  return PLANNABLE_QUOTA_SHARE - historyShare;
}

export type HistoryDemand = ReturnType<typeof createHistoryDemand>;

export function createHistoryDemand() {
  let historyRequestRate = 0;
  return {
    requestsPerMinute: () => historyRequestRate,
    setRequestsPerMinute(perMinute: number): void {
      historyRequestRate = perMinute;
    },
  };
}
