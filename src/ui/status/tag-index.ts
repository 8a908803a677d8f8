import type { Site, Tag, TagValue } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { TagReadClass } from "../../engine/sync/live-tag-state.ts";
import type { StoredObject, StoredValue } from "../../engine/sync/snapshot.ts";
import { ageOf, WATCHED_DATA_AGE_MS } from "./cached-documents.ts";
import type { ScopeQuery, TagsQuery } from "./query-parameters.ts";

/** GET /api/tags?source&site&search&show&sort&offset&limit */
export interface TagList {
  readonly total: number;
  /** Tags that each choice of `show` would list, among those that match source, site and search. */
  readonly counts: Readonly<Record<TagsQuery["show"], number>>;
  readonly rows: readonly TagRow[];
}

export interface IndexedTag {
  readonly source: string;
  readonly siteId: number | null;
  readonly site: string | null;
  readonly tag: Tag;
}

export interface TagRow extends IndexedTag {
  readonly value: TagValue;
  readonly quality: "good" | "uncertain" | "bad" | null;
  readonly time: string | null;
  readonly stale: boolean;
  readonly class: string | null;
}

export type TagIndex = ReturnType<typeof createTagIndex>;

export interface TagIndexOptions {
  readonly store: Pick<Store, "document" | "documents" | "version">;
  readonly clock: Pick<Clock, "monotonic" | "now">;
  readonly sources: readonly string[];
  readonly readingOf: (source: string, id: string) => TagReadClass | null;
}

/** A late reading counts as stale after 110 % of the promised age plus 10 s: 76 s for a promised minute. */
const STALE_GRACE_SHARE = 0.1;
const STALE_GRACE_MS = 10_000;
const MOST_CACHED_SELECTIONS = 20;

interface NamedTag extends IndexedTag {
  readonly text: string;
  /** Rank among all tags by name, and by site and name. */
  byName: number;
  bySite: number;
}

interface TagState {
  readonly named: NamedTag;
  readonly value: StoredValue | undefined;
  readonly stale: boolean;
}

interface Selection {
  readonly counts: TagList["counts"];
  readonly tags: readonly TagState[];
}

interface Snapshot {
  readonly atMs: number;
  readonly tags: readonly TagState[];
  readonly selections: Map<string, Selection>;
}

/** Searches, filters, sorts and pages all listed tags. The selection may be some seconds old; returned rows are current. */
export function createTagIndex({ store, clock, sources, readingOf }: TagIndexOptions) {
  let names: { readonly versions: string; readonly tags: readonly NamedTag[] } | null = null;
  let lastSnapshot: Promise<Snapshot> | null = null;
  async function snapshot(): Promise<Snapshot> {
    const cached = await lastSnapshot?.catch(() => null);
    if (cached != null && clock.monotonic() - cached.atMs < Math.max(WATCHED_DATA_AGE_MS, ageOf(cached.tags.length)))
      return cached;
    lastSnapshot = takeSnapshot();
    return lastSnapshot;
  }

  async function takeSnapshot(): Promise<Snapshot> {
    const nowMs = clock.now();
    const listedTags = await namedTags();
    const values = new Map<string, ReadonlyMap<string, StoredValue>>();
    for (const source of sources) values.set(source, await store.documents<StoredValue>(documentSet("value", source)));
    const tags = listedTags.map((each): TagState => {
      const value = values.get(each.source)?.get(each.tag.id);
      return { named: each, value, stale: isStale(value, readingOf(each.source, each.tag.id), nowMs) };
    });
    return { atMs: clock.monotonic(), tags, selections: new Map() };
  }

  async function namedTags(): Promise<readonly NamedTag[]> {
    const sets = sources.flatMap((source) => [documentSet("tag", source), documentSet("site", source)]);
    const versions = (await Promise.all(sets.map((set) => store.version(set)))).join(" ");
    if (names?.versions === versions) return names.tags;
    const tags: NamedTag[] = [];
    for (const source of sources) {
      const sites = await store.documents<StoredObject<Site>>(documentSet("site", source));
      const listed = await store.documents<StoredObject<Tag>>(documentSet("tag", source));
      for (const { value: tag, siteId, missingSince } of listed.values()) {
        if (missingSince !== null) continue;
        const site = siteId === null ? null : (sites.get(String(siteId))?.value.displayName ?? null);
        const text = `${tag.id} ${tag.displayName} ${tag.description ?? ""}`.toLowerCase();
        tags.push({ source, siteId, site, tag, text, byName: 0, bySite: 0 });
      }
    }
    rankTags(tags);
    names = { versions, tags };
    return tags;
  }

  async function select(query: Omit<TagsQuery, "offset" | "limit">): Promise<Selection> {
    const { tags, selections } = await snapshot();
    const { source, site, show, sort } = query;
    const key = JSON.stringify([source, site, query.search, show, sort]);
    const cachedSelection = selections.get(key);
    if (cachedSelection !== undefined) return cachedSelection;
    const search = query.search?.trim().toLowerCase() ?? "";
    const matchingTags = tags.filter(
      ({ named }) =>
        (source === undefined || named.source === source) &&
        (site === undefined || named.siteId === site) &&
        (search === "" || named.text.includes(search)),
    );
    const count = (choice: TagsQuery["show"]) => matchingTags.filter(FILTERS[choice]).length;
    const counts = { all: matchingTags.length, bad: count("bad"), stale: count("stale"), unread: count("unread") };
    const selection = { counts, tags: matchingTags.filter(FILTERS[show]).sort(orderBy(sort)) };
    if (selections.size >= MOST_CACHED_SELECTIONS) selections.clear();
    selections.set(key, selection);
    return selection;
  }

  async function rowOf({ source, siteId, site, tag }: IndexedTag): Promise<TagRow> {
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
    async list(query: TagsQuery): Promise<TagList> {
      const { counts, tags } = await select(query);
      const page = tags.slice(query.offset, query.offset + query.limit);
      return { total: tags.length, counts, rows: await Promise.all(page.map(({ named }) => rowOf(named))) };
    },
    counts: async (scope: ScopeQuery) => (await select({ ...scope, show: "all", sort: "name" })).counts,
    /** Row of a tag, listed or not; null for an unknown tag. */
    async row(source: string, id: string): Promise<TagRow | null> {
      const listed = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
      if (listed === undefined) return null;
      const { siteId, value: tag } = listed;
      const site = await store.document<StoredObject<Site>>(documentSet("site", source), String(siteId));
      return rowOf({ source, siteId, site: site?.value.displayName ?? null, tag });
    },
    async ofSite(source: string, site: number) {
      const { tags } = await select({ source, site, show: "all", sort: "name" });
      return tags.map(({ named: { siteId, tag } }) => ({ siteId, name: tag.displayName, tag }));
    },
  };
}

