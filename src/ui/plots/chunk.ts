import { ByteReader, ByteWriter } from "./bytes.ts";
import type { Form } from "./samples.ts";

/**
 * What is kept of up to 50 tags for one stretch of time, as one text: the time at which the stretch begins, then for each
 * tag its place among them and its part. One text of many tags is one row that is written once; a row for each value would
 * cost a hundred times that.
 */
export function writeChunk<T>(form: Form<T>, begin: number, parts: ReadonlyMap<number, T>): string {
  const writer = new ByteWriter();
  const part = new ByteWriter();
  writer.whole(begin);
  for (const [place, value] of parts) {
    writer.whole(place);
    part.clear();
    form.write(part, value, begin);
    writer.part(part);
  }
  return writer.text();
}

/** Of all tags, by place; empty where the text is of another time, as the ring has come round, or damaged. */
export function readChunk<T>(form: Form<T>, begin: number, text: unknown): Map<number, T> {
  const found = new Map<number, T>();
  try {
    for (const [place, reader] of partsIn(begin, text)) found.set(place, form.read(reader, begin));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return found;
}

/** Of one tag; undefined where nothing is kept of it. */
export function readPart<T>(form: Form<T>, begin: number, text: unknown, place: number): T | undefined {
  try {
    for (const [at, reader] of partsIn(begin, text)) if (at === place) return form.read(reader, begin);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return undefined;
}

function* partsIn(begin: number, text: unknown): Generator<readonly [number, ByteReader]> {
  if (typeof text !== "string") return;
  const reader = new ByteReader(text);
  if (reader.isDone || reader.whole() !== begin) return;
  while (!reader.isDone) yield [reader.whole(), reader.part()];
}
