import { eventIn } from "../../core/codec/stored-event.ts";
import { type Event, isUrgent, KINDS, type Kind } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent } from "./store.ts";

/**
 * Bytes of a row without its body and its id (stored twice: row and index). With 60, the log counted 35 MB where the
 * file had 41 MB (100,000 good values). Free space in pages comes on top.
 */
const ROW_BYTES = 60;

/** Bytes that an event counts for. */
export function bytesOf({ id }: Pick<Event, "id">, body: string): number {
  return Buffer.byteLength(body) + 2 * id.length + ROW_BYTES;
}

/** Largest offer in bytes, unless a single event is larger: 60 events of history, 18,000 points. */
export const OFFER_BYTES = 1024 ** 2;

/** Factor by which an event of history grows when it is sent: 288 packed points are 1.8 to 3.7 kB stored, 14 kB sent. */
const UNPACKED = 6;

/** Size of an event when a sink gets it, from its size in the log. */
export function offeredSize(kind: Kind | string, stored: number): number {
  return kind === "tag-history" ? stored * UNPACKED : stored;
}

/** SQL for `offeredSize`. */
export function offeredSql(stored: string): string {
  return `(case when kind = 'tag-history' then ${UNPACKED} else 1 end * ${stored})`;
}

/** The last position of the longest prefix within a number of bytes; the first row always counts as within. */
export function lastWithinBytes(
  rows: readonly { readonly position: number; readonly bytes: number }[],
  bytes: number,
): number | undefined {
  let last = rows[0]?.position;
  let sum = 0;
  for (const row of rows) {
    sum += row.bytes;
    if (sum > bytes) break;
    last = row.position;
  }
  return last;
}

/** SQL condition for urgent kinds. */
export const URGENT_KIND = `kind in (${KINDS.filter(isUrgent)
  .map((kind) => `'${kind}'`)
  .join(", ")})`;

/** SQL condition for urgent events; the index on the class finds them without reading the values between. */
export const URGENT = `event.telemetry = false and event.${URGENT_KIND}`;

/** `recent` skips larger events, in bytes: a bucket has some 60, so a larger event is a backfill of days. */
export const RECENT_BYTES = 32 * 1024;

/**
 * Longest time that the clock may have been ahead for the log's times to stay ascending, in milliseconds. After the
 * clock is set right, each event gets the last time of the log plus 1 ms: an alarm whose end seemed older than its
 * beginning would stay active for ever. After a larger jump the log follows the clock, because its times also show how
 * long a sink has been behind.
 */
export const FOLLOWED_MS = 86_400_000;

/** Text of a field in the JSON of an event; inside a string of the event the quotes would be escaped. */
export function textOf(field: "source" | "subject", value: string): string {
  return JSON.stringify({ [field]: value }).slice(1, -1);
}

/** Texts of a subject and of the subjects below it. */
export function textsOfSubject(subject: string): readonly string[] {
  return [textOf("subject", subject), `${textOf("subject", subject).slice(0, -1)}/`];
}

export interface EventText {
  readonly position: number;
  readonly committed_ms: number;
  readonly body: string;
}

export function toLoggedEvent({ position, committed_ms, body }: EventText): LoggedEvent {
  return { position, committedAt: isoUtc(committed_ms), event: eventIn(body) };
}
