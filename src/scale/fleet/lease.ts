import type { Trust } from "./trust.ts";

/** A member's right to one source, as the worker of that source sees it. */
export interface Lease {
  readonly source: string;
  /** Rises by one with every change of holder; every transaction of the source proves it. */
  readonly epoch: number;
  /**
   * Milliseconds for which no other member can hold the source, by measured time; 0 when the lease is over. Checked before each request
   * and each write to the building.
   */
  leftMs(): number;
  /**
   * Aborts at once when the lease is lost or has run out: nothing more can be committed then. At a handover it aborts
   * when `Held.stop` is done, or was given up; while `hold` still starts, at once.
   */
  readonly signal: AbortSignal;
  /**
   * Called when the database rejected this holder (`Fenced`): another member holds the source, and the ownership
   * ends.
   */
  fenced(): void;
  /** The source's service has answered, has not (a failure of the connection), or has not yet for seconds (null). */
  reached(isReached: boolean | null): void;
}

/** Work that runs for a source while its lease is held. */
export interface HeldLease {
  /**
   * Finishes what is under way, within so many milliseconds; the lease is given back afterwards. After the lease was
   * lost it only has to end.
   */
  stop(deadlineMs: number): Promise<void>;
}

/** Why a lease is over. The reason of its signal. */
export class LeaseOver extends Error {
  constructor(source: string, why: string) {
    super(`The lease on ${source} is over: ${why}.`);
    this.name = "LeaseOver";
  }
}

/** A lease, seen by the member that gives and ends it. */
export interface OwnLease extends Lease {
  /** The end, once and for good. */
  end(why: string): void;
  readonly isOver: boolean;
}

export function createLease(options: {
  readonly source: string;
  readonly epoch: number;
  readonly trust: Pick<Trust, "leftMs">;
  /** The database reported that another member has the lease. */
  fenced(lease: OwnLease): void;
  reached?(isReached: boolean | null): void;
}): OwnLease {
  const { source, epoch, trust } = options;
  const over = new AbortController();
  const lease: OwnLease = {
    source,
    epoch,
    leftMs: () => (over.signal.aborted ? 0 : trust.leftMs()),
    signal: over.signal,
    fenced: () => options.fenced(lease),
    reached(isReached) {
      if (!over.signal.aborted) options.reached?.(isReached);
    },
    end(why) {
      if (!over.signal.aborted) over.abort(new LeaseOver(source, why));
    },
    get isOver() {
      return over.signal.aborted;
    },
  };
  return lease;
}
