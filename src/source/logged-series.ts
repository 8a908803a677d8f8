import { isUtf8 } from "node:buffer";
import type { Measurement, TagValue } from "../building.ts";
import { FALSE, NULL, Points, TRUE } from "../points.ts";
import { breath } from "../waiting.ts";
import { wireTime } from "./iso-time.ts";
import { type ParsedJson, parseJson } from "./json.ts";
import { isRecord } from "./reply.ts";
import { listIn } from "./wire.ts";

/**
 * Reads a reply of history, which may hold a quarter of a million measurements in 13 MB, without making an object of each
 * and without stopping everything else meanwhile.
 *
 *     {"data":[{"id":"1","attributes":{…},"measurements":[{"timestamp":"2026-01-01T00:00:00Z","value":21.5}, …]}, …]}
 *
 * The lists of measurements are read from the bytes into columns, some thousand at a time. What is left is small, has
 * `[0]`, `[1]` … in their places, and goes the way of every reply (src/source/json.ts): it is JSON with the same meaning
 * if the whole was. Whatever a list holds that is not certain to be JSON within the bounds of that way has the whole
 * reply go it, which then says what is wrong.
 */
export async function parseLogged(body: Uint8Array): Promise<ParsedJson> {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const lists = isUtf8(bytes) ? await listsIn(bytes) : null;
  if (lists === null || lists.length === 0) return parseJson(body);
  const parsed = parseJson(withoutLists(bytes, lists));
  if (parsed.ok && isRecord(parsed.value)) {
    for (const record of listIn(parsed.value.data) ?? []) {
      if (isRecord(record) && Array.isArray(record.measurements)) {
        Object.assign(record, { measurements: lists[record.measurements[0] as number]?.series });
      }
    }
  }
  return parsed;
}

/** A list of measurements, read. */
export class LoggedSeries {
  readonly points = new Points();
  /** Measurements that have no value that could be passed on. */
  unusable = 0;
  /** Whether one has no time; of those after it nothing is known. */
  isBroken = false;

  static of(entries: readonly unknown[]): LoggedSeries {
    const series = new LoggedSeries();
    for (const entry of entries) series.add(entry);
    return series;
  }

  add(entry: unknown): void {
    if (this.isBroken) return;
    const stamp = isRecord(entry) ? entry.timestamp : undefined;
    const time = typeof stamp === "string" ? wireTime(stamp) : null;
    if (!isRecord(entry) || time === null || !time.known) this.isBroken = true;
    else if (isValue(entry.value))
      this.points.add({ time: time.text, value: entry.value } satisfies Measurement);
    else this.unusable++;
  }
}

/** A value is a number, a boolean or null (interface, Tag). */
export function isValue(value: unknown): value is TagValue {
  return (
    value === null || typeof value === "boolean" || (typeof value === "number" && Number.isFinite(value))
  );
}

interface List {
  /** Places of its brackets. */
  readonly from: number;
  readonly to: number;
  readonly series: LoggedSeries;
}

/** Bytes of everything else, and measurements, that are looked at before others have a turn: a few milliseconds. */
const BYTES_AT_ONCE = 500_000;
const MEASUREMENTS_AT_ONCE = 4_000;

/** Where the outer object, the list, a record in it and what it has are. */
const OUTER = 1;
const IN_RECORD = 3;
const IN_MEASUREMENTS = 4;
/** As src/source/json.ts bounds them. */
const MAX_DEPTH = 32;
const MAX_NUMBER_LENGTH = 400;

const QUOTE = 34;
const COMMA = 44;
const MINUS = 45;
const POINT = 46;
const ZERO = 48;
const NINE = 57;
const COLON = 58;
const BACKSLASH = 92;

