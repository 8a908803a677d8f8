import { hash } from "node:crypto";
import { Point } from "@influxdata/influxdb-client";
import { splitHistoryEvent } from "../../src/core/codec/history-event.ts";
import { PointReader } from "../../src/core/codec/history-point-reader.ts";
import type { TagValue } from "../../src/core/model/building.ts";
import type { Event } from "../../src/core/model/event.ts";

/** One point. Tags and fields that are null or undefined are omitted: line protocol has no null. */
export interface InfluxPointData {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string | number | null | undefined>>;
  readonly fields: Readonly<Record<string, string | number | boolean | null | undefined>>;
  readonly timeMs: number;
  /** Event id that determines the nanoseconds of the time; absent if a later point may replace this point. */
  readonly distinguishingId?: string;
}

/** Formats a line with a timestamp in nanoseconds. Numbers are always floats, so field types never conflict. */
export function formatInfluxLine({ measurement, tags, fields, timeMs, distinguishingId }: InfluxPointData): string {
  const nanoseconds = distinguishingId === undefined ? ZERO_NANOSECONDS : hashEventIdToNanoseconds(distinguishingId);
  const point = new Point(measurement).timestamp(`${timeMs}${nanoseconds}`);
  for (const [name, value] of Object.entries(tags)) {
    const cleanedTagValue = value === null || value === undefined ? null : cleanTagValue(String(value));
    if (cleanedTagValue !== null) point.tag(name, cleanedTagValue);
  }
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "boolean") point.booleanField(name, value);
    else if (typeof value === "string") point.stringField(name, toOneLine(value, MAX_TEXT_FIELD_LENGTH));
    else if (typeof value === "number") {
      if (!Number.isFinite(value)) throw new Error(`${value} is no number for the field ${name}.`);
      point.floatField(name, value);
    }
  }
  const line = point.toLineProtocol();
  if (line === undefined) throw new Error(`A point of ${measurement} has no field.`);
  return line;
}

const ZERO_NANOSECONDS = "000000";

function hashEventIdToNanoseconds(id: string): string {
  const nanoseconds = Number.parseInt(hash("sha256", id).slice(0, 12), 16) % 1_000_000;
  return String(nanoseconds).padStart(ZERO_NANOSECONDS.length, "0");
}

const LINE_BREAK_PATTERN = /[\p{Cc}\u2028\u2029]+/gu;
const MAX_TAG_VALUE_LENGTH = 256;
/** Maximum length of a text field in UTF-16 units: at most 48 kB of UTF-8; InfluxDB allows 64 kB. */
const MAX_TEXT_FIELD_LENGTH = 16_000;

/** Cleans a tag value; null if empty, which is invalid. Replaces backslashes, which servers read differently. */
function cleanTagValue(text: string): string | null {
  const cleanedText = toOneLine(text, MAX_TAG_VALUE_LENGTH).replaceAll("\\", "/").trim();
  return cleanedText === "" ? null : cleanedText;
}

/** Removes line breaks: VictoriaMetrics ends a point at a line break, even inside quotes. */
const toOneLine = (text: string, maxLength: number): string =>
  text.slice(0, maxLength).toWellFormed().replace(LINE_BREAK_PATTERN, " ");

export function buildValueFields(name: string, value: TagValue): InfluxPointData["fields"] {
  if (typeof value === "number") return { [name]: value };
  if (typeof value === "boolean") return { [`${name}_bool`]: value };
  return {};
}

export function parseTimeMs(text: string): number {
  const timeMs = Date.parse(/(Z|[+-]\d{2}:?\d{2})$/i.test(text) ? text : `${text}Z`);
  if (Number.isNaN(timeMs)) throw new Error(`"${text.slice(0, 60)}" is not a time.`);
  return timeMs;
}

/** One line as text, or several lines as bytes with line breaks between them. `count` is the number of lines. */
export interface EncodedInfluxLines {
  readonly text: string | Buffer;
  readonly count?: number;
  readonly releaseBuffer?: () => void;
}

const reusableBuffers: Buffer[] = [];
/** 20 buffers of 64 KiB hold one request of 5,000 history lines, each of 130 bytes. */
const MAX_REUSABLE_BUFFERS = 20;
const REUSABLE_BUFFER_BYTES = 65_536;
const MAX_VALUE_AND_TIME_BYTES = 64;

