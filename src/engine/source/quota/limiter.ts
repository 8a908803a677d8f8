import type { Moment } from "../../../core/runtime/moment.ts";
import type { Lane, QuotaStatus, SlotOffer } from "../source.ts";

/** The three endpoints that share, or separately have, 20 requests per minute (interface, Limits). */
export const QUOTA_ENDPOINTS = ["read", "write", "history"] as const;
export type QuotaEndpoint = (typeof QUOTA_ENDPOINTS)[number];

/** Quota of the tag endpoints, as the client uses it. */
export interface Limiter {
  /**
   * Runs the task once a slot is free. The slot is taken and stored before the task starts; the task gets that time,
   * and its end marks the response. `choose` is called whenever a slot is free for its lane: null takes it, a number
   * passes it on and calls again after at most so many milliseconds. If it throws, `run` rejects with that error.
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
   * Records the `X-RateLimit-*` headers of a reply; null for absent ones. `sentMs`: monotonic time when the request
   * was sent.
   */
  observe(
    endpoint: QuotaEndpoint,
    headers: { readonly limit: number | null; readonly remaining: number | null },
    sentMs: number,
  ): void;
  status(): QuotaStatus;
}
