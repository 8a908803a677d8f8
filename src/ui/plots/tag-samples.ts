import { ByteReader, ByteWriter, numberReader, numberWriter } from "./number-encoding.ts";

/** Values of one tag in order of arrival. `times`: seconds since 1970. A value is null if it could not be read. */
export interface Samples {
  readonly times: readonly number[];
  readonly values: readonly (number | null)[];
}

export interface HourSummary {
  readonly low: number;
  readonly high: number;
  readonly last: number;
}

interface MutableSamples extends Samples {
  readonly times: number[];
  readonly values: (number | null)[];
}

export type TimeValuePair = readonly [timeS: number, value: number | null];

export const pairsOfSamples = ({ times, values }: Samples): readonly TimeValuePair[] =>
  times.map((time, n) => [time, values[n] ?? null]);

export const samplesOfPairs = (pairs: readonly TimeValuePair[]): Samples => ({
  times: pairs.map(([time]) => time),
  values: pairs.map(([, value]) => value),
});

export interface ChunkFormat<T, Reading> {
  /** Adds a reading to the data of a tag; `data` is undefined for the first reading. */
  addReading(data: T | undefined, atS: number, reading: Reading): T;
  mergeData(before: T, after: T): T;
  /** Writes the data of one tag. `startS`: start of the time range, seconds since 1970. */
  write(writer: ByteWriter, value: T, startS: number): void;
  read(reader: ByteReader, startS: number): T;
}

export const SAMPLE_FORMAT: ChunkFormat<MutableSamples, number | null> = {
  addReading(data = { times: [], values: [] }, atS, value) {
    data.times.push(atS);
    data.values.push(value);
    return data;
  },
  mergeData: (before, after) => ({
    times: [...before.times, ...after.times],
    values: [...before.values, ...after.values],
  }),
  write(writer, { times, values }, startS) {
    const writeNextValue = numberWriter(writer, values);
    writer.writeUnsigned(times.length);
    for (const [n, time] of times.entries()) {
      writer.writeSigned(time - (times[n - 1] ?? startS));
      writeNextValue(values[n] ?? null);
    }
  },
  read(reader, startS) {
    const readNextValue = numberReader(reader);
    const sampleCount = reader.readUnsigned();
    const samples: MutableSamples = { times: [], values: [] };
    for (let n = 0; n < sampleCount; n++)
      this.addReading(samples, (samples.times.at(-1) ?? startS) + reader.readSigned(), readNextValue());
    return samples;
  },
};

export const HOUR_FORMAT: ChunkFormat<HourSummary, number> = {
  addReading: (hour, _atS, value) => ({
    low: Math.min(hour?.low ?? value, value),
    high: Math.max(hour?.high ?? value, value),
    last: value,
  }),
  mergeData: (before, after) => ({
    low: Math.min(before.low, after.low),
    high: Math.max(before.high, after.high),
    last: after.last,
  }),
  write(writer, { high, last, low }) {
    // Store eight digits: more are invisible in a plot of a month and take twice the space.
    const values = [last, low, high].map((value) => Number(value.toPrecision(8)));
    const writeNextValue = numberWriter(writer, values);
    for (const value of values) writeNextValue(value);
  },
  read(reader) {
    const readNextValue = numberReader(reader);
    const [last, low, high] = [readNextValue(), readNextValue(), readNextValue()];
    if (last === null || low === null || high === null) throw new RangeError("An hour has three values.");
    return { last, low, high };
  },
};

/** Encodes a chunk: the start of its time range, then the index and the data of each tag. */
export function encodeChunk<T>(
  format: Pick<ChunkFormat<T, never>, "write">,
  chunkStartS: number,
  dataByTagIndex: ReadonlyMap<number, T>,
): string {
  const chunkWriter = new ByteWriter();
  chunkWriter.writeUnsigned(chunkStartS);
  for (const [index, value] of dataByTagIndex) {
    const tagDataWriter = new ByteWriter();
    format.write(tagDataWriter, value, chunkStartS);
    chunkWriter.writeUnsigned(index);
    chunkWriter.writePart(tagDataWriter);
  }
  return chunkWriter.toBase64();
}

/** Decodes a chunk to data by tag index, up to the first damaged byte. Ignores a chunk of another time range. */
export function decodeChunk<T>(
  format: Pick<ChunkFormat<T, never>, "read" | "addReading">,
  chunkStartS: number,
  chunkText: unknown,
  onlyTagIndex?: number,
): Map<number, T> {
  const dataByTagIndex = new Map<number, T>();
  if (typeof chunkText !== "string") return dataByTagIndex;
  try {
    const chunkReader = new ByteReader(chunkText);
    if (chunkReader.readUnsigned() !== chunkStartS) return dataByTagIndex;
    while (!chunkReader.isDone) {
      const [index, tagDataReader] = [chunkReader.readUnsigned(), chunkReader.readPart()];
      if (onlyTagIndex === undefined || index === onlyTagIndex)
        dataByTagIndex.set(index, format.read(tagDataReader, chunkStartS));
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return dataByTagIndex;
}
