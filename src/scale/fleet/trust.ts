import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";

/**
 * Time for which a member may rely on its leases, in measured time. The database grants `ttlMs` from the moment at which it writes a
 * renewal; the member counts from before it sent the renewal, and stops `marginMs` earlier. So another member never takes over before
 * this one has ended, however slow the network is and whatever the wall clock shows.
 *
 *   member     sent ├──────── 8 s of trust ────────┤ ends
 *   database        ·  written ├──────────── 9 s ──────────┤ others may take
 */
export interface Trust {
  /** A moment to give to `renewed` when what is sent after it was answered. */
  mark(): Moment;
  /** The database has renewed what was asked for after that moment. */
  renewed(sent: Moment): void;
  /** Milliseconds for which no other member can hold this member's sources; 0 when that is over. */
  leftMs(): number;
}

export function createTrust(clock: Clock, ttlMs: number, marginMs: number): Trust {
  let from: Moment | null = null;
  return {
    mark: () => momentOf(clock),
    renewed(sent) {
      // Answers may come in another order than they were sent.
      if (from === null || sent.monotonicMs > from.monotonicMs) from = sent;
    },
    leftMs: () => (from === null ? 0 : Math.max(0, ttlMs - marginMs - elapsedMs(clock, from))),
  };
}
