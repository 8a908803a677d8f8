import { BUCKET_MS, RESOLUTIONS, type Resolution } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { loadRequestableTags, type SiteTag } from "../inventory/requestable-tags.ts";
import type { FollowedHistory } from "../plan/overload.ts";
import {
  type StoredBackfill,
  type StoredLedger,
  type StoredPause,
  type StoredToken,
  syncSet,
} from "../stored-documents.ts";
import { createClassFinder, createTagFilter, type SelectableTag, TagSelection } from "../tag-selection.ts";
import type { TokenScope } from "../token-scope.ts";
import { bucketEnd, bucketStart, clipRange, parseTime, type TimeRange, totalLengthMs } from "./buckets.ts";
import type { HistoryClass, HistoryConfig } from "./config.ts";
import {
  adaptLedger,
  closedUntilMs,
  createLedger,
  findGaps,
  hasSeriesNoLog,
  retractNoLogReplies,
  type SeriesRules,
} from "./ledger.ts";
import { toRanges } from "./ledger-ranges.ts";

export interface Series {
  readonly key: string;
  readonly siteTag: SiteTag;
  readonly rules: SeriesRules;
  readonly total: boolean;
  ledger: StoredLedger;
  isBusy: boolean;
  /** True after a failed request, which may have been committed: reload the ledger from the store. */
  mustReloadLedger: boolean;
  notBeforeMs: number;
  isSuspect: boolean;
}

export type SeriesLedger = Pick<Series, "ledger" | "rules" | "total" | "siteTag">;

export type HistoryScope = Pick<TokenScope, "sees" | "explain" | "changes"> &
  Partial<Pick<TokenScope, "respondedWallMs">>;

export type HistorySeriesRegistry = ReturnType<typeof createHistorySeriesRegistry>;

/** Minimum time between two lookups of backfills. Below the timer's 5 s, so that an early timer skips no lookup. */
const BACKFILL_LOOKUP_INTERVAL_MS = 4_500;

export function historySeriesKey(tagId: string, historyClass: Pick<HistoryClass, "resolution" | "total">): string {
  return `${tagId} ${historyClass.resolution}${historyClass.total ? " total" : ""}`;
}

