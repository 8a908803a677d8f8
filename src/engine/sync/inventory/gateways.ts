import type { Alarm, Gateway, Host } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { ListPage } from "../../source/source.ts";
import type { StoredObject } from "../stored-documents.ts";

export type StoredGateways = ReadonlyMap<string, StoredObject<Gateway>>;
type StoredHosts = ReadonlyMap<string, StoredObject<Host>>;

/**
 * Finds the gateway behind an alarm, among the offline gateways or among the others. The service does not state it:
 * Plenum takes the gateway that has, or whose host has, the name of the alarm's source, else the site's only gateway.
 */
export function createAlarmGatewayFinder(
  gateways: StoredGateways,
  hosts: StoredHosts,
  isOffline: boolean,
  findOnlyGateway: (siteId: number) => string | null,
): (alarm: Alarm) => string | null {
  const candidates = presentObjects(gateways).filter(({ value }) => (value.online === false) === isOffline);
  const candidateGatewayIds = new Set(candidates.map(({ value }) => value.id));
  if (candidateGatewayIds.size === 0) return () => null;
  const namedGatewaysAndHosts = [
    ...[...gateways.values()].map(({ siteId, value }) => ({ siteId, name: value.displayName, id: value.id })),
    ...presentObjects(hosts).flatMap(({ siteId, value: { displayName: name, gateway } }) =>
      gateway === null ? [] : [{ siteId, name, id: String(gateway.id) }],
    ),
  ];
  const gatewaysByName = Map.groupBy(namedGatewaysAndHosts, ({ siteId, name }) => `${siteId} ${name}`);
  return (alarm) => {
    for (const alarmSourceName of [alarm.source, alarm.lastActiveEvent?.source]) {
      const namesakes = gatewaysByName.get(`${alarm.site.id} ${alarmSourceName}`) ?? [];
      const [id, ...otherIds] = new Set(namesakes.map((namesake) => namesake.id));
      if (id !== undefined && otherIds.length === 0 && candidateGatewayIds.has(id)) return id;
    }
    return findOnlyGateway(alarm.site.id);
  };
}

export function presentObjects<T>(objectsById: ReadonlyMap<string, StoredObject<T>>): readonly StoredObject<T>[] {
  return [...objectsById.values()].filter(({ missingSince }) => missingSince === null);
}

export function findHostsBehind(hosts: StoredHosts, gatewayId: string) {
  return presentObjects(hosts)
    .filter(({ value }) => String(value.gateway?.id) === gatewayId)
    .map(({ value: { id, displayName } }) => ({ id, displayName }))
    .sort((a, b) => (a.displayName < b.displayName ? -1 : 1));
}

export function findOfflineGatewayBySite(gateways: StoredGateways): ReadonlyMap<number, string> {
  const gatewayIdBySite = new Map<number, string>();
  for (const [siteId, [singleGateway, ...others]] of Map.groupBy(presentObjects(gateways), ({ siteId }) => siteId))
    if (siteId !== null && singleGateway?.value.online === false && others.length === 0)
      gatewayIdBySite.set(siteId, singleGateway.value.id);
  return gatewayIdBySite;
}

export function findOnlyOnlineGateway(gateways: StoredGateways, siteId: number): string | null {
  const [singleGateway, ...otherGateways] = presentObjects(gateways).filter((gateway) => gateway.siteId === siteId);
  return singleGateway?.value.online === false || otherGateways.length > 0 ? null : (singleGateway?.value.id ?? null);
}

export function hasOfflineGateway(gateways: StoredGateways, siteId: number): boolean {
  return presentObjects(gateways).some((gateway) => gateway.siteId === siteId && gateway.value.online === false);
}

export type OfflineGateways = ReturnType<typeof createOfflineGateways>;

const OFFLINE_GATEWAY_CACHE_MS = 1_000;
const GATEWAY_LIST_DELAY_MS = 60_000;

/** Returns a site's offline gateway while the site's list of gateways is recent; later it may be online again. */
export function createOfflineGateways(
  getStoredGateways: () => StoredGateways,
  /** Returns a function that gives the time of the next list after a time; null if gateways are not polled. */
  getNextListTime: () => ((afterMs: number) => number) | null,
  clock: Clock,
) {
  /** Time until which each site's list of gateways is recent, by site: until two further lists are overdue. */
  const listValidUntilMsBySite = new Map<number, number>();
  const timeAfterTwoListsMs = () => {
    const nextGatewayListMs = getNextListTime();
    if (nextGatewayListMs === null) return Number.NEGATIVE_INFINITY;
    const nowMs = clock.now();
    return clock.monotonic() + nextGatewayListMs(nextGatewayListMs(nowMs)) - nowMs + GATEWAY_LIST_DELAY_MS;
  };
  const firstListValidUntilMs = timeAfterTwoListsMs();
  let cachedAtMs = Number.NEGATIVE_INFINITY;
  let offlineGateways: ReadonlyMap<number, string> = new Map();
  return {
    async *watchPages(siteId: number, pages: AsyncIterable<ListPage<Gateway>>): AsyncIterable<ListPage<Gateway>> {
      for await (const page of pages) {
        if (!page.hasMore) listValidUntilMsBySite.set(siteId, timeAfterTwoListsMs());
        yield page;
      }
    },
    offlineGatewayOf(siteId: number): string | null {
      const nowMs = clock.monotonic();
      if (nowMs > (listValidUntilMsBySite.get(siteId) ?? firstListValidUntilMs)) return null;
      if (nowMs - cachedAtMs >= OFFLINE_GATEWAY_CACHE_MS) {
        offlineGateways = findOfflineGatewayBySite(getStoredGateways());
        cachedAtMs = nowMs;
      }
      return offlineGateways.get(siteId) ?? null;
    },
  };
}
