import { RESOLUTIONS } from "../../../core/model/building.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { expectedTags, type LocatedTag } from "../inventory/held.ts";
import type { FollowedHistory } from "../plan/overload.ts";
import { firstMatch } from "../select.ts";
import type { StoredHistory } from "../snapshot.ts";
import { type BackfillRequest, backfillRules } from "./backfills.ts";
import type { HistoryClass, HistoryConfig } from "./config.ts";
import { adapted, firstSight, type SeriesRules } from "./ledger.ts";
import { believed, type LedgerBefore } from "./ledger-before.ts";

/** One series that is followed, in memory. */
export interface Series {
  /** Key of its ledger. */
  readonly key: string;
  readonly placed: LocatedTag;
  readonly rules: SeriesRules;
  /** Totals per bucket instead of the values. */
  readonly total: boolean;
  held: StoredHistory;
  /** A request for it is under way. */
  busy: boolean;
  /** It may not have been recorded as it was meant: what the store has of it counts. */
  unsure: boolean;
  /** Monotonic time before which it is not asked for again, because the last answer brought it no further. */
  notBeforeMs: number;
  /** A request with it was refused lately: it is asked alone until it is answered. */
  suspect: boolean;
}

/** Every series that the configuration asks for, of the tags that are there. */
export interface HistoryLedgers {
  /** `orders`: what is asked for beyond the classes. */
  refresh(nowMs: number, orders: readonly BackfillRequest[]): Promise<void>;
  /** In the order of the tags' ids, which is roughly that of their hosts. */
  series(): readonly Series[];
  ofTag(tagId: string): readonly Series[];
  /** Other classes, from the next refresh on. */
  change(classes: HistoryConfig): void;
}

export function historyKey(tagId: string, entry: Pick<HistoryClass, "resolution" | "total">): string {
  return `${tagId} ${entry.resolution}${entry.total ? " total" : ""}`;
}

export function createHistoryLedgers(options: {
  readonly store: Store;
  readonly source: string;
  readonly classes: HistoryConfig;
  readonly timeZone: string;
}): HistoryLedgers {
  const { store, source } = options;
  const set = documentSet("history", source);
  let seriesOf = wantedSeries(options.classes, options.timeZone);
  let all: readonly Series[] = [];
  let byTag = new Map<string, Series[]>();

  return {
    async refresh(nowMs, orders) {
      const [tags, ledgers] = await Promise.all([
        expectedTags(store, source),
        store.documents<StoredHistory | LedgerBefore>(set),
      ]);
      const known = new Map(all.map((series) => [series.key, series]));
      const next: Series[] = [];
      const changed: (readonly [string, StoredHistory])[] = [];
      for (const placed of tags) {
        for (const { key, rules, total } of seriesOf(placed, orders)) {
          const inMemory = known.get(key);
          const before = inMemory?.unsure === false ? inMemory.held : (ledgers.get(key) ?? inMemory?.held);
          const held = ledgerFor(before, rules, total, nowMs);
          if (held !== before) changed.push([key, held]);
          const {
            busy = false,
            suspect = false,
            notBeforeMs = Number.NEGATIVE_INFINITY,
          } = known.get(key) ?? {};
          const series = { key, placed, rules, total, held, busy, unsure: false, notBeforeMs, suspect };
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
    change(classes) {
      seriesOf = wantedSeries(classes, options.timeZone);
    },
  };
}

/** A series that the configuration or an order asks for. */
export interface WantedSeries {
  readonly key: string;
  readonly rules: SeriesRules;
  readonly total: boolean;
  /** The class that follows it; null where only an order asks for it. */
  readonly className: string | null;
}

/** Compiles the classes: in each list of those for the same series, the first that selects the tag has it. */
export function wantedSeries(
  classes: HistoryConfig,
  timeZone: string,
): (placed: LocatedTag, orders: readonly BackfillRequest[]) => readonly WantedSeries[] {
  const lists = [...Map.groupBy(classes, (entry) => historyKey("", entry)).values()].map(firstMatch);
  // Series that follow the same rules share them.
  const rulesByClass = new Map(classes.map((entry) => [entry, rulesOf(entry, timeZone)]));
  const rulesByOrder = new Map(
    RESOLUTIONS.map((resolution) => [resolution, backfillRules(resolution, timeZone)]),
  );
  return (placed, orders) => {
    // Each of 50,000 tags is asked about every minute, also where no history is followed.
    if (lists.length === 0 && orders.length === 0) return NONE;
    const wanted: WantedSeries[] = [];
    for (const entryOf of lists) {
      const entry = entryOf(placed);
      if (entry === undefined) continue;
      const rules = rulesByClass.get(entry) ?? rulesOf(entry, timeZone);
      const { total, name } = entry;
      wanted.push({ key: historyKey(placed.tag.id, entry), rules, total, className: name });
    }
    for (const order of orders) {
      const rules = rulesByOrder.get(order.resolution);
      if (rules === undefined) continue;
      const key = historyKey(placed.tag.id, { resolution: order.resolution, total: false });
      if (wanted.some((series) => series.key === key) || !order.matches(placed)) continue;
      wanted.push({ key, rules, total: false, className: null });
    }
    return wanted;
  };
}

const NONE: readonly WantedSeries[] = [];

/** The ledger to go on with: the one there is, adapted to the rules, or that of a first sight. */
export function ledgerFor(
  before: StoredHistory | LedgerBefore | undefined,
  rules: SeriesRules,
  total: boolean,
  nowMs: number,
): StoredHistory {
  const first = () => (total ? firstTotal(rules, nowMs) : firstSight(rules, nowMs));
  if (before === undefined) return first();
  const held = believed(before, total);
  if (isYetToCome(held, nowMs)) return { ...first(), state: held.state, refusal: held.refusal };
  return adapted(held, rules, nowMs);
}

/**
 * A first sight that a clock which was ahead took, and from which on nothing was told: a worker that starts at 12:00 with
 * its clock at 16:00 and meets a new series would follow it from 16:00 on, and nobody would fetch those four hours.
 */
function isYetToCome({ since, spans, watermark }: StoredHistory, nowMs: number): boolean {
  return spans.length === 0 && watermark === since && Date.parse(since) > nowMs;
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
function firstTotal(rules: SeriesRules, nowMs: number): StoredHistory {
  const first = firstSight(rules, nowMs);
  return { ...first, watermark: first.wished < first.since ? first.wished : first.since };
}

/**
 * The series by how they are followed, counted, for what they cost. Of some it is not known yet whether they have a
 * log: they count, so that their share is kept for them.
 */
export function followedSeries(all: readonly Series[]): readonly FollowedHistory[] {
  const groups = Map.groupBy(
    all.filter(({ held }) => held.state !== "no-log"),
    ({ rules, total }) => `${rules.resolution} ${total} ${rules.everyMs}`,
  );
  return [...groups.values()].flatMap((members) => {
    const [first] = members;
    if (first === undefined) return [];
    const { resolution, everyMs } = first.rules;
    return [{ resolution, everyMs, total: first.total, tags: members.length }];
  });
}

/** Whether it may be asked for now, as far as its log is concerned. */
export function isFollowed(series: Series): boolean {
  return series.held.state === "following";
}
