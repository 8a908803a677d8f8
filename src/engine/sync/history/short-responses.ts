import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { bucketEnd } from "./buckets.ts";
import { chooseRequest, type HistoryRequest, type Limit, type Wanted } from "./choose-request.ts";
import {
  type Counts,
  type Known,
  NOTHING_KNOWN,
  unverified,
  withEnd,
  withLimit,
  withResponse,
} from "./cuts.ts";
import type { LearnedWindow } from "./learned-window.ts";
import type { Series } from "./ledgers.ts";
import { type Range, subtract } from "./ranges.ts";
import { answeredPoints } from "./unreadable.ts";

/**
 * Holds back what an answer leaves out at its ends while it may have been cut there (src/engine/sync/history/cuts.ts): it is
 * no answer without a value then but a hole, which is asked for by itself. If there are points, the limit is learned and
 * the hole is fetched as every other, in smaller pieces; if there are none, it is booked as it always was.
 *
 *      asked for   |-------------- 2,016 --------------|
 *      answered    |---- 1,000 ----|     in doubt      |
 *      asked again                 |------ 1,016 ------|
 *
 * Doubts are in memory: after a restart a hole is a hole.
 */
export interface ShortResponses {
  /** The same request with what of each series' part the answer says something of. */
  believed(ask: HistoryRequest, logs: readonly TagLog[]): Promise<HistoryRequest>;
  /** Whether nothing can be missing at the ends of an answer, whose counts are remembered as those of any other. */
  isWhole(logs: readonly TagLog[]): boolean;
  /** The next that is asked for again; `past`: also what no following waits for. */
  next(free: readonly Series[], limit: Limit, past: boolean): HistoryRequest | null;
  /** Whether something of a series is in doubt; `live`: what following waits for. */
  has(series: Series, live?: boolean): boolean;
  /** These were refused when they were asked again: that has rules of its own. */
  forget(series: readonly Series[]): void;
}

interface Doubt {
  readonly range: Range;
  /** Points that its answer had of the series. */
  readonly count: number;
  readonly isLive: boolean;
  readonly answer: ShortAnswer;
  /** It was asked again beside series that had much to say, which proved nothing. */
  readonly alone: boolean;
}

interface ShortAnswer {
  /** What may be the limit. */
  readonly counts: Counts;
}

/** What gave much is not counted on for longer, in milliseconds: a service may get a limit. */
const COUNTED_ON_MS = 86_400_000;
/** Buckets that are absent at an end of what is followed and are read again with the next fetch anyway. */
const READ_AGAIN = 2;

