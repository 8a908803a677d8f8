import { DateTime, IANAZone } from "luxon";
import { type Devices, fromRawTagValue, type TagValue, type VisitTagSample } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { seededFraction } from "./seeded-random.ts";
import type { Tag } from "./simulated-sites.ts";

export const HISTORY_RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type HistoryResolution = (typeof HISTORY_RESOLUTIONS)[number];

export interface HistoryBucket {
  readonly startMs: number;
  readonly endMs: number;
}

export type HistoryBuckets = ReturnType<typeof createHistoryBuckets>;

const DAY_MS = 86_400_000;
const HISTORY_BUCKET_LENGTH_MS = { "5m": 300_000, "1h": 3_600_000 } as const;
const CALENDAR_UNIT_BY_RESOLUTION = { "1d": "day", "1w": "week", "1mo": "month" } as const;

/** Caches time zone offsets per day, because luxon is slow. */
export function createHistoryBuckets() {
  const zoneOffsetsByName = new Map<string, { readonly zone: IANAZone; readonly offsetsOfDays: Map<number, number> }>();
  const calendarBucketByKey = new Map<string, HistoryBucket>();

  function timeZoneOffsetMs(zone: string, atMs: number): number {
    const zoneOffsets = zoneOffsetsByName.get(zone) ?? { zone: IANAZone.create(zone), offsetsOfDays: new Map() };
    zoneOffsetsByName.set(zone, zoneOffsets);
    const day = Math.floor(atMs / DAY_MS);
    let offsetMinutes = zoneOffsets.offsetsOfDays.get(day);
    if (offsetMinutes === undefined) {
      const offsetAtDayStart = zoneOffsets.zone.offset(day * DAY_MS);
      // NaN marks a day on which daylight saving time begins or ends.
      offsetMinutes = zoneOffsets.zone.offset((day + 1) * DAY_MS) === offsetAtDayStart ? offsetAtDayStart : Number.NaN;
      zoneOffsets.offsetsOfDays.set(day, offsetMinutes);
    }
    return (Number.isNaN(offsetMinutes) ? zoneOffsets.zone.offset(atMs) : offsetMinutes) * 60_000;
  }

  function findHistoryBucket(resolution: HistoryResolution, zone: string, atMs: number): HistoryBucket {
    const zoneOffsetMs = timeZoneOffsetMs(zone, atMs);
    if (resolution === "5m" || resolution === "1h") {
      const bucketLengthMs = HISTORY_BUCKET_LENGTH_MS[resolution];
      const bucketStartMs = Math.floor((atMs + zoneOffsetMs) / bucketLengthMs) * bucketLengthMs - zoneOffsetMs;
      return { startMs: bucketStartMs, endMs: bucketStartMs + bucketLengthMs };
    }
    const calendarBucketKey = `${resolution} ${zone} ${Math.floor((atMs + zoneOffsetMs) / DAY_MS)}`;
    const cachedCalendarBucket = calendarBucketByKey.get(calendarBucketKey);
    if (cachedCalendarBucket !== undefined) return cachedCalendarBucket;
    const calendarUnit = CALENDAR_UNIT_BY_RESOLUTION[resolution];
    const bucketStart = DateTime.fromMillis(atMs, { zone }).startOf(calendarUnit);
    const bucketEnd = bucketStart.plus({ [calendarUnit]: 1 }).startOf(calendarUnit);
    const historyBucket = { startMs: bucketStart.toMillis(), endMs: bucketEnd.toMillis() };
    calendarBucketByKey.set(calendarBucketKey, historyBucket);
    return historyBucket;
  }

  return { offsetMs: timeZoneOffsetMs, bucketAt: findHistoryBucket };
}

export interface HistoryPeriod {
  readonly fromMs: number;
  readonly toMs: number;
  readonly nowMs: number;
}

export interface HistoryPoint {
  readonly startMs: number;
  readonly value: TagValue;
}

export type TagHistory = ReturnType<typeof createTagHistory>;

