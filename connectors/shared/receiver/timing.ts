import { DateTime } from "luxon";
import type { SilenceView } from "../../../src/core/connector.ts";
import type { Priority } from "../../../src/core/model/building.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { QuietHours, ReceiverConfig } from "./config.ts";
import { isOver, type StoredIncident } from "./stored-incident.ts";

export type Timing = ReturnType<typeof createTiming>;

const MINUTE_MS = 60_000;
/** Most cached results of quiet hours, one for each minute, priority and time zone. */
const MOST_MINUTES = 1_000;
const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;

/** Decides when an incident is sent: after `hold`, outside quiet hours and silences. */
export function createTiming(
  { hold, quiet }: Pick<ReceiverConfig, "hold" | "quiet">,
  {
    clock,
    monotonicMs,
    zoneOf,
  }: {
    readonly clock: Pick<Clock, "now">;
    /** Monotonic time, as in the stored incidents. */
    readonly monotonicMs: () => number;
    readonly zoneOf: (source: string) => string;
  },
) {
  let silences: readonly SilenceView[] = [];
  let silencesDigest = "[]";
  const quietByMinute = new Map<string, number>();

  /** True when silences cover all these alarms at a time. */
  function isSilent(alarms: readonly StoredIncident[], atMs: number): boolean {
    const then = silences.filter(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs);
    const isCovered = ({ alarm, source }: StoredIncident) =>
      alarm !== null && then.some((silence) => silence.covers(source, alarm));
    return then.length > 0 && alarms.length > 0 && alarms.every(isCovered);
  }

  /** Earliest time to send an incident that began at `beganMs` and is still active. Ignores silences. */
  function notifyFromMs(priority: Priority, beganMs: number, zone: string): number {
    return Math.max(beganMs + hold, quietUntilMs(priority, beganMs + hold, zone));
  }

  return {
    notifyFromMs,

    /** Sets the silences. Returns true when one was added, removed, started or ended since the last call. */
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
        // Never send an alarm that began and ended while it waited. If the end has no time of the service, it may
        // lie before the beginning.
        const endedMs = parseTimeOr(endedAt, now);
        const startedMs = parseTimeOr(startedAt, metMs);
        const beganMs = startedMs <= endedMs ? startedMs : Math.min(metMs, endedMs);
        const fromMs = notifyFromMs(priority, beganMs, zoneOf(source));
        const isNever = endedMs < fromMs || (isSilent(alarms, beganMs) && isSilent(alarms, endedMs));
        return isNever ? Number.POSITIVE_INFINITY : 0;
      }
      // Quiet hours may have begun while the alarm waited for its `hold`.
      const quietMs = notifyFromMs(priority, now - hold, zoneOf(source)) - now;
      const waitMs = Math.max(0, quietMs, holdFromMs + hold - monotonicMs());
      return waitMs === 0 && isSilent(alarms, now) ? Number.POSITIVE_INFINITY : waitMs;
    },
  };

  /** End of the quiet hours that contain a time; negative infinity outside them. */
  function quietUntilMs(priority: Priority, atMs: number, zone: string): number {
    const hours = quiet.filter(({ priorities }) => priorities.includes(priority));
    if (hours.length === 0) return Number.NEGATIVE_INFINITY;
    // Quiet hours begin and end with a minute, so one result holds for the whole minute.
    const key = `${priority} ${zone} ${Math.floor(atMs / MINUTE_MS)}`;
    const cached = quietByMinute.get(key);
    if (cached !== undefined) return cached;
    if (quietByMinute.size >= MOST_MINUTES) quietByMinute.clear();
    let untilMs = Number.NEGATIVE_INFINITY;
    // Quiet hours may overlap: 22:00 to 06:00, and on Sundays until 10:00.
    for (let rounds = 0; rounds <= hours.length; rounds += 1) {
      const fromMs = Math.max(atMs, untilMs);
      const ends = hours.map((each) => endOfQuiet(each, fromMs, zone)).filter((end) => end !== null);
      if (ends.length === 0) break;
      untilMs = Math.max(...ends);
    }
    quietByMinute.set(key, untilMs);
    return untilMs;
  }
}

/** Returns a time in milliseconds since 1970; `otherMs` for an invalid one. */
export function parseTimeOr(time: string | null, otherMs: number): number {
  const ms = time === null ? Number.NaN : Date.parse(time);
  return Number.isNaN(ms) ? otherMs : ms;
}

/** Returns the end of the quiet hours that contain a time; null outside them. */
function endOfQuiet({ days, from, to }: QuietHours, atMs: number, zone: string): number | null {
  const at = DateTime.fromMillis(atMs, { zone });
  if (!at.isValid) return null;
  // Quiet hours may begin today, or yesterday and last until today.
  for (const day of [at, at.minus({ days: 1 })]) {
    const start = atTime(day, from);
    const end = atTime(to < from ? day.plus({ days: 1 }) : day, to);
    const isDay = days === undefined || days.includes(DAYS[day.weekday - 1] ?? "mon");
    if (isDay && start.toMillis() <= atMs && atMs < end.toMillis()) return end.toMillis();
  }
  return null;
}

/** A time that does not exist on the day of a clock change becomes the next one that does. */
function atTime(day: DateTime, time: string): DateTime {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return day.set({ hour, minute, second: 0, millisecond: 0 });
}

/**
 * Milliseconds since 1970 that never go back while the process runs, so that setting the wall clock back delays
 * nothing. Forward jumps count: the machine may have been suspended.
 */
export function createMonotonicClock(clock: Pick<Clock, "now" | "monotonic">): () => number {
  let latestMs = clock.now();
  let lookedMs = clock.monotonic();
  return () => {
    const nowMs = clock.monotonic();
    latestMs = Math.max(clock.now(), latestMs + nowMs - lookedMs);
    lookedMs = nowMs;
    return latestMs;
  };
}
