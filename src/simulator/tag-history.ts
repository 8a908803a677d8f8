import { DateTime, IANAZone } from "luxon";
import { type Devices, fromRawValue, type Value, type VisitSample } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { seededChance } from "./seeded-random.ts";
import type { Tag } from "./simulated-sites.ts";

// The log of the service: samples of the devices, grouped into buckets of local time.

export const LOG_RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type Resolution = (typeof LOG_RESOLUTIONS)[number];

export interface LogBucket {
  readonly startMs: number;
  readonly endMs: number;
}

export type Buckets = ReturnType<typeof createBuckets>;

const DAY_MS = 86_400_000;
const BUCKET_LENGTH_MS = { "5m": 300_000, "1h": 3_600_000 } as const;
const CALENDAR_UNIT_BY_RESOLUTION = { "1d": "day", "1w": "week", "1mo": "month" } as const;

/** Calculates buckets and zone offsets. Caches them per zone and day, since luxon needs microseconds for each. */
export function createBuckets() {
  const zones = new Map<string, { readonly zone: IANAZone; readonly offsetsOfDays: Map<number, number> }>();
  const calendarBucketByKey = new Map<string, LogBucket>();

  function offsetMs(name: string, atMs: number): number {
    const zoneOffsets = zones.get(name) ?? { zone: IANAZone.create(name), offsetsOfDays: new Map() };
    zones.set(name, zoneOffsets);
    const day = Math.floor(atMs / DAY_MS);
    let minutes = zoneOffsets.offsetsOfDays.get(day);
    if (minutes === undefined) {
      const offsetAtDayStart = zoneOffsets.zone.offset(day * DAY_MS);
      // NaN marks a day within which the clocks change.
      minutes = zoneOffsets.zone.offset((day + 1) * DAY_MS) === offsetAtDayStart ? offsetAtDayStart : Number.NaN;
      zoneOffsets.offsetsOfDays.set(day, minutes);
    }
    return (Number.isNaN(minutes) ? zoneOffsets.zone.offset(atMs) : minutes) * 60_000;
  }

  function findBucket(resolution: Resolution, zone: string, atMs: number): LogBucket {
    const zoneOffsetMs = offsetMs(zone, atMs);
    if (resolution === "5m" || resolution === "1h") {
      const bucketLengthMs = BUCKET_LENGTH_MS[resolution];
      const startMs = Math.floor((atMs + zoneOffsetMs) / bucketLengthMs) * bucketLengthMs - zoneOffsetMs;
      return { startMs, endMs: startMs + bucketLengthMs };
    }
    const key = `${resolution} ${zone} ${Math.floor((atMs + zoneOffsetMs) / DAY_MS)}`;
    const cachedBucket = calendarBucketByKey.get(key);
    if (cachedBucket !== undefined) return cachedBucket;
    const unit = CALENDAR_UNIT_BY_RESOLUTION[resolution];
    const start = DateTime.fromMillis(atMs, { zone }).startOf(unit);
    const end = start.plus({ [unit]: 1 }).startOf(unit);
    const bucket = { startMs: start.toMillis(), endMs: end.toMillis() };
    calendarBucketByKey.set(key, bucket);
    return bucket;
  }

  return { offsetMs, at: findBucket };
}

export interface Period {
  readonly fromMs: number;
  readonly toMs: number;
  readonly nowMs: number;
}

export interface LogPoint {
  readonly startMs: number;
  readonly value: Value;
}

export type History = ReturnType<typeof createHistory>;

export function createHistory(devices: Devices, buckets: Buckets, { history, seed }: SimulatorOptions) {
  const { no_log: noLog, late_data: late, log_start_spread_days: spreadDays } = history;
  const lateDataDelayMs = late.minutes * 60_000;
  const tagIdsWithoutLog = new Set(noLog.tags);

  function hasLog(tag: Tag): boolean {
    if (tagIdsWithoutLog.has(tag.id)) return false;
    const seedText = noLog.cluster_by_host ? `log of host ${tag.hostId}` : `log of tag ${tag.id}`;
    return seededChance(seed, seedText) >= noLog.share;
  }

  function computeLogStartMs(tag: Tag): number {
    if (spreadDays === 0) return Number.NEGATIVE_INFINITY;
    return tag.site.timeline.wallAt(0) + seededChance(seed, `log start of ${tag.id}`) * spreadDays * DAY_MS;
  }

  function hasSampleArrived(tag: Tag, atMs: number, nowMs: number): boolean {
    if (atMs > nowMs) return false;
    if (lateDataDelayMs === 0 || atMs + lateDataDelayMs <= nowMs) return true;
    return seededChance(seed, `late ${tag.id} ${atMs}`) >= late.share;
  }

  function visitLoggedSamples(tag: Tag, { fromMs, toMs, nowMs }: Period, visit: VisitSample): void {
    devices.visitSamples(tag, Math.max(fromMs, computeLogStartMs(tag)), Math.min(toMs, nowMs + 1), (atMs, value) => {
      if (hasSampleArrived(tag, atMs, nowMs)) visit(atMs, value);
    });
  }

  function includeRangeEnd(range: Period): Period {
    return history.range_end === "inclusive" ? { ...range, toMs: range.toMs + 1 } : range;
  }

  function points(tag: Tag, requested: Period, resolution: Resolution, zone: string): LogPoint[] {
    let period = includeRangeEnd(requested);
    if (history.unaligned_range === "whole" && period.toMs > period.fromMs) {
      const firstBucket = buckets.at(resolution, zone, period.fromMs);
      period = {
        ...period,
        fromMs: firstBucket.startMs < period.fromMs ? firstBucket.endMs : period.fromMs,
        toMs: buckets.at(resolution, zone, period.toMs - 1).endMs,
      };
    }
    const usesLastValue = tag.cumulative || tag.kind === "boolean";
    const logPoints: LogPoint[] = [];
    let bucket: LogBucket | undefined;
    let values: number[] = [];
    const closeBucket = () => {
      if (bucket === undefined) return;
      const raw = usesLastValue ? (values.at(-1) ?? null) : computeMean(values);
      logPoints.push({ startMs: bucket.startMs, value: fromRawValue(tag, raw) });
      values = [];
    };
    visitLoggedSamples(tag, period, (atMs, value) => {
      if (bucket === undefined || atMs >= bucket.endMs) {
        closeBucket();
        bucket = buckets.at(resolution, zone, atMs);
      }
      if (value !== null) values.push(value);
    });
    closeBucket();
    return logPoints;
  }

  /** Returns the last minus the first number of the range; null without a number. */
  function computeTotal(tag: Tag, requested: Period): number | null {
    const values: number[] = [];
    visitLoggedSamples(tag, includeRangeEnd(requested), (_, value) => {
      if (value !== null) values.push(value);
    });
    const [firstValue] = values;
    const lastValue = values.at(-1);
    return firstValue === undefined || lastValue === undefined ? null : roundValue(lastValue - firstValue);
  }

  return { hasLog, points, scalar: computeTotal };
}

function computeMean(values: readonly number[]): number | null {
  return values.length === 0 ? null : roundValue(values.reduce((sum, value) => sum + value, 0) / values.length);
}

const roundValue = (value: number): number => Math.round(value * 10_000) / 10_000;
