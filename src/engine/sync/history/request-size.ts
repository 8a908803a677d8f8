import { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type StoredLimit, type StoredRequestSize, syncSet } from "../snapshot.ts";
import { bucketEnd, DAY_MS, subtractRanges, type TimeRange, totalLengthMs } from "./buckets.ts";
import {
  buildHistoryRequest,
  type Candidate,
  type HistoryRequest,
  hasSameBuckets,
  type RequestLimits,
} from "./choose-request.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { Series } from "./series.ts";

/**
 * Learns the values of one request: doubles after two full responses, halves between the best and the worst size, tries
 * 25 % more every 200. A failure at a size that has worked is probably an outage; the second in a row halves the size.
 */
const FULL_RESPONSES_TO_GROW = 2;
const FULL_RESPONSES_TO_TRY = 200;
const CONVERGED_RATIO = 1.03;
const TRIAL_GROWTH = 1.25;
const FULL_RESPONSE_SHARE = 0.8;
const FAILURES_TO_RETREAT = 2;
const START_VALUES = 5_760;
const VALUES_MIN = 240;
const BYTES_PER_VALUE = 64;

export const INITIAL_SIZE: StoredRequestSize = { good: VALUES_MIN, bad: null, doubt: null, streak: 0 };

export const valuesThatFitBytes = (bytes: number): number => Math.max(VALUES_MIN, Math.floor(bytes / BYTES_PER_VALUE));

interface SizeLimits {
  readonly valuesMax: number;
}

export function planValues(window: StoredRequestSize, { valuesMax }: SizeLimits): number {
  const { good, bad, streak, failures = 0 } = window;
  if (isRetreating(window))
    return Math.min(valuesMax, Math.max(VALUES_MIN, Math.floor(good / 2 ** (failures - FAILURES_TO_RETREAT + 1))));
  if (bad === null)
    return Math.min(valuesMax, good < START_VALUES ? START_VALUES : streak >= FULL_RESPONSES_TO_GROW ? good * 2 : good);
  if (bad / good > CONVERGED_RATIO) return Math.min(valuesMax, Math.floor(Math.sqrt(good * bad)));
  return Math.min(valuesMax, streak >= FULL_RESPONSES_TO_TRY ? Math.floor(good * TRIAL_GROWTH) : good);
}

export function sizeAfterReply(window: StoredRequestSize, values: number, limits: SizeLimits): StoredRequestSize {
  const isFull = values >= planValues(window, limits) * FULL_RESPONSE_SHARE;
  // While retreating, a small response proves that the store is back, not that it bears the full size.
  if (isRetreating(window) && isFull) return { good: Math.min(window.good, values), bad: null, doubt: null, streak: 1 };
  if (!isRetreating(window) && values > window.good) {
    const bad = window.bad !== null && values >= window.bad ? null : window.bad;
    return { good: values, bad, doubt: null, streak: 1 };
  }
  if (!isFull) return { ...window, doubt: null };
  const { failures: _over, ...rest } = window;
  return { ...rest, doubt: null, streak: window.streak + 1 };
}

export function sizeAfterFailure(window: StoredRequestSize, values: number): StoredRequestSize {
  const { good, bad, doubt, failures = 0 } = window;
  if (values > good)
    return { ...window, bad: Math.min(values, bad ?? values), doubt: doubt ?? { before: bad }, streak: 0 };
  return { ...window, bad: doubt === null ? bad : doubt.before, doubt: null, failures: failures + 1 };
}

const isRetreating = ({ failures = 0 }: StoredRequestSize): boolean => failures >= FAILURES_TO_RETREAT;

/** Points of a response. A response with more points than any before may have been cut at an unstated limit. */
interface PointCounts {
  readonly series: number;
  readonly answer: number;
}

interface SafeCounts {
  readonly safe: PointCounts;
  readonly completeOnce: PointCounts;
}

const POINTS_ALWAYS_SAFE = 99;
const NO_POINT_COUNTS: PointCounts = { series: 0, answer: 0 };
export const INITIAL_SAFE_COUNTS: SafeCounts = {
  safe: { series: POINTS_ALWAYS_SAFE, answer: POINTS_ALWAYS_SAFE },
  completeOnce: NO_POINT_COUNTS,
};

function mapCounts(countOf: (name: keyof PointCounts) => number): PointCounts {
  return { series: countOf("series"), answer: countOf("answer") };
}

const areCountsZero = ({ series, answer }: PointCounts): boolean => series === 0 && answer === 0;

function countsAfterResponse({ safe, completeOnce }: SafeCounts, response: PointCounts): SafeCounts {
  return { safe: mapCounts((name) => Math.max(safe[name], response[name] - 1)), completeOnce: completeOnce };
}

