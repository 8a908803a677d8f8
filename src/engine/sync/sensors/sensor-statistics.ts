import type { TagPoints } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagValue } from "../../../core/model/building.ts";
import type { StoredSensors } from "../stored-documents.ts";

type PackedSensors = Pick<StoredSensors, "ids" | "numbers">;

/** Readings of a tag; booleans count as 0 and 1. `hours`: hours with readings. `spanHours`: first to last hour. */
export type SensorRow = Readonly<Record<"readings" | "nulls" | "hours" | "spanHours" | "min" | "max", number>> & {
  readonly type: (typeof VALUE_TYPE_NAMES)[number];
  readonly log: LogComparison | null;
};

/**
 * Comparison of a tag's live values with its history. `leastLagMs`: least time from the newest bucket to its reply.
 * `off`: pairs whose live value is outside the range of the nearby buckets. `sumSize`: sum of larger absolute values.
 */
interface LogComparison extends Readonly<Record<"replies" | "leastLagMs" | "pairs" | "off" | "min" | "max", number>> {
  readonly resolution: Resolution;
  readonly sumOff: number;
  readonly sumOffSquared: number;
  readonly sumLive: number;
  readonly sumLogged: number;
  readonly sumSize: number;
}

const TAGS_PER_DOCUMENT = 250;
/** Maximum distance of two buckets with values: a log with hourly values leaves most buckets of 5 minutes empty. */
const MAX_BUCKET_GAP_MS = 2 * 3_600_000;
const LOG_RESOLUTIONS: readonly Resolution[] = ["5m", "1h", "1d"];

const SENSOR_COLUMNS = [
  ...["readings", "nulls", "hours", "firstHour", "lastHour", "min", "max", "type", "probeMs", "probe", "resolution"],
  ...["replies", "leastLagMs", "beforeMs", "before", "newestMs", "newest", "pairs", "off", "sumOff", "sumOffSquared"],
  ...["sumLive", "sumLogged", "sumSize", "logMin", "logMax"],
] as const;
const COLUMN_COUNT = SENSOR_COLUMNS.length;
type SensorColumn = (typeof SENSOR_COLUMNS)[number];
type ColumnValues = Readonly<Record<SensorColumn, number>>;
const COLUMN_INDEX = Object.fromEntries(SENSOR_COLUMNS.map((name, index) => [name, index])) as ColumnValues;
const LOG_COMPARISON_COLUMNS = SENSOR_COLUMNS.slice(SENSOR_COLUMNS.indexOf("resolution"));

const VALUE_TYPE_NUMBER = 1;
const VALUE_TYPE_BOOLEAN = 2;
const VALUE_TYPE_NAMES = ["none", "number", "boolean", "mixed"] as const;

/**
 * Statistics of each tag in one period: a row of 26 numbers of 8 bytes, 10 MB for 50,000 tags.
 *
 * One live value per history response, the probe, is compared with the history. It waits until its bucket and the next
 * one have arrived; then the next live value becomes the probe. No other values need to be stored.
 *
 *   buckets   v1 ├────┤ v2 ├────┤ v3 ├────┤          the newest two are stored
 *   live                  × probe                    compared when v3 comes
 */
