import type { Site, Tag, TagValue } from "../../core/model/building.ts";
import type { StaleReason, TagValueQuality } from "../../core/model/tag-event-data.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { TagReadClass } from "../../engine/sync/live-tag-state.ts";
import { readingTimeOf, type StoredObject, type StoredValue } from "../../engine/sync/stored-documents.ts";
import { minCacheAgeMs, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { ScopeQuery, TagsQuery } from "./query-parameters.ts";

/** GET /api/tags?source&site&search&show&sort&offset&limit */
export interface TagListResponse {
  readonly total: number;
  /** Number of matching tags for each choice of `show`. */
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
  readonly quality: TagValueQuality | null;
  /** Reason why the value is stale; null for any other quality. */
  readonly staleReason: StaleReason | null;
  /** Time of the last reading; for a stale value, time of the last good reading. */
  readonly time: string | null;
  readonly class: string | null;
}

export type TagIndex = ReturnType<typeof createTagIndex>;

const MAX_CACHED_SELECTIONS = 20;

interface RankedTag extends IndexedTag {
  readonly searchText: string;
  nameRank: number;
  siteRank: number;
}

interface TagValueState {
  readonly rankedTag: RankedTag;
  readonly value: StoredValue | undefined;
}

interface TagSelection {
  readonly counts: TagListResponse["counts"];
  readonly tags: readonly TagValueState[];
}

interface TagSnapshot {
  readonly atMs: number;
  readonly tags: readonly TagValueState[];
  readonly selections: Map<string, TagSelection>;
}

/** Searches and sorts all tags. The list of matching tags may be seconds old; the returned values are current. */
export function createTagIndex(options: {
  readonly store: Pick<Store, "document" | "documents" | "version">;
  readonly clock: Pick<Clock, "monotonic">;
  readonly sources: readonly string[];
  readonly findReadClass: (source: string, id: string) => TagReadClass | null;
}) {
  const { store, clock, sources, findReadClass } = options;
  let cachedRankedTags: { readonly versions: string; readonly tags: readonly RankedTag[] } | null = null;
  let lastSnapshot: Promise<TagSnapshot> | null = null;
  async function currentTagSnapshot(): Promise<TagSnapshot> {
    const cachedSnapshot = await lastSnapshot?.catch(() => null);
    if (
      cachedSnapshot != null &&
      clock.monotonic() - cachedSnapshot.atMs < Math.max(WATCHED_DATA_AGE_MS, minCacheAgeMs(cachedSnapshot.tags.length))
    )
      return cachedSnapshot;
    lastSnapshot = takeTagSnapshot();
    return lastSnapshot;
  }

  async function takeTagSnapshot(): Promise<TagSnapshot> {
    const rankedTags = await readRankedTags();
    const valuesBySource = new Map<string, ReadonlyMap<string, StoredValue>>();
    for (const source of sources)
      valuesBySource.set(source, await store.documents<StoredValue>(documentSet("value", source)));
    const tags = rankedTags.map(
      (rankedTag): TagValueState => ({ rankedTag, value: valuesBySource.get(rankedTag.source)?.get(rankedTag.tag.id) }),
    );
    return { atMs: clock.monotonic(), tags, selections: new Map() };
  }

  async function readRankedTags(): Promise<readonly RankedTag[]> {
    const documentSets = sources.flatMap((source) => [documentSet("tag", source), documentSet("site", source)]);
    const versionsOfSets = (await Promise.all(documentSets.map((set) => store.version(set)))).join(" ");
    if (cachedRankedTags?.versions === versionsOfSets) return cachedRankedTags.tags;
    const tags: RankedTag[] = [];
    for (const source of sources) {
      const sites = await store.documents<StoredObject<Site>>(documentSet("site", source));
      const listedTags = await store.documents<StoredObject<Tag>>(documentSet("tag", source));
      for (const { value: tag, siteId, missingSince } of listedTags.values()) {
        if (missingSince !== null) continue;
        const siteName = siteId === null ? null : (sites.get(String(siteId))?.value.displayName ?? null);
        const { alias, description, displayName, id, path } = tag;
        const tagSearchText = [id, displayName, alias, path, description].join(" ").toLowerCase();
        tags.push({ source, siteId, site: siteName, tag, searchText: tagSearchText, nameRank: 0, siteRank: 0 });
      }
    }
    rankTags(tags);
    cachedRankedTags = { versions: versionsOfSets, tags };
    return tags;
  }

  async function selectTags(query: Omit<TagsQuery, "offset" | "limit">): Promise<TagSelection> {
    const { tags, selections } = await currentTagSnapshot();
    const { source, site, show, sort } = query;
    const selectionKey = JSON.stringify([source, site, query.search, show, sort]);
    const cachedSelection = selections.get(selectionKey);
    if (cachedSelection !== undefined) return cachedSelection;
    const searchText = query.search?.trim().toLowerCase() ?? "";
    const matchingTags = tags.filter(
      ({ rankedTag }) =>
        (source === undefined || rankedTag.source === source) &&
        (site === undefined || rankedTag.siteId === site) &&
        (searchText === "" || rankedTag.searchText.includes(searchText)),
    );
    const countMatchingTags = (choice: TagsQuery["show"]) => matchingTags.filter(TAG_FILTERS[choice]).length;
    const counts = {
      all: matchingTags.length,
      bad: countMatchingTags("bad"),
      stale: countMatchingTags("stale"),
      unread: countMatchingTags("unread"),
    };
    const tagSelection = { counts, tags: matchingTags.filter(TAG_FILTERS[show]).sort(compareTagsBy(sort)) };
    if (selections.size >= MAX_CACHED_SELECTIONS) selections.clear();
    selections.set(selectionKey, tagSelection);
    return tagSelection;
  }

  async function readTagRow({ source, siteId, site, tag }: IndexedTag): Promise<TagRow> {
    const storedValue = await store.document<StoredValue>(documentSet("value", source), tag.id);
    return {
      ...{ source, siteId, site, tag },
      value: storedValue?.value ?? null,
      quality: storedValue?.quality ?? null,
      staleReason: storedValue?.staleReason ?? null,
      time: storedValue === undefined ? null : readingTimeOf(storedValue),
      class: findReadClass(source, tag.id)?.className ?? null,
    };
  }
  return {
    async list(query: TagsQuery): Promise<TagListResponse> {
      const { counts, tags } = await selectTags(query);
      const pageTags = tags.slice(query.offset, query.offset + query.limit);
      return {
        total: tags.length,
        counts,
        rows: await Promise.all(pageTags.map(({ rankedTag }) => readTagRow(rankedTag))),
      };
    },
    counts: async (scope: ScopeQuery) => (await selectTags({ ...scope, show: "all", sort: "name" })).counts,
    async findRow(source: string, id: string): Promise<TagRow | null> {
      const storedTag = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
      if (storedTag === undefined) return null;
      const { siteId, value: tag } = storedTag;
      const site = await store.document<StoredObject<Site>>(documentSet("site", source), String(siteId));
      return readTagRow({ source, siteId, site: site?.value.displayName ?? null, tag });
    },
    async tagsOfSite(source: string, site: number) {
      const { tags } = await selectTags({ source, site, show: "all", sort: "name" });
      return tags.map(({ rankedTag: { siteId, tag } }) => ({ siteId, name: tag.displayName, tag }));
    },
  };
}

const TAG_FILTERS: Readonly<Record<TagsQuery["show"], (tag: TagValueState) => boolean>> = {
  all: () => true,
  bad: ({ value }) => value?.quality === "bad",
  stale: ({ value }) => value?.quality === "stale",
  unread: ({ value }) => value === undefined,
};

/** Stores each tag's position by name and by site, because sorting names takes a hundred times longer than numbers. */
function rankTags(tags: readonly RankedTag[]): void {
  const { compare } = new Intl.Collator("en", { numeric: true });
  const compareById = (a: RankedTag, b: RankedTag) => compare(a.tag.id, b.tag.id) || compare(a.source, b.source);
  const sortedByName = tags.toSorted((a, b) => compare(a.tag.displayName, b.tag.displayName) || compareById(a, b));
  for (const [n, tag] of sortedByName.entries()) tag.nameRank = n;
  const sortedBySite = sortedByName.toSorted((a, b) => compare(a.site ?? "", b.site ?? "") || a.nameRank - b.nameRank);
  for (const [n, tag] of sortedBySite.entries()) tag.siteRank = n;
}

/** Numbers by which tags are sorted; tags without a value always come last. */
const TAG_SORT_KEYS: Readonly<Record<string, (tag: TagValueState) => number | null>> = {
  name: ({ rankedTag }) => rankedTag.nameRank,
  site: ({ rankedTag }) => rankedTag.siteRank,
  age: ({ value }) => (value === undefined ? null : -Date.parse(readingTimeOf(value))),
  value: ({ value }) => (value === undefined || value.value === null ? null : Number(value.value)),
};

function compareTagsBy(sort: TagsQuery["sort"]): (a: TagValueState, b: TagValueState) => number {
  const sortSign = sort.startsWith("-") ? -1 : 1;
  const sortKeyOf = TAG_SORT_KEYS[sort.replace("-", "")] ?? (() => null);
  return (a, b) => {
    const [x, y] = [sortKeyOf(a), sortKeyOf(b)];
    const nameOrder = a.rankedTag.nameRank - b.rankedTag.nameRank;
    if (x === null || y === null) return Number(x === null) - Number(y === null) || nameOrder;
    return sortSign * (x - y) || nameOrder;
  };
}
