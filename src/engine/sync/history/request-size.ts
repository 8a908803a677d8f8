import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type StoredCut, type StoredWindow, syncSet } from "../snapshot.ts";
import { absentEnds, type Range, subtract, totalLength } from "./buckets.ts";
import { type Candidate, chooseRequest, type HistoryRequest, isOneRange, type Limit } from "./choose-request.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { Series } from "./series.ts";

/**
 * How many values one request asks for, and what to do with responses that may have been cut at a limit of the service.
 *
 * The service states no limit, so the size is learned: doubled after two full responses until the first failure, then
 * halved between the best and the worst size until they are 3 % apart, then kept, with a try of 25 % more after every 200
 * full responses. A failure at a size that has worked is probably an outage of the history store, so the conclusion
 * before it is withdrawn. From the second such failure in a row on the size is halved each time; it grows again later.
 */
export interface WindowLimits {
  /** Values that fit into the largest reply that is read. */
  readonly most: number;
}

/** JSON of one value with its time and separators, bytes. */
const BYTES_PER_VALUE = 64;

/** Returns the number of values that fit into a reply of so many bytes. */
export function valuesThatFit(bytes: number): number {
  return Math.max(LEAST, Math.floor(bytes / BYTES_PER_VALUE));
}

/** First size: a day of 5-minute values of 20 tags. */
const FIRST = 5_760;
/** Smallest size: an hour of 5-minute values of 20 tags. */
const LEAST = 240;
const FULL_ANSWERS_TO_GROW = 2;
const FULL_ANSWERS_TO_TRY = 200;
const CLOSE_ENOUGH = 1.03;
const TRY = 1.25;
/** Share of the planned size from which on a response counts as full. */
const FULL = 0.8;

export const INITIAL_WINDOW: StoredWindow = { good: LEAST, bad: null, doubt: null, streak: 0 };

/** Failures in a row at a size that has worked, after which the size shrinks. */
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
    // A small response proves that the store is back, not that it bears the full size.
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
 * Point counts of a response that may be a limit of the service. The interface is silent on limits without an error.
 *
 * A service that once returned 2,016 points of a series does not cut at 1,000. So a response is unverified only if it has
 * as many points as any before it, of one series or in all; new sensors and gateways that were away have fewer points than
 * their neighbours. A month of 200 tags of which half end early needs 134 instead of 114 requests.
 */
export interface Counts {
  /** Points of the longest series. */
  readonly series: number;
  /** Points of the complete response. */
  readonly answer: number;
}

/** Counts that are no limit of the service. */
export interface SafeCounts {
  /** The largest counts that are known to be no limit. */
  readonly none: Counts;
  /** Counts of the last response that turned out to be complete. */
  readonly once: Counts;
}

/** Points that any service returns at once: the records of one page of a list. */
const GIVEN = 99;
const NO_COUNTS: Counts = { series: 0, answer: 0 };
export const INITIAL_COUNTS: SafeCounts = { none: { series: GIVEN, answer: GIVEN }, once: NO_COUNTS };

/** Lifetime of a proven limit, in milliseconds: late points look like one, and services change. */
const BELIEVED_MS = 30 * 86_400_000;

const counts = (of: (name: keyof Counts) => number): Counts => ({
  series: of("series"),
  answer: of("answer"),
});

/** A response proves that one point fewer is no limit. */
export function withResponse({ none, once }: SafeCounts, response: Counts): SafeCounts {
  return { none: counts((name) => Math.max(none[name], response[name] - 1)), once };
}

/** Returns the counts of a response that may be limits, 0 for one that is none. */
export function unverified({ none }: SafeCounts, response: Counts): Counts {
  return counts((name) => (response[name] > none[name] ? response[name] : 0));
}

/**
 * A response with these counts was complete. One end may fall on a limit by chance, two do not; and people do not choose a
 * limit like 4,108.
 */
export function withEnd({ none, once }: SafeCounts, response: Counts): SafeCounts {
  const isNone = (count: number, before: number) => count === before || !isChosen(count);
  return {
    none: counts((name) => (isNone(response[name], once[name]) ? Math.max(none[name], response[name]) : none[name])),
    once: counts((name) => response[name] || once[name]),
  };
}

/** Returns true for numbers that people choose as limits: 500, 1,440, 4,096. */
function isChosen(count: number): boolean {
  return count % 10 === 0 || Number.isInteger(Math.log2(count));
}

/** A later request returned what a response with these counts left out, so larger counts no longer prove anything. */
export function withLimit({ none }: SafeCounts, limit: Counts): SafeCounts {
  const below = (name: keyof Counts) => (limit[name] === 0 ? none[name] : Math.min(none[name], limit[name] - 1));
  return { none: counts(below), once: NO_COUNTS };
}

/**
 * Returns the proven limit of the service. For 20 series that end at 250 points each, it is 250 a series or 5,000 in all:
 * the count that comes again with another number of tags decides.
 */
