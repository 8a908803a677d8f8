import { DateTime, IANAZone } from "luxon";
import type { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";

/** A range of time in milliseconds since 1970; the end is not included. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Returns the parts of a range outside other ranges, ascending. Pure. */
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

/**
 * Buckets of a series by the rules of its zone, never by adding 86,400 s. Times are milliseconds since 1970.
 *
 * The timestamp of the service is the key of a bucket. These functions only determine which range to request and whether
 * a bucket can have closed. If a zone is irregular, the look-back corrects points that were emitted too early.
 */

const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Returns the start of the bucket that contains a time. Weeks begin on Monday. */
export function bucketStart(atMs: number, resolution: Resolution, zone: string): number {
  if (resolution === "5m") return Math.floor(atMs / FIVE_MINUTES_MS) * FIVE_MINUTES_MS;
  if (resolution === "1h") return hourStart(atMs, zone);
  const local = DateTime.fromMillis(atMs, { zone });
  if (resolution === "1d") return dayStart(local.year, local.month, local.day, zone);
  if (resolution === "1mo") return dayStart(local.year, local.month, 1, zone);
  const monday = DateTime.utc(local.year, local.month, local.day).minus({ days: local.weekday - 1 });
  return dayStart(monday.year, monday.month, monday.day, zone);
}

/**
 * Returns the end of a bucket, counted from the start that the service states: so a service is supported whose weeks
 * begin on another day, or whose days are those of another zone. For example, 23:45 in Kathmandu is 18:00 in UTC: an
 * hour that begins there ends at 19:00 in UTC.
 */
export function bucketEnd(startMs: number, resolution: Resolution, zone: string): number {
  if (resolution === "5m") return startMs + FIVE_MINUTES_MS;
  if (resolution === "1h") return hourStart(startMs, zone) === startMs ? nextHour(startMs, zone) : startMs + HOUR_MS;
  const local = DateTime.fromMillis(startMs, { zone });
  const date = DateTime.utc(local.year, local.month, local.day);
  const next =
    resolution === "1d"
      ? date.plus({ days: 1 })
      : resolution === "1w"
        ? date.plus({ days: 7 })
        : date.plus({ months: 1 });
  const endMs = dayStart(next.year, next.month, next.day, zone);
  const intoDayMs = startMs - dayStart(local.year, local.month, local.day, zone);
  // A day of another zone has 24 hours even if ours has 23.
  if (intoDayMs > 0) return Math.max(endMs + intoDayMs, startMs + next.toMillis() - date.toMillis());
  // A date that the zone skips begins with the next one, and the date before it ends there, too.
  return endMs > startMs ? endMs : bucketEnd(startMs + 24 * HOUR_MS, resolution, zone);
}

/** Returns the start of the bucket before the one that contains a time. */
export function bucketBefore(atMs: number, resolution: Resolution, zone: string): number {
  return bucketStart(bucketStart(atMs, resolution, zone) - 1, resolution, zone);
}

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
  if (!Number.isFinite(earlierMs)) return earlierMs;
  if (offsetMs(earlierMs, zone) === offsetMs(atMs, zone)) return earlierMs;
  const days = Math.floor(lengthMs / DAY_MS);
  const date = DateTime.fromMillis(atMs, { zone }).minus({ days });
  return date.toMillis() - (lengthMs - days * DAY_MS);
}

/**
 * Offsets of a zone by hour since 1970. A lookup takes a date formatter, 100 times as slow as the rest, and thousands
 * of series need the same hours.
 */
const offsetsByHour = new Map<string, Map<number, number>>();
/** Entries per zone; a year of hours takes half a megabyte. */
const HOURS_MAX = 10_000;

function offsetAtHour(hour: number, zone: string): number {
  const known = offsetsByHour.get(zone) ?? new Map<number, number>();
  offsetsByHour.set(zone, known);
  let offset = known.get(hour);
  if (offset === undefined) {
    if (known.size >= HOURS_MAX) known.clear();
    offset = exactOffsetMs(hour * HOUR_MS, zone);
    known.set(hour, offset);
  }
  return offset;
}

function exactOffsetMs(atMs: number, zone: string): number {
  return IANAZone.create(zone).offset(atMs) * 60_000;
}

/** No zone changes twice within an hour: if both ends have the same offset, the hour has it. */
function offsetMs(atMs: number, zone: string): number {
  const hour = Math.floor(atMs / HOUR_MS);
  const offset = offsetAtHour(hour, zone);
  return offset === offsetAtHour(hour + 1, zone) ? offset : exactOffsetMs(atMs, zone);
}

/** Returns the start of a local hour, cut where the clocks change within it (Lord Howe moves by 30 minutes). */
function hourStart(atMs: number, zone: string): number {
  const offset = offsetMs(atMs, zone);
  const start = Math.floor((atMs + offset) / HOUR_MS) * HOUR_MS - offset;
  if (offsetMs(start, zone) === offset) return start;
  return firstMoment(start, atMs, (ms) => offsetMs(ms, zone) === offset);
}

