const MAX_RETRY_AFTER_MS = 86_400_000;

/** Parses a `Retry-After` header to milliseconds. A date is compared with the `Date` header of the same response. */
export function retryAfterMs(retryAfter: HeaderValue, nowMs: number, date?: HeaderValue): number | null {
  const header = lastHeaderValue(retryAfter);
  const retryAtMs = parseHttpDate(header);
  const seconds =
    parseSeconds(header) ??
    (retryAtMs === null ? null : (retryAtMs - (parseHttpDate(lastHeaderValue(date)) ?? nowMs)) / 1000);
  if (seconds === null || seconds <= 0) return null;
  return Math.min(Math.ceil(seconds) * 1000, MAX_RETRY_AFTER_MS);
}

type HeaderValue = string | readonly string[] | undefined;

function lastHeaderValue(header: HeaderValue): string | undefined {
  return typeof header === "object" ? header.at(-1) : header;
}

export function parseSeconds(header: unknown): number | null {
  if (typeof header === "string") return /^\s*\d{1,12}(\.\d{1,12})?\s*$/.test(header) ? Number(header) : null;
  return typeof header === "number" && Number.isFinite(header) && header >= 0 ? header : null;
}

/** Parses IMF-fixdate and the two obsolete forms; `Date.parse` alone accepts nearly any word with a digit. */
function parseHttpDate(text: string | undefined): number | null {
  if (text === undefined || !/^\s*[A-Za-z]{3,9},? .*\d\d:\d\d:\d\d/.test(text)) return null;
  const ms = Date.parse(/GMT|UTC/i.test(text) ? text : `${text} GMT`);
  return Number.isNaN(ms) ? null : ms;
}
