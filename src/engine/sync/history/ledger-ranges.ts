import { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagTotal } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredLedger, StoredRange, StoredRefusal } from "../snapshot.ts";
import {
  type BucketRules,
  bucketEnd,
  bucketStart,
  clipRange,
  DAY_MS,
  mergeRanges,
  subtractRanges,
  type TimeRange,
} from "./buckets.ts";

/** A fetched or refused range of one series. A time without a range, or with a refused range, is a gap. */
export interface LedgerRange extends TimeRange, Omit<StoredRange, "from" | "to"> {}

/** A silence shorter than this counts as values: many devices log hourly, even in a 5-minute series. */
const IGNORED_SILENCE_MAX_MS: Readonly<Record<Resolution, number>> = {
  "5m": 24 * BUCKET_MS["5m"],
  "1h": 24 * BUCKET_MS["1h"],
  "1d": 2 * BUCKET_MS["1d"],
  "1w": 2 * BUCKET_MS["1w"],
  "1mo": 2 * BUCKET_MS["1mo"],
};

export const LEDGER_RANGES_MAX = 48;
const UNLIMITED_RANGE = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY };

export const isFetched = ({ why }: Pick<LedgerRange, "why">): boolean => why !== "refused";

/** An unreadable range is requested again as the past; following continues after it. */
export const isUnreadable = ({ reason }: Pick<LedgerRange, "reason">): boolean => reason === "unreadable";

function cacheBySpans<T>(compute: (stored: readonly StoredRange[]) => T): (stored: readonly StoredRange[]) => T {
  const results = new WeakMap<readonly StoredRange[], T>();
  return (stored) => {
    const result = results.get(stored) ?? compute(stored);
    results.set(stored, result);
    return result;
  };
}

export const toRanges = cacheBySpans((stored): readonly LedgerRange[] =>
  stored.map(({ from, to, ...rest }) => ({ fromMs: Date.parse(from), toMs: Date.parse(to), ...rest })),
);

export const fetchedRanges = cacheBySpans((stored) => mergeRanges(toRanges(stored).filter(isFetched).map(pickTimes)));

export const fetchedOrUnreadableRanges = cacheBySpans((stored) =>
  mergeRanges([...fetchedRanges(stored), ...toRanges(stored).filter(isUnreadable).map(pickTimes)]),
);

const pickTimes = ({ fromMs, toMs }: TimeRange): TimeRange => ({ fromMs, toMs });

export function toStoredRanges(ranges: readonly LedgerRange[]): readonly StoredRange[] {
  return ranges.map(({ fromMs, toMs, ...rest }) => ({ from: isoUtc(fromMs), to: isoUtc(toMs), ...rest }));
}

/** Adds fetched ranges. Where ranges overlap, values win over no values, and any response over a refusal. */
export function mergeLearnedRanges(
  stored: readonly StoredRange[],
  learned: readonly LedgerRange[],
  resolution: Resolution,
): readonly StoredRange[] {
  let ranges = toRanges(stored);
  for (const range of learned) {
    const isStronger = (other: LedgerRange) => isFetched(other) && statementStrength(other) >= statementStrength(range);
    const strongRanges = ranges.filter(isStronger);
    const weakParts = ranges.filter((other) => !isStronger(other)).flatMap((one) => partsOutsideRanges(one, [range]));
    const newParts = partsOutsideRanges(range, strongRanges);
    ranges = [...strongRanges, ...weakParts, ...newParts].sort((a, b) => a.fromMs - b.fromMs);
  }
  return toStoredRanges(limitRangeCount(joinAdjacentRanges(ranges, resolution), resolution));
}

function statementStrength({ why, said }: LedgerRange): number {
  if (why === "points") return 3;
  return why === "null" && said === undefined ? 2 : 1;
}

function partsOutsideRanges(range: LedgerRange, taken: readonly TimeRange[]): readonly LedgerRange[] {
  return subtractRanges(range, taken).map((part) => ({ ...range, ...part }));
}

export function rangesFromPoints(points: TagPoints, range: TimeRange, rules: BucketRules): readonly LedgerRange[] {
  const ranges: LedgerRange[] = [];
  let fromMs = range.fromMs;
  const addUntil = (toMs: number, why: "points" | "null") => {
    if (toMs > fromMs) ranges.push({ fromMs, toMs, why });
    fromMs = Math.max(fromMs, toMs);
  };
  // If a time has two points and one of them is a value, the value counts.
  const values = points.withValue().ascending().between(range.fromMs, range.toMs);
  const maxValueDistanceMs = 1.2 * BUCKET_MS[rules.resolution];
  for (let i = 0; i < values.length; i++) {
    addUntil(values.timeMs(i), "null");
    // Zone rules are slow: look up the end of a bucket only if no other value follows at once.
    while (i + 1 < values.length && values.timeMs(i + 1) - values.timeMs(i) < maxValueDistanceMs) i++;
    addUntil(Math.min(range.toMs, bucketEnd(values.timeMs(i), rules)), "points");
  }
  addUntil(range.toMs, "null");
  return joinAdjacentRanges(ranges, rules.resolution);
}

