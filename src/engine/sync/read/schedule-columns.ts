import { type Apart, NEVER_MS, type PlannedTags } from "../plan/planned.ts";
import {
  factsOf,
  lookAtSites,
  type ScheduleContext,
  type ScheduledTag,
  type SiteFacts,
} from "./scheduled-tag.ts";

/**
 * What the planner is shown of the board, kept from slot to slot: of 50,000 tags 20 change in one, and to write all of
 * them takes a millisecond.
 */
export interface ScheduleColumns {
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

export interface ScheduleColumnsOptions {
  readonly around: ScheduleContext;
  /** The interval that is kept. */
  readonly intervalMsOf: (tag: ScheduledTag, facts: SiteFacts) => number;
  /** When a `patient` tag of the site was last asked for. */
  readonly siteAskedMs: (siteId: number) => number;
}

/** As the planner reads them; places beyond `count` are left over. */
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
  const { around } = options;
  let columns: Columns = columnsFor(0);
  let isOutdated = true;
  /** What holds for the sites of all tags as it was written. */
  let written: ReadonlyMap<number, SiteFacts> = new Map();
  /** Tags that changed since they were written, or that wait for another try. */
  const touched = new Set<ScheduledTag>();

  function isWrittenOtherwise(): boolean {
    for (const [siteId, { offline, inSight }] of written) {
      if (around.gatewayOffline(siteId) !== offline || around.sees(siteId) !== inSight) return true;
    }
    return false;
  }

  function writeAll(tags: ReadonlyMap<string, ScheduledTag>, nowMs: number): void {
    if (columns.underWay.length < tags.size) columns = columnsFor(tags.size);
    columns.apart.clear();
    touched.clear();
    const sites = lookAtSites(around);
    const anyApart = around.anyApart();
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
    // Its nulls were those of a gateway that is back: it is due as wished.
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
    const label = around.labelOf(id);
    if (label === null) return;
    const siteAskedMs = options.siteAskedMs(watched.siteId);
    columns.apart.set(place, { label, turn: around.turnOf(id), siteAskedMs });
    if (around.notBeforeMs(id) > nowMs) columns.underWay[place] = 1;
  }

  return {
    planned(tags, nowMs) {
      // Who travels apart, and when, changes with others that were answered.
      const isApart = around.anyApart() || columns.apart.size > 0;
      if (isOutdated || isApart || isWrittenOtherwise()) writeAll(tags, nowMs);
      else {
        for (const tag of touched) {
          if (tag.place >= 0) write(tag, factsOf(around, tag.watched.siteId), nowMs);
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
