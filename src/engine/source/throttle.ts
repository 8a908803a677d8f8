import { secondsIn } from "../../core/http/retry-after.ts";

/** When a 429 does not say: the longest window that a limit per minute can have (interface, Limits). */
const UNSAID_SECONDS = 60;
const LONGEST_THROTTLE_SECONDS = 3_600;
/**
 * A service that counts in whole seconds, `floor(opened) + 60 - floor(now)`, names up to one second too little,
 * even 0; asking again that early would be refused again.
 */
const SHORTFALL_SECONDS = 1;

/** What a 429 says: how long to wait, in milliseconds, and whether the service itself said 0 s. */
export interface ThrottleWait {
  readonly waitMs: number;
  readonly saysNow: boolean;
}

/**
 * `told` are the candidates in order of trust: the body's `meta.retry_after`, then the header. The first that is a number
 * of seconds counts, rounded up and held within 1 s and 1 h.
 */
export function throttleWait(told: readonly unknown[]): ThrottleWait {
  for (const candidate of told) {
    const seconds = secondsIn(candidate);
    if (seconds === null) continue;
    const waited = Math.min(Math.max(Math.ceil(seconds), 1), LONGEST_THROTTLE_SECONDS);
    return { waitMs: (waited + SHORTFALL_SECONDS) * 1000, saysNow: seconds === 0 };
  }
  return { waitMs: UNSAID_SECONDS * 1000, saysNow: false };
}
