import type { Measurement, TagValue } from "../model/building.ts";
import { isoUtc } from "../values/iso-utc.ts";

/** Points of a tag's history in a column of times and one of values: 16 bytes per point, about 100 as objects. */
export class TagPoints implements Iterable<Measurement> {
  #times: Float64Array<ArrayBuffer>;
  #codes: Float64Array<ArrayBuffer>;
  #length: number;
  /** Received texts of times that differ from the formatted milliseconds, by index; null if there are none. */
  #texts: Map<number, string> | null;

  constructor(times = new Float64Array(MIN_POINT_CAPACITY), valueCodes = new Float64Array(times.length), length = 0) {
    this.#times = times;
    this.#codes = valueCodes;
    this.#length = length;
    this.#texts = null;
  }

  static withCapacity(count: number): TagPoints {
    return new TagPoints(new Float64Array(Math.max(MIN_POINT_CAPACITY, count)));
  }

  static fromMeasurements(measurements: Iterable<Measurement>): TagPoints {
    if (measurements instanceof TagPoints) return measurements;
    const points = new TagPoints();
    for (const measurement of measurements) points.add(measurement);
    return points;
  }

  static concatenate(parts: readonly TagPoints[]): TagPoints {
    const [onlyPart] = parts;
    if (onlyPart !== undefined && parts.length === 1) return onlyPart;
    const points = TagPoints.withCapacity(parts.reduce((sum, part) => sum + part.length, 0));
    for (const pointsPart of parts) for (let i = 0; i < pointsPart.length; i++) points.pushCopy(pointsPart, i);
    return points;
  }

  get length(): number {
    return this.#length;
  }

  get hasOnlyUtcTimes(): boolean {
    return this.#texts === null;
  }

  timeMs(index: number): number {
    return this.#times[index] as number;
  }

  valueCode(index: number): number {
    return this.#codes[index] as number;
  }

