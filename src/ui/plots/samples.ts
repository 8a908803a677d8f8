import type { ByteReader, ByteWriter } from "./bytes.ts";
import { digitsOf, readNumber, writeNumber } from "./digits.ts";

/** Readings of one tag, in two columns, in the order in which they came: seconds since 1970, and null for what could not be read. */
export interface Samples {
  readonly times: readonly number[];
  readonly values: readonly (number | null)[];
}

/** How a tag went within an hour: the lowest, the highest and the last value that was read. */
export interface Hour {
  readonly low: number;
  readonly high: number;
  readonly last: number;
}

/** Samples that grow. */
interface Gathered extends Samples {
  readonly times: number[];
  readonly values: (number | null)[];
}

/** How something of one tag and one stretch of time is kept. */
export interface Form<T> {
  /** `begin`: of the stretch, seconds since 1970. */
  write(writer: ByteWriter, value: T, begin: number): void;
  /** Throws `RangeError` where the bytes are not what was written. */
  read(reader: ByteReader, begin: number): T;
  /** Two of the same stretch, the earlier first. */
  join(before: T, after: T): T;
}

/** How it is made, from one reading after the other. */
export interface GrowingForm<T, Reading> extends Form<T> {
  first(atS: number, reading: Reading): T;
  /** Adds a reading; may change and return the given object. */
  more(held: T, atS: number, reading: Reading): T;
}

export const SAMPLES: GrowingForm<Gathered, number | null> = {
  first: (atS, value) => ({ times: [atS], values: [value] }),
  more(held, atS, value) {
    held.times.push(atS);
    held.values.push(value);
    return held;
  },
  write(writer, { times, values }, begin) {
    const digits = digitsOf(values);
    writer.whole(digits);
    writer.whole(times.length);
    let time = begin;
    let whole = 0;
    for (const [n, value] of values.entries()) {
      const next = times[n] ?? time;
      writer.signed(next - time);
      time = next;
      whole = writeNumber(writer, digits, value, whole);
    }
  },
  read(reader, begin) {
    const digits = reader.whole();
    const count = reader.whole();
    const times: number[] = [];
    const values: (number | null)[] = [];
    let time = begin;
    let whole = 0;
    for (let n = 0; n < count; n++) {
      time += reader.signed();
      const next = readNumber(reader, digits, whole);
      whole = next.whole;
      times.push(time);
      values.push(next.value);
    }
    return { times, values };
  },
  join: (before, after) => ({
    times: [...before.times, ...after.times],
    values: [...before.values, ...after.values],
  }),
};

export const HOUR: GrowingForm<Hour, number> = {
  first: (_atS, value) => ({ low: value, high: value, last: value }),
  more: ({ high, low }, _atS, value) => ({
    low: Math.min(low, value),
    high: Math.max(high, value),
    last: value,
  }),
  write(writer, { high, last, low }) {
    const values = [last, low, high].map(rounded);
    const digits = digitsOf(values);
    writer.whole(digits);
    let whole = 0;
    for (const value of values) whole = writeNumber(writer, digits, value, whole);
  },
  read(reader) {
    const digits = reader.whole();
    const last = readNumber(reader, digits, 0);
    const low = readNumber(reader, digits, last.whole);
    const high = readNumber(reader, digits, low.whole);
    if (last.value === null || low.value === null || high.value === null)
      throw new RangeError("An hour has three values.");
    return { last: last.value, low: low.value, high: high.value };
  },
  join: (before, after) => ({
    low: Math.min(before.low, after.low),
    high: Math.max(before.high, after.high),
    last: after.last,
  }),
};

/** Rounds to eight digits: more is invisible in a month and takes half of the space. */
function rounded(value: number): number {
  return Number(value.toPrecision(8));
}
