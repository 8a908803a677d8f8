import type { Gateway, Site, System } from "../../core/model/building.ts";
import type { Log } from "../../core/runtime/log.ts";
import { yieldIfManyObjects } from "../../core/runtime/waiting.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { estimateMinutesLeft } from "./first-inventory-progress.ts";
import { compareTagIds, loadRequestableTags, loadVisibleSites, type SiteTag } from "./inventory/requestable-tags.ts";
import {
  compareTagClasses,
  type NamedObject,
  type NamedSiteObject,
  type TagClass,
  type VisibleBuilding,
} from "./selectors-without-match.ts";
import { type StoredObject, type StoredTagListTimes, type StoredValue, syncSet } from "./stored-documents.ts";

export interface WantedBuildingParts {
  readonly followedSiteIds: readonly number[] | null;
  readonly systems: readonly string[];
  readonly gateways: boolean;
}

export interface ListedVisibleBuilding extends VisibleBuilding {
  readonly tags: readonly SiteTag[];
}

/** Reads the stored inventory; returns null when a part is missing or the token's sites have changed. */
export async function loadVisibleBuilding(
  store: Store,
  source: string,
  sites: readonly Site[],
  wanted: WantedBuildingParts,
): Promise<ListedVisibleBuilding | null> {
  const [storedSites, tagListTimes] = await Promise.all([
    loadVisibleSites(store, source),
    store.documents<StoredTagListTimes>(syncSet("tag-seen", source)),
  ]);
  const storedSiteIds = new Set(storedSites.map(({ id }) => id));
  if (storedSiteIds.size !== sites.length || sites.some(({ id }) => !storedSiteIds.has(id))) return null;
  const followedSites = selectFollowedSites(sites, wanted);
  const isSiteListed = (siteId: number) => {
    const siteListTimes = tagListTimes.get(String(siteId));
    return siteListTimes?.tags != null && (wanted.systems.length === 0 || siteListTimes.systems !== null);
  };
  if (!followedSites.every(isSiteListed)) return null;
  const followedSiteIds = new Set(followedSites);
  const [tags, systems, gateways, values] = await Promise.all([
    loadRequestableTags(store, source),
    store.documents<StoredObject<System>>(documentSet("system", source)),
    store.documents<StoredObject<Gateway>>(documentSet("gateway", source)),
    store.documents<StoredValue>(documentSet("value", source)),
  ]);
  return {
    sites,
    followed: wanted.followedSiteIds,
    tags: tags.filter(({ siteId }) => followedSiteIds.has(siteId)),
    systems: systems.size === 0 ? null : [...systems.values()].map(({ value }) => toNamedSystem(value)),
    gateways:
      gateways.size === 0 ? null : [...gateways.values()].map(({ value, siteId }) => toNamedGateway(value, siteId)),
    valueTypes: findValueTypesByTagId(values),
  };
}

export interface TagListProgress {
  readonly tagCount: number;
  readonly siteNumber: number;
  readonly siteCount: number;
  readonly pageCount: number;
  readonly pagesLeft: number;
}

export function describeListProgress(
  { tagCount, siteNumber, siteCount, pageCount, pagesLeft }: TagListProgress,
  { list_requests_per_minute: requestsPerMinute }: { readonly list_requests_per_minute: number },
): string {
  const minutes = estimateMinutesLeft(pageCount, pagesLeft, requestsPerMinute);
  const minutesLeftText = minutes < 1 ? "" : `, about ${minutes} min more at the pace of lists`;
  return `Listing tags: ${tagCount}, site ${siteNumber} of ${siteCount}${minutesLeftText}`;
}

export async function readVisibleBuilding(
  source: Source,
  sites: readonly Site[],
  wanted: WantedBuildingParts,
  signal: AbortSignal,
  onProgress: (progress: TagListProgress) => void,
): Promise<ListedVisibleBuilding> {
  const followedSites = selectFollowedSites(sites, wanted);
  const systems: NamedObject[] = [];
  for (const siteId of wanted.systems.length > 0 ? followedSites : [])
    for await (const page of source.systems({ siteId }, signal)) systems.push(...page.items.map(toNamedSystem));
  const existingSystemIds = systems.map(({ id }) => id).filter((id) => wanted.systems.includes(id));
  const tags = await readTagsFromLists(source, followedSites, existingSystemIds, signal, onProgress);
  const gateways: NamedSiteObject[] = [];
  for (const siteId of wanted.gateways ? followedSites : [])
    for await (const page of source.gateways({ siteId }, signal))
      gateways.push(...page.items.map((gateway) => toNamedGateway(gateway, siteId)));
  return {
    sites,
    followed: wanted.followedSiteIds,
    tags,
    systems: wanted.systems.length > 0 ? systems : null,
    gateways: wanted.gateways ? gateways : null,
    valueTypes: new Map(),
  };
}

