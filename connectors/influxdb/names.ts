import { historyText } from "../../src/core/codec/history-event.ts";
import type { BuildingView, ConnectorContext } from "../../src/core/connector.ts";
import { Throttled } from "../../src/core/errors/errors.ts";
import type { System } from "../../src/core/model/building.ts";
import { type AnyEvent, type Event, sourceName } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";

/** Names that points can have as tags in addition to ids. */
export const NAME_TAGS = ["name", "site_name", "system"] as const;
export type NameTag = (typeof NAME_TAGS)[number];

/** Time that names stay cached, in milliseconds: a look-up takes 30 µs, more than encoding a point. */
const CACHE_MS = 60_000;
/** Largest number of cached names, of 100 bytes each; beyond it the cache is cleared. */
const MAX_CACHED = 100_000;
/**
 * Longest wait of a source's points for the first list with their names, in milliseconds, once in the sink's life.
 */
const WAIT_MS = 60_000;
/** Interval of look-ups during that wait, in milliseconds. */
const RECHECK_MS = 1_000;

export interface Names {
  /**
   * Looks up the names that `of` returns for these events. Returns the index of the first event whose names are
   * not listed yet, with the error to wait for; null where all can go.
   */
  prepare(batch: readonly Event[], committedAt?: readonly string[]): Promise<Awaited | null>;
  of(event: Event): Readonly<Partial<Record<NameTag, string>>>;
}

export interface Awaited {
  readonly from: number;
  readonly error: Throttled;
}

interface Name {
  readonly text: string | null;
  /** Points committed before this time have no name; wall time in milliseconds. */
  readonly fromMs?: number;
  /** True where a later list may contain the name. */
  readonly mayCome?: true;
}

/**
 * Adds names to points, for query languages without joins: InfluxQL, and VictoriaMetrics, which stores no other
 * texts. The name of a tag comes from the event, so old events keep old names; those of site and systems are the
 * current ones.
 *
 * A name is part of the series, so a redelivered point that had no name before would be a duplicate. The points of
 * a new worker therefore wait until site and systems are listed. Where that takes longer than `WAIT_MS`, for
 * example because the token may not list them (403), the sink stores that for the source and never waits again. A
 * site listed later gives its name to points committed at least a minute afterwards, also when they are
 * redelivered.
 */
