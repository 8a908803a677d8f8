const MAX_RETRY_AFTER_MS = 86_400_000;

/** Parses a `Retry-After` header to milliseconds. A date is compared with the `Date` header of the same response. */
export function parseRetryAfterMs(retryAfter: HttpHeaderValues, nowMs: number, date?: HttpHeaderValues): number | null {
  const retryAfterText = lastHeaderValue(retryAfter);
  const retryAtMs = parseHttpDate(retryAfterText);
  const secondsUntilRetry =
    parseHeaderSeconds(retryAfterText) ??
    (retryAtMs === null ? null : (retryAtMs - (parseHttpDate(lastHeaderValue(date)) ?? nowMs)) / 1000);
  if (secondsUntilRetry === null || secondsUntilRetry <= 0) return null;
  return Math.min(Math.ceil(secondsUntilRetry) * 1000, MAX_RETRY_AFTER_MS);
}

type HttpHeaderValues = string | readonly string[] | undefined;

function lastHeaderValue(header: HttpHeaderValues): string | undefined {
  return typeof header === "object" ? header.at(-1) : header;
}

export function parseHeaderSeconds(header: unknown): number | null {
  if (typeof header === "string") return /^\s*\d{1,12}(\.\d{1,12})?\s*$/.test(header) ? Number(header) : null;
  return typeof header === "number" && Number.isFinite(header) && header >= 0 ? header : null;
}

/** Parses the three HTTP date formats. Checks the form first, as `Date.parse` accepts nearly any word with a digit. */
function parseHttpDate(text: string | undefined): number | null {
  if (text === undefined || !/^\s*[A-Za-z]{3,9},? .*\d\d:\d\d:\d\d/.test(text)) return null;
  const timeMs = Date.parse(/GMT|UTC/i.test(text) ? text : `${text} GMT`);
  return Number.isNaN(timeMs) ? null : timeMs;
}
