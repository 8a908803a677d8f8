import { documentSet, type Store } from "../store/store.ts";
import { adapted, firstSight, type SeriesRules } from "./history-ledger.ts";
import { heldTags, type PlacedTag } from "./inventory.ts";
import type { HistoryClass, HistoryConfig } from "./read-config.ts";
import { firstMatch } from "./select.ts";
import type { HeldHistory } from "./snapshot.ts";

/** One series that is followed, in memory. */
export interface Series {
  /** Key of its ledger. */
  readonly key: string;
  readonly placed: PlacedTag;
  readonly rules: SeriesRules;
  /** Totals per bucket instead of the values. */
  readonly total: boolean;
  held: HeldHistory;
  /** A request for it is under way. */
  busy: boolean;
  /** Monotonic time before which it is not asked for again, because the last answer brought it no further. */
  notBeforeMs: number;
}

/** Every series that the configuration asks for, of the tags that are there. */
export interface HistoryBook {
  refresh(nowMs: number): Promise<void>;
  /** In the order of the tags' ids, which is roughly that of their hosts. */
  series(): readonly Series[];
  ofTag(tagId: string): readonly Series[];
}

export function historyKey(tagId: string, entry: Pick<HistoryClass, "resolution" | "total">): string {
  return `${tagId} ${entry.resolution}${entry.total ? " total" : ""}`;
}

export function createHistoryBook(options: {
  readonly store: Store;
  readonly source: string;
  readonly classes: HistoryConfig;
  readonly timeZone: string;
}): HistoryBook {
  const { store, source, classes } = options;
  const set = documentSet("history", source);
  // One list per series that a tag can have; in each, the first entry that selects the tag has it.
  const lists = [...Map.groupBy(classes, (entry) => historyKey("", entry)).values()].map(firstMatch);
  let all: readonly Series[] = [];
  let byTag = new Map<string, Series[]>();

  return {
    async refresh(nowMs) {
      const [tags, ledgers] = await Promise.all([heldTags(store, source), store.documents<HeldHistory>(set)]);
      const known = new Map(all.map((series) => [series.key, series]));
      const next: Series[] = [];
      const changed: (readonly [string, HeldHistory])[] = [];
      for (const placed of tags) {
        for (const entryOf of lists) {
          const entry = entryOf(placed);
          if (entry === undefined) continue;
          const key = historyKey(placed.tag.id, entry);
          const rules = rulesOf(entry, options.timeZone);
          const before = known.get(key)?.held ?? ledgers.get(key);
          const first = () => (entry.total ? firstTotal(rules, nowMs) : firstSight(rules, nowMs));
          const held = before === undefined ? first() : adapted(before, rules, nowMs);
          if (held !== before) changed.push([key, held]);
          const { busy = false, notBeforeMs = Number.NEGATIVE_INFINITY } = known.get(key) ?? {};
          const series = { key, placed, rules, total: entry.total, held, busy, notBeforeMs };
          next.push(busy ? Object.assign(known.get(key) ?? series, { placed }) : series);
        }
      }
      all = next;
      byTag = Map.groupBy(next, (series) => series.placed.tag.id);
      // The first sight is kept, so that a restart does not move it.
      if (changed.length > 0) await store.commit({ documents: [{ set, put: changed }] });
    },
    series: () => all,
    ofTag: (tagId) => byTag.get(tagId) ?? [],
  };
}

function rulesOf(entry: HistoryClass, timeZone: string): SeriesRules {
  return {
    resolution: entry.resolution,
    timeZone: entry.time_zone ?? timeZone,
    everyMs: entry.every,
    backfillMs: entry.backfill,
    graceMs: entry.grace,
    lookBackMs: entry.look_back,
  };
}

/** Totals are told period by period from the depth of the backfill on: there is nothing to go back for. */
function firstTotal(rules: SeriesRules, nowMs: number): HeldHistory {
  const first = firstSight(rules, nowMs);
  return {
    ...first,
    watermark: first.wished < first.since ? first.wished : first.since,
    reached: first.target,
  };
}

/** Whether it may be asked for now, as far as its log is concerned. */
export function isFollowed(series: Series): boolean {
  return series.held.state === "following";
}
