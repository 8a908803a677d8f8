import { createHash } from "node:crypto";
import type { Resolution, Tag } from "../model/building.ts";
import { type Event, toCloudEvent } from "../model/event.ts";
import type { TagHistoryFact } from "../model/history-event-data.ts";
import { isoUtc } from "../values/iso-utc.ts";
import { PointReader } from "./history-point-reader.ts";
import { COMMA_CODE, MAX_POINT_BYTES, type TagPoints, TimePacker, VALUE_BY_LETTER, valueLetter } from "./points.ts";

/** Fields of a `tag-history` event. Its points stay in columns, without an object each: a backfill has millions. */
interface HistoryEventFields {
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  readonly siteId: number | string | null;
  readonly tag: Tag;
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly points: TagPoints;
  readonly origin: TagHistoryFact["origin"];
  readonly revisedAt: string | null;
}

export function makeHistoryEvent(fields: HistoryEventFields): Event<"tag-history"> {
  const { source, subject, time, siteId, tag, resolution, timeZone, points, origin, revisedAt } = fields;
  const historyKind = "tag-history";
  const eventIdFacts = [historyKind, source, subject, resolution, timeZone];
  const dataBeforePoints = dropLastCharacter(JSON.stringify({ tag, resolution, timeZone }));
  const dataAfterPoints = JSON.stringify({ origin, revised: revisedAt !== null }).slice(1);
  const canPackPoints =
    points.hasOnlyUtcTimes &&
    (points.length === 0 || (points.timeMs(0) >= MIN_PACKED_MS && points.timeMs(points.length - 1) < MAX_PACKED_MS));
  const pointListJson = canPackPoints ? null : JSON.stringify(points);
  const packedPoints = pointListJson === null ? packPoints(points) : null;
  const id = historyEventId([
    `${dropLastCharacter(JSON.stringify(eventIdFacts))},`,
    packedPoints === null ? JSON.stringify(pointListJson) : packedPoints.quoted,
    `,${JSON.stringify(revisedAt)}]`,
  ]);
  const siteAttribute = siteId === null ? {} : { siteid: String(siteId) };
  const jsonStart = `${dropLastCharacter(JSON.stringify({ id, source, type: historyKind, subject, time, ...siteAttribute }))}${EVENT_DATA_MARKER}${dataBeforePoints}${POINTS_FIELD_MARKER}`;
  const jsonEnd = `,${dataAfterPoints}}`;
  const eventText = packedPoints?.buildText(`${jsonStart}"`, `"${jsonEnd}`) ?? `${jsonStart}${pointListJson}${jsonEnd}`;
  return parseHistoryEvent(eventText) as Event<"tag-history">;
}

function historyEventId(parts: readonly (string | Uint8Array)[]): string {
  const eventIdHash = createHash("sha256");
  for (const eventIdPart of parts) eventIdHash.update(eventIdPart);
  return `tag-history.${eventIdHash.digest().subarray(0, 16).toString("base64url")}`;
}

/** JSON texts that locate fields in a stored event. No string contains them, because quotes in strings are escaped. */
const EVENT_DATA_MARKER = `,"data":`;
const POINTS_FIELD_MARKER = `,"points":`;
const PACKED_POINTS_MARKER = `${POINTS_FIELD_MARKER}"`;
const HISTORY_EVENT_MARKER = `"type":"tag-history"`;

function dropLastCharacter(json: string): string {
  return json.slice(0, -1);
}

const textByHistoryEvent = new WeakMap<Event, string>();

/** Parses a history event, whose data is parsed at the first access. Returns null for an event of another kind. */
export function parseHistoryEvent(text: string): Event<"tag-history"> | null {
  const dataMarkerIndex = text.indexOf(EVENT_DATA_MARKER);
  const kindMarkerIndex = text.indexOf(HISTORY_EVENT_MARKER);
  if (kindMarkerIndex < 0 || kindMarkerIndex > dataMarkerIndex || !text.endsWith("}}")) return null;
  const parsedEvent = JSON.parse(`${text.slice(0, dataMarkerIndex)}}`) as Event<"tag-history">;
  let data: Event<"tag-history">["data"] | undefined;
  Object.defineProperty(parsedEvent, "data", {
    enumerable: true,
    configurable: true,
    get() {
      data ??= JSON.parse(eventDataJsonParts(text).join("")) as Event<"tag-history">["data"];
      return data;
    },
  });
  textByHistoryEvent.set(parsedEvent, text);
  return parsedEvent;
}

export function storedHistoryText(event: Event): string | undefined {
  return textByHistoryEvent.get(event);
}

