import type { Queue, QueueAddOptions } from "p-queue";
import { LANES, type Lane, type SlotOffer } from "../source.ts";

/** A request that waits for a slot of the quota. */
export interface Waiting {
  readonly lane: Lane;
  readonly signal: AbortSignal;
  /**
   * Chooses the content when a slot is free. Null takes the slot. A number passes it on and calls again after at most
   * so many milliseconds.
   */
  readonly choose?: (offer: SlotOffer) => number | null;
}

/** Options that p-queue gets with a queued request. */
export interface LaneOptions extends QueueAddOptions {
  readonly request: Waiting;
}

/**
 * The queue inside p-queue: the waiting requests by lane, first come first served within one. Nothing leaves before
 * the allowance has let it out, so p-queue sees the requests that may start now and no others.
 */
export interface Lanes {
  /** For p-queue's `queueClass`; one instance, these lanes. */
  readonly Queue: new () => Queue<Run, LaneOptions>;
  /**
   * Lets out the request that is to leave at `now`, if there is one; otherwise says when to look again. The lanes are
   * asked in their order, after those that were passed over too often.
   */
  letOut(now: number, readyAt: ReadyAt): { readonly isOut: boolean; readonly lookAtMs: number };
  /** A request of this lane got a slot; counts the requests behind it as passed over. */
  served(lane: Lane): void;
  /** Requests that wait for a slot; those that let the last one pass are not counted. */
  counts(): Record<Lane, number>;
}

type Run = () => Promise<unknown>;
/** When a request of a lane may leave, monotonic milliseconds; one that was passed over too often may use the reserve. */
type ReadyAt = (lane: Lane, overdue: boolean) => number;

interface Entry {
  readonly id: string | undefined;
  readonly run: Run;
  readonly request: Waiting;
  passed: boolean;
}

/** A lane is passed over so many times in a row by the lanes before it; then the next slot is its own. */
const PATIENCE = 9;
/** Lane that takes only slots that no other lane wants. */
const LAST = LANES.at(-1);
/** A request that lets a slot pass is not asked again before this, in milliseconds, unless another lane wants one. */
const LEAST_PASS_MS = 50;

export function createLanes(): Lanes {
  const waiting = new Map(LANES.map((lane) => [lane, new Set<Entry>()]));
  const passedOver = new Map<Lane, number>();
  let out: Entry | null = null;
  const size = (lane: Lane) => waiting.get(lane)?.size ?? 0;
  const counted = (lane: Lane) => {
    let count = 0;
    for (const { passed } of waiting.get(lane) ?? []) if (!passed) count += 1;
    return count;
  };

  /** The first of a lane that wants the slot. */
  function wanted(lane: Lane, own: boolean, now: number): { entry: Entry | null; lookAtMs: number } {
    let lookAtMs = Number.POSITIVE_INFINITY;
    for (const entry of waiting.get(lane) ?? []) {
      // One that is aborted leaves by itself, in this very turn.
      if (entry.request.signal.aborted) continue;
      const passMs = entry.request.choose?.({ own }) ?? null;
      if (passMs === null) return { entry, lookAtMs };
      entry.passed = true;
      lookAtMs = Math.min(lookAtMs, now + Math.max(LEAST_PASS_MS, passMs));
    }
    return { entry: null, lookAtMs };
  }

  return {
    Queue: class {
      get size() {
        return out === null ? 0 : 1;
      }
      enqueue(run: Run, options?: Partial<LaneOptions>) {
        const { request, id } = options ?? {};
        if (request === undefined) throw new Error("A request of the quota says its lane.");
        waiting.get(request.lane)?.add({ id, run, request, passed: false });
      }
      dequeue() {
        const run = out?.run;
        out = null;
        return run;
      }
      remove(id: string) {
        if (out?.id === id) out = null;
        for (const entries of waiting.values()) {
          for (const entry of entries) if (entry.id === id) entries.delete(entry);
        }
      }
      setPriority() {
        throw new Error("A lane is the only priority of a request.");
      }
      filter() {
        return [...waiting.values()].flatMap((entries) => [...entries].map(({ run }) => run));
      }
    },

    letOut(now, readyAt) {
      let lookAtMs = Number.POSITIVE_INFINITY;
      /** Whether one of a lane leaves. */
      const offered = (lane: Lane, own: boolean): boolean => {
        if (size(lane) === 0) return false;
        const atMs = readyAt(lane, own);
        if (atMs > now) {
          lookAtMs = Math.min(lookAtMs, atMs);
          return false;
        }
        const found = wanted(lane, own, now);
        lookAtMs = Math.min(lookAtMs, found.lookAtMs);
        if (found.entry === null) {
          // It wants nothing, so it was not passed over.
          passedOver.set(lane, 0);
          return false;
        }
        waiting.get(lane)?.delete(found.entry);
        out = found.entry;
        return true;
      };
      const isOverdue = (lane: Lane) => (passedOver.get(lane) ?? 0) >= PATIENCE;
      const isOut =
        LANES.filter(isOverdue).some((lane) => offered(lane, true)) || LANES.some((lane) => offered(lane, false));
      return { isOut, lookAtMs };
    },

    served(lane) {
      const behind = LANES.slice(LANES.indexOf(lane) + 1);
      for (const each of LANES) {
        if (each === lane || each === LAST || size(each) === 0) passedOver.set(each, 0);
        else if (behind.includes(each)) passedOver.set(each, (passedOver.get(each) ?? 0) + 1);
      }
    },

    counts: () => ({
      write: counted("write"),
      "on-demand": counted("on-demand"),
      live: counted("live"),
      history: counted("history"),
      spare: counted("spare"),
    }),
  };
}
