import { parseEvent } from "../../core/codec/stored-event.ts";
import { EVENT_KINDS, type EventKind, isTelemetry } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { IS_URGENT_KIND_SQL, type StoredEventText } from "./event-log-rows.ts";
import type { SqlDriver } from "./sql-driver.ts";
import { type LagFilter, type SinkLag, type SinkPosition, sinkStateSet } from "./store.ts";

/**
 * Computes how far sinks are behind. Events that a sink's filter leaves out do not count.
 *
 *   pending events of each class (telemetry, other)        answered by indexes
 *     ├─ the filter checks only kinds and accepts all   →  exact
 *     ├─ more than 2,000                                →  upper bound
 *     └─ otherwise filter each kind and up to 1 MiB of bodies
 */

/** Limit of events that are filtered one by one for each sink: about 4 ms. */
const MAX_LAG_FILTER_EVENTS = 2_000;
/** Limit of body bytes that are read to apply a filter: about 10 ms. */
const MAX_LAG_FILTER_BYTES = 1024 ** 2;

interface PendingRow {
  readonly position: number;
  /** The kind is null for a dead letter whose event has left the log; the filter matched it before. */
  readonly kind: EventKind | null;
  readonly bytes: number;
  readonly committed_ms: number;
}

interface SinkLagRow
  extends Pick<SinkLag, "sink" | "position" | "urgent" | "ended" | "deadLetters" | "dropped" | "remembered"> {
  readonly marked: number;
  readonly last: number;
}

interface EventCount {
  readonly events: number;
  readonly oldestMs: number | null;
  readonly exact: boolean;
}

const NO_PENDING_EVENTS: EventCount = { events: 0, oldestMs: null, exact: true };

const NO_LAG_FILTER: LagFilter = { kinds: EVENT_KINDS, kindsOnly: true, matches: () => true };