/** Returns an event as CloudEvents 1.0 JSON with `extraFields`, as texts to join, so that long texts are not copied. */
export function cloudEventParts(event: Event, extraFields: object = {}): readonly string[] {
  const eventText = textByHistoryEvent.get(event);
  if (eventText === undefined) return [JSON.stringify(toCloudEvent(event, extraFields))];
  const dataMarkerIndex = eventText.indexOf(EVENT_DATA_MARKER);
  const extraAttributes = JSON.stringify({ ...extraFields, datacontenttype: "application/json" });
  const jsonBeforeData = `{"specversion":"1.0",${eventText.slice(1, dataMarkerIndex)},${extraAttributes.slice(1, -1)}${EVENT_DATA_MARKER}`;
  return [jsonBeforeData, ...eventDataJsonParts(eventText), "}"];
}

export function eventDataJson(event: Event): string {
  const eventText = textByHistoryEvent.get(event);
  return eventText === undefined ? JSON.stringify(event.data) : eventDataJsonParts(eventText).join("");
}

function eventDataJsonParts(eventText: string): readonly string[] {
  const dataStartIndex = eventText.indexOf(EVENT_DATA_MARKER) + EVENT_DATA_MARKER.length;
  const packedPointsRange = findPackedPoints(eventText, dataStartIndex);
  if (packedPointsRange === null) return [eventText.slice(dataStartIndex, -1)];
  const { packedStart, packedEnd } = packedPointsRange;
  return [
    eventText.slice(dataStartIndex, packedStart - 1),
    pointsToJson(eventText.slice(packedStart, packedEnd)),
    eventText.slice(packedEnd + 1, -1),
  ];
}

/** Returns the range of the packed points in the event's text; null if the points are a JSON list. */
function findPackedPoints(eventText: string, dataStart: number) {
  const packedPointsStart = eventText.indexOf(PACKED_POINTS_MARKER, dataStart) + PACKED_POINTS_MARKER.length;
  if (packedPointsStart < PACKED_POINTS_MARKER.length) return null;
  return { packedStart: packedPointsStart, packedEnd: eventText.indexOf('"', packedPointsStart) };
}

export interface SplitHistoryEvent {
  readonly fact: Omit<TagHistoryFact, "points">;
  readonly points: string;
}

export function splitHistoryEvent(event: Event<"tag-history">): SplitHistoryEvent {
  const eventText = textByHistoryEvent.get(event);
  const dataStartIndex = eventText === undefined ? -1 : eventText.indexOf(EVENT_DATA_MARKER) + EVENT_DATA_MARKER.length;
  const packedPointsRange = eventText === undefined ? null : findPackedPoints(eventText, dataStartIndex);
  if (eventText === undefined || packedPointsRange === null) {
    const { points, ...fact } = event.data;
    return { fact, points: JSON.stringify(points) };
  }
  const { packedStart, packedEnd } = packedPointsRange;
  const historyFact = JSON.parse(
    `${eventText.slice(dataStartIndex, packedStart - PACKED_POINTS_MARKER.length)}${eventText.slice(packedEnd + 1, -1)}`,
  ) as SplitHistoryEvent["fact"];
  return { fact: historyFact, points: eventText.slice(packedStart, packedEnd) };
}

const QUOTE_CODE = 34;
const OPENING_BRACKET_CODE = 91;
const CLOSING_BRACKET_CODE = 93;
const CLOSING_BRACE_CODE = 125;

const MAX_QUOTED_POINT_BYTES = 84;
const DAY_MS = 86_400_000;
const MIN_PACKED_MS = Date.UTC(-1, 11, 31) + DAY_MS;
const MAX_PACKED_MS = Date.UTC(10_000, 0, 1);
const REUSED_POINT_BUFFERS = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };

/** Maximum bytes of the JSON before or after the points: names have up to 10,000 characters. */
const BUFFER_MARGIN_BYTES = 200_000;

/** Converts points to packed text and to a JSON list within a JSON string (`quoted`). The next call overwrites both. */
function packPoints(points: TagPoints): { buildText(head: string, tail: string): string; readonly quoted: Buffer } {
  const maxBufferBytes = points.length * MAX_QUOTED_POINT_BYTES + 4 + 2 * BUFFER_MARGIN_BYTES;
  if (REUSED_POINT_BUFFERS.quoted.length < maxBufferBytes) {
    REUSED_POINT_BUFFERS.packed = Buffer.allocUnsafeSlow(points.length * MAX_POINT_BYTES + 2 * BUFFER_MARGIN_BYTES);
    REUSED_POINT_BUFFERS.quoted = Buffer.allocUnsafeSlow(maxBufferBytes);
  }
  const { packed, quoted } = REUSED_POINT_BUFFERS;
  const [packedEnd, quotedEnd] = packAndQuote(points, packed, quoted);
  return {
    quoted: quoted.subarray(0, quotedEnd),
    buildText(head, tail) {
      const [headBytes, tailBytes] = [Buffer.byteLength(head), Buffer.byteLength(tail)];
      if (headBytes > BUFFER_MARGIN_BYTES || tailBytes > BUFFER_MARGIN_BYTES)
        return `${head}${packed.toString("latin1", BUFFER_MARGIN_BYTES, packedEnd)}${tail}`;
      const headOffset = BUFFER_MARGIN_BYTES - headBytes;
      packed.write(head, headOffset);
      packed.write(tail, packedEnd);
      const isSingleByteText = headBytes === head.length && tailBytes === tail.length;
      return packed.toString(isSingleByteText ? "latin1" : "utf8", headOffset, packedEnd + tailBytes);
    },
  };
}