export function createHistorySeriesRegistry(options: {
  readonly store: Store;
  readonly source: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly scope: HistoryScope;
  readonly historyClasses: HistoryConfig;
  readonly timeZone: string;
}) {
  const { store, source, clock, log, scope } = options;
  const ledgerDocumentSet = documentSet("history", source);
  const backfillDocumentSet = syncSet("backfill", source);
  let selectSeriesOfTag = createSeriesSelector(options.historyClasses, options.timeZone);
  let allSeries: readonly Series[] = [];
  let seriesByTag = new Map<string, Series[]>();
  let backfills: BackfillRequests = { open: [], paused: false };
  let backfillsLoadedAtMs = Number.NEGATIVE_INFINITY;
  /** Time at which the token last saw each site; null before the first load. */
  let siteSeenTimes: Map<number, string> | null = null;
  const unseenSiteIds = new Set<number>();

  async function refreshBackfills(): Promise<void> {
    const expiredIds = findExpiredBackfills(await store.documents<StoredBackfill>(backfillDocumentSet), clock.now());
    if (expiredIds.length > 0) await store.commit({ documents: [{ set: backfillDocumentSet, remove: expiredIds }] });
    backfills = await loadBackfills(store, source);
    backfillsLoadedAtMs = clock.monotonic();
  }

  async function refreshLedgers(nowMs: number): Promise<void> {
    const [tags, ledgers] = await Promise.all([
      loadRequestableTags(store, source),
      store.documents<StoredLedger | LegacyHistoryLedger>(ledgerDocumentSet),
    ]);
    const previousSeriesByKey = new Map(allSeries.map((series) => [series.key, series]));
    const nextSeries: Series[] = [];
    const changedLedgers: (readonly [string, StoredLedger])[] = [];
    for (const siteTag of tags) {
      for (const { key, rules, total } of selectSeriesOfTag(siteTag, backfills.open)) {
        const oldSeries = previousSeriesByKey.get(key);
        const ledgerBefore =
          oldSeries?.mustReloadLedger === false ? oldSeries.ledger : (ledgers.get(key) ?? oldSeries?.ledger);
        const ledger = prepareLedger(ledgerBefore, rules, total, nowMs);
        if (ledger !== ledgerBefore) changedLedgers.push([key, ledger]);
        const { isSuspect = false, notBeforeMs = Number.NEGATIVE_INFINITY } = oldSeries ?? {};
        nextSeries.push(
          oldSeries?.isBusy === true
            ? Object.assign(oldSeries, { siteTag })
            : { key, siteTag, rules, total, ledger, isBusy: false, mustReloadLedger: false, notBeforeMs, isSuspect },
        );
      }
    }
    allSeries = nextSeries;
    seriesByTag = Map.groupBy(nextSeries, (series) => series.siteTag.tag.id);
    // Store new ledgers at once, so that a restart does not move the start of the followed history.
    if (changedLedgers.length > 0) await store.commit({ documents: [{ set: ledgerDocumentSet, put: changedLedgers }] });
  }

  /** Retracts "no log" responses for sites that the token cannot see, and reopens backfills that relied on them. */
  async function retractNoLogsOfUnseenSites(): Promise<readonly Series[]> {
    if (siteSeenTimes === null) {
      const storedToken = await store.document<StoredToken>(documentSet("token", source), "token");
      siteSeenTimes = new Map((storedToken?.info.sites ?? []).map(({ id }) => [id, storedToken?.checkedAt ?? ""]));
    }
    const scopeConfirmedAtMs = scope.respondedWallMs?.() ?? null;
    const seriesWithRetractedLogs: Series[] = [];
    let earliestSeenAt: string | null = null;
    for (const [siteId, siteSeries] of Map.groupBy(allSeries, ({ siteTag }) => siteTag.siteId)) {
      if (scope.sees(siteId)) {
        unseenSiteIds.delete(siteId);
        if (scopeConfirmedAtMs !== null) siteSeenTimes.set(siteId, isoUtc(scopeConfirmedAtMs));
        continue;
      }
      if (unseenSiteIds.has(siteId)) continue;
      unseenSiteIds.add(siteId);
      const siteLastSeenAt = siteSeenTimes.get(siteId) ?? "";
      if (earliestSeenAt === null || siteLastSeenAt < earliestSeenAt) earliestSeenAt = siteLastSeenAt;
      for (const series of siteSeries) {
        const ledger = retractNoLogReplies(series.ledger, siteLastSeenAt, series.total);
        if (ledger === series.ledger) continue;
        // Change the ledger before the commit, so that a reply that arrives meanwhile uses the new ledger.
        series.ledger = ledger;
        seriesWithRetractedLogs.push(series);
      }
    }
    if (earliestSeenAt === null) return [];
    const retractedSinceTime = earliestSeenAt;
    const reopenedBackfills = [...(await store.documents<StoredBackfill>(backfillDocumentSet))]
      .filter(([, { doneAt, withoutLog }]) => (doneAt ?? "") >= retractedSinceTime && (withoutLog?.buckets ?? 0) > 0)
      .map(([id, { withoutLog: _retracted, ...request }]) => [id, { ...request, doneAt: null }] as const);
    await store.commit({
      documents: [
        { set: ledgerDocumentSet, put: seriesWithRetractedLogs.map(({ key, ledger }) => [key, ledger] as const) },
        { set: backfillDocumentSet, put: reopenedBackfills },
      ],
    });
    return seriesWithRetractedLogs;
  }

  function countBackfillWithoutLog(request: BackfillRequest, nowMs: number): StoredBackfill["withoutLog"] | null {
    const coveredSeries = allSeries.filter((series) => coversSeries(request, series));
    // Without any known tags, a backfill is not done.
    if (coveredSeries.length === 0 || !coveredSeries.every((series) => isBackfillDone(request, series, nowMs)))
      return null;
    const bucketCounts = coveredSeries
      .map((series) => bucketsWithoutLog(request, series, nowMs))
      .filter((buckets) => buckets > 0);
    return { buckets: bucketCounts.reduce((sum, count) => sum + count, 0), tags: bucketCounts.length };
  }

  return {
    getAll: () => allSeries,
    getSeriesOfTag: (tagId: string): readonly Series[] => seriesByTag.get(tagId) ?? [],
    backfills: () => backfills,
    changeClasses(historyClasses: HistoryConfig): void {
      selectSeriesOfTag = createSeriesSelector(historyClasses, options.timeZone);
    },
    async refreshSeries(): Promise<readonly Series[]> {
      await refreshBackfills();
      await refreshLedgers(clock.now());
      const seriesWithRetractedLogs = await retractNoLogsOfUnseenSites();
      if (seriesWithRetractedLogs.length > 0) await refreshBackfills();
      return seriesWithRetractedLogs;
    },
    async haveBackfillsChanged(): Promise<boolean> {
      const nowMs = clock.monotonic();
      if (nowMs - backfillsLoadedAtMs < BACKFILL_LOOKUP_INTERVAL_MS) return false;
      backfillsLoadedAtMs = nowMs;
      const formatBackfillState = ({ open, paused }: BackfillRequests) => [paused, ...open.map(({ id }) => id)].join();
      return formatBackfillState(await loadBackfills(store, source)) !== formatBackfillState(backfills);
    },
    async endBackfills(): Promise<void> {
      const nowMs = clock.now();
      const endedBackfillsById = new Map<string, StoredBackfill>();
      for (const request of backfills.open) {
        const withoutLog = countBackfillWithoutLog(request, nowMs);
        if (withoutLog != null)
          endedBackfillsById.set(request.id, { ...request.stored, doneAt: isoUtc(nowMs), withoutLog });
      }
      if (endedBackfillsById.size === 0) return;
      const storedBackfillsById = await store.documents<StoredBackfill>(backfillDocumentSet);
      const put = [...endedBackfillsById].filter(([id]) => storedBackfillsById.has(id));
      await store.commit({ documents: [{ set: backfillDocumentSet, put }] });
      for (const [order, { withoutLog }] of endedBackfillsById) log.info({ order, withoutLog }, "a backfill is done");
      backfills = { ...backfills, open: backfills.open.filter(({ id }) => !endedBackfillsById.has(id)) };
    },
    neededFromMs: ({ ledger, siteTag }: Series): number =>
      Math.min(
        parseTime(ledger.wished),
        ...backfills.open.filter((request) => request.matches(siteTag)).map(({ stored }) => parseTime(stored.from)),
      ),
  };
}

