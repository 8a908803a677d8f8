import { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type PointLimit, type StoredRequestSize, syncSet } from "../stored-documents.ts";
import { bucketEnd, DAY_MS, subtractRanges, type TimeRange, totalLengthMs } from "./buckets.ts";
import {
  buildHistoryRequest,
  type HistoryRequest,
  hasSameBuckets,
  type RequestLimits,
  type SeriesCandidate,
} from "./choose-request.ts";
import { pointsOfTagLog } from "./ledger-ranges.ts";
import type { Series } from "./series-registry.ts";

/**
 * Plenum doubles the values per request after two full responses, then tries sizes between the largest that worked and
 * the smallest that failed. Two failures in a row at a size that worked before halve it; one may be an outage.
 */
const FULL_RESPONSES_TO_GROW = 2;
const FULL_RESPONSES_BEFORE_TRIAL = 200;
const CONVERGED_SIZE_RATIO = 1.03;
const TRIAL_SIZE_GROWTH = 1.25;
const FULL_RESPONSE_SHARE = 0.8;
const FAILURES_TO_RETREAT = 2;
const START_VALUES = 5_760;
const MIN_VALUES = 240;
const BYTES_PER_VALUE = 64;

export const INITIAL_SIZE: StoredRequestSize = { good: MIN_VALUES, bad: null, doubt: null, streak: 0 };

export const valuesThatFitBytes = (bytes: number): number => Math.max(MIN_VALUES, Math.floor(bytes / BYTES_PER_VALUE));

interface SizeLimits {
  readonly valuesMax: number;
}

export function nextSize(storedSize: StoredRequestSize, { valuesMax }: SizeLimits): number {
  const { good, bad, streak, failures = 0 } = storedSize;
  if (isRetreating(storedSize))
    return Math.min(valuesMax, Math.max(MIN_VALUES, Math.floor(good / 2 ** (failures - FAILURES_TO_RETREAT + 1))));
  if (bad === null)
    return Math.min(valuesMax, good < START_VALUES ? START_VALUES : streak >= FULL_RESPONSES_TO_GROW ? good * 2 : good);
  if (bad / good > CONVERGED_SIZE_RATIO) return Math.min(valuesMax, Math.floor(Math.sqrt(good * bad)));
  return Math.min(valuesMax, streak >= FULL_RESPONSES_BEFORE_TRIAL ? Math.floor(good * TRIAL_SIZE_GROWTH) : good);
}

export function sizeAfterReply(storedSize: StoredRequestSize, values: number, limits: SizeLimits): StoredRequestSize {
  const isResponseFull = values >= nextSize(storedSize, limits) * FULL_RESPONSE_SHARE;
  // After failures, a response of reduced size does not prove that the full size works again.
  if (isRetreating(storedSize) && isResponseFull)
    return { good: Math.min(storedSize.good, values), bad: null, doubt: null, streak: 1 };
  if (!isRetreating(storedSize) && values > storedSize.good) {
    const bad = storedSize.bad !== null && values >= storedSize.bad ? null : storedSize.bad;
    return { good: values, bad, doubt: null, streak: 1 };
  }
  if (!isResponseFull) return { ...storedSize, doubt: null };
  const { failures: _failures, ...rest } = storedSize;
  return { ...rest, doubt: null, streak: storedSize.streak + 1 };
}

export function sizeAfterFailure(storedSize: StoredRequestSize, valueCount: number): StoredRequestSize {
  const { good, bad, doubt, failures = 0 } = storedSize;
  if (valueCount > good)
    return { ...storedSize, bad: Math.min(valueCount, bad ?? valueCount), doubt: doubt ?? { before: bad }, streak: 0 };
  return { ...storedSize, bad: doubt === null ? bad : doubt.before, doubt: null, failures: failures + 1 };
}

const isRetreating = ({ failures = 0 }: StoredRequestSize): boolean => failures >= FAILURES_TO_RETREAT;

/** Points of the longest series and of all series in a response. A new maximum may be a limit of the service. */
interface PointCounts {
  readonly series: number;
  readonly answer: number;
}

interface SafePointCounts {
  readonly safeCounts: PointCounts;
  readonly seenCounts: PointCounts;
}

