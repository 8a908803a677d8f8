import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { isSeriesComplete, type StoredLedger } from "../stored-documents.ts";
import { clipRange, mergeTimeRanges, parseTime, subtractRanges, type TimeRange, totalLengthMs } from "./buckets.ts";
import { closedUntilMs, findGaps, hasSeriesNoLog, targetPastRange } from "./ledger.ts";
import { fetchedRanges, type LedgerRange, toRanges } from "./ledger-ranges.ts";
import {
  type BackfillRequest,
  type BackfillRequests,
  backfillRange,
  coversSeries,
  pendingRanges,
  type SeriesLedger,
} from "./series-registry.ts";

/** Not null while due requests for recent history wait much longer than planned. */
type HistoryStarvation = { readonly since: string } | null;

export type BackfillProgress = ReturnType<typeof computeBackfillProgress>;
export type HistoryProgress = ReturnType<typeof historyProgress>;

export function historyProgress(
  series: readonly SeriesLedger[],
  { open, paused }: BackfillRequests,
  valuesPerRequest: number,
  unproven: number,
  nowMs: number,
) {
  const groups = Map.groupBy(series, ({ rules, total }) => `${rules.resolution} ${total}`);
  const resolutions = [...groups.values()].flatMap((seriesOfGroup) =>
    resolutionProgress(seriesOfGroup, valuesPerRequest, nowMs),
  );
  const backfillsProgress = open.map((request) => computeBackfillProgress(request, series, valuesPerRequest, nowMs));
  const requestsLeft = [...resolutions, ...backfillsProgress].reduce((sum, progress) => sum + progress.requestsLeft, 0);
  return {
    resolutions,
    unproven,
    requestsLeft,
    paused,
    orders: backfillsProgress,
    starving: null as HistoryStarvation,
  };
}

function estimateRequestCount(valueCount: number, rangeCount: number, valuesPerRequest: number): number {
  return Math.max(Math.ceil(valueCount / Math.max(1, valuesPerRequest)), Math.ceil(rangeCount / TAGS_PER_REQUEST));
}

const fetchedShare = (pendingMs: number, targetMs: number): number => (targetMs === 0 ? 1 : 1 - pendingMs / targetMs);

function computeBackfillProgress(
  request: BackfillRequest,
  series: readonly SeriesLedger[],
  valuesPerRequest: number,
  nowMs: number,
) {
  const { id, resolution, stored } = request;
  const coveredSeries = series.filter((seriesLedger) => coversSeries(request, seriesLedger));
  const loggedSeries = coveredSeries.filter(({ ledger }) => !hasSeriesNoLog(ledger));
  const unfetchedRanges = loggedSeries.flatMap((seriesLedger) => pendingRanges(request, seriesLedger, nowMs));
  const unfetchedMs = totalLengthMs(unfetchedRanges);
  const completeBackfillRanges = loggedSeries.map(({ rules }) => backfillRange(request, rules, nowMs));
  return {
    ...{ id, from: stored.from, to: stored.to, resolution },
    tags: coveredSeries.length,
    unproven: coveredSeries.filter(({ ledger }) => ledger.state === "unproven").length,
    requestsLeft: estimateRequestCount(unfetchedMs / BUCKET_MS[resolution], unfetchedRanges.length, valuesPerRequest),
    done: fetchedShare(unfetchedMs, totalLengthMs(completeBackfillRanges.filter(({ fromMs, toMs }) => fromMs < toMs))),
  };
}

function resolutionProgress(seriesOfGroup: readonly SeriesLedger[], valuesPerRequest: number, nowMs: number) {
  const [firstSeries] = seriesOfGroup;
  if (firstSeries === undefined) return [];
  const { total } = firstSeries;
  const { resolution } = firstSeries.rules;
  const loggedSeries = seriesOfGroup.filter(({ ledger }) => ledger.state !== "no-log");
  const pendingMsOfSeries = loggedSeries.map(({ ledger, rules }) =>
    total
      ? Math.max(0, closedUntilMs(rules, nowMs) - parseTime(ledger.watermark))
      : totalLengthMs(findGaps(ledger, targetPastRange(ledger))),
  );
  const pendingMs = pendingMsOfSeries.reduce((sum, ms) => sum + ms, 0);
  const totalMs = loggedSeries.reduce((sum, { ledger }) => sum + Math.max(0, nowMs - parseTime(ledger.wished)), 0);
  const followedSeries = loggedSeries.filter(({ ledger }) => ledger.state === "following");
  const pendingRangeCount = pendingMsOfSeries.filter((pendingMs) => pendingMs > 0).length;
  const pendingValueCount = Math.round(pendingMs / BUCKET_MS[resolution]);
  return [
    {
      ...{ resolution, total, tags: seriesOfGroup.length, withoutLog: seriesOfGroup.length - loggedSeries.length },
      refused: seriesOfGroup.filter(({ ledger }) => hasLedgerRefusal(ledger)).length,
      complete: loggedSeries.filter(
        ({ ledger }, i) => pendingMsOfSeries[i] === 0 && ledger.state === "following" && ledger.refusal === null,
      ).length,
      oldestWatermark: followedSeries.map(({ ledger }) => ledger.watermark).toSorted()[0] ?? null,
      ...{ pendingRanges: pendingRangeCount, pendingValues: pendingValueCount },
      requestsLeft: total
        ? Math.ceil(pendingValueCount / TAGS_PER_REQUEST)
        : estimateRequestCount(pendingValueCount, pendingRangeCount, valuesPerRequest),
      done: fetchedShare(pendingMs, totalMs),
    },
  ];
}

function hasLedgerRefusal({ state, refusal, spans }: StoredLedger): boolean {
  return (state !== "no-log" && refusal !== null) || spans.some(({ why }) => why === "refused");
}