  value(index: number): TagValue {
    return decodeTagValue(this.#codes[index] as number);
  }

  timeText(index: number): string {
    return this.#texts?.get(index) ?? isoUtc(this.#times[index] as number);
  }

  push(timeMs: number, valueCode: number): void {
    const index = this.#length;
    if (index === this.#times.length) this.#grow();
    this.#times[index] = timeMs;
    this.#codes[index] = valueCode;
    this.#length = index + 1;
  }

  add({ time, value }: Measurement): void {
    const timeMs = Date.parse(time);
    if (Number.isNaN(timeMs) || isoUtc(timeMs) !== time) {
      this.#texts ??= new Map();
      this.#texts.set(this.#length, time);
    }
    this.push(timeMs, encodeTagValue(value));
  }

  pushCopy(other: TagPoints, index: number): void {
    const originalTimeText = other.#texts?.get(index);
    if (originalTimeText !== undefined) {
      this.#texts ??= new Map();
      this.#texts.set(this.#length, originalTimeText);
    }
    this.push(other.timeMs(index), other.valueCode(index));
  }

  sliceByIndex(from: number, to: number): TagPoints {
    if (from === 0 && to === this.#length) return this;
    const pointsInRange = new TagPoints(this.#times.subarray(from, to), this.#codes.subarray(from, to), to - from);
    for (const [index, timeText] of this.#texts ?? []) {
      if (index < from || index >= to) continue;
      pointsInRange.#texts ??= new Map();
      pointsInRange.#texts.set(index - from, timeText);
    }
    return pointsInRange;
  }

  sortedByTime(): TagPoints {
    if (this.isAscending()) return this;
    const lastIndexByTime = new Map<number, number>();
    for (let i = 0; i < this.#length; i++) lastIndexByTime.set(this.timeMs(i), i);
    lastIndexByTime.delete(Number.NaN);
    const sortedPoints = TagPoints.withCapacity(lastIndexByTime.size);
    for (const [, index] of [...lastIndexByTime].sort(([a], [b]) => a - b)) sortedPoints.pushCopy(this, index);
    return sortedPoints;
  }

  isAscending(): boolean {
    // The comparison is false for an invalid time, which is NaN.
    for (let i = 1; i < this.#length; i++) if (!(this.timeMs(i - 1) < this.timeMs(i))) return false;
    return this.#length === 0 || !Number.isNaN(this.timeMs(0));
  }

  withoutNullValues(): TagPoints {
    const points = new TagPoints();
    for (let i = 0; i < this.#length; i++) if (!Number.isNaN(this.valueCode(i))) points.pushCopy(this, i);
    return points;
  }

  sliceByTime(fromMs: number, toMs: number): TagPoints {
    return this.sliceByIndex(this.firstIndexFrom(fromMs), this.firstIndexFrom(toMs));
  }

  firstIndexFrom(timeMs: number): number {
    let [low, high] = [0, this.#length];
    while (low < high) {
      const middleIndex = (low + high) >> 1;
      if (this.timeMs(middleIndex) < timeMs) low = middleIndex + 1;
      else high = middleIndex;
    }
    return low;
  }

  *[Symbol.iterator](): Generator<Measurement> {
    for (let i = 0; i < this.#length; i++) yield { time: this.timeText(i), value: this.value(i) };
  }

  toJSON(): readonly Measurement[] {
    return [...this];
  }

  #grow(): void {
    const pointCapacity = Math.max(MIN_POINT_CAPACITY, 2 * this.#length);
    const [times, valueCodes] = [new Float64Array(pointCapacity), new Float64Array(pointCapacity)];
    times.set(this.#times.subarray(0, this.#length));
    valueCodes.set(this.#codes.subarray(0, this.#length));
    this.#times = times;
    this.#codes = valueCodes;
  }
}

const MIN_POINT_CAPACITY = 16;

/** Encodes a value as one number. Values are finite, so null, true and false use the three non-finite numbers. */
export function encodeTagValue(value: TagValue): number {
  if (typeof value === "number") return value;
  return value === null ? NULL_VALUE_CODE : value ? TRUE_VALUE_CODE : FALSE_VALUE_CODE;
}

export const NULL_VALUE_CODE = Number.NaN;
export const TRUE_VALUE_CODE = Number.POSITIVE_INFINITY;
export const FALSE_VALUE_CODE = Number.NEGATIVE_INFINITY;

function decodeTagValue(code: number): TagValue {
  if (Number.isFinite(code)) return code;
  return Number.isNaN(code) ? null : code > 0;
}

/**
 * Packed points of a history event. Points at regular times take an eighth of their JSON; a backfill has gigabytes of JSON.
 *
 *     1767225600000+300000:21.5,21.6,t,n;7200000:20
 *
 * `;` separates groups of points. A group begins with its first time in milliseconds: since 1970, or since the previous
 * point. `+` is the interval within the group. Values are JSON numbers, or `t`, `f` and `n` for true, false and null.
 * Example: 21.5 at 2026-01-01T00:00:00.000Z, 21.6 five minutes later, then true, null, and 20 two hours after null.
 */

export const COMMA_CODE = 44;
export const COLON_CODE = 58;
export const SEMICOLON_CODE = 59;
export const PLUS_CODE = 43;
export const MINUS_CODE = 45;
export const VALUE_BY_LETTER: Readonly<Record<string, string>> = { t: "true", f: "false", n: "null" };

/** Maximum bytes of a packed point: two times, a number and separators. */
export const MAX_POINT_BYTES = 60;

export function valueLetter(code: number): string {
  return code === TRUE_VALUE_CODE ? "t" : code === FALSE_VALUE_CODE ? "f" : "n";
}

export class TimePacker {
  readonly #points: TagPoints;
  #lastMs = 0;
  #stepMs = Number.NaN;

  constructor(points: TagPoints) {
    this.#points = points;
  }

  writeTime(index: number, bytes: Buffer, startOffset: number): number {
    const timeMs = this.#points.timeMs(index);
    const sincePreviousPointMs = timeMs - this.#lastMs;
    this.#lastMs = timeMs;
    let writeOffset = startOffset;
    if (index > 0 && sincePreviousPointMs === this.#stepMs) {
      bytes[writeOffset++] = COMMA_CODE;
      return writeOffset;
    }
    if (index > 0) bytes[writeOffset++] = SEMICOLON_CODE;
    writeOffset += bytes.write(String(sincePreviousPointMs), writeOffset, "latin1");
    const isLastPoint = index + 1 === this.#points.length;
    this.#stepMs = isLastPoint ? Number.NaN : this.#points.timeMs(index + 1) - timeMs;
    if (!isLastPoint) {
      bytes[writeOffset++] = PLUS_CODE;
      writeOffset += bytes.write(String(this.#stepMs), writeOffset, "latin1");
    }
    bytes[writeOffset++] = COLON_CODE;
    return writeOffset;
  }
}
