import { ConfigError, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { MACHINE_RETRY_MS } from "../../core/errors/local-machine-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";

const JOB_RETRY_BACKOFF = { firstMs: 15_000, maxMs: 900_000 };
/** Live reads and history are retried sooner than other jobs, because a missed value is lost. */
const CONTINUOUS_JOB_BACKOFF = { firstMs: 15_000, maxMs: 120_000 };
/** After a failure that a person must fix (403, 422), the job waits for 15 minutes or a change of the token's scope. */
const REFUSED_JOB_RETRY_MS = 900_000;
/** A refusal although the token has the permission may be a short fault of one endpoint: five retries, a minute apart. */
const UNEXPLAINED_RETRY_MS = 60_000;
const MAX_UNEXPLAINED_RETRIES = 5;
/** After a 429 or 503 the job pauses a minute at most, so that its request is queued when the service's pause ends. */
export const MAX_RETRY_AFTER_MS = 60_000;

export function jobRetryPauseMs(failure: Failure | null, failures: number, random: () => number): number {
  return (failure && fixedRetryPauseMs(failure)) ?? backoffMs(JOB_RETRY_BACKOFF, failures, random);
}

export function continuousRetryMs(failure: Failure, failures: number, random: () => number): number {
  return fixedRetryPauseMs(failure) ?? backoffMs(CONTINUOUS_JOB_BACKOFF, failures, random);
}

export function unexplainedRefusalRetryMs(refusals: number): number {
  return refusals <= MAX_UNEXPLAINED_RETRIES ? UNEXPLAINED_RETRY_MS : REFUSED_JOB_RETRY_MS;
}

function fixedRetryPauseMs(failure: Failure): number | null {
  if (failure instanceof Throttled) return Math.min(failure.retryAfterMs ?? MAX_RETRY_AFTER_MS, MAX_RETRY_AFTER_MS);
  if (failure instanceof ConfigError) return REFUSED_JOB_RETRY_MS;
  if (failure instanceof LocalFailure) return MACHINE_RETRY_MS;
  return null;
}
