import type { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagValue } from "../../../core/model/building.ts";
import type { StoredSensors } from "../snapshot.ts";

type PackedSensors = Pick<StoredSensors, "ids" | "numbers">;

/** Readings of one tag, booleans as 0 and 1. `hours`: hours with readings. `spanHours`: first to last such hour. */
export type SensorRow = Readonly<Record<"readings" | "nulls" | "hours" | "spanHours" | "min" | "max", number>> & {
  readonly type: (typeof TYPE_NAMES)[number];
  readonly log: LogStatistics | null;
};

/**
 * Comparison of live values with a log. `leastLagMs`: least time from the end of the newest bucket to its reply. `off`:
 * pairs that differ more than the buckets explain. `sumSize`: sum of the larger absolute values.
 */
interface LogStatistics extends Readonly<Record<"replies" | "leastLagMs" | "pairs" | "off" | "min" | "max", number>> {
  readonly resolution: Resolution;
  readonly sumOff: number;
  readonly sumOffSquared: number;
  readonly sumLive: number;
  readonly sumLogged: number;
  readonly sumSize: number;
}

const TAGS_PER_DOCUMENT = 250;
/** Largest gap between neighbouring buckets: a log with hourly values leaves most buckets of 5 minutes empty. */
const MAX_BUCKET_GAP_MS = 2 * 3_600_000;
const LOG_RESOLUTIONS: readonly Resolution[] = ["5m", "1h", "1d"];

const COLUMNS = [
  ...["readings", "nulls", "hours", "firstHour", "lastHour", "min", "max", "type", "probeMs", "probe", "resolution"],
  ...["replies", "leastLagMs", "beforeMs", "before", "newestMs", "newest", "pairs", "off", "sumOff", "sumOffSquared"],
  ...["sumLive", "sumLogged", "sumSize", "logMin", "logMax"],
] as const;
const COLUMN_COUNT = COLUMNS.length;
type Column = (typeof COLUMNS)[number];
const COLUMN_INDEX = Object.fromEntries(COLUMNS.map((name, at) => [name, at])) as Readonly<Record<Column, number>>;
const LOG_COLUMNS = COLUMNS.slice(COLUMNS.indexOf("resolution"));

const TYPE_NUMBER = 1;
const TYPE_BOOLEAN = 2;
const TYPE_NAMES = ["none", "number", "boolean", "mixed"] as const;

/**
 * Statistics of each tag in one period: a row of 26 numbers of 8 bytes, 10 MB for 50,000 tags.
 *
 * One live value per history response, the probe, is compared with the log. It waits until its bucket and the next one
 * have arrived; then the next live value becomes the probe. No other values need to be stored.
 *
 *   buckets   v1 ├────┤ v2 ├────┤ v3 ├────┤          the newest two are kept
 *   live                  × probe                    compared when v3 comes
 */
