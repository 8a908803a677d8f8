import type { Site, Tag } from "../../../core/model/building.ts";
import { isAskable } from "../../source/source.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { type Listed, type StoredTagSystems, syncSet } from "../snapshot.ts";

/** A tag that is there to be read, and where it belongs. */
export interface LocatedTag {
  readonly tag: Tag;
  readonly siteId: number;
  /** Systems whose listing shows it; empty unless the configuration asks for systems (`inventory.tags_of_systems`). */
  readonly systemIds: readonly string[];
  /**
   * Why it is not there to be asked for now, though it is expected back: the last complete listing of sites did not show
   * its site, or the listings of tags do not show it lately. Absent while both do.
   */
  readonly outOfSight?: "site" | "tag";
}

/** Sets that `expectedTags` reads. */
export function inventorySets(source: string): readonly string[] {
  return [documentSet("tag", source), syncSet("tag-system", source), documentSet("site", source)];
}

const NO_SYSTEMS: readonly string[] = [];

/** Derived values of a set, with the versions of the sets that they were derived from. */
const made = new WeakMap<object, { readonly versions: string; readonly placed: readonly LocatedTag[] }>();

/**
 * Tags of the last complete lists in the order of their ids, and known tags outside the token's scope, which are expected back. Tags
 * whose id no request can contain are left out. Cached until the stored tags change.
 */
export async function expectedTags(store: Store, source: string): Promise<readonly LocatedTag[]> {
  const versions = (await Promise.all(inventorySets(source).map((set) => store.version(set)))).join(" ");
  const [tags, places, sites] = await Promise.all([
    store.documents<Listed<Tag>>(documentSet("tag", source)),
    store.documents<StoredTagSystems>(syncSet("tag-system", source)),
    store.documents<Listed<Site>>(documentSet("site", source)),
  ]);
  const before = made.get(tags);
  if (before?.versions === versions) return before.placed;
  const missing = new Map([...sites.values()].map(({ value, missingSince }) => [value.id, missingSince !== null]));
  const placed: LocatedTag[] = [];
  for (const [id, held] of tags) {
    if (held.siteId === null || !missing.has(held.siteId)) continue;
    if (!isAskable(id)) continue;
    const place = {
      tag: held.value,
      siteId: held.siteId,
      systemIds: places.get(id)?.systemIds ?? NO_SYSTEMS,
    };
    const outOfSight = missing.get(held.siteId) === true ? "site" : held.missingSince !== null ? "tag" : null;
    placed.push(outOfSight === null ? place : { ...place, outOfSight });
  }
  placed.sort((a, b) => compareIds(a.tag.id, b.tag.id));
  made.set(tags, { versions, placed });
  return placed;
}

/** The sites that the token sees, by the last complete listing. */
export async function visibleSites(store: Store, source: string): Promise<readonly Site[]> {
  const held = await store.documents<Listed<Site>>(documentSet("site", source));
  return [...held.values()].filter((site) => site.missingSince === null).map((site) => site.value);
}

/** Ids are text; those that are numbers are ordered as numbers. */
export function compareIds(a: string, b: string): number {
  return a.length === b.length || !/^\d+$/.test(a + b) ? (a < b ? -1 : a > b ? 1 : 0) : a.length - b.length;
}
