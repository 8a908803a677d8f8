import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagTotal } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory, StoredRange, StoredRefusal } from "../snapshot.ts";
import {
  type BucketRules,
  bucketEnd,
  bucketStart,
  clipTo,
  DAY_MS,
  mergeRanges,
  type Range,
  subtract,
} from "./buckets.ts";

/** A fetched or refused range of one series. A time without a range, or with a refused range, is a gap. */
export interface LedgerRange extends Range, Omit<StoredRange, "from" | "to"> {}

/** A silence shorter than this counts as values: many devices log hourly, even in a 5-minute series. */
const IGNORED_SILENCE_MAX_MS: Readonly<Record<Resolution, number>> = {
  "5m": 24 * BUCKET_MS["5m"],
  "1h": 24 * BUCKET_MS["1h"],
  "1d": 2 * BUCKET_MS["1d"],
  "1w": 2 * BUCKET_MS["1w"],
  "1mo": 2 * BUCKET_MS["1mo"],
};

export const LEDGER_RANGES_MAX = 48;

export function isFetched({ why }: Pick<LedgerRange, "why">): boolean {
  return why !== "refused";
}

/** An unreadable range is requested again as the past; following continues after it. */
export function isUnreadable({ reason }: Pick<LedgerRange, "reason">): boolean {
  return reason === "unreadable";
}

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

function pickTimes({ fromMs, toMs }: Range): Range {
  return { fromMs, toMs };
}

export function toStoredRanges(ranges: readonly LedgerRange[]): readonly StoredRange[] {
  return ranges.map(({ fromMs, toMs, ...rest }) => ({ from: isoUtc(fromMs), to: isoUtc(toMs), ...rest }));
}

/** Adds learned ranges. The stronger statement wins: values, no values, times not requested, refusal. */
export function mergeLearnedRanges(
  stored: readonly StoredRange[],
  learned: readonly LedgerRange[],
  resolution: Resolution,
): readonly StoredRange[] {
  let ranges = toRanges(stored);
  for (const range of learned) {
    const isStronger = (other: LedgerRange) => isFetched(other) && statementStrength(other) >= statementStrength(range);
    const stronger = ranges.filter(isStronger);
    const weaker = ranges.filter((other) => !isStronger(other));
    const rest = weaker.flatMap((other) => partsOutsideRanges(other, [range]));
    ranges = [...stronger, ...rest, ...partsOutsideRanges(range, stronger)].sort((a, b) => a.fromMs - b.fromMs);
  }
  return toStoredRanges(limitRangeCount(joinAdjacentRanges(ranges, resolution), resolution));
}

function statementStrength({ why, said }: LedgerRange): number {
  if (why === "points") return 3;
  return why === "null" && said === undefined ? 2 : 1;
}

function partsOutsideRanges(range: LedgerRange, taken: readonly Range[]): readonly LedgerRange[] {
  return subtract(range, taken).map((part) => ({ ...range, ...part }));
}

export function rangesFromPoints(points: Points, range: Range, rules: BucketRules): readonly LedgerRange[] {
  const ranges: LedgerRange[] = [];
  let fromMs = range.fromMs;
  const addUntil = (toMs: number, why: "points" | "null") => {
    if (toMs > fromMs) ranges.push({ fromMs, toMs, why });
    fromMs = Math.max(fromMs, toMs);
  };
  // If a time has two points and one of them is a value, the value counts.
  const values = points.withValue().ascending().between(range.fromMs, range.toMs);
  const steadyMs = 1.2 * BUCKET_MS[rules.resolution];
  for (let i = 0; i < values.length; i++) {
    addUntil(values.timeMs(i), "null");
    // Zone rules are slow: look up the end of a bucket only if no other value follows at once.
    while (i + 1 < values.length && values.timeMs(i + 1) - values.timeMs(i) < steadyMs) i++;
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
      const replaced = current.map((range) => (range === silence ? points : range));
      ranges = joinAdjacentRanges(replaced, resolution);
    } else if (refusal !== undefined) ranges = current.filter((range) => range !== refusal);
    else ranges = joinNearestUnreadable(current);
    if (ranges.length === current.length) return ranges;
  }
  return ranges;
}

function joinNearestUnreadable(ranges: readonly LedgerRange[]): readonly LedgerRange[] {
  const pairs: { readonly from: number; readonly to: number; readonly joined: LedgerRange; readonly gapMs: number }[] =
    [];
  let before: number | null = null;
  for (const [at, range] of ranges.entries()) {
    // Do not join across a gap between two unreadable ranges: the points of the gap were not emitted.
    if (ranges[at - 1]?.toMs !== range.fromMs) before = null;
    if (!isUnreadable(range)) continue;
    const first = before === null ? undefined : ranges[before];
    if (first !== undefined && before !== null) {
      const joined: LedgerRange = { ...first, toMs: range.toMs, emitted: true };
      pairs.push({ from: before, to: at, joined, gapMs: range.fromMs - first.toMs });
    }
    before = at;
  }
  const [nearest] = pairs.sort((a, b) => a.gapMs - b.gapMs);
  if (nearest === undefined) return ranges;
  return ranges.toSpliced(nearest.from, nearest.to - nearest.from + 1, nearest.joined);
}