export async function readTagsFromLists(
  source: Source,
  siteIds: readonly number[],
  systemIds: readonly string[],
  signal: AbortSignal,
  onProgress: (progress: TagListProgress) => void,
): Promise<readonly SiteTag[]> {
  const tags = new Map<string, SiteTag>();
  let pageCount = 0;
  const systemsByTag = await readSystemsOfTags(source, siteIds, systemIds, signal);
  for (const [i, siteId] of siteIds.entries()) {
    for await (const page of source.tags({ siteId }, signal)) {
      for (const tag of page.items)
        if (!tags.has(tag.id)) tags.set(tag.id, { tag, siteId, systemIds: systemsByTag.get(tag.id) ?? [] });
      pageCount += 1;
      const sitePagesLeft = Math.max(0, page.lastPage - page.number);
      const pagesPerSite = (pageCount + sitePagesLeft) / (i + 1);
      const pagesLeft = sitePagesLeft + Math.ceil(pagesPerSite * (siteIds.length - i - 1));
      onProgress({ tagCount: tags.size, siteNumber: i + 1, siteCount: siteIds.length, pageCount, pagesLeft });
    }
  }
  return [...tags.values()].sort((a, b) => compareTagIds(a.tag.id, b.tag.id));
}

async function readSystemsOfTags(
  source: Source,
  siteIds: readonly number[],
  systemIds: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const systemsByTag = new Map<string, string[]>();
  for (const systemId of new Set(systemIds))
    for (const siteId of siteIds)
      for await (const page of source.tags({ siteId, systemId }, signal))
        for (const { id } of page.items) systemsByTag.set(id, [...(systemsByTag.get(id) ?? []), systemId]);
  return systemsByTag;
}

function selectFollowedSites(sites: readonly Site[], { followedSiteIds }: WantedBuildingParts): readonly number[] {
  return sites.map(({ id }) => id).filter((id) => followedSiteIds?.includes(id) ?? true);
}

function toNamedSystem({ id, code, displayName }: System): NamedObject {
  return { id, name: [code, displayName].filter((word) => word !== null && word !== "").join(" ") };
}

function toNamedGateway({ id, displayName }: Gateway, siteId: number | null): NamedSiteObject {
  return { id, name: displayName, siteId };
}

function findValueTypesByTagId(values: ReadonlyMap<string, StoredValue>): ReadonlyMap<string, "number" | "boolean"> {
  const valueTypes = new Map<string, "number" | "boolean">();
  for (const [id, { value, lastGood }] of values) {
    const valueType = typeof (value ?? lastGood?.value);
    if (valueType === "number" || valueType === "boolean") valueTypes.set(id, valueType);
  }
  return valueTypes;
}

export type TagClassLists = ReadonlyMap<string, readonly TagClass[]>;

/** Logs classes that select no tag, with the reason, after each complete list of tags. Logs each reason once. */
export function createEmptyClassLogger(options: {
  readonly source: string;
  readonly classLists: TagClassLists;
  readonly followedSiteIds: readonly number[] | null;
  readonly log: Log;
}): (store: Store) => Promise<void> {
  const { source, classLists, followedSiteIds, log } = options;
  let loggedReasons: ReadonlySet<string> = new Set();
  return async (store) => {
    const sites = await loadVisibleSites(store, source);
    const building = await loadVisibleBuilding(store, source, sites, { followedSiteIds, systems: [], gateways: false });
    if (building === null || building.tags.length === 0) return;
    await yieldIfManyObjects(building.tags.length);
    const currentReasons = new Set<string>();
    for (const [list, classes] of classLists) {
      for (const { name, tags, mismatches } of compareTagClasses(classes, building)) {
        if (tags > 0) continue;
        const reason = mismatches.map(({ message }) => message).join(" ");
        const reasonKey = `${list} ${name} ${reason}`;
        currentReasons.add(reasonKey);
        if (!loggedReasons.has(reasonKey)) log.warn({ list, class: name, reason }, "a class selects no tag");
      }
    }
    loggedReasons = currentReasons;
  };
}