export function createTagHistory(devices: Devices, buckets: HistoryBuckets, { history, seed }: SimulatorOptions) {
  const { no_log: noLogOptions, late_data: lateDataOptions, log_start_spread_days: spreadDays } = history;
  const lateSampleDelayMs = lateDataOptions.minutes * 60_000;
  const tagIdsWithoutLog = new Set(noLogOptions.tags);

  function hasTagLog(tag: Tag): boolean {
    if (tagIdsWithoutLog.has(tag.id)) return false;
    const tagLogSeedText = noLogOptions.cluster_by_host ? `log of host ${tag.hostId}` : `log of tag ${tag.id}`;
    return seededFraction(seed, tagLogSeedText) >= noLogOptions.share;
  }

  function computeTagLogStartMs(tag: Tag): number {
    if (spreadDays === 0) return Number.NEGATIVE_INFINITY;
    return tag.site.timeline.wallMsAt(0) + seededFraction(seed, `log start of ${tag.id}`) * spreadDays * DAY_MS;
  }

  function hasTagSampleArrived(tag: Tag, atMs: number, nowMs: number): boolean {
    if (atMs > nowMs) return false;
    if (lateSampleDelayMs === 0 || atMs + lateSampleDelayMs <= nowMs) return true;
    return seededFraction(seed, `late ${tag.id} ${atMs}`) >= lateDataOptions.share;
  }

  function visitLoggedTagSamples(tag: Tag, { fromMs, toMs, nowMs }: HistoryPeriod, visit: VisitTagSample): void {
    devices.visitSamples(tag, Math.max(fromMs, computeTagLogStartMs(tag)), Math.min(toMs, nowMs + 1), (atMs, value) => {
      if (hasTagSampleArrived(tag, atMs, nowMs)) visit(atMs, value);
    });
  }

  function includeHistoryRangeEnd(range: HistoryPeriod): HistoryPeriod {
    return history.range_end === "inclusive" ? { ...range, toMs: range.toMs + 1 } : range;
  }

  function readPoints(tag: Tag, requested: HistoryPeriod, resolution: HistoryResolution, zone: string): HistoryPoint[] {
    let historyPeriod = includeHistoryRangeEnd(requested);
    if (history.unaligned_range === "whole" && historyPeriod.toMs > historyPeriod.fromMs) {
      const firstHistoryBucket = buckets.bucketAt(resolution, zone, historyPeriod.fromMs);
      historyPeriod = {
        ...historyPeriod,
        fromMs: firstHistoryBucket.startMs < historyPeriod.fromMs ? firstHistoryBucket.endMs : historyPeriod.fromMs,
        toMs: buckets.bucketAt(resolution, zone, historyPeriod.toMs - 1).endMs,
      };
    }
    const usesLastBucketValue = tag.isCumulative || tag.kind === "boolean";
    const historyPoints: HistoryPoint[] = [];
    let historyBucket: HistoryBucket | undefined;
    let bucketValues: number[] = [];
    const closeHistoryBucket = () => {
      if (historyBucket === undefined) return;
      const rawValue = usesLastBucketValue ? (bucketValues.at(-1) ?? null) : computeRoundedMean(bucketValues);
      historyPoints.push({ startMs: historyBucket.startMs, value: fromRawTagValue(tag, rawValue) });
      bucketValues = [];
    };
    visitLoggedTagSamples(tag, historyPeriod, (atMs, value) => {
      if (historyBucket === undefined || atMs >= historyBucket.endMs) {
        closeHistoryBucket();
        historyBucket = buckets.bucketAt(resolution, zone, atMs);
      }
      if (value !== null) bucketValues.push(value);
    });
    closeHistoryBucket();
    return historyPoints;
  }

  /** Returns the last minus the first value of the range; null without values. */
  function computeTagTotal(tag: Tag, requested: HistoryPeriod): number | null {
    const periodValues: number[] = [];
    visitLoggedTagSamples(tag, includeHistoryRangeEnd(requested), (_, value) => {
      if (value !== null) periodValues.push(value);
    });
    const [firstValue] = periodValues;
    const lastValue = periodValues.at(-1);
    return firstValue === undefined || lastValue === undefined ? null : roundTo4Decimals(lastValue - firstValue);
  }

  return { hasLog: hasTagLog, points: readPoints, scalar: computeTagTotal };
}

function computeRoundedMean(values: readonly number[]): number | null {
  return values.length === 0 ? null : roundTo4Decimals(values.reduce((sum, value) => sum + value, 0) / values.length);
}

const roundTo4Decimals = (value: number): number => Math.round(value * 10_000) / 10_000;