/** The lists of measurements in a reply, in order; null when it has something in it that is not certain. */
async function listsIn(bytes: Buffer): Promise<readonly List[] | null> {
  const lists: List[] = [];
  let depth = 0;
  let isData = false;
  let lookedAt = 0;
  let left = MEASUREMENTS_AT_ONCE;
  for (let at = 0; at < bytes.length; at++) {
    if (at - lookedAt > BYTES_AT_ONCE) {
      lookedAt = at;
      await breath();
    }
    const code = bytes[at] as number;
    if (code === QUOTE) {
      const end = endOfText(bytes, at);
      if (end < 0) return null;
      const next = afterSpace(bytes, end + 1);
      if (bytes[next] === COLON) {
        if (depth === OUTER) isData = isWord(bytes, at, end, DATA);
        // Another spelling of a name, which the parser would take for the same.
        if (depth === IN_RECORD && isData && bytes.subarray(at, end).includes(BACKSLASH)) return null;
        const start = afterSpace(bytes, next + 1);
        if (depth === IN_RECORD && isData && isWord(bytes, at, end, MEASUREMENTS) && isList(bytes[start])) {
          const reader = new ListReader(bytes, start);
          while (!reader.isOver) {
            left -= reader.read(left);
            if (left > 0) continue;
            left = MEASUREMENTS_AT_ONCE;
            await breath();
          }
          if (reader.isUncertain) return null;
          lists.push({ from: start, to: reader.at, series: reader.series });
          at = reader.at;
          lookedAt = at;
          continue;
        }
      }
      at = end;
    } else if (isOpening(code)) depth++;
    else if (isClosing(code)) depth--;
  }
  return lists;
}

function withoutLists(bytes: Buffer, lists: readonly List[]): Uint8Array {
  const parts: Uint8Array[] = [];
  let from = 0;
  for (const [place, list] of lists.entries()) {
    parts.push(bytes.subarray(from, list.from), Buffer.from(`[${place}]`));
    from = list.to + 1;
  }
  parts.push(bytes.subarray(from));
  return Buffer.concat(parts);
}

/** Reads one list of measurements, so many at a time. */
class ListReader {
  readonly series = new LoggedSeries();
  isOver = false;
  isUncertain = false;
  /** Where it is; in the end the closing bracket. */
  at: number;
  readonly #bytes: Buffer;
  #date = -1;
  #dateMs = Number.NaN;

  constructor(bytes: Buffer, opening: number) {
    this.#bytes = bytes;
    this.at = afterSpace(bytes, opening + 1);
    if (isClosing(bytes[this.at] as number)) this.#end();
  }

  /** Answers how many it was. */
  read(most: number): number {
    let count = 0;
    for (; count < most && !this.isOver; count++) {
      const end = this.#usual(this.at);
      const after = end >= 0 ? end : this.#unusual(this.at);
      if (after < 0) break;
      this.at = afterSpace(this.#bytes, after);
      if (this.#bytes[this.at] === COMMA) this.at = afterSpace(this.#bytes, this.at + 1);
      else this.#end();
    }
    return count;
  }

  #end(): void {
    this.isOver = true;
    this.isUncertain = this.#bytes[this.at] !== 93;
  }

  /** A measurement as nearly all are; answers what follows it, or -1 when it is another, of which nothing was taken. */
  #usual(from: number): number {
    const bytes = this.#bytes;
    if (bytes[from] !== 123) return -1;
    let at = afterWord(bytes, afterSpace(bytes, from + 1), TIMESTAMP);
    if (at < 0) return -1;
    at = afterColon(bytes, at);
    if (at < 0 || bytes[at] !== QUOTE || bytes[at + 21] !== QUOTE) return -1;
    const timeMs = this.#timeAt(at + 1);
    if (Number.isNaN(timeMs)) return -1;
    at = afterSpace(bytes, at + 22);
    if (bytes[at] !== COMMA) return -1;
    at = afterWord(bytes, afterSpace(bytes, at + 1), VALUE);
    if (at < 0) return -1;
    at = afterColon(bytes, at);
    if (at < 0) return -1;
    const first = bytes[at] as number;
    let end = -1;
    let code = NULL;
    if (first === MINUS || isDigit(first)) {
      end = endOfNumber(bytes, at);
      if (end < 0) return -1;
      code = numberIn(bytes, at, end);
      // Larger than a number can be; the other way counts it.
      if (!Number.isFinite(code)) return -1;
    } else if (first === 110) end = afterWord(bytes, at, NULL_WORD);
    else if (first === 116) {
      end = afterWord(bytes, at, TRUE_WORD);
      code = TRUE;
    } else if (first === 102) {
      end = afterWord(bytes, at, FALSE_WORD);
      code = FALSE;
    }
    if (end < 0) return -1;
    at = afterSpace(bytes, end);
    if (bytes[at] !== 125) return -1;
    if (!this.series.isBroken) this.series.points.push(timeMs, code);
    return at + 1;
  }

