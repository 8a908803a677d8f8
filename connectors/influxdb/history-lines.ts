import { historyText } from "../../src/core/codec/history-event.ts";
import { PointReader } from "../../src/core/codec/point-reader.ts";
import type { TagValue } from "../../src/core/model/building.ts";
import type { Event } from "../../src/core/model/event.ts";
import { momentOf, type PointParts, valueFields, WHOLE_MS } from "./point.ts";

/** Lines of one event: one as text, or several as bytes with line breaks between them. */
export interface Lines {
  readonly text: string | Buffer;
  readonly count: number;
  /** Releases the bytes for reuse. */
  readonly free?: () => void;
}

/** Reusable buffers, which save the garbage collector megabytes a second. */
const spare: Buffer[] = [];
/** Largest number of reusable buffers: a request has 5,000 lines, 18 days of 288 lines of 130 bytes. */
const SPARE_MAX = 20;
const SPARE_BYTES = 65_536;
/** Largest size of a value, a time and their separators. */
const VARYING_BYTES = 64;

/**
 * Encodes a history event. A backfill has millions of points that differ in value and time only, so the text
 * before these is encoded once for each type of value.
 */
export function* historyLines(
  event: Event<"tag-history">,
  lineAtZero: (parts: Omit<PointParts, "timeMs">) => string,
): Generator<Lines> {
  const { fact, points } = historyText(event);
  const { tag, resolution, timeZone, origin, revised } = fact;
  /** Start of a line: without its time, and for a number without the value. */
  const upTo = (value: TagValue) => {
    const parts = {
      measurement: "tag_history",
      tags: { tag_id: tag.id, unit: tag.unit, resolution, time_zone: timeZone },
      fields: { ...valueFields("value", value), good: value !== null, origin, revised },
    };
    const line = lineAtZero(parts);
    // Fields are sorted by name, and none comes after the value.
    const rest = `${typeof value === "number" ? "0 " : ""}0${WHOLE_MS}`;
    return Buffer.from(line.slice(0, line.length - rest.length));
  };
  const before = { number: upTo(0), true: upTo(true), false: upTo(false), null: upTo(null) };
  const longest = Math.max(...Object.values(before).map(({ length }) => length)) + VARYING_BYTES;
  const reader = new PointReader(points);
  let fault: unknown = null;
  for (let isMore = true; isMore && fault === null; ) {
    const bytes = room(longest);
    let at = 0;
    let count = 0;
    while (at + longest <= bytes.length) {
      isMore = reader.next();
      if (!isMore) break;
      let { timeMs } = reader;
      try {
        if (Number.isNaN(timeMs)) timeMs = momentOf(reader.time);
      } catch (error) {
        // Store the points before the fault nevertheless.
        fault = error;
        break;
      }
      if (count > 0) bytes[at++] = LINE_BREAK;
      const value = reader.isOther ? reader.value : null;
      const isWord = value === "true" || value === "false" || value === "null";
      const start = isWord ? before[value] : before.number;
      bytes.set(start, at);
      at += start.length;
      if (!isWord) {
        at = value === null ? reader.writeNumber(bytes, at) : written(value, bytes, at);
        bytes[at++] = SPACE;
      }
      at = writtenTime(timeMs, bytes, at);
      count++;
    }
    if (count > 0) yield { text: bytes.subarray(0, at), count, free: () => giveBack(bytes) };
    else giveBack(bytes);
  }
  if (fault !== null) throw fault;
}

/** Returns a buffer for at least one line of this size. */
function room(bytes: number): Buffer {
  if (bytes > SPARE_BYTES) return Buffer.allocUnsafeSlow(bytes);
  return spare.pop() ?? Buffer.allocUnsafeSlow(SPARE_BYTES);
}

function giveBack(bytes: Buffer): void {
  if (bytes.length === SPARE_BYTES && spare.length < SPARE_MAX) spare.push(bytes);
}

const LINE_BREAK = 10;
const SPACE = 32;

/** Writes milliseconds, 13 digits from 2001 to 2286, as nanoseconds; returns the next position. */
function writtenTime(timeMs: number, into: Buffer, at: number): number {
  if (!(timeMs >= 1e12 && timeMs < 1e13)) return written(`${timeMs}${WHOLE_MS}`, into, at);
  const millions = Math.floor(timeMs / 1e6);
  writeDigits(millions, 7, into, at);
  writeDigits(timeMs - millions * 1e6, 6, into, at + 7);
  return written(WHOLE_MS, into, at + 13);
}

function writeDigits(number: number, digits: number, into: Buffer, at: number): void {
  let left = number | 0;
  for (let n = digits - 1; n >= 0; n--) {
    const rest = (left / 10) | 0;
    into[at + n] = 48 + left - rest * 10;
    left = rest;
  }
}

/** Writes ASCII characters; returns the next position. */
function written(text: string, into: Buffer, at: number): number {
  for (let n = 0; n < text.length; n++) into[at + n] = text.charCodeAt(n);
  return at + text.length;
}
