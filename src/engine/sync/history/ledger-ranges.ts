import { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagTotal } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredLedger, StoredRange, StoredRefusal } from "../stored-documents.ts";
import {
  type BucketRules,
  bucketEnd,
  bucketStart,
  clipRange,
  DAY_MS,
  mergeTimeRanges,
  subtractRanges,
  type TimeRange,
} from "./buckets.ts";

/** Time range of one series that was fetched or refused. All other times of the series are gaps. */
export interface LedgerRange extends TimeRange, Omit<StoredRange, "from" | "to"> {}

/** Length below which a range without values is stored as a range with values: many devices log only once an hour. */
const IGNORED_SILENCE_MAX_MS: Readonly<Record<Resolution, number>> = {
  "5m": 24 * BUCKET_MS["5m"],
  "1h": 24 * BUCKET_MS["1h"],
  "1d": 2 * BUCKET_MS["1d"],
  "1w": 2 * BUCKET_MS["1w"],
  "1mo": 2 * BUCKET_MS["1mo"],
};

export const HISTORY_LEDGER_RANGES_MAX = 48;
const UNLIMITED_TIME_RANGE = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY };

export const isFetched = ({ why }: Pick<LedgerRange, "why">): boolean => why !== "refused";

export const isUnreadableRange = ({ reason }: Pick<LedgerRange, "reason">): boolean => reason === "unreadable";

function cacheByStoredRanges<T>(
  compute: (storedRanges: readonly StoredRange[]) => T,
): (storedRanges: readonly StoredRange[]) => T {
  const cachedResults = new WeakMap<readonly StoredRange[], T>();
  return (stored) => {
    const joinedRanges = cachedResults.get(stored) ?? compute(stored);
    cachedResults.set(stored, joinedRanges);
    return joinedRanges;
  };
}

export const toRanges = cacheByStoredRanges((stored): readonly LedgerRange[] =>
  stored.map(({ from, to, ...rest }) => ({ fromMs: Date.parse(from), toMs: Date.parse(to), ...rest })),
);

export const fetchedRanges = cacheByStoredRanges((stored) =>
  mergeTimeRanges(toRanges(stored).filter(isFetched).map(pickRangeTimes)),
);

export const fetchedOrUnreadableRanges = cacheByStoredRanges((stored) =>
  mergeTimeRanges([...fetchedRanges(stored), ...toRanges(stored).filter(isUnreadableRange).map(pickRangeTimes)]),
);

const pickRangeTimes = ({ fromMs, toMs }: TimeRange): TimeRange => ({ fromMs, toMs });

export function toStoredRanges(ranges: readonly LedgerRange[]): readonly StoredRange[] {
  return ranges.map(({ fromMs, toMs, ...rest }) => ({ from: isoUtc(fromMs), to: isoUtc(toMs), ...rest }));
}

/** Merges new ranges into the stored ones. Where they overlap, values replace nulls, and responses replace refusals. */
export function mergeIntoLedgerRanges(
  storedRanges: readonly StoredRange[],
  learnedRanges: readonly LedgerRange[],
  resolution: Resolution,
): readonly StoredRange[] {
  let ranges = toRanges(storedRanges);
  for (const range of learnedRanges) {
    const isStronger = (storedRange: LedgerRange) =>
      isFetched(storedRange) && evidenceStrength(storedRange) >= evidenceStrength(range);
    const strongerRanges = ranges.filter(isStronger);
    const weakerParts = ranges
      .filter((storedRange) => !isStronger(storedRange))
      .flatMap((weakerRange) => rangePartsOutside(weakerRange, [range]));
    const newRangeParts = rangePartsOutside(range, strongerRanges);
    ranges = [...strongerRanges, ...weakerParts, ...newRangeParts].sort((a, b) => a.fromMs - b.fromMs);
  }
  return toStoredRanges(limitLedgerRangeCount(joinAdjacentRanges(ranges, resolution), resolution));
}

function evidenceStrength({ why, said }: LedgerRange): number {
  if (why === "points") return 3;
  return why === "null" && said === undefined ? 2 : 1;
}

