import { splitHistoryEvent } from "../../src/core/codec/history-event.ts";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { Throttled } from "../../src/core/errors/errors.ts";
import { type AnyEvent, type Event, eventSourceName } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import type { InfluxConfig } from "./config.ts";

type ObjectNameTag = InfluxConfig["tags_from"][number];

/** Maximum age of cached names. Looking up a name takes 30 µs, more than encoding a point. */
const NAME_CACHE_MAX_AGE_MS = 60_000;
/** Number of cached names (100 bytes each) above which the cache is cleared. */
const MAX_CACHED_NAMES = 100_000;
/** Maximum time for which points wait until the sites and systems of their source are listed for the first time. */
const FIRST_INVENTORY_WAIT_MS = 60_000;
const NAME_LOOKUP_RETRY_MS = 1_000;

interface CachedObjectName {
  readonly objectName: string | null;
  /** Points of events that were committed before this time get no name. */
  readonly validFromMs?: number;
  readonly mayBeListedLater?: boolean;
}

interface EventOrigin {
  readonly source: string;
  readonly site: string | null;
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/**
 * Adds names to points as tags, for query languages without joins. Until the sites and systems of a source are listed,
 * its points wait up to `FIRST_INVENTORY_WAIT_MS`, because an InfluxDB tag that is added later starts a new series.
 * A site name that becomes known after this wait is added to points a minute later.
 */
export function createNameLookup(
  nameTags: readonly ObjectNameTag[],
  { clock, sinkState, building }: Pick<ConnectorContext, "clock" | "sinkState" | "building">,
) {
  const nameCache = new Map<string, CachedObjectName>();
  let cacheStartMs = clock.monotonic();
  const nameWaitStartByKey = new Map<string, number>();
  const hasGivenUpByWaitKey = new Map<string, boolean>();
  let eventsWithoutSiteName: WeakSet<Event> = new WeakSet();

  function expireNameCache(): void {
    const nowMs = clock.monotonic();
    if (nowMs - cacheStartMs < NAME_CACHE_MAX_AGE_MS && nameCache.size < MAX_CACHED_NAMES) return;
    nameCache.clear();
    cacheStartMs = nowMs;
  }

  async function hasGivenUpWaiting(kind: ObjectNameTag, source: string): Promise<boolean> {
    const nameWaitKey = buildNameWaitKey(kind, source);
    const hasWaitEnded = hasGivenUpByWaitKey.get(nameWaitKey) ?? (await sinkState.get(nameWaitKey)) !== undefined;
    hasGivenUpByWaitKey.set(nameWaitKey, hasWaitEnded);
    return hasWaitEnded;
  }

  /** Looks up a name by `findName` and caches the name. Returns null while the points of the source must wait. */
  async function lookUpObjectName(
    kind: ObjectNameTag,
    source: string,
    id: string,
    findName: () => Promise<CachedObjectName>,
  ): Promise<CachedObjectName | null> {
    const nameCacheKey = buildNameCacheKey(kind, source, id);
    const cachedObjectName = nameCache.get(nameCacheKey) ?? (await findName());
    nameCache.set(nameCacheKey, cachedObjectName);
    if (cachedObjectName.mayBeListedLater !== true || (await hasGivenUpWaiting(kind, source))) return cachedObjectName;
    const nameWaitKey = buildNameWaitKey(kind, source);
    const nameWaitStartMs = nameWaitStartByKey.get(nameWaitKey) ?? clock.monotonic();
    nameWaitStartByKey.set(nameWaitKey, nameWaitStartMs);
    if (clock.monotonic() - nameWaitStartMs < FIRST_INVENTORY_WAIT_MS) {
      nameCache.delete(nameCacheKey);
      return null;
    }
    await sinkState.put(new Map([[nameWaitKey, isoUtc(clock.now())]]));
    hasGivenUpByWaitKey.set(nameWaitKey, true);
    return cachedObjectName;
  }

  async function findSiteName(source: string, id: string): Promise<CachedObjectName> {
    const siteName = (await building.findObject("site", source, id))?.displayName ?? null;
    if (siteName === null) return { objectName: siteName, mayBeListedLater: true };
    if (!(await hasGivenUpWaiting("site_name", source))) return { objectName: siteName };
    const siteFirstListedMs = Date.parse((await building.firstListedAt("site", source, id)) ?? "");
    return { objectName: siteName, validFromMs: siteFirstListedMs + NAME_CACHE_MAX_AGE_MS };
  }

  async function findSystemCodes(source: string, site: string | null, tagId: string): Promise<CachedObjectName> {
    const systems = await building.systemsOf(source, tagId);
    const codes = systems.map(({ code, displayName }) => (code === "" ? displayName : code)).toSorted();
    const systemCodes = codes.length === 0 ? null : codes.join("+");
    const mayBeListedLater = systemCodes === null && site !== null && !(await building.hasListedSystems(source, site));
    return { objectName: systemCodes, mayBeListedLater };
  }

  async function loadNames({ source, site, tag }: EventOrigin, event: Event, committedMs: number): Promise<boolean> {
    if (site !== null && nameTags.includes("site_name")) {
      const siteName = await lookUpObjectName("site_name", source, site, () => findSiteName(source, site));
      if (siteName === null) return false;
      if (siteName.validFromMs !== undefined && committedMs < siteName.validFromMs) eventsWithoutSiteName.add(event);
    }
    if (tag === null) return true;
    if (tag.name === null && nameTags.includes("name"))
      await lookUpObjectName("name", source, tag.id, async () => ({
        objectName: (await building.findObject("tag", source, tag.id))?.displayName ?? null,
      }));
    if (!nameTags.includes("system")) return true;
    return (await lookUpObjectName("system", source, tag.id, () => findSystemCodes(source, site, tag.id))) !== null;
  }

  return {
    /** Caches the names for `nameTagsOf`. Returns null, or a retry from the first event whose names are unknown. */
    async loadNames(batch: readonly Event[], committedAt?: readonly string[]) {
      if (nameTags.length === 0) return null;
      expireNameCache();
      eventsWithoutSiteName = new WeakSet();
      for (const [index, event] of batch.entries()) {
        const origin = findEventOrigin(event);
        if (origin === null || (await loadNames(origin, event, Date.parse(committedAt?.[index] ?? "")))) continue;
        const message = `Points of ${origin.source} wait until its sites and systems have been listed, a minute at most.`;
        return { from: index, error: new Throttled(message, NAME_LOOKUP_RETRY_MS) };
      }
      return null;
    },

    nameTagsOf(event: Event): Readonly<Partial<Record<ObjectNameTag, string>>> {
      const origin = nameTags.length === 0 ? null : findEventOrigin(event);
      if (origin === null) return {};
      const { source, site, tag } = origin;
      const hasSiteName = site !== null && !eventsWithoutSiteName.has(event);
      const readCachedName = (kind: ObjectNameTag, id: string) =>
        nameCache.get(buildNameCacheKey(kind, source, id))?.objectName;
      const nameByTag: Record<ObjectNameTag, string | null | undefined> = {
        name: tag === null ? null : (tag.name ?? readCachedName("name", tag.id)),
        site_name: hasSiteName ? readCachedName("site_name", site) : null,
        system: tag === null ? null : readCachedName("system", tag.id),
      };
      return Object.fromEntries(nameTags.flatMap((name) => (nameByTag[name] == null ? [] : [[name, nameByTag[name]]])));
    },
  };
}

const buildNameCacheKey = (kind: ObjectNameTag, source: string, id: string) => `${kind} ${source} ${id}`;

const buildNameWaitKey = (kind: ObjectNameTag, source: string) => `unnamed ${kind} ${source}`;

function findEventOrigin(event: Event): EventOrigin | null {
  const source = eventSourceName(event);
  return source === null ? null : { source, site: event.siteid ?? null, tag: findEventTag(event as AnyEvent) };
}

function findEventTag(event: AnyEvent): EventOrigin["tag"] {
  switch (event.type) {
    case "tag-value":
    case "tag-total":
      return { id: event.data.tag.id, name: event.data.tag.displayName };
    case "tag-history": {
      const { tag } = splitHistoryEvent(event).fact;
      return { id: tag.id, name: tag.displayName };
    }
    case "command-accepted":
    case "command-result":
    case "command-not-restored":
      return event.data.tagId === null ? null : { id: event.data.tagId, name: null };
    default:
      return null;
  }
}