export function createShortResponses(options: {
  readonly clock: Clock;
  readonly window: Pick<LearnedWindow, "cutAt">;
  readonly log: Pick<Log, "warn">;
}): ShortResponses {
  const { clock, window, log } = options;
  const doubts = new Map<string, readonly Doubt[]>();
  let known: Known = NOTHING_KNOWN;
  let knownSinceMs = clock.monotonic();

  const all = () => [...doubts.values()].flat();
  const keep = (key: string, left: readonly Doubt[]) => {
    if (left.length === 0) doubts.delete(key);
    else doubts.set(key, left);
  };

  /** The counts of an answer, which say something of those that are smaller. */
  function counted(answer: readonly Points[]): Counts {
    if (clock.monotonic() - knownSinceMs > COUNTED_ON_MS) {
      known = NOTHING_KNOWN;
      knownSinceMs = clock.monotonic();
    }
    const lengths = answer.map(({ length }) => length);
    const counts = { series: Math.max(0, ...lengths), answer: lengths.reduce((sum, each) => sum + each, 0) };
    known = withResponse(known, counts);
    return counts;
  }

  /** What an answer to what was in doubt says; whether some of it was there after all. */
  async function conclude(
    ask: HistoryRequest,
    byId: ReadonlyMap<string, Points>,
    counts: Counts,
  ): Promise<boolean> {
    const proofs = new Map<ShortAnswer, Doubt[]>();
    const isSure = isOneRange(ask) || isNone(unverified(known, counts));
    const ended: ShortAnswer[] = [];
    const isOpenStill = ({ answer }: Doubt) => !proofs.has(answer);
    for (const { key, placed } of ask.series) {
      const own = ask.ranges.get(key);
      const points = byId.get(placed.tag.id);
      const [doubt, ...others] = doubts.get(key) ?? [];
      if (own === undefined || points === undefined || doubt === undefined) continue;
      if (points.ascending().between(own.fromMs, own.toMs).length > 0)
        proofs.set(doubt.answer, [...(proofs.get(doubt.answer) ?? []), doubt]);
      else if (!isSure) keep(key, [{ ...doubt, alone: true }, ...others]);
      else {
        const left = subtract(doubt.range, [own]).map((range) => ({ ...doubt, range }));
        keep(key, [...left, ...others]);
        ended.push(doubt.answer);
      }
    }
    for (const answer of new Set(ended)) {
      if (!proofs.has(answer) && all().every((doubt) => doubt.answer !== answer))
        known = withEnd(known, answer.counts);
    }
    if (proofs.size > 0) for (const [key, own] of doubts) keep(key, own.filter(isOpenStill));
    for (const [{ counts: before }, proved] of proofs) {
      // What leaves off at a count of its own does so with each series; series with fewer points were cut as a whole.
      const isEach = proved.every(({ count }) => count === before.series);
      const limit = isEach || before.answer === 0 ? before : { ...before, series: 0 };
      known = withLimit(known, limit);
      await window.cutAt(limit);
      log.warn({ ...limit }, "the service leaves points out of a long answer of history without an error");
    }
    return proofs.size > 0;
  }

  return {
    async believed(ask, logs) {
      if (ask.kind === "total") return ask;
      const byId = new Map<string, Points>();
      for (const log of logs) {
        const points = answeredPoints(log);
        if (points !== null) byId.set(log.id, points);
        // The refusal of a log that is unreadable has it requested again.
        else for (const { key, placed } of ask.series) if (placed.tag.id === log.id) doubts.delete(key);
      }
      const counts = counted([...byId.values()]);
      const ranges = new Map(ask.ranges);
      if (ask.again === true && !(await conclude(ask, byId, counts))) {
        for (const series of ask.series)
          if (doubts.get(series.key)?.[0]?.alone === true) ranges.delete(series.key);
        return { ...ask, ranges };
      }
      const answer: ShortAnswer = { counts: unverified(known, counts) };
      if (isNone(answer.counts)) return ask;
      const isLive = ask.kind === "following";
      for (const series of ask.series) {
        const own = ranges.get(series.key);
        const points = byId.get(series.placed.tag.id);
        if (own === undefined || points === undefined) continue;
        if (answer.counts.answer === 0 && points.length < counts.series) continue;
        const ends = absentEnds(points.ascending(), own, series, isLive);
        if (ends.length === 0) continue;
        const [left] = subtract(own, ends);
        if (left === undefined) ranges.delete(series.key);
        else ranges.set(series.key, left);
        const found = ends.map((range) => ({ range, count: points.length, isLive, answer, alone: false }));
        keep(series.key, [...(doubts.get(series.key) ?? []), ...found]);
      }
      return { ...ask, ranges };
    },

    isWhole(logs) {
      const counts = counted(logs.map((log) => answeredPoints(log) ?? new Points()));
      return isNone(unverified(known, counts));
    },

    next(free, limit, past) {
      const wanted = free.flatMap((series): readonly (Wanted & { readonly doubt: Doubt })[] => {
        const doubt = doubts.get(series.key)?.[0];
        return doubt === undefined || !(past || doubt.isLive)
          ? []
          : [{ series, range: doubt.range, alone: false, doubt }];
      });
      const [first] = wanted;
      if (first === undefined) return null;
      const { resolution, timeZone } = first.series.rules;
      const { range } = first;
      const group: [Wanted, ...Wanted[]] = [first];
      let hull = range;
      for (const each of first.doubt.alone ? [] : wanted.slice(1)) {
        const { rules } = each.series;
        if (rules.resolution !== resolution || rules.timeZone !== timeZone || each.doubt.alone) continue;
        const next = {
          fromMs: Math.min(hull.fromMs, each.range.fromMs),
          toMs: Math.max(hull.toMs, each.range.toMs),
        };
        // Points beside what is in doubt: an answer that can have too many of them proves no end.
        const beside = [...group, each].map(
          (member) => (span(next) - span(member.range)) / BUCKET_MS[resolution] + 2,
        );
        const isShort =
          Math.max(...beside) <= known.none.series &&
          beside.reduce((sum, count) => sum + count, 0) <= known.none.answer;
        if (group.length >= limit.size || !isShort) continue;
        group.push(each);
        hull = next;
      }
      const most = Math.max(1, Math.floor(limit.values / group.length)) * BUCKET_MS[resolution];
      const toMs = Math.min(hull.toMs, hull.fromMs + most);
      return { ...chooseRequest("backfill", group, { fromMs: hull.fromMs, toMs }), again: true };
    },

    has: ({ key }, live) =>
      doubts.get(key)?.some(({ isLive }) => live === undefined || isLive === live) ?? false,
    forget(series) {
      for (const { key } of series) doubts.delete(key);
    },
  };
}

function isNone({ series, answer }: Counts): boolean {
  return series === 0 && answer === 0;
}

function span({ fromMs, toMs }: Range): number {
  return toMs - fromMs;
}

function isSameRange(a: Range, b: Range): boolean {
  return a.fromMs === b.fromMs && a.toMs === b.toMs;
}

/** All were asked for the same: whatever points an answer has are then what was in doubt. */
function isOneRange({ range, ranges }: HistoryRequest): boolean {
  return [...ranges.values()].every((own) => isSameRange(own, range));
}

/** What of a range lies before the first and after the last point, as far as it is a bucket or more. */
function absentEnds(points: Points, range: Range, series: Series, isLive: boolean): readonly Range[] {
  const { resolution, timeZone } = series.rules;
  const leastMs = (isLive ? READ_AGAIN + 0.9 : 0.9) * BUCKET_MS[resolution];
  if (points.length === 0) return [range];
  const firstMs = points.timeMs(0);
  const lastMs = bucketEnd(points.timeMs(points.length - 1), resolution, timeZone);
  const ends = [
    { fromMs: range.fromMs, toMs: Math.min(range.toMs, firstMs) },
    { fromMs: Math.max(range.fromMs, lastMs), toMs: range.toMs },
  ];
  return ends.filter(({ fromMs, toMs }) => toMs - fromMs >= leastMs);
}
