import type { Site, Tag } from "../../../core/model/building.ts";
import { isRequestableId } from "../../source/source.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { type StoredItem, type StoredTagSystems, syncSet } from "../snapshot.ts";

export interface LocatedTag {
  readonly tag: Tag;
  readonly siteId: number;
  readonly systemIds: readonly string[];
  /** Set while the lists lack the tag's site or the tag, and the tag is expected back. */
  readonly outOfSight?: "site" | "tag";
}

export function inventorySets(source: string): readonly string[] {
  return [documentSet("tag", source), syncSet("tag-system", source), documentSet("site", source)];
}

const NO_SYSTEMS: readonly string[] = [];

const locatedTagsCache = new WeakMap<object, { readonly versions: string; readonly located: readonly LocatedTag[] }>();

/** Returns stored tags that a request can contain, sorted by id. Cached until the stored tags change. */
export async function expectedTags(store: Store, source: string): Promise<readonly LocatedTag[]> {
  const setVersions = (await Promise.all(inventorySets(source).map((set) => store.version(set)))).join(" ");
  const [tags, tagSystems, sites] = await Promise.all([
    store.documents<StoredItem<Tag>>(documentSet("tag", source)),
    store.documents<StoredTagSystems>(syncSet("tag-system", source)),
    store.documents<StoredItem<Site>>(documentSet("site", source)),
  ]);
  const cachedTags = locatedTagsCache.get(tags);
  if (cachedTags?.versions === setVersions) return cachedTags.located;
  const missingSites = new Map([...sites.values()].map(({ value, missingSince }) => [value.id, missingSince !== null]));
  const locatedTags: LocatedTag[] = [];
  for (const [id, { value: tag, siteId, missingSince }] of tags) {
    if (siteId === null || !missingSites.has(siteId) || !isRequestableId(id)) continue;
    const baseTag = { tag, siteId, systemIds: tagSystems.get(id)?.systemIds ?? NO_SYSTEMS };
    const missingPart = missingSites.get(siteId) === true ? "site" : missingSince !== null ? "tag" : null;
    locatedTags.push(missingPart === null ? baseTag : { ...baseTag, outOfSight: missingPart });
  }
  locatedTags.sort((a, b) => compareTagIds(a.tag.id, b.tag.id));
  locatedTagsCache.set(tags, { versions: setVersions, located: locatedTags });
  return locatedTags;
}

export async function visibleSites(store: Store, source: string): Promise<readonly Site[]> {
  const storedSites = await store.documents<StoredItem<Site>>(documentSet("site", source));
  return [...storedSites.values()].filter((site) => site.missingSince === null).map((site) => site.value);
}

export function compareTagIds(a: string, b: string): number {
  return a.length === b.length || !/^\d+$/.test(a + b) ? (a < b ? -1 : a > b ? 1 : 0) : a.length - b.length;
}
