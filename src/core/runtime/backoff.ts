export interface RetryBackoff {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** Milliseconds before retry number `attempt`. Half is random, so that many clients do not retry together. */
export function backoffMs(backoff: RetryBackoff, attempt: number, random: () => number = Math.random): number {
  const maxDelayMs = Math.min(backoff.maxMs, backoff.firstMs * 2 ** Math.min(attempt - 1, 40));
  return Math.round(maxDelayMs * (0.5 + random() / 2));
}
