import { Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";
import { within } from "../../core/runtime/waiting.ts";

/** Durations in milliseconds; equal for all members of one fleet. */
export interface Timing {
  /** A member without a renewal for this long is gone. */
  readonly ttlMs: number;
  /** Interval of renewals, and time limit of a statement. */
  readonly renewMs: number;
  /** A member gives up its leases this much before the database ends them, because clocks drift. */
  readonly marginMs: number;
  /** Time that the work for a source gets to finish at a handover. */
  readonly handOverMs: number;
}

/**
 * After kill -9 or a network failure, a source is free 9 s after the last renewal and taken at once. A member stops by itself 8 s
 * after its last renewal: two renewals in a row may fail, and the third has 2 s.
 */
export const TIMING: Timing = { ttlMs: 9_000, renewMs: 3_000, marginMs: 1_000, handOverMs: 5_000 };

/**
 * Returns the database's result, or throws `Retryable` after `ms` milliseconds: a lease holder cannot wait for a silent server. The
 * next look at the tables finds what a late statement has done.
 */
export async function withTimeLimit<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  if (await within(clock, ms, work)) return work;
  throw new Retryable(`The database has not answered within ${ms / 1_000} s.`);
}

/**
 * Time for which a member may rely on its leases, in measured time. The database grants `ttlMs` from the moment at which it writes a
 * renewal; the member counts from before it sent the renewal, and stops `marginMs` earlier. So another member never takes over before
 * this one has ended, however slow the network is and whatever the wall clock shows.
 *
 *   member     sent ├──────── 8 s of trust ────────┤ ends
 *   database        ·  written ├──────────── 9 s ──────────┤ others may take
 */
export interface Trust {
  /** Records a successful renewal that was sent at this moment. */
  renewed(sent: Moment): void;
  /** Milliseconds for which no other member can hold this member's sources; 0 when the trust has ended. */
  leftMs(): number;
}

export function createTrust(clock: Clock, ttlMs: number, marginMs: number): Trust {
  let from: Moment | null = null;
  return {
    renewed(sent) {
      // Responses may arrive in another order than the requests.
      if (from === null || sent.monotonicMs > from.monotonicMs) from = sent;
    },
    leftMs: () => (from === null ? 0 : Math.max(0, ttlMs - marginMs - elapsedMs(clock, from))),
  };
}

/** Number of renewals of a member, as read from the table. */
export interface Heartbeat {
  readonly name: string;
  readonly incarnation: string;
  readonly renewals: number;
}

/**
 * Watches the renewals of other members and measures silence by this member's own monotonic clock, as clients of etcd and
 * the leader election of Kubernetes do. No wall clock decides who is gone: neither the database's nor a member's.
 *
 *   other's renewals   17 ─── 18 ─── 19 ─ (killed)
 *   looks, 1 s apart    ·  ·  ·  ·  ·  · ·├───── 9 s without a change ─────┤ declared gone, if still 19
 */
export interface Heartbeats {
  /**
   * Takes what was just read and returns the members that were silent for the lease duration. Silence counts from the first look that
   * saw the latest renewal, so a new observer waits a complete lease duration.
   */
  observe(beats: readonly Heartbeat[]): readonly Heartbeat[];
  /** Milliseconds until the next member could have been silent for long enough; infinite without members. */
  nextMs(): number;
}

/** Silence starts again at 0 after `gapMs` without a look: the database was away, or this process was stopped. */
export function createHeartbeats(clock: Clock, ttlMs: number, gapMs: number): Heartbeats {
  let seen: ReadonlyMap<string, { readonly beat: Heartbeat; readonly since: Moment }> = new Map();
  let lookedAt: Moment | null = null;
  return {
    observe(beats) {
      const now = momentOf(clock);
      const hasGap = lookedAt !== null && elapsedMs(clock, lookedAt) > gapMs;
      lookedAt = now;
      seen = new Map(
        beats.map((beat) => {
          const before = hasGap ? undefined : seen.get(beat.incarnation);
          return [beat.incarnation, before?.beat.renewals === beat.renewals ? before : { beat, since: now }];
        }),
      );
      return [...seen.values()].filter(({ since }) => elapsedMs(clock, since) >= ttlMs).map(({ beat }) => beat);
    },
    nextMs: () =>
      Math.min(
        Number.POSITIVE_INFINITY,
        ...[...seen.values()].map(({ since }) => Math.max(0, ttlMs - elapsedMs(clock, since))),
      ),
  };
}
