import { DateTime, IANAZone } from "luxon";
import type { Resolution } from "../../../core/model/building.ts";

/** A range of time in milliseconds since 1970; the end is not included. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

export function clip(range: Range, within: Range): readonly Range[] {
  const fromMs = Math.max(range.fromMs, within.fromMs);
  const toMs = Math.min(range.toMs, within.toMs);
  return fromMs < toMs ? [{ fromMs, toMs }] : [];
}

/** Returns the parts of a range outside other ranges, ascending. */
export function subtract(range: Range, taken: readonly Range[]): readonly Range[] {
  const left: Range[] = [];
  let fromMs = range.fromMs;
  for (const each of mergeRanges(taken)) {
    if (each.toMs <= fromMs) continue;
    if (each.fromMs >= range.toMs) break;
    if (each.fromMs > fromMs) left.push({ fromMs, toMs: each.fromMs });
    fromMs = each.toMs;
  }
  return fromMs < range.toMs ? [...left, { fromMs, toMs: range.toMs }] : left;
}

/** Returns the same times in as few ranges as possible, ascending. */
export function mergeRanges(ranges: readonly Range[]): readonly Range[] {
  const result: Range[] = [];
  for (const range of ranges.filter((each) => each.fromMs < each.toMs).sort((a, b) => a.fromMs - b.fromMs)) {
    const last = result.at(-1);
    if (last === undefined || range.fromMs > last.toMs) result.push(range);
    else result[result.length - 1] = { fromMs: last.fromMs, toMs: Math.max(last.toMs, range.toMs) };
  }
  return result;
}

export function totalLength(ranges: readonly Range[]): number {
  return ranges.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0);
}

/** Caches a pure function of one argument: thousands of series need the same few results. Forgets all when full. */
export function cached<K, V>(compute: (key: K) => V, max = 10_000): (key: K) => V {
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

/** Parses a stored time: thousands of ledgers share few times and are read several times a second. */
export const parseTime = cached((time: string) => Date.parse(time));

/**
 * Which buckets a series has: their length, and the IANA zone whose rules place hours, days, weeks and months.
 *
 * The timestamp of the service is the key of a bucket. The functions below only determine which range to request and
 * whether a bucket can have closed. If a zone is irregular, the look-back corrects points that were emitted too early.
 */
export interface BucketRules {
  readonly resolution: Resolution;
  readonly timeZone: string;
}

const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/** Returns the start of the bucket that contains a time. Weeks begin on Monday. */
export function bucketStart(atMs: number, { resolution, timeZone }: BucketRules): number {
  if (resolution === "5m") return Math.floor(atMs / FIVE_MINUTES_MS) * FIVE_MINUTES_MS;
  if (resolution === "1h") return hourStart(atMs, timeZone);
  const { year, month, day, weekday } = DateTime.fromMillis(atMs, { zone: timeZone });
  if (resolution === "1d") return dayStart(DateTime.utc(year, month, day), timeZone);
  if (resolution === "1mo") return dayStart(DateTime.utc(year, month), timeZone);
  return dayStart(DateTime.utc(year, month, day).minus({ days: weekday - 1 }), timeZone);
}

/**
 * Returns the end of a bucket, counted from the start that the service states: so a service is supported whose weeks
 * begin on another day, or whose days are those of another zone. For example, 23:45 in Kathmandu is 18:00 in UTC: an
 * hour that begins there ends at 19:00 in UTC.
 */
export function bucketEnd(startMs: number, rules: BucketRules): number {
  const { resolution, timeZone } = rules;
  if (resolution === "5m") return startMs + FIVE_MINUTES_MS;
  if (resolution === "1h")
    return hourStart(startMs, timeZone) === startMs ? nextHour(startMs, timeZone) : startMs + HOUR_MS;
  const local = DateTime.fromMillis(startMs, { zone: timeZone });
  const date = DateTime.utc(local.year, local.month, local.day);
  const next = date.plus(resolution === "1mo" ? { months: 1 } : { days: resolution === "1w" ? 7 : 1 });
  const endMs = dayStart(next, timeZone);
  const intoDayMs = startMs - dayStart(date, timeZone);
  // A day of another zone has 24 hours even if ours has 23.
  if (intoDayMs > 0) return Math.max(endMs + intoDayMs, startMs + next.toMillis() - date.toMillis());
  // A date that the zone skips begins with the next one, and the date before it ends there, too.
  return endMs > startMs ? endMs : bucketEnd(startMs + DAY_MS, rules);
}

export function bucketBefore(atMs: number, rules: BucketRules): number {
  return bucketStart(bucketStart(atMs, rules) - 1, rules);
}

export function bucketFinder(rules: BucketRules): (atMs: number) => number {
  let [startMs, endMs] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  return (atMs) => {
    if (atMs >= startMs && atMs < endMs) return startMs;
    startMs = bucketStart(atMs, rules);
    endMs = bucketEnd(startMs, rules);
    return startMs;
  };
}

export function bucketsIn(
  day: number,
  { resolution, timeZone }: BucketRules,
  range: Range = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS },
): number {
  const [part] = clip(range, { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS });
  if (part === undefined) return 0;
  const { fromMs, toMs } = part;
  if (resolution === "5m") return Math.ceil(toMs / FIVE_MINUTES_MS) - Math.ceil(fromMs / FIVE_MINUTES_MS);
  return startsOf(resolution)(timeZone)(day).reduce((sum, at) => sum + (at >= fromMs && at < toMs ? 1 : 0), 0);
}

