import type { Gateway, Site, System, Tag } from "../../core/model/building.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { LocatedObject, NamedThing, SeenBuilding } from "./compare.ts";
import { minutesLeft } from "./first-inventory.ts";
import { compareIds, expectedTags, type LocatedTag, visibleSites } from "./inventory/held.ts";
import { type Listed, type StoredTagSeen, type StoredValue, syncSet } from "./snapshot.ts";

/** Parts of a building that a comparison needs. */
export interface BuildingSelection {
  /** Sites whose tags are followed (`inventory.sites`); null for every site. */
  readonly followed: readonly number[] | null;
  /** Ids of the systems that selections name; empty where none does. */
  readonly systems: readonly string[];
  /** Whether something names a gateway. */
  readonly gateways: boolean;
}

/** The same with the tags as a plan takes them. */
export interface ListedBuilding extends SeenBuilding {
  readonly tags: readonly LocatedTag[];
}

/**
 * Reads the stored inventory without changing it. Null when it lacks a part, or when the token's sites have changed.
 */
export async function buildingFromState(
  store: Store,
  source: string,
  visible: readonly Site[],
  wish: BuildingSelection,
): Promise<ListedBuilding | null> {
  const [held, seen] = await Promise.all([
    visibleSites(store, source),
    store.documents<StoredTagSeen>(syncSet("tag-seen", source)),
  ]);
  const known = new Set(held.map(({ id }) => id));
  if (known.size !== visible.length || visible.some(({ id }) => !known.has(id))) return null;
  const isListed = ({ id }: Site) => {
    const listed = seen.get(String(id));
    return listed?.tags != null && (wish.systems.length === 0 || listed.systems !== null);
  };
  const followed = followedOf(visible, wish);
  if (!followed.every(isListed)) return null;
  const ids = new Set(followed.map(({ id }) => id));
  const [tags, systems, gateways, values] = await Promise.all([
    expectedTags(store, source),
    store.documents<Listed<System>>(documentSet("system", source)),
    store.documents<Listed<Gateway>>(documentSet("gateway", source)),
    store.documents<StoredValue>(documentSet("value", source)),
  ]);
  return {
    sites: visible,
    followed: wish.followed,
    tags: tags.filter(({ siteId }) => ids.has(siteId)),
    systems: systems.size === 0 ? null : [...systems.values()].map(({ value }) => namedSystem(value)),
    gateways:
      gateways.size === 0 ? null : [...gateways.values()].map(({ value, siteId }) => placedGateway(value, siteId)),
    types: typesOf(values),
  };
}

/** How far a listing of tags is. */
export interface ListProgress {
  readonly tags: number;
  /** Index of the listed site, from 1. */
  readonly site: number;
  readonly sites: number;
  readonly pages: number;
  /** Assumed of sites that were not begun: as many pages as the others have. */
  readonly pagesLeft: number;
}

/** `Listing tags: 10000, site 1 of 1, about 2 min more at the pace of lists`. */
export function listingText(
  { tags, site, sites, pages, pagesLeft }: ListProgress,
  { list_requests_per_minute: pace }: { readonly list_requests_per_minute: number },
): string {
  const minutes = minutesLeft(pages, pagesLeft, pace);
  const more = minutes < 1 ? "" : `, about ${minutes} min more at the pace of lists`;
  return `Listing tags: ${tags}, site ${site} of ${sites}${more}`;
}

/** Reads the lists, which use no quota, and reports progress to `told`. */
export async function buildingFromLists(
  source: Source,
  visible: readonly Site[],
  wish: BuildingSelection,
  signal: AbortSignal,
  told: (progress: ListProgress) => void,
): Promise<ListedBuilding> {
  const followed = followedOf(visible, wish).map(({ id }) => id);
  const systems: NamedThing[] = [];
  for (const siteId of wish.systems.length > 0 ? followed : []) {
    for await (const page of source.systems({ siteId }, signal)) systems.push(...page.items.map(namedSystem));
  }
  // The service may refuse an id that is none.
  const there = systems.map(({ id }) => id).filter((id) => wish.systems.includes(id));
  const tags = await tagsFromLists(source, followed, there, signal, told);
  const gateways: LocatedObject[] = [];
  for (const siteId of wish.gateways ? followed : []) {
    for await (const page of source.gateways({ siteId }, signal)) {
      gateways.push(...page.items.map((gateway) => placedGateway(gateway, siteId)));
    }
  }
  return {
    sites: visible,
    followed: wish.followed,
    tags,
    systems: wish.systems.length > 0 ? systems : null,
    gateways: wish.gateways ? gateways : null,
    types: new Map(),
  };
}

/** The tags of some sites in the order of their ids, with those of the named systems that list them. */
export async function tagsFromLists(
  source: Source,
  sites: readonly number[],
  systems: readonly string[],
  signal: AbortSignal,
  told: (progress: ListProgress) => void,
): Promise<readonly LocatedTag[]> {
  const tags = new Map<string, LocatedTag>();
  let pages = 0;
  const systemsOf = await systemsOfTags(source, sites, systems, signal);
  for (const [i, siteId] of sites.entries()) {
    for await (const page of source.tags({ siteId }, signal)) {
      for (const tag of page.items) {
        if (!tags.has(tag.id)) tags.set(tag.id, placedTag(tag, siteId, systemsOf));
      }
      pages += 1;
      const ofSite = Math.max(0, page.lastPage - page.number);
      const perSite = (pages + ofSite) / (i + 1);
      const pagesLeft = ofSite + Math.ceil(perSite * (sites.length - i - 1));
      told({ tags: tags.size, site: i + 1, sites: sites.length, pages, pagesLeft });
    }
  }
  return [...tags.values()].sort((a, b) => compareIds(a.tag.id, b.tag.id));
}

/** Only where a selection asks for systems: it takes a listing for each of them. */
async function systemsOfTags(
  source: Source,
  sites: readonly number[],
  systems: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, string[]>();
  for (const systemId of new Set(systems)) {
    for (const siteId of sites) {
      for await (const page of source.tags({ siteId, systemId }, signal)) {
        for (const { id } of page.items) found.set(id, [...(found.get(id) ?? []), systemId]);
      }
    }
  }
  return found;
}

function placedTag(tag: Tag, siteId: number, systems: ReadonlyMap<string, readonly string[]>): LocatedTag {
  return { tag, siteId, systemIds: systems.get(tag.id) ?? [] };
}

function followedOf(visible: readonly Site[], { followed }: BuildingSelection): readonly Site[] {
  return followed === null ? visible : visible.filter(({ id }) => followed.includes(id));
}

function namedSystem({ id, code, displayName }: System): NamedThing {
  return { id, name: [code, displayName].filter((word) => word !== null && word !== "").join(" ") };
}

function placedGateway({ id, displayName }: Gateway, siteId: number | null): LocatedObject {
  return { id, name: displayName, siteId };
}

function typesOf(values: ReadonlyMap<string, StoredValue>): ReadonlyMap<string, "number" | "boolean"> {
  const types = new Map<string, "number" | "boolean">();
  for (const [id, { value, lastGood }] of values) {
    const type = typeof (value ?? lastGood?.value);
    if (type === "number" || type === "boolean") types.set(id, type);
  }
  return types;
}
