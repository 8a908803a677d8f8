import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";

/** The number of renewals of a member that takes part, as one look at the table has read it. */
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
   * Takes what a look has just read and returns the members that were silent for the lease duration. A member counts from
   * the first look that has seen its latest renewal, so one that starts to observe waits a complete lease duration.
   */
  observe(beats: readonly Heartbeat[]): readonly Heartbeat[];
  /** Milliseconds until the next member could be silent for long enough; infinite when there is none. */
  nextMs(): number;
}

/** `gapMs`: after a longer time without a look (the database was away, this process was stopped) all count again from 0. */
export function createHeartbeats(clock: Clock, ttlMs: number, gapMs: number): Heartbeats {
  let seen: ReadonlyMap<string, { readonly beat: Heartbeat; readonly since: Moment }> = new Map();
  let lookedAt: Moment | null = null;
  const silentMs = ({ since }: { readonly since: Moment }) => elapsedMs(clock, since);

  return {
    observe(beats) {
      const now = momentOf(clock);
      const hasGap = lookedAt !== null && elapsedMs(clock, lookedAt) > gapMs;
      lookedAt = now;
      seen = new Map(
        beats.map((beat) => {
          const known = hasGap ? undefined : seen.get(beat.incarnation);
          const isUnchanged = known?.beat.renewals === beat.renewals;
          return [beat.incarnation, isUnchanged ? known : { beat, since: now }];
        }),
      );
      return [...seen.values()].filter((each) => silentMs(each) >= ttlMs).map(({ beat }) => beat);
    },
    nextMs: () =>
      Math.min(Number.POSITIVE_INFINITY, ...[...seen.values()].map((each) => Math.max(0, ttlMs - silentMs(each)))),
  };
}
