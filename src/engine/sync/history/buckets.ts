import { DateTime, IANAZone } from "luxon";
import type { Resolution } from "../../../core/model/building.ts";

/** Milliseconds since 1970, the end not included. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** What of a range is left when others are taken out; ascending. Pure. */
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

/** The same times in as few ranges as possible, ascending. */
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
 * The buckets of a series by the rules of its zone; never by adding 86,400 s. Times are milliseconds since 1970.
 *
 * The service's stamp is the key of a bucket. These functions only say which range to ask for and whether a bucket
 * can have closed; where a zone does something odd, the look-back corrects what was told too early.
 */

const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The start of the bucket that holds a time. Weeks begin on Monday. */
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
 * The end of the bucket that the service stamped so, counted from the stamp itself: a service whose weeks begin on
 * another day, or that cuts its days by another zone, is served as well. 23:45 in Kathmandu is 18:00 in UTC: an hour
 * that begins there ends at 19:00 in UTC, not with Kathmandu's hour.
 */
export function bucketEnd(startMs: number, resolution: Resolution, zone: string): number {
  if (resolution === "5m") return startMs + FIVE_MINUTES_MS;
  if (resolution === "1h")
    return hourStart(startMs, zone) === startMs ? nextHour(startMs, zone) : startMs + HOUR_MS;
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
  // Days of another zone have their 24 hours where ours has 23.
  if (intoDayMs > 0) return Math.max(endMs + intoDayMs, startMs + next.toMillis() - date.toMillis());
  // A date that the zone left out begins where the next one does; the one before it ends there too.
  return endMs > startMs ? endMs : bucketEnd(startMs + 24 * HOUR_MS, resolution, zone);
}

/** The start of the bucket before the one that holds a time. */
export function bucketBefore(atMs: number, resolution: Resolution, zone: string): number {
  return bucketStart(bucketStart(atMs, resolution, zone) - 1, resolution, zone);
}

/** Number of the local date that holds a time: two times of one date have the same, and the next date has one more. */
export function localDay(atMs: number, zone: string): number {
  return Math.floor((atMs + offsetMs(atMs, zone)) / DAY_MS);
}

/**
 * The time so long before another one; of the length, whole days are counted by the calendar. A day before Monday 00:30 is
 * Sunday 00:30, also where that Sunday had 23 or 25 hours.
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
 * Offsets of a zone by hour since 1970. To ask for one takes a formatter of dates, a hundred times as long as the rest,
 * and whoever looks what has closed asks for each series about the same hours.
 */
const offsetsByHour = new Map<string, Map<number, number>>();
/** A year of hours takes half a megabyte; what was forgotten is asked for again. */
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

/** No zone changes twice within an hour: where both ends of it have the same offset, all of it has. */
function offsetMs(atMs: number, zone: string): number {
  const hour = Math.floor(atMs / HOUR_MS);
  const offset = offsetAtHour(hour, zone);
  return offset === offsetAtHour(hour + 1, zone) ? offset : exactOffsetMs(atMs, zone);
}

/** A local hour, cut where the clocks change in the middle of one (Lord Howe moves by 30 minutes). */
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

/** The moment at which a local date begins: midnight, or later where the zone leaves midnight (or the day) out. */
function dayStart(year: number, month: number, day: number, zone: string): number {
  const noonUtc = Date.UTC(year, month - 1, day, 12);
  const midnight = Date.UTC(year, month - 1, day);
  const guess = midnight - offsetMs(midnight - offsetMs(noonUtc, zone), zone);
  const hasBegun = (ms: number) => ms + offsetMs(ms, zone) >= midnight;
  if (hasBegun(guess) && !hasBegun(guess - 1)) return guess;
  return firstMoment(guess - 30 * HOUR_MS, guess + 30 * HOUR_MS, hasBegun);
}

/** The first moment (to the minute, as zones change) at which something holds, when it does not at `fromMs`. */
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

/** As the interface wants a range: whole seconds and a trailing Z. */
export function rangeTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** How many buckets begin in a day, and within a range where one is given. */
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

/** The start of the bucket that holds a time, as `bucketStart`, and fast for times that ascend. */
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

/** Where the buckets of a day begin, ascending; a week or a month begins in few. */
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
    // Most days have no change of the clocks, and then the hours follow each other.
    const last = bucketStart(endMs - 1, resolution, zone);
    if (last - at === 23 * HOUR_MS) return Array.from({ length: 24 }, (_, hour) => at + hour * HOUR_MS);
  }
  const starts: number[] = [];
  for (; at < endMs; at = bucketEnd(at, resolution, zone)) starts.push(at);
  return starts;
}
