import { BUCKET_MS } from "../../../core/model/building.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../source/source.ts";
import { bucketBefore, bucketEnd, bucketStart, cached, clip, parseTime, type Range, rangeTime } from "./buckets.ts";
import {
  closedUntilMs,
  followingRange,
  isBackingOff,
  type OpenPart,
  openParts,
  type SeriesRules,
  targetPast,
} from "./ledger.ts";
import { type BackfillRequest, coversSeries, followedRange, type Series } from "./series.ts";

export interface HistoryRequest {
  /** `following`: recently closed buckets. `backfill`: the configured past. `ordered`: `plenum backfill`. */
  readonly kind: "following" | "backfill" | "ordered" | "total";
  readonly series: readonly Series[];
  readonly range: Range;
  readonly ranges: ReadonlyMap<string, Range>;
  /** A refused series, requested alone so that the requests of others succeed. */
  readonly isSingle: boolean;
  readonly values: number;
  /** Repeats the unverified ends of a response that may have been cut. */
  readonly isRepeat?: true;
}

export interface Candidate {
  readonly series: Series;
  readonly range: Range;
  readonly isSingle: boolean;
}

export type Candidates = readonly [Candidate, ...Candidate[]];

export interface RequestLimits {
  readonly values: number;
  readonly singleFirst: boolean;
  readonly bucketsEach?: (tags: number) => number;
}

export function nextFollowing(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const closedFor = cached((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const due = all.flatMap((series): readonly Candidate[] => {
    if (series.total || isBackingOff(series.ledger, nowMs)) return [];
    const range = followingRange(series.ledger, series.rules, nowMs, closedFor(series.rules));
    return range === null ? [] : [{ series, range, isSingle: needsSingleRequest(series) }];
  });
  const group = similarSeries(due, (a, b) => a.range.fromMs - b.range.fromMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { fromMs } = group[0].range;
  const mostMs = bucketStart(fromMs + maxLengthMs(group, limits), rules);
  const toMs = Math.min(Math.max(...group.map(({ range }) => range.toMs)), Math.max(bucketEnd(fromMs, rules), mostMs));
  return requestFor("following", group, { fromMs, toMs });
}

export function nextBackfill(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const closedFor = cached((rules: SeriesRules) => closedUntilMs(rules, nowMs));
  const gaps = all.flatMap((series) => {
    if (series.total) return [];
    const { fromMs, toMs } = targetPast(series.ledger);
    // If the clock was ahead when the series was first seen, its front is in the future.
    return latestGap(series, { fromMs, toMs: Math.min(toMs, closedFor(series.rules)) }, nowMs);
  });
  return requestForPast("backfill", gaps, limits);
}

/** Precedes the configured backfill, because a person waits. */
export function nextOrdered(
  all: readonly Series[],
  backfills: readonly BackfillRequest[],
  nowMs: number,
  limits: RequestLimits,
): HistoryRequest | null {
  for (const backfill of backfills) {
    const gaps = all.flatMap((series) =>
      coversSeries(backfill, series) ? latestGap(series, followedRange(backfill, series, nowMs), nowMs) : [],
    );
    const request = requestForPast("ordered", gaps, limits);
    if (request !== null) return request;
  }
  return null;
}

/** One period per request, because a reply has one number per tag. */
export function nextTotal(all: readonly Series[], nowMs: number, limits: RequestLimits): HistoryRequest | null {
  const due = all.flatMap((series): readonly Candidate[] => {
    const { ledger, rules } = series;
    if (!series.total || isBackingOff(ledger, nowMs)) return [];
    const fromMs = parseTime(ledger.watermark);
    // Skip slow zone rules: a period of which not even half has passed has not closed.
    if (fromMs + BUCKET_MS[rules.resolution] / 2 > nowMs) return [];
    const toMs = bucketEnd(fromMs, rules);
    if (toMs + rules.graceMs > nowMs) return [];
    return [{ series, range: { fromMs, toMs }, isSingle: needsSingleRequest(series) }];
  });
  const group = similarSeries(due, (a, b) => b.range.fromMs - a.range.fromMs, limits);
  if (group === null) return null;
  const [first, ...others] = group;
  const samePeriod = others.filter(({ range }) => range.fromMs === first.range.fromMs);
  return requestFor("total", [first, ...samePeriod], first.range);
}

function needsSingleRequest({ ledger, isSuspect }: Series): boolean {
  return isSuspect || ledger.refusal !== null;
}

/** Unreadable parts are requested together, because 100 requests take 5 minutes. */
function latestGap(series: Series, range: Range, nowMs: number): readonly Candidate[] {
  const parts: readonly OpenPart[] = openParts(series.ledger, range, nowMs);
  const part = parts.findLast(({ isSingle }) => !isSingle) ?? parts.at(-1);
  if (part === undefined) return [];
  const first = (part.unreadable && parts.find(({ unreadable }) => unreadable)) ?? part;
  return [{ series, range: { fromMs: first.fromMs, toMs: part.toMs }, isSingle: part.isSingle || series.isSuspect }];
}

function similarSeries(
  candidates: readonly Candidate[],
  order: (a: Candidate, b: Candidate) => number,
  { singleFirst }: RequestLimits,
): Candidates | null {
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

function maxLengthMs(group: Candidates, { values, bucketsEach }: RequestLimits): number {
  const each = Math.floor(values / group.length);
  const perTag = Math.max(1, Math.min(each, bucketsEach?.(group.length) ?? each));
  return perTag * BUCKET_MS[group[0].series.rules.resolution];
}

/** Latest part of a group's gaps that the limits allow, at least one bucket. Leaves out series without a gap there. */
function requestForPast(kind: "backfill" | "ordered", gaps: readonly Candidate[], limits: RequestLimits) {
  const group = similarSeries(gaps, (a, b) => b.range.toMs - a.range.toMs, limits);
  if (group === null) return null;
  const { rules } = group[0].series;
  const { toMs } = group[0].range;
  const startMs = bucketStart(toMs - maxLengthMs(group, limits), rules);
  const leastMs = Math.min(...group.map(({ range }) => range.fromMs));
  const fromMs = Math.max(leastMs, startMs < toMs ? startMs : bucketBefore(toMs - 1, rules));
  return requestFor(kind, group, { fromMs, toMs });
}

export function requestFor(kind: HistoryRequest["kind"], group: Candidates, range: Range): HistoryRequest {
  const parts = group.flatMap(({ series, range: own }) => clip(own, range).map((part) => ({ series, part })));
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

/** Starts one bucket early, because the interface does not say whether the start is included. */
export function queryFor({ kind, range }: HistoryRequest, series: readonly Series[]): HistoryQuery {
  const [first] = series;
  if (first === undefined) throw new Error("A history request is for at least one series.");
  const { resolution, timeZone } = first.rules;
  const fromMs = kind === "total" ? range.fromMs : bucketBefore(range.fromMs, first.rules);
  const tagIds = series.map(({ located }) => located.tag.id);
  return { tagIds, from: rangeTime(fromMs), to: rangeTime(range.toMs), resolution, timeZone };
}

export function describeRequest(request: HistoryRequest): string {
  const { tagIds, from, to, resolution, timeZone } = queryFor(request, request.series);
  return `${request.kind}: ${tagIds.length} tags (${tagIds[0]} …), ${from} to ${to}, ${resolution}, ${timeZone}`;
}
