import { BUCKET_MS } from "../../../core/model/building.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../source/source.ts";
import { bucketBefore, bucketEnd, bucketStart, clipRange, formatUtc, memoizeByKey, type TimeRange } from "./buckets.ts";
import {
  closedUntilMs,
  isBackingOff,
  listLedgerGapParts,
  rangeToFetch,
  type SeriesRules,
  targetPastRange,
} from "./ledger.ts";
import { type BackfillRequest, coversSeries, pastBackfillRange, type Series } from "./series-registry.ts";

export interface HistoryRequest {
  /** `following`: recent buckets. `backfill`: the configured past. `ordered`: requested by `plenum backfill`. */
  readonly kind: "following" | "backfill" | "ordered" | "total";
  readonly series: readonly Series[];
  readonly range: TimeRange;
  readonly rangesBySeriesKey: ReadonlyMap<string, TimeRange>;
  /** True if the request is for one series that was refused before. */
  readonly isSingle: boolean;
  readonly valueCount: number;
  readonly isRepeat?: true;
}

export interface SeriesCandidate {
  readonly series: Series;
  readonly range: TimeRange;
  readonly isSingle: boolean;
}

export type SeriesCandidateGroup = readonly [SeriesCandidate, ...SeriesCandidate[]];

export interface RequestLimits {
  readonly maxValues: number;
  readonly prefersSingle: boolean;
  readonly bucketsPerTag?: (tagCount: number) => number;
}

