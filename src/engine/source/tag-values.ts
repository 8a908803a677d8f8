import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { FALSE_VALUE_CODE, NULL_VALUE_CODE, TagPoints, TRUE_VALUE_CODE } from "../../core/codec/points.ts";
import { Malformed } from "../../core/errors/errors.ts";
import type { Measurement, Tag, TagLog, TagReading, TagTotal } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import {
  COLON_CODE,
  type DecodedReply,
  isDigit,
  isRecord,
  MAX_JSON_NUMBER_LENGTH,
  type ParsedJson,
  parseJson,
  QUOTE_CODE,
} from "./reply.ts";
import {
  type CountUnusualField,
  normalizeTime,
  parseNumericValue,
  parseRecordList,
  parseTagValue,
  quoteRawValue,
  type RecordParser,
} from "./service-records.ts";
import type { TagReadReply, UnreadTag } from "./source.ts";

/** Measurements of one tag from a history reply, with the faults that were found in them. */
export class LoggedSeries {
  readonly points: TagPoints;
  readonly unreadableTimesMs: number[] = [];
  firstFault: string | null = null;
  isBroken = false;
  textValueCount = 0;
  constructor(expectedLength = 0) {
    this.points = TagPoints.withCapacity(expectedLength);
  }

  static fromEntries(entries: readonly unknown[]): LoggedSeries {
    const series = new LoggedSeries(entries.length);
    for (const entry of entries) series.add(entry);
    return series;
  }

  add(entry: unknown): void {
    if (this.isBroken) return;
    const timestamp = isRecord(entry) ? entry.timestamp : undefined;
    const time = typeof timestamp === "string" ? normalizeTime(timestamp) : null;
    if (!isRecord(entry) || time === null || !time.isTime) {
      this.isBroken = true;
      this.firstFault = isRecord(entry)
        ? `The time of a measurement is ${quoteRawValue(timestamp)}, and no time.`
        : `A measurement is ${quoteRawValue(entry)}, and no object.`;
      return;
    }
    const value = parseTagValue(entry.value);
    if (value !== undefined) {
      if (typeof entry.value === "string") this.textValueCount++;
      this.points.add({ time: time.text, value } satisfies Measurement);
      return;
    }
    const timeMs = Date.parse(time.text);
    this.firstFault ??= `The value at ${time.text} is ${quoteRawValue(entry.value)}, and no number, boolean or null.`;
    if (Number.isNaN(timeMs)) this.isBroken = true;
    else this.unreadableTimesMs.push(timeMs);
  }

  isSameAs({ points, unreadableTimesMs, isBroken }: LoggedSeries): boolean {
    if (this.isBroken || isBroken || points.length !== this.points.length) return false;
    for (let index = 0; index < points.length; index++) {
      const isSameTime = points.timeText(index) === this.points.timeText(index);
      if (!isSameTime || !Object.is(points.valueCode(index), this.points.valueCode(index))) return false;
    }
    return unreadableTimesMs.length === this.unreadableTimesMs.length;
  }
}

/** Bytes to parse before a yield to other work: about 3,500 measurements, less than a millisecond. */
const PARSED_BYTES_PER_YIELD = 200_000;
const MEASUREMENT_JSON_DEPTH = 4;

