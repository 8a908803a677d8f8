import { DateTime, IANAZone } from "luxon";
import type { Resolution } from "../../../core/model/building.ts";

/** Range of time in milliseconds since 1970; the end is exclusive. */
export interface TimeRange {
  readonly fromMs: number;
  readonly toMs: number;
}

export function clipRange(range: TimeRange, within: TimeRange): readonly TimeRange[] {
  const fromMs = Math.max(range.fromMs, within.fromMs);
  const toMs = Math.min(range.toMs, within.toMs);
  return fromMs < toMs ? [{ fromMs, toMs }] : [];
}

export function subtractRanges(range: TimeRange, takenRanges: readonly TimeRange[]): readonly TimeRange[] {
  const remainingRanges: TimeRange[] = [];
  let fromMs = range.fromMs;
  for (const takenRange of mergeRanges(takenRanges)) {
    if (takenRange.toMs <= fromMs) continue;
    if (takenRange.fromMs >= range.toMs) break;
    if (takenRange.fromMs > fromMs) remainingRanges.push({ fromMs, toMs: takenRange.fromMs });
    fromMs = takenRange.toMs;
  }
  return fromMs < range.toMs ? [...remainingRanges, { fromMs, toMs: range.toMs }] : remainingRanges;
}

export function mergeRanges(ranges: readonly TimeRange[]): readonly TimeRange[] {
  const result: TimeRange[] = [];
  for (const nextRange of ranges.filter((each) => each.fromMs < each.toMs).sort((a, b) => a.fromMs - b.fromMs)) {
    const lastRange = result.at(-1);
    if (lastRange === undefined || nextRange.fromMs > lastRange.toMs) result.push(nextRange);
    else result[result.length - 1] = { fromMs: lastRange.fromMs, toMs: Math.max(lastRange.toMs, nextRange.toMs) };
  }
  return result;
}

export function totalLengthMs(ranges: readonly TimeRange[]): number {
  return ranges.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0);
}

/** Caches the results of a pure function; clears the cache when full. Thousands of series share few results. */
export function memoize<K, V>(compute: (key: K) => V, max = 10_000): (key: K) => V {
  const results = new Map<K, V>();
  return (key) => {
    let result = results.get(key);
    if (result === undefined) {
      if (results.size >= max) results.clear();
      result = compute(key);
      results.set(key, result);
    }
    return result;
  };
}

export const parseTime = memoize((time: string) => Date.parse(time));

export interface BucketRules {
  readonly resolution: Resolution;
  readonly timeZone: string;
}

const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

export function bucketStart(atMs: number, { resolution, timeZone }: BucketRules): number {
  if (resolution === "5m") return Math.floor(atMs / FIVE_MINUTES_MS) * FIVE_MINUTES_MS;
  if (resolution === "1h") return localHourStart(atMs, timeZone);
  const { year, month, day, weekday } = DateTime.fromMillis(atMs, { zone: timeZone });
  if (resolution === "1d") return localDayStart(DateTime.utc(year, month, day), timeZone);
  if (resolution === "1mo") return localDayStart(DateTime.utc(year, month), timeZone);
  return localDayStart(DateTime.utc(year, month, day).minus({ days: weekday - 1 }), timeZone);
}

/** End of a bucket with the service's start: an hour from 18:00 UTC (23:45 in Kathmandu) ends at 19:00 UTC. */
export function bucketEnd(startMs: number, rules: BucketRules): number {
  const { resolution, timeZone } = rules;
  if (resolution === "5m") return startMs + FIVE_MINUTES_MS;
  if (resolution === "1h")
    return localHourStart(startMs, timeZone) === startMs ? nextLocalHourStart(startMs, timeZone) : startMs + HOUR_MS;
  const localTime = DateTime.fromMillis(startMs, { zone: timeZone });
  const date = DateTime.utc(localTime.year, localTime.month, localTime.day);
  const nextDate = date.plus(resolution === "1mo" ? { months: 1 } : { days: resolution === "1w" ? 7 : 1 });
  const endMs = localDayStart(nextDate, timeZone);
  const intoDayMs = startMs - localDayStart(date, timeZone);
  // A bucket that starts at midnight of another zone has 24 hours even if the local day has 23.
  if (intoDayMs > 0) return Math.max(endMs + intoDayMs, startMs + nextDate.toMillis() - date.toMillis());
  // A date that the zone skips has no end of its own: take the end of the next date.
  return endMs > startMs ? endMs : bucketEnd(startMs + DAY_MS, rules);
}

export const bucketBefore = (atMs: number, rules: BucketRules) => bucketStart(bucketStart(atMs, rules) - 1, rules);

export function bucketStartFinder(rules: BucketRules): (atMs: number) => number {
  let [startMs, endMs] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  return (atMs) => {
    if (atMs >= startMs && atMs < endMs) return startMs;
    startMs = bucketStart(atMs, rules);
    endMs = bucketEnd(startMs, rules);
    return startMs;
  };
}

