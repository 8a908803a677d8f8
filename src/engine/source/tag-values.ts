import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { FALSE_VALUE_CODE, NULL_VALUE_CODE, TagPoints, TRUE_VALUE_CODE } from "../../core/codec/points.ts";
import { Malformed } from "../../core/errors/errors.ts";
import type { Measurement, Tag, TagLog, TagReading, TagTotal } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import {
  type CountUnusualField,
  describeValue,
  normalizeTime,
  parseList,
  parseNumber,
  parseTagValue,
  type RecordParser,
} from "./records.ts";
import {
  COLON,
  type DecodedReply,
  isDigit,
  isRecord,
  MAX_NUMBER_LENGTH,
  type ParsedJson,
  parseJson,
  QUOTE,
} from "./reply.ts";
import type { LeftOut, ReadReply } from "./source.ts";

export class LoggedSeries {
  readonly points: TagPoints;
  readonly unreadableMs: number[] = [];
  firstFault: string | null = null;
  isBroken = false;
  textCount = 0;
  constructor(expectedLength = 0) {
    this.points = TagPoints.withRoom(expectedLength);
  }

  static of(entries: readonly unknown[]): LoggedSeries {
    const series = new LoggedSeries(entries.length);
    for (const entry of entries) series.add(entry);
    return series;
  }

  add(entry: unknown): void {
    if (this.isBroken) return;
    const timestamp = isRecord(entry) ? entry.timestamp : undefined;
    const time = typeof timestamp === "string" ? normalizeTime(timestamp) : null;
    if (!isRecord(entry) || time === null || !time.known) {
      this.isBroken = true;
      this.firstFault = isRecord(entry)
        ? `The time of a measurement is ${describeValue(timestamp)}, and no time.`
        : `A measurement is ${describeValue(entry)}, and no object.`;
      return;
    }
    const value = parseTagValue(entry.value);
    if (value !== undefined) {
      if (typeof entry.value === "string") this.textCount++;
      this.points.add({ time: time.text, value } satisfies Measurement);
      return;
    }
    const timeMs = Date.parse(time.text);
    this.firstFault ??= `The value at ${time.text} is ${describeValue(entry.value)}, and no number, boolean or null.`;
    if (Number.isNaN(timeMs)) this.isBroken = true;
    else this.unreadableMs.push(timeMs);
  }

  isSameAs({ points, unreadableMs, isBroken }: LoggedSeries): boolean {
    if (this.isBroken || isBroken || points.length !== this.points.length) return false;
    for (let index = 0; index < points.length; index++) {
      const isSameTime = points.text(index) === this.points.text(index);
      if (!isSameTime || !Object.is(points.code(index), this.points.code(index))) return false;
    }
    return unreadableMs.length === this.unreadableMs.length;
  }
}

/** Bytes to parse before a yield to other work: about 3,500 measurements, less than a millisecond. */
const BYTES_PER_YIELD = 200_000;
const MEASUREMENT_DEPTH = 4;

/**
 * Parses a history response of up to 250,000 measurements (13 MB) without blocking the event loop. A point read from
 * the bytes costs 0.1 µs, with `JSON.parse` 1 µs. In the remaining JSON a marker replaces each list.
 */