function joinAdjacentRanges(ranges: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  const isShortSilence = ({ why, fromMs, toMs }: LedgerRange) =>
    why === "null" && toMs - fromMs < IGNORED_SILENCE_MAX_MS[resolution];
  const result: LedgerRange[] = [];
  for (const range of ranges) {
    const [before, last] = [result.at(-2), result.at(-1)];
    if (last?.toMs !== range.fromMs) result.push(range);
    else if (hasSameStatement(last, range)) result.splice(-1, 1, joinTwoRanges(last, range));
    else if (isShortSilence(last) && before?.why === "points" && before.toMs === last.fromMs && range.why === "points")
      result.splice(-2, 2, joinTwoRanges(before, range));
    else result.push(range);
  }
  return result;
}

function hasSameStatement(a: LedgerRange, b: LedgerRange): boolean {
  // Joined ranges get the later time, because the statement of that time may be retracted.
  const isSame = a.why === b.why && a.said === b.said && a.times === b.times && a.emitted === b.emitted;
  return isSame && (isFetched(a) || (a.againAt === b.againAt && a.reason === b.reason));
}

function joinTwoRanges(a: LedgerRange, b: LedgerRange): LedgerRange {
  const at = a.at !== undefined && b.at !== undefined && a.at > b.at ? a.at : (b.at ?? a.at);
  return { ...b, fromMs: a.fromMs, toMs: b.toMs, ...(at === undefined ? {} : { at }) };
}

/** Joins silences with values, then drops the shortest refusals, but never the retry time of unreadable ranges. */
function limitRangeCount(all: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  let ranges = all;
  while (ranges.length > LEDGER_RANGES_MAX) {
    const current = ranges;
    const isNextToPoints = ({ fromMs, toMs }: LedgerRange, i: number) =>
      (current[i - 1]?.why === "points" && current[i - 1]?.toMs === fromMs) ||
      (current[i + 1]?.why === "points" && current[i + 1]?.fromMs === toMs);
    const silence = findShortestRange(current.filter((range, i) => range.why === "null" && isNextToPoints(range, i)));
    const refusal = findShortestRange(current.filter((range) => !isFetched(range) && !isUnreadable(range)));
    if (silence !== undefined) {
      const points: LedgerRange = { ...pickTimes(silence), why: "points" };
      ranges = joinAdjacentRanges(current.with(current.indexOf(silence), points), resolution);
    } else if (refusal !== undefined) ranges = current.filter((range) => range !== refusal);
    else ranges = joinNearestUnreadable(current);
    if (ranges.length === current.length) return ranges;
  }
  return ranges;
}

function joinNearestUnreadable(ranges: readonly LedgerRange[]): readonly LedgerRange[] {
  const joins: { from: number; to: number; joined: LedgerRange; gapMs: number }[] = [];
  let previousIndex = -1;
  for (const [at, range] of ranges.entries()) {
    // Do not join across a gap between two unreadable ranges: the points of the gap were not emitted.
    if (ranges[at - 1]?.toMs !== range.fromMs) previousIndex = -1;
    if (!isUnreadable(range)) continue;
    const previousRange = ranges[previousIndex];
    if (previousRange !== undefined) {
      const joined: LedgerRange = { ...previousRange, toMs: range.toMs, emitted: true };
      joins.push({ from: previousIndex, to: at, joined, gapMs: range.fromMs - previousRange.toMs });
    }
    previousIndex = at;
  }
  const [nearest] = joins.sort((a, b) => a.gapMs - b.gapMs);
  if (nearest === undefined) return ranges;
  return ranges.toSpliced(nearest.from, nearest.to - nearest.from + 1, nearest.joined);
}

function findShortestRange(ranges: readonly LedgerRange[]): LedgerRange | undefined {
  return ranges.toSorted((a, b) => a.toMs - a.fromMs - (b.toMs - b.fromMs))[0];
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const REFUSAL_WAITS_MS = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS] as const;

export const refusalWaitMs = (times: number): number => REFUSAL_WAITS_MS[times - 1] ?? DAY_MS;

export function nextRefusal(timesBefore: number, said: string, nowMs: number, waitMs = refusalWaitMs): StoredRefusal {
  const refusalCount = timesBefore + 1;
  return { said, at: isoUtc(nowMs), times: refusalCount, againAt: isoUtc(nowMs + waitMs(refusalCount)) };
}

