import { isUtf8 } from "node:buffer";
import { FALSE, NULL, Points, TRUE } from "../../core/codec/points.ts";
import type { Measurement } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { wireTime } from "./iso-time.ts";
import {
  afterColon,
  afterSpace,
  afterWord,
  BACKSLASH,
  COLON,
  COMMA,
  endOfNumber,
  endOfText,
  endOfValue,
  isClosing,
  isDigit,
  isOpening,
  isWord,
  MINUS,
  numberIn,
  type ParsedJson,
  parseJson,
  QUOTE,
  two,
} from "./json.ts";
import { isRecord } from "./reply.ts";
import { kindOf, listIn, tagValueIn } from "./wire.ts";

/** A list of measurements, read. */
export class LoggedSeries {
  readonly points: Points;
  /** Times of the measurements whose value is unreadable, milliseconds since 1970. */
  readonly unreadableMs: number[] = [];
  /** A sentence about the first unreadable measurement, with the service's own words; null where there is none. */
  said: string | null = null;
  /** True where a measurement has no readable time: it may be of any bucket, so the complete log is unreadable. */
  isBroken = false;
  /** Measurements whose number is written as a text. */
  texts = 0;

  /** `room`: how many measurements it will have, as far as one can guess. */
  constructor(room: number) {
    this.points = Points.withRoom(room);
  }

  static of(entries: readonly unknown[]): LoggedSeries {
    const series = new LoggedSeries(entries.length);
    for (const entry of entries) series.add(entry);
    return series;
  }

  add(entry: unknown): void {
    if (this.isBroken) return;
    const stamp = isRecord(entry) ? entry.timestamp : undefined;
    const time = typeof stamp === "string" ? wireTime(stamp) : null;
    if (!isRecord(entry) || time === null || !time.known) {
      this.isBroken = true;
      this.said = isRecord(entry)
        ? `The time of a measurement is ${kindOf(stamp)}, and no time.`
        : `A measurement is ${kindOf(entry)}, and no object.`;
      return;
    }
    const value = tagValueIn(entry.value);
    if (value !== undefined) {
      if (typeof entry.value === "string") this.texts++;
      this.points.add({ time: time.text, value } satisfies Measurement);
      return;
    }
    const timeMs = Date.parse(time.text);
    this.said ??= `The value at ${time.text} is ${kindOf(entry.value)}, and no number, boolean or null.`;
    // A time such as 2026-W23-1 is in no bucket: which one is unreadable is not known.
    if (Number.isNaN(timeMs)) this.isBroken = true;
    else this.unreadableMs.push(timeMs);
  }

  /** Whether another list says the same. */
  isSameAs({ points, unreadableMs, isBroken }: LoggedSeries): boolean {
    if (this.isBroken || isBroken || points.length !== this.points.length) return false;
    for (let at = 0; at < points.length; at++) {
      const isSameTime = points.text(at) === this.points.text(at);
      if (!isSameTime || !Object.is(points.code(at), this.points.code(at))) return false;
    }
    return unreadableMs.length === this.unreadableMs.length;
  }
}

/**
 * Parses a history response, which may hold 250,000 measurements in 13 MB, without an object per measurement and without blocking the
 * event loop.
 *
 *     {"data":[{"id":"1","attributes":{…},"measurements":[{"timestamp":"2026-01-01T00:00:00Z","value":21.5}, …]}, …]}
 *
 * The lists of measurements are read from the bytes into columns, some thousand at a time. The rest of the response has `[0]`, `[1]` … in
 * their places and is parsed as any response (src/engine/source/json.ts). If a list is not certainly valid, the complete response is
 * parsed that way, which reports the error.
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

interface List {
  /** Places of its brackets. */
  readonly from: number;
  readonly to: number;
  readonly series: LoggedSeries;
}

/** Bytes of everything else, and measurements, that are looked at before others have a turn: a few milliseconds. */
const BYTES_AT_ONCE = 500_000;
const MEASUREMENTS_AT_ONCE = 4_000;

/** Nesting levels of the outer object, the list, a record and its fields. */
const OUTER = 1;
const IN_RECORD = 3;
const IN_MEASUREMENTS = 4;
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
      await yieldToEventLoop();
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
          // All are of the same time and resolution, so one is about as long as the one before.
          const reader = new ListReader(bytes, start, lists.at(-1)?.series.points.length ?? 0);
          while (!reader.isOver) {
            left -= reader.read(left);
            if (left > 0) continue;
            left = MEASUREMENTS_AT_ONCE;
            await yieldToEventLoop();
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
  readonly series: LoggedSeries;
  isOver = false;
  isUncertain = false;
  /** Byte offset of the reader; at the end that of the closing bracket. */
  at: number;
  readonly #bytes: Buffer;
  #date = -1;
  #dateMs = Number.NaN;

  constructor(bytes: Buffer, opening: number, room: number) {
    this.#bytes = bytes;
    this.series = new LoggedSeries(room);
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
      // Larger than a number can be: unreadable.
      if (!Number.isFinite(code)) return -1;
    } else if (first === QUOTE) {
      // A number as a text: the same between quotes.
      end = endOfNumber(bytes, at + 1);
      if (end < 0 || bytes[end] !== QUOTE) return -1;
      code = numberIn(bytes, at + 1, end);
      if (!Number.isFinite(code)) return -1;
      end++;
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
    if (!this.series.isBroken) {
      this.series.points.push(timeMs, code);
      if (first === QUOTE) this.series.texts++;
    }
    return at + 1;
  }

  /** Reads any other entry with `JSON.parse`. */
  #unusual(from: number): number {
    const end = endOfValue(this.#bytes, from, IN_MEASUREMENTS);
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
      (two(bytes, from) * 100 + two(bytes, from + 2)) * 10_000 + two(bytes, from + 5) * 100 + two(bytes, from + 8);
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

const isList = (code: number | undefined) => code === 91;
