import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";

/**
 * Stretches target intervals that exceed the quota: all classes by the same factor, important ones by less, firm ones
 * not at all as long as they leave enough for the others. Pure.
 *
 * 800 tags at 60 s need 2 requests in each slot of 3 s, so they are read every 126 s, 2.1 times the target. If half of
 * them have importance 2, those are read every 107 s (1.78) and the others every 153 s (2.55).
 */
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
  /** False when the firm classes alone ask for too much and have to stretch as well. */
  readonly firmKept: boolean;
}

/** Share of the slots that a plan may fill, 19.4 of 20 a minute; the rest takes up what integer slots and jitter cost. */
const PLANNABLE_SHARE = 0.97;

/** Share of the slots that the firm classes may take together, 16 of 20 a minute, so that the others never starve. */
const FIRM_SHARE = 0.8;

/**
 * `share`: part of the slots for live reads, 0.77 if history takes 4 of 20 requests a minute. `replyMs`: time to a
 * response; with 1,000 ms a 60 s tag is requested every 59 s.
 */
export function overloadFactor(
  wishes: readonly ClassDemand[],
  slotMs: number,
  size: number,
  share = PLANNABLE_SHARE,
  replyMs = 0,
): Overload {
  const demandAt = (factorOf: (wish: ClassDemand) => number) =>
    wishes.reduce((sum, wish) => sum + slotsPerSlot(wish, factorOf(wish), slotMs, size, replyMs), 0);
  const demand = demandAt(() => 1);
  const firm = wishes.filter((wish) => wish.firm);
  const firmDemand = firm.reduce((sum, wish) => sum + slotsPerSlot(wish, 1, slotMs, size, replyMs), 0);
  const firmKept = firmDemand <= Math.min(FIRM_SHARE, share);
  const factorOf = (wish: ClassDemand, scale: number) =>
    wish.firm && firmKept ? 1 : 1 + (scale - 1) / wish.importance;
  const scale = demand <= share ? 1 : smallestScale((s) => demandAt((wish) => factorOf(wish, s)), share);
  return {
    demand,
    factors: new Map(wishes.map((wish) => [wish.name, factorOf(wish, scale)])),
    firmKept,
  };
}

/**
 * Requests per slot, every place filled, with the interval rounded down to whole slots as the planner must: 400 tags
 * every 60 s, replies of 1 s, slots of 3 s, so every 19 slots, 20 tags a request: 400 / (19 × 20) = 1.05.
 */
export function slotsPerSlot(wish: ClassDemand, factor: number, slotMs: number, size: number, replyMs = 0): number {
  const period = Math.max(1, Math.floor((wish.everyMs * factor - replyMs) / slotMs));
  return wish.tags / (period * size);
}

/** The factor at which the demand, in requests per slot, is within the share; it falls as the factor grows. */
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
 * The interval in milliseconds of a tag that keeps failing: doubled from the third null in a row on, up to ten times.
 * One of 60 s is read after 60, 60, 120, 240, 480, 600 s. A gateway that is offline answers nothing, so its tags are
 * read a tenth as often at once, every 600 s.
 */
export function backedOff(intervalMs: number, nulls: number, gatewayOffline: boolean): number {
  if (gatewayOffline) return intervalMs * 10;
  return nulls < 3 ? intervalMs : intervalMs * Math.min(10, 2 ** (nulls - 2));
}

/** How the slots of the quota are divided between live reads and history. Pure; the worker and `plenum plan` share it. */
export interface FollowedHistory {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  /** Milliseconds from one fetch of closed buckets to the next, e.g. 600,000; infinite for what is not followed. */
  readonly everyMs: number;
}

/** Share of the requests that live reads keep at least, however much history is asked for: 10 of 20 a minute. */
const LIVE_SHARE_MIN = 0.5;

/**
 * Requests per minute that it takes to keep these series complete: one for `size` tags, whatever the range. 45 tags at
 * 5 min, fetched every 10 min, 20 tags a request: 3 requests in 10 min, 0.3 a minute.
 */
export function followingPerMinute(followed: readonly FollowedHistory[], size: number): number {
  return followed.reduce((sum, { tags, everyMs, resolution, total }) => {
    // A total is one request per bucket, and nothing is new before a bucket has closed.
    const intervalMs = total ? BUCKET_MS[resolution] : Math.max(everyMs, BUCKET_MS[resolution]);
    return Number.isFinite(intervalMs) ? sum + (Math.ceil(tags / size) * 60_000) / intervalMs : sum;
  }, 0);
}

/**
 * Requests per minute that learning whether tags have a log has at least, while there is anything to learn: what the
 * live reads cannot plan with. Of 20 requests a minute 0.6, which is 720 tags an hour; mostly it is much more.
 */
export function learningPerMinute(tags: number, perMinute: number): number {
  return tags === 0 ? 0 : (1 - PLANNABLE_SHARE) * perMinute;
}

/**
 * Share of the polls' requests that live reads may plan with. History with 4 of 20 requests a minute leaves 0.97 - 0.2 =
 * 0.77; with 15 it gets no more than leaves them 0.5. Where history is counted apart, 0.97.
 */
export function liveQuotaShare(perMinute: number, historyPerMinute: number, shared: boolean): number {
  if (!shared) return PLANNABLE_SHARE;
  const history = Math.min(PLANNABLE_SHARE - LIVE_SHARE_MIN, historyPerMinute / Math.max(0.1, perMinute));
  return PLANNABLE_SHARE - history;
}

/** Requests per minute that history needs: live reads share its quota and plan with the remainder. */
export interface HistoryDemand {
  /** Requests a minute to follow the configured history; tags count as soon as they are known to have a log. */
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
