import { parseEvent } from "../../core/codec/stored-event.ts";
import { EVENT_KINDS, type Event, type EventKind, isUrgentKind } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent } from "./store.ts";

const EVENT_ROW_OVERHEAD_BYTES = 60;

export function storedEventBytes({ id }: Pick<Event, "id">, body: string): number {
  return Buffer.byteLength(body) + 2 * id.length + EVENT_ROW_OVERHEAD_BYTES;
}

/** Maximum bytes of events that a sink is offered at once; a single larger event is offered alone. */
export const MAX_BATCH_BYTES = 1024 ** 2;

/** Factor by which a history event grows from storage (288 points: 1.8 to 3.7 kB) to sending (14 kB). */
const OFFERED_HISTORY_FACTOR = 6;

/** Computes the size of an event as a sink gets it from its size in the log. */
export function offeredBytes(kind: EventKind | string, storedBytes: number): number {
  return kind === "tag-history" ? storedBytes * OFFERED_HISTORY_FACTOR : storedBytes;
}

export function offeredBytesSql(storedBytesSql: string): string {
  return `(case when kind = 'tag-history' then ${OFFERED_HISTORY_FACTOR} else 1 end * ${storedBytesSql})`;
}

/** Returns the last position up to which the rows together fit into `maxBytes`; the first row always fits. */
export function lastPositionWithinBytes(
  rows: readonly { readonly position: number; readonly bytes: number }[],
  maxBytes: number,
): number | undefined {
  let lastPosition = rows[0]?.position;
  let totalBytes = 0;
  for (const row of rows) {
    totalBytes += row.bytes;
    if (totalBytes > maxBytes) break;
    lastPosition = row.position;
  }
  return lastPosition;
}

export const IS_URGENT_KIND_SQL = `kind in (${EVENT_KINDS.filter(isUrgentKind)
  .map((kind) => `'${kind}'`)
  .join(", ")})`;

/** SQL condition for urgent events; an index finds them without reading the values between them. */
export const IS_URGENT_EVENT_SQL = `event.telemetry = false and event.${IS_URGENT_KIND_SQL}`;

/** Maximum bytes of an event that `recent` reads: excludes events with history of several days. */
export const MAX_RECENT_EVENT_BYTES = 32 * 1024;

/** If the clock is set back by up to this time, commit times continue 1 ms after the last event. */
export const MAX_CLOCK_LEAD_MS = 86_400_000;

/** Returns a field as JSON text to search for in event bodies. It matches no string value: quotes are escaped there. */
export function jsonFieldText(field: "source" | "subject", value: string): string {
  return JSON.stringify({ [field]: value }).slice(1, -1);
}

export function subjectSearchTexts(subject: string): readonly string[] {
  return [jsonFieldText("subject", subject), `${jsonFieldText("subject", subject).slice(0, -1)}/`];
}

export interface StoredEventText {
  readonly position: number;
  readonly committed_ms: number;
  readonly body: string;
}

export function toLoggedEvent({ position, committed_ms, body }: StoredEventText): LoggedEvent {
  return { position, committedAt: isoUtc(committed_ms), event: parseEvent(body) };
}
