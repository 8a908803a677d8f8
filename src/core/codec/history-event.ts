import { createHash } from "node:crypto";
import type { Resolution, Tag } from "../model/building.ts";
import { type Event, toCloudEvent } from "../model/event.ts";
import type { TagHistoryFact } from "../model/history-event-data.ts";
import { isoUtc } from "../values/iso-utc.ts";
import { PointReader } from "./point-reader.ts";
import { COMMA_CODE, MAX_POINT_BYTES, PackedTimes, type Points, valueLetter, WORDS_BY_LETTER } from "./points.ts";

/** Stored text of history events: JSON with packed points, written from columns because a backfill has millions. */
interface HistoryFields {
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  readonly siteId: number | string | null;
  readonly tag: Tag;
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly points: Points;
  readonly origin: TagHistoryFact["origin"];
  readonly revisedAt: string | null;
}

export function historyEvent(fields: HistoryFields): Event<"tag-history"> {
  const { source, subject, time, siteId, tag, resolution, timeZone, points, origin, revisedAt } = fields;
  const type = "tag-history";
  const idFacts = [type, source, subject, resolution, timeZone];
  const dataBeforePoints = dropLast(JSON.stringify({ tag, resolution, timeZone }));
  const dataAfterPoints = JSON.stringify({ origin, revised: revisedAt !== null }).slice(1);
  const canPack =
    points.isPlain &&
    (points.length === 0 || (points.timeMs(0) >= PACK_FROM_MS && points.timeMs(points.length - 1) < PACK_END_MS));
  const listJson = canPack ? null : JSON.stringify(points);
  const packedPoints = listJson === null ? packPoints(points) : null;
  const id = historyId([
    `${dropLast(JSON.stringify(idFacts))},`,
    packedPoints === null ? JSON.stringify(listJson) : packedPoints.quoted,
    `,${JSON.stringify(revisedAt)}]`,
  ]);
  const site = siteId === null ? {} : { siteid: String(siteId) };
  const prefix = `${dropLast(JSON.stringify({ id, source, type, subject, time, ...site }))}${DATA_MARK}${dataBeforePoints}${POINTS_MARK}`;
  const suffix = `,${dataAfterPoints}}`;
  const eventText = packedPoints?.between(`${prefix}"`, `"${suffix}`) ?? `${prefix}${listJson}${suffix}`;
  return parseHistory(eventText) as Event<"tag-history">;
}

function historyId(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const factPart of parts) hash.update(factPart);
  return `tag-history.${hash.digest().subarray(0, 16).toString("base64url")}`;
}

/** Markers in the event's JSON. String values cannot contain these markers, because quotes in strings are escaped. */
const DATA_MARK = `,"data":`;
const POINTS_MARK = `,"points":`;
const PACKED_MARK = `${POINTS_MARK}"`;
const KIND_MARK = `"type":"tag-history"`;

function dropLast(json: string): string {
  return json.slice(0, -1);
}

const textByHistoryEvent = new WeakMap<Event, string>();

/** Parses the text of a history event; its data only at the first access. Returns null for an event of another kind. */
export function parseHistory(text: string): Event<"tag-history"> | null {
  const dataAt = text.indexOf(DATA_MARK);
  const kindAt = text.indexOf(KIND_MARK);
  if (kindAt < 0 || kindAt > dataAt || !text.endsWith("}}")) return null;
  const event = JSON.parse(`${text.slice(0, dataAt)}}`) as Event<"tag-history">;
  let data: Event<"tag-history">["data"] | undefined;
  Object.defineProperty(event, "data", {
    enumerable: true,
    configurable: true,
    get() {
      data ??= JSON.parse(dataTexts(text).join("")) as Event<"tag-history">["data"];
      return data;
    },
  });
  textByHistoryEvent.set(event, text);
  return event;
}

export function storedHistoryText(event: Event): string | undefined {
  return textByHistoryEvent.get(event);
}

