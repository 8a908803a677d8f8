import type { Resolution } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { bucketBefore, bucketEnd, bucketStart } from "../history/buckets.ts";
import type { Range } from "../history/ranges.ts";

/**
 * UTC days, as numbers since 1970-01-01 (20759 is 2026-11-02), and the buckets that begin in them. A bucket belongs to
 * the day in which it begins, whatever its zone: the day of Stockholm of 2026-11-02 begins at 2026-11-01T23:00Z. Pure.
 */

export const DAY_MS = 86_400_000;
const FIVE_MINUTES_MS = 300_000;
const HOUR_MS = 3_600_000;

export function dayOf(atMs: number): number {
  return Math.floor(atMs / DAY_MS);
}

/** 20759 is `2026-11-02`. */
export function dateOf(day: number): string {
  return isoUtc(day * DAY_MS).slice(0, 10);
}

export function dayOfDate(date: string): number {
  return dayOf(Date.parse(`${date}T00:00:00Z`));
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
    const ofDay = dayOf(atMs);
    if (ofDay !== day || (starts[next - 1] ?? Number.NEGATIVE_INFINITY) > atMs) {
      day = ofDay;
      starts = bucketsOf(day, resolution, zone);
      next = 0;
    }
    while ((starts[next] ?? Number.POSITIVE_INFINITY) <= atMs) next++;
    return starts[next - 1] ?? bucketStart(atMs, resolution, zone);
  };
}

/**
 * The days that are had whole where a time is had: those of which no bucket begins outside of it. `opensAt` is where
 * what is wanted begins: of the day in which it does, only what follows counts.
 */
export function completeDays(
  { fromMs, toMs }: Range,
  opensAt: number,
  resolution: Resolution,
  zone: string,
): { readonly from: number; readonly until: number } {
  const from = fromMs <= opensAt ? dayOf(fromMs) : dayOf(lastBefore(fromMs, resolution, zone)) + 1;
  return { from, until: dayOf(toMs) };
}

/** The rules of a zone are slow, and thousands of series ask the same. */
const known = new Map<string, Map<number, readonly number[]>>();
const lasts = new Map<string, number>();
const KNOWN_MAX = 5_000;

function lastBefore(atMs: number, resolution: Resolution, zone: string): number {
  if (resolution === "5m") return atMs - 1;
  const key = `${atMs} ${resolution} ${zone}`;
  const cached = lasts.get(key);
  if (cached !== undefined) return cached;
  if (lasts.size >= KNOWN_MAX) lasts.clear();
  // A time within a bucket: that one is the last.
  const start = bucketStart(atMs, resolution, zone);
  const last = start < atMs ? start : bucketBefore(atMs, resolution, zone);
  lasts.set(key, last);
  return last;
}

/** Where the buckets of a day begin, ascending; a week or a month begins in few. */
function bucketsOf(day: number, resolution: Resolution, zone: string): readonly number[] {
  const key = `${resolution} ${zone}`;
  const days = known.get(key) ?? new Map<number, readonly number[]>();
  const cached = days.get(day);
  if (cached !== undefined) return cached;
  if (days.size >= KNOWN_MAX) days.clear();
  const starts = startsOf(day, resolution, zone);
  days.set(day, starts);
  known.set(key, days);
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
