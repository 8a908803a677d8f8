import { createHash } from "node:crypto";
import type { Resolution, Tag } from "../model/building.ts";
import { type Event, toCloudEvent } from "../model/event.ts";
import type { TagHistoryFact } from "../model/history-facts.ts";
import { isoUtc } from "../values/iso-utc.ts";
import { PointReader } from "./point-reader.ts";
import { COMMA_CODE, PACKED_BYTES, PackedTimes, type Points, valueLetter, WORDS_BY_LETTER } from "./points.ts";

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
  const dataBeforePoints = withoutEnd(JSON.stringify({ tag, resolution, timeZone }));
  const dataAfterPoints = JSON.stringify({ origin, revised: revisedAt !== null }).slice(1);
  const canPack =
    points.isPlain &&
    (points.length === 0 || (points.timeMs(0) >= FIRST_MS && points.timeMs(points.length - 1) < END_MS));
  const list = canPack ? null : JSON.stringify(points);
  const packedPoints = list === null ? packPoints(points) : null;
  const id = historyId([
    `${withoutEnd(JSON.stringify(idFacts))},`,
    packedPoints === null ? JSON.stringify(list) : packedPoints.quoted,
    `,${JSON.stringify(revisedAt)}]`,
  ]);
  const site = siteId === null ? {} : { siteid: String(siteId) };
  const head = `${withoutEnd(JSON.stringify({ id, source, type, subject, time, ...site }))}${DATA_MARK}${dataBeforePoints}${POINTS_MARK}`;
  const tail = `,${dataAfterPoints}}`;
  const eventText = packedPoints?.between(`${head}"`, `"${tail}`) ?? `${head}${list}${tail}`;
  return parseHistory(eventText) as Event<"tag-history">;
}

/** Returns the id that `eventId` makes, from parts of the facts' JSON. */
function historyId(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const factPart of parts) hash.update(factPart);
  return `tag-history.${hash.digest().subarray(0, 16).toString("base64url")}`;
}

/** Unambiguous markers in the event's JSON: inside a string their quotes would be escaped. */
const DATA_MARK = `,"data":`;
const POINTS_MARK = `,"points":`;
const PACKED_MARK = `${POINTS_MARK}"`;
const KIND_MARK = `"type":"tag-history"`;

function withoutEnd(json: string): string {
  return json.slice(0, -1);
}

const texts = new WeakMap<Event, string>();

/** Parses the text of a history event; its data only at the first access. Returns null for an event of another kind. */
export function parseHistory(text: string): Event<"tag-history"> | null {
  const at = text.indexOf(DATA_MARK);
  const kind = text.indexOf(KIND_MARK);
  if (kind < 0 || kind > at || !text.endsWith("}}")) return null;
  const event = JSON.parse(`${text.slice(0, at)}}`) as Event<"tag-history">;
  let data: Event<"tag-history">["data"] | undefined;
  Object.defineProperty(event, "data", {
    enumerable: true,
    configurable: true,
    get() {
      data ??= JSON.parse(dataTexts(text).join("")) as Event<"tag-history">["data"];
      return data;
    },
  });
  texts.set(event, text);
  return event;
}

export function storedHistory(event: Event): string | undefined {
  return texts.get(event);
}

/** Returns a CloudEvents 1.0 JSON object with further attributes, in parts, so that a long text is not copied. */
export function cloudEventTexts(event: Event, further: object = {}): readonly string[] {
  const eventText = texts.get(event);
  if (eventText === undefined) return [JSON.stringify(toCloudEvent(event, further))];
  const at = eventText.indexOf(DATA_MARK);
  const extraAttributes = JSON.stringify({ ...further, datacontenttype: "application/json" });
  const textBeforeData = `{"specversion":"1.0",${eventText.slice(1, at)},${extraAttributes.slice(1, -1)}${DATA_MARK}`;
  return [textBeforeData, ...dataTexts(eventText), "}"];
}

export function dataText(event: Event): string {
  const eventText = texts.get(event);
  return eventText === undefined ? JSON.stringify(event.data) : dataTexts(eventText).join("");
}

function dataTexts(text: string): readonly string[] {
  const start = text.indexOf(DATA_MARK) + DATA_MARK.length;
  const packedRange = findPackedPoints(text, start);
  if (packedRange === null) return [text.slice(start, -1)];
  const { from, end } = packedRange;
  return [text.slice(start, from - 1), listText(text.slice(from, end)), text.slice(end + 1, -1)];
}

