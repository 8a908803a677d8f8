import type { Gateway, Site, System } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { type Listed, type StoredTagSystems, syncSet } from "../../engine/sync/snapshot.ts";
import { activeAlarms } from "./alarm-briefs.ts";
import { type CachedDocuments, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import type { DayBars, SiteResponse } from "./responses.ts";
import type { TagIndex } from "./tag-index.ts";

export interface SiteParts {
  readonly store: Pick<Store, "document">;
  readonly remembered: CachedDocuments;
  readonly tags: Pick<TagIndex, "counts" | "ofSite">;
  readonly raised: (source: string, site: number) => Promise<DayBars>;
}

/** Null for an unknown site. */
export async function siteAnswer(parts: SiteParts, source: string, id: number): Promise<SiteResponse | null> {
  const { remembered, store, tags } = parts;
  const site = await store.document<Listed<Site>>(documentSet("site", source), String(id));
  if (site === undefined) return null;
  const ofSite = async <T extends { readonly displayName: string }>(
    name: "gateway" | "system",
    maxAgeMs: number,
  ) => {
    const held = await remembered.documents<Listed<T>>(documentSet(name, source), maxAgeMs);
    return [...held.values()]
      .filter((each) => each.siteId === id && each.missingSince === null)
      .map(({ value }) => value)
      .sort((a, b) => a.displayName.localeCompare(b.displayName, "en", { numeric: true }));
  };
  const [gateways, systems, tagsOf] = await Promise.all([
    ofSite<Gateway>("gateway", WATCHED_MS),
    ofSite<System>("system", STEADY_MS),
    tagsBySystem(parts, source, id),
  ]);
  return {
    source,
    id,
    displayName: site.value.displayName,
    alarms: await activeAlarms(remembered, source, (alarm) => alarm.site.id === id),
    gateways: gateways.map(({ id: gateway, displayName, online }) => ({ id: gateway, displayName, online })),
    systems: systems.map((system) => ({
      id: system.id,
      displayName: system.displayName,
      tags: tagsOf?.get(system.id) ?? (tagsOf === null ? system.datapointsCount : 0),
    })),
    tags: await tags.counts({ source, site: id }),
    raised: await parts.raised(source, id),
  };
}

/** Number of the site's tags that each system lists; null when they are not read. */
async function tagsBySystem(
  { remembered, tags }: SiteParts,
  source: string,
  site: number,
): Promise<ReadonlyMap<string, number> | null> {
  const places = await remembered.documents<StoredTagSystems>(syncSet("tag-system", source), STEADY_MS);
  if (places.size === 0) return null;
  const counts = new Map<string, number>();
  for (const { tag } of await tags.ofSite(source, site)) {
    for (const system of places.get(tag.id)?.systemIds ?? [])
      counts.set(system, (counts.get(system) ?? 0) + 1);
  }
  return counts;
}