  /** Whatever else stands in the list: the same, by the parser of the language. */
  #unusual(from: number): number {
    const end = endOfValue(this.#bytes, from);
    if (end >= 0) {
      try {
        this.series.add(JSON.parse(this.#bytes.toString("utf8", from, end)));
        return end;
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
      }
    }
    this.isOver = true;
    this.isUncertain = true;
    return -1;
  }

  /** `2026-01-01T00:00:00Z` as milliseconds; NaN for what is not certain to be a time in this very form. */
  #timeAt(from: number): number {
    const bytes = this.#bytes;
    const isForm =
      bytes[from + 4] === MINUS &&
      bytes[from + 7] === MINUS &&
      bytes[from + 10] === 84 &&
      bytes[from + 13] === COLON &&
      bytes[from + 16] === COLON &&
      bytes[from + 19] === 90;
    if (!isForm) return Number.NaN;
    const date =
      (two(bytes, from) * 100 + two(bytes, from + 2)) * 10_000 +
      two(bytes, from + 5) * 100 +
      two(bytes, from + 8);
    const hour = two(bytes, from + 11);
    const minute = two(bytes, from + 14);
    const second = two(bytes, from + 17);
    if (hour >= 24 || minute >= 60 || second >= 60) return Number.NaN;
    if (date !== this.#date) {
      const text = bytes.toString("latin1", from, from + 10);
      const ms = Date.parse(text);
      // The 30th of February is the 2nd of March to some.
      if (!/^\d{4}-\d\d-\d\d$/.test(text) || Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(text))
        return Number.NaN;
      this.#date = date;
      this.#dateMs = ms;
    }
    return this.#dateMs + hour * 3_600_000 + minute * 60_000 + second * 1_000;
  }
}

const DATA = Buffer.from(`"data"`);
const MEASUREMENTS = Buffer.from(`"measurements"`);
const TIMESTAMP = Buffer.from(`"timestamp"`);
const VALUE = Buffer.from(`"value"`);
const NULL_WORD = Buffer.from("null");
const TRUE_WORD = Buffer.from("true");
const FALSE_WORD = Buffer.from("false");

function isWord(bytes: Buffer, from: number, end: number, word: Buffer): boolean {
  return end - from + 1 === word.length && afterWord(bytes, from, word) >= 0;
}

function afterWord(bytes: Buffer, from: number, word: Buffer): number {
  for (let n = 0; n < word.length; n++) if (bytes[from + n] !== word[n]) return -1;
  return from + word.length;
}

/** Where the value after a name begins; -1 without a colon. */
function afterColon(bytes: Buffer, from: number): number {
  const at = afterSpace(bytes, from);
  return bytes[at] === COLON ? afterSpace(bytes, at + 1) : -1;
}

/** The next that is no white space of JSON. */
function afterSpace(bytes: Buffer, from: number): number {
  let at = from;
  for (let code = bytes[at]; code === 32 || code === 10 || code === 13 || code === 9; code = bytes[at]) at++;
  return at;
}

/** The closing quote; -1 without. */
function endOfText(bytes: Buffer, opening: number): number {
  for (let at = opening + 1; at < bytes.length; at++) {
    const code = bytes[at];
    if (code === QUOTE) return at;
    if (code === BACKSLASH) at++;
  }
  return -1;
}

/** What follows a value in a list of measurements; -1 where it is beyond the bounds or has no end. */
function endOfValue(bytes: Buffer, from: number): number {
  let depth = IN_MEASUREMENTS;
  for (let at = from; at < bytes.length; at++) {
    const code = bytes[at] as number;
    if (code === QUOTE) {
      at = endOfText(bytes, at);
      if (at < 0) return -1;
    } else if (isOpening(code)) {
      depth++;
      if (depth > MAX_DEPTH) return -1;
    } else if (isClosing(code)) {
      if (depth === IN_MEASUREMENTS) return at;
      depth--;
    } else if (code === COMMA) {
      if (depth === IN_MEASUREMENTS) return at;
    } else if (isDigit(code)) {
      const start = at;
      while (isNumeric(bytes[at + 1] as number)) at++;
      if (at - start >= MAX_NUMBER_LENGTH) return -1;
    }
  }
  return -1;
}

/** What follows a number; -1 where it is none of JSON, or absurdly long. */
function endOfNumber(bytes: Buffer, from: number): number {
  let at = bytes[from] === MINUS ? from + 1 : from;
  if (bytes[at] === ZERO) at++;
  else at = afterDigits(bytes, at);
  if (at >= 0 && bytes[at] === POINT) at = afterDigits(bytes, at + 1);
  if (at >= 0 && ((bytes[at] as number) | 32) === 101) {
    const sign = bytes[at + 1];
    at = afterDigits(bytes, sign === 43 || sign === MINUS ? at + 2 : at + 1);
  }
  return at - from >= MAX_NUMBER_LENGTH ? -1 : at;
}

/** What follows at least one digit; -1 where there is none. */
function afterDigits(bytes: Buffer, from: number): number {
  let at = from;
  while (isDigit(bytes[at] as number)) at++;
  return at === from ? -1 : at;
}

/** So many digits are a whole number exactly, and so are the powers of ten: their quotient is the nearest number. */
const EXACT_DIGITS = 15;
const POWERS = Float64Array.from({ length: EXACT_DIGITS + 1 }, (_, n) => 10 ** n);

function numberIn(bytes: Buffer, from: number, end: number): number {
  const isNegative = bytes[from] === MINUS;
  if (end - from <= EXACT_DIGITS) {
    let digits = 0;
    let decimals = -1;
    let at = isNegative ? from + 1 : from;
    for (; at < end; at++) {
      const code = bytes[at] as number;
      if (code === POINT) decimals = 0;
      else if (isDigit(code)) {
        digits = digits * 10 + code - ZERO;
        if (decimals >= 0) decimals++;
      } else break;
    }
    if (at === end) {
      const number = decimals > 0 ? digits / (POWERS[decimals] as number) : digits;
      return isNegative ? -number : number;
    }
  }
  return Number(bytes.toString("latin1", from, end));
}

/** Two digits as a number; where there are none a number that is too large for any part of a time or a date. */
function two(bytes: Buffer, at: number): number {
  const tens = bytes[at] as number;
  const ones = bytes[at + 1] as number;
  return isDigit(tens) && isDigit(ones) ? (tens - ZERO) * 10 + ones - ZERO : 1_000;
}

const isList = (code: number | undefined) => code === 91;
const isOpening = (code: number) => code === 91 || code === 123;
const isClosing = (code: number) => code === 93 || code === 125;
const isDigit = (code: number) => code >= ZERO && code <= NINE;
/** Digits and `+ - . E e`. */
const isNumeric = (code: number) =>
  isDigit(code) || code === 43 || code === MINUS || code === POINT || code === 69 || code === 101;
