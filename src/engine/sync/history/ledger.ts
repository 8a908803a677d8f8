import { TagPoints } from "../../../core/codec/points.ts";
import type { TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredLedger } from "../stored-documents.ts";
import {
  type BucketRules,
  bucketBefore,
  bucketEnd,
  bucketStart,
  clipRange,
  DAY_MS,
  localDayNumber,
  parseTime,
  subtractCalendarTime,
  subtractRanges,
  type TimeRange,
} from "./buckets.ts";
import {
  fetchedOrUnreadableRanges,
  fetchedRanges,
  HISTORY_REFUSAL_WAITS_MS,
  isFetched,
  isUnreadableRange,
  type LedgerRange,
  mergeIntoLedgerRanges,
  nextRefusal,
  rangesFromPoints,
  refusalWaitMs,
  toRanges,
  toStoredRanges,
} from "./ledger-ranges.ts";

export type EmittedValuesByTime = Map<number, TagValue>;

export interface SeriesRules extends BucketRules {
  /** Interval between requests for recent buckets; infinite if only `plenum backfill` requested the series. */
  readonly everyMs: number;
  readonly backfillMs: number;
  readonly graceMs: number;
  readonly lookBackMs: number;
}

export function createLedger(rules: SeriesRules, nowMs: number): StoredLedger {
  const { resolution, timeZone } = rules;
  const sinceMs = closedUntilMs(rules, nowMs);
  return {
    version: 2,
    resolution,
    timeZone,
    since: isoUtc(sinceMs),
    watermark: isoUtc(sinceMs),
    wished: isoUtc(targetStartMs(sinceMs, rules)),
    spans: [],
    days: "",
    rereadFrom: null,
    dailyAt: isoUtc(nowMs),
    weeklyAt: isoUtc(nowMs),
    rememberedFrom: isoUtc(sinceMs - rules.lookBackMs),
    state: "unproven",
    refusal: null,
  };
}

const targetStartMs = (sinceMs: number, rules: SeriesRules): number => bucketStart(sinceMs - rules.backfillMs, rules);

export function adaptLedger(ledger: StoredLedger, rules: SeriesRules, nowMs: number): StoredLedger {
  const { state, refusal } = ledger;
  if (ledger.timeZone !== rules.timeZone) return { ...createLedger(rules, nowMs), state, refusal };
  const targetMs = targetStartMs(parseTime(ledger.since), rules);
  return targetMs < parseTime(ledger.wished) - DAY_MS ? { ...ledger, wished: isoUtc(targetMs) } : ledger;
}

export const closedUntilMs = (rules: SeriesRules, nowMs: number): number => bucketStart(nowMs - rules.graceMs, rules);

export function rangeToFetch(
  ledger: StoredLedger,
  rules: SeriesRules,
  nowMs: number,
  toMs = closedUntilMs(rules, nowMs),
): TimeRange | null {
  if (ledger.rereadFrom === null && !isRecentRangeDue(ledger, rules, toMs)) return null;
  const fromMs = ledger.rereadFrom === null ? lookBackStartMs(ledger, rules, nowMs) : parseTime(ledger.rereadFrom);
  return toMs > fromMs ? { fromMs, toMs } : null;
}

/** True if recent buckets are due: with `every: 15m`, at :00, :15, :30 and :45, so that series share requests. */
function isRecentRangeDue({ watermark }: StoredLedger, rules: SeriesRules, toMs: number): boolean {
  const everyMs = Math.max(1, rules.everyMs);
  const dueMs = Math.floor(toMs / everyMs) * everyMs;
  const watermarkMs = parseTime(watermark);
  return countsCalendarDays(rules) ? subtractTimeByRules(toMs, everyMs, rules) >= watermarkMs : dueMs > watermarkMs;
}

export function fetchedSinceMs(ledger: StoredLedger): number {
  const watermarkMs = parseTime(ledger.watermark);
  return fetchedOrUnreadableRanges(ledger.spans).find(({ toMs }) => toMs >= watermarkMs)?.fromMs ?? watermarkMs;
}

/** True for daily and longer intervals or buckets: then a day is a calendar day instead of 24 hours. */
function countsCalendarDays({ resolution, everyMs }: SeriesRules): boolean {
  return (everyMs >= DAY_MS && Number.isFinite(everyMs)) || (resolution !== "5m" && resolution !== "1h");
}