function rangePartsOutside(range: LedgerRange, takenRanges: readonly TimeRange[]): readonly LedgerRange[] {
  return subtractRanges(range, takenRanges).map((part) => ({ ...range, ...part }));
}

export function rangesFromPoints(points: TagPoints, range: TimeRange, rules: BucketRules): readonly LedgerRange[] {
  const ranges: LedgerRange[] = [];
  let fromMs = range.fromMs;
  const addRangeUntil = (toMs: number, why: "points" | "null") => {
    if (toMs > fromMs) ranges.push({ fromMs, toMs, why });
    fromMs = Math.max(fromMs, toMs);
  };
  const valuePoints = points.withoutNullValues().sortedByTime().sliceByTime(range.fromMs, range.toMs);
  const maxValueDistanceMs = 1.2 * BUCKET_MS[rules.resolution];
  for (let i = 0; i < valuePoints.length; i++) {
    addRangeUntil(valuePoints.timeMs(i), "null");
    // Calculate the end of a bucket, which is slow, only if no value follows in the next bucket.
    while (i + 1 < valuePoints.length && valuePoints.timeMs(i + 1) - valuePoints.timeMs(i) < maxValueDistanceMs) i++;
    addRangeUntil(Math.min(range.toMs, bucketEnd(valuePoints.timeMs(i), rules)), "points");
  }
  addRangeUntil(range.toMs, "null");
  return joinAdjacentRanges(ranges, rules.resolution);
}

function joinAdjacentRanges(ranges: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  const isShortSilence = ({ why, fromMs, toMs }: LedgerRange) =>
    why === "null" && toMs - fromMs < IGNORED_SILENCE_MAX_MS[resolution];
  const joinedRanges: LedgerRange[] = [];
  for (const range of ranges) {
    const [rangeBeforeLast, lastRange] = [joinedRanges.at(-2), joinedRanges.at(-1)];
    if (lastRange?.toMs !== range.fromMs) joinedRanges.push(range);
    else if (haveSameResponse(lastRange, range)) joinedRanges.splice(-1, 1, joinTwoRanges(lastRange, range));
    else if (
      isShortSilence(lastRange) &&
      rangeBeforeLast?.why === "points" &&
      rangeBeforeLast.toMs === lastRange.fromMs &&
      range.why === "points"
    )
      joinedRanges.splice(-2, 2, joinTwoRanges(rangeBeforeLast, range));
    else joinedRanges.push(range);
  }
  return joinedRanges;
}

function haveSameResponse(a: LedgerRange, b: LedgerRange): boolean {
  // The response time `at` may differ: the joined range gets the later time.
  const areResponsesEqual = a.why === b.why && a.said === b.said && a.times === b.times && a.emitted === b.emitted;
  return areResponsesEqual && (isFetched(a) || (a.againAt === b.againAt && a.reason === b.reason));
}

function joinTwoRanges(a: LedgerRange, b: LedgerRange): LedgerRange {
  const at = a.at !== undefined && b.at !== undefined && a.at > b.at ? a.at : (b.at ?? a.at);
  return { ...b, fromMs: a.fromMs, toMs: b.toMs, ...(at === undefined ? {} : { at }) };
}

/** Limits the ranges of a ledger: joins short ranges without values with neighbours, then drops refused ranges. */
function limitLedgerRangeCount(allRanges: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  let ranges = allRanges;
  while (ranges.length > HISTORY_LEDGER_RANGES_MAX) {
    const rangesNow = ranges;
    const isNextToPoints = ({ fromMs, toMs }: LedgerRange, i: number) =>
      (rangesNow[i - 1]?.why === "points" && rangesNow[i - 1]?.toMs === fromMs) ||
      (rangesNow[i + 1]?.why === "points" && rangesNow[i + 1]?.fromMs === toMs);
    const shortestSilence = findShortestRange(
      rangesNow.filter((range, i) => range.why === "null" && isNextToPoints(range, i)),
    );
    const shortestRefusal = findShortestRange(
      rangesNow.filter((range) => !isFetched(range) && !isUnreadableRange(range)),
    );
    if (shortestSilence !== undefined) {
      const pointRange: LedgerRange = { ...pickRangeTimes(shortestSilence), why: "points" };
      ranges = joinAdjacentRanges(rangesNow.with(rangesNow.indexOf(shortestSilence), pointRange), resolution);
    } else if (shortestRefusal !== undefined) ranges = rangesNow.filter((range) => range !== shortestRefusal);
    else ranges = joinNearestUnreadable(rangesNow);
    if (ranges.length === rangesNow.length) return ranges;
  }
  return ranges;
}

