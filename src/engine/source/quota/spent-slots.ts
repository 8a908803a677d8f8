import { insertSorted } from "../../../core/runtime/sorted-insert.ts";
import type { QuotaEndpoint } from "./limiter.ts";

/**
 * The requests that may count against a window of the service, seen from both sides.
 *
 * The service counts a request somewhere between its send and its response, and forgets it one window later.
 * So a request occupies its slot from the send until `countedBy` + window, where `countedBy` is the response or
 * the send + the longest believable way, whichever is earlier. Whoever never holds more than N slots by this
 * measure is never refused by a sliding log of N, by a fixed window however it is aligned, or by a token bucket
 * of N: any 21 arrivals are then more than one window apart.
 *
 * All times are milliseconds of `Clock.monotonic()`.
 */
export interface Slot {
  readonly id: number;
  readonly endpoint: QuotaEndpoint;
  sentAt: number;
  /** The latest moment at which the service can have counted it; infinite until it is known when it leaves. */
  countedBy: number;
}

export interface SpentSlots {
  add(slot: Slot): void;
  /** Takes back a slot whose request never left. */
  drop(slot: Slot): void;
  used(now: number): number;
  /** When fewer than `allowed` slots are occupied: `now` if that is so already, infinite if it is not known. */
  freeAt(now: number, allowed: number): number;
  /**
   * By how much a count that the service has made since then exceeds what our own requests can explain, by any of
   * the usual ways of counting. The two-window counter is the widest: the last window counts for the share of it
   * that lies within the last minute, so that requests older than a minute may still weigh something.
   */
  unexplained(count: number, since: number): number;
  /** Everything it remembers, for whoever takes over. */
  slots(): readonly Slot[];
}

/** Freed slots are remembered for another window, to judge what the service says it has counted. */
const REMEMBER_MS = 60_000;

export function createSpentSlots(occupiedMs: number, inherited: readonly Slot[] = []): SpentSlots {
  let slots = [...inherited];
  /** Room for the ends in their order: it is asked for them some ten times for each request. */
  let ends = new Float64Array(64);
  return {
    add(slot) {
      const oldest = slot.sentAt - REMEMBER_MS - occupiedMs;
      slots = slots.filter((each) => each.countedBy > oldest);
      slots.push(slot);
    },
    drop(slot) {
      slots = slots.filter((each) => each !== slot);
    },
    used: (now) => count(slots, now - occupiedMs),
    unexplained(counted, since) {
      if (counted <= count(slots, since - occupiedMs)) return 0;
      return Math.max(0, counted - Math.ceil(widestCount(slots, since, occupiedMs) - ROUNDING));
    },
    freeAt(now, allowed) {
      if (allowed < 1) return Number.POSITIVE_INFINITY;
      if (ends.length < slots.length) ends = new Float64Array(2 * slots.length);
      let occupied = 0;
      for (const { countedBy } of slots) {
        const end = countedBy + occupiedMs;
        // They nearly are in order, as the slots were taken.
        if (end > now) insertSorted(end, ends, occupied++);
      }
      if (occupied < allowed) return now;
      // 21 ends and 20 allowed: with the second the 20 youngest are left, with it gone one is free.
      return ends[occupied - allowed] ?? now;
    },
    slots: () => slots,
  };
}

/** Sums of shares are not exact. */
const ROUNDING = 1e-9;

/** The two-window count at `now`, at its highest over every possible alignment of the windows. */
function widestCount(slots: readonly Slot[], now: number, windowMs: number): number {
  const ages = slots.map((slot) => now - slot.countedBy).filter((age) => age < 2 * windowMs);
  let highest = 0;
  // Between these alignments the count only falls.
  for (const edge of [0, ...ages]) {
    const elapsed = edge > windowMs ? edge - windowMs : Math.max(0, edge);
    let sum = 0;
    for (const age of ages) {
      if (age <= elapsed) sum += 1;
      else if (age <= elapsed + windowMs) sum += 1 - elapsed / windowMs;
    }
    highest = Math.max(highest, sum);
  }
  return highest;
}

function count(slots: readonly Slot[], countedAfter: number): number {
  let sum = 0;
  for (const slot of slots) if (slot.countedBy > countedAfter) sum += 1;
  return sum;
}
