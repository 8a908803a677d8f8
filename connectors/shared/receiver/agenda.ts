import type { Notifier } from "./notifier.ts";
import type { Receiver } from "./receiver.ts";
import type { Retries } from "./retries.ts";
import { type IncidentLedger, isOver, membersOf, type StoredIncident } from "./stored-incident.ts";
import type { Timing } from "./timing.ts";

/**
 * Incidents to process: now, by priority, or at a later time. The cost depends on the due incidents only.
 *
 *     changed ──► (evaluated by the sink) ──► ready: A before B before C, first come first
 *        ▲                                └─► later: at a time ──┐
 *        └───────────────────────────────────────────────────────┘
 */
interface Agenda {
  /** Marks an incident for evaluation. */
  change(key: string): void;
  /** Takes up to so many incidents that changed, or whose time has come. */
  take(nowMs: number, most: number): readonly string[];
  /** Marks an incident as ready. A ready incident keeps its position. */
  ready(key: string, priority: string): void;
  /** An evaluated incident has to wait until a time; infinite: until it changes. */
  later(key: string, atMs: number): void;
  /** The ready incident with the most urgent priority; of several the one that has waited longest. */
  first(): string | undefined;
  /** Number of incidents that are ready; of one priority where one is given. */
  size(priority?: string): number;
  /** The time at which something is to be evaluated; infinite when nothing is. */
  nextMs(): number;
}

interface Entry {
  readonly atMs: number;
  readonly key: string;
}

export function createAgenda(): Agenda {
  const changed = new Set<string>();
  /** By priority, in the order of their arrival. */
  const buckets = new Map<string, Set<string>>();
  const priorities = new Map<string, string>();
  const times = new Map<string, number>();
  /** Binary heap. An entry whose time is not the one in `times` is out of date. */
  const heap: Entry[] = [];

  function leaveBucket(key: string): void {
    const priority = priorities.get(key);
    if (priority === undefined) return;
    priorities.delete(key);
    const bucket = buckets.get(priority);
    bucket?.delete(key);
    if (bucket?.size === 0) buckets.delete(priority);
  }

  function push(entry: Entry): void {
    let at = heap.push(entry) - 1;
    for (let parent = (at - 1) >> 1; at > 0; at = parent, parent = (at - 1) >> 1) {
      const above = heap[parent] as Entry;
      if (above.atMs <= entry.atMs) break;
      heap[at] = above;
      heap[parent] = entry;
    }
  }

  function pop(): void {
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const child = (heap[right]?.atMs ?? Number.POSITIVE_INFINITY) < (heap[left]?.atMs ?? 0) ? right : left;
      const below = heap[child];
      if (below === undefined || below.atMs >= last.atMs) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }

  /** The earliest entry that is up to date. */
  function top(): Entry | undefined {
    for (let entry = heap[0]; entry !== undefined; entry = heap[0]) {
      if (times.get(entry.key) === entry.atMs) return entry;
      pop();
    }
    return undefined;
  }

  return {
    change: (key) => void changed.add(key),

    take(nowMs, most) {
      const taken: string[] = [];
      for (const key of changed) {
        if (taken.length === most) return taken;
        changed.delete(key);
        taken.push(key);
      }
      for (let entry = top(); entry !== undefined && entry.atMs <= nowMs; entry = top()) {
        if (taken.length === most) break;
        times.delete(entry.key);
        pop();
        taken.push(entry.key);
      }
      return taken;
    },

    ready(key, priority) {
      times.delete(key);
      if (priorities.get(key) === priority) return;
      leaveBucket(key);
      priorities.set(key, priority);
      const bucket = buckets.get(priority);
      if (bucket === undefined) buckets.set(priority, new Set([key]));
      else bucket.add(key);
    },

    later(key, atMs) {
      leaveBucket(key);
      times.delete(key);
      if (atMs === Number.POSITIVE_INFINITY) return;
      times.set(key, atMs);
      push({ atMs, key });
    },

    first() {
      const [priority] = [...buckets.keys()].sort();
      return priority === undefined ? undefined : buckets.get(priority)?.values().next().value;
    },

    size: (priority) => (priority === undefined ? priorities.size : (buckets.get(priority)?.size ?? 0)),
    nextMs: () => (changed.size > 0 ? Number.NEGATIVE_INFINITY : (top()?.atMs ?? Number.POSITIVE_INFINITY)),
  };
}