export function countBuckets(
  day: number,
  { resolution, timeZone }: BucketRules,
  range: TimeRange = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS },
): number {
  const [part] = clipRange(range, { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS });
  if (part === undefined) return 0;
  const { fromMs, toMs } = part;
  if (resolution === "5m") return Math.ceil(toMs / FIVE_MINUTES_MS) - Math.ceil(fromMs / FIVE_MINUTES_MS);
  return bucketStartsOfDay(resolution)(timeZone)(day).reduce((sum, at) => sum + (at >= fromMs && at < toMs ? 1 : 0), 0);
}

const bucketStartsOfDay = memoize((resolution: Resolution) =>
  memoize((timeZone: string) =>
    memoize((day: number) => {
      const bucketRules = { resolution, timeZone };
      const firstStartMs = bucketStart(day * DAY_MS, bucketRules);
      const bucketStarts: number[] = [];
      for (let startMs = firstStartMs; startMs < (day + 1) * DAY_MS; startMs = bucketEnd(startMs, bucketRules))
        if (startMs >= day * DAY_MS) bucketStarts.push(startMs);
      return bucketStarts;
    }, 5_000),
  ),
);

export const localDayNumber = (atMs: number, zone: string) => Math.floor((atMs + zoneOffsetMs(atMs, zone)) / DAY_MS);

/** Subtracts complete days by the calendar: a day before Monday 00:30 is Sunday 00:30, even if Sunday had 23 hours. */
export function subtractCalendarTime(atMs: number, lengthMs: number, zone: string): number {
  const earlierMs = atMs - lengthMs;
  if (!Number.isFinite(earlierMs) || zoneOffsetMs(earlierMs, zone) === zoneOffsetMs(atMs, zone)) return earlierMs;
  const days = Math.floor(lengthMs / DAY_MS);
  return DateTime.fromMillis(atMs, { zone }).minus({ days }).toMillis() - (lengthMs - days * DAY_MS);
}

const zoneOffsetAtHour = memoize((zone: string) => memoize((hour: number) => computeOffsetMs(hour * HOUR_MS, zone)));

const computeOffsetMs = (atMs: number, zone: string): number => IANAZone.create(zone).offset(atMs) * 60_000;

/** Offset of a zone from UTC. No zone changes twice within an hour, so equal offsets at both ends are exact. */
function zoneOffsetMs(atMs: number, zone: string): number {
  const hour = Math.floor(atMs / HOUR_MS);
  const offset = zoneOffsetAtHour(zone)(hour);
  return offset === zoneOffsetAtHour(zone)(hour + 1) ? offset : computeOffsetMs(atMs, zone);
}

/** Start of a local hour, cut where the clocks change within the hour (Lord Howe moves by 30 minutes). */
function localHourStart(atMs: number, zone: string): number {
  const offset = zoneOffsetMs(atMs, zone);
  const start = Math.floor((atMs + offset) / HOUR_MS) * HOUR_MS - offset;
  if (zoneOffsetMs(start, zone) === offset) return start;
  return findFirstMinute(start, atMs, (ms) => zoneOffsetMs(ms, zone) === offset);
}

function nextLocalHourStart(startMs: number, zone: string): number {
  const offset = zoneOffsetMs(startMs, zone);
  const endMs = (Math.floor((startMs + offset) / HOUR_MS) + 1) * HOUR_MS - offset;
  if (zoneOffsetMs(endMs - 1, zone) === offset) return endMs;
  return findFirstMinute(startMs, endMs, (ms) => zoneOffsetMs(ms, zone) !== offset);
}

/** Start of a local day: midnight, or later if the zone skips midnight or the day. */
function localDayStart(date: DateTime, zone: string): number {
  const midnight = date.toMillis();
  const guessedStartMs = midnight - zoneOffsetMs(midnight - zoneOffsetMs(midnight + 12 * HOUR_MS, zone), zone);
  const hasBegun = (ms: number) => ms + zoneOffsetMs(ms, zone) >= midnight;
  if (hasBegun(guessedStartMs) && !hasBegun(guessedStartMs - 1)) return guessedStartMs;
  return findFirstMinute(guessedStartMs - 30 * HOUR_MS, guessedStartMs + 30 * HOUR_MS, hasBegun);
}

function findFirstMinute(fromMs: number, toMs: number, isTrueAt: (ms: number) => boolean): number {
  let minuteBefore = Math.floor(fromMs / 60_000);
  let minuteAfter = Math.ceil(toMs / 60_000);
  while (minuteAfter - minuteBefore > 1) {
    const middleMinute = Math.floor((minuteBefore + minuteAfter) / 2);
    if (isTrueAt(middleMinute * 60_000)) minuteAfter = middleMinute;
    else minuteBefore = middleMinute;
  }
  return minuteAfter * 60_000;
}

export const formatUtc = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19)}Z`;
