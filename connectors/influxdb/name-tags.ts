import { historyText } from "../../src/core/codec/history-event.ts";
import type { BuildingView, ConnectorContext } from "../../src/core/connector.ts";
import { Throttled } from "../../src/core/errors/errors.ts";
import { type AnyEvent, type Event, sourceName } from "../../src/core/model/event.ts";
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

interface PointOrigin {
  readonly source: string;
  readonly site: string | null;
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/**
 * Adds names to points, for query languages without joins. Points of a new worker wait up to `FIRST_LIST_WAIT_MS` for the list of
 * sites and systems, because a later name would begin another series. Later names apply to points a minute afterwards.
 */
export function createNameLookup(
  wanted: readonly NameTag[],
  { clock, sinkState, building }: Pick<ConnectorContext, "clock" | "sinkState" | "building">,
) {
  const cache = new Map<string, CachedName>();
  let sinceMs = clock.monotonic();
  /** Start of each wait by kind of name and source, on the monotonic clock. */
  const waiting = new Map<string, number>();
  const givenUp = new Map<string, boolean>();
  let unnamed: WeakSet<Event> = new WeakSet();

  function expireCache(): void {
    const nowMs = clock.monotonic();
    if (nowMs - sinceMs < NAME_CACHE_MS && cache.size < MAX_CACHED_NAMES) return;
    cache.clear();
    sinceMs = nowMs;
  }

  async function hasGivenUp(kind: NameTag, source: string): Promise<boolean> {
    const key = buildUnnamedKey(kind, source);
    const hasEnded = givenUp.get(key) ?? (await sinkState.get(key)) !== undefined;
    givenUp.set(key, hasEnded);
    return hasEnded;
  }

  /** Looks up a name by `find` and caches it. Returns null while the points of the source must wait. */
  async function lookUp(
    kind: NameTag,
    source: string,
    id: string,
    find: () => Promise<CachedName>,
  ): Promise<CachedName | null> {
    const key = buildCacheKey(kind, source, id);
    const name = cache.get(key) ?? (await find());
    cache.set(key, name);
    if (name.mayCome !== true || (await hasGivenUp(kind, source))) return name;
    const stateKey = buildUnnamedKey(kind, source);
    const began = waiting.get(stateKey) ?? clock.monotonic();
    waiting.set(stateKey, began);
    if (clock.monotonic() - began < FIRST_LIST_WAIT_MS) {
      cache.delete(key);
      return null;
    }
    await sinkState.put(new Map([[stateKey, isoUtc(clock.now())]]));
    givenUp.set(stateKey, true);
    return name;
  }

  async function findSiteName(source: string, id: string): Promise<CachedName> {
    const text = (await building.findObject("site", source, id))?.displayName ?? null;
    if (text === null) return { text, mayCome: true };
    if (!(await hasGivenUp("site_name", source))) return { text };
    const listedMs = Date.parse((await building.firstListed("site", source, id)) ?? "");
    return { text, fromMs: listedMs + NAME_CACHE_MS };
  }

  async function findSystemCodes(source: string, site: string | null, tag: string): Promise<CachedName> {
    const text = joinSystemCodes(await building.systemsOf(source, tag));
    const mayCome = text === null && site !== null && !(await building.hasListedSystems(source, site));
    return { text, mayCome };
  }

  async function lookUpAll({ source, site, tag }: PointOrigin, event: Event, committedMs: number): Promise<boolean> {
    if (site !== null && wanted.includes("site_name")) {
      const name = await lookUp("site_name", source, site, () => findSiteName(source, site));
      if (name === null) return false;
      if (name.fromMs !== undefined && committedMs < name.fromMs) unnamed.add(event);
    }
    if (tag === null) return true;
    if (tag.name === null && wanted.includes("name")) {
      await lookUp("name", source, tag.id, async () => ({
        text: (await building.findObject("tag", source, tag.id))?.displayName ?? null,
      }));
    }
    if (!wanted.includes("system")) return true;
    return (await lookUp("system", source, tag.id, () => findSystemCodes(source, site, tag.id))) !== null;
  }

  return {
    /** Looks up the names for `namesOf`. Returns the first event that must wait, with the error; null for none. */
    async prepare(batch: readonly Event[], committedAt?: readonly string[]) {
      if (wanted.length === 0) return null;
      expireCache();
      unnamed = new WeakSet();
      for (const [index, event] of batch.entries()) {
        const origin = findPointOrigin(event);
        if (origin === null || (await lookUpAll(origin, event, Date.parse(committedAt?.[index] ?? "")))) continue;
        const message = `Points of ${origin.source} wait until its sites and systems have been listed, a minute at most.`;
        return { from: index, error: new Throttled(message, NAME_RECHECK_MS) };
      }
      return null;
    },

    namesOf(event: Event): Readonly<Partial<Record<NameTag, string>>> {
      const origin = wanted.length === 0 ? null : findPointOrigin(event);
      if (origin === null) return {};
      const { source, site, tag } = origin;
      const hasSite = site !== null && !unnamed.has(event);
      const cached = (kind: NameTag, id: string) => cache.get(buildCacheKey(kind, source, id))?.text;
      const texts: Record<NameTag, string | null | undefined> = {
        name: tag === null ? null : (tag.name ?? cached("name", tag.id)),
        site_name: hasSite ? cached("site_name", site) : null,
        system: tag === null ? null : cached("system", tag.id),
      };
      return Object.fromEntries(wanted.flatMap((name) => (texts[name] == null ? [] : [[name, texts[name]]])));
    },
  };
}

const buildCacheKey = (kind: NameTag, source: string, id: string) => `${kind} ${source} ${id}`;

const buildUnnamedKey = (kind: NameTag, source: string) => `unnamed ${kind} ${source}`;

function findPointOrigin(event: Event): PointOrigin | null {
  const source = sourceName(event);
  return source === null ? null : { source, site: event.siteid ?? null, tag: findEventTag(event as AnyEvent) };
}

function findEventTag(event: AnyEvent): PointOrigin["tag"] {
  switch (event.type) {
    case "tag-value":
    case "tag-total":
      return { id: event.data.tag.id, name: event.data.tag.displayName };
    case "tag-history": {
      const { tag } = historyText(event).fact;
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

/** Returns e.g. `320.001+360.001`. */
function joinSystemCodes(systems: Awaited<ReturnType<BuildingView["systemsOf"]>>): string | null {
  if (systems.length === 0) return null;
  const codes = systems.map(({ code, displayName }) => (code === "" ? displayName : code));
  return codes.toSorted().join("+");
}