function findShortestRange(ranges: readonly LedgerRange[]): LedgerRange | undefined {
  return ranges.toSorted((a, b) => a.toMs - a.fromMs - (b.toMs - b.fromMs))[0];
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const REFUSAL_WAITS_MS = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS] as const;

export function refusalWaitMs(times: number): number {
  return REFUSAL_WAITS_MS[times - 1] ?? DAY_MS;
}

export function nextRefusal(timesBefore: number, said: string, nowMs: number, waitMs = refusalWaitMs): StoredRefusal {
  const times = timesBefore + 1;
  return { said, at: isoUtc(nowMs), times, againAt: isoUtc(nowMs + waitMs(times)) };
}

/** Ranges that are stored as refused and requested again singly after 10 minutes, 1, 6 and 24 hours. */
export interface UnreadableRanges {
  readonly ranges: readonly Range[];
  readonly said: string;
}

export function formatUnreadableMessage(said: string): string {
  return `unreadable: ${said}`;
}

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
  range: Range,
  ledger: StoredHistory,
  isRetry: boolean,
): UnreadableRanges | null {
  if (unreadable === undefined) return null;
  const buckets = (unreadable.timesMs ?? []).flatMap((atMs) => {
    const fromMs = bucketStart(atMs, ledger);
    return clipTo({ fromMs, toMs: bucketEnd(fromMs, ledger) }, range);
  });
  const found = unreadable.timesMs === null ? [range] : mergeRanges(buckets);
  // The readable points of an emitted range are sent already: the range waits until all points are readable.
  const emitted = toRanges(ledger.spans).filter(
    (span) => isRetry && span.emitted === true && found.some((each) => rangesOverlap(each, span)),
  );
  const ranges = mergeRanges([...found, ...emitted.flatMap((span) => clipTo(span, range))]);
  return ranges.length === 0 ? null : { ranges, said: formatUnreadableMessage(unreadable.said) };
}

export function selectReadablePoints(points: Points, unreadable: UnreadableRanges | null): Points {
  if (unreadable === null) return points;
  const always = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY };
  return Points.joined(subtract(always, unreadable.ranges).map(({ fromMs, toMs }) => points.between(fromMs, toMs)));
}

/** Returns all points, unreadable ones as null; returns null for a completely unreadable log. */
export function answeredPoints({ measurements, unreadable }: TagLog): Points | null {
  const points = Points.of(measurements);
  if (unreadable === undefined) return points;
  if (unreadable.timesMs === null) return null;
  const all = Points.joined([points, new Points()]);
  for (const timeMs of unreadable.timesMs) all.push(timeMs, Number.NaN);
  return all;
}

/** Nearby unreadable buckets share a retry time, so an unreadable bucket every hour causes one request a day. */
export function addUnreadableRanges(
  ledger: StoredHistory,
  learned: readonly LedgerRange[],
  unreadable: UnreadableRanges | null,
  isRetry: boolean,
  nowMs: number,
): readonly LedgerRange[] {
  if (unreadable === null) return learned;
  const settled = { fromMs: Number.NEGATIVE_INFINITY, toMs: learned.at(-1)?.toMs ?? Number.NEGATIVE_INFINITY };
  const ranges = unreadable.ranges.flatMap((range) => clipTo(range, settled));
  const before = toRanges(ledger.spans).filter(isUnreadable);
  const nearMs = IGNORED_SILENCE_MAX_MS[ledger.resolution];
  const refusals = ranges.map((range): LedgerRange => {
    const around = { fromMs: range.fromMs - nearMs, toMs: range.toMs + nearMs };
    const same = before.filter((span) => rangesOverlap(span, range));
    const near = same.at(-1) ?? before.findLast((span) => rangesOverlap(span, around));
    if (near !== undefined && !(isRetry && same.length > 0)) {
      const { emitted: _emitted, ...refusal } = near;
      // Readable points were emitted only for a range that overlaps the earlier unreadable range.
      return { ...(same.includes(near) ? near : refusal), ...range };
    }
    const times = Math.max(0, ...same.map((span) => span.times ?? 0));
    const emitted = same.some((span) => span.emitted === true) ? { emitted: true as const } : {};
    const refusal = nextRefusal(times, unreadable.said, nowMs);
    return { ...range, why: "refused", reason: "unreadable", ...refusal, ...emitted };
  });
  return [...learned.flatMap((span) => partsOutsideRanges(span, ranges)), ...refusals];
}

function rangesOverlap(a: Range, b: Range): boolean {
  return a.fromMs < b.toMs && a.toMs > b.fromMs;
}
