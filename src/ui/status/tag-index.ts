import type { Site, Tag } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { Listed, StoredValue } from "../../engine/sync/snapshot.ts";
import type { TagReading } from "../../engine/sync/work.ts";
import { ageOf, WATCHED_MS } from "./cached-documents.ts";
import type { TagList, TagRow } from "./responses.ts";

/**
 * All listed tags, searched, filtered, sorted and cut here, so that 30,000 tags cost the page a hundred rows. The selection may be some
 * seconds old; returned rows are current.
 */
export interface TagIndex {
  list(asked: AskedTags): Promise<TagList>;
  counts(asked: Pick<AskedTags, "source" | "site">): Promise<TagList["counts"]>;
  /** Row of a tag, listed or not; null for an unknown tag. */
  row(source: string, id: string): Promise<TagRow | null>;
  /** The tags of a site, by name. */
  ofSite(source: string, site: number): Promise<readonly IndexedTag[]>;
}

export const SHOWS = ["all", "bad", "stale", "unread"] as const;
export const SORTS = ["name", "-name", "value", "-value", "age", "-age", "site", "-site"] as const;

export interface AskedTags {
  readonly source?: string | undefined;
  readonly site?: number | undefined;
  /** Part of a name, description or id, in any case. */
  readonly search?: string | undefined;
  readonly show: (typeof SHOWS)[number];
  readonly sort: (typeof SORTS)[number];
  readonly offset: number;
  readonly limit: number;
}

export interface IndexedTag {
  readonly source: string;
  readonly siteId: number | null;
  readonly site: string | null;
  readonly tag: Tag;
}

export interface TagIndexOptions {
  readonly store: Pick<Store, "document" | "documents" | "version">;
  readonly clock: Pick<Clock, "monotonic" | "now">;
  readonly sources: readonly string[];
  /** Null where a tag is not read. */
  readonly readingOf: (source: string, id: string) => TagReading | null;
}

/** A reading may come so much later than its class promises, before it counts as stale: a share, and milliseconds. */
const GRACE_SHARE = 0.1;
const GRACE_MS = 10_000;

/** Choices of which the order is remembered. */
const LISTS_KEPT = 20;

interface NamedTag extends IndexedTag {
  /** Text that the search matches. */
  readonly text: string;
  /** Its place among all by name, and by site and name. */
  byName: number;
  bySite: number;
}

interface SeenTag {
  readonly named: NamedTag;
  readonly value: StoredValue | undefined;
  readonly reading: TagReading | null;
  readonly stale: boolean;
}

interface Seen {
  readonly madeMs: number;
  readonly tags: readonly SeenTag[];
  readonly lists: Map<string, Chosen>;
}

interface Chosen {
  readonly counts: TagList["counts"];
  readonly tags: readonly SeenTag[];
}

export function createTagIndex({ store, clock, sources, readingOf }: TagIndexOptions): TagIndex {
  let names: { readonly versions: string; readonly tags: readonly NamedTag[] } | null = null;
  let last: Promise<Seen> | null = null;

  async function seen(): Promise<Seen> {
    const before = await last?.catch(() => null);
    if (before !== null && before !== undefined && isFresh(before)) return before;
    last = look();
    return last;
  }

  function isFresh({ madeMs, tags }: Seen): boolean {
    return clock.monotonic() - madeMs < Math.max(WATCHED_MS, ageOf(tags.length));
  }

  async function look(): Promise<Seen> {
    const nowMs = clock.now();
    const tags = await namedTags();
    const values = new Map(
      await Promise.all(
        sources.map(
          async (source) => [source, await store.documents<StoredValue>(documentSet("value", source))] as const,
        ),
      ),
    );
    const all = tags.map((named): SeenTag => {
      const value = values.get(named.source)?.get(named.tag.id);
      const reading = readingOf(named.source, named.tag.id);
      return { named, value, reading, stale: isStale(value, reading, nowMs) };
    });
    return { madeMs: clock.monotonic(), tags: all, lists: new Map() };
  }

  /** Read and sorted again only when a listing has changed something. */
  async function namedTags(): Promise<readonly NamedTag[]> {
    const sets = sources.flatMap((source) => [documentSet("tag", source), documentSet("site", source)]);
    const versions = (await Promise.all(sets.map((set) => store.version(set)))).join(" ");
    if (names?.versions === versions) return names.tags;
    const tags: NamedTag[] = [];
    for (const source of sources) {
      const sites = await store.documents<Listed<Site>>(documentSet("site", source));
      for (const { value: tag, siteId, missingSince } of (
        await store.documents<Listed<Tag>>(documentSet("tag", source))
      ).values()) {
        if (missingSince !== null) continue;
        const site = siteId === null ? null : (sites.get(String(siteId))?.value.displayName ?? null);
        const text = `${tag.id} ${tag.displayName} ${tag.description ?? ""}`.toLowerCase();
        tags.push({ source, siteId, site, tag, text, byName: 0, bySite: 0 });
      }
    }
    rank(tags);
    names = { versions, tags };
    return tags;
  }

  async function chosen(asked: Omit<AskedTags, "offset" | "limit">): Promise<Chosen> {
    const { tags, lists } = await seen();
    const key = JSON.stringify([asked.source, asked.site, asked.search, asked.show, asked.sort]);
    const known = lists.get(key);
    if (known !== undefined) return known;
    const fitting = tags.filter(fitsTo(asked));
    const made = { counts: countsOf(fitting), tags: fitting.filter(SHOWN[asked.show]) };
    made.tags.sort(orderBy(asked.sort));
    if (lists.size >= LISTS_KEPT) lists.clear();
    lists.set(key, made);
    return made;
  }

  async function rowOf(indexed: IndexedTag): Promise<TagRow> {
    const { source, siteId, site, tag } = indexed;
    const value = await store.document<StoredValue>(documentSet("value", source), tag.id);
    const reading = readingOf(source, tag.id);
    return {
      ...{ source, siteId, site, tag },
      value: value?.value ?? null,
      quality: value?.quality ?? null,
      time: value?.time ?? null,
      stale: isStale(value, reading, clock.now()),
      class: reading?.className ?? null,
    };
  }

  return {
    async list(asked) {
      const { counts, tags } = await chosen(asked);
      const page = tags.slice(asked.offset, asked.offset + asked.limit);
      return { total: tags.length, counts, rows: await Promise.all(page.map(({ named }) => rowOf(named))) };
    },
    async counts(asked) {
      return (await chosen({ ...asked, show: "all", sort: "name" })).counts;
    },
    async row(source, id) {
      const held = await store.document<Listed<Tag>>(documentSet("tag", source), id);
      if (held === undefined) return null;
      const { siteId, value: tag } = held;
      const site =
        siteId === null ? undefined : await store.document<Listed<Site>>(documentSet("site", source), String(siteId));
      return rowOf({ source, siteId, site: site?.value.displayName ?? null, tag });
    },
    async ofSite(source, site) {
      const { tags } = await chosen({ source, site, show: "all", sort: "name" });
      return tags.map(({ named }) => named);
    },
  };
}