/** Range of the packed points without quotes in the event's text; null if the points are a JSON list. */
function findPackedPoints(text: string, dataAt: number): { readonly from: number; readonly end: number } | null {
  const pointsStart = text.indexOf(PACKED_MARK, dataAt) + PACKED_MARK.length;
  if (pointsStart < PACKED_MARK.length) return null;
  return { from: pointsStart, end: text.indexOf('"', pointsStart) };
}

export interface HistoryText {
  readonly fact: Omit<TagHistoryFact, "points">;
  /** Packed points or a JSON list. `listText` converts both to a list. */
  readonly points: string;
}

export function historyText(event: Event<"tag-history">): HistoryText {
  const eventText = texts.get(event);
  const start = eventText === undefined ? -1 : eventText.indexOf(DATA_MARK) + DATA_MARK.length;
  const packedRange = eventText === undefined ? null : findPackedPoints(eventText, start);
  if (eventText === undefined || packedRange === null) {
    const { points, ...fact } = event.data;
    return { fact, points: JSON.stringify(points) };
  }
  const { from, end } = packedRange;
  const fact = JSON.parse(
    `${eventText.slice(start, from - PACKED_MARK.length)}${eventText.slice(end + 1, -1)}`,
  ) as HistoryText["fact"];
  return { fact, points: eventText.slice(from, end) };
}

const QUOTE_CODE = 34;
const OPENING_BRACKET_CODE = 91;
const CLOSING_BRACKET_CODE = 93;
const CLOSING_BRACE_CODE = 125;

/** Most bytes of a point in quoted JSON: 17 and 16 characters around a time of 24 and a number of 25, and `},`. */
const QUOTED_BYTES = 84;
const DAY_MS = 86_400_000;
const FIRST_MS = Date.UTC(-1, 11, 31) + DAY_MS;
const END_MS = Date.UTC(10_000, 0, 1);
const REUSED_BUFFERS = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };

/** Most bytes before and after the points: names and descriptions of up to 10,000 characters each. */
const ROUND_BYTES = 200_000;

/** Packs the points. `quoted` is the JSON list as a JSON string, for the id. Use the result before the next call. */
function packPoints(points: Points): { between(head: string, tail: string): string; readonly quoted: Buffer } {
  const maxBytes = points.length * QUOTED_BYTES + 4 + 2 * ROUND_BYTES;
  if (REUSED_BUFFERS.quoted.length < maxBytes) {
    REUSED_BUFFERS.packed = Buffer.allocUnsafeSlow(points.length * PACKED_BYTES + 2 * ROUND_BYTES);
    REUSED_BUFFERS.quoted = Buffer.allocUnsafeSlow(maxBytes);
  }
  const { packed, quoted } = REUSED_BUFFERS;
  const [end, quotedEnd] = write(points, packed, quoted);
  return {
    quoted: quoted.subarray(0, quotedEnd),
    between(head, tail) {
      const [before, after] = [Buffer.byteLength(head), Buffer.byteLength(tail)];
      if (before > ROUND_BYTES || after > ROUND_BYTES)
        return `${head}${packed.toString("latin1", ROUND_BYTES, end)}${tail}`;
      const headStart = ROUND_BYTES - before;
      packed.write(head, headStart);
      packed.write(tail, end);
      const isPlain = before === head.length && after === tail.length;
      return packed.toString(isPlain ? "latin1" : "utf8", headStart, end + after);
    },
  };
}

function write(points: Points, packed: Buffer, quoted: Buffer): readonly [end: number, quotedEnd: number] {
  let at = ROUND_BYTES;
  let to = 0;
  quoted[to++] = QUOTE_CODE;
  quoted[to++] = OPENING_BRACKET_CODE;
  const timeWriter = new PackedTimes(points);
  const pointStart = new PointTime(QUOTED_POINT_JSON);
  for (let i = 0; i < points.length; i++) {
    if (i > 0) quoted[to++] = COMMA_CODE;
    at = timeWriter.write(i, packed, at);
    to = pointStart.write(points.timeMs(i), quoted, to);
    const code = points.code(i);
    if (Number.isFinite(code)) {
      const numberStart = at;
      at = writeNumber(packed, at, code);
      for (let n = numberStart; n < at; n++) quoted[to++] = packed[n] as number;
    } else {
      const wordLetter = valueLetter(code);
      packed[at++] = wordLetter.charCodeAt(0);
      to += quoted.write(WORDS_BY_LETTER[wordLetter] as string, to, "latin1");
    }
    quoted[to++] = CLOSING_BRACE_CODE;
  }
  quoted[to++] = CLOSING_BRACKET_CODE;
  quoted[to++] = QUOTE_CODE;
  return [at, to];
}

