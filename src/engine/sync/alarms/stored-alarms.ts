import type { Gateway, Host } from "../../../core/model/building.ts";
import { documentSet } from "../../store/store.ts";
import { createOfflineGatewayFinder } from "../inventory/gateways.ts";
import type { PollContext } from "../poll-dependencies.ts";
import { type StoredAlarm, type StoredAlarmSite, type StoredObject, type StoredSweep, syncSet } from "../snapshot.ts";
import { latestTimeMs, parseUtcMs } from "./alarm-times.ts";
import { isOpenAlarm } from "./diff-alarm.ts";

/** Retention of ended alarms without a readable time, and of vanished or unacknowledged alarms. */
const UNSURE_RETENTION_MS = 7 * 86_400_000;
/** Retention of other ended alarms: with a wrong time zone, an end is listed up to 14 hours late. */
const END_RETENTION_MS = 86_400_000;
const MAX_RETAINED_ENDS = 2_000;

export type AlarmStore = ReturnType<typeof openAlarmStore>;

export function openAlarmStore({ source: { name }, syncState, offlineGatewayOf }: PollContext) {
  const alarmSet = documentSet("alarm", name);
  const [siteSet, sweepSet] = [syncSet("alarm-site", name), syncSet("sweep", name)];
  const gateways = syncState.get<StoredObject<Gateway>>(documentSet("gateway", name));
  const hosts = syncState.get<StoredObject<Host>>(documentSet("host", name));
  return {
    ...{ alarmSet, siteSet, sweepSet },
    alarms: syncState.get<StoredAlarm>(alarmSet),
    sites: syncState.get<StoredAlarmSite>(siteSet),
    sweeps: syncState.get<StoredSweep>(sweepSet),
    gatewayFinder: () => createOfflineGatewayFinder(gateways, hosts, offlineGatewayOf),
  };
}

export function noteFirstListings(
  sites: AlarmStore["sites"],
  siteIds: Iterable<number>,
  field: "activeSince" | "resolvedSince",
  at: string,
): (readonly [string, StoredAlarmSite])[] {
  return [...siteIds].flatMap((siteId) => {
    const site = sites.get(String(siteId)) ?? { activeSince: null, resolvedSince: null };
    return site[field] === null ? [[String(siteId), { ...site, [field]: at }] as const] : [];
  });
}

/** Returns ended episodes that no sweep finds again, a day after their end, or a week without an acknowledgement. */
export function expiredAlarmIds(
  { alarms, sites, sweeps }: AlarmStore,
  changed: ReadonlyMap<string, StoredAlarm>,
  { nowMs, overlapMs }: { readonly nowMs: number; readonly overlapMs: number },
): readonly string[] {
  const watermarkMs = parseUtcMs(sweeps.get("resolved")?.watermark ?? null);
  const expiredIds: string[] = [];
  const retainedAlarms: { readonly id: string; readonly since: string }[] = [];
  for (const [id, stored] of alarms) {
    if (isOpenAlarm(stored) || changed.has(id)) continue;
    const { alarm, since, state, untold } = stored;
    const endMs = latestEndMs(stored);
    const sweptMs = parseUtcMs(sites.get(String(alarm.site.id))?.sweptUntil ?? null) ?? watermarkMs;
    const ageMs = nowMs - Date.parse(since);
    const isSwept = state === "resolved" && endMs !== null && sweptMs !== null;
    const isOld = isSwept ? endMs < sweptMs - 2 * overlapMs && ageMs > 2 * overlapMs : ageMs > UNSURE_RETENTION_MS;
    if (!isOld) continue;
    const awaitsAcknowledgement = untold !== true && !alarm.acknowledged;
    if (state === "resolved" && ageMs <= (awaitsAcknowledgement ? UNSURE_RETENTION_MS : END_RETENTION_MS))
      retainedAlarms.push({ id, since });
    else expiredIds.push(id);
  }
  const newestFirst = retainedAlarms.sort((one, other) => (one.since < other.since ? 1 : -1));
  return [...expiredIds, ...newestFirst.slice(MAX_RETAINED_ENDS).map(({ id }) => id)];
}

/** Latest end of all episodes of an alarm, milliseconds: the sweep would emit a deleted episode again. */
function latestEndMs({ alarm, former = [] }: StoredAlarm): number | null {
  const lastTimeMs = latestTimeMs(alarm);
  return lastTimeMs === null ? null : Math.max(lastTimeMs, ...former.map(({ endMs }) => endMs ?? 0));
}

export type ActiveAlarmCounts = ReadonlyMap<number, ReadonlyMap<string, number>>;

export function createActiveAlarmCounts() {
  const counts = new Map<number, Map<string, number>>();

  function addToCount(stored: StoredAlarm | undefined, by: 1 | -1): void {
    if (stored?.state !== "active" && stored?.state !== "missing") return;
    const { site, trigger } = stored.alarm;
    const siteCounts = counts.get(site.id) ?? new Map<string, number>();
    counts.set(site.id, siteCounts);
    const count = (siteCounts.get(trigger.priority) ?? 0) + by;
    if (count === 0) siteCounts.delete(trigger.priority);
    else siteCounts.set(trigger.priority, count);
    if (siteCounts.size === 0) counts.delete(site.id);
  }

  return {
    counts: counts as ActiveAlarmCounts,
    changed(before: StoredAlarm | undefined, after: StoredAlarm | undefined): void {
      addToCount(before, -1);
      addToCount(after, 1);
    },
  };
}
