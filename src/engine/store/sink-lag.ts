import { parseEvent } from "../../core/codec/stored-event.ts";
import { EVENT_KINDS, type EventKind, isTelemetry } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type EventText, URGENT_KIND } from "./outbox-rules.ts";
import type { SqlDriver } from "./sql-driver.ts";
import { type LagFilter, type SinkLag, type SinkPosition, sinkStateSet } from "./store.ts";

/**
 * Computes how far sinks are behind. Events that a sink's filter leaves out do not count.
 *
 *   pending events of each class (telemetry, facts)        answered by indexes
 *     ├─ the kind alone decides and all kinds pass      →  exact
 *     ├─ more than 2,000                                →  upper bound
 *     └─ otherwise look at kinds, and at bodies up to 1 MiB
 */

/** Largest number of events that are looked at one by one for each sink: about 4 ms. */
const MAX_FILTERED_EVENTS = 2_000;
/** Largest number of bytes that are read to apply a filter: about 10 ms. */
const MAX_FILTERED_BYTES = 1024 ** 2;

interface PendingRow {
  readonly position: number;
  /** Null for a dead letter whose event has left the log: the sink was offered it, so its filter matches. */
  readonly kind: EventKind | null;
  readonly bytes: number;
  readonly committed_ms: number;
}

interface SinkRow
  extends Pick<SinkLag, "sink" | "position" | "urgent" | "ended" | "deadLetters" | "dropped" | "remembered"> {
  readonly marked: number;
  readonly last: number;
}

interface ClassCounts {
  readonly facts: number;
  readonly firstFact: number | null;
  readonly values: number;
  readonly firstValue: number | null;
}

type CursorPair = Pick<SinkPosition, "position" | "urgent">;

interface EventCount {
  readonly events: number;
  readonly oldestMs: number | null;
  readonly exact: boolean;
}

const NO_EVENTS: EventCount = { events: 0, oldestMs: null, exact: true };

const NO_FILTER: LagFilter = { kinds: EVENT_KINDS, byKind: true, matches: () => true };

/** `unsavedCursors` has cursors that have moved in memory only. */
export async function computeSinkLags(
  sql: SqlDriver,
  wanted: ReadonlyMap<string, LagFilter> | undefined,
  unsavedCursors: ReadonlyMap<string, { readonly through: number }>,
): Promise<readonly SinkLag[]> {
  const sinks = await sql.query<SinkRow>(
    `select name as sink, position, urgent, ended, dropped,
       (select count(*) from dead_letter where dead_letter.source = $1 and sink = sink.name and resending = false)
         as "deadLetters",
       (select count(*) from document where document.source = $1 and set_name = $2 || sink.name) as remembered,
       (select count(*) from again where again.source = $1 and again.sink = sink.name) as marked,
       (select coalesce(max(event.position), 0) from event where event.source = $1) as last
     from sink where source = $1 order by name`,
    sinkStateSet(""),
  );
  const sinkLags: SinkLag[] = [];
  for (const { marked, last, ...stored } of sinks) {
    const row = { ...stored, position: Math.max(stored.position, unsavedCursors.get(stored.sink)?.through ?? 0) };
    const filter = (row.ended === null ? wanted?.get(row.sink) : undefined) ?? NO_FILTER;
    const pendingCount = row.position >= last ? NO_EVENTS : await countAfter(sql, row, filter);
    const markedCount = marked === 0 ? NO_EVENTS : await countMarked(sql, row.sink, marked, filter);
    sinkLags.push({
      ...row,
      depth: pendingCount.events,
      again: markedCount.events,
      exact: pendingCount.exact && markedCount.exact,
      oldest: pendingCount.oldestMs === null ? null : isoUtc(pendingCount.oldestMs),
    });
  }
  return sinkLags;
}

