import { type Event, isUrgent, KINDS, type Kind, makeEvent } from "../../core/model/event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent, RetentionBounds, SinkPosition, StoredGap } from "./store.ts";

/**
 * Rules of the outbox that both databases follow: sizes of events and offers, cursors, lag, gaps and retention. Pure
 * functions and SQL that SQLite and PostgreSQL read alike.
 *
 * The statements themselves exist once for each database. SQLite runs them synchronously inside one transaction;
 * PostgreSQL sends them in one packet and may lose the reply. An asynchronous seam would yield to the event loop within
 * each transaction of SQLite, and two callers could then mix their work in one transaction.
 */

// ---- Sizes ----

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

// ---- The log ----

/** SQL condition for urgent kinds. */
export const URGENT_KIND = `kind in (${KINDS.filter(isUrgent)
  .map((kind) => `'${kind}'`)
  .join(", ")})`;

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

/** The sequence number of a dead letter, as a property; nothing where it has none. */
export function numberOf(row: { readonly number: number | null; readonly epoch: string | null }): {
  readonly sequence?: Sequence;
} {
  const { number, epoch } = row;
  return number === null || epoch === null ? {} : { sequence: { epoch, number } };
}

// ---- Cursors ----

/** The promise: after a crash a sink gets at most this many events again. */
export const IN_FLIGHT = 100;

/** A cursor that has moved in memory and not yet on the disk. */
export interface Ahead {
  readonly through: number;
  readonly counted: Sequence | undefined;
}

/** Joins two moves of a cursor. */
export function joinMoves(before: Ahead | undefined, now: Ahead): Ahead {
  if (before === undefined) return now;
  const [first, last] = before.through <= now.through ? [before, now] : [now, before];
  return { through: last.through, counted: last.counted ?? first.counted };
}

/** Whether the events directly follow a position, so that settling them moves the cursor. */
export function directlyFollows(events: readonly LoggedEvent[], position: number): boolean {
  return (events.at(-1)?.position ?? 0) === position + events.length;
}

/** The later of the stored number of a sink and the number of a cursor that is ahead; numbers of an old epoch do not count. */
export function laterCount(stored: Sequence | undefined, ahead: Sequence | undefined): Sequence | undefined {
  return stored !== undefined && ahead?.epoch === stored.epoch && ahead.number > stored.number ? ahead : stored;
}

/** Parses a time that a person wrote, into milliseconds since 1970. */
export function sinceMs(since: string): number {
  const ms = Date.parse(since);
  if (Number.isNaN(ms)) throw new RangeError(`${since} is not a time; write it as 2026-11-02T06:00:00Z.`);
  return ms;
}

// ---- Gaps ----

/** Each sink gets one gap event per reason in this time; later losses wait for the next one. */
export const MERGE_MS = 60 * 60_000;
/** Published gaps are stored this long. */
export const RETAINED_MS = 90 * 24 * 60 * 60_000;

/** An event that was removed before a sink got it. */
export interface Loss {
  readonly sink: string;
  readonly reason: "age" | "size";
  /** The event's own time. */
  readonly time: string;
}

/** Joins gaps of the same sink and reason. */
export function joinGaps(gaps: readonly StoredGap[]): readonly StoredGap[] {
  const joined = new Map<string, StoredGap>();
  for (const gap of gaps) {
    const key = `${gap.reason} ${gap.sink}`;
    const before = joined.get(key);
    const both = before && {
      ...before,
      firstTime: before.firstTime < gap.firstTime ? before.firstTime : gap.firstTime,
      lastTime: before.lastTime > gap.lastTime ? before.lastTime : gap.lastTime,
      count: before.count + gap.count,
    };
    joined.set(key, both ?? gap);
  }
  return [...joined.values()];
}

/** Losses of one moment as gaps, one for each sink and reason. */
export function gapsOf(losses: readonly Loss[], nowMs: number): readonly StoredGap[] {
  const at = isoUtc(nowMs);
  return joinGaps(
    losses.map(({ sink, reason, time }) => ({ sink, reason, firstTime: time, lastTime: time, count: 1, at })),
  );
}