const ALWAYS_SAFE_POINT_COUNT = 99;
const ZERO_POINT_COUNTS: PointCounts = { series: 0, answer: 0 };
export const INITIAL_SAFE_POINT_COUNTS: SafePointCounts = {
  safeCounts: { series: ALWAYS_SAFE_POINT_COUNT, answer: ALWAYS_SAFE_POINT_COUNT },
  seenCounts: ZERO_POINT_COUNTS,
};

function mapCounts(countOf: (name: keyof PointCounts) => number): PointCounts {
  return { series: countOf("series"), answer: countOf("answer") };
}

const arePointCountsZero = ({ series, answer }: PointCounts): boolean => series === 0 && answer === 0;

/** Returns the counts that may be limits of the service, and 0 for counts that are known to be safe. */
function unverifiedPointCounts({ safeCounts }: SafePointCounts, response: PointCounts): PointCounts {
  return mapCounts((name) => (response[name] > safeCounts[name] ? response[name] : 0));
}

/** Records how many points a response may have. A round count, e.g. 500, may be a limit: it needs two responses. */
export function acceptCounts({ safeCounts, seenCounts }: SafePointCounts, response: PointCounts): SafePointCounts {
  const isRoundCount = (count: number) => count % 10 === 0 || Number.isInteger(Math.log2(count));
  const isNoLimit = (name: keyof PointCounts) => response[name] === seenCounts[name] || !isRoundCount(response[name]);
  return {
    safeCounts: mapCounts((name) => (isNoLimit(name) ? Math.max(safeCounts[name], response[name]) : safeCounts[name])),
    seenCounts: mapCounts((name) => response[name] || seenCounts[name]),
  };
}

/** Learns from cut responses whether the service limits points per series or per response: one of the counts recurs. */
export function learnPointLimit(lastLimit: PointLimit | null, { series, answer }: PointCounts, at: string): PointLimit {
  const hasBothPointLimits = series > 0 && answer > 0;
  const isSameSeriesCount = hasBothPointLimits && lastLimit?.series === series && lastLimit.answer !== answer;
  const isSameResponseCount = hasBothPointLimits && lastLimit?.answer === answer && lastLimit.series !== series;
  if (hasBothPointLimits && !isSameSeriesCount && !isSameResponseCount) return { series, answer, either: true, at };
  const knownPointLimits = lastLimit === null || lastLimit.either ? { series: null, answer: null } : lastLimit;
  if (series > 0 && !isSameResponseCount) return { series, answer: knownPointLimits.answer, either: false, at };
  return { series: knownPointLimits.series, answer, either: false, at };
}

/** Lifetime of a learned limit of points. It expires, because late data can look like a limit. */
const POINT_LIMIT_LIFETIME_MS = 30 * DAY_MS;

/** Maximum buckets per tag in a request: the learned limit minus 3, because a reply may have two extra buckets. */
export function maxBucketsPerTag(pointLimit: PointLimit | null, tagCount: number, nowMs: number): number {
  if (pointLimit === null || Date.parse(pointLimit.at) + POINT_LIMIT_LIFETIME_MS < nowMs)
    return Number.POSITIVE_INFINITY;
  const seriesLimit = pointLimit.series ?? Number.POSITIVE_INFINITY;
  const answerLimit = (pointLimit.answer ?? Number.POSITIVE_INFINITY) / tagCount;
  const pointLimitPerTag = pointLimit.either ? Math.max(seriesLimit, answerLimit) : Math.min(seriesLimit, answerLimit);
  return Math.max(1, Math.floor(pointLimitPerTag) - 3);
}

export function valuesBelowPointLimit(pointLimit: PointLimit | null, nowMs: number): number {
  return TAGS_PER_REQUEST * maxBucketsPerTag(pointLimit, TAGS_PER_REQUEST, nowMs);
}

export type LearnedRequestSize = ReturnType<typeof createLearnedRequestSize>;

