import { BUCKET_MS } from "../../../core/model/building.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../source/source.ts";
import { bucketBefore, bucketEnd, bucketStart, clipTo, formatUtc, memoize, parseTime, type Range } from "./buckets.ts";
import {
  closedUntilMs,
  type GapPart,
  gapParts,
  isBackingOff,
  rangeToFollow,
  type SeriesRules,
  targetPastRange,
} from "./ledger.ts";
import { type BackfillRequest, coversSeries, pastBackfillRange, type Series } from "./series.ts";

export interface HistoryRequest {
  /** `following`: recently closed buckets. `backfill`: the configured past. `ordered`: `plenum backfill`. */
  readonly kind: "following" | "backfill" | "ordered" | "total";
  readonly series: readonly Series[];
  readonly range: Range;
  readonly ranges: ReadonlyMap<string, Range>;
  /** A refused series, requested alone so that the requests of others succeed. */
  readonly isSingle: boolean;
  readonly values: number;
  /** True for a repeated request of the ends of a response that may have been cut. */
  readonly isRepeat?: true;
}

export interface Candidate {
  readonly series: Series;
  readonly range: Range;
  readonly isSingle: boolean;
}

export type CandidateGroup = readonly [Candidate, ...Candidate[]];

export interface RequestLimits {
  readonly values: number;
  readonly singleFirst: boolean;
  readonly bucketsPerTag?: (tags: number) => number;
}

