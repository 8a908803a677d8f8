import { DateTime } from "luxon";
import type { PendingGatewayCheck, SilenceView } from "../../../src/core/connector.ts";
import type { AlarmPriority } from "../../../src/core/model/building.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { QuietHours, ReceiverConfig } from "./config.ts";
import type { IncidentNotifier, IncidentRetries } from "./notifier.ts";
import type { AlarmReceiver } from "./receiver-interface.ts";
import { findMembers, type IncidentLedger, isResolved, type StoredIncident } from "./stored-incident.ts";

/**
 * Queue of incidents to process. The cost of a change does not depend on the number of incidents.
 *     changed ──► (evaluated by the sink) ──► ready: by priority, then by arrival
 *        ▲                                └─► later: at a time ──┐
 *        └───────────────────────────────────────────────────────┘
 */
export function createIncidentQueue() {
  const changedIncidentKeys = new Set<string>();
  const readyKeysByPriority = new Map<string, Set<string>>();
  const priorityByIncidentKey = new Map<string, string>();
  const dueMsByIncidentKey = new Map<string, number>();
  /** Scheduled incidents by time. An entry is outdated if `dueMsByIncidentKey` has another time. */
  const schedule: { readonly atMs: number; readonly key: string }[] = [];

  function removeReadyIncident(key: string): void {
    const priority = priorityByIncidentKey.get(key) ?? "";
    priorityByIncidentKey.delete(key);
    const readyKeys = readyKeysByPriority.get(priority);
    readyKeys?.delete(key);
    if (readyKeys?.size === 0) readyKeysByPriority.delete(priority);
  }

  function findNextDueMs(): number {
    while (schedule[0] !== undefined && dueMsByIncidentKey.get(schedule[0].key) !== schedule[0].atMs) schedule.shift();
    return schedule[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  return {
    /** Marks an incident as changed, so that the sink evaluates it. */
    markChanged: (key: string) => void changedIncidentKeys.add(key),

    /** Removes and returns up to `maxCount` incidents that changed or whose scheduled time has come. */
    takeDueKeys(nowMs: number, maxCount: number): readonly string[] {
      const takenIncidentKeys = [...changedIncidentKeys.values().take(maxCount)];
      for (const key of takenIncidentKeys) changedIncidentKeys.delete(key);
      while (takenIncidentKeys.length < maxCount && findNextDueMs() <= nowMs) {
        const { key = "" } = schedule.shift() ?? {};
        dueMsByIncidentKey.delete(key);
        takenIncidentKeys.push(key);
      }
      return takenIncidentKeys;
    },

    /** Marks an incident as ready to send, ordered by priority. */
    markReady(key: string, priority: string): void {
      dueMsByIncidentKey.delete(key);
      if (priorityByIncidentKey.get(key) === priority) return;
      removeReadyIncident(key);
      priorityByIncidentKey.set(key, priority);
      readyKeysByPriority.set(priority, (readyKeysByPriority.get(priority) ?? new Set()).add(key));
    },

    /** Postpones an incident to a time. With an infinite time, the incident waits until it changes. */
    postponeIncident(key: string, atMs: number): void {
      removeReadyIncident(key);
      dueMsByIncidentKey.delete(key);
      if (atMs === Number.POSITIVE_INFINITY) return;
      dueMsByIncidentKey.set(key, atMs);
      let insertIndex = 0;
      for (let upperIndex = schedule.length; insertIndex < upperIndex; ) {
        const middleIndex = (insertIndex + upperIndex) >>> 1;
        if ((schedule[middleIndex]?.atMs ?? 0) <= atMs) insertIndex = middleIndex + 1;
        else upperIndex = middleIndex;
      }
      schedule.splice(insertIndex, 0, { atMs, key });
    },

    findFirstReadyKey(): string | undefined {
      const [priority = ""] = [...readyKeysByPriority.keys()].sort();
      return readyKeysByPriority.get(priority)?.values().next().value;
    },

    isReady: (key: string) => priorityByIncidentKey.has(key),
    readyCount: () => priorityByIncidentKey.size,
    readyCountOfPriority: (priority: string) => readyKeysByPriority.get(priority)?.size ?? 0,
    nextEvaluationMs: () => (changedIncidentKeys.size > 0 ? Number.NEGATIVE_INFINITY : findNextDueMs()),
  };
}

const ALARM_LIST_EDIT_INTERVAL_MS = 30_000;
/** Time for which an incident is stored after it ended or became invisible. */
const INCIDENT_RETENTION_MS = 30 * 86_400_000;
const MAX_INCIDENT_RECHECK_MS = 3_600_000;

interface IncidentAction {
  readonly action: "send" | "repeat" | "look" | "forget";
  readonly atMs: number;
}

/** Creates a function that returns the next action for an incident; null until an event changes the incident. */
export function createIncidentPlanner(
  { resendIntervalMs, resendAfterCloseMs = 0 }: Pick<AlarmReceiver, "resendIntervalMs" | "resendAfterCloseMs">,
  timing: NotificationTiming,
  notifier: IncidentNotifier,
  retries: IncidentRetries,
  keysToResend: ReadonlySet<string>,
  readLedger: () => IncidentLedger,
  monotonicMs: () => number,
): (key: string, storedIncident: StoredIncident) => IncidentAction | null {
  function planSending(key: string, storedIncident: StoredIncident, earliestMs: number): IncidentAction | null {
    const nowMs = monotonicMs();
    const planSendAt = (atMs: number): IncidentAction => ({ action: "send", atMs: Math.max(atMs, earliestMs) });
    if (storedIncident.told !== null) {
      if (!notifier.needsSending(storedIncident)) return null;
      const isGroup = storedIncident.kind === "gateway" || storedIncident.kind === "storm";
      return planSendAt(
        isGroup && !isResolved(storedIncident) ? storedIncident.told.atMs + ALARM_LIST_EDIT_INTERVAL_MS : nowMs,
      );
    }
    if (isResolved(storedIncident) && storedIncident.openingMs !== null) return planSendAt(nowMs);
    if (storedIncident.into !== null) return null;
    const delayMs = timing.computeDelayMs(storedIncident, () => findMembers(readLedger(), key));
    if (delayMs === 0) return planSendAt(nowMs);
    if (isResolved(storedIncident)) return { action: "forget", atMs: nowMs };
    return { action: "look", atMs: nowMs + Math.min(delayMs, MAX_INCIDENT_RECHECK_MS) };
  }

  function planRepeat({ told, status, changedMs }: StoredIncident, earliestMs: number): IncidentAction | null {
    if (resendIntervalMs === undefined || told === null) return null;
    const repeatAtMs = told.atMs + resendIntervalMs;
    if (status === "resolved" && Math.max(repeatAtMs, monotonicMs()) - changedMs >= resendAfterCloseMs) return null;
    return { action: "repeat", atMs: Math.max(repeatAtMs, earliestMs) };
  }

  return (key, incident) => {
    const isIncidentActive = !isResolved(incident) && incident.status !== "unknown";
    const forgetAtMs = isIncidentActive ? Number.POSITIVE_INFINITY : incident.changedMs + INCIDENT_RETENTION_MS + 1;
    const isStillRejected =
      incident.refused !== undefined && !keysToResend.has(key) && incident.refused === notifier.computeDigest(incident);
    const fromMs = Math.max(retries.retryAtMs(key) ?? 0, incident.openingMs === null ? 0 : (incident.lookAtMs ?? 0));
    const sendingPlan = isStillRejected ? null : (planSending(key, incident, fromMs) ?? planRepeat(incident, fromMs));
    if (sendingPlan !== null && sendingPlan.atMs <= forgetAtMs) return sendingPlan;
    return isIncidentActive ? null : { action: "forget", atMs: forgetAtMs };
  };
}

export type NotificationTiming = ReturnType<typeof createNotificationTiming>;

const MINUTE_MS = 60_000;
const MAX_CACHED_QUIET_MINUTES = 1_000;
/** Longest time for which an alarm waits until its site's gateways are read; with 56 sites, this takes two minutes. */
const MAX_GATEWAY_CHECK_WAIT_MS = 125_000;
const GATEWAY_CHECK_INTERVAL_MS = 1_000;
/** Wait after a site's gateways were read, so that an event `gateway-offline` arrives before the alarm is sent. */
const GATEWAY_EVENT_WAIT_MS = 2_000;
const WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;

/** Decides when an incident is sent: after `hold` and the check of the site's gateway, outside quiet hours and silences. */
export function createNotificationTiming(
  { hold, quiet }: Pick<ReceiverConfig, "hold" | "quiet">,
  clock: Pick<Clock, "now">,
  monotonicMs: () => number,
  getTimeZone: (source: string) => string,
) {
  let silences: readonly SilenceView[] = [];
  let silencesDigest = "[]";
  /** Sites with a pending gateway check. Value: time at which the entry expires unless the check is reported again. */
  const pendingGatewayChecks = new Map<string, number>();
  const quietUntilMsByMinute = new Map<string, number>();

  function areSilenced(alarms: readonly StoredIncident[], atMs: number): boolean {
    const currentSilences = silences.filter(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs);
    const isAlarmSilenced = ({ alarm, source }: StoredIncident) =>
      alarm !== null && currentSilences.some((silence) => silence.covers(source, alarm));
    return currentSilences.length > 0 && alarms.length > 0 && alarms.every(isAlarmSilenced);
  }

  /** Returns the earliest time to send an incident that began at `alarmStartMs`. Ignores silences. */
  const findNotificationStartMs = (priority: AlarmPriority, alarmStartMs: number, zone: string): number =>
    Math.max(alarmStartMs + hold, findQuietUntilMs(priority, alarmStartMs + hold, zone));

  return {
    notifyFromMs: findNotificationStartMs,

    /** Returns true when a silence was added, removed, started or ended since the last call. */
    updateSilences(views: readonly SilenceView[]): boolean {
      silences = views;
      const now = clock.now();
      const previousSilencesDigest = silencesDigest;
      silencesDigest = JSON.stringify(views.map(({ fromMs, toMs }) => [fromMs, toMs, fromMs <= now, toMs <= now]));
      return silencesDigest !== previousSilencesDigest;
    },

    /** Updates the pending gateway checks. Returns true while alarms of any site wait for the check of its gateway. */
    updateGatewayChecks(checks: readonly PendingGatewayCheck[]): boolean {
      const nowMs = monotonicMs();
      for (const { source, siteId, sinceMs } of checks)
        if (Math.abs(clock.now() - sinceMs) < MAX_GATEWAY_CHECK_WAIT_MS)
          pendingGatewayChecks.set(`${source} ${siteId}`, nowMs + GATEWAY_EVENT_WAIT_MS);
      for (const [site, untilMs] of pendingGatewayChecks) if (untilMs <= nowMs) pendingGatewayChecks.delete(site);
      return pendingGatewayChecks.size > 0;
    },

    /** Returns the milliseconds until an unsent incident may be sent: infinite for never or during a silence. */
    computeDelayMs(storedIncident: StoredIncident, listMembers: () => readonly StoredIncident[]): number {
      const { endedAt, metMs, holdFromMs, kind, priority, site, source, startedAt } = storedIncident;
      const now = clock.now();
      const alarms = silences.length === 0 ? [] : storedIncident.alarm === null ? listMembers() : [storedIncident];
      if (isResolved(storedIncident)) {
        // Never send an alarm that began and ended during `hold`, quiet hours or a silence.
        const alarmEndMs = parseTimeMsOr(endedAt, now);
        const alarmStartedMs = parseTimeMsOr(startedAt, metMs);
        const alarmStartMs = alarmStartedMs <= alarmEndMs ? alarmStartedMs : Math.min(metMs, alarmEndMs);
        const fromMs = findNotificationStartMs(priority, alarmStartMs, getTimeZone(source));
        const endedWhileWaiting =
          alarmEndMs < fromMs || (areSilenced(alarms, alarmStartMs) && areSilenced(alarms, alarmEndMs));
        return endedWhileWaiting ? Number.POSITIVE_INFINITY : 0;
      }
      // Quiet hours may have begun during `hold`.
      const waitForQuietHoursMs = findNotificationStartMs(priority, now - hold, getTimeZone(source)) - now;
      const isGatewayUnknown = kind === "alarm" && pendingGatewayChecks.has(`${source} ${site?.id}`);
      const gatewayWaitLeftMs = isGatewayUnknown ? metMs + MAX_GATEWAY_CHECK_WAIT_MS - monotonicMs() : 0;
      const waitForGatewayMs = Math.min(gatewayWaitLeftMs, GATEWAY_CHECK_INTERVAL_MS);
      const waitMs = Math.max(0, waitForQuietHoursMs, waitForGatewayMs, holdFromMs + hold - monotonicMs());
      return waitMs === 0 && areSilenced(alarms, now) ? Number.POSITIVE_INFINITY : waitMs;
    },
  };

  /** Returns the end of the quiet hours that contain a time; negative infinity outside quiet hours. */
  function findQuietUntilMs(priority: AlarmPriority, atMs: number, zone: string): number {
    const matchingQuietHours = quiet.filter(({ priorities }) => priorities.includes(priority));
    if (matchingQuietHours.length === 0) return Number.NEGATIVE_INFINITY;
    const cacheKey = `${priority} ${zone} ${Math.floor(atMs / MINUTE_MS)}`;
    const cachedQuietUntilMs = quietUntilMsByMinute.get(cacheKey);
    if (cachedQuietUntilMs !== undefined) return cachedQuietUntilMs;
    if (quietUntilMsByMinute.size >= MAX_CACHED_QUIET_MINUTES) quietUntilMsByMinute.clear();
    let quietUntilMs = Number.NEGATIVE_INFINITY;
    // Quiet hours may overlap: 22:00 to 06:00, and on Sundays until 10:00.
    for (let checkedRanges = 0; checkedRanges <= matchingQuietHours.length; checkedRanges += 1) {
      const fromMs = Math.max(atMs, quietUntilMs);
      const quietEndsMs = matchingQuietHours.flatMap((quietHours) => findQuietHoursEnd(quietHours, fromMs, zone) ?? []);
      if (quietEndsMs.length === 0) break;
      quietUntilMs = Math.max(...quietEndsMs);
    }
    quietUntilMsByMinute.set(cacheKey, quietUntilMs);
    return quietUntilMs;
  }
}

export function parseTimeMsOr(time: string | null, fallbackMs: number): number {
  const ms = time === null ? Number.NaN : Date.parse(time);
  return Number.isNaN(ms) ? fallbackMs : ms;
}

function findQuietHoursEnd({ days, from, to }: QuietHours, atMs: number, zone: string): number | null {
  const localTime = DateTime.fromMillis(atMs, { zone });
  if (!localTime.isValid) return null;
  for (const day of [localTime, localTime.minus({ days: 1 })]) {
    const quietHoursStart = setTimeOfDay(day, from);
    const end = setTimeOfDay(to < from ? day.plus({ days: 1 }) : day, to);
    const appliesToWeekday = days === undefined || days.includes(WEEKDAYS[day.weekday - 1] ?? "mon");
    if (appliesToWeekday && quietHoursStart.toMillis() <= atMs && atMs < end.toMillis()) return end.toMillis();
  }
  return null;
}

/** Sets the time of day. A time that a clock change skips becomes the next existing time. */
function setTimeOfDay(day: DateTime, time: string): DateTime {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return day.set({ hour, minute, second: 0, millisecond: 0 });
}

/** Creates a clock of milliseconds since 1970 that never goes back. It follows forward jumps, e.g. after a suspend. */
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