export async function parseLogged(body: Uint8Array): Promise<ParsedJson> {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const listMarker = randomUUID();
  const jsonParts: Buffer[] = [];
  const seriesByMarker = new Map<unknown, LoggedSeries>();
  let lastListEnd = 0;
  let lastYieldIndex = 0;

  async function readMeasurements(from: number, series: LoggedSeries): Promise<number | null> {
    let index = skipSpace(bytes, from);
    if (bytes[index] === CLOSING_BRACKET) return index + 1;
    for (;;) {
      const entryEnd = readPlainEntry(bytes, index, series) ?? readOtherEntry(bytes, index, series);
      if (entryEnd === null) return null;
      index = skipSpace(bytes, entryEnd);
      if (bytes[index] === CLOSING_BRACKET) return index + 1;
      if (bytes[index] !== COMMA_BYTE) return null;
      index = skipSpace(bytes, index + 1);
      if (index - lastYieldIndex < BYTES_PER_YIELD) continue;
      lastYieldIndex = index;
      await yieldToEventLoop();
    }
  }

  for (let at = isUtf8(bytes) ? bytes.indexOf(LIST_KEY) : -1; at >= 0; at = bytes.indexOf(LIST_KEY, at + 1)) {
    const openingIndex = skipColon(bytes, at + LIST_KEY.length);
    if (openingIndex === null || bytes[openingIndex] !== OPENING_BRACKET) continue;
    const series = new LoggedSeries([...seriesByMarker.values()].at(-1)?.points.length);
    const listEnd = await readMeasurements(openingIndex + 1, series);
    if (listEnd === null) return parseJson(body);
    const markerName = `${listMarker} ${seriesByMarker.size}`;
    jsonParts.push(bytes.subarray(lastListEnd, openingIndex), Buffer.from(`"${markerName}"`));
    seriesByMarker.set(markerName, series);
    lastListEnd = listEnd;
    at = listEnd;
  }
  const parsed = parseJson(Buffer.concat([...jsonParts, bytes.subarray(lastListEnd)]));
  let replacedMarkers = 0;
  for (const record of (parsed.ok && isRecord(parsed.value) && parseList(parsed.value.data)) || []) {
    const series = isRecord(record) ? seriesByMarker.get(record.measurements) : undefined;
    if (series === undefined) continue;
    Object.assign(record as object, { measurements: series });
    replacedMarkers += 1;
  }
  // A list elsewhere, or two lists in one record, need the complete parse.
  return replacedMarkers === seriesByMarker.size ? parsed : parseJson(body);
}

/** Reads `{"timestamp":"2026-01-01T00:00:00Z","value":21.5}`; returns the index after the entry, or null. */
function readPlainEntry(bytes: Buffer, from: number, series: LoggedSeries): number | null {
  if (series.isBroken || bytes[from] !== OPENING_BRACE) return null;
  const timestampIndex = skipName(bytes, from + 1, TIMESTAMP_KEY);
  if (timestampIndex === null || bytes[timestampIndex] !== QUOTE || bytes[timestampIndex + 21] !== QUOTE) return null;
  const timeMs = parseTimeMsAt(bytes, timestampIndex + 1);
  const commaIndex = skipSpace(bytes, timestampIndex + 22);
  const valueIndex = bytes[commaIndex] === COMMA_BYTE ? skipName(bytes, commaIndex + 1, VALUE_KEY) : null;
  if (valueIndex === null || Number.isNaN(timeMs)) return null;
  const isText = bytes[valueIndex] === QUOTE;
  const start = isText ? valueIndex + 1 : valueIndex;
  const jsonWord = isText ? undefined : JSON_WORDS.find(([bytesOfWord]) => isWordAt(bytes, start, bytesOfWord));
  let end = jsonWord === undefined ? endOfNumber(bytes, start) : start + jsonWord[0].length;
  if (end === null) return null;
  const code = jsonWord === undefined ? parseNumberAt(bytes, start, end) : jsonWord[1];
  if (isText && bytes[end++] !== QUOTE) return null;
  const entryEnd = skipSpace(bytes, end);
  if (bytes[entryEnd] !== CLOSING_BRACE || Math.abs(code) === Number.POSITIVE_INFINITY) return null;
  series.points.push(timeMs, code);
  if (isText) series.textCount++;
  return entryEnd + 1;
}

/** Reads any other object without nested objects; returns the index after the entry, or null. */
function readOtherEntry(bytes: Buffer, from: number, series: LoggedSeries): number | null {
  const entryEnd = bytes.indexOf("}", from);
  const parsed =
    bytes[from] === OPENING_BRACE ? parseJson(bytes.subarray(from, entryEnd + 1), MEASUREMENT_DEPTH) : null;
  if (parsed?.ok !== true) return null;
  series.add(parsed.value);
  return entryEnd + 1;
}

let lastDate = { date: Number.NaN, ms: Number.NaN };