/** Returns counts that may be limits of the service; 0 instead of a safe count. */
function unverifiedCounts({ safe }: SafeCounts, response: PointCounts): PointCounts {
  return mapCounts((name) => (response[name] > safe[name] ? response[name] : 0));
}

/** People choose limits like 500 or 4,096, so a round count needs two complete responses. */
export function acceptCounts({ safe, completeOnce }: SafeCounts, response: PointCounts): SafeCounts {
  const isRoundCount = (count: number) => count % 10 === 0 || Number.isInteger(Math.log2(count));
  const isNoLimit = (name: keyof PointCounts) => response[name] === completeOnce[name] || !isRoundCount(response[name]);
  return {
    safe: mapCounts((name) => (isNoLimit(name) ? Math.max(safe[name], response[name]) : safe[name])),
    completeOnce: mapCounts((name) => response[name] || completeOnce[name]),
  };
}

/** A later request returned what this response left out, so larger counts no longer prove anything. */
function countsAfterLimit({ safe }: SafeCounts, limit: PointCounts): SafeCounts {
  const loweredCounts = mapCounts((name) => (limit[name] === 0 ? safe[name] : Math.min(safe[name], limit[name] - 1)));
  return { safe: loweredCounts, completeOnce: NO_POINT_COUNTS };
}

/** 20 series end at 250 points: 250 a series or 5,000 in all? The count that recurs with other tags decides. */
export function learnPointLimit(before: StoredLimit | null, { series, answer }: PointCounts, at: string): StoredLimit {
  const hasBothLimits = series > 0 && answer > 0;
  const isSeriesAgain = hasBothLimits && before?.series === series && before.answer !== answer;
  const isAnswerAgain = hasBothLimits && before?.answer === answer && before.series !== series;
  if (hasBothLimits && !isSeriesAgain && !isAnswerAgain) return { series, answer, either: true, at };
  const knownLimit = before === null || before.either ? { series: null, answer: null } : before;
  if (series > 0 && !isAnswerAgain) return { series, answer: knownLimit.answer, either: false, at };
  return { series: knownLimit.series, answer, either: false, at };
}

/** A learned limit expires: late points look like a limit, and services change. */
const POINT_LIMIT_LIFETIME_MS = 30 * DAY_MS;

/** Buckets to request of each tag: a reply may have two more buckets, and stays one below the limit. */
export function bucketsPerTag(cut: StoredLimit | null, tags: number, nowMs: number): number {
  if (cut === null || Date.parse(cut.at) + POINT_LIMIT_LIFETIME_MS < nowMs) return Number.POSITIVE_INFINITY;
  const seriesLimit = cut.series ?? Number.POSITIVE_INFINITY;
  const answerLimit = (cut.answer ?? Number.POSITIVE_INFINITY) / tags;
  const bucketsOfTag = cut.either ? Math.max(seriesLimit, answerLimit) : Math.min(seriesLimit, answerLimit);
  return Math.max(1, Math.floor(bucketsOfTag) - 3);
}

export function valuesBelowLimit(cut: StoredLimit | null, nowMs: number): number {
  return TAGS_PER_REQUEST * bucketsPerTag(cut, TAGS_PER_REQUEST, nowMs);
}

export type LearnedRequestSize = ReturnType<typeof createLearnedRequestSize>;

export function createLearnedRequestSize(store: Store, source: string, limits: SizeLimits, clock: Pick<Clock, "now">) {
  const windowSet = syncSet("history-window", source);
  let storedWindow: StoredRequestSize = INITIAL_SIZE;
  let pointLimit: StoredLimit | null = null;

  function learnWindow(next: StoredRequestSize): readonly DocumentChange[] {
    const { good, bad, failures } = storedWindow;
    const isChanged = next.good !== good || next.bad !== bad || next.failures !== failures;
    storedWindow = next;
    return isChanged ? [{ set: windowSet, put: [["values", next]] }] : [];
  }

  return {
    async load(): Promise<void> {
      storedWindow = (await store.document<StoredRequestSize>(windowSet, "values")) ?? INITIAL_SIZE;
      pointLimit = (await store.document<StoredLimit>(windowSet, "cut")) ?? null;
    },
    values: () => Math.min(planValues(storedWindow, limits), valuesBelowLimit(pointLimit, clock.now())),
    bucketsPerTag: (tags: number) => bucketsPerTag(pointLimit, tags, clock.now()),
    answered: (values: number) => learnWindow(sizeAfterReply(storedWindow, values, limits)),
    async failed(values: number): Promise<void> {
      const documents = learnWindow(sizeAfterFailure(storedWindow, values));
      if (documents.length > 0) await store.commit({ documents });
    },
    async cutAt(counts: PointCounts): Promise<void> {
      pointLimit = learnPointLimit(pointLimit, counts, isoUtc(clock.now()));
      await store.commit({ documents: [{ set: windowSet, put: [["cut", pointLimit]] }] });
    },
  };
}