/** Ranges that are stored as refused and requested again singly after 10 minutes, 1, 6 and 24 hours. */
export interface UnreadableRanges {
  readonly ranges: readonly TimeRange[];
  readonly said: string;
}

export const formatUnreadableMessage = (said: string): string => `unreadable: ${said}`;

export function unreadableMessagesById(reply: readonly (TagLog | TagTotal)[]): ReadonlyMap<string, string> {
  return new Map(
    reply.flatMap(({ id, unreadable }) => {
      if (unreadable === undefined) return [];
      return [[id, typeof unreadable === "string" ? unreadable : unreadable.said] as const];
    }),
  );
}

/** Returns null if the complete range is readable. `isRetry`: the request was only for refused buckets. */
export function findUnreadableRanges(
  { unreadable }: TagLog,
  range: TimeRange,
  ledger: StoredLedger,
  isRetry: boolean,
): UnreadableRanges | null {
  if (unreadable === undefined) return null;
  const buckets = (unreadable.timesMs ?? []).flatMap((atMs) => {
    const fromMs = bucketStart(atMs, ledger);
    return clipRange({ fromMs, toMs: bucketEnd(fromMs, ledger) }, range);
  });
  const foundRanges = unreadable.timesMs === null ? [range] : mergeRanges(buckets);
  // The readable points of an emitted range are sent already: the range waits until all points are readable.
  const emittedRanges = toRanges(ledger.spans).filter(
    (span) => isRetry && span.emitted === true && foundRanges.some((each) => rangesOverlap(each, span)),
  );
  const ranges = mergeRanges([...foundRanges, ...emittedRanges.flatMap((span) => clipRange(span, range))]);
  return ranges.length === 0 ? null : { ranges, said: formatUnreadableMessage(unreadable.said) };
}

export function selectReadablePoints(points: TagPoints, unreadable: UnreadableRanges | null): TagPoints {
  if (unreadable === null) return points;
  const readable = subtractRanges(UNLIMITED_RANGE, unreadable.ranges);
  return TagPoints.joined(readable.map(({ fromMs, toMs }) => points.between(fromMs, toMs)));
}

/** Returns all points, unreadable ones as null; returns null for a completely unreadable log. */
export function answeredPoints({ measurements, unreadable }: TagLog): TagPoints | null {
  const points = TagPoints.of(measurements);
  if (unreadable === undefined) return points;
  if (unreadable.timesMs === null) return null;
  const allPoints = TagPoints.joined([points, new TagPoints()]);
  for (const timeMs of unreadable.timesMs) allPoints.push(timeMs, Number.NaN);
  return allPoints;
}

/** Nearby unreadable buckets share a retry time, so an unreadable bucket every hour causes one request a day. */
export function addUnreadableRanges(
  ledger: StoredLedger,
  learned: readonly LedgerRange[],
  unreadable: UnreadableRanges | null,
  isRetry: boolean,
  nowMs: number,
): readonly LedgerRange[] {
  if (unreadable === null) return learned;
  const settledRange = { ...UNLIMITED_RANGE, toMs: learned.at(-1)?.toMs ?? Number.NEGATIVE_INFINITY };
  const ranges = unreadable.ranges.flatMap((range) => clipRange(range, settledRange));
  const earlierUnreadable = toRanges(ledger.spans).filter(isUnreadable);
  const maxJoinGapMs = IGNORED_SILENCE_MAX_MS[ledger.resolution];
  const refusals = ranges.map((range): LedgerRange => {
    const widenedRange = { fromMs: range.fromMs - maxJoinGapMs, toMs: range.toMs + maxJoinGapMs };
    const overlapping = earlierUnreadable.filter((span) => rangesOverlap(span, range));
    const nearbyRange = overlapping.at(-1) ?? earlierUnreadable.findLast((span) => rangesOverlap(span, widenedRange));
    if (nearbyRange !== undefined && !(isRetry && overlapping.length > 0)) {
      const { emitted: _emitted, ...refusal } = nearbyRange;
      // Readable points were emitted only for a range that overlaps the earlier unreadable range.
      return { ...(overlapping.includes(nearbyRange) ? nearbyRange : refusal), ...range };
    }
    const refusalCount = Math.max(0, ...overlapping.map((span) => span.times ?? 0));
    const emittedMark = overlapping.some((span) => span.emitted === true) ? { emitted: true as const } : {};
    const refusal = nextRefusal(refusalCount, unreadable.said, nowMs);
    return { ...range, why: "refused", reason: "unreadable", ...refusal, ...emittedMark };
  });
  return [...learned.flatMap((span) => partsOutsideRanges(span, ranges)), ...refusals];
}

const rangesOverlap = (a: TimeRange, b: TimeRange): boolean => a.fromMs < b.toMs && a.toMs > b.fromMs;