/** Milliseconds of `2026-01-01T00:00:00Z`; NaN for any other form and for dates that do not exist. */
function parseTimeMsAt(bytes: Buffer, from: number): number {
  for (const [offset, code] of TIME_SEPARATORS) if (bytes[from + offset] !== code) return Number.NaN;
  const date =
    twoDigitsAt(bytes, from) * 1e6 +
    twoDigitsAt(bytes, from + 2) * 1e4 +
    twoDigitsAt(bytes, from + 5) * 100 +
    twoDigitsAt(bytes, from + 8);
  const [hour, minute, second] = [
    twoDigitsAt(bytes, from + 11),
    twoDigitsAt(bytes, from + 14),
    twoDigitsAt(bytes, from + 17),
  ];
  if (!(hour < 24 && minute < 60 && second < 60)) return Number.NaN;
  if (date !== lastDate.date) {
    const dateText = bytes.toString("latin1", from, from + 10);
    // `Date.parse` accepts the 30th of February as the 2nd of March.
    const ms = /^\d{4}-\d\d-\d\d$/.test(dateText) ? Date.parse(dateText) : Number.NaN;
    if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(dateText)) return Number.NaN;
    lastDate = { date, ms };
  }
  return lastDate.ms + hour * 3_600_000 + minute * 60_000 + second * 1_000;
}

function twoDigitsAt(bytes: Buffer, at: number): number {
  const [tens, ones] = [bytes[at] as number, bytes[at + 1] as number];
  return isDigit(tens) && isDigit(ones) ? (tens - ZERO_BYTE) * 10 + ones - ZERO_BYTE : Number.NaN;
}

function endOfNumber(bytes: Buffer, from: number): number | null {
  let index: number | null = bytes[from] === MINUS_BYTE ? from + 1 : from;
  index = bytes[index] === ZERO_BYTE ? index + 1 : skipDigits(bytes, index);
  if (index !== null && bytes[index] === DECIMAL_POINT) index = skipDigits(bytes, index + 1);
  if (index !== null && (bytes[index] === 69 || bytes[index] === 101)) {
    const exponentSign = bytes[index + 1];
    index = skipDigits(bytes, exponentSign === 43 || exponentSign === MINUS_BYTE ? index + 2 : index + 1);
  }
  return index !== null && index - from < MAX_NUMBER_LENGTH ? index : null;
}

function skipDigits(bytes: Buffer, from: number): number | null {
  let at = from;
  while (isDigit(bytes[at] as number)) at++;
  return at === from ? null : at;
}

/** Digits of a number whose quotient with a power of ten is still the nearest double. */
const EXACT_DIGITS_MAX = 15;
const POWERS_OF_TEN = Float64Array.from({ length: EXACT_DIGITS_MAX + 1 }, (_, n) => 10 ** n);

function parseNumberAt(bytes: Buffer, from: number, end: number): number {
  const isNegative = bytes[from] === MINUS_BYTE;
  let digitsValue = 0;
  let decimalPlaces = -1;
  for (let index = isNegative ? from + 1 : from; index < end; index++) {
    const code = bytes[index] as number;
    if (isDigit(code)) digitsValue = digitsValue * 10 + code - ZERO_BYTE;
    if (decimalPlaces >= 0) decimalPlaces++;
    if (code === DECIMAL_POINT) decimalPlaces = 0;
    else if (!isDigit(code) || end - from > EXACT_DIGITS_MAX) return Number(bytes.toString("latin1", from, end));
  }
  const number = decimalPlaces > 0 ? digitsValue / (POWERS_OF_TEN[decimalPlaces] as number) : digitsValue;
  return isNegative ? -number : number;
}

function skipName(bytes: Buffer, from: number, name: Buffer): number | null {
  const at = skipSpace(bytes, from);
  return isWordAt(bytes, at, name) ? skipColon(bytes, at + name.length) : null;
}

function isWordAt(bytes: Buffer, from: number, word: Buffer): boolean {
  for (let n = 0; n < word.length; n++) if (bytes[from + n] !== word[n]) return false;
  return true;
}

