import { createHash } from "node:crypto";
import type { Resolution, Tag } from "../model/building.ts";
import { type Event, toCloudEvent } from "../model/event.ts";
import type { TagHistoryFact } from "../model/history-facts.ts";
import { COMMA, letterOf, PACKED_BYTES, PackedTimes, WORDS } from "./packed-points.ts";
import { listText, PointTime, QUOTED_POINT, writeNumber } from "./point-text.ts";
import type { Points } from "./points.ts";

/** Stored text of history events: JSON with packed points, written from columns because a backfill has millions. */
export interface HistoryFields {
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
  const facts = [type, source, subject, resolution, timeZone];
  const before = withoutEnd(JSON.stringify({ tag, resolution, timeZone }));
  const after = JSON.stringify({ origin, revised: revisedAt !== null }).slice(1);
  const canPack =
    points.isPlain &&
    (points.length === 0 || (points.timeMs(0) >= FIRST_MS && points.timeMs(points.length - 1) < END_MS));
  const list = canPack ? null : JSON.stringify(points);
  const packing = list === null ? pack(points) : null;
  const id = idOf([
    `${withoutEnd(JSON.stringify(facts))},`,
    packing === null ? JSON.stringify(list) : packing.quoted,
    `,${JSON.stringify(revisedAt)}]`,
  ]);
  const site = siteId === null ? {} : { siteid: String(siteId) };
  const head = `${withoutEnd(JSON.stringify({ id, source, type, subject, time, ...site }))}${DATA}${before}${POINTS}`;
  const text = packing === null ? `${head}${list},${after}}` : packing.between(`${head}"`, `",${after}}`);
  return historyIn(text) as Event<"tag-history">;
}

/** Returns the id that `eventId` makes, from parts of the facts' JSON. */
function idOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return `tag-history.${hash.digest().subarray(0, 16).toString("base64url")}`;
}

/** Unambiguous markers in the event's JSON: inside a string their quotes would be escaped. */
const DATA = `,"data":`;
const POINTS = `,"points":`;
const PACKED = `${POINTS}"`;
const KIND = `"type":"tag-history"`;

function withoutEnd(json: string): string {
  return json.slice(0, -1);
}

const texts = new WeakMap<Event, string>();

/** Parses the text of a history event; its data only at the first access. Returns null for an event of another kind. */
export function historyIn(text: string): Event<"tag-history"> | null {
  const at = text.indexOf(DATA);
  const kind = text.indexOf(KIND);
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
  const text = texts.get(event);
  if (text === undefined) return [JSON.stringify(toCloudEvent(event, further))];
  const at = text.indexOf(DATA);
  const attributes = JSON.stringify({ ...further, datacontenttype: "application/json" });
  const before = `{"specversion":"1.0",${text.slice(1, at)},${attributes.slice(1, -1)}${DATA}`;
  return [before, ...dataTexts(text), "}"];
}

export function dataText(event: Event): string {
  const text = texts.get(event);
  return text === undefined ? JSON.stringify(event.data) : dataTexts(text).join("");
}

function dataTexts(text: string): readonly string[] {
  const start = text.indexOf(DATA) + DATA.length;
  const packed = packedIn(text, start);
  if (packed === null) return [text.slice(start, -1)];
  const { from, end } = packed;
  return [text.slice(start, from - 1), listText(text.slice(from, end)), text.slice(end + 1, -1)];
}

/** Range of the packed points without quotes in the event's text; null if the points are a JSON list. */
function packedIn(text: string, dataAt: number): { readonly from: number; readonly end: number } | null {
  const from = text.indexOf(PACKED, dataAt) + PACKED.length;
  if (from < PACKED.length) return null;
  return { from, end: text.indexOf('"', from) };
}

export interface HistoryText {
  readonly fact: Omit<TagHistoryFact, "points">;
  /** Packed points or a JSON list. `listText` converts both to a list. */
  readonly points: string;
}

export function historyText(event: Event<"tag-history">): HistoryText {
  const text = texts.get(event);
  const start = text === undefined ? -1 : text.indexOf(DATA) + DATA.length;
  const packed = text === undefined ? null : packedIn(text, start);
  if (text === undefined || packed === null) {
    const { points, ...fact } = event.data;
    return { fact, points: JSON.stringify(points) };
  }
  const { from, end } = packed;
  const fact = JSON.parse(
    `${text.slice(start, from - PACKED.length)}${text.slice(end + 1, -1)}`,
  ) as HistoryText["fact"];
  return { fact, points: text.slice(from, end) };
}

const QUOTE = 34;
const BRACKET = 91;
const CLOSING = 93;
const BRACE = 125;

/** Most bytes of a point in quoted JSON: 17 and 16 characters around a time of 24 and a number of 25, and `},`. */
const QUOTED_BYTES = 84;
const DAY_MS = 86_400_000;
const FIRST_MS = Date.UTC(-1, 11, 31) + DAY_MS;
const END_MS = Date.UTC(10_000, 0, 1);

const BUFFERS = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };

/** Most bytes before and after the points: names and descriptions of up to 10,000 characters each. */
const ROUND_BYTES = 200_000;

/** Packs the points. `quoted` is the JSON list as a JSON string, for the id. Use the result before the next call. */
function pack(points: Points): { between(head: string, tail: string): string; readonly quoted: Buffer } {
  const most = points.length * QUOTED_BYTES + 4 + 2 * ROUND_BYTES;
  if (BUFFERS.quoted.length < most) {
    BUFFERS.packed = Buffer.allocUnsafeSlow(points.length * PACKED_BYTES + 2 * ROUND_BYTES);
    BUFFERS.quoted = Buffer.allocUnsafeSlow(most);
  }
  const { packed, quoted } = BUFFERS;
  const [end, quotedEnd] = write(points, packed, quoted);
  return {
    quoted: quoted.subarray(0, quotedEnd),
    between(head, tail) {
      const [before, after] = [Buffer.byteLength(head), Buffer.byteLength(tail)];
      if (before > ROUND_BYTES || after > ROUND_BYTES)
        return `${head}${packed.toString("latin1", ROUND_BYTES, end)}${tail}`;
      const from = ROUND_BYTES - before;
      packed.write(head, from);
      packed.write(tail, end);
      const isPlain = before === head.length && after === tail.length;
      return packed.toString(isPlain ? "latin1" : "utf8", from, end + after);
    },
  };
}

function write(points: Points, packed: Buffer, quoted: Buffer): readonly [end: number, quotedEnd: number] {
  let at = ROUND_BYTES;
  let to = 0;
  quoted[to++] = QUOTE;
  quoted[to++] = BRACKET;
  const times = new PackedTimes(points);
  const pointStart = new PointTime(QUOTED_POINT);
  for (let i = 0; i < points.length; i++) {
    if (i > 0) quoted[to++] = COMMA;
    at = times.write(i, packed, at);
    to = pointStart.write(points.timeMs(i), quoted, to);
    const code = points.code(i);
    if (Number.isFinite(code)) {
      const from = at;
      at = writeNumber(packed, at, code);
      for (let n = from; n < at; n++) quoted[to++] = packed[n] as number;
    } else {
      const letter = letterOf(code);
      packed[at++] = letter.charCodeAt(0);
      to += quoted.write(WORDS[letter] as string, to, "latin1");
    }
    quoted[to++] = BRACE;
  }
  quoted[to++] = CLOSING;
  quoted[to++] = QUOTE;
  return [at, to];
}