/** Returns packed points as a JSON list `[{"time":"2026-01-01T00:00:00.000Z","value":21.5}]`; a list unchanged. */
export function listText(points: string): string {
  if (points.startsWith("[")) return points;
  const bytes = reserveBuffer(points);
  const timeWriter = new PointTime(POINT_JSON);
  let at = 0;
  bytes[at++] = OPENING_BRACKET_CODE;
  for (const reader = new PointReader(points); reader.next(); ) {
    if (at > 1) bytes[at++] = COMMA_CODE;
    at = writePoint(reader, timeWriter, bytes, at);
  }
  bytes[at++] = CLOSING_BRACKET_CODE;
  return bytes.toString("latin1", 0, at);
}

interface DayText {
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
  const timeWriter = new PointTime(POINT_JSON);
  let bytes = reserveBuffer(points);
  let at = 0;
  let firstMs = Number.NaN;
  const dayText = (): DayText => ({ time: isoUtc(firstMs), text: bytes.toString("latin1", 0, at) });
  for (; reader.next(); ) {
    if (at > 0 && Math.floor(reader.timeMs / DAY_MS) !== Math.floor(firstMs / DAY_MS)) {
      yield dayText();
      bytes = reserveBuffer(points);
      at = 0;
    }
    if (at > 0) bytes[at++] = COMMA_CODE;
    else firstMs = reader.timeMs;
    at = writePoint(reader, timeWriter, bytes, at);
  }
  if (at > 0) yield dayText();
}

function writePoint(reader: PointReader, times: PointTime, bytes: Buffer, from: number): number {
  let at = times.write(reader.timeMs, bytes, from);
  if (reader.isOther) at += bytes.write(reader.value, at, "latin1");
  else at = reader.writeNumber(bytes, at);
  bytes[at++] = CLOSING_BRACE_CODE;
  return at;
}

/** A packed point has at least two characters. */
function reserveBuffer(points: string): Buffer {
  const maxBytes = points.length + (points.length / 2 + 1) * POINT_BYTES;
  if (reused.length < maxBytes) reused = Buffer.allocUnsafeSlow(2 * maxBytes);
  return reused;
}

/** Reused buffer. Read its contents before the next list is built. */
let reused = Buffer.allocUnsafeSlow(0);

/** JSON before the value of a point, also as part of another text with escaped quotes. */
const POINT_JSON = `{"time":"2026-01-01T00:00:00.000Z","value":`;
const QUOTED_POINT_JSON = POINT_JSON.replaceAll(`"`, `\\"`);

/** Most bytes of a point in addition to its number: the JSON before it, a word of five characters, `},`. */
const POINT_BYTES = POINT_JSON.length + 7;
const DATE_BYTES = 11;

/** Writes the JSON before the values of consecutive points. It formats the date only when the day changes. */
class PointTime {
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
      const date = new Date(day * DAY_MS).toISOString().slice(0, DATE_BYTES);
      this.#bytes.write(date, this.#at, "latin1");
    }
    writeClock(this.#bytes, this.#at + DATE_BYTES, timeMs - day * DAY_MS);
    into.set(this.#bytes, from);
    return from + this.#bytes.length;
  }
}

function writeClock(bytes: Buffer, at: number, ms: number): void {
  const seconds = (ms / 1_000) | 0;
  const minutes = (seconds / 60) | 0;
  const hours = (minutes / 60) | 0;
  const milliseconds = ms - seconds * 1_000;
  writeTwo(bytes, at, hours);
  writeTwo(bytes, at + 3, minutes - hours * 60);
  writeTwo(bytes, at + 6, seconds - minutes * 60);
  bytes[at + 9] = 48 + ((milliseconds / 100) | 0);
  writeTwo(bytes, at + 10, milliseconds % 100);
}

function writeTwo(bytes: Buffer, at: number, number: number): void {
  const tensDigit = (number / 10) | 0;
  bytes[at] = 48 + tensDigit;
  bytes[at + 1] = 48 + number - tensDigit * 10;
}

/** Writes a number as JSON.stringify does and returns its end. */
function writeNumber(bytes: Buffer, from: number, number: number): number {
  const magnitude = Math.abs(number);
  if (magnitude < 2_000_000) {
    // A number with at most three decimals equals its thousandths divided by 1,000; these digits are its shortest form.
    const thousandths = Math.round(magnitude * 1_000);
    if (thousandths / 1_000 === magnitude) {
      let at = from;
      if (number < 0) bytes[at++] = 45;
      return writeThousandths(bytes, at, thousandths);
    }
  }
  return from + bytes.write(String(number), from, "latin1");
}

/** 21500 is `21.5`. */
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
