import { BUCKET_MS } from "../../../core/model/building.ts";
import type { HistoryQuery } from "../../source/source.ts";
import { type BackfillRequest, followedRange } from "./backfills.ts";
import { bucketBefore, bucketEnd, bucketStart, type Range, rangeTime } from "./buckets.ts";
import {
  closedUntil,
  followingRange,
  isBackingOff,
  type OpenPart,
  openParts,
  parseTime,
  type SeriesRules,
  targetPast,
} from "./ledger.ts";
import type { Series } from "./series.ts";

/** A request for up to 20 tags with similar ranges. These functions choose the next request, and are pure. */
export interface HistoryRequest {
  /** `following`: recently closed buckets. `backfill`: the configured past. `ordered`: a request of `plenum backfill`. */
  readonly kind: "following" | "backfill" | "ordered" | "total";
  readonly series: readonly Series[];
  /** Range of the complete request; each series takes its own part of it. */
  readonly range: Range;
  /** Part of each series, by its key. */
  readonly ranges: ReadonlyMap<string, Range>;
  /** A single series that was refused before, so that it does not spoil the requests of others. */
  readonly isSingle: boolean;
  /** Values that the reply is expected to have. */
  readonly values: number;
  /** Repeats the unverified ends of a response that may have been cut. */
  readonly isRepeat?: true;
}

export interface Candidate {
  readonly series: Series;
  readonly range: Range;
  /** It was refused before and is requested singly. */
  readonly isSingle: boolean;
}

export interface Limit {
  /** Tags in one request. */
  readonly size: number;
  /** Values in one reply. */
  readonly values: number;
  /** Single series go first now; they take turns with groups. */
  readonly singleFirst: boolean;
  /** Buckets per tag for a number of tags if the service has a limit; unlimited by default. */
  readonly bucketsEach?: (tags: number) => number;
}

export function nextFollowing(all: readonly Series[], nowMs: number, limit: Limit): HistoryRequest | null {
  const closedFor = closingTimes(nowMs);
  const wanted = all.flatMap((series): readonly Candidate[] => {
    if (series.total || isBackingOff(series.ledger, nowMs)) return [];
    const range = followingRange(series.ledger, series.rules, nowMs, closedFor(series));
    return range === null ? [] : [{ series, range, isSingle: isAlone(series) }];
  });
  const first = similarSeries(wanted, (a, b) => a.range.fromMs - b.range.fromMs, limit);
  if (first === undefined) return null;
  const { fromMs } = first[0].range;
  const toMs = Math.max(...first.map(({ range }) => range.toMs));
  return chooseRequest("following", first, { fromMs, toMs: cut(fromMs, toMs, first, limit) });
}

/** Caches the closing time: many series share few rules, and zone rules cost microseconds. */
function closingTimes(nowMs: number): (series: Series) => number {
  const ends = new Map<SeriesRules, number>();
  return ({ rules }) => {
    const known = ends.get(rules) ?? closedUntil(rules, nowMs);
    ends.set(rules, known);
    return known;
  };
}

/** Returns the next request for the configured past, newest first. */
export function nextBackfill(all: readonly Series[], nowMs: number, limit: Limit): HistoryRequest | null {
  const closedFor = closingTimes(nowMs);
  const wanted = all.flatMap((series) => {
    const { ledger, total } = series;
    if (total) return [];
    const { fromMs, toMs } = targetPast(ledger);
    // If the clock was ahead when the series was first seen, its front is in the future.
    const closedMs = Math.min(toMs, closedFor(series));
    return fromMs < closedMs ? latest(series, openParts(ledger, { fromMs, toMs: closedMs }, nowMs)) : [];
  });
  return askForPast("backfill", wanted, limit);
}

/**
 * Returns the next request of `plenum backfill`, newest first. It precedes the configured backfill, because a person
 * waits for it.
 */
export function nextOrdered(
  all: readonly Series[],
  orders: readonly BackfillRequest[],
  nowMs: number,
  limit: Limit,
): HistoryRequest | null {
  for (const order of orders) {
    const wanted = all.flatMap((series) => {
      const { rules, ledger, total, located } = series;
      if (total || rules.resolution !== order.resolution || !order.matches(located)) return [];
      return latest(series, openParts(ledger, followedRange(order, ledger, rules, nowMs), nowMs));
    });
    const ask = askForPast("ordered", wanted, limit);
    if (ask !== null) return ask;
  }
  return null;
}

