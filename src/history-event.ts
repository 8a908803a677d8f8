import { createHash } from "node:crypto";
import type { Resolution, Tag } from "./building.ts";
import { type Event, toCloudEvent } from "./event.ts";
import type { TagHistoryFact } from "./history-facts.ts";
import { FALSE, type Points, TRUE } from "./points.ts";

/**
 * Events of history as the text that they are stored and sent as. A backfill has millions of points, and each would
 * otherwise be made an object and a text several times on its way. So the text is written once, from columns; the event
 * is an ordinary one whose `data` are parsed out of it when somebody looks into them; and whoever wants the same points
 * in another text (a file, line protocol, a message) cuts it out of this one.
 *
 * The text is, to the letter, `JSON.stringify` of the event, and its id that of `makeEvent`.
 */
export interface HistoryFields {
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  readonly siteId: number | string | null;
  readonly tag: Tag;
  readonly resolution: Resolution;
  readonly timeZone: string;
  /** Ascending. */
  readonly points: Points;
  readonly origin: TagHistoryFact["origin"];
  /** When buckets were told with other values than before; null when they were not told before. */
  readonly revisedAt: string | null;
}

export function historyEvent(fields: HistoryFields): Event<"tag-history"> {
  const { source, subject, time, siteId, tag, resolution, timeZone, points, origin, revisedAt } = fields;
  const type = "tag-history";
  const facts = [type, source, subject, resolution, timeZone];
  const before = opened(JSON.stringify({ tag, resolution, timeZone }));
  const after = JSON.stringify({ origin, revised: revisedAt !== null }).slice(1);
  const isUsual =
    points.isPlain &&
    (points.length === 0 || (points.timeMs(0) >= FIRST_MS && points.timeMs(points.length - 1) < END_MS));
  const told = isUsual ? null : JSON.stringify(points);
  const list = told === null ? writeList(points) : null;
  const id = idOf([
    `${opened(JSON.stringify(facts))},`,
    list === null ? JSON.stringify(told) : list.quoted,
    `,${JSON.stringify(revisedAt)}]`,
  ]);
  const site = siteId === null ? {} : { siteid: String(siteId) };
  const head = `${opened(JSON.stringify({ id, source, type, subject, time, ...site }))}${DATA}${before}${POINTS}`;
  const text = list === null ? `${head}${told},${after}}` : list.between(head, `,${after}}`);
  return eventIn(text) as Event<"tag-history">;
}

/** What `eventId` makes of the kind and the facts, from the parts of their JSON. */
function idOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return `tag-history.${hash.digest().subarray(0, 16).toString("base64url")}`;
}

/** Whatever stands before these is no text of its own: inside one the quotes would be escaped. */
const DATA = `,"data":`;
const POINTS = `,"points":`;
const KIND = `"type":"tag-history"`;

function opened(json: string): string {
  return json.slice(0, -1);
}

/** The texts of events that have one. */
const texts = new WeakMap<Event, string>();

/** An event out of its text. Of history the data are left as text until somebody looks at them. */
export function eventIn(text: string): Event {
  const at = text.indexOf(DATA);
  const kind = text.indexOf(KIND);
  if (kind < 0 || kind > at || !text.endsWith("}}")) return JSON.parse(text) as Event;
  const event = JSON.parse(`${text.slice(0, at)}}`) as Event;
  let data: Event["data"] | undefined;
  Object.defineProperty(event, "data", {
    enumerable: true,
    configurable: true,
    get() {
      data ??= JSON.parse(text.slice(at + DATA.length, -1)) as Event["data"];
      return data;
    },
  });
  texts.set(event, text);
  return event;
}

/** The event as JSON. */
export function eventText(event: Event): string {
  return texts.get(event) ?? JSON.stringify(event);
}

/** The event as a CloudEvents 1.0 JSON object with further attributes, as texts one after the other, so that a long one is not copied first. */
export function cloudEventTexts(event: Event, further: object = {}): readonly string[] {
  const text = texts.get(event);
  if (text === undefined) return [JSON.stringify(toCloudEvent(event, further))];
  const at = text.indexOf(DATA);
  const attributes = JSON.stringify({ ...further, datacontenttype: "application/json" });
  return [`{"specversion":"1.0",`, text.slice(1, at), `,${attributes.slice(1, -1)}`, text.slice(at)];
}

/** The event's data as JSON. */
export function dataText(event: Event): string {
  const text = texts.get(event);
  return text === undefined ? JSON.stringify(event.data) : text.slice(text.indexOf(DATA) + DATA.length, -1);
}

/** What an event of history says, but for its points, and those as they stand in its text. */
export interface HistoryText {
  readonly fact: Omit<TagHistoryFact, "points">;
  /** A JSON list. */
  readonly points: string;
}

export function historyText(event: Event<"tag-history">): HistoryText {
  const text = texts.get(event);
  const at = text?.indexOf(POINTS, text.indexOf(DATA)) ?? -1;
  const end = text?.lastIndexOf("]") ?? -1;
  if (text === undefined || at < 0 || end < at) {
    const { points, ...fact } = event.data;
    return { fact, points: JSON.stringify(points) };
  }
  const start = text.indexOf(DATA) + DATA.length;
  const fact = JSON.parse(`${text.slice(start, at)}${text.slice(end + 1, -1)}`) as HistoryText["fact"];
  return { fact, points: text.slice(at + POINTS.length, end + 1) };
}

const QUOTE = 34;
const COMMA = 44;
const BRACKET = 91;
const CLOSING = 93;
const BRACE = 125;

/** The most that one point takes: 12 and 13 characters around a time of 24 and a number of 25, and `},`. */
const POINT_BYTES = 80;
const DAY_MS = 86_400_000;
/** Years of four digits. */
const FIRST_MS = Date.UTC(-1, 11, 31) + DAY_MS;
const END_MS = Date.UTC(10_000, 0, 1);

