import { ByteReader, ByteWriter, readColumn, writeColumn } from "./number-encoding.ts";

/** Readings of one tag in order of arrival: seconds since 1970, and null for a value that could not be read. */
export interface Samples {
  readonly times: readonly number[];
  readonly values: readonly (number | null)[];
}

export interface Hour {
  readonly low: number;
  readonly high: number;
  readonly last: number;
}

interface GrowingSamples extends Samples {
  readonly times: number[];
  readonly values: (number | null)[];
}

export interface SeriesFormat<T, Reading> {
  first(atS: number, reading: Reading): T;
  more(data: T, atS: number, reading: Reading): T;
  /** Joins data of one time range, earlier data first. */
  join(before: T, after: T): T;
  /** `begin`: start of the time range, seconds since 1970. */
  write(writer: ByteWriter, value: T, begin: number): void;
  read(reader: ByteReader, begin: number): T;
}

export const SAMPLE_FORMAT: SeriesFormat<GrowingSamples, number | null> = {
  first: (atS, value) => ({ times: [atS], values: [value] }),
  more(data, atS, value) {
    data.times.push(atS);
    data.values.push(value);
    return data;
  },
  join: (before, after) => ({
    times: [...before.times, ...after.times],
    values: [...before.values, ...after.values],
  }),
  write(writer, { times, values }, begin) {
    const writeValue = writeColumn(writer, values);
    writer.unsigned(times.length);
    for (const [n, time] of times.entries()) {
      writer.signed(time - (times[n - 1] ?? begin));
      writeValue(values[n] ?? null);
    }
  },
  read(reader, begin) {
    const readValue = readColumn(reader);
    const count = reader.unsigned();
    const samples: GrowingSamples = { times: [], values: [] };
    for (let n = 0; n < count; n++) this.more(samples, (samples.times.at(-1) ?? begin) + reader.signed(), readValue());
    return samples;
  },
};

export const HOUR_FORMAT: SeriesFormat<Hour, number> = {
  first: (_atS, value) => ({ low: value, high: value, last: value }),
  more: ({ high, low }, _atS, value) => ({ low: Math.min(low, value), high: Math.max(high, value), last: value }),
  join: (before, after) => ({
    low: Math.min(before.low, after.low),
    high: Math.max(before.high, after.high),
    last: after.last,
  }),
  write(writer, { high, last, low }) {
    // Eight digits: more are invisible in a plot of a month and take twice the space.
    const values = [last, low, high].map((value) => Number(value.toPrecision(8)));
    const writeValue = writeColumn(writer, values);
    for (const value of values) writeValue(value);
  },
  read(reader) {
    const readValue = readColumn(reader);
    const [last, low, high] = [readValue(), readValue(), readValue()];
    if (last === null || low === null || high === null) throw new RangeError("An hour has three values.");
    return { last, low, high };
  },
};

/** Encodes data of up to 50 tags and one time range: the start of the range, then the index and data of each tag. */
export function writeChunk<T>(
  form: Pick<SeriesFormat<T, never>, "write">,
  begin: number,
  parts: ReadonlyMap<number, T>,
): string {
  const writer = new ByteWriter();
  writer.unsigned(begin);
  for (const [index, value] of parts) {
    const partWriter = new ByteWriter();
    form.write(partWriter, value, begin);
    writer.unsigned(index);
    writer.part(partWriter);
  }
  return writer.text();
}

/** Data of all tags, or only of one, by index. A damaged text or one of another time range yields less data. */
export function readChunk<T>(
  form: Pick<SeriesFormat<T, never>, "read" | "more">,
  begin: number,
  text: unknown,
  only?: number,
): Map<number, T> {
  const dataByIndex = new Map<number, T>();
  if (typeof text !== "string") return dataByIndex;
  try {
    const reader = new ByteReader(text);
    if (reader.unsigned() !== begin) return dataByIndex;
    while (!reader.isDone) {
      const [index, part] = [reader.unsigned(), reader.part()];
      if (only === undefined || index === only) dataByIndex.set(index, form.read(part, begin));
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return dataByIndex;
}
