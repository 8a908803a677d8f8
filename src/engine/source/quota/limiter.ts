import type { Moment } from "../../../core/runtime/moment.ts";
import type { Lane, QuotaStatus, SlotOffer } from "../source.ts";

/** The three endpoints that share, or separately have, 20 requests per minute (interface, Limits). */
export const QUOTA_ENDPOINTS = ["read", "write", "history"] as const;
export type QuotaEndpoint = (typeof QUOTA_ENDPOINTS)[number];

/** What the client asks of the quota of the tag endpoints. */
export interface Limiter {
  /**
   * Runs the task once a slot is free; the slot is taken (and persisted) before the task starts, which is told since
   * when that was under way; the task's end marks the response. With `choose` it is asked whenever a slot is free for its lane: null takes it, a number lets it pass
   * and wants to be asked again after so many milliseconds at the latest; when it throws, `run` rejects with that.
   */
  run<T>(
    lane: Lane,
    endpoint: QuotaEndpoint,
    task: (since: Moment) => Promise<T>,
    signal: AbortSignal,
    choose?: (offer: SlotOffer) => number | null,
  ): Promise<T>;
  /** No request leaves before `forMs` have passed: of one allowance after a 429, of every lane after a 503. */
  hold(forMs: number, scope: "allowance" | "everything", endpoint?: QuotaEndpoint): void;
  /** Ends the pause of the allowance of an endpoint, or the pause of every lane. */
  release(of: QuotaEndpoint | "everything"): void;
  /**
   * Lets one request of the allowance of an endpoint leave in spite of its pause, as a trial; never a write, and never in a
   * pause of every lane. False takes the permission back.
   */
  permitTrial(endpoint: QuotaEndpoint, isPermitted: boolean): void;
  /**
   * What the reply's `X-RateLimit-*` headers say about the allowance; null where the reply does not say. `sentMs` is when
   * its request left, on the monotonic clock.
   */
  observe(
    endpoint: QuotaEndpoint,
    headers: { readonly limit: number | null; readonly remaining: number | null },
    sentMs: number,
  ): void;
  status(): QuotaStatus;
}
