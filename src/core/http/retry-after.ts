/** Longest wait that is believed, in milliseconds: a day. */
const LONGEST_MS = 86_400_000;

/**
 * Milliseconds to wait by a `Retry-After` header: seconds or an HTTP date (RFC 9110, 10.2.3). A date is measured
 * from the reply's own `Date` where there is one, because our clock may be wrong. Null when the header says nothing
 * usable, or a time that has passed.
 */
export function retryAfterMs(retryAfter: Header, nowMs: number, date?: Header): number | null {
  const told = lastOf(retryAfter);
  const until = httpDate(told);
  const seconds = secondsIn(told) ?? (until === null ? null : (until - (httpDate(lastOf(date)) ?? nowMs)) / 1000);
  if (seconds === null || seconds <= 0) return null;
  return Math.min(Math.ceil(seconds) * 1000, LONGEST_MS);
}

/** A header as HTTP libraries give it: several where it came more than once, of which the last counts. */
type Header = string | readonly string[] | undefined;

function lastOf(header: Header): string | undefined {
  return typeof header === "object" ? header.at(-1) : header;
}

/** A number of seconds that is at least 0, as a number or as text; null for anything else. */
export function secondsIn(told: unknown): number | null {
  if (typeof told === "string") return /^\s*\d{1,12}(\.\d{1,12})?\s*$/.test(told) ? Number(told) : null;
  return typeof told === "number" && Number.isFinite(told) && told >= 0 ? told : null;
}

/** IMF-fixdate and the two obsolete forms; `Date.parse` alone would take nearly any word with a digit. */
function httpDate(text: string | undefined): number | null {
  if (text === undefined || !/^\s*[A-Za-z]{3,9},? .*\d\d:\d\d:\d\d/.test(text)) return null;
  const ms = Date.parse(/GMT|UTC/i.test(text) ? text : `${text} GMT`);
  return Number.isNaN(ms) ? null : ms;
}
