import { RESOLUTIONS } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { expectedTags, type LocatedTag } from "../inventory/held.ts";
import type { FollowedHistory } from "../plan/quota-share.ts";
import { firstMatch } from "../select.ts";
import { type StoredBackfill, type StoredHistory, type StoredToken, syncSet } from "../snapshot.ts";
import {
  type BackfillRequest,
  type BackfillRequests,
  backfillRules,
  type EndedBackfill,
  isDone,
  loadBackfills,
  markDone,
  removeOldBackfills,
  sameBackfills,
  withoutLogOf,
} from "./backfills.ts";
import type { HistoryClass, HistoryConfig } from "./config.ts";
import {
  adaptLedger,
  type LegacyLedger,
  newLedger,
  parseTime,
  retractNoLog,
  type SeriesRules,
  upgradeLedger,
} from "./ledger.ts";
import type { HistoryScope } from "./request.ts";

/** One series that is followed, in memory. */
export interface Series {
  /** Key of its ledger. */
  readonly key: string;
  readonly located: LocatedTag;
  readonly rules: SeriesRules;
  /** Totals per bucket instead of the values. */
  readonly total: boolean;
  ledger: StoredHistory;
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
        store.documents<StoredHistory | LegacyLedger>(set),
      ]);
      const known = new Map(all.map((series) => [series.key, series]));
      const next: Series[] = [];
      const changed: (readonly [string, StoredHistory])[] = [];
      for (const located of tags) {
        for (const { key, rules, total } of seriesOf(located, orders)) {
          const inMemory = known.get(key);
          const before =
            inMemory?.unsure === false ? inMemory.ledger : (ledgers.get(key) ?? inMemory?.ledger);
          const ledger = ledgerFor(before, rules, total, nowMs);
          if (ledger !== before) changed.push([key, ledger]);
          const {
            busy = false,
            suspect = false,
            notBeforeMs = Number.NEGATIVE_INFINITY,
          } = known.get(key) ?? {};
          const series = { key, located, rules, total, ledger, busy, unsure: false, notBeforeMs, suspect };
          next.push(busy ? Object.assign(known.get(key) ?? series, { located }) : series);
        }
      }
      all = next;
      byTag = Map.groupBy(next, (series) => series.located.tag.id);
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
): (located: LocatedTag, orders: readonly BackfillRequest[]) => readonly WantedSeries[] {
  const lists = [...Map.groupBy(classes, (entry) => historyKey("", entry)).values()].map(firstMatch);
  // Series that follow the same rules share them.
  const rulesByClass = new Map(classes.map((entry) => [entry, rulesOf(entry, timeZone)]));
  const rulesByOrder = new Map(
    RESOLUTIONS.map((resolution) => [resolution, backfillRules(resolution, timeZone)]),
  );
  return (located, orders) => {
    // Each of 50,000 tags is asked about every minute, also where no history is followed.
    if (lists.length === 0 && orders.length === 0) return NONE;
    const wanted: WantedSeries[] = [];
    for (const entryOf of lists) {
      const entry = entryOf(located);
      if (entry === undefined) continue;
      const rules = rulesByClass.get(entry) ?? rulesOf(entry, timeZone);
      const { total, name } = entry;
      wanted.push({ key: historyKey(located.tag.id, entry), rules, total, className: name });
    }
    for (const order of orders) {
      const rules = rulesByOrder.get(order.resolution);
      if (rules === undefined) continue;
      const key = historyKey(located.tag.id, { resolution: order.resolution, total: false });
      if (wanted.some((series) => series.key === key) || !order.matches(located)) continue;
      wanted.push({ key, rules, total: false, className: null });
    }
    return wanted;
  };
}

const NONE: readonly WantedSeries[] = [];

/** The ledger to go on with: the one there is, adapted to the rules, or that of a first sight. */
export function ledgerFor(
  before: StoredHistory | LegacyLedger | undefined,
  rules: SeriesRules,
  total: boolean,
  nowMs: number,
): StoredHistory {
  const first = () => (total ? firstTotal(rules, nowMs) : newLedger(rules, nowMs));
  if (before === undefined) return first();
  const ledger = upgradeLedger(before, total);
  if (isYetToCome(ledger, nowMs)) return { ...first(), state: ledger.state, refusal: ledger.refusal };
  return adaptLedger(ledger, rules, nowMs);
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
  const first = newLedger(rules, nowMs);
  return { ...first, watermark: first.wished < first.since ? first.wished : first.since };
}

/**
 * The series by how they are followed, counted, for what they cost. Of some it is not known yet whether they have a
 * log: they count, so that their share is kept for them.
 */