function packAndQuote(points: TagPoints, packed: Buffer, quoted: Buffer): readonly [end: number, quotedEnd: number] {
  let packedEnd = BUFFER_MARGIN_BYTES;
  let quotedLength = 0;
  quoted[quotedLength++] = QUOTE_CODE;
  quoted[quotedLength++] = OPENING_BRACKET_CODE;
  const packedTimeWriter = new TimePacker(points);
  const quotedTimeWriter = new PointTimeWriter(QUOTED_POINT_JSON_START);
  for (let i = 0; i < points.length; i++) {
    if (i > 0) quoted[quotedLength++] = COMMA_CODE;
    packedEnd = packedTimeWriter.writeTime(i, packed, packedEnd);
    quotedLength = quotedTimeWriter.write(points.timeMs(i), quoted, quotedLength);
    const valueCode = points.valueCode(i);
    if (Number.isFinite(valueCode)) {
      const numberStartIndex = packedEnd;
      packedEnd = writeJsonNumber(packed, packedEnd, valueCode);
      for (let n = numberStartIndex; n < packedEnd; n++) quoted[quotedLength++] = packed[n] as number;
    } else {
      const valueWordLetter = valueLetter(valueCode);
      packed[packedEnd++] = valueWordLetter.charCodeAt(0);
      quotedLength += quoted.write(VALUE_BY_LETTER[valueWordLetter] as string, quotedLength, "latin1");
    }
    quoted[quotedLength++] = CLOSING_BRACE_CODE;
  }
  quoted[quotedLength++] = CLOSING_BRACKET_CODE;
  quoted[quotedLength++] = QUOTE_CODE;
  return [packedEnd, quotedLength];
}

/** Converts packed points to a JSON list `[{"time":"2026-01-01T00:00:00.000Z","value":21.5}]`. */
export function pointsToJson(points: string): string {
  if (points.startsWith("[")) return points;
  const pointBuffer = reservePointBuffer(points);
  const pointTimeWriter = new PointTimeWriter(POINT_JSON_START);
  let writeOffset = 0;
  pointBuffer[writeOffset++] = OPENING_BRACKET_CODE;
  for (const pointReader = new PointReader(points); pointReader.next(); ) {
    if (writeOffset > 1) pointBuffer[writeOffset++] = COMMA_CODE;
    writeOffset = writePointJson(pointReader, pointTimeWriter, pointBuffer, writeOffset);
  }
  pointBuffer[writeOffset++] = CLOSING_BRACKET_CODE;
  return pointBuffer.toString("latin1", 0, writeOffset);
}

interface DayPoints {
  readonly time: string;
  readonly pointsJson: string;
}

/** Splits packed points by day (UTC). Returns points of a JSON list one by one. */
export function* splitPackedPointsByDay(points: string): Generator<DayPoints> {
  const pointReader = new PointReader(points);
  if (points.startsWith("[")) {
    for (; pointReader.next(); ) {
      const { time, value } = pointReader;
      yield { time, pointsJson: `{"time":${JSON.stringify(time)},"value":${value}}` };
    }
    return;
  }
  const pointTimeWriter = new PointTimeWriter(POINT_JSON_START);
  let pointBuffer = reservePointBuffer(points);
  let writeOffset = 0;
  let firstPointOfDayMs = Number.NaN;
  const toDayPoints = (): DayPoints => ({
    time: isoUtc(firstPointOfDayMs),
    pointsJson: pointBuffer.toString("latin1", 0, writeOffset),
  });
  for (; pointReader.next(); ) {
    if (writeOffset > 0 && Math.floor(pointReader.timeMs / DAY_MS) !== Math.floor(firstPointOfDayMs / DAY_MS)) {
      yield toDayPoints();
      pointBuffer = reservePointBuffer(points);
      writeOffset = 0;
    }
    if (writeOffset > 0) pointBuffer[writeOffset++] = COMMA_CODE;
    else firstPointOfDayMs = pointReader.timeMs;
    writeOffset = writePointJson(pointReader, pointTimeWriter, pointBuffer, writeOffset);
  }
  if (writeOffset > 0) yield toDayPoints();
}

