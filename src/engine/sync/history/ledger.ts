import { Points } from "../../../core/codec/points.ts";
import type { TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory } from "../snapshot.ts";
import {
  type BucketRules,
  bucketBefore,
  bucketEnd,
  bucketStart,
  clipTo,
  DAY_MS,
  localDayNumber,
  parseTime,
  type Range,
  subtract,
  subtractCalendarTime,
} from "./buckets.ts";
import {
  fetchedOrUnreadableRanges,
  fetchedRanges,
  isFetched,
  isUnreadable,
  type LedgerRange,
  mergeLearnedRanges,
  nextRefusal,
  REFUSAL_WAITS_MS,
  rangesFromPoints,
  refusalWaitMs,
  toRanges,
  toStoredRanges,
} from "./ledger-ranges.ts";

/** Ledger of one series: fetched and refused ranges. A refused range is a gap; the refusal "no log" is a response. */

export type EmittedValues = Map<number, TagValue>;

export interface SeriesRules extends BucketRules {
  /** Interval of following; infinite for a series that only backfill requests need. */
  readonly everyMs: number;
  readonly backfillMs: number;
  readonly graceMs: number;
  readonly lookBackMs: number;
}

export function createLedger(rules: SeriesRules, nowMs: number): StoredHistory {
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

function targetStartMs(sinceMs: number, rules: SeriesRules): number {
  return bucketStart(sinceMs - rules.backfillMs, rules);
}

export function adaptLedger(ledger: StoredHistory, rules: SeriesRules, nowMs: number): StoredHistory {
  const { state, refusal } = ledger;
  if (ledger.timeZone !== rules.timeZone) return { ...createLedger(rules, nowMs), state, refusal };
  const targetMs = targetStartMs(parseTime(ledger.since), rules);
  return targetMs < parseTime(ledger.wished) - DAY_MS ? { ...ledger, wished: isoUtc(targetMs) } : ledger;
}

export function closedUntilMs(rules: SeriesRules, nowMs: number): number {
  return bucketStart(nowMs - rules.graceMs, rules);
}

export function rangeToFollow(
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
  toMs = closedUntilMs(rules, nowMs),
): Range | null {
  const isDue = subtractTimeByRules(toMs, Math.max(1, rules.everyMs), rules) >= parseTime(ledger.watermark);
  if (ledger.rereadFrom === null && !isDue) return null;
  const fromMs = ledger.rereadFrom === null ? lookBackStartMs(ledger, rules, nowMs) : parseTime(ledger.rereadFrom);
  return toMs > fromMs ? { fromMs, toMs } : null;
}

export function fetchedSinceMs(ledger: StoredHistory): number {
  const watermarkMs = parseTime(ledger.watermark);
  return fetchedOrUnreadableRanges(ledger.spans).find(({ toMs }) => toMs >= watermarkMs)?.fromMs ?? watermarkMs;
}

/** True if days follow the calendar: 24 fixed hours would skip a fetch half a second early, or after 23 hours. */
function countsCalendarDays({ resolution, everyMs }: SeriesRules): boolean {
  return (everyMs >= DAY_MS && Number.isFinite(everyMs)) || (resolution !== "5m" && resolution !== "1h");
}

export function subtractTimeByRules(atMs: number, lengthMs: number, rules: SeriesRules): number {
  return countsCalendarDays(rules) ? subtractCalendarTime(atMs, lengthMs, rules.timeZone) : atMs - lengthMs;
}

function isRereadDue(at: string, days: number, rules: SeriesRules, nowMs: number): boolean {
  if (!countsCalendarDays(rules)) return nowMs - parseTime(at) >= days * DAY_MS;
  return localDayNumber(nowMs, rules.timeZone) - localDayNumber(parseTime(at), rules.timeZone) >= days;
}

/** Start of a fetch: two buckets back each time, the last day once a day, the complete look-back once a week. */
function lookBackStartMs(ledger: StoredHistory, rules: SeriesRules, nowMs: number): number {
  const { dailyAt, weeklyAt } = ledger;
  const watermarkMs = parseTime(ledger.watermark);
  let fromMs = bucketBefore(bucketBefore(watermarkMs, rules), rules);
  if (isRereadDue(dailyAt, 1, rules, nowMs))
    fromMs = Math.min(fromMs, subtractTimeByRules(parseTime(dailyAt), Math.min(rules.lookBackMs, DAY_MS), rules));
  if (isRereadDue(weeklyAt, 7, rules, nowMs))
    fromMs = Math.min(fromMs, subtractTimeByRules(parseTime(weeklyAt), rules.lookBackMs, rules));
  // Points before the fetched range belong to the backfill.
  const leastMs = Math.min(watermarkMs, Math.max(fetchedSinceMs(ledger), parseTime(ledger.rememberedFrom)));
  const firstCompleteBucket = bucketEnd(bucketStart(leastMs - 1, rules), rules);
  return Math.max(bucketStart(fromMs, rules), firstCompleteBucket);
}

export interface SettledPoints {
  readonly ledger: StoredHistory;
  /** Points emitted for the first time; ascending and distinct. */
  readonly fresh: Points;
  /** Points emitted before with another value; ascending and distinct. */
  readonly revised: Points;
}

export function settleFollowing(
  ledger: StoredHistory,
  rules: SeriesRules,
  points: Points,
  range: Range,
  emitted: EmittedValues,
  nowMs: number,
  learn: (answered: readonly LedgerRange[]) => readonly LedgerRange[] = (answered) => answered,
): SettledPoints {
  const { fromMs } = range;
  const fresh = new Points();
  const revised = new Points();
  // If the clock was ahead at the request, only closed buckets of the range count.
  let toMs = Math.min(range.toMs, Math.max(fromMs, closedUntilMs(rules, nowMs)));
  const all = points.ascending();
  // Points emitted before `rememberedFrom` are not stored.
  const first = Math.max(indexByBucketEnd(all, fromMs, ledger), all.firstIndexFrom(parseTime(ledger.rememberedFrom)));
  const inside = all.part(Math.min(first, all.firstIndexFrom(fromMs)), all.firstIndexFrom(range.toMs));
  for (let at = 0; at < inside.length; at++) {
    const atMs = inside.timeMs(at);
    const endMs = bucketEnd(atMs, rules);
    // Skip a bucket that the service ends after the range; accept one at the start, so that the watermark advances.
    if (endMs + rules.graceMs > nowMs || (endMs > range.toMs && atMs > fromMs)) toMs = Math.min(toMs, atMs);
    else if (!emitted.has(atMs)) fresh.copy(inside, at);
    else if (emitted.get(atMs) !== inside.value(at)) revised.copy(inside, at);
  }
  const isDone = range.toMs >= parseTime(ledger.watermark);
  // A request sent before midnight and answered after it did not reach back for the new day.
  const reachesBack = ledger.rereadFrom === null && fromMs <= lookBackStartMs(ledger, rules, nowMs);
  const rereadAt = (at: string, days: number) =>
    reachesBack && isRereadDue(at, days, rules, nowMs) ? isoUtc(nowMs) : at;
  const next: StoredHistory = {
    ...addRanges(ledger, learn(rangesFromPoints(points, { fromMs, toMs }, rules))),
    rereadFrom: isDone ? null : isoUtc(toMs),
    dailyAt: rereadAt(ledger.dailyAt, 1),
    weeklyAt: rereadAt(ledger.weeklyAt, 7),
    state: "following",
    refusal: null,
  };
  return { ledger: { ...next, rememberedFrom: isoUtc(retainedFromMs(next, rules)) }, fresh, revised };
}

/** Settles the past: points of gaps are new. `learned`: ranges that the response states, possibly longer. */
export function settlePast(
  ledger: StoredHistory,
  points: Points,
  range: Range,
  learned = rangesFromPoints(points, range, ledger),
): SettledPoints {
  const all = points.ascending();
  const index = (atMs: number) => indexByBucketEnd(all, atMs, ledger);
  const fresh = Points.joined(findGaps(ledger, range).map(({ fromMs, toMs }) => all.part(index(fromMs), index(toMs))));
  return { ledger: addRanges(ledger, learned), fresh, revised: new Points() };
}

/** Index of the first point whose bucket ends after a time: a bucket across two ranges belongs to the later range. */
function indexByBucketEnd(all: Points, atMs: number, rules: BucketRules): number {
  let index = all.firstIndexFrom(atMs);
  while (index > 0 && bucketEnd(all.timeMs(index - 1), rules) > atMs) index -= 1;
  return index;
}

export function addRanges(before: StoredHistory, learned: readonly LedgerRange[]): StoredHistory {
  const ledger = { ...before, spans: mergeLearnedRanges(before.spans, learned, before.resolution) };
  const watermarkMs = parseTime(ledger.watermark);
  const ranges = fetchedOrUnreadableRanges(ledger.spans);
  const answered = ranges.find(({ fromMs, toMs }) => fromMs <= watermarkMs && toMs > watermarkMs);
  return answered === undefined ? ledger : { ...ledger, watermark: isoUtc(answered.toMs) };
}

export function findGaps(ledger: StoredHistory, range: Range): readonly Range[] {
  return subtract(range, fetchedRanges(ledger.spans));
}

export interface GapPart extends Range {
  readonly isSingle: boolean;
  readonly unreadable?: true;
}

export function gapParts(ledger: StoredHistory, range: Range, nowMs: number): readonly GapPart[] {
  const gaps = findGaps(ledger, range);
  const refused = toRanges(ledger.spans).filter((span) => !isFetched(span));
  const due = refused.filter(({ againAt }) => againAt === undefined || parseTime(againAt) <= nowMs);
  return gaps
    .flatMap((gap): readonly GapPart[] => [
      ...subtract(gap, refused).map((part) => ({ ...part, isSingle: false })),
      ...due.flatMap((span) => {
        const unreadable = isUnreadable(span) ? { unreadable: true as const } : {};
        return clipTo(span, gap).map((part) => ({ ...part, isSingle: true, ...unreadable }));
      }),
    ])
    .toSorted((a, b) => a.fromMs - b.fromMs);
}

export function targetPastRange(ledger: StoredHistory): Range {
  return { fromMs: Math.min(parseTime(ledger.wished), parseTime(ledger.since)), toMs: parseTime(ledger.watermark) };
}

function retainedFromMs(ledger: StoredHistory, rules: SeriesRules): number {
  let threeBack = parseTime(ledger.watermark);
  for (let i = 0; i < 3; i++) threeBack = bucketBefore(threeBack, rules);
  const rereadMs = Math.min(parseTime(ledger.weeklyAt), parseTime(ledger.dailyAt));
  const lookBack = subtractTimeByRules(rereadMs, rules.lookBackMs, rules);
  const reread = ledger.rereadFrom === null ? Number.POSITIVE_INFINITY : parseTime(ledger.rereadFrom);
  return Math.max(parseTime(ledger.rememberedFrom), Math.min(threeBack, lookBack, reread));
}

/** A tag that never had a log waits a day, then twice as long each time, up to 32 days. */
const NO_LOG_WAIT_DOUBLINGS_MAX = 5;

function noLogWaitMs(times: number, wasEverAnswered: boolean): number {
  // A tag that had a log may have a log again soon: long waits follow the short ones.
  const never = wasEverAnswered ? times - REFUSAL_WAITS_MS.length : times;
  return never < 1 ? refusalWaitMs(times) : DAY_MS * 2 ** Math.min(NO_LOG_WAIT_DOUBLINGS_MAX, never - 1);
}

export function recordNoLog(ledger: StoredHistory, said: string, nowMs: number): StoredHistory {
  const timesBefore = ledger.state === "no-log" ? (ledger.refusal?.times ?? 0) : 0;
  const waitMs = (times: number) => noLogWaitMs(times, wasEverAnswered(ledger));
  return { ...ledger, state: "no-log", refusal: nextRefusal(timesBefore, said, nowMs, waitMs) };
}

export function recordRefusal(ledger: StoredHistory, said: string, nowMs: number, reason?: "unreadable") {
  const { state, refusal } = ledger;
  // "No log" remains valid; only the retry failed.
  if (state === "no-log")
    return { ...ledger, refusal: refusal && { ...refusal, againAt: isoUtc(nowMs + refusalWaitMs(1)) } };
  const next = nextRefusal(refusal?.times ?? 0, said, nowMs);
  return { ...ledger, refusal: reason === undefined ? next : { ...next, reason } };
}

export function recordPastRefusal(ledger: StoredHistory, range: Range, said: string, nowMs: number): StoredHistory {
  const before = toRanges(ledger.spans).filter((span) => span.why === "refused" && clipTo(span, range).length > 0);
  const times = Math.max(0, ...before.map((span) => span.times ?? 0));
  const refused: LedgerRange = { ...range, why: "refused", ...nextRefusal(times, said, nowMs) };
  return { ...ledger, spans: mergeLearnedRanges(ledger.spans, [refused], ledger.resolution) };
}

export function isBackingOff({ refusal }: StoredHistory, nowMs: number): boolean {
  return refusal !== null && parseTime(refusal.againAt) > nowMs;
}

/** Requires two refusals "no log", ten minutes apart, for a tag that had a log. */
export function hasNoLog(ledger: StoredHistory): boolean {
  return ledger.state === "no-log" && (!wasEverAnswered(ledger) || (ledger.refusal?.times ?? 0) > 1);
}

function wasEverAnswered({ spans }: StoredHistory): boolean {
  return spans.some(({ why, said }) => why === "points" || (why === "null" && said === undefined));
}

/** Turns responses "no log" into gaps: the service also sends them for tags that the token does not see. */
export function retractNoLog(ledger: StoredHistory, after: string, total: boolean): StoredHistory {
  const isDoubted = ({ why, at = "" }: LedgerRange) => why === "no-log" && at >= after;
  const ranges = toRanges(ledger.spans);
  const first = ranges.find(isDoubted);
  let back = ledger;
  if (first !== undefined) {
    // Totals only go forward, so totals restart at the first retracted range.
    const watermark = total ? isoUtc(Math.min(parseTime(ledger.watermark), first.fromMs)) : ledger.watermark;
    back = { ...ledger, watermark, spans: toStoredRanges(ranges.filter((range) => !isDoubted(range))) };
  }
  if (back.refusal === null || back.refusal.at < after) return back;
  return { ...back, refusal: null, state: back.state === "no-log" ? "unproven" : back.state };
}
