import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";

export interface ClassDemand {
  readonly name: string;
  /** A tag that is read less often because it keeps failing counts as less than one. */
  readonly tags: number;
  readonly everyMs: number;
  readonly firm: boolean;
  /** 1 = ordinary; a class of importance 2 stretches half as much. */
  readonly importance: number;
}

export interface Overload {
  /** Requests per slot that the target intervals need; more than 1 exceeds the quota. */
  readonly demand: number;
  /** Planned interval divided by target interval, by class name; 1 if the target is met. */
  readonly factors: ReadonlyMap<string, number>;
}

/** Share of the slots that a plan may fill, 19.4 of 20 a minute; the rest covers integer slots and jitter. */
const PLANNABLE_SHARE = 0.97;
/** Share of the slots that the firm classes may take together, 16 of 20 a minute, so that the others never starve. */
const FIRM_SHARE = 0.8;

/**
 * Stretches target intervals that exceed the quota: all classes by the same factor, important ones by less, firm ones only
 * if they take too much by themselves. Pure. 800 tags at 60 s need 2 requests in each slot of 3 s, so they are read every
 * 126 s, 2.1 times the target. If half of them have importance 2, those are read every 107 s (1.78) and the others every
 * 153 s (2.55).
 *
 * `share`: part of the slots for live reads, 0.77 if history takes 4 of 20 requests a minute. `replyMs`: time to a
 * response; with 1,000 ms a 60 s tag is requested every 59 s.
 */
export function overloadFactor(
  classes: readonly ClassDemand[],
  slotMs: number,
  size: number,
  share = PLANNABLE_SHARE,
  replyMs = 0,
): Overload {
  const demandOf = (some: readonly ClassDemand[], factorOf: (each: ClassDemand) => number) =>
    some.reduce((sum, each) => sum + slotsPerSlot(each, factorOf(each), slotMs, size, replyMs), 0);
  const demand = demandOf(classes, () => 1);
  const firm = classes.filter((each) => each.firm);
  const isFirmKept = demandOf(firm, () => 1) <= Math.min(FIRM_SHARE, share);
  const factorAt = (scale: number) => (each: ClassDemand) =>
    each.firm && isFirmKept ? 1 : 1 + (scale - 1) / each.importance;
  const scale = demand <= share ? 1 : smallestScale((candidate) => demandOf(classes, factorAt(candidate)), share);
  return { demand, factors: new Map(classes.map((each) => [each.name, factorAt(scale)(each)])) };
}

/**
 * Requests per slot, each with `size` tags, with the interval rounded down to whole slots as the planner must: 400 tags
 * every 60 s, replies of 1 s, slots of 3 s, so every 19 slots, 20 tags a request: 400 / (19 × 20) = 1.05.
 */
export function slotsPerSlot(
  { tags, everyMs }: ClassDemand,
  factor: number,
  slotMs: number,
  size: number,
  replyMs = 0,
): number {
  return tags / (Math.max(1, Math.floor((everyMs * factor - replyMs) / slotMs)) * size);
}

/** The smallest scale at which the demand, in requests per slot, is within the share. */
function smallestScale(demandAt: (scale: number) => number, share: number): number {
  let low = 1;
  let high = 2;
  while (demandAt(high) > share && high < 1e6) high *= 2;
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2;
    if (demandAt(middle) > share) low = middle;
    else high = middle;
  }
  return high;
}

/**
 * Interval in milliseconds of a failing tag: doubled from the third null in a row on, up to ten times. A 60 s tag is read
 * after 60, 60, 120, 240, 480, 600 s. Tags of an offline gateway are read a tenth as often at once, every 600 s.
 */
export function backedOff(intervalMs: number, nulls: number, gatewayOffline: boolean): number {
  if (gatewayOffline) return intervalMs * 10;
  return nulls < 3 ? intervalMs : intervalMs * Math.min(10, 2 ** (nulls - 2));
}

/** Series of one class of history. */
export interface FollowedHistory {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  /** Milliseconds from one fetch of closed buckets to the next, e.g. 600,000; infinite if not followed. */
  readonly everyMs: number;
}

/** Least share of the requests for live reads, however much history is configured: 10 of 20 a minute. */
const LIVE_SHARE_MIN = 0.5;

/**
 * Requests per minute that keep these series complete: one for `size` tags, whatever the range. 45 tags at 5 min, fetched
 * every 10 min, 20 tags a request: 3 requests in 10 min, 0.3 a minute.
 */
export function followingPerMinute(followed: readonly FollowedHistory[], size: number): number {
  return followed.reduce((sum, { tags, everyMs, resolution, total }) => {
    // A total takes one request per bucket, and a bucket is new only once it has closed.
    const intervalMs = total ? BUCKET_MS[resolution] : Math.max(everyMs, BUCKET_MS[resolution]);
    return Number.isFinite(intervalMs) ? sum + (Math.ceil(tags / size) * 60_000) / intervalMs : sum;
  }, 0);
}

/**
 * Least requests per minute that learn which tags have a log: what live reads cannot plan with. Of 20 requests a minute
 * 0.6, which is 720 tags an hour; usually much more.
 */
export function learningPerMinute(tags: number, perMinute: number): number {
  return tags === 0 ? 0 : (1 - PLANNABLE_SHARE) * perMinute;
}

/**
 * Share of the polls' requests that live reads may plan with. History with 4 of 20 requests a minute leaves 0.97 - 0.2 =
 * 0.77; with 15 it leaves 0.5. If history has a quota of its own, 0.97.
 */
export function liveQuotaShare(perMinute: number, historyPerMinute: number, shared: boolean): number {
  if (!shared) return PLANNABLE_SHARE;
  const history = Math.min(PLANNABLE_SHARE - LIVE_SHARE_MIN, historyPerMinute / Math.max(0.1, perMinute));
  return PLANNABLE_SHARE - history;
}

/** Requests per minute that history needs: live reads share its quota and plan with the remainder. */
export interface HistoryDemand {
  /** Requests per minute to follow the configured history; tags count as soon as they are known to have a log. */
  followingPerMinute(): number;
  setFollowing(perMinute: number): void;
}

export function createDemand(): HistoryDemand {
  let following = 0;
  return {
    followingPerMinute: () => following,
    setFollowing(perMinute) {
      following = perMinute;
    },
  };
}
