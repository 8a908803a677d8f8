import { isTelemetry, KINDS, type Kind } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { SinkLag, SinkPosition, Wanted } from "./store.ts";

/**
 * Computes how far sinks are behind, for both databases. Events that a sink's filter leaves out do not count.
 *
 *   pending events of each class (telemetry, facts)        answered by indexes
 *     ├─ the kind alone decides and all kinds pass      →  exact
 *     ├─ more than 2,000                                →  upper bound
 *     └─ otherwise look at kinds, and at bodies up to 1 MiB
 */

/** Largest number of events that are looked at one by one for each sink: about 4 ms. */
const LOOK_EVENTS = 2_000;
/** Largest number of bytes that are read to apply a filter: about 10 ms. */
const LOOK_BYTES = 1024 ** 2;

/** An event that a sink has still to get. */
export interface PendingRow {
  readonly position: number;
  /** Null for a dead letter whose event has left the log: the sink was offered it, so its filter matches. */
  readonly kind: Kind | null;
  readonly bytes: number;
  readonly committed_ms: number;
}

/** Pending events of one class, telemetry (1) or facts (0), and the position of the first. */
export interface ClassCount {
  readonly telemetry: number;
  readonly events: number;
  readonly first: number | null;
}

/** A sink with its cursor, before its pending events are counted. */
export interface SinkRow extends SinkPosition {
  readonly deadLetters: number;
  readonly dropped: number;
  readonly remembered: number;
  /** Events that are marked to be sent again. */
  readonly marked: number;
}

type Awaitable<T> = T | Promise<T>;
type Cursor = Pick<SinkPosition, "position" | "urgent">;

/** The queries of one database. Urgent events up to `urgent` are settled although values before them may not be. */
export interface LagQueries {
  sinks(): Awaitable<readonly SinkRow[]>;
  /** Position of the last event in the log; 0 when it is empty. */
  last(): Awaitable<number>;
  classes(cursor: Cursor): Awaitable<readonly ClassCount[]>;
  committedMs(position: number): Awaitable<number | null>;
  pending(cursor: Cursor, telemetry: readonly number[]): Awaitable<readonly PendingRow[]>;
  marked(sink: string): Awaitable<readonly PendingRow[]>;
  /** The rows of which the filter matches the event, or whose event is damaged or has left the log. */
  matching(rows: readonly PendingRow[], matches: Wanted["matches"]): Awaitable<readonly PendingRow[]>;
}

interface Count {
  readonly events: number;
  /** Commit time of the first of them, milliseconds since 1970. */
  readonly oldestMs: number | null;
  readonly exact: boolean;
}

const NONE: Count = { events: 0, oldestMs: null, exact: true };

/** The filter of a sink that has none. */
const EVERYTHING: Wanted = { kinds: KINDS, byKind: true, matches: () => true };

export async function sinkLags(
  queries: LagQueries,
  wanted: ReadonlyMap<string, Wanted> | undefined,
  ahead: ReadonlyMap<string, { readonly through: number }>,
): Promise<readonly SinkLag[]> {
  const sinks = await queries.sinks();
  const last = await queries.last();
  const lags: SinkLag[] = [];
  for (const { marked, ...stored } of sinks) {
    const row = { ...stored, position: Math.max(stored.position, ahead.get(stored.sink)?.through ?? 0) };
    const filter = (row.ended === null ? wanted?.get(row.sink) : undefined) ?? EVERYTHING;
    const behind = row.position >= last ? NONE : await countAfter(queries, row, filter);
    const again = marked === 0 ? NONE : await countAgain(queries, row.sink, marked, filter);
    lags.push({
      ...row,
      depth: behind.events,
      again: again.events,
      exact: behind.exact && again.exact,
      oldest: behind.oldestMs === null ? null : isoUtc(behind.oldestMs),
    });
  }
  return lags;
}

async function countAfter(queries: LagQueries, cursor: Cursor, wanted: Wanted): Promise<Count> {
  const isOf = (telemetry: number) => (kind: Kind) => isTelemetry(kind) === (telemetry === 1);
  const open = (await queries.classes(cursor)).filter(
    ({ telemetry, events }) => events > 0 && wanted.kinds.some(isOf(telemetry)),
  );
  const events = open.reduce((sum, each) => sum + each.events, 0);
  const isExact =
    wanted.byKind &&
    open.every(({ telemetry }) => KINDS.filter(isOf(telemetry)).every((kind) => wanted.kinds.includes(kind)));
  if (events === 0) return NONE;
  if (isExact || events > LOOK_EVENTS) {
    const first = Math.min(...open.map((each) => each.first ?? Number.POSITIVE_INFINITY));
    return { events, oldestMs: await queries.committedMs(first), exact: isExact };
  }
  const telemetry = open.map((each) => each.telemetry);
  return countRows(queries, await queries.pending(cursor, telemetry), wanted);
}

async function countAgain(queries: LagQueries, sink: string, marked: number, wanted: Wanted): Promise<Count> {
  if (wanted === EVERYTHING || marked > LOOK_EVENTS)
    return { events: marked, oldestMs: null, exact: wanted === EVERYTHING };
  return countRows(queries, await queries.marked(sink), wanted);
}

async function countRows(queries: LagQueries, rows: readonly PendingRow[], wanted: Wanted): Promise<Count> {
  const ofKind = rows.filter(({ kind }) => kind === null || wanted.kinds.includes(kind));
  const isLarge = ofKind.reduce((sum, row) => sum + row.bytes, 0) > LOOK_BYTES;
  if (wanted.byKind || isLarge) return countOf(ofKind, wanted.byKind);
  return countOf(await queries.matching(ofKind, wanted.matches), true);
}

function countOf(rows: readonly PendingRow[], exact: boolean): Count {
  const oldestMs = rows.reduce<number | null>(
    (first, { committed_ms: ms }) => (first === null || ms < first ? ms : first),
    null,
  );
  return { events: rows.length, oldestMs, exact: exact || rows.length === 0 };
}