function skipColon(bytes: Buffer, from: number): number | null {
  const at = skipSpace(bytes, from);
  return bytes[at] === COLON ? skipSpace(bytes, at + 1) : null;
}

function skipSpace(bytes: Buffer, from: number): number {
  let at = from;
  for (let code = bytes[at]; code === 32 || code === 10 || code === 13 || code === 9; code = bytes[at]) at++;
  return at;
}

const COMMA_BYTE = 44;
const MINUS_BYTE = 45;
const DECIMAL_POINT = 46;
const ZERO_BYTE = 48;
const OPENING_BRACKET = 91;
const CLOSING_BRACKET = 93;
const OPENING_BRACE = 123;
const CLOSING_BRACE = 125;
const LIST_KEY = Buffer.from(`"measurements"`);
const TIMESTAMP_KEY = Buffer.from(`"timestamp"`);
const VALUE_KEY = Buffer.from(`"value"`);
const JSON_WORDS = [
  [Buffer.from("null"), NULL_VALUE_CODE],
  [Buffer.from("true"), TRUE_VALUE_CODE],
  [Buffer.from("false"), FALSE_VALUE_CODE],
] as const;
const TIME_SEPARATORS = [
  [4, MINUS_BYTE],
  [7, MINUS_BYTE],
  [10, 84],
  [13, COLON],
  [16, COLON],
  [19, 90],
] as const;

type ReplyRecord = Readonly<Record<string, unknown>>;

interface RecordsOfTag {
  readonly tag: Tag;
  readonly records: [ReplyRecord, ...ReplyRecord[]];
}

const REPORTED_TEXTS_MAX = 100_000;