export function createLearnedRequestSize(store: Store, source: string, limits: SizeLimits, clock: Pick<Clock, "now">) {
  const requestSizeSet = syncSet("history-window", source);
  let requestSize: StoredRequestSize = INITIAL_SIZE;
  let pointLimit: PointLimit | null = null;

  function updateRequestSize(newSize: StoredRequestSize): readonly DocumentChange[] {
    const { good, bad, failures } = requestSize;
    const isRequestSizeChanged = newSize.good !== good || newSize.bad !== bad || newSize.failures !== failures;
    requestSize = newSize;
    return isRequestSizeChanged ? [{ set: requestSizeSet, put: [["values", newSize]] }] : [];
  }

  return {
    async loadRequestSize(): Promise<void> {
      requestSize = (await store.document<StoredRequestSize>(requestSizeSet, "values")) ?? INITIAL_SIZE;
      pointLimit = (await store.document<PointLimit>(requestSizeSet, "cut")) ?? null;
    },
    maxValues: () => Math.min(nextSize(requestSize, limits), valuesBelowPointLimit(pointLimit, clock.now())),
    bucketsPerTag: (tagCount: number) => maxBucketsPerTag(pointLimit, tagCount, clock.now()),
    requestSucceeded: (valueCount: number) => updateRequestSize(sizeAfterReply(requestSize, valueCount, limits)),
    async requestFailed(valueCount: number): Promise<void> {
      const documents = updateRequestSize(sizeAfterFailure(requestSize, valueCount));
      if (documents.length > 0) await store.commit({ documents });
    },
    async recordPointLimit(counts: PointCounts): Promise<void> {
      pointLimit = learnPointLimit(pointLimit, counts, isoUtc(clock.now()));
      await store.commit({ documents: [{ set: requestSizeSet, put: [["cut", pointLimit]] }] });
    },
  };
}

interface UnverifiedResponseEnd {
  readonly range: TimeRange;
  readonly count: number;
  readonly isLive: boolean;
  readonly counts: PointCounts;
  readonly isRepeatInconclusive: boolean;
}

const SAFE_POINT_COUNTS_LIFETIME_MS = DAY_MS;
const REREAD_BUCKETS = 2;

export type ShortHistoryResponses = ReturnType<typeof createShortHistoryResponses>;

/**
 * Requests the missing ends of a response again, if the service may have cut the response at a limit of points.
 *     requested   |-------------- 2,016 --------------|
 *     response    |---- 1,000 ----|    unverified     |
 *     again                       |------ 1,016 ------|
 */