/** Parses up to 250,000 measurements of a history response, faster than `JSON.parse` and without blocking. */
export async function parseHistoryJson(body: Uint8Array): Promise<ParsedJson> {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const measurementListMarker = randomUUID();
  const remainingJsonParts: Buffer[] = [];
  const loggedSeriesByMarker = new Map<unknown, LoggedSeries>();
  let lastListEnd = 0;
  let lastYieldIndex = 0;

  async function readMeasurements(from: number, series: LoggedSeries): Promise<number | null> {
    let index = skipJsonWhitespace(bytes, from);
    if (bytes[index] === CLOSING_BRACKET_BYTE) return index + 1;
    for (;;) {
      const measurementEnd = readMeasurementFast(bytes, index, series) ?? readMeasurementAsJson(bytes, index, series);
      if (measurementEnd === null) return null;
      index = skipJsonWhitespace(bytes, measurementEnd);
      if (bytes[index] === CLOSING_BRACKET_BYTE) return index + 1;
      if (bytes[index] !== COMMA_BYTE) return null;
      index = skipJsonWhitespace(bytes, index + 1);
      if (index - lastYieldIndex < PARSED_BYTES_PER_YIELD) continue;
      lastYieldIndex = index;
      await yieldToEventLoop();
    }
  }

  for (
    let keyIndex = isUtf8(bytes) ? bytes.indexOf(SERIES_KEY) : -1;
    keyIndex >= 0;
    keyIndex = bytes.indexOf(SERIES_KEY, keyIndex + 1)
  ) {
    const listOpeningIndex = skipColon(bytes, keyIndex + SERIES_KEY.length);
    if (listOpeningIndex === null || bytes[listOpeningIndex] !== OPENING_BRACKET_BYTE) continue;
    const series = new LoggedSeries([...loggedSeriesByMarker.values()].at(-1)?.points.length);
    const measurementListEnd = await readMeasurements(listOpeningIndex + 1, series);
    if (measurementListEnd === null) return parseJson(body);
    const listMarkerName = `${measurementListMarker} ${loggedSeriesByMarker.size}`;
    remainingJsonParts.push(bytes.subarray(lastListEnd, listOpeningIndex), Buffer.from(`"${listMarkerName}"`));
    loggedSeriesByMarker.set(listMarkerName, series);
    lastListEnd = measurementListEnd;
    keyIndex = measurementListEnd;
  }
  const parsedJson = parseJson(Buffer.concat([...remainingJsonParts, bytes.subarray(lastListEnd)]));
  let replacedMarkers = 0;
  for (const record of (parsedJson.ok && isRecord(parsedJson.value) && parseRecordList(parsedJson.value.data)) || []) {
    const series = isRecord(record) ? loggedSeriesByMarker.get(record.measurements) : undefined;
    if (series === undefined) continue;
    Object.assign(record as object, { measurements: series });
    replacedMarkers += 1;
  }
  // Measurements outside a tag record need the complete JSON parser.
  return replacedMarkers === loggedSeriesByMarker.size ? parsedJson : parseJson(body);
}

/** Reads `{"timestamp":"2026-01-01T00:00:00Z","value":21.5}`; returns the index after the entry, or null. */
function readMeasurementFast(bytes: Buffer, from: number, series: LoggedSeries): number | null {
  if (series.isBroken || bytes[from] !== OPENING_BRACE_BYTE) return null;
  const timestampIndex = skipJsonName(bytes, from + 1, TIMESTAMP_JSON_KEY);
  if (timestampIndex === null || bytes[timestampIndex] !== QUOTE_CODE || bytes[timestampIndex + 21] !== QUOTE_CODE)
    return null;
  const timeMs = parseTimestampAt(bytes, timestampIndex + 1);
  const commaIndex = skipJsonWhitespace(bytes, timestampIndex + 22);
  const valueIndex = bytes[commaIndex] === COMMA_BYTE ? skipJsonName(bytes, commaIndex + 1, VALUE_JSON_KEY) : null;
  if (valueIndex === null || Number.isNaN(timeMs)) return null;
  const isText = bytes[valueIndex] === QUOTE_CODE;
  const valueStart = isText ? valueIndex + 1 : valueIndex;
  const jsonLiteral = isText
    ? undefined
    : JSON_LITERALS.find(([literalBytes]) => areBytesAt(bytes, valueStart, literalBytes));
  let valueEnd = jsonLiteral === undefined ? endOfJsonNumber(bytes, valueStart) : valueStart + jsonLiteral[0].length;
  if (valueEnd === null) return null;
  const valueCode = jsonLiteral === undefined ? parseNumberAt(bytes, valueStart, valueEnd) : jsonLiteral[1];
  if (isText && bytes[valueEnd++] !== QUOTE_CODE) return null;
  const measurementEnd = skipJsonWhitespace(bytes, valueEnd);
  if (bytes[measurementEnd] !== CLOSING_BRACE_BYTE || Math.abs(valueCode) === Number.POSITIVE_INFINITY) return null;
  series.points.push(timeMs, valueCode);
  if (isText) series.textValueCount++;
  return measurementEnd + 1;
}

