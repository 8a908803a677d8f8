import type { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagValue } from "../../../core/model/building.ts";

/**
 * Statistics of each tag in one period: a row of 26 numbers of 8 bytes, 10 MB for 50,000 tags.
 *
 * One live value per history response, the probe, is compared with the log. It waits until its bucket and the next one
 * have arrived; then the next live value becomes the probe. No other values need to be stored.
 *
 *   buckets   v1 ├────┤ v2 ├────┤ v3 ├────┤          the newest two are kept
 *   live                  × probe                    compared when v3 comes
 */
export interface SensorTable {
  /** A live reading. `hour`: hours that the worker has watched in this period, whole. `atMs` null: no time to trust. */
  read(id: string, value: TagValue, hour: number, atMs: number | null): void;
  /** Receives the points of a request for closed buckets of one series, ascending. */
  logged(id: string, resolution: Resolution, points: Points, nowMs: number): void;
  rows(): Iterable<readonly [id: string, row: SensorRow]>;
  /** How many groups of tags there are, as they are stored, and those that changed since they were packed last. */
  groups(): number;
  changedGroups(): readonly number[];
  pack(group: number): PackedSensors;
  load(packed: PackedSensors): void;
  clear(): void;
}

/** Up to 250 tags. */
interface PackedSensors {
  readonly ids: readonly string[];
  /** One row after the other. */
  readonly numbers: readonly number[];
}

/** Numbers, and booleans as 0 and 1. */
export interface SensorRow {
  readonly readings: number;
  readonly nulls: number;
  /** Hours in which it was read, and from the first to the last of them. */
  readonly hours: number;
  readonly spanHours: number;
  /** Least value; 0 if there is none. */
  readonly min: number;
  readonly max: number;
  readonly type: "none" | "number" | "boolean" | "mixed";
  readonly log: {
    readonly resolution: Resolution;
    /** Replies with a value, and the least time by which their newest bucket was over when they came, milliseconds. */
    readonly replies: number;
    readonly leastLagMs: number;
    readonly pairs: number;
    /** How many of them differ beyond what the buckets explain; sums of that difference and of its square. */
    readonly off: number;
    readonly sumOff: number;
    readonly sumOffSquared: number;
    readonly sumLive: number;
    readonly sumLogged: number;
    /** Sum of the larger of the two absolute values. */
    readonly sumSize: number;
    readonly min: number;
    readonly max: number;
  } | null;
}

const GROUP = 250;
const FIRST_ROWS = 32;
/** A log that has a value an hour leaves most buckets of 5 minutes empty: those that have one are neighbours, milliseconds. */
const SPARSE_MS = 2 * 3_600_000;
/** Resolutions that can be compared; a bucket of one week is too long. */
const RESOLUTIONS: readonly Resolution[] = ["5m", "1h", "1d"];

const COLUMNS = [
  "readings",
  "nulls",
  "hours",
  "firstHour",
  "lastHour",
  "min",
  "max",
  "type",
  "probeMs",
  "probe",
  "resolution",
  "replies",
  "leastLagMs",
  "beforeMs",
  "before",
  "newestMs",
  "newest",
  "pairs",
  "off",
  "sumOff",
  "sumOffSquared",
  "sumLive",
  "sumLogged",
  "sumSize",
  "logMin",
  "logMax",
] as const;
const WIDTH = COLUMNS.length;
type Column = (typeof COLUMNS)[number];
const AT = Object.fromEntries(COLUMNS.map((name, at) => [name, at])) as Readonly<Record<Column, number>>;
const LOG_COLUMNS = COLUMNS.slice(COLUMNS.indexOf("resolution"));

const NUMBER = 1;
const BOOLEAN = 2;
const TYPES = ["none", "number", "boolean", "mixed"] as const;

