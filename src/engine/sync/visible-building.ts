import type { Gateway, Site, System } from "../../core/model/building.ts";
import type { Log } from "../../core/runtime/log.ts";
import { yieldIfManyObjects } from "../../core/runtime/waiting.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { minutesLeft } from "./first-inventory.ts";
import { compareTagIds, expectedTags, type LocatedTag, visibleSites } from "./inventory/requestable-tags.ts";
import {
  compareClasses,
  type LocatedObject,
  type NamedThing,
  type SeenBuilding,
  type TagClass,
} from "./selection-mismatches.ts";
import { type StoredItem, type StoredTagSeen, type StoredValue, syncSet } from "./snapshot.ts";

export interface BuildingSelection {
  readonly followed: readonly number[] | null;
  readonly systems: readonly string[];
  readonly gateways: boolean;
}

export interface ListedBuilding extends SeenBuilding {
  readonly tags: readonly LocatedTag[];
}

/** Reads the stored inventory; returns null when a part is missing or the token's sites have changed. */
export async function buildingFromState(
  store: Store,
  source: string,
  visible: readonly Site[],
  wanted: BuildingSelection,
): Promise<ListedBuilding | null> {
  const [stored, seen] = await Promise.all([
    visibleSites(store, source),
    store.documents<StoredTagSeen>(syncSet("tag-seen", source)),
  ]);
  const storedSiteIds = new Set(stored.map(({ id }) => id));
  if (storedSiteIds.size !== visible.length || visible.some(({ id }) => !storedSiteIds.has(id))) return null;
  const followedSites = selectFollowedSites(visible, wanted);
  const isSiteListed = (siteId: number) => {
    const siteListTimes = seen.get(String(siteId));
    return siteListTimes?.tags != null && (wanted.systems.length === 0 || siteListTimes.systems !== null);
  };
  if (!followedSites.every(isSiteListed)) return null;
  const followedIds = new Set(followedSites);
  const [tags, systems, gateways, values] = await Promise.all([
    expectedTags(store, source),
    store.documents<StoredItem<System>>(documentSet("system", source)),
    store.documents<StoredItem<Gateway>>(documentSet("gateway", source)),
    store.documents<StoredValue>(documentSet("value", source)),
  ]);
  return {
    sites: visible,
    followed: wanted.followed,
    tags: tags.filter(({ siteId }) => followedIds.has(siteId)),
    systems: systems.size === 0 ? null : [...systems.values()].map(({ value }) => nameSystem(value)),
    gateways:
      gateways.size === 0 ? null : [...gateways.values()].map(({ value, siteId }) => locateGateway(value, siteId)),
    valueTypes: valueTypesById(values),
  };
}

export interface ListProgress {
  readonly tags: number;
  readonly site: number;
  readonly sites: number;
  readonly pages: number;
  readonly pagesLeft: number;
}

export function describeListProgress(
  { tags, site, sites, pages, pagesLeft }: ListProgress,
  { list_requests_per_minute: pace }: { readonly list_requests_per_minute: number },
): string {
  const minutes = minutesLeft(pages, pagesLeft, pace);
  const minutesText = minutes < 1 ? "" : `, about ${minutes} min more at the pace of lists`;
  return `Listing tags: ${tags}, site ${site} of ${sites}${minutesText}`;
}

export async function buildingFromLists(
  source: Source,
  visible: readonly Site[],
  wanted: BuildingSelection,
  signal: AbortSignal,
  onProgress: (progress: ListProgress) => void,
): Promise<ListedBuilding> {
  const followedSites = selectFollowedSites(visible, wanted);
  const systems: NamedThing[] = [];
  for (const siteId of wanted.systems.length > 0 ? followedSites : [])
    for await (const page of source.systems({ siteId }, signal)) systems.push(...page.items.map(nameSystem));
  const existingSystems = systems.map(({ id }) => id).filter((id) => wanted.systems.includes(id));
  const tags = await tagsFromLists(source, followedSites, existingSystems, signal, onProgress);
  const gateways: LocatedObject[] = [];
  for (const siteId of wanted.gateways ? followedSites : []) {
    for await (const page of source.gateways({ siteId }, signal)) {
      gateways.push(...page.items.map((gateway) => locateGateway(gateway, siteId)));
    }
  }
  return {
    sites: visible,
    followed: wanted.followed,
    tags,
    systems: wanted.systems.length > 0 ? systems : null,
    gateways: wanted.gateways ? gateways : null,
    valueTypes: new Map(),
  };
}