function readMeasurementAsJson(bytes: Buffer, from: number, series: LoggedSeries): number | null {
  const measurementEnd = bytes.indexOf("}", from);
  const parsedJson =
    bytes[from] === OPENING_BRACE_BYTE
      ? parseJson(bytes.subarray(from, measurementEnd + 1), MEASUREMENT_JSON_DEPTH)
      : null;
  if (parsedJson?.ok !== true) return null;
  series.add(parsedJson.value);
  return measurementEnd + 1;
}

let lastParsedDate = { date: Number.NaN, ms: Number.NaN };

/** Milliseconds of `2026-01-01T00:00:00Z`; NaN for any other form and for dates that do not exist. */
function parseTimestampAt(bytes: Buffer, from: number): number {
  for (const [offset, code] of TIME_SEPARATORS) if (bytes[from + offset] !== code) return Number.NaN;
  const dateNumber =
    parseTwoDigitsAt(bytes, from) * 1e6 +
    parseTwoDigitsAt(bytes, from + 2) * 1e4 +
    parseTwoDigitsAt(bytes, from + 5) * 100 +
    parseTwoDigitsAt(bytes, from + 8);
  const [hour, minute, second] = [
    parseTwoDigitsAt(bytes, from + 11),
    parseTwoDigitsAt(bytes, from + 14),
    parseTwoDigitsAt(bytes, from + 17),
  ];
  if (!(hour < 24 && minute < 60 && second < 60)) return Number.NaN;
  if (dateNumber !== lastParsedDate.date) {
    const dateText = bytes.toString("latin1", from, from + 10);
    // `Date.parse` accepts the 30th of February as the 2nd of March.
    const ms = /^\d{4}-\d\d-\d\d$/.test(dateText) ? Date.parse(dateText) : Number.NaN;
    if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(dateText)) return Number.NaN;
    lastParsedDate = { date: dateNumber, ms };
  }
  return lastParsedDate.ms + hour * 3_600_000 + minute * 60_000 + second * 1_000;
}

function parseTwoDigitsAt(bytes: Buffer, index: number): number {
  const [tens, ones] = [bytes[index] as number, bytes[index + 1] as number];
  return isDigit(tens) && isDigit(ones) ? (tens - ZERO_BYTE) * 10 + ones - ZERO_BYTE : Number.NaN;
}

function endOfJsonNumber(bytes: Buffer, from: number): number | null {
  let index: number | null = bytes[from] === MINUS_BYTE ? from + 1 : from;
  index = bytes[index] === ZERO_BYTE ? index + 1 : skipDigits(bytes, index);
  if (index !== null && bytes[index] === DECIMAL_POINT_BYTE) index = skipDigits(bytes, index + 1);
  if (index !== null && (bytes[index] === 69 || bytes[index] === 101)) {
    const exponentSign = bytes[index + 1];
    index = skipDigits(bytes, exponentSign === 43 || exponentSign === MINUS_BYTE ? index + 2 : index + 1);
  }
  return index !== null && index - from < MAX_JSON_NUMBER_LENGTH ? index : null;
}

function skipDigits(bytes: Buffer, from: number): number | null {
  let index = from;
  while (isDigit(bytes[index] as number)) index++;
  return index === from ? null : index;
}

