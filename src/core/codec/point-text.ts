import { isoUtc } from "../values/iso-utc.ts";
import { COMMA } from "./packed-points.ts";
import { PointReader } from "./point-reader.ts";

/** Returns packed points as a JSON list `[{"time":"2026-01-01T00:00:00.000Z","value":21.5}]`; a list unchanged. */
export function listText(points: string): string {
  if (points.startsWith("[")) return points;
  const bytes = bufferFor(points);
  const times = new PointTime(POINT);
  let at = 0;
  bytes[at++] = BRACKET;
  for (const reader = new PointReader(points); reader.next(); ) {
    if (at > 1) bytes[at++] = COMMA;
    at = writePoint(reader, times, bytes, at);
  }
  bytes[at++] = CLOSING;
  return bytes.toString("latin1", 0, at);
}

export interface DayText {
  readonly time: string;
  readonly text: string;
}

/** Splits packed points by day (UTC). Points of a JSON list come singly, because they have only the text of a time. */
export function* dayTexts(points: string): Generator<DayText> {
  const reader = new PointReader(points);
  if (points.startsWith("[")) {
    for (; reader.next(); ) {
      const { time, value } = reader;
      yield { time, text: `{"time":${JSON.stringify(time)},"value":${value}}` };
    }
    return;
  }
  const times = new PointTime(POINT);
  let bytes = bufferFor(points);
  let at = 0;
  let firstMs = Number.NaN;
  const dayText = (): DayText => ({ time: isoUtc(firstMs), text: bytes.toString("latin1", 0, at) });
  for (; reader.next(); ) {
    if (at > 0 && Math.floor(reader.timeMs / DAY_MS) !== Math.floor(firstMs / DAY_MS)) {
      yield dayText();
      bytes = bufferFor(points);
      at = 0;
    }
    if (at > 0) bytes[at++] = COMMA;
    else firstMs = reader.timeMs;
    at = writePoint(reader, times, bytes, at);
  }
  if (at > 0) yield dayText();
}

function writePoint(reader: PointReader, times: PointTime, bytes: Buffer, from: number): number {
  let at = times.write(reader.timeMs, bytes, from);
  if (reader.isOther) at += bytes.write(reader.value, at, "latin1");
  else at = reader.writeNumber(bytes, at);
  bytes[at++] = BRACE;
  return at;
}

/** A packed point has at least two characters. */
function bufferFor(points: string): Buffer {
  const most = points.length + (points.length / 2 + 1) * POINT_BYTES;
  if (reused.length < most) reused = Buffer.allocUnsafeSlow(2 * most);
  return reused;
}

const BRACKET = 91;
const CLOSING = 93;
const BRACE = 125;

/** Reused buffer. Read its contents before the next list is built. */
let reused = Buffer.allocUnsafeSlow(0);

/** JSON before the value of a point, also as part of another text with escaped quotes. */
export const POINT = `{"time":"2026-01-01T00:00:00.000Z","value":`;
export const QUOTED_POINT = POINT.replaceAll(`"`, `\\"`);

/** Most bytes of a point in addition to its number: the JSON before it, a word of five characters, `},`. */
const POINT_BYTES = POINT.length + 7;
const DAY_MS = 86_400_000;
const DATE_LENGTH = 11;

/** Writes the JSON before the values of consecutive points. It formats the date only when the day changes. */
export class PointTime {
  readonly #bytes: Buffer;
  readonly #at: number;
  #day = Number.NaN;

  constructor(form: string) {
    this.#bytes = Buffer.from(form);
    this.#at = form.indexOf("2026");
  }

  write(timeMs: number, into: Buffer, from: number): number {
    const day = Math.floor(timeMs / DAY_MS);
    if (day !== this.#day) {
      this.#day = day;
      const date = new Date(day * DAY_MS).toISOString().slice(0, DATE_LENGTH);
      this.#bytes.write(date, this.#at, "latin1");
    }
    writeClock(this.#bytes, this.#at + DATE_LENGTH, timeMs - day * DAY_MS);
    into.set(this.#bytes, from);
    return from + this.#bytes.length;
  }
}

function writeClock(bytes: Buffer, at: number, ms: number): void {
  const seconds = (ms / 1_000) | 0;
  const minutes = (seconds / 60) | 0;
  const hours = (minutes / 60) | 0;
  const thousandths = ms - seconds * 1_000;
  writeTwo(bytes, at, hours);
  writeTwo(bytes, at + 3, minutes - hours * 60);
  writeTwo(bytes, at + 6, seconds - minutes * 60);
  bytes[at + 9] = 48 + ((thousandths / 100) | 0);
  writeTwo(bytes, at + 10, thousandths % 100);
}

function writeTwo(bytes: Buffer, at: number, number: number): void {
  const tens = (number / 10) | 0;
  bytes[at] = 48 + tens;
  bytes[at + 1] = 48 + number - tens * 10;
}

/** Writes a number as JSON.stringify does and returns its end. */
export function writeNumber(bytes: Buffer, from: number, number: number): number {
  const size = Math.abs(number);
  if (size < 2_000_000) {
    // A number with at most three decimals equals its thousandths divided by 1,000; these digits are its shortest form.
    const thousands = Math.round(size * 1_000);
    if (thousands / 1_000 === size) {
      let at = from;
      if (number < 0) bytes[at++] = 45;
      return writeThousandths(bytes, at, thousands);
    }
  }
  return from + bytes.write(String(number), from, "latin1");
}

/** 21500 is `21.5`. */
function writeThousandths(bytes: Buffer, from: number, thousands: number): number {
  const whole = (thousands / 1_000) | 0;
  let digits = 1;
  for (let limit = 10; whole >= limit; limit *= 10) digits++;
  let left = whole;
  for (let n = digits - 1; n >= 0; n--) {
    bytes[from + n] = 48 + (left % 10);
    left = (left / 10) | 0;
  }
  let at = from + digits;
  let part = thousands - whole * 1_000;
  if (part === 0) return at;
  bytes[at++] = 46;
  for (let unit = 100; part > 0; unit /= 10) {
    const digit = (part / unit) | 0;
    bytes[at++] = 48 + digit;
    part -= digit * unit;
  }
  return at;
}