export interface SelectedHistorySeries extends Pick<Series, "key" | "rules" | "total"> {
  readonly className: string | null;
}

export function createSeriesSelector(
  historyClasses: HistoryConfig,
  timeZone: string,
): (siteTag: SiteTag, backfills: readonly BackfillRequest[]) => readonly SelectedHistorySeries[] {
  const finders = [...Map.groupBy(historyClasses, (historyClass) => historySeriesKey("", historyClass)).values()].map(
    createClassFinder,
  );
  const rulesByClass = new Map(
    historyClasses.map((historyClass) => [historyClass, rulesOfHistoryClass(historyClass, timeZone)]),
  );
  const rulesByResolution = new Map(RESOLUTIONS.map((resolution) => [resolution, backfillRules(resolution, timeZone)]));
  return (siteTag, backfills) => {
    const selectedSeries: SelectedHistorySeries[] = [];
    for (const findHistoryClass of finders) {
      const historyClass = findHistoryClass(siteTag);
      const rulesOfClass = historyClass && rulesByClass.get(historyClass);
      if (historyClass === undefined || rulesOfClass === undefined) continue;
      const key = historySeriesKey(siteTag.tag.id, historyClass);
      selectedSeries.push({ key, rules: rulesOfClass, total: historyClass.total, className: historyClass.name });
    }
    for (const request of backfills) {
      const rules = rulesByResolution.get(request.resolution);
      const key = historySeriesKey(siteTag.tag.id, { resolution: request.resolution, total: false });
      const isSelected = rules === undefined || selectedSeries.some((series) => series.key === key);
      if (!isSelected && request.matches(siteTag)) selectedSeries.push({ key, rules, total: false, className: null });
    }
    return selectedSeries;
  };
}