export function chooseRecentRequest(
  allSeries: readonly Series[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  const closedUntilByRules = memoizeByKey((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const dueCandidates = allSeries.flatMap((series): readonly SeriesCandidate[] => {
    if (series.total || isBackingOff(series.ledger, nowMs)) return [];
    const range = rangeToFetch(series.ledger, series.rules, nowMs, closedUntilByRules(series.rules));
    return range === null ? [] : [{ series, range, isSingle: needsSingleRequest(series) }];
  });
  const group = selectSimilarSeries(dueCandidates, (a, b) => a.range.fromMs - b.range.fromMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { fromMs } = group[0].range;
  const maxToMs = bucketStart(fromMs + maxRequestLengthMs(group, limits), rules);
  const toMs = Math.min(Math.max(...group.map(({ range }) => range.toMs)), Math.max(bucketEnd(fromMs, rules), maxToMs));
  return buildHistoryRequest("following", group, { fromMs, toMs });
}

export function chooseBackfill(
  allSeries: readonly Series[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  const closedUntilByRules = memoizeByKey((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const gapCandidates = allSeries.flatMap((series) => {
    if (series.total) return [];
    const { fromMs, toMs } = targetPastRange(series.ledger);
    // Request no future buckets: the stored end is in the future if the clock was ahead at that time.
    return findLatestGap(series, { fromMs, toMs: Math.min(toMs, closedUntilByRules(series.rules)) }, nowMs);
  });
  return buildGapRequest("backfill", gapCandidates, limits);
}

export function chooseUserBackfill(
  allSeries: readonly Series[],
  backfills: readonly BackfillRequest[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  for (const backfill of backfills) {
    const gapCandidates = allSeries.flatMap((series) =>
      coversSeries(backfill, series) ? findLatestGap(series, pastBackfillRange(backfill, series, nowMs), nowMs) : [],
    );
    const request = buildGapRequest("ordered", gapCandidates, limits);
    if (request !== null) return request;
  }
  return null;
}

/** Chooses a request for totals. It covers only one period, because a reply contains one number per tag. */
export function chooseTotals(
  allSeries: readonly Series[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  const dueCandidates = allSeries.flatMap((series): readonly SeriesCandidate[] => {
    const { ledger, rules } = series;
    if (!series.total || isBackingOff(ledger, nowMs)) return [];
    const fromMs = Date.parse(ledger.watermark);
    // Skip the slow calculation of the period's end if less than half of the period has passed.
    if (fromMs + BUCKET_MS[rules.resolution] / 2 > nowMs) return [];
    const toMs = bucketEnd(fromMs, rules);
    if (toMs + rules.graceMs > nowMs) return [];
    return [{ series, range: { fromMs, toMs }, isSingle: needsSingleRequest(series) }];
  });
  const group = selectSimilarSeries(dueCandidates, (a, b) => b.range.fromMs - a.range.fromMs, limits);
  if (group === null) return null;
  const [firstCandidate, ...otherCandidates] = group;
  const samePeriodCandidates = otherCandidates.filter(({ range }) => range.fromMs === firstCandidate.range.fromMs);
  return buildHistoryRequest("total", [firstCandidate, ...samePeriodCandidates], firstCandidate.range);
}

const needsSingleRequest = ({ ledger, isSuspect }: Series): boolean => isSuspect || ledger.refusal !== null;

/** Returns the latest gap of a series to request. Adjacent unreadable parts are joined into one range. */
function findLatestGap(series: Series, range: TimeRange, nowMs: number): readonly SeriesCandidate[] {
  const gapParts = listLedgerGapParts(series.ledger, range, nowMs);
  const gap = gapParts.findLast(({ isSingle }) => !isSingle) ?? gapParts.at(-1);
  if (gap === undefined) return [];
  const firstGap = (gap.unreadable && gapParts.find(({ unreadable }) => unreadable)) ?? gap;
  return [{ series, range: { fromMs: firstGap.fromMs, toMs: gap.toMs }, isSingle: gap.isSingle || series.isSuspect }];
}

function selectSimilarSeries(
  candidates: readonly SeriesCandidate[],
  compareCandidates: (a: SeriesCandidate, b: SeriesCandidate) => number,
  { prefersSingle }: RequestLimits,
): SeriesCandidateGroup | null {
  const sortedCandidates = candidates.toSorted(compareCandidates);
  const singleCandidate = sortedCandidates.find(({ isSingle }) => isSingle);
  const [leader, ...others] = sortedCandidates.filter(({ isSingle }) => !isSingle);
  if (singleCandidate !== undefined && (prefersSingle || leader === undefined)) return [singleCandidate];
  if (leader === undefined) return null;
  return [leader, ...others.filter((candidate) => hasSameBuckets(leader, candidate)).slice(0, TAGS_PER_REQUEST - 1)];
}

export function hasSameBuckets({ series: { rules } }: SeriesCandidate, { series }: SeriesCandidate): boolean {
  return series.rules.resolution === rules.resolution && series.rules.timeZone === rules.timeZone;
}

function maxRequestLengthMs(group: SeriesCandidateGroup, { maxValues, bucketsPerTag }: RequestLimits): number {
  const valuesPerTag = Math.floor(maxValues / group.length);
  const requestedBuckets = Math.max(1, Math.min(valuesPerTag, bucketsPerTag?.(group.length) ?? valuesPerTag));
  return requestedBuckets * BUCKET_MS[group[0].series.rules.resolution];
}

/** Builds a request for the latest part of the gaps that the limits allow, at least one bucket. */
function buildGapRequest(kind: "backfill" | "ordered", gaps: readonly SeriesCandidate[], limits: RequestLimits) {
  const group = selectSimilarSeries(gaps, (a, b) => b.range.toMs - a.range.toMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { toMs } = group[0].range;
  const earliestStartMs = bucketStart(toMs - maxRequestLengthMs(group, limits), rules);
  const earliestGapMs = Math.min(...group.map(({ range }) => range.fromMs));
  const fromMs = Math.max(earliestGapMs, earliestStartMs < toMs ? earliestStartMs : bucketBefore(toMs - 1, rules));
  return buildHistoryRequest(kind, group, { fromMs, toMs });
}

export function buildHistoryRequest(kind: HistoryRequest["kind"], group: SeriesCandidateGroup, range: TimeRange) {
  const clippedSeries = group.flatMap(({ series, range: seriesRange }) =>
    clipRange(seriesRange, range).map((part) => ({ series, part })),
  );
  const buckets = Math.max(1, Math.round((range.toMs - range.fromMs) / BUCKET_MS[group[0].series.rules.resolution]));
  return {
    kind,
    series: clippedSeries.map(({ series }) => series),
    range,
    rangesBySeriesKey: new Map(clippedSeries.map(({ series, part }) => [series.key, part])),
    isSingle: group[0].isSingle,
    valueCount: kind === "total" ? clippedSeries.length : buckets * clippedSeries.length,
  };
}

/** Starts the query one bucket early, because the service does not document whether the start is included. */
export function buildSeriesQuery({ kind, range }: HistoryRequest, series: readonly Series[]): HistoryQuery {
  const [firstSeries] = series;
  if (firstSeries === undefined) throw new Error("A history request is for at least one series.");
  const { resolution, timeZone } = firstSeries.rules;
  const fromMs = kind === "total" ? range.fromMs : bucketBefore(range.fromMs, firstSeries.rules);
  const tagIds = series.map(({ siteTag }) => siteTag.tag.id);
  return { tagIds, from: formatUtc(fromMs), to: formatUtc(range.toMs), resolution, timeZone };
}

export function describeHistoryRequest(request: HistoryRequest): string {
  const { tagIds, from, to, resolution, timeZone } = buildSeriesQuery(request, request.series);
  return `${request.kind}: ${tagIds.length} tags (${tagIds[0]} …), ${from} to ${to}, ${resolution}, ${timeZone}`;
}