export function chooseFollowing(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const closedUntil = memoize((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const due = all.flatMap((series): readonly Candidate[] => {
    if (series.total || isBackingOff(series.ledger, nowMs)) return [];
    const range = rangeToFollow(series.ledger, series.rules, nowMs, closedUntil(series.rules));
    return range === null ? [] : [{ series, range, isSingle: needsSingleRequest(series) }];
  });
  const group = selectSimilarSeries(due, (a, b) => a.range.fromMs - b.range.fromMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { fromMs } = group[0].range;
  const mostMs = bucketStart(fromMs + maxRequestLengthMs(group, limits), rules);
  const toMs = Math.min(Math.max(...group.map(({ range }) => range.toMs)), Math.max(bucketEnd(fromMs, rules), mostMs));
  return buildHistoryRequest("following", group, { fromMs, toMs });
}

export function chooseBackfill(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const closedUntil = memoize((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const gaps = all.flatMap((series) => {
    if (series.total) return [];
    const { fromMs, toMs } = targetPastRange(series.ledger);
    // If the clock was ahead when the series was first seen, the past of the series ends in the future.
    return findLatestGap(series, { fromMs, toMs: Math.min(toMs, closedUntil(series.rules)) }, nowMs);
  });
  return buildPastRequest("backfill", gaps, limits);
}

/** Serves `plenum backfill`, before the configured backfill because a person waits. */
export function chooseOrdered(
  all: readonly Series[],
  backfills: readonly BackfillRequest[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  for (const backfill of backfills) {
    const gaps = all.flatMap((series) =>
      coversSeries(backfill, series) ? findLatestGap(series, pastBackfillRange(backfill, series, nowMs), nowMs) : [],
    );
    const request = buildPastRequest("ordered", gaps, limits);
    if (request !== null) return request;
  }
  return null;
}

/** Requests the totals of one period, because a reply has one number per tag. */
export function chooseTotal(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const due = all.flatMap((series): readonly Candidate[] => {
    const { ledger, rules } = series;
    if (!series.total || isBackingOff(ledger, nowMs)) return [];
    const fromMs = parseTime(ledger.watermark);
    // Skip the slow zone rules for a period of which not even half has passed.
    if (fromMs + BUCKET_MS[rules.resolution] / 2 > nowMs) return [];
    const toMs = bucketEnd(fromMs, rules);
    if (toMs + rules.graceMs > nowMs) return [];
    return [{ series, range: { fromMs, toMs }, isSingle: needsSingleRequest(series) }];
  });
  const group = selectSimilarSeries(due, (a, b) => b.range.fromMs - a.range.fromMs, limits);
  if (group === null) return null;
  const [first, ...others] = group;
  const samePeriod = others.filter(({ range }) => range.fromMs === first.range.fromMs);
  return buildHistoryRequest("total", [first, ...samePeriod], first.range);
}

function needsSingleRequest({ ledger, isSuspect }: Series): boolean {
  return isSuspect || ledger.refusal !== null;
}

/** Takes unreadable parts of the latest gap together, because 100 requests take 5 minutes. */
function findLatestGap(series: Series, range: Range, nowMs: number): readonly Candidate[] {
  const parts: readonly GapPart[] = gapParts(series.ledger, range, nowMs);
  const part = parts.findLast(({ isSingle }) => !isSingle) ?? parts.at(-1);
  if (part === undefined) return [];
  const first = (part.unreadable && parts.find(({ unreadable }) => unreadable)) ?? part;
  return [{ series, range: { fromMs: first.fromMs, toMs: part.toMs }, isSingle: part.isSingle || series.isSuspect }];
}

function selectSimilarSeries(
  candidates: readonly Candidate[],
  order: (a: Candidate, b: Candidate) => number,
  { singleFirst }: RequestLimits,
): CandidateGroup | null {
  const sorted = candidates.toSorted(order);
  const single = sorted.find(({ isSingle }) => isSingle);
  const [first, ...others] = sorted.filter(({ isSingle }) => !isSingle);
  if (single !== undefined && (singleFirst || first === undefined)) return [single];
  if (first === undefined) return null;
  return [first, ...others.filter((other) => hasSameBuckets(first, other)).slice(0, TAGS_PER_REQUEST - 1)];
}

export function hasSameBuckets({ series: { rules } }: Candidate, { series }: Candidate): boolean {
  return series.rules.resolution === rules.resolution && series.rules.timeZone === rules.timeZone;
}

function maxRequestLengthMs(group: CandidateGroup, { values, bucketsPerTag }: RequestLimits): number {
  const each = Math.floor(values / group.length);
  const perTag = Math.max(1, Math.min(each, bucketsPerTag?.(group.length) ?? each));
  return perTag * BUCKET_MS[group[0].series.rules.resolution];
}

/** Requests the latest part of a group's gaps that the limits allow, at least one bucket. */
function buildPastRequest(kind: "backfill" | "ordered", gaps: readonly Candidate[], limits: RequestLimits) {
  const group = selectSimilarSeries(gaps, (a, b) => b.range.toMs - a.range.toMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { toMs } = group[0].range;
  const startMs = bucketStart(toMs - maxRequestLengthMs(group, limits), rules);
  const leastMs = Math.min(...group.map(({ range }) => range.fromMs));
  const fromMs = Math.max(leastMs, startMs < toMs ? startMs : bucketBefore(toMs - 1, rules));
  return buildHistoryRequest(kind, group, { fromMs, toMs });
}

export function buildHistoryRequest(kind: HistoryRequest["kind"], group: CandidateGroup, range: Range): HistoryRequest {
  const parts = group.flatMap(({ series, range: own }) => clipTo(own, range).map((part) => ({ series, part })));
  const buckets = Math.max(1, Math.round((range.toMs - range.fromMs) / BUCKET_MS[group[0].series.rules.resolution]));
  return {
    kind,
    series: parts.map(({ series }) => series),
    range,
    ranges: new Map(parts.map(({ series, part }) => [series.key, part])),
    isSingle: group[0].isSingle,
    values: kind === "total" ? parts.length : buckets * parts.length,
  };
}

/** Starts the query one bucket early, because the interface does not say whether the start is included. */
export function buildSeriesQuery({ kind, range }: HistoryRequest, series: readonly Series[]): HistoryQuery {
  const [first] = series;
  if (first === undefined) throw new Error("A history request is for at least one series.");
  const { resolution, timeZone } = first.rules;
  const fromMs = kind === "total" ? range.fromMs : bucketBefore(range.fromMs, first.rules);
  const tagIds = series.map(({ located }) => located.tag.id);
  return { tagIds, from: formatUtc(fromMs), to: formatUtc(range.toMs), resolution, timeZone };
}

export function describeRequest(request: HistoryRequest): string {
  const { tagIds, from, to, resolution, timeZone } = buildSeriesQuery(request, request.series);
  return `${request.kind}: ${tagIds.length} tags (${tagIds[0]} …), ${from} to ${to}, ${resolution}, ${timeZone}`;
}