/** Returns the next request for totals: one period, because a reply has one number per tag. */
export function nextTotal(all: readonly Series[], nowMs: number, limit: Limit): HistoryRequest | null {
  const wanted = all.flatMap((series): readonly Candidate[] => {
    if (!series.total || isBackingOff(series.ledger, nowMs)) return [];
    const { resolution, timeZone, graceMs } = series.rules;
    const fromMs = parseTime(series.ledger.watermark);
    if (fromMs + BUCKET_MS[resolution] / 2 > nowMs) return [];
    const toMs = bucketEnd(fromMs, resolution, timeZone);
    const isSingle = isAlone(series);
    return toMs + graceMs <= nowMs ? [{ series, range: { fromMs, toMs }, isSingle }] : [];
  });
  const first = similarSeries(wanted, (a, b) => b.range.fromMs - a.range.fromMs, limit);
  if (first === undefined) return null;
  const { range } = first[0];
  return chooseRequest("total", first, range);
}

type Group = readonly [Candidate, ...Candidate[]];

function isAlone({ ledger, isSuspect }: Series): boolean {
  return isSuspect || ledger.refusal !== null;
}

/**
 * Picks the latest part that was not refused, then the latest refused one. All unreadable parts of a series are
 * requested together: 100 requests for one bucket each would take five minutes of the quota.
 */
function latest(series: Series, parts: readonly OpenPart[]): readonly Candidate[] {
  const part = parts.findLast(({ isSingle }) => !isSingle) ?? parts.at(-1);
  if (part === undefined) return [];
  const first = part.unreadable === true ? parts.find(({ unreadable }) => unreadable === true) : part;
  const range = { fromMs: first?.fromMs ?? part.fromMs, toMs: part.toMs };
  return [{ series, range, isSingle: part.isSingle || series.isSuspect }];
}

/** Returns the first group of series with the same resolution and zone, in the given order. */
function similarSeries(
  wanted: readonly Candidate[],
  order: (a: Candidate, b: Candidate) => number,
  limit: Limit,
): Group | undefined {
  const [ordinary, isSingle] = [wanted.filter((each) => !each.isSingle), wanted.filter((each) => each.isSingle)];
  if (isSingle.length > 0 && (limit.singleFirst || ordinary.length === 0)) {
    return isSingle.toSorted(order).slice(0, 1) as [Candidate];
  }
  const [first, ...others] = ordinary.toSorted(order);
  if (first === undefined) return undefined;
  const { resolution, timeZone } = first.series.rules;
  const alike = others.filter(
    ({ series: { rules } }) => rules.resolution === resolution && rules.timeZone === timeZone,
  );
  return [first, ...alike.slice(0, limit.size - 1)];
}

function askForPast(kind: "backfill" | "ordered", wanted: readonly Candidate[], limit: Limit): HistoryRequest | null {
  const first = similarSeries(wanted, (a, b) => b.range.toMs - a.range.toMs, limit);
  return first === undefined ? null : chooseRequest(kind, first, backFrom(first, limit));
}

function lengthOf(group: Group, limit: Limit): number {
  const each = Math.floor(limit.values / group.length);
  const perTag = Math.max(1, Math.min(each, limit.bucketsEach?.(group.length) ?? each));
  return perTag * BUCKET_MS[group[0].series.rules.resolution];
}

/**
 * Returns the latest part of a group's range that the limit allows, at least one bucket. Series without a gap in it
 * are left out, because a reply has the complete range for every tag.
 */
function backFrom(group: Group, limit: Limit): Range {
  const { toMs } = group[0].range;
  const { resolution, timeZone } = group[0].series.rules;
  const start = bucketStart(toMs - lengthOf(group, limit), resolution, timeZone);
  const least = Math.min(...group.map(({ range }) => range.fromMs));
  return {
    fromMs: Math.max(least, start < toMs ? start : bucketBefore(toMs - 1, resolution, timeZone)),
    toMs,
  };
}

