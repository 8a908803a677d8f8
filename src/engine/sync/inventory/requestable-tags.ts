import type { Site, Tag } from "../../../core/model/building.ts";
import { isRequestableTagId } from "../../source/source.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { type StoredObject, type StoredTagSystems, syncSet } from "../stored-documents.ts";

export interface SiteTag {
  readonly tag: Tag;
  readonly siteId: number;
  readonly systemIds: readonly string[];
  /** Set while the service no longer lists the tag or its site, but may list it again. */
  readonly missing?: "site" | "tag";
}

export function tagInventorySets(source: string): readonly string[] {
  return [documentSet("tag", source), syncSet("tag-system", source), documentSet("site", source)];
}

const NO_SYSTEM_IDS: readonly string[] = [];

const requestableTagsCache = new WeakMap<object, { readonly versions: string; readonly tags: readonly SiteTag[] }>();

/** Returns stored tags that a request can contain, sorted by id. Cached until the stored tags change. */
export async function loadRequestableTags(store: Store, source: string): Promise<readonly SiteTag[]> {
  const inventorySetVersions = (await Promise.all(tagInventorySets(source).map((set) => store.version(set)))).join(" ");
  const [tags, tagSystems, sites] = await Promise.all([
    store.documents<StoredObject<Tag>>(documentSet("tag", source)),
    store.documents<StoredTagSystems>(syncSet("tag-system", source)),
    store.documents<StoredObject<Site>>(documentSet("site", source)),
  ]);
  const cachedRequestableTags = requestableTagsCache.get(tags);
  if (cachedRequestableTags?.versions === inventorySetVersions) return cachedRequestableTags.tags;
  const siteAbsence = new Map([...sites.values()].map(({ value, missingSince }) => [value.id, missingSince !== null]));
  const requestableTags: SiteTag[] = [];
  for (const [id, { value: tag, siteId, missingSince }] of tags) {
    if (siteId === null || !siteAbsence.has(siteId) || !isRequestableTagId(id)) continue;
    const tagWithSite = { tag, siteId, systemIds: tagSystems.get(id)?.systemIds ?? NO_SYSTEM_IDS };
    const missingObject = siteAbsence.get(siteId) === true ? "site" : missingSince !== null ? "tag" : null;
    requestableTags.push(missingObject === null ? tagWithSite : { ...tagWithSite, missing: missingObject });
  }
  requestableTags.sort((a, b) => compareTagIds(a.tag.id, b.tag.id));
  requestableTagsCache.set(tags, { versions: inventorySetVersions, tags: requestableTags });
  return requestableTags;
}

export async function loadVisibleSites(store: Store, source: string): Promise<readonly Site[]> {
  const storedSites = await store.documents<StoredObject<Site>>(documentSet("site", source));
  return [...storedSites.values()].filter((site) => site.missingSince === null).map((site) => site.value);
}

export function compareTagIds(a: string, b: string): number {
  return a.length === b.length || !/^\d+$/.test(a + b) ? (a < b ? -1 : a > b ? 1 : 0) : a.length - b.length;
}
