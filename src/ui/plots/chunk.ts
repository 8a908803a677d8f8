import { ByteReader, ByteWriter } from "./bytes.ts";
import type { Form } from "./samples.ts";

/**
 * Encodes up to 50 tags of one time range as one text: the start of the range, then for each tag its index and its data. One row
 * for many tags is written once; a row per value would cost a hundred times as much.
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

/** Data of all tags by index; empty when the text is damaged or of another range of the ring. */
export function readChunk<T>(form: Form<T>, begin: number, text: unknown): Map<number, T> {
  const found = new Map<number, T>();
  try {
    for (const [place, reader] of partsIn(begin, text)) found.set(place, form.read(reader, begin));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return found;
}

/** Data of one tag; undefined without any. */
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
