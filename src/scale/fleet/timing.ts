/** Spans of a fleet, in milliseconds. All members of one fleet have the same. */
export interface Timing {
  /** A member that has not renewed for so long is gone. */
  readonly ttlMs: number;
  /** How often a member renews; also the longest that it waits for an answer of the database. */
  readonly renewMs: number;
  /** So much earlier than the database a member lets go, because clocks of machines do not go alike. */
  readonly marginMs: number;
  /** How long what runs for a source may take to finish at a gentle handover. */
  readonly handOverMs: number;
}

/**
 * After kill -9 a source is free 9 s after the last renewal, and taken at once; after a cut network the same. A member
 * stops by itself 8 s after its last renewal, so two renewals in a row may fail, and the third has 2 s.
 */
export const TIMING: Timing = { ttlMs: 9_000, renewMs: 3_000, marginMs: 1_000, handOverMs: 5_000 };