export function provenLimit(before: StoredCut | null, { series, answer }: Counts, at: string): StoredCut {
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
 * Returns the buckets that a request may ask for of each tag. A reply may also have the buckets before and after the
 * range, and stays one below the limit so that a full reply is not in question.
 */
export function bucketsEach(cut: StoredCut | null, tags: number, nowMs: number): number {
  if (cut === null || Date.parse(cut.at) + BELIEVED_MS < nowMs) return Number.POSITIVE_INFINITY;
  const series = cut.series ?? Number.POSITIVE_INFINITY;
  const answer = (cut.answer ?? Number.POSITIVE_INFINITY) / tags;
  const each = cut.either ? Math.max(series, answer) : Math.min(series, answer);
  return Math.max(1, Math.floor(each) - 3);
}

/** Returns the values that a request with 20 tags may ask for. */
export function valuesBelow(cut: StoredCut | null, nowMs: number): number {
  return TAGS_PER_REQUEST * bucketsEach(cut, TAGS_PER_REQUEST, nowMs);
}

/** Learned size of the requests to one source, stored so that it survives restarts. */
export interface LearnedWindow {
  load(): Promise<void>;
  values(): number;
  /** Learns from a response; returns the documents to commit with it. */
  answered(values: number): readonly DocumentChange[];
  failed(values: number): Promise<void>;
  cutAt(counts: Counts): Promise<void>;
  bucketsEach(tags: number): number;
}

export function createLearnedWindow(
  store: Store,
  source: string,
  limits: WindowLimits,
  clock: Pick<Clock, "now">,
): LearnedWindow {
  const set = syncSet("history-window", source);
  let window: StoredWindow = INITIAL_WINDOW;
  let cut: StoredCut | null = null;

  const learn = (next: StoredWindow): readonly DocumentChange[] => {
    const isChanged = next.good !== window.good || next.bad !== window.bad || next.failures !== window.failures;
    window = next;
    return isChanged ? [{ set, put: [["values", next]] }] : [];
  };

  return {
    async load() {
      window = (await store.document<StoredWindow>(set, "values")) ?? INITIAL_WINDOW;
      cut = (await store.document<StoredCut>(set, "cut")) ?? null;
    },
    values: () => Math.min(windowValues(window, limits), valuesBelow(cut, clock.now())),
    bucketsEach: (tags) => bucketsEach(cut, tags, clock.now()),
    async cutAt(counts) {
      cut = provenLimit(cut, counts, isoUtc(clock.now()));
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
 * Treats missing points at the ends of a response that may have been cut as a gap, and requests them again singly:
 *
 *      requested   |-------------- 2,016 --------------|
 *      response    |---- 1,000 ----|    unverified     |
 *      again                       |------ 1,016 ------|
 *
 * If there are points, the limit is learned and the gap is fetched in smaller pieces. If there are none, it is recorded as
 * answered without values. Unverified ends are only in memory: after a restart they are ordinary gaps.
 */
export interface ShortResponses {
  /** Returns the request with the verified part of each range. */
  believed(ask: HistoryRequest, logs: readonly TagLog[]): Promise<HistoryRequest>;
  /** Returns true if no end of a response can be cut. */
  isComplete(logs: readonly TagLog[]): boolean;
  /** Returns the next request for unverified ends; `past`: also of the past. */
  next(free: readonly Series[], limit: Limit, past: boolean): HistoryRequest | null;
  /** Returns true for a series with an unverified end; `live`: one of following, or only of the past. */
  has(series: Series, live?: boolean): boolean;
  forget(series: readonly Series[]): void;
}

interface UnverifiedEnd {
  readonly range: Range;
  /** Points of the series in the response. */
  readonly count: number;
  readonly isLive: boolean;
  /** Counts of the response that may be the limit; the same object for all ends of one response. */
  readonly counts: Counts;
  /** The repeated request returned too many points of other series to prove an end. */
  readonly isInconclusive: boolean;
}

/** Lifetime of the largest counts, in milliseconds: a service may introduce a limit. */
const COUNTED_ON_MS = 86_400_000;
/** Missing buckets at the end of following that the next fetch reads again anyway. */
const READ_AGAIN = 2;

export function createShortResponses(options: {
  readonly clock: Clock;
  readonly window: Pick<LearnedWindow, "cutAt">;
  readonly log: Pick<Log, "warn">;
}): ShortResponses {
  const { clock, window, log } = options;
  const unverifiedEnds = new Map<string, readonly UnverifiedEnd[]>();
  let known: SafeCounts = INITIAL_COUNTS;
  let knownSinceMs = clock.monotonic();

  const keep = (key: string, left: readonly UnverifiedEnd[]) => {
    if (left.length === 0) unverifiedEnds.delete(key);
    else unverifiedEnds.set(key, left);
  };

  /** Returns the counts of a response, which prove that smaller counts are no limit. */
  function counted(answer: readonly Points[]): Counts {
    if (clock.monotonic() - knownSinceMs > COUNTED_ON_MS) {
      known = INITIAL_COUNTS;
      knownSinceMs = clock.monotonic();
    }
    const lengths = answer.map(({ length }) => length);
    const counts = { series: Math.max(0, ...lengths), answer: lengths.reduce((sum, each) => sum + each, 0) };
    known = withResponse(known, counts);
    return counts;
  }

  /** Evaluates a repeated request. Returns true if it found points that the first response left out. */
  async function conclude(ask: HistoryRequest, byId: ReadonlyMap<string, Points>, counts: Counts): Promise<boolean> {
    const proofs = new Map<Counts, UnverifiedEnd[]>();
    const isSure = isOneRange(ask) || isNone(unverified(known, counts));
    const ended: Counts[] = [];
    const isOpenStill = ({ counts: own }: UnverifiedEnd) => !proofs.has(own);
    for (const { key, located } of ask.series) {
      const own = ask.ranges.get(key);
      const points = byId.get(located.tag.id);
      const [end, ...others] = unverifiedEnds.get(key) ?? [];
      if (own === undefined || points === undefined || end === undefined) continue;
      if (points.ascending().between(own.fromMs, own.toMs).length > 0)
        proofs.set(end.counts, [...(proofs.get(end.counts) ?? []), end]);
      else if (!isSure) keep(key, [{ ...end, isInconclusive: true }, ...others]);
      else {
        const left = subtract(end.range, [own]).map((range) => ({ ...end, range }));
        keep(key, [...left, ...others]);
        ended.push(end.counts);
      }
    }
    for (const before of new Set(ended)) {
      const isOpen = [...unverifiedEnds.values()].flat().some((end) => end.counts === before);
      if (!proofs.has(before) && !isOpen) known = withEnd(known, before);
    }
    if (proofs.size > 0) for (const [key, own] of unverifiedEnds) keep(key, own.filter(isOpenStill));
    for (const [before, proved] of proofs) {
      // If all cut series have the same count, the limit is for each series, otherwise for the complete response.
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
        // An unreadable log is refused, and requested again for that reason.
        else for (const { key, located } of ask.series) if (located.tag.id === log.id) unverifiedEnds.delete(key);
      }
      const counts = counted([...byId.values()]);
      const ranges = new Map(ask.ranges);
      if (ask.isRepeat === true && !(await conclude(ask, byId, counts))) {
        for (const series of ask.series)
          if (unverifiedEnds.get(series.key)?.[0]?.isInconclusive === true) ranges.delete(series.key);
        return { ...ask, ranges };
      }
      const suspicious = unverified(known, counts);
      if (isNone(suspicious)) return ask;
      const isLive = ask.kind === "following";
      for (const series of ask.series) {
        const own = ranges.get(series.key);
        const points = byId.get(series.located.tag.id);
        if (own === undefined || points === undefined) continue;
        if (suspicious.answer === 0 && points.length < counts.series) continue;
        const leastBuckets = isLive ? READ_AGAIN + 0.9 : 0.9;
        const ends = absentEnds(points.ascending(), own, series.rules, leastBuckets);
        if (ends.length === 0) continue;
        const [left] = subtract(own, ends);
        if (left === undefined) ranges.delete(series.key);
        else ranges.set(series.key, left);
        const found = { count: points.length, isLive, counts: suspicious, isInconclusive: false };
        keep(series.key, [...(unverifiedEnds.get(series.key) ?? []), ...ends.map((range) => ({ ...found, range }))]);
      }
      return { ...ask, ranges };
    },

    isComplete(logs) {
      const counts = counted(logs.map((log) => answeredPoints(log) ?? new Points()));
      return isNone(unverified(known, counts));
    },

    next(free, limit, past) {
      const wanted = free.flatMap((series): readonly (Candidate & { readonly end: UnverifiedEnd })[] => {
        const end = unverifiedEnds.get(series.key)?.[0];
        return end === undefined || !(past || end.isLive) ? [] : [{ series, range: end.range, isSingle: false, end }];
      });
      const [first] = wanted;
      if (first === undefined) return null;
      const { resolution, timeZone } = first.series.rules;
      const group: [Candidate, ...Candidate[]] = [first];
      let hull = first.range;
      for (const each of first.end.isInconclusive ? [] : wanted.slice(1)) {
        const { rules } = each.series;
        if (rules.resolution !== resolution || rules.timeZone !== timeZone || each.end.isInconclusive) continue;
        const next = {
          fromMs: Math.min(hull.fromMs, each.range.fromMs),
          toMs: Math.max(hull.toMs, each.range.toMs),
        };
        // Too many points of verified ranges in a response would make its end unverified again.
        const beside = [...group, each].map(
          (member) => (totalLength([next]) - totalLength([member.range])) / BUCKET_MS[resolution] + 2,
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
      return { ...chooseRequest("backfill", group, { fromMs: hull.fromMs, toMs }), isRepeat: true };
    },

    has: ({ key }, live) =>
      unverifiedEnds.get(key)?.some(({ isLive }) => live === undefined || isLive === live) ?? false,
    forget(series) {
      for (const { key } of series) unverifiedEnds.delete(key);
    },
  };
}

function isNone({ series, answer }: Counts): boolean {
  return series === 0 && answer === 0;
}
