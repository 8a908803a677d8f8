/** How long the service asks to wait, out of the many ways in which it may say so. All results are milliseconds. */

/** When a 429 does not say: the longest window that a limit per minute can have (interface, Limits). */
const UNSAID_SECONDS = 60;
const LONGEST_THROTTLE_SECONDS = 3_600;
/**
 * A service that counts in whole seconds, `floor(opened) + 60 - floor(now)`, names up to one second too little,
 * even 0; asking again that early would be refused again.
 */
const SHORTFALL_SECONDS = 1;
const LONGEST_MAINTENANCE_SECONDS = 86_400;

/**
 * After a 429. `told` are the candidates in order of trust: the body's `meta.retry_after`, then the header.
 * The first that is a number of seconds counts, rounded up and held within 1 s and 1 h.
 */
export function throttleMs(told: readonly unknown[]): number {
  for (const candidate of told) {
    const seconds = secondsIn(candidate);
    if (seconds === null) continue;
    const waited = Math.min(Math.max(Math.ceil(seconds), 1), LONGEST_THROTTLE_SECONDS);
    return (waited + SHORTFALL_SECONDS) * 1000;
  }
  return UNSAID_SECONDS * 1000;
}

/**
 * After a 503: `Retry-After` in seconds or as an HTTP date (RFC 9110, 10.2.3), the date measured from the reply's
 * own `Date`, because our clock may be wrong. Null when it says nothing usable, or a time that has passed.
 */
export function maintenanceMs(
  retryAfter: string | undefined,
  date: string | undefined,
  nowMs: number,
): number | null {
  const seconds = secondsIn(retryAfter) ?? secondsUntil(retryAfter, date, nowMs);
  if (seconds === null || seconds <= 0) return null;
  return Math.min(Math.ceil(seconds), LONGEST_MAINTENANCE_SECONDS) * 1000;
}

function secondsIn(told: unknown): number | null {
  if (typeof told === "string") return /^\s*\d{1,12}(\.\d{1,12})?\s*$/.test(told) ? Number(told) : null;
  return typeof told === "number" && Number.isFinite(told) && told >= 0 ? told : null;
}

function secondsUntil(
  retryAfter: string | undefined,
  date: string | undefined,
  nowMs: number,
): number | null {
  const until = httpDate(retryAfter);
  if (until === null) return null;
  return (until - (httpDate(date) ?? nowMs)) / 1000;
}

/** IMF-fixdate and the two obsolete forms; `Date.parse` alone would take nearly any word with a digit. */
function httpDate(text: string | undefined): number | null {
  if (text === undefined || !/^\s*[A-Za-z]{3,9},? .*\d\d:\d\d:\d\d/.test(text)) return null;
  const zoned = /GMT|UTC/i.test(text) ? text : `${text} GMT`;
  const ms = Date.parse(zoned);
  return Number.isNaN(ms) ? null : ms;
}
