import { Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { endsWithin } from "../../core/runtime/waiting.ts";

export interface FleetTiming {
  /** Duration of a lease: a member without a renewal for this long is gone. */
  readonly ttlMs: number;
  /** Interval of lease renewals, and time limit of a statement. */
  readonly renewMs: number;
  /** A member gives up its leases this much before the database ends them, because clocks drift. */
  readonly marginMs: number;
  readonly handOverMs: number;
}

/** A member stops 8 s after its last successful renewal: two attempts may fail, and the third has 2 s left. */
export const FLEET_LEASE_TIMING: FleetTiming = { ttlMs: 9_000, renewMs: 3_000, marginMs: 1_000, handOverMs: 5_000 };

/** Throws `Retryable` after `limitMs` milliseconds. The statement in `work` may still take effect later. */
export async function withTimeLimit<T>(clock: Clock, limitMs: number, work: Promise<T>): Promise<T> {
  if (await endsWithin(clock, limitMs, work)) return work;
  throw new Retryable(`The database has not answered within ${limitMs / 1_000} s.`);
}

/**
 * Measures for how long a member may rely on its leases. No other member takes the sources earlier.
 *
 *   member     sent ├──────── 8 s of trust ────────┤ ends
 *   database        ·  written ├──────────── 9 s ──────────┤ others may take
 */
export function createLeaseExpiryTimer(clock: Clock, ttlMs: number, marginMs: number) {
  let lastSentAt: TimeReading | null = null;
  return {
    noteRenewal(sentAt: TimeReading): void {
      // Keep the latest request, because responses may arrive in another order than the requests.
      if (lastSentAt === null || sentAt.monotonicMs > lastSentAt.monotonicMs) lastSentAt = sentAt;
    },
    /** Returns the milliseconds for which no other member can hold this member's sources; 0 after that. */
    leftMs: () => (lastSentAt === null ? 0 : Math.max(0, ttlMs - marginMs - elapsedMs(clock, lastSentAt))),
  };
}

export type LeaseExpiryTimer = ReturnType<typeof createLeaseExpiryTimer>;

export interface MemberHeartbeat {
  readonly name: string;
  readonly incarnation: string;
  readonly renewals: number;
}

/**
 * Measures the silence of other members by this member's monotonic clock, so no wall clock decides who is gone.
 *
 *   other's renewals   17 ─── 18 ─── 19 ─ (killed)
 *   checks, 1 s apart   ·  ·  ·  ·  ·  · ·├───── 9 s without a change ─────┤ declared gone, if still 19
 *
 * Silence starts again at 0 after `gapMs` without a check: the database was unavailable, or this process was suspended.
 */
export function createHeartbeatObserver(clock: Clock, ttlMs: number, gapMs: number) {
  let heartbeats: ReadonlyMap<string, { readonly beat: MemberHeartbeat; readonly since: TimeReading }> = new Map();
  let lastObservedAt: TimeReading | null = null;
  return {
    /** Returns members silent for the lease duration. A new observer waits one complete duration. */
    observe(beats: readonly MemberHeartbeat[]): readonly MemberHeartbeat[] {
      const now = readClocks(clock);
      const hasObservationGap = lastObservedAt !== null && elapsedMs(clock, lastObservedAt) > gapMs;
      lastObservedAt = now;
      heartbeats = new Map(
        beats.map((beat) => {
          const earlierBeat = hasObservationGap ? undefined : heartbeats.get(beat.incarnation);
          return [beat.incarnation, earlierBeat?.beat.renewals === beat.renewals ? earlierBeat : { beat, since: now }];
        }),
      );
      return [...heartbeats.values()].filter(({ since }) => elapsedMs(clock, since) >= ttlMs).map(({ beat }) => beat);
    },
    /** Milliseconds until the first member can count as silent; infinite without members. */
    msUntilNextExpiry: () =>
      Math.min(
        Number.POSITIVE_INFINITY,
        ...[...heartbeats.values()].map(({ since }) => Math.max(0, ttlMs - elapsedMs(clock, since))),
      ),
  };
}
