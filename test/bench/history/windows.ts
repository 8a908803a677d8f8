import { INITIAL_SIZE, nextSize, sizeAfterFailure, sizeAfterReply } from "#src/engine/sync/history/request-size.ts";

export const VALUES = 3_000 * 365 * 288;
const TAGS_PER_REQUEST = 20;
const toTags = (values: number) => Math.max(TAGS_PER_REQUEST, Math.floor(values / TAGS_PER_REQUEST) * TAGS_PER_REQUEST);

/** Requests, failed ones included, until all values are fetched from a service that answers at most `limit` at once. */
export function learnedRequests(limit: number, most = 2_000_000): number {
  let sizeWindow = INITIAL_SIZE;
  let remainingValues = VALUES;
  let requests = 0;
  while (remainingValues > 0) {
    const values = toTags(nextSize(sizeWindow, { valuesMax: most }));
    requests++;
    if (values > limit) {
      sizeWindow = sizeAfterFailure(sizeWindow, values);
    } else {
      sizeWindow = sizeAfterReply(sizeWindow, values, { valuesMax: most });
      remainingValues -= values;
    }
  }
  return requests;
}

export function fixedRequests(values: number, limit: number): number {
  return values > limit ? Number.POSITIVE_INFINITY : Math.ceil(VALUES / values);
}

export function oracleRequests(limit: number): number {
  return Math.ceil(VALUES / toTags(limit));
}

export const LIMITS: readonly number[] = [6_000, 20_000, 50_000, 150_000, 500_000];
export const WINDOW_GOAL = 1.05;
