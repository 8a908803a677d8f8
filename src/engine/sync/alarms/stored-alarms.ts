import type { Gateway, Host } from "../../../core/model/building.ts";
import { documentSet } from "../../store/store.ts";
import { createAlarmGatewayFinder, findOnlyOnlineGateway } from "../inventory/gateways.ts";
import type { PollContext } from "../poll-context.ts";
import {
  type AlarmSweep,
  type StoredAlarm,
  type StoredAlarmSite,
  type StoredObject,
  syncSet,
} from "../stored-documents.ts";
import { latestAlarmTimeMs, parseUtcMs } from "./alarm-times.ts";
import { isOpenAlarm } from "./diff-alarm.ts";

/** Time for which Plenum stores vanished alarms, and ended alarms that lack an acknowledgement or a readable end. */
const LONG_ALARM_RETENTION_MS = 7 * 86_400_000;
/** Time for which acknowledged ended alarms are stored: a day, because a wrong time zone may delay an end by 14 h. */
const ENDED_ALARM_RETENTION_MS = 86_400_000;
const MAX_RETAINED_ENDED_ALARMS = 2_000;

export type AlarmStore = ReturnType<typeof openAlarmStore>;

export function openAlarmStore({ source: { name }, syncState, offlineGatewayOf }: PollContext) {
  const alarmSet = documentSet("alarm", name);
  const [siteSet, sweepSet] = [syncSet("alarm-site", name), syncSet("sweep", name)];
  const storedGateways = syncState.get<StoredObject<Gateway>>(documentSet("gateway", name));
  const storedHosts = syncState.get<StoredObject<Host>>(documentSet("host", name));
  return {
    ...{ alarmSet, siteSet, sweepSet },
    alarms: syncState.get<StoredAlarm>(alarmSet),
    sites: syncState.get<StoredAlarmSite>(siteSet),
    sweeps: syncState.get<AlarmSweep>(sweepSet),
    gatewayFinder: () => createAlarmGatewayFinder(storedGateways, storedHosts, true, offlineGatewayOf),
    /** Finds a gateway that was online at its last poll and would explain an alarm if it is offline now. */
    onlineGatewayFinder: () =>
      createAlarmGatewayFinder(storedGateways, storedHosts, false, (id) => findOnlyOnlineGateway(storedGateways, id)),
  };
}

export function recordFirstSiteLists(
  sites: AlarmStore["sites"],
  siteIds: Iterable<number>,
  field: "activeSince" | "resolvedSince",
  listedAt: string,
): (readonly [string, StoredAlarmSite])[] {
  return [...siteIds].flatMap((siteId) => {
    const site = sites.get(String(siteId)) ?? { activeSince: null, resolvedSince: null };
    return site[field] === null ? [[String(siteId), { ...site, [field]: listedAt }] as const] : [];
  });
}

/** Returns the ids of ended alarms that may be deleted, because no sweep can find them again. */
export function expiredAlarmIds(
  { alarms, sites, sweeps }: AlarmStore,
  changedAlarms: ReadonlyMap<string, StoredAlarm>,
  { nowMs, overlapMs }: { readonly nowMs: number; readonly overlapMs: number },
): readonly string[] {
  const watermarkMs = parseUtcMs(sweeps.get("resolved")?.watermark ?? null);
  const idsOfExpiredAlarms: string[] = [];
  const retainedAlarms: { readonly id: string; readonly since: string }[] = [];
  for (const [id, storedAlarm] of alarms) {
    if (isOpenAlarm(storedAlarm) || changedAlarms.has(id)) continue;
    const { alarm, since, state, untold } = storedAlarm;
    const endMs = latestAlarmEndMs(storedAlarm);
    const sweptMs = parseUtcMs(sites.get(String(alarm.site.id))?.sweptUntil ?? null) ?? watermarkMs;
    const alarmAgeMs = nowMs - Date.parse(since);
    const isEndSwept = state === "resolved" && endMs !== null && sweptMs !== null;
    const isAlarmOld = isEndSwept
      ? endMs < sweptMs - 2 * overlapMs && alarmAgeMs > 2 * overlapMs
      : alarmAgeMs > LONG_ALARM_RETENTION_MS;
    if (!isAlarmOld) continue;
    const awaitsAcknowledgement = untold !== true && !alarm.acknowledged;
    const retentionMs = awaitsAcknowledgement ? LONG_ALARM_RETENTION_MS : ENDED_ALARM_RETENTION_MS;
    if (state === "resolved" && alarmAgeMs <= retentionMs) retainedAlarms.push({ id, since });
    else idsOfExpiredAlarms.push(id);
  }
  const newestRetainedAlarms = retainedAlarms.sort((a, b) => (a.since < b.since ? 1 : -1));
  return [...idsOfExpiredAlarms, ...newestRetainedAlarms.slice(MAX_RETAINED_ENDED_ALARMS).map(({ id }) => id)];
}

function latestAlarmEndMs({ alarm, former = [] }: StoredAlarm): number | null {
  const presentEndMs = latestAlarmTimeMs(alarm);
  return presentEndMs === null ? null : Math.max(presentEndMs, ...former.map(({ endMs }) => endMs ?? 0));
}

export type ActiveAlarmCounts = ReadonlyMap<number, ReadonlyMap<string, number>>;

export function createActiveAlarmCounts() {
  const alarmCountsBySite = new Map<number, Map<string, number>>();

  function addToAlarmCount(storedAlarm: StoredAlarm | undefined, increment: 1 | -1): void {
    if (storedAlarm?.state !== "active" && storedAlarm?.state !== "missing") return;
    const { site, trigger } = storedAlarm.alarm;
    const siteAlarmCounts = alarmCountsBySite.get(site.id) ?? new Map<string, number>();
    alarmCountsBySite.set(site.id, siteAlarmCounts);
    const newAlarmCount = (siteAlarmCounts.get(trigger.priority) ?? 0) + increment;
    if (newAlarmCount === 0) siteAlarmCounts.delete(trigger.priority);
    else siteAlarmCounts.set(trigger.priority, newAlarmCount);
    if (siteAlarmCounts.size === 0) alarmCountsBySite.delete(site.id);
  }

  return {
    counts: alarmCountsBySite as ActiveAlarmCounts,
    noteAlarmChange(before: StoredAlarm | undefined, after: StoredAlarm | undefined): void {
      addToAlarmCount(before, -1);
      addToAlarmCount(after, 1);
    },
  };
}