export async function tagsFromLists(
  source: Source,
  sites: readonly number[],
  systems: readonly string[],
  signal: AbortSignal,
  onProgress: (progress: ListProgress) => void,
): Promise<readonly LocatedTag[]> {
  const tags = new Map<string, LocatedTag>();
  let pages = 0;
  const systemsByTag = await readSystemsOfTags(source, sites, systems, signal);
  for (const [i, siteId] of sites.entries()) {
    for await (const page of source.tags({ siteId }, signal)) {
      for (const tag of page.items)
        if (!tags.has(tag.id)) tags.set(tag.id, { tag, siteId, systemIds: systemsByTag.get(tag.id) ?? [] });
      pages += 1;
      const sitePagesLeft = Math.max(0, page.lastPage - page.number);
      const pagesPerSite = (pages + sitePagesLeft) / (i + 1);
      const pagesLeft = sitePagesLeft + Math.ceil(pagesPerSite * (sites.length - i - 1));
      onProgress({ tags: tags.size, site: i + 1, sites: sites.length, pages, pagesLeft });
    }
  }
  return [...tags.values()].sort((a, b) => compareTagIds(a.tag.id, b.tag.id));
}

async function readSystemsOfTags(
  source: Source,
  sites: readonly number[],
  systems: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const systemsByTag = new Map<string, string[]>();
  for (const systemId of new Set(systems)) {
    for (const siteId of sites) {
      for await (const page of source.tags({ siteId, systemId }, signal)) {
        for (const { id } of page.items) systemsByTag.set(id, [...(systemsByTag.get(id) ?? []), systemId]);
      }
    }
  }
  return systemsByTag;
}

function selectFollowedSites(visible: readonly Site[], { followed }: BuildingSelection): readonly number[] {
  return visible.map(({ id }) => id).filter((id) => followed?.includes(id) ?? true);
}

function nameSystem({ id, code, displayName }: System): NamedThing {
  return { id, name: [code, displayName].filter((word) => word !== null && word !== "").join(" ") };
}

function locateGateway({ id, displayName }: Gateway, siteId: number | null): LocatedObject {
  return { id, name: displayName, siteId };
}

function valueTypesById(values: ReadonlyMap<string, StoredValue>): ReadonlyMap<string, "number" | "boolean"> {
  const valueTypes = new Map<string, "number" | "boolean">();
  for (const [id, { value, lastGood }] of values) {
    const valueType = typeof (value ?? lastGood?.value);
    if (valueType === "number" || valueType === "boolean") valueTypes.set(id, valueType);
  }
  return valueTypes;
}

export type ClassLists = ReadonlyMap<string, readonly TagClass[]>;

/** Logs classes that select no tag, with the reason, after each complete list of tags. Logs each reason once. */
export function createSelectionWarning({
  source,
  lists,
  followed,
  log,
}: {
  readonly source: string;
  readonly lists: ClassLists;
  readonly followed: readonly number[] | null;
  readonly log: Log;
}): (store: Store) => Promise<void> {
  let loggedReasons: ReadonlySet<string> = new Set();
  return async (store) => {
    const sites = await visibleSites(store, source);
    const building = await buildingFromState(store, source, sites, { followed, systems: [], gateways: false });
    if (building === null || building.tags.length === 0) return;
    await yieldIfManyObjects(building.tags.length);
    const reasonsNow = new Set<string>();
    for (const [list, classes] of lists) {
      for (const { name, tags, mismatches } of compareClasses(classes, building)) {
        if (tags > 0) continue;
        const reason = mismatches.map(({ message }) => message).join(" ");
        const reasonKey = `${list} ${name} ${reason}`;
        reasonsNow.add(reasonKey);
        if (!loggedReasons.has(reasonKey)) log.warn({ list, class: name, reason }, "a class selects no tag");
      }
    }
    loggedReasons = reasonsNow;
  };
}