export function createShortHistoryResponses(clock: Clock, learnedSize: LearnedRequestSize, log: Pick<Log, "warn">) {
  const endsBySeries = new Map<string, readonly UnverifiedResponseEnd[]>();
  let safePointCounts = INITIAL_SAFE_POINT_COUNTS;
  let safeCountsSinceMs = clock.monotonic();

  function setUnverifiedEnds(key: string, ends: readonly UnverifiedResponseEnd[]): void {
    if (ends.length === 0) endsBySeries.delete(key);
    else endsBySeries.set(key, ends);
  }

  function countResponsePoints(response: readonly TagPoints[]): PointCounts {
    if (clock.monotonic() - safeCountsSinceMs > SAFE_POINT_COUNTS_LIFETIME_MS) {
      safePointCounts = INITIAL_SAFE_POINT_COUNTS;
      safeCountsSinceMs = clock.monotonic();
    }
    const lengths = response.map(({ length }) => length);
    const pointCounts = { series: Math.max(0, ...lengths), answer: lengths.reduce((sum, count) => sum + count, 0) };
    const { safeCounts, seenCounts } = safePointCounts;
    safePointCounts = {
      safeCounts: mapCounts((name) => Math.max(safeCounts[name], pointCounts[name] - 1)),
      seenCounts,
    };
    return pointCounts;
  }

  async function checkRepeatResponse(
    request: HistoryRequest,
    pointsByTagId: ReadonlyMap<string, TagPoints>,
    counts: PointCounts,
  ) {
    const isOneRange = [...request.rangesBySeriesKey.values()].every(
      ({ fromMs, toMs }) => fromMs === request.range.fromMs && toMs === request.range.toMs,
    );
    const isTruncationCertain = isOneRange || arePointCountsZero(unverifiedPointCounts(safePointCounts, counts));
    const truncatedEnds: UnverifiedResponseEnd[] = [];
    const completePointCounts = new Set<PointCounts>();
    for (const { key, siteTag } of request.series) {
      const seriesRange = request.rangesBySeriesKey.get(key);
      const points = pointsByTagId.get(siteTag.tag.id);
      const [unverifiedEnd, ...laterEnds] = endsBySeries.get(key) ?? [];
      if (seriesRange === undefined || points === undefined || unverifiedEnd === undefined) continue;
      if (points.sortedByTime().sliceByTime(seriesRange.fromMs, seriesRange.toMs).length > 0)
        truncatedEnds.push(unverifiedEnd);
      else if (!isTruncationCertain)
        setUnverifiedEnds(key, [{ ...unverifiedEnd, isRepeatInconclusive: true }, ...laterEnds]);
      else {
        setUnverifiedEnds(key, [
          ...subtractRanges(unverifiedEnd.range, [seriesRange]).map((range) => ({ ...unverifiedEnd, range })),
          ...laterEnds,
        ]);
        completePointCounts.add(unverifiedEnd.counts);
      }
    }
    const truncatedEndsByCounts = Map.groupBy(truncatedEnds, (unverifiedEnd) => unverifiedEnd.counts);
    const unprovenPointCounts = new Set([...endsBySeries.values()].flat().map((unverifiedEnd) => unverifiedEnd.counts));
    for (const pointCountsOfEnds of completePointCounts)
      if (!truncatedEndsByCounts.has(pointCountsOfEnds) && !unprovenPointCounts.has(pointCountsOfEnds))
        safePointCounts = acceptCounts(safePointCounts, pointCountsOfEnds);
    for (const [key, ends] of endsBySeries) {
      const unprovenEnds = ends.filter((unverifiedEnd) => !truncatedEndsByCounts.has(unverifiedEnd.counts));
      setUnverifiedEnds(key, unprovenEnds);
    }
    for (const [pointCountsBefore, ends] of truncatedEndsByCounts) {
      // If all cut series have the same number of points, the limit is per series, otherwise per response.
      const hasSeriesCount = ends.every(({ count }) => count === pointCountsBefore.series);
      const isLimitPerSeries = hasSeriesCount || pointCountsBefore.answer === 0;
      const limitCounts = isLimitPerSeries ? pointCountsBefore : { ...pointCountsBefore, series: 0 };
      const { safeCounts } = safePointCounts;
      const loweredCounts = mapCounts((name) =>
        limitCounts[name] ? Math.min(safeCounts[name], limitCounts[name] - 1) : safeCounts[name],
      );
      safePointCounts = { safeCounts: loweredCounts, seenCounts: ZERO_POINT_COUNTS };
      await learnedSize.recordPointLimit(limitCounts);
      log.warn({ ...limitCounts }, "the service truncates long history responses without an error");
    }
    return truncatedEndsByCounts.size > 0;
  }

  return {
    async selectVerifiedRanges(request: HistoryRequest, logs: readonly TagLog[]): Promise<HistoryRequest> {
      const pointsByTagId = new Map<string, TagPoints>();
      for (const tagLog of logs) {
        const points = pointsOfTagLog(tagLog);
        if (points !== null) pointsByTagId.set(tagLog.id, points);
        else for (const { key, siteTag } of request.series) if (siteTag.tag.id === tagLog.id) endsBySeries.delete(key);
      }
      const pointCounts = countResponsePoints([...pointsByTagId.values()]);
      const verifiedRanges = new Map(request.rangesBySeriesKey);
      if (request.isRepeat === true && !(await checkRepeatResponse(request, pointsByTagId, pointCounts))) {
        for (const { key } of request.series)
          if (endsBySeries.get(key)?.[0]?.isRepeatInconclusive === true) verifiedRanges.delete(key);
        return { ...request, rangesBySeriesKey: verifiedRanges };
      }
      const suspiciousPointCounts = unverifiedPointCounts(safePointCounts, pointCounts);
      if (arePointCountsZero(suspiciousPointCounts)) return request;
      const isLive = request.kind === "following";
      const minMissingBuckets = isLive ? REREAD_BUCKETS + 0.9 : 0.9;
      for (const series of request.series) {
        const seriesRange = verifiedRanges.get(series.key);
        const points = pointsByTagId.get(series.siteTag.tag.id);
        if (seriesRange === undefined || points === undefined) continue;
        if (suspiciousPointCounts.answer === 0 && points.length < pointCounts.series) continue;
        const missingRanges = findEndGaps(points.sortedByTime(), seriesRange, series, minMissingBuckets);
        const [verifiedRange] = subtractRanges(seriesRange, missingRanges);
        if (verifiedRange === undefined) verifiedRanges.delete(series.key);
        else verifiedRanges.set(series.key, verifiedRange);
        const newUnverifiedEnd = {
          count: points.length,
          isLive,
          counts: suspiciousPointCounts,
          isRepeatInconclusive: false,
        };
        const newUnverifiedEnds = missingRanges.map((range) => ({ ...newUnverifiedEnd, range }));
        setUnverifiedEnds(series.key, [...(endsBySeries.get(series.key) ?? []), ...newUnverifiedEnds]);
      }
      return { ...request, rangesBySeriesKey: verifiedRanges };
    },

    isComplete(logs: readonly TagLog[]): boolean {
      const pointCounts = countResponsePoints(logs.map((tagLog) => pointsOfTagLog(tagLog) ?? new TagPoints()));
      return arePointCountsZero(unverifiedPointCounts(safePointCounts, pointCounts));
    },

    nextRepeatRequest(
      idleSeries: readonly Series[],
      limits: RequestLimits,
      isPastAllowed: boolean,
    ): HistoryRequest | null {
      const repeatCandidates = idleSeries.flatMap((series) => {
        const [unverifiedEnd] = endsBySeries.get(series.key) ?? [];
        if (unverifiedEnd === undefined || !(isPastAllowed || unverifiedEnd.isLive)) return [];
        const { range, isRepeatInconclusive } = unverifiedEnd;
        return [{ series, range, isSingle: false, isRepeatInconclusive }];
      });
      const [firstCandidate] = repeatCandidates;
      if (firstCandidate === undefined) return null;
      const bucketMs = BUCKET_MS[firstCandidate.series.rules.resolution];
      const seriesGroup: [SeriesCandidate, ...SeriesCandidate[]] = [firstCandidate];
      let { range } = firstCandidate;
      for (const candidate of firstCandidate.isRepeatInconclusive ? [] : repeatCandidates.slice(1)) {
        if (seriesGroup.length >= TAGS_PER_REQUEST) break;
        if (candidate.isRepeatInconclusive || !hasSameBuckets(firstCandidate, candidate)) continue;
        const fromMs = Math.min(range.fromMs, candidate.range.fromMs);
        const toMs = Math.max(range.toMs, candidate.range.toMs);
        // Do not add series whose already verified ranges would make the response too long to be verified.
        const widerRangeMs = toMs - fromMs;
        const bucketCounts = [...seriesGroup, candidate].map(
          (candidateOfGroup) => (widerRangeMs - totalLengthMs([candidateOfGroup.range])) / bucketMs + 2,
        );
        const totalBucketCount = bucketCounts.reduce((total, count) => total + count, 0);
        const { safeCounts } = safePointCounts;
        if (Math.max(...bucketCounts) > safeCounts.series || totalBucketCount > safeCounts.answer) continue;
        seriesGroup.push(candidate);
        range = { fromMs, toMs };
      }
      const maxRangeLengthMs = Math.max(1, Math.floor(limits.maxValues / seriesGroup.length)) * bucketMs;
      const toMs = Math.min(range.toMs, range.fromMs + maxRangeLengthMs);
      return { ...buildHistoryRequest("backfill", seriesGroup, { fromMs: range.fromMs, toMs }), isRepeat: true };
    },

    hasUnverifiedEnds: ({ key }: Series, isLiveOnly?: boolean): boolean =>
      endsBySeries.get(key)?.some(({ isLive }) => isLiveOnly === undefined || isLive === isLiveOnly) ?? false,
    removeSeries(series: readonly Series[]): void {
      for (const { key } of series) endsBySeries.delete(key);
    },
  };
}

/** Returns the ranges before the first and after the last point that have at least `minBuckets` buckets. */
function findEndGaps(points: TagPoints, range: TimeRange, { rules }: Series, minBuckets: number): readonly TimeRange[] {
  if (points.length === 0) return [range];
  const lastBucketEndMs = bucketEnd(points.timeMs(points.length - 1), rules);
  const missingEndRanges = [
    { fromMs: range.fromMs, toMs: Math.min(range.toMs, points.timeMs(0)) },
    { fromMs: Math.max(range.fromMs, lastBucketEndMs), toMs: range.toMs },
  ];
  return missingEndRanges.filter(({ fromMs, toMs }) => toMs - fromMs >= minBuckets * BUCKET_MS[rules.resolution]);
}
