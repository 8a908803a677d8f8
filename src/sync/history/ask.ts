import { BUCKET_MS } from "../../building.ts";
import type { Series } from "./book.ts";
import { bucketBefore, bucketEnd, bucketStart } from "./buckets.ts";
import { closedUntil, headRange, ms, type SeriesRules, tailFloor } from "./ledger.ts";
import { type BackfillOrder, pendingOf } from "./orders.ts";
import type { Range } from "./ranges.ts";

/**
 * Which request comes next. Live following goes before totals, those before the backfill; the probes for tags
 * about which nothing is known come between. Pure.
 */
export interface Ask {
  readonly kind: "head" | "tail" | "order" | "total";
  readonly series: readonly Series[];
  /** The range of the whole request; each series takes its own part of it. */
  readonly range: Range;
  /** The part of each series, by its key. */
  readonly ranges: ReadonlyMap<string, Range>;
  /** Values that the reply is expected to have. */
  readonly values: number;
}

interface Wanted {
  readonly series: Series;
  readonly range: Range;
}

export function nextHead(all: readonly Series[], nowMs: number, limit: Limit): Ask | null {
  // Many series share the same few rules, and the rules of a zone cost microseconds.
  const ends = new Map<SeriesRules, number>();
  const endFor = ({ rules }: Series): number => {
    const known = ends.get(rules) ?? closedUntil(rules, nowMs);
    ends.set(rules, known);
    return known;
  };
  const wanted = all.flatMap((series) => {
    const range = series.total ? null : headRange(series.held, series.rules, nowMs, endFor(series));
    return range === null ? [] : [{ series, range }];
  });
  const first = similar(wanted, (a, b) => a.range.fromMs - b.range.fromMs, limit);
  if (first === undefined) return null;
  const { fromMs } = first[0].range;
  const toMs = Math.max(...first.map(({ range }) => range.toMs));
  return askFor("head", first, { fromMs, toMs: cut(fromMs, toMs, first, limit) });
}

export function nextTail(all: readonly Series[], limit: Limit): Ask | null {
  const wanted = all.flatMap((series) => {
    const range = { fromMs: tailFloor(series.held), toMs: ms(series.held.reached) };
    return series.total || range.fromMs >= range.toMs ? [] : [{ series, range }];
  });
  const first = similar(wanted, (a, b) => b.range.toMs - a.range.toMs, limit);
  if (first === undefined) return null;
  return askFor("tail", first, backFrom(first, limit));
}

/** What a person asked for, newest first; before the configured backfill, because somebody waits for it. */
export function nextOrder(
  all: readonly Series[],
  orders: readonly BackfillOrder[],
  nowMs: number,
  limit: Limit,
): Ask | null {
  for (const order of orders) {
    const wanted = all.flatMap((series) => {
      const { rules, held, total, placed } = series;
      if (total || rules.resolution !== order.resolution || !order.matches(placed)) return [];
      const range = pendingOf(order, held, rules, nowMs).at(-1);
      return range === undefined ? [] : [{ series, range }];
    });
    const first = similar(wanted, (a, b) => b.range.toMs - a.range.toMs, limit);
    if (first === undefined) continue;
    return askFor("order", first, backFrom(first, limit));
  }
  return null;
}

/** One period at a time, because a reply holds one number per tag. */
export function nextTotal(all: readonly Series[], nowMs: number, limit: Limit): Ask | null {
  const wanted = all.flatMap((series) => {
    if (!series.total) return [];
    const { resolution, timeZone, graceMs } = series.rules;
    const fromMs = ms(series.held.watermark);
    if (fromMs + BUCKET_MS[resolution] / 2 > nowMs) return [];
    const toMs = bucketEnd(fromMs, resolution, timeZone);
    return toMs + graceMs <= nowMs ? [{ series, range: { fromMs, toMs } }] : [];
  });
  const first = similar(wanted, (a, b) => b.range.fromMs - a.range.fromMs, limit);
  if (first === undefined) return null;
  const { range } = first[0];
  return askFor("total", first, range);
}

export interface Limit {
  /** Tags in one request. */
  readonly size: number;
  /** Values in one reply. */
  readonly values: number;
}

type Group = readonly [Wanted, ...Wanted[]];

/** The first group of series with the same resolution and zone, neighbours in the given order. */
function similar(
  wanted: readonly Wanted[],
  order: (a: Wanted, b: Wanted) => number,
  limit: Limit,
): Group | undefined {
  const [first, ...others] = wanted.toSorted(order);
  if (first === undefined) return undefined;
  const { resolution, timeZone } = first.series.rules;
  const alike = others.filter(
    ({ series: { rules } }) => rules.resolution === resolution && rules.timeZone === timeZone,
  );
  return [first, ...alike.slice(0, limit.size - 1)];
}

function lengthOf(group: Group, limit: Limit): number {
  const perTag = Math.max(1, Math.floor(limit.values / group.length));
  return perTag * BUCKET_MS[group[0].series.rules.resolution];
}

/**
 * The latest part of what a group wants that the limit allows, and at least a bucket. Who wants nothing of it is left
 * out: a reply has the whole range for every tag, so a group that lies far apart would be larger than was meant.
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

/** As much of a range as the limit allows, and at least a bucket. */
function cut(fromMs: number, toMs: number, group: Group, limit: Limit): number {
  const { resolution, timeZone } = group[0].series.rules;
  const least = bucketEnd(fromMs, resolution, timeZone);
  return Math.min(toMs, Math.max(least, fromMs + lengthOf(group, limit)));
}

function askFor(kind: Ask["kind"], group: Group, range: Range): Ask {
  const ranges = new Map<string, Range>();
  const series: Series[] = [];
  for (const wanted of group) {
    // A total is of one whole period, a series takes its part of the range.
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
  return { kind, series, range, ranges, values: kind === "total" ? series.length : buckets * series.length };
}