export function followedSeries(all: readonly Series[]): readonly FollowedHistory[] {
  const groups = Map.groupBy(
    all.filter(({ ledger }) => ledger.state !== "no-log"),
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
  return series.ledger.state === "following";
}

/** The orders of `plenum backfill` that are not done, as the command line left them in the store. */
export interface OpenBackfills {
  now(): BackfillRequests;
  refresh(): Promise<void>;
  /** Whether a person ordered, paused or gave up something since; it is looked up every few seconds at most. */
  haveChanged(): Promise<boolean>;
  /** Says of the orders of which nothing is left that they are done. */
  end(): Promise<void>;
  /** From when on an order wants a series, milliseconds since 1970; infinite when none does. */
  wantedFrom(series: Series): number;
}

/** A little less than the five seconds after which somebody asks, so that no timer which is early puts it off. */
const LOOK_MS = 4_500;

export function createOpenBackfills(options: {
  readonly store: Store;
  readonly source: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly book: Pick<HistoryLedgers, "series">;
}): OpenBackfills {
  const { store, source, clock, log, book } = options;
  let orders: BackfillRequests = { open: [], paused: false };
  let lookedAtMs = Number.NEGATIVE_INFINITY;

  return {
    now: () => orders,
    async refresh() {
      await removeOldBackfills(store, source, clock.now());
      orders = await loadBackfills(store, source);
      lookedAtMs = clock.monotonic();
    },
    async haveChanged() {
      const nowMs = clock.monotonic();
      if (nowMs - lookedAtMs < LOOK_MS) return false;
      lookedAtMs = nowMs;
      return !sameBackfills(await loadBackfills(store, source), orders);
    },
    async end() {
      const nowMs = clock.now();
      const done = orders.open.flatMap((order) => endOf(order, nowMs) ?? []);
      if (done.length === 0) return;
      await markDone(store, source, done, isoUtc(nowMs));
      for (const { order, withoutLog } of done)
        log.info({ order: order.id, withoutLog }, "a backfill is done");
      const ids = new Set(done.map(({ order }) => order.id));
      orders = { ...orders, open: orders.open.filter(({ id }) => !ids.has(id)) };
    },
    wantedFrom: ({ located }) =>
      Math.min(
        Number.POSITIVE_INFINITY,
        ...orders.open.filter((order) => order.matches(located)).map((order) => parseTime(order.stored.from)),
      ),
  };

  /** Null while something of it is neither had nor without a log. */
  function endOf(order: BackfillRequest, nowMs: number): EndedBackfill | null {
    const concerned = book
      .series()
      .filter(
        ({ located, rules, total }) =>
          !total && rules.resolution === order.resolution && order.matches(located),
      );
    // Without its tags, before the first listing say, nothing is known of an order.
    const isEnded =
      concerned.length > 0 && concerned.every(({ ledger, rules }) => isDone(order, ledger, rules, nowMs));
    if (!isEnded) return null;
    const counts = concerned
      .map(({ ledger, rules }) => withoutLogOf(order, ledger, rules, nowMs))
      .filter((buckets) => buckets > 0);
    const buckets = counts.reduce((sum, each) => sum + each, 0);
    return { order, withoutLog: { buckets, tags: counts.length } };
  }
}

/**
 * Takes back what was said of the logs of a site's tags since the token was last known to see the site, once it does not
 * see it any more: whoever cannot see a tag is told that it has no log. Orders that ended on that word are open again.
 */
export interface TakeBack {
  /** Looks at the scope as it is now; returns the series that are to be learned again. */
  look(): Promise<readonly Series[]>;
}

export function createTakeBack(options: {
  readonly store: Store;
  readonly source: string;
  readonly book: Pick<HistoryLedgers, "series">;
  readonly scope: HistoryScope;
}): TakeBack {
  const { store, source, book, scope } = options;
  /** When the service last said that the token sees a site. */
  const seenAt = new Map<number, string>();
  const gone = new Set<number>();
  let isLoaded = false;

  /** What was known before a restart. */
  async function load(): Promise<void> {
    const token = await store.document<StoredToken>(documentSet("token", source), "token");
    for (const { id } of token?.info.sites ?? []) seenAt.set(id, token?.checkedAt ?? "");
    isLoaded = true;
  }

  async function reopened(after: string): Promise<(readonly [string, StoredBackfill])[]> {
    const orders = await store.documents<StoredBackfill>(syncSet("backfill", source));
    return [...orders].flatMap(([id, { withoutLog, ...order }]) => {
      const isDoubted = (order.doneAt ?? "") >= after && (withoutLog?.buckets ?? 0) > 0;
      return isDoubted ? [[id, { ...order, doneAt: null }] as const] : [];
    });
  }

  return {
    async look() {
      if (!isLoaded) await load();
      const saidAtMs = scope.askedAtMs?.() ?? null;
      const doubted: Series[] = [];
      const put = new Map<string, StoredHistory>();
      let earliest: string | null = null;
      for (const [siteId, all] of Map.groupBy(book.series(), ({ located }) => located.siteId)) {
        if (scope.sees(siteId)) {
          gone.delete(siteId);
          if (saidAtMs !== null) seenAt.set(siteId, isoUtc(saidAtMs));
          continue;
        }
        if (gone.has(siteId)) continue;
        const after = seenAt.get(siteId) ?? "";
        if (earliest === null || after < earliest) earliest = after;
        for (const series of all) {
          const ledger = retractNoLog(series.ledger, after, series.total);
          if (ledger === series.ledger) continue;
          // At once, so that a reply that is under way settles on it.
          series.ledger = ledger;
          put.set(series.key, ledger);
          doubted.push(series);
        }
        gone.add(siteId);
      }
      if (earliest === null) return [];
      const documents = [
        { set: documentSet("history", source), put: [...put] },
        { set: syncSet("backfill", source), put: await reopened(earliest) },
      ];
      await store.commit({ documents });
      return doubted;
    },
  };
}
