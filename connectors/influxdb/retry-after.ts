/** Longest wait that is believed, in milliseconds: a day. */
const MAX_WAIT_MS = 86_400_000;

/** Milliseconds to wait by a `Retry-After` header, seconds or a date (RFC 9110, 10.2.3); null when it says nothing. */
export function retryAfterMs(header: string | undefined, nowMs: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  const waitMs = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - nowMs;
  return Number.isFinite(waitMs) && waitMs > 0 ? Math.min(waitMs, MAX_WAIT_MS) : null;
}
