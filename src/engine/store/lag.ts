import { eventIn } from "../../core/codec/stored-event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { EVENT_COLUMNS, type EventRow, isSound, URGENT } from "./event-log.ts";
import {
  type Count,
  counted,
  EVERYTHING,
  LOOK_EVENTS,
  NONE,
  type PendingRow,
  rowsOfKinds,
  wantedOf,
} from "./lag-count.ts";
import type { Database } from "./sqlite.ts";
import { type SinkLag, sinkStateSet, type Wanted } from "./store.ts";

/** How far the sinks are behind. Their filters decide what counts; what a filter leaves out nobody waits for. */

interface SinkRow {
  readonly sink: string;
  readonly position: number;
  readonly urgent: number;
  readonly ended: string | null;
  readonly dropped: number;
  readonly deadLetters: number;
}

function remembered(database: Database, sink: string): number {
  const counted = database
    .prepare("select count(*) as entries from document where set_name = ?")
    .get<{ readonly entries: number }>(sinkStateSet(sink));
  return counted?.entries ?? 0;
}

export function sinkLags(
  database: Database,
  wanted: ReadonlyMap<string, Wanted> | undefined,
  ahead: ReadonlyMap<string, { readonly through: number }>,
): readonly SinkLag[] {
  const sinks = database
    .prepare(
      `select name as sink, position, urgent, ended, dropped,
         (select count(*) from dead_letter where sink = sink.name and resending = 0) as deadLetters
       from sink order by name`,
    )
    .all<SinkRow>()
    .map((row) => ({ ...row, position: Math.max(row.position, ahead.get(row.sink)?.through ?? 0) }));
  const last = database.number("select coalesce(max(position), 0) from event");
  return sinks.map((row) => {
    const filter = row.ended === null ? wanted?.get(row.sink) : undefined;
    const ahead = row.position >= last ? NONE : countAfter(database, row, filter ?? EVERYTHING);
    const again = countAgain(database, row.sink, filter ?? EVERYTHING);
    return {
      ...row,
      depth: ahead.events,
      remembered: remembered(database, row.sink),
      again: again.events,
      exact: ahead.exact && again.exact,
      oldest: ahead.oldestMs === null ? null : isoUtc(ahead.oldestMs),
    };
  });
}

function countAfter(database: Database, { position, urgent }: SinkRow, wanted: Wanted): Count {
  // Urgent events may be settled although values before them are not.
  const isPending =
    urgent > position ? `position > ? and not (position <= ${urgent} and ${URGENT})` : "position > ?";
  const classes = [0, 1].map((telemetry) => ({
    telemetry,
    // The index on the class answers both without reading a body.
    ...(database
      .prepare(
        `select count(*) as events, min(position) as first from event where telemetry = ? and ${isPending}`,
      )
      .get<{ readonly events: number; readonly first: number | null }>(telemetry, position) ?? {
      events: 0,
      first: null,
    }),
  }));
  const { open, events, isExact: all } = wantedOf(classes, wanted);
  if (events === 0) return NONE;
  if (all || events > LOOK_EVENTS) {
    const first = Math.min(...open.map((each) => each.first ?? Number.POSITIVE_INFINITY));
    const row = database
      .prepare("select committed_ms from event where position = ?")
      .get<{ readonly committed_ms: number }>(first);
    return { events, oldestMs: row?.committed_ms ?? null, exact: all };
  }
  const rows = open.flatMap(({ telemetry }) =>
    database
      .prepare(
        `select position, kind, bytes, committed_ms from event where telemetry = ? and ${isPending} order by position`,
      )
      .all<PendingRow>(telemetry, position),
  );
  return countRows(database, rows, wanted);
}

function countAgain(database: Database, sink: string, wanted: Wanted): Count {
  const marked =
    database
      .prepare("select count(*) as events from again where sink = ?")
      .get<{ readonly events: number }>(sink)?.events ?? 0;
  if (marked === 0) return NONE;
  if (wanted === EVERYTHING || marked > LOOK_EVENTS)
    return { events: marked, oldestMs: null, exact: wanted === EVERYTHING };
  const rows = database
    .prepare(
      `select again.position, kind, coalesce(bytes, 0) as bytes, coalesce(committed_ms, 0) as committed_ms
       from again left join event on event.position = again.position where again.sink = ?`,
    )
    .all<PendingRow>(sink);
  return countRows(database, rows, wanted);
}

function countRows(database: Database, rows: readonly PendingRow[], wanted: Wanted): Count {
  const { ofKind, isLarge } = rowsOfKinds(rows, wanted);
  if (wanted.byKind || isLarge) return counted(ofKind, wanted.byKind);
  const whole = database.prepare(`select ${EVENT_COLUMNS} from event where position = ?`);
  const matching = ofKind.filter(({ position, kind }) => {
    const row = kind === null ? undefined : whole.get<EventRow>(position);
    // What is damaged will be a dead letter of the sink.
    return row === undefined || !isSound(row) || wanted.matches(eventIn(row.body));
  });
  return counted(matching, true);
}
