import { DateTime } from "luxon";
import type { SilenceView } from "../../../src/core/connector.ts";
import type { Priority } from "../../../src/core/model/building.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { QuietHours, ReceiverConfig } from "./config.ts";
import type { IncidentRetries, Notifier } from "./notifier.ts";
import type { Receiver } from "./receiver.ts";
import { findMembers, type IncidentLedger, isOver, type StoredIncident } from "./stored-incident.ts";

/**
 * Queue of incidents to process, changed or scheduled. The cost does not depend on other incidents.
 *
 *     changed ──► (evaluated by the sink) ──► ready: A before B before C, first come first
 *        ▲                                └─► later: at a time ──┐
 *        └───────────────────────────────────────────────────────┘
 */
export function createAgenda() {
  const changed = new Set<string>();
  const ready = new Map<string, Set<string>>();
  const priorities = new Map<string, string>();
  const times = new Map<string, number>();
  /** Scheduled incidents by time. An entry is outdated if `times` has another time for its key. */
  const queue: { readonly atMs: number; readonly key: string }[] = [];

  function leaveReady(key: string): void {
    const priority = priorities.get(key) ?? "";
    priorities.delete(key);
    const keys = ready.get(priority);
    keys?.delete(key);
    if (keys?.size === 0) ready.delete(priority);
  }

  function nextTimeMs(): number {
    while (queue[0] !== undefined && times.get(queue[0].key) !== queue[0].atMs) queue.shift();
    return queue[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  return {
    change: (key: string) => void changed.add(key),

    /** Takes up to `max` incidents that changed or are due. */
    take(nowMs: number, max: number): readonly string[] {
      const taken = [...changed.values().take(max)];
      for (const key of taken) changed.delete(key);
      while (taken.length < max && nextTimeMs() <= nowMs) {
        const { key = "" } = queue.shift() ?? {};
        times.delete(key);
        taken.push(key);
      }
      return taken;
    },

    ready(key: string, priority: string): void {
      times.delete(key);
      if (priorities.get(key) === priority) return;
      leaveReady(key);
      priorities.set(key, priority);
      ready.set(priority, (ready.get(priority) ?? new Set()).add(key));
    },

    /** Postpones an incident to a time; infinite: until the incident changes. */
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

    /** Returns the incident with the most urgent priority that has waited longest. */
    first(): string | undefined {
      const [priority = ""] = [...ready.keys()].sort();
      return ready.get(priority)?.values().next().value;
    },

    size: (priority?: string) => (priority === undefined ? priorities.size : (ready.get(priority)?.size ?? 0)),

    nextMs: () => (changed.size > 0 ? Number.NEGATIVE_INFINITY : nextTimeMs()),
  };
}

const LIST_EDIT_INTERVAL_MS = 30_000;
/** Time for which an incident is stored after it ended or became invisible. */
const INCIDENT_RETENTION_MS = 30 * 86_400_000;
const MAX_DELAY_CHECK_MS = 3_600_000;

interface IncidentPlan {
  readonly act: "send" | "repeat" | "look" | "forget";
  readonly atMs: number;
}

/** Creates a function that returns the next action of an incident, or null to wait for an event. */
export function createIncidentPlanner(options: {
  readonly receiver: Pick<Receiver, "repeatMs" | "repeatClosedMs">;
  readonly timing: NotificationTiming;
  readonly notifier: Notifier;
  readonly retries: IncidentRetries;
  readonly resendRequested: ReadonlySet<string>;
  readonly ledger: () => IncidentLedger;
  readonly monotonicMs: () => number;
}): (key: string, stored: StoredIncident) => IncidentPlan | null {
  const { receiver, timing, notifier, retries, resendRequested, ledger, monotonicMs } = options;

  function planSending(key: string, stored: StoredIncident, fromMs: number): IncidentPlan | null {
    const nowMs = monotonicMs();
    const sendAt = (atMs: number): IncidentPlan => ({ act: "send", atMs: Math.max(atMs, fromMs) });
    if (stored.told !== null) {
      if (!notifier.needsSending(stored)) return null;
      const isList = stored.kind === "gateway" || stored.kind === "storm";
      return sendAt(isList && !isOver(stored) ? stored.told.atMs + LIST_EDIT_INTERVAL_MS : nowMs);
    }
    // An incident that may exist at the receiver is closed at its end.
    if (isOver(stored) && stored.openingMs !== null) return sendAt(nowMs);
    if (stored.into !== null) return null;
    const delayMs = timing.delayMs(stored, () => findMembers(ledger(), key));
    if (delayMs === 0) return sendAt(nowMs);
    if (isOver(stored)) return { act: "forget", atMs: nowMs };
    return { act: "look", atMs: nowMs + Math.min(delayMs, MAX_DELAY_CHECK_MS) };
  }

  function planRepeat({ told, status, changedMs }: StoredIncident, fromMs: number): IncidentPlan | null {
    const { repeatMs, repeatClosedMs = 0 } = receiver;
    if (repeatMs === undefined || told === null) return null;
    const atMs = told.atMs + repeatMs;
    if (status === "resolved" && Math.max(atMs, monotonicMs()) - changedMs >= repeatClosedMs) return null;
    return { act: "repeat", atMs: Math.max(atMs, fromMs) };
  }

  return (key, stored) => {
    // Keep active alarms however old, so that they can be closed.
    const isKept = !isOver(stored) && stored.status !== "unknown";
    const forgetMs = isKept ? Number.POSITIVE_INFINITY : stored.changedMs + INCIDENT_RETENTION_MS + 1;
    const isRefused =
      stored.refused !== undefined && !resendRequested.has(key) && stored.refused === notifier.digestOf(stored);
    const fromMs = Math.max(retries.againMs(key) ?? 0, stored.openingMs === null ? 0 : (stored.lookAtMs ?? 0));
    const sending = isRefused ? null : (planSending(key, stored, fromMs) ?? planRepeat(stored, fromMs));
    if (sending !== null && sending.atMs <= forgetMs) return sending;
    return isKept ? null : { act: "forget", atMs: forgetMs };
  };
}

export type NotificationTiming = ReturnType<typeof createNotificationTiming>;

const MINUTE_MS = 60_000;
const MAX_CACHED_MINUTES = 1_000;
const WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;

/** Decides when an incident is sent: after `hold`, outside quiet hours and silences. */
export function createNotificationTiming(
  { hold, quiet }: Pick<ReceiverConfig, "hold" | "quiet">,
  {
    clock,
    monotonicMs,
    zoneOf,
  }: {
    readonly clock: Pick<Clock, "now">;
    readonly monotonicMs: () => number;
    readonly zoneOf: (source: string) => string;
  },
) {
  let silences: readonly SilenceView[] = [];
  let silencesDigest = "[]";
  const quietByMinute = new Map<string, number>();

  function isSilent(alarms: readonly StoredIncident[], atMs: number): boolean {
    const current = silences.filter(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs);
    const isCovered = ({ alarm, source }: StoredIncident) =>
      alarm !== null && current.some((silence) => silence.covers(source, alarm));
    return current.length > 0 && alarms.length > 0 && alarms.every(isCovered);
  }

  /** Earliest time for an active incident that began at `beganMs`. Ignores silences. */
  function findNotifyFromMs(priority: Priority, beganMs: number, zone: string): number {
    return Math.max(beganMs + hold, findQuietUntilMs(priority, beganMs + hold, zone));
  }

  return {
    notifyFromMs: findNotifyFromMs,

    /** Returns true when a silence was added, removed, started or ended since the last call. */
    updateSilences(next: readonly SilenceView[]): boolean {
      silences = next;
      const now = clock.now();
      const before = silencesDigest;
      silencesDigest = JSON.stringify(next.map(({ fromMs, toMs }) => [fromMs, toMs, fromMs <= now, toMs <= now]));
      return silencesDigest !== before;
    },

    /** Milliseconds until an unsent incident may be sent: 0 for now, infinite for never or during a silence. */
    delayMs(stored: StoredIncident, members: () => readonly StoredIncident[]): number {
      const { endedAt, metMs, holdFromMs, priority, source, startedAt } = stored;
      const now = clock.now();
      const alarms = silences.length === 0 ? [] : stored.alarm === null ? members() : [stored];
      if (isOver(stored)) {
        // Never send an alarm that began and ended while it waited. An end without a time of the service may be early.
        const endedMs = parseTimeOr(endedAt, now);
        const startedMs = parseTimeOr(startedAt, metMs);
        const beganMs = startedMs <= endedMs ? startedMs : Math.min(metMs, endedMs);
        const fromMs = findNotifyFromMs(priority, beganMs, zoneOf(source));
        const isNever = endedMs < fromMs || (isSilent(alarms, beganMs) && isSilent(alarms, endedMs));
        return isNever ? Number.POSITIVE_INFINITY : 0;
      }
      // Quiet hours may have begun during `hold`.
      const quietMs = findNotifyFromMs(priority, now - hold, zoneOf(source)) - now;
      const waitMs = Math.max(0, quietMs, holdFromMs + hold - monotonicMs());
      return waitMs === 0 && isSilent(alarms, now) ? Number.POSITIVE_INFINITY : waitMs;
    },
  };

  /** End of the quiet hours that contain a time; negative infinity outside them. */
  function findQuietUntilMs(priority: Priority, atMs: number, zone: string): number {
    const hours = quiet.filter(({ priorities }) => priorities.includes(priority));
    if (hours.length === 0) return Number.NEGATIVE_INFINITY;
    // Quiet hours begin and end with a minute, so one result holds for the whole minute.
    const key = `${priority} ${zone} ${Math.floor(atMs / MINUTE_MS)}`;
    const cached = quietByMinute.get(key);
    if (cached !== undefined) return cached;
    if (quietByMinute.size >= MAX_CACHED_MINUTES) quietByMinute.clear();
    let untilMs = Number.NEGATIVE_INFINITY;
    // Quiet hours may overlap: 22:00 to 06:00, and on Sundays until 10:00.
    for (let rounds = 0; rounds <= hours.length; rounds += 1) {
      const fromMs = Math.max(atMs, untilMs);
      const ends = hours.map((quietHours) => findQuietHoursEnd(quietHours, fromMs, zone)).filter((end) => end !== null);
      if (ends.length === 0) break;
      untilMs = Math.max(...ends);
    }
    quietByMinute.set(key, untilMs);
    return untilMs;
  }
}

export function parseTimeOr(time: string | null, otherMs: number): number {
  const ms = time === null ? Number.NaN : Date.parse(time);
  return Number.isNaN(ms) ? otherMs : ms;
}

function findQuietHoursEnd({ days, from, to }: QuietHours, atMs: number, zone: string): number | null {
  const at = DateTime.fromMillis(atMs, { zone });
  if (!at.isValid) return null;
  for (const day of [at, at.minus({ days: 1 })]) {
    const start = setTimeOfDay(day, from);
    const end = setTimeOfDay(to < from ? day.plus({ days: 1 }) : day, to);
    const isDay = days === undefined || days.includes(WEEKDAYS[day.weekday - 1] ?? "mon");
    if (isDay && start.toMillis() <= atMs && atMs < end.toMillis()) return end.toMillis();
  }
  return null;
}

/** Sets the time of day. A time that a clock change skips becomes the next existing time. */
function setTimeOfDay(day: DateTime, time: string): DateTime {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return day.set({ hour, minute, second: 0, millisecond: 0 });
}

/** Milliseconds since 1970 that never go back. Forward jumps count: the machine may have been suspended. */
export function createMonotonicClock(clock: Pick<Clock, "now" | "monotonic">): () => number {
  let latestMs = clock.now();
  let lastReadMs = clock.monotonic();
  return () => {
    const nowMs = clock.monotonic();
    latestMs = Math.max(clock.now(), latestMs + nowMs - lastReadMs);
    lastReadMs = nowMs;
    return latestMs;
  };
}