/** Returns a CloudEvents 1.0 JSON object with further attributes, in parts, so that a long text is not copied. */
export function cloudEventTexts(event: Event, extraFields: object = {}): readonly string[] {
  const eventText = textByHistoryEvent.get(event);
  if (eventText === undefined) return [JSON.stringify(toCloudEvent(event, extraFields))];
  const dataAt = eventText.indexOf(DATA_MARK);
  const extraAttributes = JSON.stringify({ ...extraFields, datacontenttype: "application/json" });
  const textBeforeData = `{"specversion":"1.0",${eventText.slice(1, dataAt)},${extraAttributes.slice(1, -1)}${DATA_MARK}`;
  return [textBeforeData, ...dataTexts(eventText), "}"];
}

export function dataText(event: Event): string {
  const eventText = textByHistoryEvent.get(event);
  return eventText === undefined ? JSON.stringify(event.data) : dataTexts(eventText).join("");
}

function dataTexts(text: string): readonly string[] {
  const dataStart = text.indexOf(DATA_MARK) + DATA_MARK.length;
  const packedRange = findPackedPoints(text, dataStart);
  if (packedRange === null) return [text.slice(dataStart, -1)];
  const { from, end } = packedRange;
  return [text.slice(dataStart, from - 1), listText(text.slice(from, end)), text.slice(end + 1, -1)];
}

/** Range of the packed points without quotes in the event's text; null if the points are a JSON list. */
function findPackedPoints(text: string, dataStart: number): { readonly from: number; readonly end: number } | null {
  const pointsStart = text.indexOf(PACKED_MARK, dataStart) + PACKED_MARK.length;
  if (pointsStart < PACKED_MARK.length) return null;
  return { from: pointsStart, end: text.indexOf('"', pointsStart) };
}

export interface HistoryText {
  readonly fact: Omit<TagHistoryFact, "points">;
  readonly points: string;
}

export function historyText(event: Event<"tag-history">): HistoryText {
  const eventText = textByHistoryEvent.get(event);
  const dataStart = eventText === undefined ? -1 : eventText.indexOf(DATA_MARK) + DATA_MARK.length;
  const packedRange = eventText === undefined ? null : findPackedPoints(eventText, dataStart);
  if (eventText === undefined || packedRange === null) {
    const { points, ...fact } = event.data;
    return { fact, points: JSON.stringify(points) };
  }
  const { from, end } = packedRange;
  const fact = JSON.parse(
    `${eventText.slice(dataStart, from - PACKED_MARK.length)}${eventText.slice(end + 1, -1)}`,
  ) as HistoryText["fact"];
  return { fact, points: eventText.slice(from, end) };
}

const QUOTE_CODE = 34;
const OPENING_BRACKET_CODE = 91;
const CLOSING_BRACKET_CODE = 93;
const CLOSING_BRACE_CODE = 125;

/** Maximum bytes of a point as quoted JSON. */
const MAX_QUOTED_BYTES = 84;
const DAY_MS = 86_400_000;
const PACK_FROM_MS = Date.UTC(-1, 11, 31) + DAY_MS;
const PACK_END_MS = Date.UTC(10_000, 0, 1);
const REUSED_BUFFERS = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };

/** Maximum bytes before or after the points: names and descriptions have up to 10,000 characters. */
const MARGIN_BYTES = 200_000;

/** Packs the points. `quoted` is the JSON list as a JSON string. The next call overwrites the result. */
function packPoints(points: Points): { between(head: string, tail: string): string; readonly quoted: Buffer } {
  const maxBytes = points.length * MAX_QUOTED_BYTES + 4 + 2 * MARGIN_BYTES;
  if (REUSED_BUFFERS.quoted.length < maxBytes) {
    REUSED_BUFFERS.packed = Buffer.allocUnsafeSlow(points.length * MAX_POINT_BYTES + 2 * MARGIN_BYTES);
    REUSED_BUFFERS.quoted = Buffer.allocUnsafeSlow(maxBytes);
  }
  const { packed, quoted } = REUSED_BUFFERS;
  const [end, quotedEnd] = writePoints(points, packed, quoted);
  return {
    quoted: quoted.subarray(0, quotedEnd),
    between(head, tail) {
      const [before, after] = [Buffer.byteLength(head), Buffer.byteLength(tail)];
      if (before > MARGIN_BYTES || after > MARGIN_BYTES)
        return `${head}${packed.toString("latin1", MARGIN_BYTES, end)}${tail}`;
      const headOffset = MARGIN_BYTES - before;
      packed.write(head, headOffset);
      packed.write(tail, end);
      const isSingleByteText = before === head.length && after === tail.length;
      return packed.toString(isSingleByteText ? "latin1" : "utf8", headOffset, end + after);
    },
  };
}