/** Reads tag replies. A value that is no number, boolean or null is unreadable, like a tag with two values. */
export function createValueReader(
  tagIn: RecordParser<Tag>,
  note: CountUnusualField,
  onTexts: (tagIds: readonly string[]) => void,
) {
  const tagsWithTexts = new Set<string>();

  function recordsByTag(answer: DecodedReply, requestedIds: readonly string[]): readonly RecordsOfTag[] {
    const data = parseList(answer.envelope.data);
    if (data === null) throw new Malformed("The data of a tag reply are no list.", answer.sample);
    const requested = new Set(requestedIds);
    const byId = new Map<string, RecordsOfTag>();
    for (const record of data) {
      const tag = tagIn(record);
      if (tag === null || !isRecord(record))
        throw new Malformed("A tag reply has a record without a usable id.", answer.sample);
      const earlierRecords = byId.get(tag.id);
      if (earlierRecords !== undefined || !requested.has(tag.id)) note("tag.id");
      if (earlierRecords !== undefined) earlierRecords.records.push(record);
      else if (requested.has(tag.id)) byId.set(tag.id, { tag, records: [record] });
    }
    for (const id of requested) if (!byId.has(id)) note("tag.unanswered");
    return [...byId.values()];
  }

  function reportTexts(tagIds: readonly string[]): void {
    const newTagIds = tagIds.filter((id) => !tagsWithTexts.has(id));
    if (newTagIds.length === 0) return;
    if (tagsWithTexts.size >= REPORTED_TEXTS_MAX) tagsWithTexts.clear();
    for (const id of newTagIds) tagsWithTexts.add(id);
    note("value.text", newTagIds.length);
    onTexts(newTagIds);
  }

  return {
    readings(answer: DecodedReply, requestedIds: readonly string[]): Pick<ReadReply, "readings" | "leftOut"> {
      const readings: TagReading[] = [];
      const textTagIds: string[] = [];
      const unreadable = new Map<string, string>();
      for (const { tag, records } of recordsByTag(answer, requestedIds)) {
        const { id, displayName, description, unit } = tag;
        const rawValues = records.map((record) => record.value);
        const [value, ...others] = rawValues.map(parseTagValue);
        if (others.some((other) => other !== value)) unreadable.set(id, describeDuplicates("values", rawValues));
        else if (value === undefined)
          unreadable.set(id, `Its value is ${describeValue(rawValues[0])}, and no number, boolean or null.`);
        else {
          readings.push({ id, displayName, description, unit, value });
          if (rawValues.some(containsText)) textTagIds.push(id);
        }
      }
      if (unreadable.size > 0) note("tag.value", unreadable.size);
      reportTexts(textTagIds);
      if (readings.length === requestedIds.length) return { readings };
      const readIds = new Set(readings.map(({ id }) => id));
      const describeLeftOut = (id: string): LeftOut => {
        const reason = unreadable.get(id);
        if (reason !== undefined) return { id, kind: "unreadable", reason };
        return { id, kind: "unanswered", reason: "The reply does not list it." };
      };
      return { readings, leftOut: requestedIds.filter((id) => !readIds.has(id)).map(describeLeftOut) };
    },
    logs(answer: DecodedReply, requestedIds: readonly string[]): TagLog[] {
      const textTagIds: string[] = [];
      const logs = recordsByTag(answer, requestedIds).map(({ tag, records: [first, ...others] }): TagLog => {
        const series = parseSeries(first.measurements);
        const isSameLog = (other: ReplyRecord) => series !== null && parseSeries(other.measurements)?.isSameAs(series);
        if (series === null || series.isBroken || !others.every(isSameLog)) {
          note("log.measurements");
          const logProblem = describeBrokenLog(series, first.measurements);
          return { ...tag, measurements: new TagPoints(), unreadable: { timesMs: null, said: logProblem } };
        }
        if (series.textCount > 0) textTagIds.push(tag.id);
        if (series.firstFault === null) return { ...tag, measurements: series.points };
        note("measurement.value", series.unreadableMs.length);
        const { points, unreadableMs, firstFault: said } = series;
        return { ...tag, measurements: points, unreadable: { timesMs: unreadableMs, said } };
      });
      reportTexts(textTagIds);
      return logs;
    },
    totals(answer: DecodedReply, requestedIds: readonly string[]): TagTotal[] {
      const textTagIds: string[] = [];
      const tagTotals = recordsByTag(answer, requestedIds).map(({ tag, records }): TagTotal => {
        const [total, ...others] = records.map(parseTotal);
        const rawTotals = records.map(({ value, measurements }) => value ?? measurements);
        if (total !== undefined && others.every((other) => other === total)) {
          if (rawTotals.some(containsText)) textTagIds.push(tag.id);
          return { ...tag, total };
        }
        note("total.value");
        const hasOneTotal = others.every((other) => other === total);
        const unreadable = hasOneTotal
          ? `The total is ${describeValue(rawTotals[0])}, and not one number.`
          : describeDuplicates("totals", rawTotals);
        return { ...tag, total: null, unreadable };
      });
      reportTexts(textTagIds);
      return tagTotals;
    },
  };
}

function describeDuplicates(what: string, raw: readonly unknown[]): string {
  const distinctValues = [...new Set(raw.map(describeValue))].slice(0, 3).join(" and ");
  return `The reply lists it ${raw.length} times with different ${what}: ${distinctValues}.`;
}

function containsText(raw: unknown): boolean {
  if (Array.isArray(raw)) return raw.some(containsText);
  return isRecord(raw) ? containsText(raw.value) : typeof raw === "string";
}

function parseSeries(measurements: unknown): LoggedSeries | null {
  if (measurements instanceof LoggedSeries) return measurements;
  return Array.isArray(measurements) ? LoggedSeries.of(measurements) : null;
}

/** Says why a log is unreadable. Only an empty list means that a log has no values. */
function describeBrokenLog(series: LoggedSeries | null, measurements: unknown): string {
  if (series === null) return `The measurements of the log are ${describeValue(measurements)}, and no list.`;
  return series.isBroken && series.firstFault !== null
    ? series.firstFault
    : "The reply lists the log more than once with different measurements.";
}

/** Accepts a number, an object with `value`, or a list of one such entry. Undefined for a complete series. */
function parseTotal(record: ReplyRecord): number | null | undefined {
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
  if (!isRecord(raw)) return parseNumber(raw);
  return isRecord(raw.value) || Array.isArray(raw.value) ? undefined : parseSingleNumber(raw.value);
}
