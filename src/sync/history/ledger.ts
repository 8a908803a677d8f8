import type { Resolution } from "../../building.ts";
import { isoUtc } from "../../clock.ts";
import type { HeldHistory } from "../snapshot.ts";
import { bucketBefore, bucketEnd, bucketStart } from "./buckets.ts";
import { merged, type Range, subtract } from "./ranges.ts";
import type { Point, ToldValues } from "./told.ts";

/** How one series is followed; from the configuration. */
export interface SeriesRules {
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly everyMs: number;
  readonly backfillMs: number;
  readonly graceMs: number;
  readonly lookBackMs: number;
}

/**
 * The ledger of one series: which range is to be fetched next, and what a fetched range turns into. Pure.
 * The picture is at `HeldHistory`.
 */

const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;

/** Thousands of ledgers share few moments and are looked through several times a second. */
const parsed = new Map<string, number>();
const PARSED_MAX = 10_000;

export function ms(time: string): number {
  const known = parsed.get(time);
  if (known !== undefined) return known;
  if (parsed.size >= PARSED_MAX) parsed.clear();
  const value = Date.parse(time);
  parsed.set(time, value);
  return value;
}

export function firstSight(rules: SeriesRules, nowMs: number): HeldHistory {
  const { resolution, timeZone } = rules;
  const since = isoUtc(bucketStart(nowMs - rules.graceMs, resolution, timeZone));
  const wished = isoUtc(bucketStart(nowMs - rules.backfillMs, resolution, timeZone));
  return {
    resolution,
    timeZone,
    since,
    watermark: since,
    reached: since,
    target: wished < since ? wished : since,
    wished,
    rereadFrom: null,
    dailyAt: isoUtc(nowMs),
    weeklyAt: isoUtc(nowMs),
    rememberedFrom: isoUtc(ms(since) - rules.lookBackMs),
    state: "unproven",
    askAgainAt: null,
    refusals: 0,
  };
}

/** Adapts a ledger to rules that have changed. Another zone cuts other buckets: they are followed from now on. */
export function adapted(held: HeldHistory, rules: SeriesRules, nowMs: number): HeldHistory {
  if (held.timeZone !== rules.timeZone) return { ...firstSight(rules, nowMs), state: held.state };
  const wished = isoUtc(bucketStart(ms(held.since) - rules.backfillMs, rules.resolution, rules.timeZone));
  return ms(wished) < ms(held.wished) - DAY_MS ? { ...held, wished, target: wished } : held;
}

/** Buckets that begin before this have closed, and had their time of grace. */
export function closedUntil(rules: SeriesRules, nowMs: number): number {
  return bucketStart(nowMs - rules.graceMs, rules.resolution, rules.timeZone);
}

/** What live following fetches next: new closed buckets and, again, the latest ones; null while nothing is due. */
export function headRange(
  held: HeldHistory,
  rules: SeriesRules,
  nowMs: number,
  toMs = closedUntil(rules, nowMs),
): Range | null {
  if (held.rereadFrom === null && toMs - ms(held.watermark) < Math.max(1, rules.everyMs)) return null;
  const fromMs = held.rereadFrom === null ? lookBackStart(held, rules, nowMs) : ms(held.rereadFrom);
  return toMs > fromMs ? { fromMs, toMs } : null;
}

/**
 * Two buckets each time; the last day (from the last such reading on) once a day, the whole look-back once a week.
 * It reaches back before the last such reading by the full time that data may be late, so that nothing falls between.
 */
function lookBackStart(held: HeldHistory, rules: SeriesRules, nowMs: number): number {
  const { resolution, timeZone, lookBackMs } = rules;
  const twoBack = bucketBefore(bucketBefore(ms(held.watermark), resolution, timeZone), resolution, timeZone);
  const starts = [twoBack];
  if (nowMs - ms(held.dailyAt) >= DAY_MS) starts.push(ms(held.dailyAt) - Math.min(lookBackMs, DAY_MS));
  if (nowMs - ms(held.weeklyAt) >= WEEK_MS) starts.push(ms(held.weeklyAt) - lookBackMs);
  const floor = Math.max(ms(held.reached), ms(held.rememberedFrom));
  return Math.max(
    bucketStart(Math.min(...starts), resolution, timeZone),
    Math.min(floor, ms(held.watermark)),
  );
}

export interface Settled {
  readonly held: HeldHistory;
  /** Points that were never told. */
  readonly fresh: readonly Point[];
  /** Points that were told with another value. */
  readonly revised: readonly Point[];
}