interface UnverifiedEnd {
  readonly range: TimeRange;
  readonly count: number;
  readonly isLive: boolean;
  readonly counts: PointCounts;
  readonly isInconclusive: boolean;
}

const SAFE_COUNTS_LIFETIME_MS = DAY_MS;
const REREAD_BUCKETS = 2;

export type ShortResponses = ReturnType<typeof createShortResponses>;

/**
 * Treats missing points at the ends of a response that may have been cut as a gap, and requests them again singly. With
 * points, the limit is learned and the gap fetched in smaller pieces; otherwise it is recorded as answered without
 * values.
 *     requested   |-------------- 2,016 --------------|
 *     response    |---- 1,000 ----|    unverified     |
 *     again                       |------ 1,016 ------|
 */
export function createShortResponses(clock: Clock, window: LearnedRequestSize, log: Pick<Log, "warn">) {
  const endsByKey = new Map<string, readonly UnverifiedEnd[]>();
  let safeCounts = INITIAL_SAFE_COUNTS;
  let knownSinceMs = clock.monotonic();

  function setEnds(key: string, ends: readonly UnverifiedEnd[]): void {
    if (ends.length === 0) endsByKey.delete(key);
    else endsByKey.set(key, ends);
  }

  function countPoints(response: readonly TagPoints[]): PointCounts {
    if (clock.monotonic() - knownSinceMs > SAFE_COUNTS_LIFETIME_MS) {
      safeCounts = INITIAL_SAFE_COUNTS;
      knownSinceMs = clock.monotonic();
    }
    const lengths = response.map(({ length }) => length);
    const counts = { series: Math.max(0, ...lengths), answer: lengths.reduce((sum, each) => sum + each, 0) };
    safeCounts = countsAfterResponse(safeCounts, counts);
    return counts;
  }

  async function evaluateRepeat(request: HistoryRequest, byId: ReadonlyMap<string, TagPoints>, counts: PointCounts) {
    const isOneRange = [...request.ranges.values()].every(
      ({ fromMs, toMs }) => fromMs === request.range.fromMs && toMs === request.range.toMs,
    );
    const areCutsCertain = isOneRange || areCountsZero(unverifiedCounts(safeCounts, counts));
    const cutEnds: UnverifiedEnd[] = [];
    const completeCounts = new Set<PointCounts>();
    for (const { key, located } of request.series) {
      const ownRange = request.ranges.get(key);
      const points = byId.get(located.tag.id);
      const [end, ...others] = endsByKey.get(key) ?? [];
      if (ownRange === undefined || points === undefined || end === undefined) continue;
      if (points.ascending().between(ownRange.fromMs, ownRange.toMs).length > 0) cutEnds.push(end);
      else if (!areCutsCertain) setEnds(key, [{ ...end, isInconclusive: true }, ...others]);
      else {
        setEnds(key, [...subtractRanges(end.range, [ownRange]).map((range) => ({ ...end, range })), ...others]);
        completeCounts.add(end.counts);
      }
    }
    const cutEndsByCounts = Map.groupBy(cutEnds, (end) => end.counts);
    const openCounts = new Set([...endsByKey.values()].flat().map((end) => end.counts));
    for (const counted of completeCounts)
      if (!cutEndsByCounts.has(counted) && !openCounts.has(counted)) safeCounts = acceptCounts(safeCounts, counted);
    for (const [key, ends] of endsByKey) {
      const unprovenEnds = ends.filter((end) => !cutEndsByCounts.has(end.counts));
      setEnds(key, unprovenEnds);
    }
    for (const [before, ends] of cutEndsByCounts) {
      // If all cut series have the same count, the limit is for each series, otherwise for the complete response.
      const isLimitPerSeries = ends.every(({ count }) => count === before.series);
      const limit = isLimitPerSeries || before.answer === 0 ? before : { ...before, series: 0 };
      safeCounts = countsAfterLimit(safeCounts, limit);
      await window.cutAt(limit);
      log.warn({ ...limit }, "the service leaves points out of a long answer of history without an error");
    }
    return cutEndsByCounts.size > 0;
  }

  return {
    async verifiedPart(request: HistoryRequest, logs: readonly TagLog[]): Promise<HistoryRequest> {
      const byId = new Map<string, TagPoints>();
      for (const tagLog of logs) {
        const points = answeredPoints(tagLog);
        if (points !== null) byId.set(tagLog.id, points);
        else for (const { key, located } of request.series) if (located.tag.id === tagLog.id) endsByKey.delete(key);
      }
      const counts = countPoints([...byId.values()]);
      const ranges = new Map(request.ranges);
      if (request.isRepeat === true && !(await evaluateRepeat(request, byId, counts))) {
        for (const { key } of request.series) if (endsByKey.get(key)?.[0]?.isInconclusive === true) ranges.delete(key);
        return { ...request, ranges };
      }
      const suspicious = unverifiedCounts(safeCounts, counts);
      if (areCountsZero(suspicious)) return request;
      const isLive = request.kind === "following";
      for (const series of request.series) {
        const ownRange = ranges.get(series.key);
        const points = byId.get(series.located.tag.id);
        if (ownRange === undefined || points === undefined) continue;
        if (suspicious.answer === 0 && points.length < counts.series) continue;
        const missingRanges = missingEnds(points.ascending(), ownRange, series, isLive ? REREAD_BUCKETS + 0.9 : 0.9);
        const [verifiedRange] = subtractRanges(ownRange, missingRanges);
        if (verifiedRange === undefined) ranges.delete(series.key);
        else ranges.set(series.key, verifiedRange);
        const newEnd = { count: points.length, isLive, counts: suspicious, isInconclusive: false };
        const newEnds = missingRanges.map((range) => ({ ...newEnd, range }));
        setEnds(series.key, [...(endsByKey.get(series.key) ?? []), ...newEnds]);
      }
      return { ...request, ranges };
    },

    isComplete(logs: readonly TagLog[]): boolean {
      const counts = countPoints(logs.map((each) => answeredPoints(each) ?? new TagPoints()));
      return areCountsZero(unverifiedCounts(safeCounts, counts));
    },

    next(free: readonly Series[], limits: RequestLimits, past: boolean): HistoryRequest | null {
      const candidates = free.flatMap((series): readonly (Candidate & { readonly isInconclusive: boolean })[] => {
        const [end] = endsByKey.get(series.key) ?? [];
        if (end === undefined || !(past || end.isLive)) return [];
        return [{ series, range: end.range, isSingle: false, isInconclusive: end.isInconclusive }];
      });
      const [first] = candidates;
      if (first === undefined) return null;
      const bucketMs = BUCKET_MS[first.series.rules.resolution];
      const group: [Candidate, ...Candidate[]] = [first];
      let { range } = first;
      for (const candidate of first.isInconclusive ? [] : candidates.slice(1)) {
        if (group.length >= TAGS_PER_REQUEST || candidate.isInconclusive || !hasSameBuckets(first, candidate)) continue;
        const fromMs = Math.min(range.fromMs, candidate.range.fromMs);
        const toMs = Math.max(range.toMs, candidate.range.toMs);
        // Too many points of verified ranges in a response would make its end unverified again.
        const widerMs = toMs - fromMs;
        const verified = [...group, candidate].map((one) => (widerMs - totalLengthMs([one.range])) / bucketMs + 2);
        const sum = verified.reduce((total, count) => total + count, 0);
        if (Math.max(...verified) > safeCounts.safe.series || sum > safeCounts.safe.answer) continue;
        group.push(candidate);
        range = { fromMs, toMs };
      }
      const maxRangeLengthMs = Math.max(1, Math.floor(limits.values / group.length)) * bucketMs;
      const toMs = Math.min(range.toMs, range.fromMs + maxRangeLengthMs);
      return { ...buildHistoryRequest("backfill", group, { fromMs: range.fromMs, toMs }), isRepeat: true };
    },

    has: ({ key }: Series, live?: boolean): boolean =>
      endsByKey.get(key)?.some(({ isLive }) => live === undefined || isLive === live) ?? false,
    forget(series: readonly Series[]): void {
      for (const { key } of series) endsByKey.delete(key);
    },
  };
}

/** Returns the ranges before the first and after the last point, if they have at least `leastBuckets`. */
function missingEnds(
  points: TagPoints,
  range: TimeRange,
  { rules }: Series,
  leastBuckets: number,
): readonly TimeRange[] {
  if (points.length === 0) return [range];
  const lastMs = bucketEnd(points.timeMs(points.length - 1), rules);
  const endRanges = [
    { fromMs: range.fromMs, toMs: Math.min(range.toMs, points.timeMs(0)) },
    { fromMs: Math.max(range.fromMs, lastMs), toMs: range.toMs },
  ];
  return endRanges.filter(({ fromMs, toMs }) => toMs - fromMs >= leastBuckets * BUCKET_MS[rules.resolution]);
}