export function createSensorTable() {
  const rowByTagId = new Map<string, number>();
  let ids: string[] = [];
  let tagGroups: Float64Array[] = [];
  const changedTagGroups = new Set<number>();

  const get = (row: number, column: SensorColumn): number =>
    tagGroups[Math.floor(row / TAGS_PER_DOCUMENT)]?.[(row % TAGS_PER_DOCUMENT) * COLUMN_COUNT + COLUMN_INDEX[column]] ??
    0;
  const set = (row: number, column: SensorColumn, value: number): void => {
    const tagGroup = tagGroups[Math.floor(row / TAGS_PER_DOCUMENT)];
    if (tagGroup !== undefined) tagGroup[(row % TAGS_PER_DOCUMENT) * COLUMN_COUNT + COLUMN_INDEX[column]] = value;
  };
  const add = (row: number, column: SensorColumn, value: number) => set(row, column, get(row, column) + value);

  function addSensorRow(id: string): number {
    tagGroups[Math.floor(ids.length / TAGS_PER_DOCUMENT)] ??= new Float64Array(TAGS_PER_DOCUMENT * COLUMN_COUNT);
    rowByTagId.set(id, ids.length);
    return ids.push(id) - 1;
  }

  function getRowForChange(id: string): number {
    const row = rowByTagId.get(id) ?? addSensorRow(id);
    changedTagGroups.add(Math.floor(row / TAGS_PER_DOCUMENT));
    return row;
  }

  function noteReadingHour(row: number, hour: number): void {
    const hourNumber = hour + 1;
    if (get(row, "lastHour") === hourNumber) return;
    add(row, "hours", 1);
    set(row, "lastHour", hourNumber);
    if (get(row, "firstHour") === 0) set(row, "firstHour", hourNumber);
  }

  function noteReadingValue(row: number, value: number, type: number): void {
    const isFirstValue = get(row, "type") === 0;
    set(row, "type", get(row, "type") | type);
    if (isFirstValue || value < get(row, "min")) set(row, "min", value);
    if (isFirstValue || value > get(row, "max")) set(row, "max", value);
  }

  function noteLogBucket(row: number, bucketMs: number, next: LogBucket): void {
    const newestBucket = { atMs: get(row, "newestMs"), value: get(row, "newest") };
    const probeTimeMs = get(row, "probeMs");
    const maxBucketDistanceMs = Math.max(1.5 * bucketMs, MAX_BUCKET_GAP_MS);
    if (probeTimeMs !== 0 && newestBucket.atMs !== 0 && probeTimeMs < next.atMs) {
      const isNextBucket = next.atMs - newestBucket.atMs <= maxBucketDistanceMs;
      if (isNextBucket && probeTimeMs >= newestBucket.atMs) {
        const bucketBefore = { atMs: get(row, "beforeMs"), value: get(row, "before") };
        const isNear = bucketBefore.atMs !== 0 && newestBucket.atMs - bucketBefore.atMs <= maxBucketDistanceMs;
        const nearBuckets = isNear ? [bucketBefore, newestBucket, next] : [newestBucket, next];
        compareValueWithLog(row, get(row, "probe"), newestBucket, nearBuckets);
      }
      set(row, "probeMs", 0);
    }
    set(row, "beforeMs", newestBucket.atMs);
    set(row, "before", newestBucket.value);
    set(row, "newestMs", next.atMs);
    set(row, "newest", next.value);
  }

  function compareValueWithLog(row: number, live: number, logged: LogBucket, nearBuckets: readonly LogBucket[]): void {
    const difference = distanceFromBuckets(live, nearBuckets);
    const isFirstPair = get(row, "pairs") === 0;
    add(row, "pairs", 1);
    add(row, "off", difference === 0 ? 0 : 1);
    add(row, "sumOff", difference);
    add(row, "sumOffSquared", difference * difference);
    add(row, "sumLive", live);
    add(row, "sumLogged", logged.value);
    add(row, "sumSize", Math.max(Math.abs(live), Math.abs(logged.value)));
    if (isFirstPair || logged.value < get(row, "logMin")) set(row, "logMin", logged.value);
    if (isFirstPair || logged.value > get(row, "logMax")) set(row, "logMax", logged.value);
  }

  function acceptsLogResolution(row: number, rank: number): boolean {
    const currentResolutionRank = get(row, "resolution");
    if (currentResolutionRank !== 0 && currentResolutionRank < rank) return false;
    if (currentResolutionRank !== rank) for (const logColumn of LOG_COMPARISON_COLUMNS) set(row, logColumn, 0);
    set(row, "resolution", rank);
    return true;
  }

  function computeSensorStatistics(row: number): SensorRow {
    const rowValues = Object.fromEntries(SENSOR_COLUMNS.map((column) => [column, get(row, column)])) as ColumnValues;
    const { hours, firstHour, lastHour, type, logMin, logMax } = rowValues;
    const logResolution = LOG_RESOLUTIONS[rowValues.resolution - 1];
    return {
      ...rowValues,
      spanHours: hours === 0 ? 0 : lastHour - firstHour + 1,
      type: VALUE_TYPE_NAMES[type] ?? "none",
      log: logResolution === undefined ? null : { ...rowValues, resolution: logResolution, min: logMin, max: logMax },
    };
  }

  return {
    /** Adds a live reading. `hour`: full hours watched in this period. `atMs` is null without a reliable time. */
    addReading(id: string, value: TagValue, hour: number, atMs: number | null): void {
      const row = getRowForChange(id);
      add(row, "readings", 1);
      noteReadingHour(row, hour);
      if (value === null) {
        add(row, "nulls", 1);
        return;
      }
      const numericValue = Number(value);
      noteReadingValue(row, numericValue, typeof value === "boolean" ? VALUE_TYPE_BOOLEAN : VALUE_TYPE_NUMBER);
      if (atMs === null || get(row, "probeMs") !== 0) return;
      set(row, "probeMs", atMs);
      set(row, "probe", numericValue);
    },

    addPoints(id: string, resolution: Resolution, points: TagPoints, nowMs: number): void {
      const resolutionRank = LOG_RESOLUTIONS.indexOf(resolution) + 1;
      const newestPointIndex = lastIndexWithValue(points);
      if (resolutionRank === 0 || newestPointIndex < 0) return;
      const row = getRowForChange(id);
      if (!acceptsLogResolution(row, resolutionRank)) return;
      const bucketLengthMs = BUCKET_MS[resolution];
      const logLagMs = nowMs - (points.timeMs(newestPointIndex) + bucketLengthMs);
      if (get(row, "replies") === 0 || logLagMs < get(row, "leastLagMs")) set(row, "leastLagMs", logLagMs);
      add(row, "replies", 1);
      for (let index = points.firstIndexFrom(get(row, "newestMs") + 1); index <= newestPointIndex; index++) {
        const value = points.value(index);
        if (value !== null) noteLogBucket(row, bucketLengthMs, { atMs: points.timeMs(index), value: Number(value) });
      }
    },

    rows: () => ids.values().map((id, row) => [id, computeSensorStatistics(row)] as const),

    groupCount: () => tagGroups.length,
    changedGroups: () => [...changedTagGroups],
    pack(group: number): PackedSensors {
      changedTagGroups.delete(group);
      const groupIds = ids.slice(group * TAGS_PER_DOCUMENT, (group + 1) * TAGS_PER_DOCUMENT);
      return { ids: groupIds, numbers: [...(tagGroups[group]?.subarray(0, groupIds.length * COLUMN_COUNT) ?? [])] };
    },

    load(packed: PackedSensors): void {
      // Ignore rows of another version with other columns: the period starts again for their tags.
      if (packed.numbers.length !== packed.ids.length * COLUMN_COUNT) return;
      for (const [rowIndex, id] of packed.ids.entries()) {
        const row = getRowForChange(id);
        for (const [columnIndex, column] of SENSOR_COLUMNS.entries())
          set(row, column, packed.numbers[rowIndex * COLUMN_COUNT + columnIndex] ?? 0);
      }
    },

    clear(): void {
      rowByTagId.clear();
      ids = [];
      tagGroups = [];
      changedTagGroups.clear();
    },
  };
}

function lastIndexWithValue(points: TagPoints): number {
  let index = points.length - 1;
  while (index >= 0 && points.value(index) === null) index--;
  return index;
}

interface LogBucket {
  readonly atMs: number;
  readonly value: number;
}

const MAX_COUNTED_DECIMALS = 6;

/** Distance of a live value from the range of nearby logged values, extended by their rounding; 0 inside. */
export function distanceFromBuckets(liveValue: number, buckets: readonly LogBucket[]): number {
  const bucketValues = buckets.map(({ value }) => value);
  const roundingError = 0.5 * 10 ** -Math.max(...bucketValues.map(countDecimals));
  const lowestBucketValue = Math.min(...bucketValues) - roundingError;
  const highest = Math.max(...bucketValues) + roundingError;
  return liveValue > highest ? liveValue - highest : liveValue < lowestBucketValue ? liveValue - lowestBucketValue : 0;
}

function countDecimals(value: number): number {
  for (let decimals = 0; decimals < MAX_COUNTED_DECIMALS; decimals++) {
    const shiftedValue = value * 10 ** decimals;
    if (Math.abs(shiftedValue - Math.round(shiftedValue)) < 1e-6) return decimals;
  }
  return MAX_COUNTED_DECIMALS;
}
