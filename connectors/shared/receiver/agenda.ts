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
export function createAgenda() {
  const changed = new Set<string>();
  /** Ready incidents by priority, in the order of their arrival. */
  const ready = new Map<string, Set<string>>();
  const priorities = new Map<string, string>();
  const times = new Map<string, number>();
  /** Sorted by time. An entry is outdated when `times` has another time for its key. */
  const queue: { readonly atMs: number; readonly key: string }[] = [];

  function leaveReady(key: string): void {
    const priority = priorities.get(key) ?? "";
    priorities.delete(key);
    const keys = ready.get(priority);
    keys?.delete(key);
    if (keys?.size === 0) ready.delete(priority);
  }

  /** Returns the time of the first entry that is not outdated; infinite without one. */
  function nextTimeMs(): number {
    while (queue[0] !== undefined && times.get(queue[0].key) !== queue[0].atMs) queue.shift();
    return queue[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  return {
    /** Marks an incident for evaluation. */
    change: (key: string) => void changed.add(key),

    /** Takes up to `most` incidents that changed or are due. */
    take(nowMs: number, most: number): readonly string[] {
      const taken = [...changed.values().take(most)];
      for (const key of taken) changed.delete(key);
      while (taken.length < most && nextTimeMs() <= nowMs) {
        const { key = "" } = queue.shift() ?? {};
        times.delete(key);
        taken.push(key);
      }
      return taken;
    },

    /** Marks an incident as ready. A ready incident keeps its position. */
    ready(key: string, priority: string): void {
      times.delete(key);
      if (priorities.get(key) === priority) return;
      leaveReady(key);
      priorities.set(key, priority);
      ready.set(priority, (ready.get(priority) ?? new Set()).add(key));
    },

    /** Postpones an evaluated incident until a time; infinite: until it changes. */
    later(key: string, atMs: number): void {
      leaveReady(key);
      times.delete(key);
      if (atMs === Number.POSITIVE_INFINITY) return;
      times.set(key, atMs);
      let low = 0;
      for (let high = queue.length; low < high; ) {
        const middle = (low + high) >>> 1;
        if ((queue[middle]?.atMs ?? 0) <= atMs) low = middle + 1;
        else high = middle;
      }
      queue.splice(low, 0, { atMs, key });
    },

    /** Returns the ready incident with the most urgent priority that has waited longest. */
    first(): string | undefined {
      const [priority = ""] = [...ready.keys()].sort();
      return ready.get(priority)?.values().next().value;
    },

    /** Number of ready incidents, of one priority when it is given. */
    size: (priority?: string) => (priority === undefined ? priorities.size : (ready.get(priority)?.size ?? 0)),

    /** Time of the next evaluation; infinite without one. */
    nextMs: () => (changed.size > 0 ? Number.NEGATIVE_INFINITY : nextTimeMs()),
  };
}

/** Shortest time between two edits of a group, in milliseconds. */
const LIST_EDIT_MS = 30_000;
/** Retention after the end of an incident, or after it became invisible, in milliseconds. */
const RETAIN_MS = 30 * 86_400_000;
/** Longest time between two evaluations of a delayed incident, in milliseconds. */
const DELAY_CHECK_MS = 3_600_000;

/** The next action for an incident. */
interface Plan {
  readonly act: "send" | "repeat" | "look" | "forget";
  /** Milliseconds since 1970, monotonic. */
  readonly atMs: number;
}

/** Returns a function for the next action of an incident; null to wait for an event. */
export function createPlanner(options: {
  readonly receiver: Pick<Receiver, "repeatMs" | "repeatClosedMs">;
  readonly timing: Timing;
  readonly notifier: Notifier;
  readonly retries: Retries;
  /** Incidents to send although the receiver rejected the same message. */
  readonly resendRequested: ReadonlySet<string>;
  readonly ledger: () => IncidentLedger;
  readonly monotonicMs: () => number;
}): (key: string, stored: StoredIncident) => Plan | null {
  const { receiver, timing, notifier, retries, resendRequested, ledger, monotonicMs } = options;

  /** Returns the next message for new facts; null without any. `fromMs`: earliest time after a failure. */
  function sendingOf(key: string, stored: StoredIncident, fromMs: number): Plan | null {
    const nowMs = monotonicMs();
    const sendAt = (atMs: number): Plan => ({ act: "send", atMs: Math.max(atMs, fromMs) });
    if (stored.told !== null) {
      if (!notifier.needsSending(stored)) return null;
      const isList = stored.kind === "gateway" || stored.kind === "storm";
      return sendAt(isList && !isOver(stored) ? stored.told.atMs + LIST_EDIT_MS : nowMs);
    }
    // An incident that may exist at the receiver is closed at its end.
    if (isOver(stored) && stored.openingMs !== null) return sendAt(nowMs);
    if (stored.into !== null) return null;
    const delayMs = timing.delayMs(stored, () => membersOf(ledger(), key));
    if (delayMs === 0) return sendAt(nowMs);
    // Never sent and never will be.
    if (isOver(stored)) return { act: "forget", atMs: nowMs };
    return { act: "look", atMs: nowMs + Math.min(delayMs, DELAY_CHECK_MS) };
  }

  /** Returns the next repetition for receivers that forget. */
  function repeatOf({ told, status, changedMs }: StoredIncident, fromMs: number): Plan | null {
    const { repeatMs, repeatClosedMs = 0 } = receiver;
    if (repeatMs === undefined || told === null) return null;
    const atMs = told.atMs + repeatMs;
    if (status === "resolved" && Math.max(atMs, monotonicMs()) - changedMs >= repeatClosedMs) return null;
    return { act: "repeat", atMs: Math.max(atMs, fromMs) };
  }

  return (key, stored) => {
    // Keep active alarms however old, so that they can be closed.
    const isKept = !isOver(stored) && stored.status !== "unknown";
    const forgetMs = isKept ? Number.POSITIVE_INFINITY : stored.changedMs + RETAIN_MS + 1;
    const isRefused =
      stored.refused !== undefined && !resendRequested.has(key) && stored.refused === notifier.digestOf(stored);
    const fromMs = Math.max(retries.againMs(key) ?? 0, stored.openingMs === null ? 0 : (stored.lookAtMs ?? 0));
    const sending = isRefused ? null : (sendingOf(key, stored, fromMs) ?? repeatOf(stored, fromMs));
    if (sending !== null && sending.atMs <= forgetMs) return sending;
    return isKept ? null : { act: "forget", atMs: forgetMs };
  };
}
