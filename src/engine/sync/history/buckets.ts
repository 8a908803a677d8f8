import { DateTime, IANAZone } from "luxon";
import type { Resolution } from "../../../core/model/building.ts";

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
  for (const takenRange of mergeTimeRanges(takenRanges)) {
    if (takenRange.toMs <= fromMs) continue;
    if (takenRange.fromMs >= range.toMs) break;
    if (takenRange.fromMs > fromMs) remainingRanges.push({ fromMs, toMs: takenRange.fromMs });
    fromMs = takenRange.toMs;
  }
  return fromMs < range.toMs ? [...remainingRanges, { fromMs, toMs: range.toMs }] : remainingRanges;
}

export function mergeTimeRanges(ranges: readonly TimeRange[]): readonly TimeRange[] {
  const merged: TimeRange[] = [];
  for (const nextRange of ranges.filter((range) => range.fromMs < range.toMs).sort((a, b) => a.fromMs - b.fromMs)) {
    const lastRange = merged.at(-1);
    if (lastRange === undefined || nextRange.fromMs > lastRange.toMs) merged.push(nextRange);
    else merged[merged.length - 1] = { fromMs: lastRange.fromMs, toMs: Math.max(lastRange.toMs, nextRange.toMs) };
  }
  return merged;
}

export function totalLengthMs(ranges: readonly TimeRange[]): number {
  return ranges.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0);
}

/** Caches results of a pure function, and clears the cache when it is full. */
export function memoizeByKey<K, V>(compute: (key: K) => V, maxEntries = 10_000): (key: K) => V {
  const resultsByKey = new Map<K, V>();
  return (key) => {
    let result = resultsByKey.get(key);
    if (result === undefined) {
      if (resultsByKey.size >= maxEntries) resultsByKey.clear();
      result = compute(key);
      resultsByKey.set(key, result);
    }
    return result;
  };
}

export const parseTime = memoizeByKey((time: string) => Date.parse(time));

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

/** End of the bucket that starts at `startMs`. The start need not be a full hour of the local time zone. */
export function bucketEnd(startMs: number, rules: BucketRules): number {
  const { resolution, timeZone } = rules;
  if (resolution === "5m") return startMs + FIVE_MINUTES_MS;
  if (resolution === "1h")
    return localHourStart(startMs, timeZone) === startMs ? nextLocalHourStart(startMs, timeZone) : startMs + HOUR_MS;
  const localDateTime = DateTime.fromMillis(startMs, { zone: timeZone });
  const localDate = DateTime.utc(localDateTime.year, localDateTime.month, localDateTime.day);
  const nextLocalDate = localDate.plus(resolution === "1mo" ? { months: 1 } : { days: resolution === "1w" ? 7 : 1 });
  const endMs = localDayStart(nextLocalDate, timeZone);
  const timeIntoDayMs = startMs - localDayStart(localDate, timeZone);
  // A day that starts at midnight of another time zone has 24 hours even if the local day has 23.
  if (timeIntoDayMs > 0)
    return Math.max(endMs + timeIntoDayMs, startMs + nextLocalDate.toMillis() - localDate.toMillis());
  // If the time zone skips the date, take the end of the next date.
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
  const [dayPart] = clipRange(range, { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS });
  if (dayPart === undefined) return 0;
  const { fromMs, toMs } = dayPart;
  if (resolution === "5m") return Math.ceil(toMs / FIVE_MINUTES_MS) - Math.ceil(fromMs / FIVE_MINUTES_MS);
  return bucketStartsOfDay(resolution)(timeZone)(day).reduce((sum, ms) => sum + (ms >= fromMs && ms < toMs ? 1 : 0), 0);
}

const bucketStartsOfDay = memoizeByKey((resolution: Resolution) =>
  memoizeByKey((timeZone: string) =>
    memoizeByKey((day: number) => {
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

/** Subtracts days by the calendar: one day before Monday 00:30 is Sunday 00:30, even if Sunday has 23 hours. */
export function subtractCalendarTime(atMs: number, durationMs: number, zone: string): number {
  const earlierMs = atMs - durationMs;
  if (!Number.isFinite(earlierMs) || zoneOffsetMs(earlierMs, zone) === zoneOffsetMs(atMs, zone)) return earlierMs;
  const days = Math.floor(durationMs / DAY_MS);
  return DateTime.fromMillis(atMs, { zone }).minus({ days }).toMillis() - (durationMs - days * DAY_MS);
}

const zoneOffsetAtHour = memoizeByKey((zone: string) =>
  memoizeByKey((hour: number) => computeZoneOffsetMs(hour * HOUR_MS, zone)),
);

const computeZoneOffsetMs = (atMs: number, zone: string): number => IANAZone.create(zone).offset(atMs) * 60_000;

/** Offset of a time zone from UTC. If it is equal at both ends of an hour, it is valid for the complete hour. */
function zoneOffsetMs(atMs: number, zone: string): number {
  const hourNumber = Math.floor(atMs / HOUR_MS);
  const offsetMs = zoneOffsetAtHour(zone)(hourNumber);
  return offsetMs === zoneOffsetAtHour(zone)(hourNumber + 1) ? offsetMs : computeZoneOffsetMs(atMs, zone);
}

/** Start of a local hour, or the time within the hour at which the local clock changes. */
function localHourStart(atMs: number, zone: string): number {
  const offsetMs = zoneOffsetMs(atMs, zone);
  const hourStartMs = Math.floor((atMs + offsetMs) / HOUR_MS) * HOUR_MS - offsetMs;
  if (zoneOffsetMs(hourStartMs, zone) === offsetMs) return hourStartMs;
  return findFirstMinute(hourStartMs, atMs, (ms) => zoneOffsetMs(ms, zone) === offsetMs);
}

function nextLocalHourStart(startMs: number, zone: string): number {
  const offsetMs = zoneOffsetMs(startMs, zone);
  const endMs = (Math.floor((startMs + offsetMs) / HOUR_MS) + 1) * HOUR_MS - offsetMs;
  if (zoneOffsetMs(endMs - 1, zone) === offsetMs) return endMs;
  return findFirstMinute(startMs, endMs, (ms) => zoneOffsetMs(ms, zone) !== offsetMs);
}

/** Start of a local day: midnight, or later if the time zone skips midnight. */
function localDayStart(date: DateTime, zone: string): number {
  const midnight = date.toMillis();
  const guessedStartMs = midnight - zoneOffsetMs(midnight - zoneOffsetMs(midnight + 12 * HOUR_MS, zone), zone);
  const hasDayBegun = (ms: number) => ms + zoneOffsetMs(ms, zone) >= midnight;
  if (hasDayBegun(guessedStartMs) && !hasDayBegun(guessedStartMs - 1)) return guessedStartMs;
  return findFirstMinute(guessedStartMs - 30 * HOUR_MS, guessedStartMs + 30 * HOUR_MS, hasDayBegun);
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
