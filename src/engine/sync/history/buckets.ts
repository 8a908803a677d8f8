import { DateTime, IANAZone } from "luxon";
import type { Resolution } from "../../../core/model/building.ts";

/** Milliseconds since 1970, without the end. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

export function clip(range: Range, within: Range): readonly Range[] {
  const fromMs = Math.max(range.fromMs, within.fromMs);
  const toMs = Math.min(range.toMs, within.toMs);
  return fromMs < toMs ? [{ fromMs, toMs }] : [];
}

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

/** Caches a pure function; clears the cache when full. Thousands of series share few results. */
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

export const parseTime = cached((time: string) => Date.parse(time));

/** IANA zone of hours, days, weeks and months. The service's timestamp remains the key of a bucket. */
export interface BucketRules {
  readonly resolution: Resolution;
  readonly timeZone: string;
}

const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

export function bucketStart(atMs: number, { resolution, timeZone }: BucketRules): number {
  if (resolution === "5m") return Math.floor(atMs / FIVE_MINUTES_MS) * FIVE_MINUTES_MS;
  if (resolution === "1h") return hourStart(atMs, timeZone);
  const { year, month, day, weekday } = DateTime.fromMillis(atMs, { zone: timeZone });
  if (resolution === "1d") return dayStart(DateTime.utc(year, month, day), timeZone);
  if (resolution === "1mo") return dayStart(DateTime.utc(year, month), timeZone);
  return dayStart(DateTime.utc(year, month, day).minus({ days: weekday - 1 }), timeZone);
}

/**
 * Counts from the service's start, as its days may differ: 18:00 UTC is 23:45 in Kathmandu, the hour ends 19:00 UTC.
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
  // A date that the zone skips begins with the next date, and the date before it ends there, too.
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

export function localDay(atMs: number, zone: string): number {
  return Math.floor((atMs + offsetMs(atMs, zone)) / DAY_MS);
}

/** Counts complete days by the calendar: a day before Monday 00:30 is Sunday 00:30, even if Sunday had 23 hours. */
export function timeBefore(atMs: number, lengthMs: number, zone: string): number {
  const earlierMs = atMs - lengthMs;
  if (!Number.isFinite(earlierMs) || offsetMs(earlierMs, zone) === offsetMs(atMs, zone)) return earlierMs;
  const days = Math.floor(lengthMs / DAY_MS);
  return DateTime.fromMillis(atMs, { zone }).minus({ days }).toMillis() - (lengthMs - days * DAY_MS);
}

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

/** Start of a local hour, cut where the clocks change within the hour (Lord Howe moves by 30 minutes). */
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

/** Midnight, or later if the zone skips midnight or the day. */
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

export function rangeTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
