/** Exponential back-off with jitter; the caller counts the attempts and does the waiting. */
export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
}

/**
 * Milliseconds to wait before attempt number `attempt` (1 = the first retry).
 * Half of the step is fixed and half is random, so that many clients do not retry together.
 */
export function backoffMs(backoff: Backoff, attempt: number, random: () => number = Math.random): number {
  const cap = Math.min(backoff.maxMs, backoff.firstMs * 2 ** Math.min(attempt - 1, 40));
  return Math.round(cap * (0.5 + random() / 2));
}