/** Maximum number of digits for which a division by a power of ten converts a decimal number exactly. */
const EXACT_NUMBER_DIGITS_MAX = 15;
const POWERS_OF_TEN = Float64Array.from({ length: EXACT_NUMBER_DIGITS_MAX + 1 }, (_, n) => 10 ** n);

function parseNumberAt(bytes: Buffer, from: number, end: number): number {
  const isNegativeNumber = bytes[from] === MINUS_BYTE;
  let digitsValue = 0;
  let decimalPlaces = -1;
  for (let index = isNegativeNumber ? from + 1 : from; index < end; index++) {
    const byte = bytes[index] as number;
    if (isDigit(byte)) digitsValue = digitsValue * 10 + byte - ZERO_BYTE;
    if (decimalPlaces >= 0) decimalPlaces++;
    if (byte === DECIMAL_POINT_BYTE) decimalPlaces = 0;
    else if (!isDigit(byte) || end - from > EXACT_NUMBER_DIGITS_MAX) return Number(bytes.toString("latin1", from, end));
  }
  const parsedNumber = decimalPlaces > 0 ? digitsValue / (POWERS_OF_TEN[decimalPlaces] as number) : digitsValue;
  return isNegativeNumber ? -parsedNumber : parsedNumber;
}

function skipJsonName(bytes: Buffer, from: number, name: Buffer): number | null {
  const index = skipJsonWhitespace(bytes, from);
  return areBytesAt(bytes, index, name) ? skipColon(bytes, index + name.length) : null;
}

function areBytesAt(bytes: Buffer, from: number, expectedBytes: Buffer): boolean {
  for (let n = 0; n < expectedBytes.length; n++) if (bytes[from + n] !== expectedBytes[n]) return false;
  return true;
}

function skipColon(bytes: Buffer, from: number): number | null {
  const index = skipJsonWhitespace(bytes, from);
  return bytes[index] === COLON_CODE ? skipJsonWhitespace(bytes, index + 1) : null;
}

function skipJsonWhitespace(bytes: Buffer, from: number): number {
  let index = from;
  for (let byte = bytes[index]; byte === 32 || byte === 10 || byte === 13 || byte === 9; byte = bytes[index]) index++;
  return index;
}

const COMMA_BYTE = 44;
const MINUS_BYTE = 45;
const DECIMAL_POINT_BYTE = 46;
const ZERO_BYTE = 48;
const OPENING_BRACKET_BYTE = 91;
const CLOSING_BRACKET_BYTE = 93;
const OPENING_BRACE_BYTE = 123;
const CLOSING_BRACE_BYTE = 125;
const SERIES_KEY = Buffer.from(`"measurements"`);
const TIMESTAMP_JSON_KEY = Buffer.from(`"timestamp"`);
const VALUE_JSON_KEY = Buffer.from(`"value"`);
const JSON_LITERALS = [
  [Buffer.from("null"), NULL_VALUE_CODE],
  [Buffer.from("true"), TRUE_VALUE_CODE],
  [Buffer.from("false"), FALSE_VALUE_CODE],
] as const;
const TIME_SEPARATORS = [
  [4, MINUS_BYTE],
  [7, MINUS_BYTE],
  [10, 84],
  [13, COLON_CODE],
  [16, COLON_CODE],
  [19, 90],
] as const;

type TagReplyRecord = Readonly<Record<string, unknown>>;

interface RecordsOfTag {
  readonly tag: Tag;
  readonly records: [TagReplyRecord, ...TagReplyRecord[]];
}

const REPORTED_TEXT_TAGS_MAX = 100_000;