export async function computeSinkLags(
  sql: SqlDriver,
  lagFilters: ReadonlyMap<string, LagFilter> | undefined,
  unsavedCursors: ReadonlyMap<string, { readonly through: number }>,
): Promise<readonly SinkLag[]> {
  const sinkRows = await sql.query<SinkLagRow>(
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
  for (const { marked, last, ...stored } of sinkRows) {
    const row = { ...stored, position: Math.max(stored.position, unsavedCursors.get(stored.sink)?.through ?? 0) };
    const lagFilter = (row.ended === null ? lagFilters?.get(row.sink) : undefined) ?? NO_LAG_FILTER;
    const pendingEventCount = row.position >= last ? NO_PENDING_EVENTS : await countPendingEvents(sql, row, lagFilter);
    const markedEventCount = marked === 0 ? NO_PENDING_EVENTS : await countMarked(sql, row.sink, marked, lagFilter);
    sinkLags.push({
      ...row,
      depth: pendingEventCount.events,
      again: markedEventCount.events,
      exact: pendingEventCount.exact && markedEventCount.exact,
      oldest: pendingEventCount.oldestMs === null ? null : isoUtc(pendingEventCount.oldestMs),
    });
  }
  return sinkLags;
}

async function countPendingEvents(sql: SqlDriver, { position, urgent }: SinkPosition, lagFilter: LagFilter) {
  const afterCursorSql = "event.source = $1 and event.position > $2";
  // A sink gets urgent events (alarms) first, so it may have delivered them before older values.
  const isFactSql = `${afterCursorSql} and telemetry = false and not (position <= ${urgent} and ${IS_URGENT_KIND_SQL})`;
  const isValueSql = `${afterCursorSql} and telemetry = true`;
  // Indexes answer this query without reading event bodies.
  const [counts] = await sql.query<
    Record<"facts" | "values", number> & Record<"firstFact" | "firstValue", number | null>
  >(
    `select (select count(*) from event where ${isFactSql}) as facts,
       (select min(position) from event where ${isFactSql}) as "firstFact",
       ${sql.dialect.countValuesAfterSql} as "values",
       (select position from event where ${isValueSql} order by position limit 1) as "firstValue"`,
    position,
  );
  if (counts === undefined) return NO_PENDING_EVENTS;
  const isFactKind = (kind: EventKind) => !isTelemetry(kind);
  const pendingClasses = [
    { events: counts.facts, first: counts.firstFact, hasKind: isFactKind, condition: isFactSql },
    { events: counts.values, first: counts.firstValue, hasKind: isTelemetry, condition: isValueSql },
  ].filter(({ events, hasKind: isIn }) => events > 0 && lagFilter.kinds.some(isIn));
  const events = pendingClasses.reduce((sum, each) => sum + each.events, 0);
  if (events === 0) return NO_PENDING_EVENTS;
  const isCountExact =
    lagFilter.kindsOnly &&
    pendingClasses.every(({ hasKind }) => EVENT_KINDS.filter(hasKind).every((kind) => lagFilter.kinds.includes(kind)));
  if (isCountExact || events > MAX_LAG_FILTER_EVENTS) {
    const firstPendingPosition = Math.min(...pendingClasses.map((each) => each.first ?? Number.POSITIVE_INFINITY));
    const [oldest] = await sql.query<Pick<PendingRow, "committed_ms">>(
      "select committed_ms from event where source = $1 and position = $2",
      firstPendingPosition,
    );
    return { events, oldestMs: oldest?.committed_ms ?? null, exact: isCountExact };
  }
  const rows: PendingRow[] = [];
  for (const { condition } of pendingClasses) {
    const selectPendingSql = `select position, kind, bytes, committed_ms from event where ${condition} order by position`;
    rows.push(...(await sql.query<PendingRow>(selectPendingSql, position)));
  }
  return countMatching(sql, rows, lagFilter);
}

async function countMarked(sql: SqlDriver, sink: string, marked: number, lagFilter: LagFilter): Promise<EventCount> {
  if (lagFilter === NO_LAG_FILTER || marked > MAX_LAG_FILTER_EVENTS)
    return { events: marked, oldestMs: null, exact: lagFilter === NO_LAG_FILTER };
  const rows = await sql.query<PendingRow>(
    `select again.position, kind, coalesce(bytes, 0) as bytes, coalesce(committed_ms, 0) as committed_ms
     from again left join event on event.source = $1 and event.position = again.position
     where again.source = $1 and again.sink = $2`,
    sink,
  );
  return countMatching(sql, rows, lagFilter);
}

async function countMatching(sql: SqlDriver, rows: readonly PendingRow[], lagFilter: LagFilter): Promise<EventCount> {
  const rowsOfWantedKinds = rows.filter(({ kind }) => kind === null || lagFilter.kinds.includes(kind));
  const exceedsFilterBytes = rowsOfWantedKinds.reduce((sum, row) => sum + row.bytes, 0) > MAX_LAG_FILTER_BYTES;
  if (lagFilter.kindsOnly || exceedsFilterBytes) return summarizePendingEvents(rowsOfWantedKinds, lagFilter.kindsOnly);
  const intactRows = await sql.query<Pick<StoredEventText, "position" | "body">>(
    `select position, body from event
     where source = $1 and ${sql.dialect.isIn("position", "$2::bigint[]")} and ${sql.dialect.isIntactSql("event")}`,
    rowsOfWantedKinds.flatMap(({ kind, position }) => (kind === null ? [] : [position])),
  );
  const eventBodyByPosition = new Map(intactRows.map(({ position, body }) => [position, body]));
  const matchingRows = rowsOfWantedKinds.filter(({ position }) => {
    // Count a damaged event, because it will become a dead letter of the sink.
    const body = eventBodyByPosition.get(position);
    return body === undefined || lagFilter.matches(parseEvent(body));
  });
  return summarizePendingEvents(matchingRows, true);
}

function summarizePendingEvents(rows: readonly PendingRow[], isExact: boolean): EventCount {
  const oldestMs = rows.length === 0 ? null : Math.min(...rows.map((row) => row.committed_ms));
  return { events: rows.length, oldestMs, exact: isExact || rows.length === 0 };
}
