import type { Notifier } from "./notifier.ts";
import type { Receiver } from "./receiver.ts";
import type { Retries } from "./retries.ts";
import { type IncidentLedger, isOver, membersOf, type StoredIncident } from "./stored-incident.ts";
import type { Timing } from "./timing.ts";

/** A thing with a list is not edited more often than this, in milliseconds, however fast the list changes. */
const LIST_EDIT_MS = 30_000;
/** The sink remembers an incident for so long after its end, or after it went out of sight, in milliseconds. */
const REMEMBER_MS = 30 * 86_400_000;
/** An incident that a rule keeps back is looked at this often, in milliseconds, whatever the rule says. */
const KEPT_BACK_LOOK_MS = 3_600_000;
/** The next thing to do about an incident. */
export interface Plan {
  readonly act: "send" | "repeat" | "look" | "forget";
  /** Milliseconds since 1970, by the clock that does not go back. */
  readonly atMs: number;
}

/** Says what is next to do about an incident, and when; null where only an event can bring something. */
export type Planner = (key: string, held: StoredIncident) => Plan | null;

/** `demanded`: incidents that are sent once more although the receiver refused the same: an event asks for it. */
export function createPlanner(options: {
  readonly receiver: Pick<Receiver, "repeatMs" | "repeatClosedMs">;
  readonly timing: Timing;
  readonly teller: Notifier;
  readonly retries: Retries;
  readonly demanded: ReadonlySet<string>;
  readonly book: () => IncidentLedger;
  readonly onwardMs: () => number;
}): Planner {
  const { receiver, timing, teller, retries, demanded, book, onwardMs } = options;

  function planOf(key: string, held: StoredIncident): Plan | null {
    const nowMs = onwardMs();
    const forget: Plan = {
      act: "forget",
      // An alarm that is active for months is still to be closed.
      atMs:
        isOver(held) || held.status === "unknown"
          ? held.changedMs + REMEMBER_MS + 1
          : Number.POSITIVE_INFINITY,
    };
    const isRefused =
      held.refused !== undefined && !demanded.has(key) && held.refused === teller.digestOf(held);
    const sending = isRefused ? null : (sendingOf(key, held, nowMs) ?? repeatOf(key, held));
    const first = sending === null || forget.atMs < sending.atMs ? forget : sending;
    return first.atMs === Number.POSITIVE_INFINITY ? null : first;
  }

  /** When there is something new to send of it; null where there is nothing. */
  function sendingOf(key: string, held: StoredIncident, nowMs: number): Plan | null {
    const sendAt = (atMs: number): Plan => ({ act: "send", atMs: Math.max(atMs, notBefore(key, held)) });
    if (held.told === null) {
      // An incident that may be there already is closed at its end, even if it need not have been sent.
      if (isOver(held) && held.openingMs !== null) return sendAt(nowMs);
      if (held.into !== null) return null;
      const keptBackMs = timing.keptBackMs(held, () => membersOf(book(), key));
      if (keptBackMs === 0) return sendAt(nowMs);
      // The receiver was not told of it and will not be.
      if (isOver(held)) return { act: "forget", atMs: nowMs };
      return { act: "look", atMs: nowMs + Math.min(keptBackMs, KEPT_BACK_LOOK_MS) };
    }
    if (!teller.isBehind(held)) return null;
    const isList = held.kind === "gateway" || held.kind === "storm";
    return sendAt(isList && !isOver(held) ? held.told.atMs + LIST_EDIT_MS : nowMs);
  }

  /** A failure is followed by a wait, and so is a search that found nothing yet. */
  function notBefore(key: string, { lookAtMs = 0, openingMs }: StoredIncident): number {
    return Math.max(retries.againMs(key) ?? 0, openingMs === null ? 0 : lookAtMs);
  }

  /** When it is sent again although nothing is new, because the receiver forgets. */
  function repeatOf(key: string, held: StoredIncident): Plan | null {
    const { told: last, status, changedMs } = held;
    const { repeatMs, repeatClosedMs = 0 } = receiver;
    if (repeatMs === undefined || last === null) return null;
    const atMs = last.atMs + repeatMs;
    if (status === "resolved" && Math.max(atMs, onwardMs()) - changedMs >= repeatClosedMs) return null;
    return { act: "repeat", atMs: Math.max(atMs, notBefore(key, held)) };
  }

  return planOf;
}
