import type { Bucket, Buckets, Resolution } from "./buckets.ts";
import { asValue, type Devices, type Raw, type Value } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { chanceOf } from "./random.ts";
import { DAY_MS } from "./timeline.ts";
import type { Tag } from "./world.ts";

export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
  /** What has not happened, or not arrived, by now is not in the log. */
  readonly nowMs: number;
}

export interface Point {
  readonly startMs: number;
  readonly value: Value;
}

/** The log of the service: what was sampled, grouped into buckets. */
export interface History {
  hasLog(tag: Tag): boolean;
  points(tag: Tag, range: Range, resolution: Resolution, zone: string): Point[];
  /** Last minus first of the samples that are numbers; null without one. */
  scalar(tag: Tag, range: Range): number | null;
}

export function createHistory(devices: Devices, buckets: Buckets, options: SimulatorOptions): History {
  const { no_log: noLog, late_data: late, log_start_spread_days: spreadDays } = options.history;
  const unlogged = new Set(noLog.tags);

  function hasLog(tag: Tag): boolean {
    if (unlogged.has(tag.id)) return false;
    const what = noLog.cluster_by_host ? `log of host ${tag.hostId}` : `log of tag ${tag.id}`;
    return chanceOf(options.seed, what) >= noLog.share;
  }

  function logStartMs(tag: Tag): number {
    if (spreadDays === 0) return Number.NEGATIVE_INFINITY;
    const start = tag.site.timeline.wallAt(0);
    return start + chanceOf(options.seed, `log start of ${tag.id}`) * spreadDays * DAY_MS;
  }

  function arrived(tag: Tag, atMs: number, nowMs: number): boolean {
    if (atMs > nowMs) return false;
    const lateMs = late.minutes * 60_000;
    if (lateMs === 0 || atMs + lateMs <= nowMs) return true;
    return chanceOf(options.seed, `late ${tag.id} ${atMs}`) >= late.share;
  }

  function visit(
    tag: Tag,
    fromMs: number,
    toMs: number,
    nowMs: number,
    seen: (atMs: number, value: Raw) => void,
  ) {
    const startMs = Math.max(fromMs, logStartMs(tag));
    devices.visitSamples(tag, startMs, Math.min(toMs, nowMs + 1), (atMs, value) => {
      if (arrived(tag, atMs, nowMs)) seen(atMs, value);
    });
  }

  function endOf(range: Range): number {
    return options.history.range_end === "inclusive" ? range.toMs + 1 : range.toMs;
  }

  function points(tag: Tag, range: Range, resolution: Resolution, zone: string): Point[] {
    let fromMs = range.fromMs;
    let toMs = endOf(range);
    if (options.history.unaligned_range === "whole" && toMs > fromMs) {
      const first = buckets.at(resolution, zone, fromMs);
      fromMs = first.startMs < fromMs ? first.endMs : fromMs;
      toMs = buckets.at(resolution, zone, toMs - 1).endMs;
    }
    const found: Point[] = [];
    let open: { readonly bucket: Bucket; readonly fold: Fold } | undefined;
    const close = () => {
      if (open !== undefined)
        found.push({ startMs: open.bucket.startMs, value: asValue(tag, open.fold.result()) });
    };
    visit(tag, fromMs, toMs, range.nowMs, (atMs, value) => {
      if (open === undefined || atMs >= open.bucket.endMs) {
        close();
        open = {
          bucket: buckets.at(resolution, zone, atMs),
          fold: tag.cumulative || tag.kind === "boolean" ? last() : mean(),
        };
      }
      open.fold.add(value);
    });
    close();
    return found;
  }

  function scalar(tag: Tag, range: Range): number | null {
    let first: Raw = null;
    let final: Raw = null;
    visit(tag, range.fromMs, endOf(range), range.nowMs, (_, value) => {
      if (value === null) return;
      first ??= value;
      final = value;
    });
    return first === null || final === null ? null : rounded(final - first);
  }

  return { hasLog, points, scalar };
}

interface Fold {
  add(value: Raw): void;
  result(): Raw;
}

function mean(): Fold {
  let sum = 0;
  let count = 0;
  return {
    add(value) {
      if (value === null) return;
      sum += value;
      count += 1;
    },
    result: () => (count === 0 ? null : rounded(sum / count)),
  };
}

function last(): Fold {
  let latest: Raw = null;
  return {
    add(value) {
      latest = value ?? latest;
    },
    result: () => latest,
  };
}

function rounded(value: number): number {
  return Math.round(value * 10_000) / 10_000;
}