export function subtractTimeByRules(atMs: number, durationMs: number, rules: SeriesRules): number {
  return countsCalendarDays(rules) ? subtractCalendarTime(atMs, durationMs, rules.timeZone) : atMs - durationMs;
}

function isLookBackDue(lastRereadAt: string, days: number, rules: SeriesRules, nowMs: number): boolean {
  if (!countsCalendarDays(rules)) return nowMs - parseTime(lastRereadAt) >= days * DAY_MS;
  return localDayNumber(nowMs, rules.timeZone) - localDayNumber(parseTime(lastRereadAt), rules.timeZone) >= days;
}

/** Each request repeats the last two buckets; once a day it repeats a day, and once a week the complete look-back. */
function lookBackStartMs(ledger: StoredLedger, rules: SeriesRules, nowMs: number): number {
  const { dailyAt, weeklyAt } = ledger;
  const watermarkMs = parseTime(ledger.watermark);
  let fromMs = bucketBefore(bucketBefore(watermarkMs, rules), rules);
  if (isLookBackDue(dailyAt, 1, rules, nowMs))
    fromMs = Math.min(fromMs, subtractTimeByRules(parseTime(dailyAt), Math.min(rules.lookBackMs, DAY_MS), rules));
  if (isLookBackDue(weeklyAt, 7, rules, nowMs))
    fromMs = Math.min(fromMs, subtractTimeByRules(parseTime(weeklyAt), rules.lookBackMs, rules));
  const earliestStartMs = Math.min(watermarkMs, Math.max(fetchedSinceMs(ledger), parseTime(ledger.rememberedFrom)));
  const firstBucketStartMs = bucketEnd(bucketStart(earliestStartMs - 1, rules), rules);
  return Math.max(bucketStart(fromMs, rules), firstBucketStartMs);
}

export interface SettledHistoryPoints {
  readonly ledger: StoredLedger;
  readonly newPoints: TagPoints;
  readonly revisedPoints: TagPoints;
}

export function settleNewRange(
  ledger: StoredLedger,
  rules: SeriesRules,
  points: TagPoints,
  range: TimeRange,
  emitted: EmittedValuesByTime,
  nowMs: number,
  learnRanges: (fetchedRanges: readonly LedgerRange[]) => readonly LedgerRange[] = (fetchedRanges) => fetchedRanges,
): SettledHistoryPoints {
  const { fromMs } = range;
  const newPoints = new TagPoints();
  const revisedPoints = new TagPoints();
  // Accept only closed buckets, even if the clock was ahead when Plenum requested them.
  let toMs = Math.min(range.toMs, Math.max(fromMs, closedUntilMs(rules, nowMs)));
  const sortedPoints = points.sortedByTime();
  const firstRetainedIndex = sortedPoints.firstIndexFrom(parseTime(ledger.rememberedFrom));
  const startIndex = Math.max(pointIndexByBucketEnd(sortedPoints, fromMs, ledger), firstRetainedIndex);
  const pointsInRange = sortedPoints.sliceByIndex(
    Math.min(startIndex, sortedPoints.firstIndexFrom(fromMs)),
    sortedPoints.firstIndexFrom(range.toMs),
  );
  for (let index = 0; index < pointsInRange.length; index++) {
    const atMs = pointsInRange.timeMs(index);
    const bucketEndMs = bucketEnd(atMs, rules);
    // Skip a bucket that ends after the range, unless it starts the range: the watermark must advance.
    if (bucketEndMs + rules.graceMs > nowMs || (bucketEndMs > range.toMs && atMs > fromMs)) toMs = Math.min(toMs, atMs);
    else if (!emitted.has(atMs)) newPoints.pushCopy(pointsInRange, index);
    else if (emitted.get(atMs) !== pointsInRange.value(index)) revisedPoints.pushCopy(pointsInRange, index);
  }
  const isRangeComplete = range.toMs >= parseTime(ledger.watermark);
  // A request that was sent before midnight lacks the daily look-back that became due at midnight.
  const coversLookBack = ledger.rereadFrom === null && fromMs <= lookBackStartMs(ledger, rules, nowMs);
  const nextRereadTime = (lastRereadAt: string, days: number) =>
    coversLookBack && isLookBackDue(lastRereadAt, days, rules, nowMs) ? isoUtc(nowMs) : lastRereadAt;
  const nextLedger: StoredLedger = {
    ...addLedgerRanges(ledger, learnRanges(rangesFromPoints(points, { fromMs, toMs }, rules))),
    rereadFrom: isRangeComplete ? null : isoUtc(toMs),
    dailyAt: nextRereadTime(ledger.dailyAt, 1),
    weeklyAt: nextRereadTime(ledger.weeklyAt, 7),
    state: "following",
    refusal: null,
  };
  return {
    ledger: { ...nextLedger, rememberedFrom: isoUtc(retainedFromMs(nextLedger, rules)) },
    newPoints,
    revisedPoints,
  };
}

