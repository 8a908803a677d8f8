import { DateTime, IANAZone } from "luxon";
import { type Devices, fromRaw, type RawValue, type Value } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { seededChance } from "./random.ts";
import type { Tag } from "./world.ts";

// The log of the service: samples of the devices, grouped into buckets of local time.

export const LOG_RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type Resolution = (typeof LOG_RESOLUTIONS)[number];

export interface LogBucket {
  readonly startMs: number;
  readonly endMs: number;
}

export type Buckets = ReturnType<typeof createBuckets>;

const DAY_MS = 86_400_000;
const FIXED_BUCKET_MS = { "5m": 300_000, "1h": 3_600_000 } as const;
const CALENDAR_UNIT = { "1d": "day", "1w": "week", "1mo": "month" } as const;

/** Calculates buckets and zone offsets. Caches them per zone and day, since luxon needs microseconds for each. */
export function createBuckets() {
  const zones = new Map<string, { readonly zone: IANAZone; readonly offsetsOfDays: Map<number, number> }>();
  const longBuckets = new Map<string, LogBucket>();

  function offsetMs(name: string, atMs: number): number {
    const known = zones.get(name) ?? { zone: IANAZone.create(name), offsetsOfDays: new Map() };
    zones.set(name, known);
    const day = Math.floor(atMs / DAY_MS);
    let minutes = known.offsetsOfDays.get(day);
    if (minutes === undefined) {
      const atStart = known.zone.offset(day * DAY_MS);
      // NaN marks a day within which the clocks change.
      minutes = known.zone.offset((day + 1) * DAY_MS) === atStart ? atStart : Number.NaN;
      known.offsetsOfDays.set(day, minutes);
    }
    return (Number.isNaN(minutes) ? known.zone.offset(atMs) : minutes) * 60_000;
  }

  function bucketAt(resolution: Resolution, zone: string, atMs: number): LogBucket {
    const shift = offsetMs(zone, atMs);
    if (resolution === "5m" || resolution === "1h") {
      const lengthMs = FIXED_BUCKET_MS[resolution];
      const startMs = Math.floor((atMs + shift) / lengthMs) * lengthMs - shift;
      return { startMs, endMs: startMs + lengthMs };
    }
    const key = `${resolution} ${zone} ${Math.floor((atMs + shift) / DAY_MS)}`;
    const known = longBuckets.get(key);
    if (known !== undefined) return known;
    const unit = CALENDAR_UNIT[resolution];
    const start = DateTime.fromMillis(atMs, { zone }).startOf(unit);
    const end = start.plus({ [unit]: 1 }).startOf(unit);
    const bucket = { startMs: start.toMillis(), endMs: end.toMillis() };
    longBuckets.set(key, bucket);
    return bucket;
  }

  return { offsetMs, at: bucketAt };
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
  const lateMs = late.minutes * 60_000;
  const withoutLog = new Set(noLog.tags);

  function hasLog(tag: Tag): boolean {
    if (withoutLog.has(tag.id)) return false;
    const subject = noLog.cluster_by_host ? `log of host ${tag.hostId}` : `log of tag ${tag.id}`;
    return seededChance(seed, subject) >= noLog.share;
  }

  function logStartMs(tag: Tag): number {
    if (spreadDays === 0) return Number.NEGATIVE_INFINITY;
    return tag.site.timeline.wallAt(0) + seededChance(seed, `log start of ${tag.id}`) * spreadDays * DAY_MS;
  }

  function hasArrived(tag: Tag, atMs: number, nowMs: number): boolean {
    if (atMs > nowMs) return false;
    if (lateMs === 0 || atMs + lateMs <= nowMs) return true;
    return seededChance(seed, `late ${tag.id} ${atMs}`) >= late.share;
  }

  function visitLogged(
    tag: Tag,
    { fromMs, toMs, nowMs }: Period,
    visit: (atMs: number, value: RawValue) => void,
  ): void {
    devices.visitSamples(tag, Math.max(fromMs, logStartMs(tag)), Math.min(toMs, nowMs + 1), (atMs, value) => {
      if (hasArrived(tag, atMs, nowMs)) visit(atMs, value);
    });
  }

  function withEnd(range: Period): Period {
    return history.range_end === "inclusive" ? { ...range, toMs: range.toMs + 1 } : range;
  }

  function points(tag: Tag, requested: Period, resolution: Resolution, zone: string): LogPoint[] {
    let range = withEnd(requested);
    if (history.unaligned_range === "whole" && range.toMs > range.fromMs) {
      const first = buckets.at(resolution, zone, range.fromMs);
      range = {
        ...range,
        fromMs: first.startMs < range.fromMs ? first.endMs : range.fromMs,
        toMs: buckets.at(resolution, zone, range.toMs - 1).endMs,
      };
    }
    const lastOnly = tag.cumulative || tag.kind === "boolean";
    const found: LogPoint[] = [];
    let bucket: LogBucket | undefined;
    let values: number[] = [];
    const close = () => {
      if (bucket === undefined) return;
      const raw = lastOnly ? (values.at(-1) ?? null) : computeMean(values);
      found.push({ startMs: bucket.startMs, value: fromRaw(tag, raw) });
      values = [];
    };
    visitLogged(tag, range, (atMs, value) => {
      if (bucket === undefined || atMs >= bucket.endMs) {
        close();
        bucket = buckets.at(resolution, zone, atMs);
      }
      if (value !== null) values.push(value);
    });
    close();
    return found;
  }

  /** Returns the last minus the first number of the range; null without a number. */
  function scalar(tag: Tag, requested: Period): number | null {
    const values: number[] = [];
    visitLogged(tag, withEnd(requested), (_, value) => {
      if (value !== null) values.push(value);
    });
    const [first] = values;
    const last = values.at(-1);
    return first === undefined || last === undefined ? null : roundValue(last - first);
  }

  return { hasLog, points, scalar };
}

function computeMean(values: readonly number[]): number | null {
  return values.length === 0 ? null : roundValue(values.reduce((sum, value) => sum + value, 0) / values.length);
}

function roundValue(value: number): number {
  return Math.round(value * 10_000) / 10_000;
}