function writePoints(points: Points, packed: Buffer, quoted: Buffer): readonly [end: number, quotedEnd: number] {
  let packedEnd = MARGIN_BYTES;
  let quotedAt = 0;
  quoted[quotedAt++] = QUOTE_CODE;
  quoted[quotedAt++] = OPENING_BRACKET_CODE;
  const packedTimeWriter = new PackedTimes(points);
  const quotedTimeWriter = new PointTimeWriter(QUOTED_POINT_JSON);
  for (let i = 0; i < points.length; i++) {
    if (i > 0) quoted[quotedAt++] = COMMA_CODE;
    packedEnd = packedTimeWriter.write(i, packed, packedEnd);
    quotedAt = quotedTimeWriter.write(points.timeMs(i), quoted, quotedAt);
    const code = points.code(i);
    if (Number.isFinite(code)) {
      const numberStart = packedEnd;
      packedEnd = writeNumber(packed, packedEnd, code);
      for (let n = numberStart; n < packedEnd; n++) quoted[quotedAt++] = packed[n] as number;
    } else {
      const wordLetter = valueLetter(code);
      packed[packedEnd++] = wordLetter.charCodeAt(0);
      quotedAt += quoted.write(WORDS_BY_LETTER[wordLetter] as string, quotedAt, "latin1");
    }
    quoted[quotedAt++] = CLOSING_BRACE_CODE;
  }
  quoted[quotedAt++] = CLOSING_BRACKET_CODE;
  quoted[quotedAt++] = QUOTE_CODE;
  return [packedEnd, quotedAt];
}

/** Returns packed points as a JSON list `[{"time":"2026-01-01T00:00:00.000Z","value":21.5}]`; a list unchanged. */
export function listText(points: string): string {
  if (points.startsWith("[")) return points;
  const bytes = reservePointBuffer(points);
  const timeWriter = new PointTimeWriter(POINT_JSON);
  let at = 0;
  bytes[at++] = OPENING_BRACKET_CODE;
  for (const reader = new PointReader(points); reader.next(); ) {
    if (at > 1) bytes[at++] = COMMA_CODE;
    at = writePoint(reader, timeWriter, bytes, at);
  }
  bytes[at++] = CLOSING_BRACKET_CODE;
  return bytes.toString("latin1", 0, at);
}

interface DayPointsText {
  readonly time: string;
  readonly text: string;
}

/** Splits packed points by day (UTC). Points of a JSON list come singly, because they have only the text of a time. */
export function* dayTexts(points: string): Generator<DayPointsText> {
  const reader = new PointReader(points);
  if (points.startsWith("[")) {
    for (; reader.next(); ) {
      const { time, value } = reader;
      yield { time, text: `{"time":${JSON.stringify(time)},"value":${value}}` };
    }
    return;
  }
  const timeWriter = new PointTimeWriter(POINT_JSON);
  let bytes = reservePointBuffer(points);
  let at = 0;
  let dayFirstPointMs = Number.NaN;
  const makeDayText = (): DayPointsText => ({ time: isoUtc(dayFirstPointMs), text: bytes.toString("latin1", 0, at) });
  for (; reader.next(); ) {
    if (at > 0 && Math.floor(reader.timeMs / DAY_MS) !== Math.floor(dayFirstPointMs / DAY_MS)) {
      yield makeDayText();
      bytes = reservePointBuffer(points);
      at = 0;
    }
    if (at > 0) bytes[at++] = COMMA_CODE;
    else dayFirstPointMs = reader.timeMs;
    at = writePoint(reader, timeWriter, bytes, at);
  }
  if (at > 0) yield makeDayText();
}