export function createSensorTable(): SensorTable {
  const places = new Map<string, number>();
  let ids: string[] = [];
  let groups: Float64Array[] = [];
  const changed = new Set<number>();

  const get = (place: number, column: Column): number =>
    groups[Math.floor(place / GROUP)]?.[(place % GROUP) * WIDTH + AT[column]] ?? 0;
  const set = (place: number, column: Column, value: number): void => {
    const group = groups[Math.floor(place / GROUP)];
    if (group !== undefined) group[(place % GROUP) * WIDTH + AT[column]] = value;
  };
  /** A place behind all others; a building of 20 tags has no room for 250. */
  function addRoom(place: number): void {
    const at = Math.floor(place / GROUP);
    const group = groups[at] ?? new Float64Array(FIRST_ROWS * WIDTH);
    const rows = group.length / WIDTH;
    if (place % GROUP < rows) {
      groups[at] = group;
      return;
    }
    const wider = new Float64Array(Math.min(GROUP, 2 * rows) * WIDTH);
    wider.set(group);
    groups[at] = wider;
  }
  const add = (place: number, column: Column, value: number) => set(place, column, get(place, column) + value);

  function placeOf(id: string): number {
    const known = places.get(id);
    const place = known ?? ids.length;
    if (known === undefined) {
      addRoom(place);
      places.set(id, place);
      ids.push(id);
    }
    changed.add(Math.floor(place / GROUP));
    return place;
  }

  /** Hours are kept from 1 on, so that 0 is none. */
  function noteHour(place: number, hour: number): void {
    const now = hour + 1;
    if (get(place, "lastHour") === now) return;
    add(place, "hours", 1);
    set(place, "lastHour", now);
    if (get(place, "firstHour") === 0) set(place, "firstHour", now);
  }

  function noteValue(place: number, value: number, type: number): void {
    const isFirst = get(place, "type") === 0;
    set(place, "type", get(place, "type") | type);
    if (isFirst || value < get(place, "min")) set(place, "min", value);
    if (isFirst || value > get(place, "max")) set(place, "max", value);
  }

  function noteBucket(place: number, lengthMs: number, next: Bucket): void {
    const newest = { atMs: get(place, "newestMs"), value: get(place, "newest") };
    const probeMs = get(place, "probeMs");
    const apartMs = Math.max(1.5 * lengthMs, SPARSE_MS);
    if (probeMs !== 0 && newest.atMs !== 0 && probeMs < next.atMs) {
      const isNext = next.atMs - newest.atMs <= apartMs;
      if (isNext && probeMs >= newest.atMs) {
        const before = { atMs: get(place, "beforeMs"), value: get(place, "before") };
        const isBefore = before.atMs !== 0 && newest.atMs - before.atMs <= apartMs;
        const around = isBefore ? [before, newest, next] : [newest, next];
        compare(place, get(place, "probe"), newest, around);
      }
      set(place, "probeMs", 0);
    }
    set(place, "beforeMs", newest.atMs);
    set(place, "before", newest.value);
    set(place, "newestMs", next.atMs);
    set(place, "newest", next.value);
  }

  function compare(place: number, live: number, logged: Bucket, around: readonly Bucket[]): void {
    const off = compared(live, around);
    const isFirst = get(place, "pairs") === 0;
    add(place, "pairs", 1);
    add(place, "off", off === 0 ? 0 : 1);
    add(place, "sumOff", off);
    add(place, "sumOffSquared", off * off);
    add(place, "sumLive", live);
    add(place, "sumLogged", logged.value);
    add(place, "sumSize", Math.max(Math.abs(live), Math.abs(logged.value)));
    if (isFirst || logged.value < get(place, "logMin")) set(place, "logMin", logged.value);
    if (isFirst || logged.value > get(place, "logMax")) set(place, "logMax", logged.value);
  }

  /** Returns true for the finest series of the tag; coarser ones are ignored. */
  function takesSeries(place: number, rank: number): boolean {
    const known = get(place, "resolution");
    if (known !== 0 && known < rank) return false;
    if (known !== rank) for (const column of LOG_COLUMNS) set(place, column, 0);
    set(place, "resolution", rank);
    return true;
  }

  function rowAt(place: number): SensorRow {
    const resolution = RESOLUTIONS[get(place, "resolution") - 1];
    return {
      readings: get(place, "readings"),
      nulls: get(place, "nulls"),
      hours: get(place, "hours"),
      spanHours: get(place, "hours") === 0 ? 0 : get(place, "lastHour") - get(place, "firstHour") + 1,
      min: get(place, "min"),
      max: get(place, "max"),
      type: TYPES[get(place, "type")] ?? "none",
      log:
        resolution === undefined
          ? null
          : {
              resolution,
              replies: get(place, "replies"),
              leastLagMs: get(place, "leastLagMs"),
              pairs: get(place, "pairs"),
              off: get(place, "off"),
              sumOff: get(place, "sumOff"),
              sumOffSquared: get(place, "sumOffSquared"),
              sumLive: get(place, "sumLive"),
              sumLogged: get(place, "sumLogged"),
              sumSize: get(place, "sumSize"),
              min: get(place, "logMin"),
              max: get(place, "logMax"),
            },
    };
  }

  return {
    read(id, value, hour, atMs) {
      const place = placeOf(id);
      add(place, "readings", 1);
      noteHour(place, hour);
      if (value === null) {
        add(place, "nulls", 1);
        return;
      }
      const number = Number(value);
      noteValue(place, number, typeof value === "boolean" ? BOOLEAN : NUMBER);
      if (atMs === null || get(place, "probeMs") !== 0) return;
      set(place, "probeMs", atMs);
      set(place, "probe", number);
    },

    logged(id, resolution, points, nowMs) {
      const rank = RESOLUTIONS.indexOf(resolution) + 1;
      const newestAt = lastWithValue(points);
      if (rank === 0 || newestAt < 0) return;
      const place = placeOf(id);
      if (!takesSeries(place, rank)) return;
      const lengthMs = BUCKET_MS[resolution];
      const lagMs = nowMs - (points.timeMs(newestAt) + lengthMs);
      if (get(place, "replies") === 0 || lagMs < get(place, "leastLagMs")) set(place, "leastLagMs", lagMs);
      add(place, "replies", 1);
      for (let at = points.placeOf(get(place, "newestMs") + 1); at <= newestAt; at++) {
        const value = points.value(at);
        if (value !== null) noteBucket(place, lengthMs, { atMs: points.timeMs(at), value: Number(value) });
      }
    },

    *rows() {
      for (const [place, id] of ids.entries()) yield [id, rowAt(place)] as const;
    },

    groups: () => groups.length,

    changedGroups: () => [...changed],

    pack(group) {
      changed.delete(group);
      const inGroup = ids.slice(group * GROUP, (group + 1) * GROUP);
      return { ids: inGroup, numbers: [...(groups[group]?.subarray(0, inGroup.length * WIDTH) ?? [])] };
    },

    load(packed) {
      // Ignore rows that another version wrote with other columns: the period starts again for their tags.
      if (packed.numbers.length !== packed.ids.length * WIDTH) return;
      for (const [row, id] of packed.ids.entries()) {
        const place = placeOf(id);
        for (const [at, column] of COLUMNS.entries()) set(place, column, packed.numbers[row * WIDTH + at] ?? 0);
      }
    },

    clear() {
      places.clear();
      ids = [];
      groups = [];
      changed.clear();
    },
  };
}