/** Creates the event that reports a gap. */
export function gapEvent(
  { sink, reason, firstTime, lastTime, count }: Omit<StoredGap, "at">,
  nowMs: number,
): Event<"delivery-gap"> {
  return makeEvent({
    type: "delivery-gap",
    source: "/plenum",
    subject: `sink/${sink}`,
    time: isoUtc(nowMs),
    facts: [reason, firstTime, lastTime, count, nowMs],
    data: { sink, reason, firstTime, lastTime, count },
  });
}

// ---- Retention ----

/** Limits of one removing transaction, so that other writers wait a few milliseconds only. */
export const SLICE_ROWS = 250;
export const SLICE_BYTES = 4 * 1024 ** 2;
/** Share of its limit to which a full log is emptied: rare large steps instead of many small ones. */
const EMPTIED_TO = 0.95;
/** Share of the log's bytes that dead letters may take. */
export const LETTER_SHARE = 0.1;

/** Events of the log that may be removed, and why. */
export interface Sweep {
  /** SQL condition on the event. */
  readonly condition: string;
  /** The last position that may be removed. */
  readonly through: number;
  /** Null where every sink has them. */
  readonly reason: Loss["reason"] | null;
  /** Bytes that may stay in the log; undefined where all of them go. */
  readonly keepBytes?: number;
}

/** SQL of one database: `settled` is a condition, `slowest` the cursor of the slowest sink in use. */
interface SweepSql {
  readonly settled: string;
  readonly slowest: string;
}

/** Positions up to which events are older than the bounds; 0 where none is. */
export interface Older {
  /** Older than `max_age`. */
  readonly aged: number;
  /** Settled by every sink for longer than the replay window. */
  readonly replayed: number;
}

/** Sweeps that enforce `replay_window` and `max_age`. */
export function sweepsByAge({ settled, slowest }: SweepSql, { aged, replayed }: Older): readonly Sweep[] {
  return [
    { condition: settled, through: replayed, reason: null },
    { condition: `position > ${slowest}`, through: aged, reason: "age" },
  ];
}

/** Sweeps of a full log: first what every sink has, then telemetry, then facts. */
export function sweepsBySize({ settled }: SweepSql, maxBytes: number): readonly Sweep[] {
  const full = { through: Number.MAX_SAFE_INTEGER, keepBytes: maxBytes * EMPTIED_TO };
  return [
    { ...full, condition: `telemetry = true and ${settled}`, reason: null },
    { ...full, condition: `telemetry = false and ${settled}`, reason: null },
    { ...full, condition: "telemetry = true", reason: "size" },
    { ...full, condition: "telemetry = false", reason: "size" },
  ];
}

/** An event that is about to be removed. */
export interface Leaving {
  readonly position: number;
  readonly bytes: number;
  readonly committed_ms: number;
}

interface LossContext {
  /** The sinks in use and their cursors. */
  readonly sinks: readonly (Pick<SinkPosition, "position" | "urgent"> & { readonly name: string })[];
  /** Whether an event is marked to be sent to a sink again. */
  readonly isMarked: (sink: string, position: number) => boolean;
  /** Returns null for a damaged event. */
  readonly eventAt: (position: number) => Event | null;
  readonly wanted: RetentionBounds["wanted"];
}

/**
 * The losses when these events are removed, and the sinks that lose an event which they were never offered. An event
 * that a sink's filter leaves out is no loss; a damaged event is one for each sink that has not got it.
 */
export function lossesOf(
  leaving: readonly Leaving[],
  reason: Loss["reason"],
  { sinks, isMarked, eventAt, wanted }: LossContext,
): { readonly lost: readonly Loss[]; readonly withoutOffer: ReadonlySet<string> } {
  const lost: Loss[] = [];
  const withoutOffer = new Set<string>();
  for (const { position, committed_ms } of leaving) {
    const without = sinks.filter((sink) => position > sink.position || isMarked(sink.name, position));
    if (without.length === 0) continue;
    const event = eventAt(position);
    const time = event?.time ?? isoUtc(committed_ms);
    for (const { name, position: cursor, urgent } of without) {
      const isDelivered = event !== null && isUrgent(event.type) && position <= urgent;
      if (isDelivered && !isMarked(name, position)) continue;
      if (event !== null && wanted?.(name, event) === false) continue;
      lost.push({ sink: name, reason, time });
      if (position > cursor && !isDelivered) withoutOffer.add(name);
    }
  }
  return { lost, withoutOffer };
}