/** True when a value is older than promised, or has a future time because the clock was set back. */
function isStale(value: StoredValue | undefined, reading: TagReadClass | null, nowMs: number): boolean {
  if (value === undefined || reading === null) return false;
  const ageMs = nowMs - Date.parse(value.time);
  return ageMs < -STALE_GRACE_MS || ageMs > reading.promisedMs * (1 + STALE_GRACE_SHARE) + STALE_GRACE_MS;
}

const FILTERS: Readonly<Record<TagsQuery["show"], (tag: TagState) => boolean>> = {
  all: () => true,
  bad: ({ value }) => value?.quality === "bad",
  stale: ({ stale }) => stale,
  unread: ({ value }) => value === undefined,
};

/** Ranks the tags once, because comparing names takes a hundred times longer than comparing numbers. */
function rankTags(tags: readonly NamedTag[]): void {
  const { compare } = new Intl.Collator("en", { numeric: true });
  const byId = (a: NamedTag, b: NamedTag) => compare(a.tag.id, b.tag.id) || compare(a.source, b.source);
  const byName = tags.toSorted((a, b) => compare(a.tag.displayName, b.tag.displayName) || byId(a, b));
  for (const [n, tag] of byName.entries()) tag.byName = n;
  const bySite = byName.toSorted((a, b) => compare(a.site ?? "", b.site ?? "") || a.byName - b.byName);
  for (const [n, tag] of bySite.entries()) tag.bySite = n;
}

/** The youngest value comes first by age. Tags without a value come last in both directions. */
const SORT_KEYS: Readonly<Record<string, (tag: TagState) => number | null>> = {
  name: ({ named }) => named.byName,
  site: ({ named }) => named.bySite,
  age: ({ value }) => (value === undefined ? null : -Date.parse(value.time)),
  value: ({ value }) => (value === undefined || value.value === null ? null : Number(value.value)),
};

function orderBy(sort: TagsQuery["sort"]): (a: TagState, b: TagState) => number {
  const sign = sort.startsWith("-") ? -1 : 1;
  const sortKey = SORT_KEYS[sort.replace("-", "")] ?? (() => null);
  return (a, b) => {
    const [x, y] = [sortKey(a), sortKey(b)];
    const byName = a.named.byName - b.named.byName;
    if (x === null || y === null) return Number(x === null) - Number(y === null) || byName;
    return sign * (x - y) || byName;
  };
}
