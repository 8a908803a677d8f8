import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";

/**
 * How long a member may count on its leases, by its own measured time. The database gives `ttlMs` from the moment at
 * which it writes a renewal; the member counts from before it sent that, and lets go `marginMs` earlier. So whoever
 * waits for the database's time to run out always begins later than this member ends, however slow the network is and
 * whatever its wall clock says.
 *
 *   member     sent ├──────── 8 s of trust ────────┤ ends
 *   database        ·  written ├──────────── 9 s ──────────┤ others may take
 */
export interface Trust {
  /** A moment to give to `renewed` when what is sent after it was answered. */
  mark(): Moment;
  /** The database has renewed what was asked for after that moment. */
  renewed(sent: Moment): void;
  /** Milliseconds for which nobody else can hold what this member holds; 0 when that is over, or never was. */
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