/** Encodes history values. For speed, the part of a line before value and time is encoded once per type of value. */
export function* encodeHistoryLines(
  event: Event<"tag-history">,
  formatLineAtTimeZero: (point: Omit<InfluxPointData, "timeMs">) => string,
): Generator<EncodedInfluxLines> {
  const { fact, points } = splitHistoryEvent(event);
  const { tag, resolution, timeZone, origin, revised } = fact;
  const encodeLinePrefix = (value: TagValue) => {
    const line = formatLineAtTimeZero({
      measurement: "tag_history",
      tags: { tag_id: tag.id, alias: tag.alias, unit: tag.unit, resolution, time_zone: timeZone },
      fields: { ...buildValueFields("value", value), good: value !== null, origin, revised },
    });
    // Fields are sorted by name and `value` is the last name, so the line ends with the value and the time.
    const placeholderValueAndTime = `${typeof value === "number" ? "0 " : ""}0${ZERO_NANOSECONDS}`;
    return Buffer.from(line.slice(0, line.length - placeholderValueAndTime.length));
  };
  const linePrefixes = {
    number: encodeLinePrefix(0),
    true: encodeLinePrefix(true),
    false: encodeLinePrefix(false),
    null: encodeLinePrefix(null),
  };
  const maxLineBytes = Math.max(...Object.values(linePrefixes).map(({ length }) => length)) + MAX_VALUE_AND_TIME_BYTES;
  const reader = new PointReader(points);
  let timeError: unknown = null;
  for (let hasMorePoints = true; hasMorePoints && timeError === null; ) {
    const bytes = takeReusableBuffer(maxLineBytes);
    let offset = 0;
    let count = 0;
    while (offset + maxLineBytes <= bytes.length) {
      hasMorePoints = reader.next();
      if (!hasMorePoints) break;
      let { timeMs } = reader;
      try {
        if (Number.isNaN(timeMs)) timeMs = parseTimeMs(reader.time);
      } catch (error) {
        timeError = error;
        break;
      }
      if (count > 0) bytes[offset++] = LINE_BREAK_BYTE;
      const value = reader.isNotNumber ? reader.value : null;
      const isJsonLiteral = value === "true" || value === "false" || value === "null";
      const valueLinePrefix = isJsonLiteral ? linePrefixes[value] : linePrefixes.number;
      bytes.set(valueLinePrefix, offset);
      offset += valueLinePrefix.length;
      if (!isJsonLiteral) {
        offset = value === null ? reader.writeNumber(bytes, offset) : writeAscii(value, bytes, offset);
        bytes[offset++] = SPACE_BYTE;
      }
      offset = writeTimestamp(timeMs, bytes, offset);
      count++;
    }
    if (count > 0) yield { text: bytes.subarray(0, offset), count, releaseBuffer: () => releaseReusableBuffer(bytes) };
    else releaseReusableBuffer(bytes);
  }
  if (timeError !== null) throw timeError;
}

function takeReusableBuffer(minBytes: number): Buffer {
  if (minBytes > REUSABLE_BUFFER_BYTES) return Buffer.allocUnsafeSlow(minBytes);
  return reusableBuffers.pop() ?? Buffer.allocUnsafeSlow(REUSABLE_BUFFER_BYTES);
}

function releaseReusableBuffer(buffer: Buffer): void {
  if (buffer.length === REUSABLE_BUFFER_BYTES && reusableBuffers.length < MAX_REUSABLE_BUFFERS)
    reusableBuffers.push(buffer);
}

const LINE_BREAK_BYTE = 10;
const SPACE_BYTE = 32;

/** Writes a time in milliseconds (13 digits: years 2001 to 2286) as nanoseconds. Returns the offset after it. */
function writeTimestamp(timeMs: number, buffer: Buffer, offset: number): number {
  if (!(timeMs >= 1e12 && timeMs < 1e13)) return writeAscii(`${timeMs}${ZERO_NANOSECONDS}`, buffer, offset);
  const millionsOfMs = Math.floor(timeMs / 1e6);
  writeDigits(millionsOfMs, 7, buffer, offset);
  writeDigits(timeMs - millionsOfMs * 1e6, 6, buffer, offset + 7);
  return writeAscii(ZERO_NANOSECONDS, buffer, offset + 13);
}

function writeDigits(number: number, digitCount: number, buffer: Buffer, offset: number): void {
  let remainingNumber = number | 0;
  for (let n = digitCount - 1; n >= 0; n--) {
    const quotient = (remainingNumber / 10) | 0;
    buffer[offset + n] = 48 + remainingNumber - quotient * 10;
    remainingNumber = quotient;
  }
}

function writeAscii(text: string, buffer: Buffer, offset: number): number {
  for (let n = 0; n < text.length; n++) buffer[offset + n] = text.charCodeAt(n);
  return offset + text.length;
}
