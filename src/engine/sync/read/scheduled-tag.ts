import type { Apart } from "../plan/planned.ts";
import type { WatchedTag } from "./value-event.ts";

/** What the board holds of a tag. Monotonic milliseconds. */
export interface ScheduledTag {
  readonly id: string;
  /** Where it stands in the planner's columns; -1 where it does not. */
  place: number;
  watched: WatchedTag;
  lastMs: number | null;
  /**
   * Where a value is held of which nobody knows how old it is, because the clock was set back meanwhile: when it counts as
   * read for the plan. Null for any other.
   */
  readonly countedMs: number | null;
  /** Since when it is to be read. */
  sinceMs: number;
  nulls: number;
  /** When the last null was counted; a slot that is left over may bring several within one interval. */
  nullAtMs: number;
  failures: number;
  retryMs: number;
  underWay: boolean;
  asideUntilMs: number | null;
  gatewayWasOffline: boolean;
  /** The service answers values although its list of gateways, which may be old, says offline: the value counts. */
  answersAnyway: boolean;
}

/** What decides about a tag beside its own past. */
export interface ScheduleContext {
  /** Whether its values are known to be missing because a gateway is away. */
  gatewayOffline(siteId: number): boolean;
  /** Whether the token sees the site. */
  sees(siteId: number): boolean;
  /** Whether any tag travels apart from the others: as a rule none does, and then nobody asks for each of 50,000. */
  anyApart(): boolean;
  /** Tags with the same text travel together, apart from the others. */
  labelOf(id: string): string | null;
  /** How one that travels apart has its turn; null where it is slow. */
  turnOf(id: string): Apart["turn"];
  /** Whether it is suspected, by itself, of being refused. */
  isSuspect(id: string): boolean;
  /** Before this the tag is not asked. */
  notBeforeMs(id: string): number;
}

/** What holds for all tags of a site. */
export interface SiteFacts {
  /** Its gateways are away. */
  readonly offline: boolean;
  /** The token sees it. */
  readonly inSight: boolean;
}

export interface SiteLook {
  of(siteId: number): SiteFacts;
  /** What was asked for so far. */
  readonly seen: ReadonlyMap<number, SiteFacts>;
}

export function factsOf(around: ScheduleContext, siteId: number): SiteFacts {
  return { offline: around.gatewayOffline(siteId), inSight: around.sees(siteId) };
}

/** For one look at all tags: each site is asked for once, where 50,000 tags would each ask for the time. */
export function lookAtSites(around: ScheduleContext): SiteLook {
  const seen = new Map<number, SiteFacts>();
  let id = Number.NaN;
  let facts: SiteFacts = { offline: false, inSight: false };
  return {
    seen,
    of(siteId) {
      // One tag after the other is mostly of the same site.
      if (siteId === id) return facts;
      id = siteId;
      facts = seen.get(siteId) ?? factsOf(around, siteId);
      seen.set(siteId, facts);
      return facts;
    },
  };
}