/**
 * Where texts are put together, so that not every one leaves its memory to the collector; what is in it is used up before
 * the next is begun.
 */
const BENCH = { text: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };

/** What may stand before and after a list: names and descriptions, of at most 10,000 characters each. */
const ROUND_BYTES = 200_000;

/** The points as JSON between two texts, and as a JSON text, for the id. To be used at once. */
function writeList(points: Points): { between(head: string, tail: string): string; readonly quoted: Buffer } {
  const most = points.length * POINT_BYTES + 4 + 2 * ROUND_BYTES;
  if (BENCH.text.length < most) {
    BENCH.text = Buffer.allocUnsafeSlow(most);
    BENCH.quoted = Buffer.allocUnsafeSlow(most);
  }
  const { text, quoted } = BENCH;
  const [end, quotedEnd] = write(points, text, quoted);
  return {
    quoted: quoted.subarray(0, quotedEnd),
    between(head, tail) {
      const [before, after] = [Buffer.byteLength(head), Buffer.byteLength(tail)];
      const list = () => text.toString("latin1", ROUND_BYTES, end);
      if (before > ROUND_BYTES || after > ROUND_BYTES) return `${head}${list()}${tail}`;
      const from = ROUND_BYTES - before;
      text.write(head, from);
      text.write(tail, end);
      const isPlain = before === head.length && after === tail.length;
      return text.toString(isPlain ? "latin1" : "utf8", from, end + after);
    },
  };
}

/** Writes the list both ways, and returns where they end. */
function write(points: Points, text: Buffer, quoted: Buffer): readonly [end: number, quotedEnd: number] {
  let at = ROUND_BYTES;
  let to = 0;
  text[at++] = BRACKET;
  quoted[to++] = QUOTE;
  quoted[to++] = BRACKET;
  const usual = Buffer.from(`{"time":"2026-01-01T00:00:00.000Z","value":`);
  const inText = Buffer.from(`{\\"time\\":\\"2026-01-01T00:00:00.000Z\\",\\"value\\":`);
  let day = Number.NaN;
  for (let i = 0; i < points.length; i++) {
    if (i > 0) {
      text[at++] = COMMA;
      quoted[to++] = COMMA;
    }
    const timeMs = points.timeMs(i);
    const ofDay = Math.floor(timeMs / DAY_MS);
    if (ofDay !== day) {
      day = ofDay;
      const date = new Date(ofDay * DAY_MS).toISOString().slice(0, 10);
      usual.write(date, TIME_AT, "latin1");
      inText.write(date, QUOTED_TIME_AT, "latin1");
    }
    const ms = timeMs - ofDay * DAY_MS;
    writeClock(usual, TIME_AT + 11, ms);
    writeClock(inText, QUOTED_TIME_AT + 11, ms);
    text.set(usual, at);
    quoted.set(inText, to);
    at += usual.length;
    to += inText.length;
    const valueAt = at;
    at = writeValue(text, at, points.code(i));
    text[at++] = BRACE;
    for (let n = valueAt; n < at; n++) quoted[to++] = text[n] as number;
  }
  text[at++] = CLOSING;
  quoted[to++] = CLOSING;
  quoted[to++] = QUOTE;
  return [at, to];
}

/** Where the time begins behind `{"time":"`, and where with each quote escaped. */
const TIME_AT = 9;
const QUOTED_TIME_AT = 12;

/** `08:05:00.000` */
function writeClock(bytes: Buffer, at: number, ms: number): void {
  const seconds = (ms / 1_000) | 0;
  const minutes = (seconds / 60) | 0;
  const hours = (minutes / 60) | 0;
  const thousandths = ms - seconds * 1_000;
  writeTwo(bytes, at, hours);
  writeTwo(bytes, at + 3, minutes - hours * 60);
  writeTwo(bytes, at + 6, seconds - minutes * 60);
  bytes[at + 9] = 48 + ((thousandths / 100) | 0);
  writeTwo(bytes, at + 10, thousandths % 100);
}

function writeTwo(bytes: Buffer, at: number, number: number): void {
  const tens = (number / 10) | 0;
  bytes[at] = 48 + tens;
  bytes[at + 1] = 48 + number - tens * 10;
}

/** As JSON.stringify writes it. */
function writeValue(bytes: Buffer, from: number, code: number): number {
  const size = Math.abs(code);
  if (size < 2_000_000) {
    // A number of three decimals or fewer is their quotient, and has no shorter spelling than these digits.
    const thousands = Math.round(size * 1_000);
    if (thousands / 1_000 === size) {
      let at = from;
      if (code < 0) bytes[at++] = 45;
      return writeThousandths(bytes, at, thousands);
    }
  }
  const word = Number.isFinite(code)
    ? String(code)
    : code === TRUE
      ? "true"
      : code === FALSE
        ? "false"
        : "null";
  return from + bytes.write(word, from, "latin1");
}

/** 21500 is `21.5`. */
function writeThousandths(bytes: Buffer, from: number, thousands: number): number {
  const whole = (thousands / 1_000) | 0;
  let digits = 1;
  for (let limit = 10; whole >= limit; limit *= 10) digits++;
  let left = whole;
  for (let n = digits - 1; n >= 0; n--) {
    bytes[from + n] = 48 + (left % 10);
    left = (left / 10) | 0;
  }
  let at = from + digits;
  let part = thousands - whole * 1_000;
  if (part === 0) return at;
  bytes[at++] = 46;
  for (let unit = 100; part > 0; unit /= 10) {
    const digit = (part / unit) | 0;
    bytes[at++] = 48 + digit;
    part -= digit * unit;
  }
  return at;
}