/** Adds a backfill response to a ledger. Only points within gaps are new. `learnedRanges`: ranges that it answers. */
export function settlePastRange(
  ledger: StoredLedger,
  points: TagPoints,
  range: TimeRange,
  learnedRanges = rangesFromPoints(points, range, ledger),
): SettledHistoryPoints {
  const sortedPoints = points.sortedByTime();
  const pointIndexAt = (atMs: number) => pointIndexByBucketEnd(sortedPoints, atMs, ledger);
  const newPointParts = findGaps(ledger, range).map(({ fromMs, toMs }) =>
    sortedPoints.sliceByIndex(pointIndexAt(fromMs), pointIndexAt(toMs)),
  );
  return {
    ledger: addLedgerRanges(ledger, learnedRanges),
    newPoints: TagPoints.concatenate(newPointParts),
    revisedPoints: new TagPoints(),
  };
}

function pointIndexByBucketEnd(points: TagPoints, atMs: number, rules: BucketRules): number {
  let index = points.firstIndexFrom(atMs);
  while (index > 0 && bucketEnd(points.timeMs(index - 1), rules) > atMs) index -= 1;
  return index;
}

export function addLedgerRanges(ledgerBefore: StoredLedger, learnedRanges: readonly LedgerRange[]): StoredLedger {
  const ledger = {
    ...ledgerBefore,
    spans: mergeIntoLedgerRanges(ledgerBefore.spans, learnedRanges, ledgerBefore.resolution),
  };
  const watermarkMs = parseTime(ledger.watermark);
  const settledRanges = fetchedOrUnreadableRanges(ledger.spans);
  const rangeAtWatermark = settledRanges.find(({ fromMs, toMs }) => fromMs <= watermarkMs && toMs > watermarkMs);
  return rangeAtWatermark === undefined ? ledger : { ...ledger, watermark: isoUtc(rangeAtWatermark.toMs) };
}

export const findGaps = (ledger: StoredLedger, range: TimeRange) => subtractRanges(range, fetchedRanges(ledger.spans));

export interface LedgerGapPart extends TimeRange {
  readonly isSingle: boolean;
  readonly unreadable?: true;
}

export function listLedgerGapParts(ledger: StoredLedger, range: TimeRange, nowMs: number): readonly LedgerGapPart[] {
  const ledgerGaps = findGaps(ledger, range);
  const refusedRanges = toRanges(ledger.spans).filter((ledgerRange) => !isFetched(ledgerRange));
  const dueRefusedRanges = refusedRanges.filter(({ againAt }) => againAt === undefined || parseTime(againAt) <= nowMs);
  return ledgerGaps
    .flatMap((gap): readonly LedgerGapPart[] => [
      ...subtractRanges(gap, refusedRanges).map((part) => ({ ...part, isSingle: false })),
      ...dueRefusedRanges.flatMap((ledgerRange) => {
        const unreadableMark = isUnreadableRange(ledgerRange) ? { unreadable: true as const } : {};
        return clipRange(ledgerRange, gap).map((part) => ({ ...part, isSingle: true, ...unreadableMark }));
      }),
    ])
    .toSorted((a, b) => a.fromMs - b.fromMs);
}

export function targetPastRange(ledger: StoredLedger): TimeRange {
  return { fromMs: Math.min(parseTime(ledger.wished), parseTime(ledger.since)), toMs: parseTime(ledger.watermark) };
}

function retainedFromMs(ledger: StoredLedger, rules: SeriesRules): number {
  let threeBucketsBackMs = parseTime(ledger.watermark);
  for (let i = 0; i < 3; i++) threeBucketsBackMs = bucketBefore(threeBucketsBackMs, rules);
  const lastRereadMs = Math.min(parseTime(ledger.weeklyAt), parseTime(ledger.dailyAt));
  const lookBackEndMs = subtractTimeByRules(lastRereadMs, rules.lookBackMs, rules);
  const rereadFromMs = ledger.rereadFrom === null ? Number.POSITIVE_INFINITY : parseTime(ledger.rereadFrom);
  return Math.max(parseTime(ledger.rememberedFrom), Math.min(threeBucketsBackMs, lookBackEndMs, rereadFromMs));
}

