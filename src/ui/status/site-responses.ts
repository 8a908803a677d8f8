import type { Gateway, Site, System } from "../../core/model/building.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet } from "../../engine/store/store.ts";
import { type StoredObject, type StoredTagSystems, syncSet } from "../../engine/sync/stored-documents.ts";
import { activeAlarms } from "./alarm-api-responses.ts";
import { SLOW_DATA_AGE_MS, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { ScopeQuery } from "./query-parameters.ts";
import type { ResponseContext } from "./response-context.ts";
import { countBy } from "./source-reports.ts";

export type SiteResponse = NonNullable<Awaited<ReturnType<typeof siteResponse>>>;

/** GET /api/alarm-days?source&site: raised alarms of the last 30 UTC days. */
export interface AlarmDayCounts {
  readonly days: readonly string[];
  readonly byPriority: Readonly<Record<string, readonly number[]>>;
}

const DAY_COUNT = 30;
const DAY_MS = 86_400_000;

export async function alarmDays({ cache, clock, plots }: ResponseContext, scope: ScopeQuery): Promise<AlarmDayCounts> {
  const raisedAlarms = await cache.memoize(
    "raised",
    SLOW_DATA_AGE_MS,
    async () => (await plots?.raised.allCounts()) ?? [],
  );
  const nowMs = clock.now();
  const days = Array.from({ length: DAY_COUNT }, (_, n) => isoUtc(nowMs - (DAY_COUNT - 1 - n) * DAY_MS).slice(0, 10));
  const countsByPriority = new Map<string, number[]>();
  for (const { source, site, day, priority, count } of raisedAlarms) {
    const dayIndex = days.indexOf(day);
    if (dayIndex < 0) continue;
    if ((scope.source ?? source) !== source || (scope.site ?? site) !== site) continue;
    const dayCounts = countsByPriority.get(priority) ?? days.map(() => 0);
    countsByPriority.set(priority, dayCounts);
    dayCounts[dayIndex] = (dayCounts[dayIndex] ?? 0) + count;
  }
  return { days, byPriority: Object.fromEntries([...countsByPriority].sort(([a], [b]) => (a < b ? -1 : 1))) };
}

/** GET /api/site?source&id: one site with its alarms, gateways, systems and tag counts. */
export async function siteResponse(context: ResponseContext, source: string, id: number) {
  const { cache, store, tags } = context;
  const site = await store.document<StoredObject<Site>>(documentSet("site", source), String(id));
  if (site === undefined) return null;
  const listSiteObjects = async <T extends { readonly displayName: string }>(
    kind: "gateway" | "system",
    maxAgeMs: number,
  ) => {
    const storedObjects = await cache.documents<StoredObject<T>>(documentSet(kind, source), maxAgeMs);
    return [...storedObjects.values()]
      .filter((storedObject) => storedObject.siteId === id && storedObject.missingSince === null)
      .map(({ value }) => value)
      .sort((a, b) => a.displayName.localeCompare(b.displayName, "en", { numeric: true }));
  };
  const [gateways, systems, tagCounts] = await Promise.all([
    listSiteObjects<Gateway>("gateway", WATCHED_DATA_AGE_MS),
    listSiteObjects<System>("system", SLOW_DATA_AGE_MS),
    countTagsBySystem(context, source, id),
  ]);
  return {
    source,
    id,
    displayName: site.value.displayName,
    alarms: await activeAlarms(cache, source, (alarm) => alarm.site.id === id),
    gateways: gateways.map(({ id: gateway, displayName, online }) => ({ id: gateway, displayName, online })),
    systems: systems.map((system) => ({
      id: system.id,
      displayName: system.displayName,
      tags: tagCounts === null ? system.datapointsCount : (tagCounts.get(system.id) ?? 0),
    })),
    tags: await tags.counts({ source, site: id }),
    raised: await alarmDays(context, { source, site: id }),
  };
}

/** Number of the site's tags in each system; null when the tags of systems are not read. */
async function countTagsBySystem({ cache, tags }: ResponseContext, source: string, siteId: number) {
  const systemsOfTags = await cache.documents<StoredTagSystems>(syncSet("tag-system", source), SLOW_DATA_AGE_MS);
  if (systemsOfTags.size === 0) return null;
  const siteTags = await tags.tagsOfSite(source, siteId);
  const systemIds = siteTags.flatMap(({ tag }) => systemsOfTags.get(tag.id)?.systemIds ?? []);
  return countBy(systemIds, (system) => system);
}