/** Parses tags in replies. A value that is no number, boolean or null is unreadable; so are two values of one tag. */
export function createTagValueReader(
  parseTag: RecordParser<Tag>,
  countUnusualField: CountUnusualField,
  onTextValues: (tagIds: readonly string[]) => void,
) {
  const tagsWithTextValues = new Set<string>();

  function groupRecordsByTag(reply: DecodedReply, requestedIds: readonly string[]): readonly RecordsOfTag[] {
    const replyRecords = parseRecordList(reply.envelope.data);
    if (replyRecords === null) throw new Malformed("The data of a tag reply are no list.", reply.sample);
    const requestedTagIds = new Set(requestedIds);
    const recordsByTagId = new Map<string, RecordsOfTag>();
    for (const record of replyRecords) {
      const tag = parseTag(record);
      if (tag === null || !isRecord(record))
        throw new Malformed("A tag reply has a record without a usable id.", reply.sample);
      const earlierRecordsOfTag = recordsByTagId.get(tag.id);
      if (earlierRecordsOfTag !== undefined || !requestedTagIds.has(tag.id)) countUnusualField("tag.id");
      if (earlierRecordsOfTag !== undefined) earlierRecordsOfTag.records.push(record);
      else if (requestedTagIds.has(tag.id)) recordsByTagId.set(tag.id, { tag, records: [record] });
    }
    for (const id of requestedTagIds) if (!recordsByTagId.has(id)) countUnusualField("tag.unanswered");
    return [...recordsByTagId.values()];
  }

  function reportTextValues(tagIds: readonly string[]): void {
    const newTagIds = tagIds.filter((id) => !tagsWithTextValues.has(id));
    if (newTagIds.length === 0) return;
    if (tagsWithTextValues.size >= REPORTED_TEXT_TAGS_MAX) tagsWithTextValues.clear();
    for (const id of newTagIds) tagsWithTextValues.add(id);
    countUnusualField("value.text", newTagIds.length);
    onTextValues(newTagIds);
  }

  return {
    parseReadings(reply: DecodedReply, requestedIds: readonly string[]): Pick<TagReadReply, "readings" | "unreadTags"> {
      const tagReadings: TagReading[] = [];
      const tagIdsWithTextValues: string[] = [];
      const valueFaults = new Map<string, string>();
      for (const { tag, records } of groupRecordsByTag(reply, requestedIds)) {
        const { id, displayName, description, unit } = tag;
        const rawTagValues = records.map((record) => record.value);
        const [value, ...others] = rawTagValues.map(parseTagValue);
        if (others.some((other) => other !== value)) valueFaults.set(id, describeDuplicates("values", rawTagValues));
        else if (value === undefined)
          valueFaults.set(id, `Its value is ${quoteRawValue(rawTagValues[0])}, and no number, boolean or null.`);
        else {
          tagReadings.push({ id, displayName, description, unit, value });
          if (rawTagValues.some(containsTextValue)) tagIdsWithTextValues.push(id);
        }
      }
      if (valueFaults.size > 0) countUnusualField("tag.value", valueFaults.size);
      reportTextValues(tagIdsWithTextValues);
      if (tagReadings.length === requestedIds.length) return { readings: tagReadings };
      const readTagIds = new Set(tagReadings.map(({ id }) => id));
      const describeUnreadTag = (id: string): UnreadTag => {
        const unreadableReason = valueFaults.get(id);
        if (unreadableReason !== undefined) return { id, kind: "unreadable", reason: unreadableReason };
        return { id, kind: "unanswered", reason: "The reply does not list it." };
      };
      return {
        readings: tagReadings,
        unreadTags: requestedIds.filter((id) => !readTagIds.has(id)).map(describeUnreadTag),
      };
    },
    parseLogs(reply: DecodedReply, requestedIds: readonly string[]): TagLog[] {
      const tagIdsWithTextValues: string[] = [];
      const tagLogs = groupRecordsByTag(reply, requestedIds).map(({ tag, records: [first, ...others] }): TagLog => {
        const series = parseLoggedSeries(first.measurements);
        const isSameTagLog = (other: TagReplyRecord) =>
          series !== null && parseLoggedSeries(other.measurements)?.isSameAs(series);
        if (series === null || series.isBroken || !others.every(isSameTagLog)) {
          countUnusualField("log.measurements");
          const tagLogProblem = describeBrokenTagLog(series, first.measurements);
          return { ...tag, measurements: new TagPoints(), unreadable: { timesMs: null, said: tagLogProblem } };
        }
        if (series.textValueCount > 0) tagIdsWithTextValues.push(tag.id);
        if (series.firstFault === null) return { ...tag, measurements: series.points };
        countUnusualField("measurement.value", series.unreadableTimesMs.length);
        const { points, unreadableTimesMs, firstFault: said } = series;
        return { ...tag, measurements: points, unreadable: { timesMs: unreadableTimesMs, said } };
      });
      reportTextValues(tagIdsWithTextValues);
      return tagLogs;
    },
    parseTotals(reply: DecodedReply, requestedIds: readonly string[]): TagTotal[] {
      const tagIdsWithTextValues: string[] = [];
      const tagTotals = groupRecordsByTag(reply, requestedIds).map(({ tag, records }): TagTotal => {
        const [total, ...others] = records.map(parseTagTotal);
        const rawTagTotals = records.map(({ value, measurements }) => value ?? measurements);
        if (total !== undefined && others.every((other) => other === total)) {
          if (rawTagTotals.some(containsTextValue)) tagIdsWithTextValues.push(tag.id);
          return { ...tag, total };
        }
        countUnusualField("total.value");
        const areTagTotalsEqual = others.every((other) => other === total);
        const valueFaults = areTagTotalsEqual
          ? `The total is ${quoteRawValue(rawTagTotals[0])}, and not one number.`
          : describeDuplicates("totals", rawTagTotals);
        return { ...tag, total: null, unreadable: valueFaults };
      });
      reportTextValues(tagIdsWithTextValues);
      return tagTotals;
    },
  };
}