function writePointJson(reader: PointReader, timeWriter: PointTimeWriter, bytes: Buffer, startOffset: number): number {
  let writeOffset = timeWriter.write(reader.timeMs, bytes, startOffset);
  if (reader.isNotNumber) writeOffset += bytes.write(reader.value, writeOffset, "latin1");
  else writeOffset = reader.writeNumber(bytes, writeOffset);
  bytes[writeOffset++] = CLOSING_BRACE_CODE;
  return writeOffset;
}

function reservePointBuffer(points: string): Buffer {
  const maxBufferBytes = points.length + (points.length / 2 + 1) * MAX_POINT_JSON_BYTES;
  if (reusedPointBuffer.length < maxBufferBytes) reusedPointBuffer = Buffer.allocUnsafeSlow(2 * maxBufferBytes);
  return reusedPointBuffer;
}

let reusedPointBuffer = Buffer.allocUnsafeSlow(0);

const POINT_JSON_START = `{"time":"2026-01-01T00:00:00.000Z","value":`;
const QUOTED_POINT_JSON_START = POINT_JSON_START.replaceAll(`"`, `\\"`);

/** Maximum bytes of a point without the digits of its number. */
const MAX_POINT_JSON_BYTES = POINT_JSON_START.length + 7;
const DATE_TEXT_BYTES = 11;

/** Writes the JSON before each point's value, e.g. `{"time":"…","value":`. Formats the date only for a new day. */
class PointTimeWriter {
  readonly #bytes: Buffer;
  readonly #at: number;
  #day = Number.NaN;

  constructor(template: string) {
    this.#bytes = Buffer.from(template);
    this.#at = template.indexOf("2026");
  }

  write(timeMs: number, targetBuffer: Buffer, startOffset: number): number {
    const day = Math.floor(timeMs / DAY_MS);
    if (day !== this.#day) {
      this.#day = day;
      this.#bytes.write(new Date(day * DAY_MS).toISOString().slice(0, DATE_TEXT_BYTES), this.#at, "latin1");
    }
    writeTimeOfDay(this.#bytes, this.#at + DATE_TEXT_BYTES, timeMs - day * DAY_MS);
    targetBuffer.set(this.#bytes, startOffset);
    return startOffset + this.#bytes.length;
  }
}

function writeTimeOfDay(bytes: Buffer, offset: number, ms: number): void {
  const seconds = (ms / 1_000) | 0;
  const minutes = (seconds / 60) | 0;
  const hours = (minutes / 60) | 0;
  const milliseconds = ms - seconds * 1_000;
  writeTwoDigits(bytes, offset, hours);
  writeTwoDigits(bytes, offset + 3, minutes - hours * 60);
  writeTwoDigits(bytes, offset + 6, seconds - minutes * 60);
  bytes[offset + 9] = 48 + ((milliseconds / 100) | 0);
  writeTwoDigits(bytes, offset + 10, milliseconds % 100);
}

function writeTwoDigits(bytes: Buffer, offset: number, number: number): void {
  const tensDigit = (number / 10) | 0;
  bytes[offset] = 48 + tensDigit;
  bytes[offset + 1] = 48 + number - tensDigit * 10;
}

/** Writes a number as JSON.stringify does and returns the index after it. */
function writeJsonNumber(bytes: Buffer, startOffset: number, number: number): number {
  const absoluteNumber = Math.abs(number);
  if (absoluteNumber < 2_000_000) {
    // Writes numbers with at most three decimals from their thousandths, which is faster than String().
    const thousandths = Math.round(absoluteNumber * 1_000);
    if (thousandths / 1_000 === absoluteNumber) {
      let writeOffset = startOffset;
      if (number < 0) bytes[writeOffset++] = 45;
      return writeNumberFromThousandths(bytes, writeOffset, thousandths);
    }
  }
  return startOffset + bytes.write(String(number), startOffset, "latin1");
}

function writeNumberFromThousandths(bytes: Buffer, startOffset: number, thousandths: number): number {
  const integerPart = (thousandths / 1_000) | 0;
  let digitCount = 1;
  for (let powerOfTen = 10; integerPart >= powerOfTen; powerOfTen *= 10) digitCount++;
  let remainingDigits = integerPart;
  for (let n = digitCount - 1; n >= 0; n--) {
    bytes[startOffset + n] = 48 + (remainingDigits % 10);
    remainingDigits = (remainingDigits / 10) | 0;
  }
  let writeOffset = startOffset + digitCount;
  let remainingFraction = thousandths - integerPart * 1_000;
  if (remainingFraction === 0) return writeOffset;
  bytes[writeOffset++] = 46;
  for (let placeValue = 100; remainingFraction > 0; placeValue /= 10) {
    const digit = (remainingFraction / placeValue) | 0;
    bytes[writeOffset++] = 48 + digit;
    remainingFraction -= digit * placeValue;
  }
  return writeOffset;
}
