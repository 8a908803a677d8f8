import { splitHistoryEvent } from "../../src/core/codec/history-event.ts";
import type { BuildingView, ConnectorContext } from "../../src/core/connector.ts";
import { Throttled } from "../../src/core/errors/errors.ts";
import { type AnyEvent, type Event, eventSourceName } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import type { InfluxConfig } from "./config.ts";

type NameTag = InfluxConfig["tags_from"][number];

/** Maximum age of cached names. Looking up a name takes 30 µs, more than encoding a point. */
const NAME_CACHE_MS = 60_000;
/** Number of cached names (100 bytes each) above which the cache is cleared. */
const MAX_CACHED_NAMES = 100_000;
/** Maximum time that points of a source wait for the first list with their names, once per sink. */
const FIRST_LIST_WAIT_MS = 60_000;
const NAME_RECHECK_MS = 1_000;

interface CachedName {
  readonly text: string | null;
  /** Points committed before this wall time get no name. */
  readonly fromMs?: number;
  /** True if a later list may contain the name. */
  readonly mayCome?: boolean;
}

interface EventOrigin {
  readonly source: string;
  readonly site: string | null;
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/**
 * Adds names to points, for query languages without joins. Points of a new worker wait up to `FIRST_LIST_WAIT_MS` for the list of
 * sites and systems, because a later name would begin another series. Later names apply to points a minute afterwards.
 */
export function createNameLookup(
  nameTags: readonly NameTag[],
  { clock, sinkState, building }: Pick<ConnectorContext, "clock" | "sinkState" | "building">,
) {
  const nameCache = new Map<string, CachedName>();
  let cacheStartMs = clock.monotonic();
  /** Start of each wait by kind of name and source, on the monotonic clock. */
  const waitStartByKey = new Map<string, number>();
  const givenUpByKey = new Map<string, boolean>();
  let eventsWithoutSiteName: WeakSet<Event> = new WeakSet();

  function expireCache(): void {
    const nowMs = clock.monotonic();
    if (nowMs - cacheStartMs < NAME_CACHE_MS && nameCache.size < MAX_CACHED_NAMES) return;
    nameCache.clear();
    cacheStartMs = nowMs;
  }

  async function hasGivenUp(kind: NameTag, source: string): Promise<boolean> {
    const key = buildGivenUpKey(kind, source);
    const hasEnded = givenUpByKey.get(key) ?? (await sinkState.get(key)) !== undefined;
    givenUpByKey.set(key, hasEnded);
    return hasEnded;
  }

  /** Looks up a name by `find` and caches it. Returns null while the points of the source must wait. */
  async function lookUpName(
    kind: NameTag,
    source: string,
    id: string,
    find: () => Promise<CachedName>,
  ): Promise<CachedName | null> {
    const key = buildCacheKey(kind, source, id);
    const cachedName = nameCache.get(key) ?? (await find());
    nameCache.set(key, cachedName);
    if (cachedName.mayCome !== true || (await hasGivenUp(kind, source))) return cachedName;
    const stateKey = buildGivenUpKey(kind, source);
    const waitStartMs = waitStartByKey.get(stateKey) ?? clock.monotonic();
    waitStartByKey.set(stateKey, waitStartMs);
    if (clock.monotonic() - waitStartMs < FIRST_LIST_WAIT_MS) {
      nameCache.delete(key);
      return null;
    }
    await sinkState.put(new Map([[stateKey, isoUtc(clock.now())]]));
    givenUpByKey.set(stateKey, true);
    return cachedName;
  }

  async function findSiteName(source: string, id: string): Promise<CachedName> {
    const siteName = (await building.findObject("site", source, id))?.displayName ?? null;
    if (siteName === null) return { text: siteName, mayCome: true };
    if (!(await hasGivenUp("site_name", source))) return { text: siteName };
    const firstListedMs = Date.parse((await building.firstListed("site", source, id)) ?? "");
    return { text: siteName, fromMs: firstListedMs + NAME_CACHE_MS };
  }

  async function findSystemCodes(source: string, site: string | null, tag: string): Promise<CachedName> {
    const systemCodes = joinSystemCodes(await building.systemsOf(source, tag));
    const mayCodesFollow = systemCodes === null && site !== null && !(await building.hasListedSystems(source, site));
    return { text: systemCodes, mayCome: mayCodesFollow };
  }

  async function lookUpAll({ source, site, tag }: EventOrigin, event: Event, committedMs: number): Promise<boolean> {
    if (site !== null && nameTags.includes("site_name")) {
      const siteName = await lookUpName("site_name", source, site, () => findSiteName(source, site));
      if (siteName === null) return false;
      if (siteName.fromMs !== undefined && committedMs < siteName.fromMs) eventsWithoutSiteName.add(event);
    }
    if (tag === null) return true;
    if (tag.name === null && nameTags.includes("name")) {
      await lookUpName("name", source, tag.id, async () => ({
        text: (await building.findObject("tag", source, tag.id))?.displayName ?? null,
      }));
    }
    if (!nameTags.includes("system")) return true;
    return (await lookUpName("system", source, tag.id, () => findSystemCodes(source, site, tag.id))) !== null;
  }

  return {
    /** Looks up the names for `namesOf`. Returns the first event that must wait, with the error; null for none. */
    async prepare(batch: readonly Event[], committedAt?: readonly string[]) {
      if (nameTags.length === 0) return null;
      expireCache();
      eventsWithoutSiteName = new WeakSet();
      for (const [index, event] of batch.entries()) {
        const origin = findEventOrigin(event);
        if (origin === null || (await lookUpAll(origin, event, Date.parse(committedAt?.[index] ?? "")))) continue;
        const message = `Points of ${origin.source} wait until its sites and systems have been listed, a minute at most.`;
        return { from: index, error: new Throttled(message, NAME_RECHECK_MS) };
      }
      return null;
    },

    namesOf(event: Event): Readonly<Partial<Record<NameTag, string>>> {
      const origin = nameTags.length === 0 ? null : findEventOrigin(event);
      if (origin === null) return {};
      const { source, site, tag } = origin;
      const hasSite = site !== null && !eventsWithoutSiteName.has(event);
      const readCachedText = (kind: NameTag, id: string) => nameCache.get(buildCacheKey(kind, source, id))?.text;
      const texts: Record<NameTag, string | null | undefined> = {
        name: tag === null ? null : (tag.name ?? readCachedText("name", tag.id)),
        site_name: hasSite ? readCachedText("site_name", site) : null,
        system: tag === null ? null : readCachedText("system", tag.id),
      };
      return Object.fromEntries(nameTags.flatMap((name) => (texts[name] == null ? [] : [[name, texts[name]]])));
    },
  };
}

const buildCacheKey = (kind: NameTag, source: string, id: string) => `${kind} ${source} ${id}`;

const buildGivenUpKey = (kind: NameTag, source: string) => `unnamed ${kind} ${source}`;

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

function joinSystemCodes(systems: Awaited<ReturnType<BuildingView["systemsOf"]>>): string | null {
  if (systems.length === 0) return null;
  const systemCodes = systems.map(({ code, displayName }) => (code === "" ? displayName : code));
  return systemCodes.toSorted().join("+");
}