function rulesOfHistoryClass(historyClass: HistoryClass, timeZone: string): SeriesRules {
  const { resolution, every: everyMs, backfill: backfillMs, grace: graceMs, look_back: lookBackMs } = historyClass;
  return { resolution, timeZone: historyClass.time_zone ?? timeZone, everyMs, backfillMs, graceMs, lookBackMs };
}

export function backfillRules(resolution: Resolution, timeZone: string): SeriesRules {
  return { resolution, timeZone, everyMs: Number.POSITIVE_INFINITY, backfillMs: 0, graceMs: 120_000, lookBackMs: 0 };
}

export function prepareLedger(
  storedLedger: StoredLedger | LegacyHistoryLedger | undefined,
  rules: SeriesRules,
  isTotal: boolean,
  nowMs: number,
): StoredLedger {
  const createdLedger = createLedger(rules, nowMs);
  const newLedger =
    isTotal && createdLedger.wished < createdLedger.since
      ? { ...createdLedger, watermark: createdLedger.wished }
      : createdLedger;
  if (storedLedger === undefined) return newLedger;
  const ledger = upgradeLegacyLedger(storedLedger, isTotal);
  const { since, spans, watermark, state, refusal } = ledger;
  // The ledger starts in the future, because the clock was ahead when it was created: start again.
  const isStartInFuture = spans.length === 0 && watermark === since && Date.parse(since) > nowMs;
  return isStartInFuture ? { ...newLedger, state, refusal } : adaptLedger(ledger, rules, nowMs);
}

export function countFollowedSeries(allSeries: readonly Series[]): readonly FollowedHistory[] {
  const loggedSeries = allSeries.filter(({ ledger }) => ledger.state !== "no-log");
  const ruleGroups = Map.groupBy(loggedSeries, ({ rules, total }) => `${rules.resolution} ${total} ${rules.everyMs}`);
  return [...ruleGroups.values()].flatMap((followedSeries) => {
    const [firstSeries] = followedSeries;
    if (firstSeries === undefined) return [];
    const { resolution, everyMs } = firstSeries.rules;
    return [{ resolution, everyMs, total: firstSeries.total, tags: followedSeries.length }];
  });
}

export interface LegacyHistoryLedger extends Omit<StoredLedger, "version" | "spans" | "refusal"> {
  readonly version?: undefined;
  readonly reached: string;
}

/** Upgrades a ledger of the old format, which stored some refusals as responses. Plenum fetches the past again. */
export function upgradeLegacyLedger(storedLedger: StoredLedger | LegacyHistoryLedger, isTotal: boolean): StoredLedger {
  if (storedLedger.version !== undefined) return storedLedger;
  const { since, watermark, rememberedFrom, dailyAt, weeklyAt, wished, resolution, timeZone } = storedLedger;
  const keptLedgerFields = { since, wished, resolution, timeZone, dailyAt, weeklyAt, rememberedFrom };
  const fetchedFromTime = isTotal ? storedLedger.reached : since;
  const isFollowedSeries = storedLedger.state === "following" && parseTime(watermark) > parseTime(fetchedFromTime);
  return {
    ...{ version: 2, ...keptLedgerFields, refusal: null },
    state: storedLedger.state === "no-log" ? "unproven" : storedLedger.state,
    watermark: isFollowedSeries || watermark < fetchedFromTime ? watermark : fetchedFromTime,
    spans: isFollowedSeries ? [{ from: fetchedFromTime, to: watermark, why: "points" }] : [],
    rereadFrom: isFollowedSeries ? storedLedger.rereadFrom : null,
  };
}

export interface BackfillRequest {
  readonly id: string;
  readonly stored: StoredBackfill;
  readonly resolution: Resolution;
  matches(candidate: SelectableTag): boolean;
}

export interface BackfillRequests {
  readonly open: readonly BackfillRequest[];
  readonly paused: boolean;
}

const DONE_BACKFILLS_MAX = 20;
const DONE_BACKFILL_AGE_MAX_MS = 30 * 86_400_000;

