import type { Alarm, System, Tag, TokenInfo } from "../../core/model/building.ts";
import type { LocatedTag } from "../../engine/sync/inventory/located-tags.ts";

/** Facts about a building before it is followed: enough to propose and plan choices. */
export interface SeenBuilding {
  readonly token: TokenInfo;
  readonly sites: readonly SeenSite[];
  /** Units of all sites, the most frequent first; extrapolated from the listed sites when `isEstimate`. */
  readonly units: readonly UnitCount[];
  readonly tags: number;
  /** Tags that were really listed. */
  readonly listed: number;
  /** True when not every tag was listed, so that units, and the number where a site was left out, are assumed. */
  readonly isEstimate: boolean;
  /** Systems of the sites that were asked for them, those with most data points first. */
  readonly systems: readonly SeenSystem[];
  /** Active alarms; null where the token may not read them. */
  readonly alarms: number | null;
  /** Offsets that the service writes alarms' times with, and at which time; see time-zone.ts. */
  readonly offsets: readonly SeenOffset[];
}

export interface SeenSite {
  readonly id: number;
  readonly displayName: string;
  /** Null where it was not looked at. */
  readonly tags: number | null;
}

export interface UnitCount {
  /** "" for tags without one. */
  readonly unit: string;
  readonly tags: number;
}

export interface SeenSystem {
  readonly id: string;
  readonly code: string;
  readonly displayName: string;
  readonly tags: number;
}

export interface SeenOffset {
  /** UTC. */
  readonly time: string;
  readonly minutes: number;
}

/** Responses of the service, list by list. */
export interface Looks {
  readonly token: TokenInfo;
  /** Number of tags that the service states for each inspected site, and its listed tags. */
  readonly tagsOf: ReadonlyMap<number, { readonly total: number; readonly listed: readonly Tag[] }>;
  readonly systems: readonly System[];
  readonly alarms: { readonly total: number; readonly listed: readonly Alarm[] } | null;
}

export function seenBuilding({ token, tagsOf, systems, alarms }: Looks): SeenBuilding {
  const all = [...tagsOf.values()];
  const listed = all.reduce((sum, { listed: tags }) => sum + tags.length, 0);
  const perSite = all.length === 0 ? 0 : token.sites.length / all.length;
  const units = unitsOf(all, perSite);
  const tags = units.reduce((sum, each) => sum + each.tags, 0);
  return {
    token,
    sites: token.sites.map((site) => ({ ...site, tags: tagsOf.get(site.id)?.total ?? null })),
    units,
    tags,
    listed,
    isEstimate: listed < tags,
    systems: systems
      .map(({ id, code, displayName, datapointsCount }) => ({
        ...{ id, code, displayName },
        tags: datapointsCount ?? 0,
      }))
      .toSorted((a, b) => b.tags - a.tags),
    alarms: alarms?.total ?? null,
    offsets: (alarms?.listed ?? []).flatMap(offsetOf),
  };
}

/** Tags of one site that were not listed are assumed to be like those that were, sites that were not like the others. */
function unitsOf(
  all: readonly { readonly total: number; readonly listed: readonly Tag[] }[],
  perSite: number,
): readonly UnitCount[] {
  const counts = new Map<string, number>();
  for (const { total, listed } of all) {
    for (const { unit } of listed) {
      const of = unit ?? "";
      counts.set(of, (counts.get(of) ?? 0) + (total / listed.length) * perSite);
    }
  }
  return [...counts]
    .map(([unit, count]) => ({ unit, tags: Math.max(1, Math.round(count)) }))
    .toSorted((a, b) => b.tags - a.tags);
}

/** A service that writes all times in UTC says nothing by it. */
function offsetOf({ triggeredAt, triggeredAtRaw }: Alarm): readonly SeenOffset[] {
  const [, sign = "", hours, minutes] = /([+-])(\d\d):?(\d\d)$/.exec(triggeredAtRaw) ?? [];
  const offset = Number(`${sign}1`) * (Number(hours) * 60 + Number(minutes));
  return sign === "" || offset === 0 ? [] : [{ time: triggeredAt, minutes: offset }];
}

/** As many tags of each unit as there are, with ids of their own: a plan asks for no more of a tag. */
export function tagsForPlan({ units, sites }: SeenBuilding): readonly LocatedTag[] {
  const siteId = sites[0]?.id ?? 0;
  let id = 0;
  return units.flatMap(({ unit, tags }) =>
    Array.from({ length: tags }, () => {
      id += 1;
      const tag = { id: String(id), displayName: "", description: null, unit: unit === "" ? null : unit };
      return { tag, siteId, systemIds: [] };
    }),
  );
}
