import { type Apart, NEVER_MS, type PlannedTags } from "../plan/planned.ts";
import type { WatchedTag } from "./value-event.ts";

/**
 * The tag schedule as columns for the planner, updated per slot: of 50,000 tags 20 change per slot, and rewriting all
 * takes 1 ms.
 */
interface ScheduleColumns {
  /**
   * The tags for the planner; those that are set aside, or that the token does not see, are left out. What it answers is
   * good until it is asked again.
   */
  planned(tags: ReadonlyMap<string, ScheduledTag>, nowMs: number): PlannedTags;
  /** Something of the tag changed that the planner sees. */
  changed(tag: ScheduledTag): void;
  /** Which tags are shown, or what holds for many, changed. */
  outdated(): void;
}

interface ScheduleColumnsOptions {
  readonly context: ScheduleContext;
  /** The interval that is kept. */
  readonly intervalMsOf: (tag: ScheduledTag, facts: SiteFacts) => number;
  /** When a `patient` tag of the site was last asked for. */
  readonly siteAskedMs: (siteId: number) => number;
}

/** Columns as the planner reads them; entries beyond `count` are unused. */
type Columns = { count: number } & Omit<PlannedTags, "count" | "ids" | "apart"> & {
    readonly ids: string[];
    readonly apart: Map<number, Apart>;
  };

function columnsFor(most: number): Columns {
  return {
    count: 0,
    ids: [],
    intervalMs: new Float64Array(most),
    lastMs: new Float64Array(most),
    sinceMs: new Float64Array(most),
    underWay: new Uint8Array(most),
    apart: new Map(),
  };
}

export function createScheduleColumns(options: ScheduleColumnsOptions): ScheduleColumns {
  const { context } = options;
  let columns: Columns = columnsFor(0);
  let isOutdated = true;
  /** Facts of all sites when the columns were written. */
  let written: ReadonlyMap<number, SiteFacts> = new Map();
  /** Tags that changed since they were written, or that wait for another try. */
  const touched = new Set<ScheduledTag>();

  function isWrittenOtherwise(): boolean {
    for (const [siteId, { offline, inSight }] of written) {
      if (context.gatewayOffline(siteId) !== offline || context.sees(siteId) !== inSight) return true;
    }
    return false;
  }

  function writeAll(tags: ReadonlyMap<string, ScheduledTag>, nowMs: number): void {
    if (columns.underWay.length < tags.size) columns = columnsFor(tags.size);
    columns.apart.clear();
    touched.clear();
    const sites = createSiteLook(context);
    const anyApart = context.anyApart();
    let count = 0;
    for (const tag of tags.values()) {
      const facts = sites.of(tag.watched.siteId);
      const isShown = tag.asideUntilMs === null && facts.inSight;
      tag.place = isShown ? count : -1;
      if (!isShown) continue;
      columns.ids[count] = tag.id;
      write(tag, facts, nowMs);
      if (anyApart) writeApart(tag, nowMs);
      count += 1;
    }
    columns.ids.length = count;
    columns.count = count;
    written = sites.seen;
    isOutdated = false;
  }

  function write(tag: ScheduledTag, facts: SiteFacts, nowMs: number): void {
    const { place } = tag;
    const offline = facts.offline && !tag.answersAnyway;
    // The gateway is back, so its nulls no longer count: the tag is due at its target interval.
    if (tag.gatewayWasOffline && !offline) tag.nulls = 0;
    tag.gatewayWasOffline = offline;
    const isWaiting = tag.retryMs > nowMs;
    columns.intervalMs[place] = options.intervalMsOf(tag, facts);
    columns.lastMs[place] = tag.lastMs ?? tag.countedMs ?? NEVER_MS;
    columns.sinceMs[place] = tag.sinceMs;
    columns.underWay[place] = tag.underWay || isWaiting ? 1 : 0;
    if (isWaiting) touched.add(tag);
    else touched.delete(tag);
  }

  function writeApart({ id, place, watched }: ScheduledTag, nowMs: number): void {
    const label = context.labelOf(id);
    if (label === null) return;
    const siteAskedMs = options.siteAskedMs(watched.siteId);
    columns.apart.set(place, { label, turn: context.turnOf(id), siteAskedMs });
    if (context.notBeforeMs(id) > nowMs) columns.underWay[place] = 1;
  }

  return {
    planned(tags, nowMs) {
      // Who travels apart, and when, changes with others that were answered.
      const isApart = context.anyApart() || columns.apart.size > 0;
      if (isOutdated || isApart || isWrittenOtherwise()) writeAll(tags, nowMs);
      else {
        for (const tag of touched) {
          if (tag.place >= 0) write(tag, factsOf(context, tag.watched.siteId), nowMs);
          else touched.delete(tag);
        }
      }
      return columns;
    },
    changed: (tag) => void touched.add(tag),
    outdated() {
      isOutdated = true;
    },
  };
}

/** State of one tag in the schedule. Monotonic milliseconds. */
export interface ScheduledTag {
  readonly id: string;
  /** Index in the planner's columns; -1 if the tag is not in them. */
  place: number;
  watched: WatchedTag;
  lastMs: number | null;
  /**
   * Time at which a value of unknown age counts as read: the clock was set back after it was stored. Null for all
   * other values.
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

/** Facts about tags and sites that the schedule does not store itself. */
export interface ScheduleContext {
  /** Whether its values are known to be missing because a gateway is away. */
  gatewayOffline(siteId: number): boolean;
  /** Whether the token sees the site. */
  sees(siteId: number): boolean;
  /** True if any tag is read apart from the others. Usually false, which saves a query for each of 50,000 tags. */
  anyApart(): boolean;
  /** Tags with the same text travel together, apart from the others. */
  labelOf(id: string): string | null;
  /** How one that travels apart has its turn; null where it is slow. */
  turnOf(id: string): Apart["turn"];
  /** True if the tag itself, not only its site, is suspected of being refused. */
  isSuspect(id: string): boolean;
  /** Before this the tag is not asked. */
  notBeforeMs(id: string): number;
}

/** Facts that are the same for all tags of a site. */
export interface SiteFacts {
  /** Its gateways are away. */
  readonly offline: boolean;
  /** The token sees it. */
  readonly inSight: boolean;
}

interface SiteLook {
  of(siteId: number): SiteFacts;
  /** Sites queried so far. */
  readonly seen: ReadonlyMap<number, SiteFacts>;
}

export function factsOf(context: ScheduleContext, siteId: number): SiteFacts {
  return { offline: context.gatewayOffline(siteId), inSight: context.sees(siteId) };
}

/** For one look at all tags: each site is asked for once, where 50,000 tags would each ask for the time. */
export function createSiteLook(context: ScheduleContext): SiteLook {
  const seen = new Map<number, SiteFacts>();
  let id = Number.NaN;
  let facts: SiteFacts = { offline: false, inSight: false };
  return {
    seen,
    of(siteId) {
      // One tag after the other is mostly of the same site.
      if (siteId === id) return facts;
      id = siteId;
      facts = seen.get(siteId) ?? factsOf(context, siteId);
      seen.set(siteId, facts);
      return facts;
    },
  };
}