function writePoint(reader: PointReader, times: PointTimeWriter, bytes: Buffer, from: number): number {
  let at = times.write(reader.timeMs, bytes, from);
  if (reader.isOther) at += bytes.write(reader.value, at, "latin1");
  else at = reader.writeNumber(bytes, at);
  bytes[at++] = CLOSING_BRACE_CODE;
  return at;
}

function reservePointBuffer(points: string): Buffer {
  const maxBytes = points.length + (points.length / 2 + 1) * MAX_POINT_BYTES_WITHOUT_NUMBER;
  if (reusedPointBuffer.length < maxBytes) reusedPointBuffer = Buffer.allocUnsafeSlow(2 * maxBytes);
  return reusedPointBuffer;
}

/** Reused buffer. The next list overwrites its contents. */
let reusedPointBuffer = Buffer.allocUnsafeSlow(0);

/** JSON text before the value of a point, also with escaped quotes. */
const POINT_JSON = `{"time":"2026-01-01T00:00:00.000Z","value":`;
const QUOTED_POINT_JSON = POINT_JSON.replaceAll(`"`, `\\"`);

/** Maximum bytes of a point without the digits of its number. */
const MAX_POINT_BYTES_WITHOUT_NUMBER = POINT_JSON.length + 7;
const DATE_TEXT_BYTES = 11;

/** Writes the JSON before the values of consecutive points. It formats the date only when the day changes. */
class PointTimeWriter {
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
      const date = new Date(day * DAY_MS).toISOString().slice(0, DATE_TEXT_BYTES);
      this.#bytes.write(date, this.#at, "latin1");
    }
    writeTimeOfDay(this.#bytes, this.#at + DATE_TEXT_BYTES, timeMs - day * DAY_MS);
    into.set(this.#bytes, from);
    return from + this.#bytes.length;
  }
}

function writeTimeOfDay(bytes: Buffer, at: number, ms: number): void {
  const seconds = (ms / 1_000) | 0;
  const minutes = (seconds / 60) | 0;
  const hours = (minutes / 60) | 0;
  const milliseconds = ms - seconds * 1_000;
  writeTwoDigits(bytes, at, hours);
  writeTwoDigits(bytes, at + 3, minutes - hours * 60);
  writeTwoDigits(bytes, at + 6, seconds - minutes * 60);
  bytes[at + 9] = 48 + ((milliseconds / 100) | 0);
  writeTwoDigits(bytes, at + 10, milliseconds % 100);
}

function writeTwoDigits(bytes: Buffer, at: number, number: number): void {
  const tensDigit = (number / 10) | 0;
  bytes[at] = 48 + tensDigit;
  bytes[at + 1] = 48 + number - tensDigit * 10;
}

/** Writes a number as JSON.stringify does and returns its end. */
function writeNumber(bytes: Buffer, from: number, number: number): number {
  const absoluteNumber = Math.abs(number);
  if (absoluteNumber < 2_000_000) {
    // Writes numbers with at most three decimals from their thousandths, which is faster than String().
    const thousandths = Math.round(absoluteNumber * 1_000);
    if (thousandths / 1_000 === absoluteNumber) {
      let at = from;
      if (number < 0) bytes[at++] = 45;
      return writeThousandths(bytes, at, thousandths);
    }
  }
  return from + bytes.write(String(number), from, "latin1");
}

function writeThousandths(bytes: Buffer, from: number, thousandths: number): number {
  const integerPart = (thousandths / 1_000) | 0;
  let digitCount = 1;
  for (let limit = 10; integerPart >= limit; limit *= 10) digitCount++;
  let remainingDigits = integerPart;
  for (let n = digitCount - 1; n >= 0; n--) {
    bytes[from + n] = 48 + (remainingDigits % 10);
    remainingDigits = (remainingDigits / 10) | 0;
  }
  let at = from + digitCount;
  let remainingFraction = thousandths - integerPart * 1_000;
  if (remainingFraction === 0) return at;
  bytes[at++] = 46;
  for (let unit = 100; remainingFraction > 0; unit /= 10) {
    const digit = (remainingFraction / unit) | 0;
    bytes[at++] = 48 + digit;
    remainingFraction -= digit * unit;
  }
  return at;
}
