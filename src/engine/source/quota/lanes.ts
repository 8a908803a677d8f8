import type { Moment } from "../../../core/runtime/moment.ts";
import { LANES, type Lane, type QuotaEndpoint, type SlotOffer } from "../source.ts";

/** A tag request that waits for a slot of the quota. */
export interface QuotaRequest {
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly task: (slotTaken: Moment) => Promise<unknown>;
  readonly signal: AbortSignal;
  /**
   * Chooses the content when a slot is free. Null takes the slot. A number passes it on and calls again after at most
   * so many milliseconds.
   */
  readonly choose: ((offer: SlotOffer) => number | null) | undefined;
  /** Monotonic time of the request. */
  readonly requestedMs: number;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: unknown) => void;
  /** True after `choose` has passed a slot on. */
  hasPassed: boolean;
}

/** A lane is passed over so many times in a row by the lanes before it; then it gets the next slot. */
const PATIENCE = 9;
/** Lane that takes only slots that no other lane wants. */
const LAST = LANES.at(-1);
/** A request that passes a slot on is asked again after this at the earliest, in milliseconds. */
const LEAST_PASS_MS = 50;

/** The waiting requests by lane; within a lane first come, first served. */
export function createLanes() {
  const waiting = new Map(LANES.map((lane) => [lane, new Set<QuotaRequest>()]));
  const passedOver = new Map<Lane, number>();
  const inLane = (lane: Lane) => waiting.get(lane) as Set<QuotaRequest>;
  const countWaiting = (lane: Lane) => [...inLane(lane)].filter(({ hasPassed }) => !hasPassed).length;

  /** Removes and returns the first request of a lane that wants the slot. A request whose choice throws is rejected. */
  function takeFrom(lane: Lane, own: boolean, now: number) {
    let lookAtMs = Number.POSITIVE_INFINITY;
    for (const request of inLane(lane)) {
      if (request.signal.aborted) continue;
      try {
        const passMs = request.choose?.({ own }) ?? null;
        if (passMs !== null) {
          request.hasPassed = true;
          lookAtMs = Math.min(lookAtMs, now + Math.max(LEAST_PASS_MS, passMs));
          continue;
        }
        inLane(lane).delete(request);
        return { request, lookAtMs };
      } catch (error) {
        inLane(lane).delete(request);
        request.reject(error);
      }
    }
    return { request: null, lookAtMs };
  }

  return {
    add: (request: QuotaRequest) => inLane(request.lane).add(request),
    remove: (request: QuotaRequest) => inLane(request.lane).delete(request),
    all: () => [...waiting.values()].flatMap((requests) => [...requests]),

    /**
     * Removes and returns the request that leaves at `now`; otherwise says when to look again. Lanes that were passed
     * over too often come first, then all lanes in their order. `readyAt` returns when a lane may use a slot.
     */
    take(now: number, readyAt: (lane: Lane, isOverdue: boolean) => number) {
      const overdue = LANES.filter((lane) => (passedOver.get(lane) ?? 0) >= PATIENCE);
      const order = [...overdue.map((lane) => [lane, true] as const), ...LANES.map((lane) => [lane, false] as const)];
      let lookAtMs = Number.POSITIVE_INFINITY;
      for (const [lane, isOverdue] of order) {
        if (inLane(lane).size === 0) continue;
        const readyMs = readyAt(lane, isOverdue);
        const taken = readyMs > now ? { request: null, lookAtMs: readyMs } : takeFrom(lane, isOverdue, now);
        lookAtMs = Math.min(lookAtMs, taken.lookAtMs);
        if (taken.request !== null) return { request: taken.request, lookAtMs };
        // A lane that wants no slot was not passed over.
        if (readyMs <= now) passedOver.set(lane, 0);
      }
      return { request: null, lookAtMs };
    },

    /** A request of this lane took a slot: counts the lanes after it as passed over. */
    noteTaken(lane: Lane): void {
      for (const each of LANES) {
        if (each === lane || each === LAST || inLane(each).size === 0) passedOver.set(each, 0);
        else if (LANES.indexOf(each) > LANES.indexOf(lane)) passedOver.set(each, (passedOver.get(each) ?? 0) + 1);
      }
    },

    /** Requests that wait for a slot, without those that passed the last one on. */
    counts: () => Object.fromEntries(LANES.map((lane) => [lane, countWaiting(lane)])) as Record<Lane, number>,
  };
}
