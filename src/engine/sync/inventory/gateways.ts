import type { Alarm, Gateway, Host } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Page } from "../../source/source.ts";
import type { Listed } from "../snapshot.ts";

export type Gateways = ReadonlyMap<string, Listed<Gateway>>;
type Hosts = ReadonlyMap<string, Listed<Host>>;

/**
 * Returns which offline gateway explains an alarm: all gateways and hosts with the name of its source are behind it,
 * or it is the site's only gateway. The interface links no alarm and no tag to a gateway.
 */
export function behindGateway(
  gateways: Gateways,
  hosts: Hosts,
  onlyOffline: (siteId: number) => string | null = () => null,
): (alarm: Alarm) => string | null {
  const offline = new Set(presentOf(gateways).flatMap(({ value }) => (value.online === false ? [value.id] : [])));
  if (offline.size === 0) return () => null;
  const named = [
    ...[...gateways.values()].map(({ siteId, value }) => ({ siteId, name: value.displayName, id: value.id })),
    ...presentOf(hosts).flatMap(({ siteId, value: { displayName: name, gateway } }) =>
      gateway === null ? [] : [{ siteId, name, id: String(gateway.id) }],
    ),
  ];
  const byName = Map.groupBy(named, ({ siteId, name }) => `${siteId} ${name}`);
  return (alarm) => {
    for (const name of [alarm.source, alarm.lastActiveEvent?.source]) {
      const [only, ...others] = new Set((byName.get(`${alarm.site.id} ${name}`) ?? []).map(({ id }) => id));
      if (only !== undefined && others.length === 0 && offline.has(only)) return only;
    }
    return onlyOffline(alarm.site.id);
  };
}

function presentOf<T>(listed: ReadonlyMap<string, Listed<T>>): readonly Listed<T>[] {
  return [...listed.values()].filter(({ missingSince }) => missingSince === null);
}

export function hostsBehind(hosts: Hosts, gatewayId: string) {
  return presentOf(hosts)
    .filter(({ value }) => String(value.gateway?.id) === gatewayId)
    .map(({ value: { id, displayName } }) => ({ id, displayName }))
    .sort((one, other) => (one.displayName < other.displayName ? -1 : 1));
}

/** Offline gateways by site, of sites with one gateway: all tags of such a site are read through it (interface). */
export function offlineGateways(gateways: Gateways): ReadonlyMap<number, string> {
  const offline = new Map<number, string>();
  for (const [siteId, [only, ...others]] of Map.groupBy(presentOf(gateways), ({ siteId }) => siteId))
    if (siteId !== null && only?.value.online === false && others.length === 0) offline.set(siteId, only.value.id);
  return offline;
}

export function hasOnlyOneOnline(gateways: Gateways, siteId: number): boolean {
  const [only, ...others] = presentOf(gateways).filter((gateway) => gateway.siteId === siteId);
  return only !== undefined && others.length === 0 && only.value.online !== false;
}

export function hasOffline(gateways: Gateways, siteId: number): boolean {
  return presentOf(gateways).some((gateway) => gateway.siteId === siteId && gateway.value.online === false);
}

export type OfflineGateways = ReturnType<typeof createOfflineGateways>;

const REUSE_MS = 1_000;
const LATE_MS = 60_000;

/** Offline gateways while their list is recent: after an old list the gateway may be back and needs its interval. */
export function createOfflineGateways(
  stored: () => Gateways,
  /** Returns a function from a time to that of the next list, milliseconds since 1970; null when lists are not read. */
  nextList: () => ((afterMs: number) => number) | null,
  clock: Clock,
) {
  /** Monotonic time until which a site's list counts: until the next two are due and neither came. */
  const countsUntilMs = new Map<number, number>();
  const twoListsLaterMs = () => {
    const nextListMs = nextList();
    if (nextListMs === null) return Number.NEGATIVE_INFINITY;
    const nowMs = clock.now();
    return clock.monotonic() + nextListMs(nextListMs(nowMs)) - nowMs + LATE_MS;
  };
  /** Gateways stored at the start count as listed at the start. */
  const atStartMs = twoListsLaterMs();
  let derivedMs = Number.NEGATIVE_INFINITY;
  let offline: ReadonlyMap<number, string> = new Map();

  return {
    async *watchPages(siteId: number, pages: AsyncIterable<Page<Gateway>>): AsyncIterable<Page<Gateway>> {
      for await (const page of pages) {
        if (!page.more) countsUntilMs.set(siteId, twoListsLaterMs());
        yield page;
      }
    },
    of(siteId: number): string | null {
      const nowMs = clock.monotonic();
      if (nowMs > (countsUntilMs.get(siteId) ?? atStartMs)) return null;
      if (nowMs - derivedMs >= REUSE_MS) {
        offline = offlineGateways(stored());
        derivedMs = nowMs;
      }
      return offline.get(siteId) ?? null;
    },
  };
}
