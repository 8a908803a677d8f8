import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type StoredCut, type StoredWindow, syncSet } from "../snapshot.ts";
import { bucketEnd, type Range, subtract } from "./buckets.ts";
import { chooseRequest, type HistoryRequest, type Limit, type Wanted } from "./choose-request.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { Series } from "./series.ts";

/**
 * How many values one history request asks for: the service states no limit, so it is learned. Pure.
 *
 * Doubled after two full answers until the first failure, then halved between the best and the worst until they
 * are 3 % apart, then held, with a try of 25 % more after every 200 full answers. A failure at a size that has
 * worked before is most likely not about the size: the history store is down, and what was concluded just before is
 * taken back. From the second in a row on less is asked for, half as much each time, because the service may bear
 * less than it did, or the buckets were emptier than expected when the size was learned; it grows again from what is
 * answered.
 */
export interface WindowLimits {
  /** Never ask for more, whatever the service bears: the values that fit into the largest reply that is read. */
  readonly most: number;
}

/** JSON of one value, its time and what separates it, bytes; a reply that is larger after all is learned from. */
const BYTES_PER_VALUE = 64;

/** The most values that a reply of so many bytes has room for. */
export function valuesThatFit(bytes: number): number {
  return Math.max(LEAST, Math.floor(bytes / BYTES_PER_VALUE));
}

/** First size: a day of 5-minute values of 20 tags. */
const FIRST = 5_760;
/** Taken for granted: an hour of 5-minute values of 20 tags. */
const LEAST = 240;
const FULL_ANSWERS_TO_GROW = 2;
const FULL_ANSWERS_TO_TRY = 200;
const CLOSE_ENOUGH = 1.03;
const TRY = 1.25;
/** A request this close to the size that was meant teaches something about it. */
const FULL = 0.8;

export const INITIAL_WINDOW: StoredWindow = { good: LEAST, bad: null, doubt: null, streak: 0 };

/** Failures in a row, at a size that has worked, before less is asked for. */
const FAILURES_TO_RETREAT = 2;

export function windowValues(window: StoredWindow, { most }: WindowLimits): number {
  const { good, bad, streak } = window;
  if (isRetreating(window)) {
    const halvings = (window.failures ?? 0) - FAILURES_TO_RETREAT + 1;
    return Math.min(most, Math.max(LEAST, Math.floor(good / 2 ** halvings)));
  }
  if (bad === null) {
    const next = good < FIRST ? FIRST : streak >= FULL_ANSWERS_TO_GROW ? good * 2 : good;
    return Math.min(most, next);
  }
  if (bad / good > CLOSE_ENOUGH) return Math.min(most, Math.floor(Math.sqrt(good * bad)));
  return Math.min(most, streak >= FULL_ANSWERS_TO_TRY ? Math.floor(good * TRY) : good);
}

export function afterResponse(window: StoredWindow, values: number, limits: WindowLimits): StoredWindow {
  const settled = window.doubt === null ? window : { ...window, doubt: null };
  const isFull = values >= windowValues(window, limits) * FULL;
  if (isRetreating(window)) {
    // A small answer says that the store is there again, not what it bears.
    return isFull ? { good: Math.min(window.good, values), bad: null, doubt: null, streak: 1 } : settled;
  }
  if (values > window.good) {
    const bad = window.bad !== null && values >= window.bad ? null : window.bad;
    return { good: values, bad, doubt: null, streak: 1 };
  }
  if (!isFull) return settled;
  const { failures: _over, ...rest } = settled;
  return { ...rest, streak: window.streak + 1 };
}

export function afterFailure(window: StoredWindow, values: number): StoredWindow {
  if (values > window.good) {
    const bad = Math.min(values, window.bad ?? values);
    return { ...window, bad, doubt: window.doubt ?? { before: window.bad }, streak: 0 };
  }
  const taken = window.doubt === null ? window : { ...window, bad: window.doubt.before, doubt: null };
  return { ...taken, failures: (window.failures ?? 0) + 1 };
}

function isRetreating(window: StoredWindow): boolean {
  return (window.failures ?? 0) >= FAILURES_TO_RETREAT;
}

/**
 * Whether an answer may end where it does because the service gives no more points at once, without an error. The
 * interface is silent on such a limit. Pure.
 *
 * Whoever gave 2,016 points of a series at once does not leave off at 1,000 or at 2,000: an answer is in doubt only where
 * it has more points, of one series or in all, than any before it, or as many. A sensor that was installed last week, a
 * logger that was off and a gateway that was away have fewer points than the series that went on, and are believed at
 * once. So an honest service is asked again only while the largest answer still grows, however long the backfill is: of
 * 200 tags, half of which have such ends, 134 requests for a month where it was 114 without any doubt, of 60 tags 167 for
 * 300 days where it was 143 (`test/sync/history-short.test.ts`). That is a minute of the quota.
 */
export interface Counts {
  /** Points of the longest series. */
  readonly series: number;
  /** Points of the whole answer. */
  readonly answer: number;
}

/** Counts that are no limit. */
export interface Known {
  /** The largest that are known to be none. */
  readonly none: Counts;
  /** Those of the last answer that was found to have ended by itself. */
  readonly once: Counts;
}

/** Points that any service gives at once: as many records as a page of a list has. */
const GIVEN = 99;

export const NOTHING_KNOWN: Known = {
  none: { series: GIVEN, answer: GIVEN },
  once: { series: 0, answer: 0 },
};

/** So long a proved limit is believed, in milliseconds: what was logged late looks like one, and services change. */
const BELIEVED_MS = 30 * 86_400_000;