export function setHistorySeriesGauge(
  { historySeries }: Pick<Metrics, "historySeries">,
  source: string,
  allSeries: readonly SeriesLedger[],
): void {
  const seriesCountsByState = { whole: 0, holes: 0, refused: 0, "no-log": 0, unproven: 0 };
  for (const { ledger } of allSeries) {
    if (ledger.state !== "no-log" && hasLedgerRefusal(ledger)) seriesCountsByState.refused++;
    else if (ledger.state !== "following") seriesCountsByState[ledger.state]++;
    else seriesCountsByState[isSeriesComplete(ledger) ? "whole" : "holes"]++;
  }
  for (const [state, count] of Object.entries(seriesCountsByState)) historySeries.set({ source, state }, count);
}

/** A range of time without emitted history values; UTC, the end is exclusive. */
export interface HistoryGap {
  readonly tagId: string;
  readonly tagName: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly from: string | null;
  readonly to: string | null;
  readonly why: HistoryGapReason;
  readonly said: string | null;
  readonly at: string | null;
  readonly againAt: string | null;
}

/** `behind`: overdue. `between`: not requested, between emitted values. `no-log`, `null`: the service has no values. */
export type HistoryGapReason = NotRequestedGapReason | RefusedGapReason | "no-log" | "null";
type NotRequestedGapReason = "ordered" | "backfill" | "behind" | "between" | "unproven";
type RefusedGapReason = "refused" | "unreadable" | "out-of-scope" | "not-listed";

type GapResponseDetails = Pick<LedgerRange, "said" | "at" | "againAt">;

/** Returns the gaps of each series, oldest first; with `silences`, also ranges for which the service sent no values. */
export function listHistoryGaps(
  ledgers: readonly SeriesLedger[],
  { open }: BackfillRequests,
  nowMs: number,
  { silences = false }: { readonly silences?: boolean } = {},
): readonly HistoryGap[] {
  return ledgers.flatMap((series) => listSeriesGaps(series, open, silences, nowMs));
}

function listSeriesGaps(series: SeriesLedger, backfills: readonly BackfillRequest[], silences: boolean, nowMs: number) {
  const { siteTag, rules, total, ledger } = series;
  const { state, refusal } = ledger;
  const historyGaps: HistoryGap[] = [];
  const addGap = (why: HistoryGapReason, range: TimeRange | null, statement: GapResponseDetails = {}) =>
    historyGaps.push({
      ...{ tagId: siteTag.tag.id, tagName: siteTag.tag.displayName, resolution: rules.resolution, total, why },
      from: range && isoUtc(range.fromMs),
      to: range && isoUtc(range.toMs),
      ...{ said: statement.said ?? null, at: statement.at ?? null, againAt: statement.againAt ?? null },
    });

  const requestedRanges = mergeTimeRanges(
    backfills
      .filter((backfill) => coversSeries(backfill, series))
      .flatMap((backfill) => pendingRanges(backfill, series, nowMs)),
  );
  const overdueRange = findOverdueRange(series, nowMs);
  const pastRanges = total ? [] : [targetPastRange(ledger)];
  const dueRanges = mergeTimeRanges([...fetchedRanges(ledger.spans), ...requestedRanges, overdueRange, ...pastRanges]);
  let openGaps = findGaps(ledger, { fromMs: dueRanges[0]?.fromMs ?? 0, toMs: dueRanges.at(-1)?.toMs ?? 0 });
  const assignReason = (why: HistoryGapReason, ranges: readonly TimeRange[], statement?: GapResponseDetails) => {
    for (const range of ranges) {
      for (const gapPart of openGaps.flatMap((gap) => clipRange(gap, range))) addGap(why, gapPart, statement);
      openGaps = openGaps.flatMap((gap) => subtractRanges(gap, [range]));
    }
  };
  for (const ledgerRange of toRanges(ledger.spans))
    if (ledgerRange.why === "refused") assignReason(ledgerRange.reason ?? "refused", [ledgerRange], ledgerRange);
  if (siteTag.missing !== undefined) assignReason(siteTag.missing === "site" ? "out-of-scope" : "not-listed", openGaps);
  if (state !== "following") {
    const why = state === "unproven" && refusal !== null ? "refused" : state;
    if (openGaps.length === 0 && historyGaps.length === 0) addGap(why, null, refusal ?? {});
    assignReason(why, openGaps, refusal ?? {});
  }
  assignReason(refusal === null ? "behind" : (refusal.reason ?? "refused"), [overdueRange], refusal ?? {});
  assignReason("ordered", requestedRanges);
  assignReason("backfill", pastRanges);
  assignReason("between", openGaps);
  for (const ledgerRange of toRanges(ledger.spans))
    if (ledgerRange.why === "no-log" || (silences && ledgerRange.why === "null"))
      addGap(ledgerRange.why, ledgerRange, ledgerRange);
  return historyGaps.toSorted((a, b) => ((a.from ?? "") < (b.from ?? "") ? -1 : 1));
}

/** Returns the closed buckets that should have been fetched by now; an empty range if none is overdue. */
function findOverdueRange({ ledger, rules, total }: SeriesLedger, nowMs: number): TimeRange {
  const fromMs = parseTime(ledger.watermark);
  const toMs = closedUntilMs(rules, nowMs);
  const fetchIntervalMs = total ? 0 : rules.everyMs;
  const isRangeOverdue = ledger.state !== "following" || toMs - fromMs > 2 * Math.max(fetchIntervalMs, 60_000);
  return { fromMs, toMs: isRangeOverdue && Number.isFinite(fetchIntervalMs) ? toMs : fromMs };
}
