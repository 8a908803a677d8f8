import { historyText } from "../../src/core/codec/history-event.ts";
import type { BuildingView, ConnectorContext } from "../../src/core/connector.ts";
import { Throttled } from "../../src/core/errors/errors.ts";
import type { System } from "../../src/core/model/building.ts";
import { type AnyEvent, type Event, sourceName } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";

/** What can be written beside the ids, as tags of a point. */
export const NAME_TAGS = ["name", "site_name", "system"] as const;
export type NameTag = (typeof NAME_TAGS)[number];

/** Names are believed for so long, in milliseconds: to look one up takes some 30 µs, which is more than its point does. */
const CACHE_MS = 60_000;
/** Names that are kept in memory, of some 100 bytes each; then all are looked up anew. */
const MAX_CACHED = 100_000;
/** Points of a source wait for the first list with their names for so long, in milliseconds, and once in its life. */
const WAIT_MS = 60_000;
/** While they wait, names are looked up so often, in milliseconds. */
const RECHECK_MS = 1_000;

export interface Names {
  /**
   * Looks up what `of` will return for these events. Returns the index of the first event that has to wait, because its
   * names have not been listed yet, with the error to wait for; null where all can go.
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
  /** Points that were committed before go without the name; wall time in milliseconds. */
  readonly fromMs?: number;
  /** There is no name, and a list that is to come may have one. */
  readonly mayCome?: true;
}

/**
 * Names for who cannot join: InfluxQL has no join, and VictoriaMetrics keeps no texts but these. The name of a tag is what
 * the event itself says, so that an old event keeps its old name; that of its site and systems is the one known now.
 *
 * A name is part of the series, so a point that was written without it would be there twice after a redelivery. The points
 * of a new worker therefore wait until the site and the systems are listed. Where they are not within `WAIT_MS`, for
 * example because the token may not list them (403), the sink remembers that for the source and never waits again. A site
 * that is listed after that gives its name to points that are committed a minute later or more, also when they are delivered again.
 */
export function createNames(
  wanted: readonly NameTag[],
  { clock, memory, picture }: Pick<ConnectorContext, "clock" | "memory" | "picture">,
): Names {
  const cache = new Map<string, Name>();
  let sinceMs = clock.monotonic();
  /** When points of a source began to wait for a kind of names, on the monotonic clock. */
  const waiting = new Map<string, number>();
  /** Kinds of names for which points of a source wait no longer. */
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

  /** True while points of the source have to wait for names of this kind. */
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

  /** True where the event has to wait. */
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

/** Keys of what the sink remembers: a kind of names, and the source of which it waits for none any more. */
const UNNAMED = "unnamed ";

interface About {
  readonly source: string;
  readonly site: string | null;
  /** The name is null where the event does not say it. */
  readonly tag: { readonly id: string; readonly name: string | null } | null;
}

/** What an event is about; null for the worker's own. */
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

/** A tag that several systems list is in all of them: `320.001+360.001`. */
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
