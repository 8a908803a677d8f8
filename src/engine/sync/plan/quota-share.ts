import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import { PLANNABLE_SHARE } from "./overload.ts";

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