function joinNearestUnreadable(ranges: readonly LedgerRange[]): readonly LedgerRange[] {
  const rangeJoins: { fromIndex: number; toIndex: number; range: LedgerRange; gapMs: number }[] = [];
  let previousIndex = -1;
  for (const [rangeIndex, range] of ranges.entries()) {
    // Do not join unreadable ranges across a gap, because the points of the gap were not emitted.
    if (ranges[rangeIndex - 1]?.toMs !== range.fromMs) previousIndex = -1;
    if (!isUnreadableRange(range)) continue;
    const previousRange = ranges[previousIndex];
    if (previousRange !== undefined) {
      const joinedRange: LedgerRange = { ...previousRange, toMs: range.toMs, emitted: true };
      rangeJoins.push({
        fromIndex: previousIndex,
        toIndex: rangeIndex,
        range: joinedRange,
        gapMs: range.fromMs - previousRange.toMs,
      });
    }
    previousIndex = rangeIndex;
  }
  const [nearestJoin] = rangeJoins.sort((a, b) => a.gapMs - b.gapMs);
  if (nearestJoin === undefined) return ranges;
  return ranges.toSpliced(nearestJoin.fromIndex, nearestJoin.toIndex - nearestJoin.fromIndex + 1, nearestJoin.range);
}

function findShortestRange(ranges: readonly LedgerRange[]): LedgerRange | undefined {
  return ranges.toSorted((a, b) => a.toMs - a.fromMs - (b.toMs - b.fromMs))[0];
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const HISTORY_REFUSAL_WAITS_MS = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS] as const;

export const refusalWaitMs = (refusalCount: number): number => HISTORY_REFUSAL_WAITS_MS[refusalCount - 1] ?? DAY_MS;

export function nextRefusal(
  refusalCountBefore: number,
  message: string,
  nowMs: number,
  getWaitMs = refusalWaitMs,
): StoredRefusal {
  const refusalCount = refusalCountBefore + 1;
  return { said: message, at: isoUtc(nowMs), times: refusalCount, againAt: isoUtc(nowMs + getWaitMs(refusalCount)) };
}

/** Time ranges of a response that Plenum could not parse. It requests them again after 10 minutes, 1, 6, 24 hours. */
export interface UnreadableRanges {
  readonly ranges: readonly TimeRange[];
  readonly message: string;
}

export const formatUnreadableMessage = (message: string): string => `unreadable: ${message}`;

export function unreadableMessagesById(reply: readonly (TagLog | TagTotal)[]): ReadonlyMap<string, string> {
  return new Map(
    reply.flatMap(({ id, unreadable }) => {
      if (unreadable === undefined) return [];
      return [[id, typeof unreadable === "string" ? unreadable : unreadable.said] as const];
    }),
  );
}

/** Returns the unreadable parts of a response, null if there are none. `isRetry`: Plenum repeated a refused range. */
export function findUnreadableRanges(
  { unreadable }: TagLog,
  range: TimeRange,
  ledger: StoredLedger,
  isRetry: boolean,
): UnreadableRanges | null {
  if (unreadable === undefined) return null;
  const bucketRanges = (unreadable.timesMs ?? []).flatMap((atMs) => {
    const fromMs = bucketStart(atMs, ledger);
    return clipRange({ fromMs, toMs: bucketEnd(fromMs, ledger) }, range);
  });
  const foundRanges = unreadable.timesMs === null ? [range] : mergeTimeRanges(bucketRanges);
  // Plenum has emitted the readable points of an `emitted` range: keep it unreadable, so they are not emitted twice.
  const emittedRanges = toRanges(ledger.spans).filter(
    (ledgerRange) =>
      isRetry &&
      ledgerRange.emitted === true &&
      foundRanges.some((unreadableRange) => doTimeRangesOverlap(unreadableRange, ledgerRange)),
  );
  const ranges = mergeTimeRanges([
    ...foundRanges,
    ...emittedRanges.flatMap((ledgerRange) => clipRange(ledgerRange, range)),
  ]);
  return ranges.length === 0 ? null : { ranges, message: formatUnreadableMessage(unreadable.said) };
}