/** Starts of the buckets of a UTC day, ascending; a week or a month begins on few days. */
const startsOf = cached((resolution: Resolution) =>
  cached((timeZone: string) =>
    cached((day: number) => {
      const rules = { resolution, timeZone };
      const first = bucketStart(day * DAY_MS, rules);
      const starts: number[] = [];
      for (let at = first; at < (day + 1) * DAY_MS; at = bucketEnd(at, rules)) if (at >= day * DAY_MS) starts.push(at);
      return starts;
    }, 5_000),
  ),
);

/** Returns the number of the local date that contains a time. The next date has the next number. */
export function localDay(atMs: number, zone: string): number {
  return Math.floor((atMs + offsetMs(atMs, zone)) / DAY_MS);
}

/**
 * Returns the time that is a length earlier; complete days are counted by the calendar. A day before Monday 00:30 is
 * Sunday 00:30, also if that Sunday had 23 or 25 hours.
 */
export function timeBefore(atMs: number, lengthMs: number, zone: string): number {
  const earlierMs = atMs - lengthMs;
  if (!Number.isFinite(earlierMs) || offsetMs(earlierMs, zone) === offsetMs(atMs, zone)) return earlierMs;
  const days = Math.floor(lengthMs / DAY_MS);
  return DateTime.fromMillis(atMs, { zone }).minus({ days }).toMillis() - (lengthMs - days * DAY_MS);
}

/** Offset of a zone at an hour since 1970; 10,000 hours take half a megabyte. The date formatter is 100 times as slow. */
const offsetAtHour = cached((zone: string) => cached((hour: number) => exactOffsetMs(hour * HOUR_MS, zone)));

function exactOffsetMs(atMs: number, zone: string): number {
  return IANAZone.create(zone).offset(atMs) * 60_000;
}

/** No zone changes twice within an hour: if both ends have the same offset, the hour has it. */
function offsetMs(atMs: number, zone: string): number {
  const hour = Math.floor(atMs / HOUR_MS);
  const offset = offsetAtHour(zone)(hour);
  return offset === offsetAtHour(zone)(hour + 1) ? offset : exactOffsetMs(atMs, zone);
}

/** Returns the start of a local hour, cut where the clocks change within it (Lord Howe moves by 30 minutes). */
function hourStart(atMs: number, zone: string): number {
  const offset = offsetMs(atMs, zone);
  const start = Math.floor((atMs + offset) / HOUR_MS) * HOUR_MS - offset;
  if (offsetMs(start, zone) === offset) return start;
  return firstMinute(start, atMs, (ms) => offsetMs(ms, zone) === offset);
}

function nextHour(startMs: number, zone: string): number {
  const offset = offsetMs(startMs, zone);
  const endMs = (Math.floor((startMs + offset) / HOUR_MS) + 1) * HOUR_MS - offset;
  if (offsetMs(endMs - 1, zone) === offset) return endMs;
  return firstMinute(startMs, endMs, (ms) => offsetMs(ms, zone) !== offset);
}

/** Returns the moment at which a local date begins: midnight, or later if the zone skips midnight or the day. */
function dayStart(date: DateTime, zone: string): number {
  const midnight = date.toMillis();
  const guess = midnight - offsetMs(midnight - offsetMs(midnight + 12 * HOUR_MS, zone), zone);
  const hasBegun = (ms: number) => ms + offsetMs(ms, zone) >= midnight;
  if (hasBegun(guess) && !hasBegun(guess - 1)) return guess;
  return firstMinute(guess - 30 * HOUR_MS, guess + 30 * HOUR_MS, hasBegun);
}

function firstMinute(fromMs: number, toMs: number, holds: (ms: number) => boolean): number {
  let before = Math.floor(fromMs / 60_000);
  let after = Math.ceil(toMs / 60_000);
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (holds(middle * 60_000)) after = middle;
    else before = middle;
  }
  return after * 60_000;
}

/** Formats a time as the interface requires: whole seconds and a trailing Z. */
export function rangeTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