function lastWithValue(points: Points): number {
  let at = points.length - 1;
  while (at >= 0 && points.value(at) === null) at--;
  return at;
}

/** A bucket of a log; a boolean as 0 or 1. */
interface Bucket {
  readonly atMs: number;
  readonly value: number;
}

const MOST_DECIMALS = 6;

/**
 * By how much a live value lies outside of what the log says around its time; 0 where it lies inside. A bucket may be an
 * average, its first value or its last, and the service does not say which: so whatever lies between the bucket and its
 * neighbours is explained, and so is what was lost by rounding: 21.04 against 20.9, 21 and 21.0 is, 21.6 is 0.55 above.
 */
export function compared(live: number, around: readonly Bucket[]): number {
  const values = around.map(({ value }) => value);
  const roundedBy = 0.5 * 10 ** -Math.max(...values.map(decimalsOf));
  const low = Math.min(...values) - roundedBy;
  const high = Math.max(...values) + roundedBy;
  return live > high ? live - high : live < low ? live - low : 0;
}

function decimalsOf(value: number): number {
  for (let decimals = 0; decimals < MOST_DECIMALS; decimals++) {
    const shifted = value * 10 ** decimals;
    if (Math.abs(shifted - Math.round(shifted)) < 1e-6) return decimals;
  }
  return MOST_DECIMALS;
}
