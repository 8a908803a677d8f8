import { isoUtc } from "../values/iso-utc.ts";
import { COMMA } from "./packed-points.ts";
import { PointReader } from "./point-reader.ts";

/** The points of an event of history as the JSON that is sent, `[{"time":"2026-01-01T00:00:00.000Z","value":21.5}]`. */

/** Packed points, or a JSON list, as a JSON list. */
export function listText(points: string): string {
  if (points.startsWith("[")) return points;
  const bytes = roomFor(points);
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

/** Points of one day (UTC) as JSON, with commas between them. */
export interface DayText {
  /** Timestamp of the first point. */
  readonly time: string;
  readonly text: string;
}

/** The points in parts of one day (UTC) each, in their order; those of a list one by one, because their time is only a text. */
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
  let bytes = roomFor(points);
  let at = 0;
  let firstMs = Number.NaN;
  const told = (): DayText => ({
    time: isoUtc(firstMs),
    text: bytes.toString("latin1", 0, at),
  });
  for (; reader.next(); ) {
    if (at > 0 && Math.floor(reader.timeMs / DAY_MS) !== Math.floor(firstMs / DAY_MS)) {
      yield told();
      // Other work may have used the buffer during the pause.
      bytes = roomFor(points);
      at = 0;
    }
    if (at > 0) bytes[at++] = COMMA;
    else firstMs = reader.timeMs;
    at = writePoint(reader, times, bytes, at);
  }
  if (at > 0) yield told();
}

function writePoint(reader: PointReader, times: PointTime, bytes: Buffer, from: number): number {
  let at = times.write(reader.timeMs, bytes, from);
  if (reader.isOther) at += bytes.write(reader.value, at, "latin1");
  else at = reader.writeNumber(bytes, at);
  bytes[at++] = BRACE;
  return at;
}

/** For all of a list; a point has two characters at least. */
function roomFor(points: string): Buffer {
  const most = points.length + (points.length / 2 + 1) * POINT_BYTES;
  if (bench.length < most) bench = Buffer.allocUnsafeSlow(2 * most);
  return bench;
}

const BRACKET = 91;
const CLOSING = 93;
const BRACE = 125;

/** Reused buffer for building lists. Its contents are used before the next list is built. */
let bench = Buffer.allocUnsafeSlow(0);

/** JSON before the value of a point, also as part of another text with escaped quotes. */
export const POINT = `{"time":"2026-01-01T00:00:00.000Z","value":`;
export const QUOTED_POINT = POINT.replaceAll(`"`, `\\"`);

/** Most bytes of a point in addition to its number: the JSON before it, a word of five characters, `},`. */
const POINT_BYTES = POINT.length + 7;
const DAY_MS = 86_400_000;
/** `2026-01-01T` */
const DATE_LENGTH = 11;

/** Writes what stands before the values of points, one after the other: of most of them only the clock differs. */
export class PointTime {
  readonly #bytes: Buffer;
  readonly #at: number;
  #day = Number.NaN;

  constructor(form: string) {
    this.#bytes = Buffer.from(form);
    this.#at = form.indexOf("2026");
  }

  /** Writes it for a moment in the years 0 to 9999, and returns what follows it. */
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

/** `08:05:00.000` */
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

/** A number as JSON.stringify writes it; returns what follows it. */
export function writeNumber(bytes: Buffer, from: number, number: number): number {
  const size = Math.abs(number);
  if (size < 2_000_000) {
    // A number of three decimals or fewer is their quotient, and has no shorter spelling than these digits.
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