/** A fetched range of live following: what is new in it, what has changed, and how far the ledger comes. */
export function settleHead(
  held: HeldHistory,
  rules: SeriesRules,
  points: readonly Point[],
  range: Range,
  told: ToldValues,
  nowMs: number,
): Settled {
  const { resolution, timeZone } = rules;
  const fresh: Point[] = [];
  const revised: Point[] = [];
  let toMs = range.toMs;
  for (const point of inRange(points, range)) {
    if (bucketEnd(point.atMs, resolution, timeZone) + rules.graceMs > nowMs) {
      // Still open by its own stamp: the service cuts its buckets elsewhere than we thought.
      toMs = Math.min(toMs, point.atMs);
    } else if (!told.has(point.atMs)) {
      fresh.push(point);
    } else if (told.get(point.atMs) !== point.value) {
      revised.push(point);
    }
  }
  const watermark = Math.max(ms(held.watermark), toMs);
  const isDone = range.toMs >= ms(held.watermark);
  const isBegun = held.rereadFrom === null;
  const rereads = (at: string, afterMs: number) =>
    isBegun && nowMs - ms(at) >= afterMs ? isoUtc(nowMs) : at;
  const next: HeldHistory = {
    ...held,
    watermark: isoUtc(watermark),
    rereadFrom: isDone ? null : isoUtc(range.toMs),
    dailyAt: rereads(held.dailyAt, DAY_MS),
    weeklyAt: rereads(held.weeklyAt, WEEK_MS),
    state: "following",
    askAgainAt: null,
    refusals: 0,
  };
  return { held: { ...next, rememberedFrom: isoUtc(rememberFrom(next, rules)) }, fresh, revised };
}

/** Where a request of the backfill ends: at its target, or at what an order has fetched before it. */
export function tailFloor(held: HeldHistory): number {
  return Math.max(ms(held.target), ...islandsOf(held).map(({ toMs }) => toMs));
}

function islandsOf(held: HeldHistory): readonly Range[] {
  return (held.islands ?? []).map(({ from, to }) => ({ fromMs: ms(from), toMs: ms(to) }));
}

/** What is fetched and told, or known to be empty. */
export function toldRanges(held: HeldHistory): readonly Range[] {
  return merged([
    { fromMs: ms(held.reached), toMs: ms(held.watermark) },
    { fromMs: ms(held.wished), toMs: ms(held.target) },
    ...islandsOf(held),
  ]);
}

/** What of a range is neither told nor known to be empty, ascending. */
export function unfetched(held: HeldHistory, range: Range): readonly Range[] {
  return subtract(range, toldRanges(held));
}

/** A range that was fetched apart from the rest; what touches the rest becomes part of it. */
function withIslands(held: HeldHistory, ranges: readonly Range[]): HeldHistory {
  const { islands: _before, ...rest } = held;
  let reachedMs = ms(held.reached);
  let watermarkMs = ms(held.watermark);
  const apart: Range[] = [];
  for (const island of merged(ranges).toReversed()) {
    if (island.toMs < reachedMs) {
      apart.unshift(island);
    } else {
      reachedMs = Math.min(reachedMs, island.fromMs);
      watermarkMs = Math.max(watermarkMs, island.toMs);
    }
  }
  const joined = { ...rest, reached: isoUtc(reachedMs), watermark: isoUtc(watermarkMs) };
  if (apart.length === 0) return joined;
  const islands = apart.map(({ fromMs, toMs }) => ({ from: isoUtc(fromMs), to: isoUtc(toMs) }));
  return { ...joined, islands };
}

/** A fetched range of an order: new as far as it was not told by another way meanwhile. */
export function settleOrder(held: HeldHistory, points: readonly Point[], range: Range): Settled {
  const fresh = unfetched(held, range).flatMap((part) => inRange(points, part));
  return { held: withIslands(held, [...islandsOf(held), range]), fresh, revised: [] };
}

/** A fetched range of the backfill: all of it is new. */
export function settleTail(held: HeldHistory, points: readonly Point[], range: Range): Settled {
  const own = {
    fromMs: Math.max(range.fromMs, tailFloor(held)),
    toMs: Math.min(range.toMs, ms(held.reached)),
  };
  const reached = { ...held, reached: isoUtc(own.fromMs) };
  return { held: withIslands(reached, islandsOf(held)), fresh: inRange(points, own), revised: [] };
}

/** From where on told points may be met again, and have to be remembered. It never goes back. */
export function rememberFrom(held: HeldHistory, rules: SeriesRules): number {
  const { resolution, timeZone } = rules;
  let buckets = ms(held.watermark);
  for (let i = 0; i < 3; i++) buckets = bucketBefore(buckets, resolution, timeZone);
  const deep = Math.min(ms(held.weeklyAt), ms(held.dailyAt)) - rules.lookBackMs;
  const underWay = held.rereadFrom === null ? Number.POSITIVE_INFINITY : ms(held.rereadFrom);
  return Math.max(ms(held.rememberedFrom), Math.min(buckets, deep, underWay));
}

/** Ascending, each stamp once: of two values for one stamp the last counts. */
function inRange(points: readonly Point[], { fromMs, toMs }: Range): readonly Point[] {
  const byTime = new Map<number, Point>();
  for (const point of points) {
    if (point.atMs >= fromMs && point.atMs < toMs) byTime.set(point.atMs, point);
  }
  return [...byTime.values()].sort((a, b) => a.atMs - b.atMs);
}

/** How long a tag without a log is left alone: a day, then twice as long each time, up to 32 days. */
export function withoutLog(held: HeldHistory, nowMs: number): HeldHistory {
  const waitMs = DAY_MS * 2 ** Math.min(5, held.refusals);
  return { ...held, state: "no-log", askAgainAt: isoUtc(nowMs + waitMs), refusals: held.refusals + 1 };
}
