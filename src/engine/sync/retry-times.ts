import { ConfigError, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { LOCAL_RETRY_MS } from "../../core/errors/local-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";

const JOB_RETRY = { firstMs: 15_000, maxMs: 900_000 };
/** Back-off of live reads and history, which have no ticks; shorter, because a missed value is lost. */
const FOLLOWER_RETRY = { firstMs: 15_000, maxMs: 120_000 };
/** Pause after a failure that a person must fix (403, 422), unless the token's scope changes. */
const REFUSED_MS = 900_000;
export const SECOND_LOOK_MS = 60_000;
const SECOND_LOOKS = 5;
/** Longest pause after a 429 or 503: a request must be waiting when the service's order ends (long-waits.ts). */
export const ORDERED_BACKOFF_MS = 60_000;

export function jobRetryMs(failure: Failure | null, failures: number, random: () => number): number {
  return (failure && statedMs(failure)) ?? backoffMs(JOB_RETRY, failures, random);
}

export function followerRetryMs(failure: Failure, failures: number, random: () => number): number {
  return statedMs(failure) ?? backoffMs(FOLLOWER_RETRY, failures, random);
}

/** The same after the `refusals`-th refusal in a row that the token's scope does not explain: it may end at any moment. */
export function unexplainedRetryMs(refusals: number): number {
  return refusals <= SECOND_LOOKS ? SECOND_LOOK_MS : REFUSED_MS;
}

function statedMs(failure: Failure): number | null {
  if (failure instanceof Throttled) return Math.min(failure.retryAfterMs ?? ORDERED_BACKOFF_MS, ORDERED_BACKOFF_MS);
  if (failure instanceof ConfigError) return REFUSED_MS;
  if (failure instanceof LocalFailure) return LOCAL_RETRY_MS;
  return null;
}