/** Number of times the wait for a tag without a log doubles: 1, 2, 4, 8, 16 and 32 days. */
const NO_LOG_WAIT_DOUBLINGS_MAX = 5;

function noLogWaitMs(refusalCount: number, hadLog: boolean): number {
  // A tag that had a log may soon have one again, so short waits come first.
  const longWaits = hadLog ? refusalCount - HISTORY_REFUSAL_WAITS_MS.length : refusalCount;
  return longWaits < 1 ? refusalWaitMs(refusalCount) : DAY_MS * 2 ** Math.min(NO_LOG_WAIT_DOUBLINGS_MAX, longWaits - 1);
}

export function recordNoLog(ledger: StoredLedger, message: string, nowMs: number): StoredLedger {
  const earlierRefusalCount = ledger.state === "no-log" ? (ledger.refusal?.times ?? 0) : 0;
  const waitMs = (refusalCount: number) => noLogWaitMs(refusalCount, hadSeriesLog(ledger));
  return { ...ledger, state: "no-log", refusal: nextRefusal(earlierRefusalCount, message, nowMs, waitMs) };
}

export function recordRefusal(ledger: StoredLedger, message: string, nowMs: number, reason?: "unreadable") {
  const { state, refusal } = ledger;
  if (state === "no-log")
    return { ...ledger, refusal: refusal && { ...refusal, againAt: isoUtc(nowMs + refusalWaitMs(1)) } };
  const nextSeriesRefusal = nextRefusal(refusal?.times ?? 0, message, nowMs);
  return { ...ledger, refusal: reason === undefined ? nextSeriesRefusal : { ...nextSeriesRefusal, reason } };
}

export function recordPastRefusal(
  ledger: StoredLedger,
  range: TimeRange,
  message: string,
  nowMs: number,
): StoredLedger {
  const overlappingRefusals = toRanges(ledger.spans).filter(
    (ledgerRange) => !isFetched(ledgerRange) && clipRange(ledgerRange, range).length > 0,
  );
  const refusalCount = Math.max(0, ...overlappingRefusals.map((ledgerRange) => ledgerRange.times ?? 0));
  const refusedRange: LedgerRange = { ...range, why: "refused", ...nextRefusal(refusalCount, message, nowMs) };
  return { ...ledger, spans: mergeIntoLedgerRanges(ledger.spans, [refusedRange], ledger.resolution) };
}

export function isBackingOff({ refusal }: StoredLedger, nowMs: number): boolean {
  return refusal !== null && parseTime(refusal.againAt) > nowMs;
}

/** True if a series has no log. A tag that had a log earlier needs two such refusals, ten minutes apart. */
export function hasSeriesNoLog(ledger: StoredLedger): boolean {
  return ledger.state === "no-log" && (!hadSeriesLog(ledger) || (ledger.refusal?.times ?? 0) > 1);
}

function hadSeriesLog({ spans }: StoredLedger): boolean {
  return spans.some(({ why, said }) => why === "points" || (why === "null" && said === undefined));
}

/** Turns "no log" responses since a time into gaps: the service also sends them for tags that the token cannot see. */
export function retractNoLogReplies(ledger: StoredLedger, retractSince: string, isTotal: boolean): StoredLedger {
  const isRetracted = ({ why, at = "" }: LedgerRange) => why === "no-log" && at >= retractSince;
  const ledgerRanges = toRanges(ledger.spans);
  const firstRetracted = ledgerRanges.find(isRetracted);
  let newLedger = ledger;
  if (firstRetracted !== undefined) {
    // Totals are fetched in order, so fetching restarts at the first retracted range.
    const watermark = isTotal ? isoUtc(Math.min(parseTime(ledger.watermark), firstRetracted.fromMs)) : ledger.watermark;
    newLedger = { ...ledger, watermark, spans: toStoredRanges(ledgerRanges.filter((range) => !isRetracted(range))) };
  }
  const { refusal, state } = ledger;
  if (refusal === null || refusal.at < retractSince) return newLedger;
  return { ...newLedger, refusal: null, state: state === "no-log" ? "unproven" : state };
}