export function createSensorTable() {
  const rowById = new Map<string, number>();
  let ids: string[] = [];
  let groups: Float64Array[] = [];
  const changedGroups = new Set<number>();

  const get = (row: number, column: Column): number =>
    groups[Math.floor(row / TAGS_PER_DOCUMENT)]?.[(row % TAGS_PER_DOCUMENT) * COLUMN_COUNT + COLUMN_INDEX[column]] ?? 0;
  const set = (row: number, column: Column, value: number): void => {
    const group = groups[Math.floor(row / TAGS_PER_DOCUMENT)];
    if (group !== undefined) group[(row % TAGS_PER_DOCUMENT) * COLUMN_COUNT + COLUMN_INDEX[column]] = value;
  };
  const add = (row: number, column: Column, value: number) => set(row, column, get(row, column) + value);

  function addRow(id: string): number {
    groups[Math.floor(ids.length / TAGS_PER_DOCUMENT)] ??= new Float64Array(TAGS_PER_DOCUMENT * COLUMN_COUNT);
    rowById.set(id, ids.length);
    return ids.push(id) - 1;
  }

  function takeRow(id: string): number {
    const row = rowById.get(id) ?? addRow(id);
    changedGroups.add(Math.floor(row / TAGS_PER_DOCUMENT));
    return row;
  }

  function noteHour(row: number, hour: number): void {
    const now = hour + 1;
    if (get(row, "lastHour") === now) return;
    add(row, "hours", 1);
    set(row, "lastHour", now);
    if (get(row, "firstHour") === 0) set(row, "firstHour", now);
  }

  function noteValue(row: number, value: number, type: number): void {
    const isFirst = get(row, "type") === 0;
    set(row, "type", get(row, "type") | type);
    if (isFirst || value < get(row, "min")) set(row, "min", value);
    if (isFirst || value > get(row, "max")) set(row, "max", value);
  }

  function noteBucket(row: number, lengthMs: number, next: LogBucket): void {
    const newestBucket = { atMs: get(row, "newestMs"), value: get(row, "newest") };
    const probeTimeMs = get(row, "probeMs");
    const maxBucketDistanceMs = Math.max(1.5 * lengthMs, MAX_BUCKET_GAP_MS);
    if (probeTimeMs !== 0 && newestBucket.atMs !== 0 && probeTimeMs < next.atMs) {
      const isNextBucket = next.atMs - newestBucket.atMs <= maxBucketDistanceMs;
      if (isNextBucket && probeTimeMs >= newestBucket.atMs) {
        const bucketBefore = { atMs: get(row, "beforeMs"), value: get(row, "before") };
        const isBefore = bucketBefore.atMs !== 0 && newestBucket.atMs - bucketBefore.atMs <= maxBucketDistanceMs;
        const nearBuckets = isBefore ? [bucketBefore, newestBucket, next] : [newestBucket, next];
        compare(row, get(row, "probe"), newestBucket, nearBuckets);
      }
      set(row, "probeMs", 0);
    }
    set(row, "beforeMs", newestBucket.atMs);
    set(row, "before", newestBucket.value);
    set(row, "newestMs", next.atMs);
    set(row, "newest", next.value);
  }

  function compare(row: number, live: number, logged: LogBucket, nearBuckets: readonly LogBucket[]): void {
    const off = distanceFromBuckets(live, nearBuckets);
    const isFirst = get(row, "pairs") === 0;
    add(row, "pairs", 1);
    add(row, "off", off === 0 ? 0 : 1);
    add(row, "sumOff", off);
    add(row, "sumOffSquared", off * off);
    add(row, "sumLive", live);
    add(row, "sumLogged", logged.value);
    add(row, "sumSize", Math.max(Math.abs(live), Math.abs(logged.value)));
    if (isFirst || logged.value < get(row, "logMin")) set(row, "logMin", logged.value);
    if (isFirst || logged.value > get(row, "logMax")) set(row, "logMax", logged.value);
  }

  function acceptsSeriesRank(row: number, rank: number): boolean {
    const takenRank = get(row, "resolution");
    if (takenRank !== 0 && takenRank < rank) return false;
    if (takenRank !== rank) for (const column of LOG_COLUMNS) set(row, column, 0);
    set(row, "resolution", rank);
    return true;
  }

  function computeRow(row: number): SensorRow {
    const numbers = Object.fromEntries(COLUMNS.map((column) => [column, get(row, column)])) as Record<Column, number>;
    const { hours, firstHour, lastHour, type, logMin, logMax } = numbers;
    const resolution = LOG_RESOLUTIONS[numbers.resolution - 1];
    return {
      ...numbers,
      spanHours: hours === 0 ? 0 : lastHour - firstHour + 1,
      type: TYPE_NAMES[type] ?? "none",
      log: resolution === undefined ? null : { ...numbers, resolution, min: logMin, max: logMax },
    };
  }

  return {
    /** Adds a live reading. `hour`: full hours watched in this period. `atMs` is null without a reliable time. */
    read(id: string, value: TagValue, hour: number, atMs: number | null): void {
      const row = takeRow(id);
      add(row, "readings", 1);
      noteHour(row, hour);
      if (value === null) {
        add(row, "nulls", 1);
        return;
      }
      const number = Number(value);
      noteValue(row, number, typeof value === "boolean" ? TYPE_BOOLEAN : TYPE_NUMBER);
      if (atMs === null || get(row, "probeMs") !== 0) return;
      set(row, "probeMs", atMs);
      set(row, "probe", number);
    },

    logged(id: string, resolution: Resolution, points: TagPoints, nowMs: number): void {
      const seriesRank = LOG_RESOLUTIONS.indexOf(resolution) + 1;
      const newestIndex = lastIndexWithValue(points);
      if (seriesRank === 0 || newestIndex < 0) return;
      const row = takeRow(id);
      if (!acceptsSeriesRank(row, seriesRank)) return;
      const lengthMs = BUCKET_MS[resolution];
      const lagMs = nowMs - (points.timeMs(newestIndex) + lengthMs);
      if (get(row, "replies") === 0 || lagMs < get(row, "leastLagMs")) set(row, "leastLagMs", lagMs);
      add(row, "replies", 1);
      for (let at = points.firstIndexFrom(get(row, "newestMs") + 1); at <= newestIndex; at++) {
        const value = points.value(at);
        if (value !== null) noteBucket(row, lengthMs, { atMs: points.timeMs(at), value: Number(value) });
      }
    },

    rows: () => ids.values().map((id, row) => [id, computeRow(row)] as const),

    groups: () => groups.length,
    changedGroups: () => [...changedGroups],
    pack(group: number): PackedSensors {
      changedGroups.delete(group);
      const inGroup = ids.slice(group * TAGS_PER_DOCUMENT, (group + 1) * TAGS_PER_DOCUMENT);
      return { ids: inGroup, numbers: [...(groups[group]?.subarray(0, inGroup.length * COLUMN_COUNT) ?? [])] };
    },

    load(packed: PackedSensors): void {
      // Ignore rows of another version with other columns: the period starts again for their tags.
      if (packed.numbers.length !== packed.ids.length * COLUMN_COUNT) return;
      for (const [from, id] of packed.ids.entries()) {
        const row = takeRow(id);
        for (const [at, column] of COLUMNS.entries()) set(row, column, packed.numbers[from * COLUMN_COUNT + at] ?? 0);
      }
    },

    clear(): void {
      rowById.clear();
      ids = [];
      groups = [];
      changedGroups.clear();
    },
  };
}

function lastIndexWithValue(points: TagPoints): number {
  let at = points.length - 1;
  while (at >= 0 && points.value(at) === null) at--;
  return at;
}

interface LogBucket {
  readonly atMs: number;
  readonly value: number;
}

const MAX_DECIMALS = 6;

/** Distance of a live value from the rounded range of buckets: for 20.9 and 21, 21.04 gives 0, 21.6 gives 0.55. */
export function distanceFromBuckets(live: number, around: readonly LogBucket[]): number {
  const values = around.map(({ value }) => value);
  const roundingError = 0.5 * 10 ** -Math.max(...values.map(countDecimals));
  const lowest = Math.min(...values) - roundingError;
  const highest = Math.max(...values) + roundingError;
  return live > highest ? live - highest : live < lowest ? live - lowest : 0;
}

function countDecimals(value: number): number {
  for (let decimals = 0; decimals < MAX_DECIMALS; decimals++) {
    const shiftedValue = value * 10 ** decimals;
    if (Math.abs(shiftedValue - Math.round(shiftedValue)) < 1e-6) return decimals;
  }
  return MAX_DECIMALS;
}