export function createNames(
  wanted: readonly NameTag[],
  { clock, memory, picture }: Pick<ConnectorContext, "clock" | "memory" | "picture">,
): Names {
  const cache = new Map<string, Name>();
  let sinceMs = clock.monotonic();
  /** Start of each wait, by kind of names and source, on the monotonic clock. */
  const waiting = new Map<string, number>();
  /** Kinds of names and sources without further waits. */
  const givenUp = new Map<string, boolean>();
  let unnamed: WeakSet<Event> = new WeakSet();

  async function cached(key: string, find: () => Promise<Name>): Promise<Name> {
    const known = cache.get(key);
    if (known !== undefined) return known;
    const name = await find();
    cache.set(key, name);
    return name;
  }

  function expireCache(): void {
    const nowMs = clock.monotonic();
    if (nowMs - sinceMs < CACHE_MS && cache.size < MAX_CACHED) return;
    cache.clear();
    sinceMs = nowMs;
  }

  async function hasGivenUp(key: string): Promise<boolean> {
    const known = givenUp.get(key) ?? (await memory.get(key)) !== undefined;
    givenUp.set(key, known);
    return known;
  }

  /** True while the source's points must wait for names of this kind. */
  async function waits(kind: NameTag, source: string): Promise<boolean> {
    const key = `${UNNAMED}${kind} ${source}`;
    if (await hasGivenUp(key)) return false;
    const began = waiting.get(key) ?? clock.monotonic();
    waiting.set(key, began);
    if (clock.monotonic() - began < WAIT_MS) return true;
    await memory.put(new Map([[key, isoUtc(clock.now())]]));
    givenUp.set(key, true);
    return false;
  }

  async function siteOf(source: string, id: string): Promise<Name> {
    const text = await siteName(picture, source, id);
    if (text === null) return { text, mayCome: true };
    if (!(await hasGivenUp(`${UNNAMED}site_name ${source}`))) return { text };
    const listedMs = Date.parse((await picture.firstListed("site", source, id)) ?? "");
    return { text, fromMs: listedMs + CACHE_MS };
  }

  async function systemOf(source: string, site: string | null, tag: string): Promise<Name> {
    const text = codesOf(await picture.systemsOf(source, tag));
    if (text !== null || site === null || (await picture.hasListedSystems(source, site))) return { text };
    return { text, mayCome: true };
  }

  /** Looks up the names of an event; returns true where it must wait. */
  async function lookUp({ source, site, tag }: About, event: Event, committedMs: number): Promise<boolean> {
    if (site !== null && wanted.includes("site_name")) {
      const key = siteKey(source, site);
      const { fromMs, mayCome } = await cached(key, () => siteOf(source, site));
      if (mayCome === true && (await waits("site_name", source))) return cache.delete(key);
      if (fromMs !== undefined && committedMs < fromMs) unnamed.add(event);
    }
    if (tag === null) return false;
    if (tag.name === null && wanted.includes("name")) {
      const find = async () => ({ text: await tagName(picture, source, tag.id) });
      await cached(nameKey(source, tag.id), find);
    }
    if (!wanted.includes("system")) return false;
    const key = systemKey(source, tag.id);
    const { mayCome } = await cached(key, () => systemOf(source, site, tag.id));
    return mayCome === true && (await waits("system", source)) && cache.delete(key);
  }

  return {
    async prepare(batch, committedAt) {
      if (wanted.length === 0) return null;
      expireCache();
      unnamed = new WeakSet();
      for (const [index, event] of batch.entries()) {
        const about = aboutOf(event);
        const committedMs = Date.parse(committedAt?.[index] ?? "");
        if (about === null || !(await lookUp(about, event, committedMs))) continue;
        const message = `Points of ${about.source} wait until its sites and systems have been listed, a minute at most.`;
        return { from: index, error: new Throttled(message, RECHECK_MS) };
      }
      return null;
    },

    of(event) {
      const about = wanted.length === 0 ? null : aboutOf(event);
      if (about === null) return {};
      const { source, site, tag } = about;
      const hasSite = site !== null && !unnamed.has(event);
      const known: Record<NameTag, string | null | undefined> = {
        name: tag === null ? null : (tag.name ?? cache.get(nameKey(source, tag.id))?.text),
        site_name: hasSite ? cache.get(siteKey(source, site))?.text : null,
        system: tag === null ? null : cache.get(systemKey(source, tag.id))?.text,
      };
      return Object.fromEntries(
        wanted.flatMap((name) => {
          const text = known[name];
          return text === null || text === undefined ? [] : [[name, text]];
        }),
      );
    },
  };
}

/** Prefix of state keys: a kind of names and a source whose points no longer wait. */
const UNNAMED = "unnamed ";

interface About {
  readonly source: string;
  readonly site: string | null;
  /** Name is null where the event does not contain it. */
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/** Source, site and tag of an event; null for the worker's own events. */
function aboutOf(event: Event): About | null {
  const source = sourceName(event);
  return source === null ? null : { source, site: event.siteid ?? null, tag: tagOf(event as AnyEvent) };
}

function tagOf(event: AnyEvent): About["tag"] {
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

async function siteName(picture: BuildingView, source: string, id: string): Promise<string | null> {
  return (await picture.one("site", source, id))?.displayName ?? null;
}

async function tagName(picture: BuildingView, source: string, id: string): Promise<string | null> {
  return (await picture.one("tag", source, id))?.displayName ?? null;
}

/** Joins the codes of all systems of a tag: `320.001+360.001`. */
function codesOf(systems: readonly System[]): string | null {
  if (systems.length === 0) return null;
  return systems
    .map(({ code, displayName }) => (code === "" ? displayName : code))
    .toSorted()
    .join("+");
}

const siteKey = (source: string, id: string) => `site ${source} ${id}`;
const nameKey = (source: string, id: string) => `name ${source} ${id}`;
const systemKey = (source: string, id: string) => `system ${source} ${id}`;