/** True when a value is older than promised, or has a future time because the clock was set back. */
function isStale(value: StoredValue | undefined, reading: TagReading | null, nowMs: number): boolean {
  if (value === undefined || reading === null) return false;
  const ageMs = nowMs - Date.parse(value.time);
  return ageMs < -GRACE_MS || ageMs > reading.promisedMs * (1 + GRACE_SHARE) + GRACE_MS;
}

const SHOWN: Readonly<Record<AskedTags["show"], (tag: SeenTag) => boolean>> = {
  all: () => true,
  bad: ({ value }) => value?.quality === "bad",
  stale: ({ stale }) => stale,
  unread: ({ value }) => value === undefined,
};

function fitsTo({ source, site, search }: Pick<AskedTags, "source" | "site" | "search">) {
  const wanted = search?.trim().toLowerCase() ?? "";
  return ({ named }: SeenTag) =>
    (source === undefined || named.source === source) &&
    (site === undefined || named.siteId === site) &&
    (wanted === "" || named.text.includes(wanted));
}

function countsOf(tags: readonly SeenTag[]): TagList["counts"] {
  const count = (show: AskedTags["show"]) => tags.filter(SHOWN[show]).length;
  return { all: tags.length, bad: count("bad"), stale: count("stale"), unread: count("unread") };
}

/** To compare two names as people do takes a hundred times what two numbers take, so it is done once. */
function rank(tags: readonly NamedTag[]): void {
  const { compare } = new Intl.Collator("en", { numeric: true });
  const byId = (a: NamedTag, b: NamedTag) => compare(a.tag.id, b.tag.id) || compare(a.source, b.source);
  const byName = tags.toSorted((a, b) => compare(a.tag.displayName, b.tag.displayName) || byId(a, b));
  for (const [place, tag] of byName.entries()) tag.byName = place;
  const bySite = byName.toSorted((a, b) => compare(a.site ?? "", b.site ?? "") || a.byName - b.byName);
  for (const [place, tag] of bySite.entries()) tag.bySite = place;
}

function orderBy(sort: AskedTags["sort"]): (a: SeenTag, b: SeenTag) => number {
  const isDescending = sort.startsWith("-");
  const field = sort.replace("-", "");
  const sign = isDescending ? -1 : 1;
  if (field === "name") return (a, b) => sign * (a.named.byName - b.named.byName);
  if (field === "site") return (a, b) => sign * (a.named.bySite - b.named.bySite);
  // The youngest first; what has no value comes last both ways.
  const numberOf = field === "age" ? negativeTime : scalar;
  return (a, b) => {
    const [x, y] = [numberOf(a), numberOf(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || a.named.byName - b.named.byName;
    return sign * (x - y) || a.named.byName - b.named.byName;
  };
}

function negativeTime({ value }: SeenTag): number | null {
  return value === undefined ? null : -Date.parse(value.time);
}

function scalar({ value }: SeenTag): number | null {
  return value === undefined || value.value === null ? null : Number(value.value);
}