function describeDuplicates(valueKind: string, rawValues: readonly unknown[]): string {
  const distinctValues = [...new Set(rawValues.map(quoteRawValue))].slice(0, 3).join(" and ");
  return `The reply lists it ${rawValues.length} times with different ${valueKind}: ${distinctValues}.`;
}

function containsTextValue(raw: unknown): boolean {
  if (Array.isArray(raw)) return raw.some(containsTextValue);
  return isRecord(raw) ? containsTextValue(raw.value) : typeof raw === "string";
}

function parseLoggedSeries(measurements: unknown): LoggedSeries | null {
  if (measurements instanceof LoggedSeries) return measurements;
  return Array.isArray(measurements) ? LoggedSeries.fromEntries(measurements) : null;
}

function describeBrokenTagLog(series: LoggedSeries | null, measurements: unknown): string {
  if (series === null) return `The measurements of the log are ${quoteRawValue(measurements)}, and no list.`;
  return series.isBroken && series.firstFault !== null
    ? series.firstFault
    : "The reply lists the log more than once with different measurements.";
}

/** Parses a tag's total: a number, an object with `value`, or a list of one of these. Undefined for longer lists. */
function parseTagTotal(record: TagReplyRecord): number | null | undefined {
  const parsedTotals = [record.value, record.measurements].filter((raw) => raw !== undefined).map(parseSingleNumber);
  if (parsedTotals.length === 0 || parsedTotals.includes(undefined)) return undefined;
  return parsedTotals.find((total) => total !== null) ?? null;
}

function parseSingleNumber(raw: unknown): number | null | undefined {
  if (raw === null) return null;
  if (Array.isArray(raw)) {
    if (raw.length === 0) return null;
    return raw.length === 1 && !Array.isArray(raw[0]) ? parseSingleNumber(raw[0]) : undefined;
  }
  if (!isRecord(raw)) return parseNumericValue(raw);
  return isRecord(raw.value) || Array.isArray(raw.value) ? undefined : parseSingleNumber(raw.value);
}