export async function loadBackfills(store: Store, source: string): Promise<BackfillRequests> {
  const [requests, pause] = await Promise.all([
    store.documents<StoredBackfill>(syncSet("backfill", source)),
    store.document<StoredPause>(syncSet("backfill-pause", source), "pause"),
  ]);
  const unfinishedBackfills = [...requests].filter(([, stored]) => !hasBackfillEnded(stored));
  const openBackfills = unfinishedBackfills.flatMap(([id, stored]) => parseStoredBackfill(id, stored) ?? []);
  openBackfills.sort((a, b) => (a.stored.askedAt < b.stored.askedAt ? -1 : 1));
  return { open: openBackfills, paused: pause?.pausedAt != null };
}

export function parseStoredBackfill(id: string, storedBackfill: StoredBackfill): BackfillRequest | null {
  const tagSelection = TagSelection.safeParse(storedBackfill.select);
  if (!tagSelection.success || !RESOLUTIONS.includes(storedBackfill.resolution)) return null;
  return {
    id,
    stored: storedBackfill,
    resolution: storedBackfill.resolution,
    matches: createTagFilter(tagSelection.data),
  };
}

/** Backfills of older versions, without `withoutLog`, may have ended because of refusals, so they count as open. */
export const hasBackfillEnded = ({ doneAt, withoutLog }: StoredBackfill) => doneAt !== null && withoutLog !== undefined;

function findExpiredBackfills(requests: ReadonlyMap<string, StoredBackfill>, nowMs: number): readonly string[] {
  const endedBackfillsById = [...requests].filter(([, stored]) => hasBackfillEnded(stored));
  const doneMs = ({ doneAt }: StoredBackfill) => parseTime(doneAt ?? "");
  return endedBackfillsById
    .toSorted(([, a], [, b]) => doneMs(b) - doneMs(a))
    .filter(([, stored], index) => index >= DONE_BACKFILLS_MAX || nowMs - doneMs(stored) > DONE_BACKFILL_AGE_MAX_MS)
    .map(([id]) => id);
}

export function coversSeries(request: BackfillRequest, { total, rules, siteTag }: SeriesLedger): boolean {
  return !total && rules.resolution === request.resolution && request.matches(siteTag);
}

export function backfillRange({ stored }: BackfillRequest, rules: SeriesRules, nowMs: number): TimeRange {
  const fromMs = parseTime(stored.from);
  const lastMs = bucketStart(Math.max(fromMs, parseTime(stored.to) - 1), rules);
  return { fromMs: bucketStart(fromMs, rules), toMs: Math.min(bucketEnd(lastMs, rules), closedUntilMs(rules, nowMs)) };
}

/** Part of a backfill's range before the watermark of the series: later buckets are fetched anyway. */
export function pastBackfillRange(request: BackfillRequest, { ledger, rules }: SeriesLedger, nowMs: number): TimeRange {
  const { fromMs, toMs } = backfillRange(request, rules, nowMs);
  return { fromMs, toMs: Number.isFinite(rules.everyMs) ? Math.min(toMs, parseTime(ledger.watermark)) : toMs };
}

export function pendingRanges(request: BackfillRequest, series: SeriesLedger, nowMs: number): readonly TimeRange[] {
  return findGaps(series.ledger, pastBackfillRange(request, series, nowMs));
}

function isBackfillDone(request: BackfillRequest, series: SeriesLedger, nowMs: number): boolean {
  const { ledger, rules } = series;
  const isRangeClosed = closedUntilMs(rules, nowMs) >= parseTime(request.stored.to) || Number.isFinite(rules.everyMs);
  if (!isRangeClosed || ledger.state === "unproven") return false;
  return hasSeriesNoLog(ledger) || pendingRanges(request, series, nowMs).length === 0;
}

function bucketsWithoutLog(request: BackfillRequest, series: SeriesLedger, nowMs: number): number {
  const range = pastBackfillRange(request, series, nowMs);
  const noLogRanges = toRanges(series.ledger.spans).filter(({ why }) => why === "no-log");
  const gapsWithoutLog = hasSeriesNoLog(series.ledger) ? findGaps(series.ledger, range) : [];
  const noLogLengthMs = totalLengthMs([
    ...noLogRanges.flatMap((noLogRange) => clipRange(noLogRange, range)),
    ...gapsWithoutLog,
  ]);
  return Math.round(noLogLengthMs / BUCKET_MS[request.resolution]);
}