/** Whoever gave so many points would have given one fewer. */
export function withResponse({ none, once }: Known, { series, answer }: Counts): Known {
  return {
    none: { series: Math.max(none.series, series - 1), answer: Math.max(none.answer, answer - 1) },
    once,
  };
}

/** The counts of an answer that may be limits, 0 for one that is none. */
export function unverified({ none }: Known, { series, answer }: Counts): Counts {
  return { series: series > none.series ? series : 0, answer: answer > none.answer ? answer : 0 };
}

/**
 * Nothing more was there where an answer with these counts left off. An end may fall on a limit by chance, but not twice;
 * and a count that nobody would choose, 4,108 say, is believed at once.
 */
export function withEnd({ none, once }: Known, { series, answer }: Counts): Known {
  const isNone = (count: number, before: number) => count === before || !isChosen(count);
  return {
    none: {
      series: isNone(series, once.series) ? Math.max(none.series, series) : none.series,
      answer: isNone(answer, once.answer) ? Math.max(none.answer, answer) : none.answer,
    },
    once: { series: series || once.series, answer: answer || once.answer },
  };
}

/** A number that people choose for a limit: 500, 1,440, 4,096. */
function isChosen(count: number): boolean {
  return count % 10 === 0 || Number.isInteger(Math.log2(count));
}

/** It was given later what an answer with these counts left out; what gave more before does not count any more. */
export function withLimit({ none }: Known, { series, answer }: Counts): Known {
  return {
    none: {
      series: series === 0 ? none.series : Math.min(none.series, series - 1),
      answer: answer === 0 ? none.answer : Math.min(none.answer, answer - 1),
    },
    once: NOTHING_KNOWN.once,
  };
}

/**
 * What is known of the limit, now that one of these counts is proved to be it. Of 20 series that end at 250 points each it
 * is not known whether it is 250 for each or 5,000 for all: the one that comes again with another number of tags is it.
 */
export function provedCut(before: StoredCut | null, { series, answer }: Counts, at: string): StoredCut {
  const isBoth = series > 0 && answer > 0;
  const isSeriesAgain = isBoth && before?.series === series && before.answer !== answer;
  const isAnswerAgain = isBoth && before?.answer === answer && before.series !== series;
  if (isBoth && !isSeriesAgain && !isAnswerAgain) return { series, answer, either: true, at };
  const isSeries = series > 0 && !isAnswerAgain;
  const firm = before === null || before.either ? { series: null, answer: null } : before;
  return isSeries
    ? { series, answer: firm.answer, either: false, at }
    : { series: firm.series, answer, either: false, at };
}

/**
 * Buckets that each of so many tags may be asked for at once. A reply may have the bucket before the range and the one at
 * its end too, and stays one below the limit, so that a full one is no cause for doubt.
 */
export function bucketsEach(cut: StoredCut | null, tags: number, nowMs: number): number {
  if (cut === null || Date.parse(cut.at) + BELIEVED_MS < nowMs) return Number.POSITIVE_INFINITY;
  const series = cut.series === null ? Number.POSITIVE_INFINITY : cut.series;
  const answer = cut.answer === null ? Number.POSITIVE_INFINITY : cut.answer / tags;
  const each = cut.either ? Math.max(series, answer) : Math.min(series, answer);
  return Math.max(1, Math.floor(each) - 3);
}

/** Values that one request of as many tags as it takes may ask for. */
export function valuesBelow(cut: StoredCut | null, nowMs: number): number {
  return TAGS_PER_REQUEST * bucketsEach(cut, TAGS_PER_REQUEST, nowMs);
}

/** How much one request of a source may ask for; learned while it is used, remembered over restarts. */
export interface LearnedWindow {
  load(): Promise<void>;
  /** Values that the next request may ask for. */
  values(): number;
  /** A request for so many values was answered; returns what is to be remembered of it, with the answer. */
  answered(values: number): readonly DocumentChange[];
  failed(values: number): Promise<void>;
  /** An answer left off at one of these counts, without an error. */
  cutAt(counts: Counts): Promise<void>;
  /** Buckets that each of so many tags may be asked for; infinite where no answer left off. */
  bucketsEach(tags: number): number;
}

export function createLearnedWindow(
  store: Store,
  source: string,
  limits: WindowLimits,
  clock: Pick<Clock, "now">,
): LearnedWindow {
  const set = syncSet("history-window", source);
  const key = "values";
  let window: StoredWindow = INITIAL_WINDOW;
  let cut: StoredCut | null = null;

  const learn = (next: StoredWindow): readonly DocumentChange[] => {
    const isNews = next.good !== window.good || next.bad !== window.bad || next.failures !== window.failures;
    window = next;
    return isNews ? [{ set, put: [[key, next]] }] : [];
  };

  return {
    async load() {
      window = (await store.document<StoredWindow>(set, key)) ?? INITIAL_WINDOW;
      cut = (await store.document<StoredCut>(set, "cut")) ?? null;
    },
    values: () => Math.min(windowValues(window, limits), valuesBelow(cut, clock.now())),
    bucketsEach: (tags) => bucketsEach(cut, tags, clock.now()),
    async cutAt(counts) {
      cut = provedCut(cut, counts, isoUtc(clock.now()));
      await store.commit({ documents: [{ set, put: [["cut", cut]] }] });
    },
    answered: (values) => learn(afterResponse(window, values, limits)),
    async failed(values) {
      const documents = learn(afterFailure(window, values));
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}

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
    for (const { key, located } of ask.series) {
      const own = ask.ranges.get(key);
      const points = byId.get(located.tag.id);
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
        else for (const { key, located } of ask.series) if (located.tag.id === log.id) doubts.delete(key);
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
        const points = byId.get(series.located.tag.id);
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