export function selectReadablePoints(points: TagPoints, unreadableRanges: UnreadableRanges | null): TagPoints {
  if (unreadableRanges === null) return points;
  const readableRanges = subtractRanges(UNLIMITED_TIME_RANGE, unreadableRanges.ranges);
  return TagPoints.concatenate(readableRanges.map(({ fromMs, toMs }) => points.sliceByTime(fromMs, toMs)));
}

/** Returns all points, with null for unreadable points; returns null if the complete log is unreadable. */
export function pointsOfTagLog({ measurements, unreadable }: TagLog): TagPoints | null {
  const readablePoints = TagPoints.fromMeasurements(measurements);
  if (unreadable === undefined) return readablePoints;
  if (unreadable.timesMs === null) return null;
  const allPoints = TagPoints.concatenate([readablePoints, new TagPoints()]);
  for (const timeMs of unreadable.timesMs) allPoints.push(timeMs, Number.NaN);
  return allPoints;
}

/** Adds unreadable ranges to the ledger ranges. Nearby ones get the same retry time, so that they share a request. */
export function addUnreadableRanges(
  ledger: StoredLedger,
  learnedRanges: readonly LedgerRange[],
  unreadableRanges: UnreadableRanges | null,
  isRetry: boolean,
  nowMs: number,
): readonly LedgerRange[] {
  if (unreadableRanges === null) return learnedRanges;
  const settledRange = { ...UNLIMITED_TIME_RANGE, toMs: learnedRanges.at(-1)?.toMs ?? Number.NEGATIVE_INFINITY };
  const ranges = unreadableRanges.ranges.flatMap((range) => clipRange(range, settledRange));
  const earlierUnreadableRanges = toRanges(ledger.spans).filter(isUnreadableRange);
  const maxJoinGapMs = IGNORED_SILENCE_MAX_MS[ledger.resolution];
  const unreadableLedgerRanges = ranges.map((range): LedgerRange => {
    const widenedRange = { fromMs: range.fromMs - maxJoinGapMs, toMs: range.toMs + maxJoinGapMs };
    const overlappingRanges = earlierUnreadableRanges.filter((ledgerRange) => doTimeRangesOverlap(ledgerRange, range));
    const nearbyRange =
      overlappingRanges.at(-1) ??
      earlierUnreadableRanges.findLast((ledgerRange) => doTimeRangesOverlap(ledgerRange, widenedRange));
    if (nearbyRange !== undefined && !(isRetry && overlappingRanges.length > 0)) {
      const { emitted: _emitted, ...refusal } = nearbyRange;
      // Points were emitted only within the earlier unreadable range, so a separate range is not marked `emitted`.
      return { ...(overlappingRanges.includes(nearbyRange) ? nearbyRange : refusal), ...range };
    }
    const refusalCount = Math.max(0, ...overlappingRanges.map((ledgerRange) => ledgerRange.times ?? 0));
    const emittedRangeMark = overlappingRanges.some((ledgerRange) => ledgerRange.emitted === true)
      ? { emitted: true as const }
      : {};
    const refusal = nextRefusal(refusalCount, unreadableRanges.message, nowMs);
    return { ...range, why: "refused", reason: "unreadable", ...refusal, ...emittedRangeMark };
  });
  return [...learnedRanges.flatMap((ledgerRange) => rangePartsOutside(ledgerRange, ranges)), ...unreadableLedgerRanges];
}

const doTimeRangesOverlap = (a: TimeRange, b: TimeRange): boolean => a.fromMs < b.toMs && a.toMs > b.fromMs;
