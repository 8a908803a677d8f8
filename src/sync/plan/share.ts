import { BUCKET_MS, type Resolution } from "../../building.ts";
import { PLANNABLE_SHARE } from "./stretch.ts";

/** How the slots of the quota are divided between live reads and history. Pure; the worker and `plenum plan` share it. */
export interface FollowedHistory {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  /** How often closed buckets are fetched, milliseconds; infinite for what is not followed. */
  readonly everyMs: number;
}

/** Live values keep at least this share of what can be planned, however much history is asked for. */
const LIVE_SHARE_MIN = 0.5;

/** Requests per minute that it takes to keep these series complete: one for `size` tags, whatever the range. */
export function followingPerMinute(followed: readonly FollowedHistory[], size: number): number {
  return followed.reduce((sum, { tags, everyMs, resolution, total }) => {
    // A total is one request per bucket, and nothing is new before a bucket has closed.
    const intervalMs = total ? BUCKET_MS[resolution] : Math.max(everyMs, BUCKET_MS[resolution]);
    return Number.isFinite(intervalMs) ? sum + (Math.ceil(tags / size) * 60_000) / intervalMs : sum;
  }, 0);
}

/**
 * Requests per minute to learn of so many tags whether they have a log, where live reads leave nothing over: one of 20
 * tags a minute, 1,200 tags an hour. Where they do, learning takes what is left.
 */
export function learningPerMinute(tags: number): number {
  return tags === 0 ? 0 : 1;
}

/** The share of the polls' requests that live reads may plan with. Where history is counted apart, all of it. */
export function liveShare(perMinute: number, historyPerMinute: number, shared: boolean): number {
  if (!shared) return PLANNABLE_SHARE;
  const history = Math.min(PLANNABLE_SHARE - LIVE_SHARE_MIN, historyPerMinute / Math.max(0.1, perMinute));
  return PLANNABLE_SHARE - history;
}