async function countAfter(sql: SqlDriver, { position, urgent }: CursorPair, wanted: LagFilter): Promise<EventCount> {
  const afterSql = "event.source = $1 and event.position > $2";
  // Urgent events may be settled although values before them are not.
  const isFact = `${afterSql} and telemetry = false and not (position <= ${urgent} and ${URGENT_KIND})`;
  const isValue = `${afterSql} and telemetry = true`;
  // Indexes answer all of it without reading a body.
  const [counts] = await sql.query<ClassCounts>(
    `select (select count(*) from event where ${isFact}) as facts,
       (select min(position) from event where ${isFact}) as "firstFact",
       ${sql.dialect.countValuesAfter} as "values",
       (select position from event where ${isValue} order by position limit 1) as "firstValue"`,
    position,
  );
  if (counts === undefined) return NO_EVENTS;
  const classes = [
    { events: counts.facts, first: counts.firstFact, isIn: (kind: EventKind) => !isTelemetry(kind), condition: isFact },
    { events: counts.values, first: counts.firstValue, isIn: isTelemetry, condition: isValue },
  ].filter(({ events, isIn }) => events > 0 && wanted.kinds.some(isIn));
  const events = classes.reduce((sum, each) => sum + each.events, 0);
  if (events === 0) return NO_EVENTS;
  const isExact =
    wanted.byKind && classes.every(({ isIn }) => EVENT_KINDS.filter(isIn).every((kind) => wanted.kinds.includes(kind)));
  if (isExact || events > MAX_FILTERED_EVENTS) {
    const firstPosition = Math.min(...classes.map((each) => each.first ?? Number.POSITIVE_INFINITY));
    const [oldest] = await sql.query<Pick<PendingRow, "committed_ms">>(
      "select committed_ms from event where source = $1 and position = $2",
      firstPosition,
    );
    return { events, oldestMs: oldest?.committed_ms ?? null, exact: isExact };
  }
  const rows: PendingRow[] = [];
  for (const { condition } of classes) {
    const selectSql = `select position, kind, bytes, committed_ms from event where ${condition} order by position`;
    rows.push(...(await sql.query<PendingRow>(selectSql, position)));
  }
  return countRows(sql, rows, wanted);
}

async function countMarked(sql: SqlDriver, sink: string, marked: number, wanted: LagFilter): Promise<EventCount> {
  if (wanted === NO_FILTER || marked > MAX_FILTERED_EVENTS)
    return { events: marked, oldestMs: null, exact: wanted === NO_FILTER };
  const rows = await sql.query<PendingRow>(
    `select again.position, kind, coalesce(bytes, 0) as bytes, coalesce(committed_ms, 0) as committed_ms
     from again left join event on event.source = $1 and event.position = again.position
     where again.source = $1 and again.sink = $2`,
    sink,
  );
  return countRows(sql, rows, wanted);
}

async function countRows(sql: SqlDriver, rows: readonly PendingRow[], wanted: LagFilter): Promise<EventCount> {
  const rowsOfKind = rows.filter(({ kind }) => kind === null || wanted.kinds.includes(kind));
  const exceedsFilterBytes = rowsOfKind.reduce((sum, row) => sum + row.bytes, 0) > MAX_FILTERED_BYTES;
  if (wanted.byKind || exceedsFilterBytes) return summarizePending(rowsOfKind, wanted.byKind);
  const soundRows = await sql.query<Pick<EventText, "position" | "body">>(
    `select position, body from event
     where source = $1 and ${sql.dialect.isIn("position", "$2::bigint[]")} and ${sql.dialect.isSound("event")}`,
    rowsOfKind.flatMap(({ kind, position }) => (kind === null ? [] : [position])),
  );
  const bodyByPosition = new Map(soundRows.map(({ position, body }) => [position, body]));
  const matchingRows = rowsOfKind.filter(({ position }) => {
    // A damaged event will be a dead letter of the sink.
    const body = bodyByPosition.get(position);
    return body === undefined || wanted.matches(parseEvent(body));
  });
  return summarizePending(matchingRows, true);
}

function summarizePending(rows: readonly PendingRow[], exact: boolean): EventCount {
  const oldestMs = rows.length === 0 ? null : Math.min(...rows.map((row) => row.committed_ms));
  return { events: rows.length, oldestMs, exact: exact || rows.length === 0 };
}