/** Shortest time between two edits of a group, in milliseconds. */
const LIST_EDIT_MS = 30_000;
/** Retention after the end of an incident, or after it became invisible, in milliseconds. */
const RETAIN_MS = 30 * 86_400_000;
/** Longest time between two evaluations of a delayed incident, in milliseconds. */
const DELAY_CHECK_MS = 3_600_000;
/** The next thing to do about an incident. */
interface Plan {
  readonly act: "send" | "repeat" | "look" | "forget";
  /** Milliseconds since 1970, by the clock that does not go back. */
  readonly atMs: number;
}

/** Returns the next action for an incident and its time; null to wait for an event. */
type Planner = (key: string, stored: StoredIncident) => Plan | null;

/** `resendRequested`: incidents to send although the receiver rejected the same message. */
export function createPlanner(options: {
  readonly receiver: Pick<Receiver, "repeatMs" | "repeatClosedMs">;
  readonly timing: Timing;
  readonly notifier: Notifier;
  readonly retries: Retries;
  readonly resendRequested: ReadonlySet<string>;
  readonly ledger: () => IncidentLedger;
  readonly monotonicMs: () => number;
}): Planner {
  const { receiver, timing, notifier, retries, resendRequested, ledger, monotonicMs } = options;

  function planOf(key: string, stored: StoredIncident): Plan | null {
    const nowMs = monotonicMs();
    const forget: Plan = {
      act: "forget",
      // Keep active alarms however old, so that they can be closed.
      atMs: isOver(stored) || stored.status === "unknown" ? stored.changedMs + RETAIN_MS + 1 : Number.POSITIVE_INFINITY,
    };
    const isRefused =
      stored.refused !== undefined && !resendRequested.has(key) && stored.refused === notifier.digestOf(stored);
    const sending = isRefused ? null : (sendingOf(key, stored, nowMs) ?? repeatOf(key, stored));
    const first = sending === null || forget.atMs < sending.atMs ? forget : sending;
    return first.atMs === Number.POSITIVE_INFINITY ? null : first;
  }

  /** Returns the next message for new facts; null without any. */
  function sendingOf(key: string, stored: StoredIncident, nowMs: number): Plan | null {
    const sendAt = (atMs: number): Plan => ({ act: "send", atMs: Math.max(atMs, notBefore(key, stored)) });
    if (stored.told === null) {
      // An incident that may exist there is closed at its end.
      if (isOver(stored) && stored.openingMs !== null) return sendAt(nowMs);
      if (stored.into !== null) return null;
      const delayMs = timing.delayMs(stored, () => membersOf(ledger(), key));
      if (delayMs === 0) return sendAt(nowMs);
      // Never sent and never will be.
      if (isOver(stored)) return { act: "forget", atMs: nowMs };
      return { act: "look", atMs: nowMs + Math.min(delayMs, DELAY_CHECK_MS) };
    }
    if (!notifier.needsSending(stored)) return null;
    const isList = stored.kind === "gateway" || stored.kind === "storm";
    return sendAt(isList && !isOver(stored) ? stored.told.atMs + LIST_EDIT_MS : nowMs);
  }

  /** Earliest time after a failure or an inconclusive search. */
  function notBefore(key: string, { lookAtMs = 0, openingMs }: StoredIncident): number {
    return Math.max(retries.againMs(key) ?? 0, openingMs === null ? 0 : lookAtMs);
  }

  /** Returns the next repetition for receivers that forget. */
  function repeatOf(key: string, stored: StoredIncident): Plan | null {
    const { told: last, status, changedMs } = stored;
    const { repeatMs, repeatClosedMs = 0 } = receiver;
    if (repeatMs === undefined || last === null) return null;
    const atMs = last.atMs + repeatMs;
    if (status === "resolved" && Math.max(atMs, monotonicMs()) - changedMs >= repeatClosedMs) return null;
    return { act: "repeat", atMs: Math.max(atMs, notBefore(key, stored)) };
  }

  return planOf;
}