/** Returns the end of the longest part of complete buckets that the limit allows, at least one bucket. */
function cut(fromMs: number, toMs: number, group: Group, limit: Limit): number {
  const { resolution, timeZone } = group[0].series.rules;
  const least = bucketEnd(fromMs, resolution, timeZone);
  const most = bucketStart(fromMs + lengthOf(group, limit), resolution, timeZone);
  return Math.min(toMs, Math.max(least, most));
}

export function chooseRequest(kind: HistoryRequest["kind"], group: Group, range: Range): HistoryRequest {
  const ranges = new Map<string, Range>();
  const series: Series[] = [];
  for (const wanted of group) {
    // A total is for one complete period.
    if (kind === "total" && wanted.range.fromMs !== range.fromMs) continue;
    const own = {
      fromMs: Math.max(range.fromMs, wanted.range.fromMs),
      toMs: Math.min(range.toMs, wanted.range.toMs),
    };
    if (own.fromMs >= own.toMs) continue;
    series.push(wanted.series);
    ranges.set(wanted.series.key, own);
  }
  const { resolution } = group[0].series.rules;
  const buckets = Math.max(1, Math.round((range.toMs - range.fromMs) / BUCKET_MS[resolution]));
  const values = kind === "total" ? series.length : buckets * series.length;
  return { kind, series, range, ranges, isSingle: group[0].isSingle, values };
}

export function describeQuery(ask: HistoryRequest, part: readonly Series[]): string {
  const { tagIds, from, to, resolution, timeZone } = queryFor(ask, part);
  return `${ask.kind}: ${tagIds.length} tags (${tagIds[0]} …), ${from} to ${to}, ${resolution}, ${timeZone}`;
}

/**
 * Returns the query of a request. It starts one bucket early, because the interface does not say whether the start is
 * included.
 */
export function isOneRange({ range, ranges }: HistoryRequest): boolean {
  return [...ranges.values()].every((own) => own.fromMs === range.fromMs && own.toMs === range.toMs);
}

export function queryFor(ask: HistoryRequest, series: readonly Series[]): HistoryQuery {
  const [first] = series;
  if (first === undefined) throw new Error("A history request is for at least one series.");
  const { resolution, timeZone } = first.rules;
  const { fromMs, toMs } = ask.range;
  const from = ask.kind === "total" ? fromMs : bucketBefore(fromMs, resolution, timeZone);
  const tagIds = series.map(({ located }) => located.tag.id);
  return { tagIds, from: rangeTime(from), to: rangeTime(toMs), resolution, timeZone };
}

export interface RefusedSingly<T, R> {
  readonly member: T;
  readonly refusal: R;
}

/**
 * Serves a group that is refused because of some of its members: requests halves, and halves of refused halves, until each
 * refused member was refused singly. One bad member of 20 costs at most nine requests. `attempt` returns null when it
 * served a part, or the refusal, or `stop`: then the group gets no verdict (null). A last refusal ends the search early.
 */
export async function divide<T, R extends { readonly isLast: boolean }>(
  group: readonly T[],
  attempt: (part: readonly T[]) => Promise<R | "stop" | null>,
): Promise<readonly RefusedSingly<T, R>[] | null> {
  const refused: RefusedSingly<T, R>[] = [];
  let isOver = false;

  /** Returns true for a served part, and null when the search ends. */
  const serve = async (part: readonly T[]): Promise<boolean | null> => {
    const refusal = await attempt(part);
    if (refusal === null) return true;
    if (refusal === "stop") return null;
    const [member] = part;
    if (part.length === 1 && member !== undefined) refused.push({ member, refusal });
    isOver = refusal.isLast;
    return isOver ? null : false;
  };

  /** Searches the halves of a refused part. Returns false when the search ends. */
  const search = async (part: readonly T[]): Promise<boolean> => {
    if (part.length <= 1) return true;
    const middle = Math.floor(part.length / 2);
    const [first, second] = [part.slice(0, middle), part.slice(middle)];
    const isServed = await serve(first);
    if (isServed === null || (!isServed && !(await search(first)))) return false;
    // The first half is good, so the second is bad: divide it without a request for all of it.
    if (isServed && second.length > 1) return search(second);
    const isOtherServed = await serve(second);
    return isOtherServed !== null && (isOtherServed || search(second));
  };

  const isServed = await serve(group);
  if (isServed === true) return [];
  const isDone = isServed !== null && (await search(group));
  return isDone || isOver ? refused : null;
}