function nextHour(startMs: number, zone: string): number {
  const offset = offsetMs(startMs, zone);
  const endMs = (Math.floor((startMs + offset) / HOUR_MS) + 1) * HOUR_MS - offset;
  if (offsetMs(endMs - 1, zone) === offset) return endMs;
  return firstMoment(startMs, endMs, (ms) => offsetMs(ms, zone) !== offset);
}

/** Returns the moment at which a local date begins: midnight, or later if the zone skips midnight or the day. */
function dayStart(year: number, month: number, day: number, zone: string): number {
  const noonUtc = Date.UTC(year, month - 1, day, 12);
  const midnight = Date.UTC(year, month - 1, day);
  const guess = midnight - offsetMs(midnight - offsetMs(noonUtc, zone), zone);
  const hasBegun = (ms: number) => ms + offsetMs(ms, zone) >= midnight;
  if (hasBegun(guess) && !hasBegun(guess - 1)) return guess;
  return firstMoment(guess - 30 * HOUR_MS, guess + 30 * HOUR_MS, hasBegun);
}

/** Returns the first minute at which a condition holds, if it does not hold at `fromMs`. */
function firstMoment(fromMs: number, toMs: number, holds: (ms: number) => boolean): number {
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

/** Returns the number of buckets that begin in a UTC day, or in the part of it within a range. */
export function bucketsIn(
  day: number,
  resolution: Resolution,
  zone: string,
  { fromMs, toMs }: Range = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS },
): number {
  const from = Math.max(fromMs, day * DAY_MS);
  const to = Math.min(toMs, (day + 1) * DAY_MS);
  if (from >= to) return 0;
  if (resolution === "5m") return Math.ceil(to / FIVE_MINUTES_MS) - Math.ceil(from / FIVE_MINUTES_MS);
  return bucketsOf(day, resolution, zone).reduce((sum, at) => sum + (at >= from && at < to ? 1 : 0), 0);
}

/** Returns a `bucketStart` that is fast for ascending times. */
export function bucketFinder(resolution: Resolution, zone: string): (atMs: number) => number {
  if (resolution === "5m") return (atMs) => Math.floor(atMs / FIVE_MINUTES_MS) * FIVE_MINUTES_MS;
  let day = Number.NaN;
  let starts: readonly number[] = [];
  let next = 0;
  return (atMs) => {
    const ofDay = dayNumber(atMs);
    if (ofDay !== day || (starts[next - 1] ?? Number.NEGATIVE_INFINITY) > atMs) {
      day = ofDay;
      starts = bucketsOf(day, resolution, zone);
      next = 0;
    }
    while ((starts[next] ?? Number.POSITIVE_INFINITY) <= atMs) next++;
    return starts[next - 1] ?? bucketStart(atMs, resolution, zone);
  };
}

const startsCache = new Map<string, Map<number, readonly number[]>>();
const KNOWN_MAX = 5_000;

function dayNumber(atMs: number): number {
  return Math.floor(atMs / DAY_MS);
}

/** Returns the starts of the buckets of a UTC day, ascending; a week or a month begins on few days. */
function bucketsOf(day: number, resolution: Resolution, zone: string): readonly number[] {
  const key = `${resolution} ${zone}`;
  const days = startsCache.get(key) ?? new Map<number, readonly number[]>();
  const cached = days.get(day);
  if (cached !== undefined) return cached;
  if (days.size >= KNOWN_MAX) days.clear();
  const starts = startsOf(day, resolution, zone);
  days.set(day, starts);
  startsCache.set(key, days);
  return starts;
}

function startsOf(day: number, resolution: Resolution, zone: string): readonly number[] {
  const [beginMs, endMs] = [day * DAY_MS, (day + 1) * DAY_MS];
  const holding = bucketStart(beginMs, resolution, zone);
  let at = holding < beginMs ? bucketEnd(holding, resolution, zone) : holding;
  if (resolution === "1h") {
    // Without a change of the clocks the hours follow each other.
    const last = bucketStart(endMs - 1, resolution, zone);
    if (last - at === 23 * HOUR_MS) return Array.from({ length: 24 }, (_, hour) => at + hour * HOUR_MS);
  }
  const starts: number[] = [];
  for (; at < endMs; at = bucketEnd(at, resolution, zone)) starts.push(at);
  return starts;
}

/** Returns the parts of a range before the first and after the last point that have at least so many buckets. */
export function absentEnds(
  points: Points,
  range: Range,
  { resolution, timeZone }: { readonly resolution: Resolution; readonly timeZone: string },
  leastBuckets: number,
): readonly Range[] {
  if (points.length === 0) return [range];
  const firstMs = points.timeMs(0);
  const lastMs = bucketEnd(points.timeMs(points.length - 1), resolution, timeZone);
  const ends = [
    { fromMs: range.fromMs, toMs: Math.min(range.toMs, firstMs) },
    { fromMs: Math.max(range.fromMs, lastMs), toMs: range.toMs },
  ];
  return ends.filter(({ fromMs, toMs }) => toMs - fromMs >= leastBuckets * BUCKET_MS[resolution]);
}
