import { eventIn } from "../../core/codec/stored-event.ts";
import type { Kind } from "../../core/model/event.ts";
import { plainList } from "../../core/postgres/lists.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { URGENT_KIND } from "../../engine/store/event-log.ts";
import {
  type Count,
  counted,
  EVERYTHING,
  LOOK_EVENTS,
  NONE,
  type PendingRow,
  rowsOfKinds,
  wantedOf,
} from "../../engine/store/lag-count.ts";
import { type SinkLag, type SinkPosition, sinkStateSet, type Wanted } from "../../engine/store/store.ts";
import type { Ask } from "./documents.ts";
import type { Answer } from "./state-database.ts";

type Rows = Answer["rows"];

/** How far the sinks of one source are behind. */
export async function sinkLags(
  source: string,
  ask: Ask,
  wanted: ReadonlyMap<string, Wanted> | undefined,
  ahead: ReadonlyMap<string, { readonly through: number }>,
): Promise<readonly SinkLag[]> {
  const { rows } = await ask(
    `select name, position::double precision, urgent::double precision, ended, dropped::double precision,
       (select count(*)::integer from dead_letter as letter
        where letter.source = $1 and letter.sink = sink.name and not resending),
       (select count(*)::integer from document where document.source = $1 and set_name = $2 || sink.name),
       (select count(*)::integer from again where again.source = $1 and again.sink = sink.name),
       (select coalesce(max(event.position), 0)::double precision from event where event.source = $1)
     from sink where source = $1 order by name`,
    [source, sinkStateSet("")],
  );
  const lags: SinkLag[] = [];
  for (const [name, cursor, urgentCursor, ended, dropped, deadLetters, remembered, marked, last] of rows) {
    const sink = String(name);
    const position = Math.max(Number(cursor), ahead.get(sink)?.through ?? 0);
    const urgent = Number(urgentCursor);
    const filter = (ended === null ? wanted?.get(sink) : undefined) ?? EVERYTHING;
    const behind =
      position >= Number(last) ? NONE : await countAfter(source, ask, { position, urgent }, filter);
    const again = Number(marked) === 0 ? NONE : await countAgain(source, ask, sink, Number(marked), filter);
    lags.push({
      sink,
      position,
      urgent,
      ended: ended === null ? null : String(ended),
      dropped: Number(dropped),
      deadLetters: Number(deadLetters),
      remembered: Number(remembered),
      depth: behind.events,
      again: again.events,
      exact: behind.exact && again.exact,
      oldest: behind.oldestMs === null ? null : isoUtc(behind.oldestMs),
    });
  }
  return lags;
}

async function countAfter(
  source: string,
  ask: Ask,
  { position, urgent }: Pick<SinkPosition, "position" | "urgent">,
  wanted: Wanted,
): Promise<Count> {
  // Urgent events may be settled although values before them are not.
  const isPending = `source = $1 and position > $2::bigint
    and not (position <= ${urgent} and not telemetry and ${URGENT_KIND})`;
  const isFact = `${urgent > position ? isPending : "source = $1 and position > $2::bigint"} and not telemetry`;
  const { rows } = await ask(
    // The indexes answer all of it without reading a body.
    `select (select count(*)::integer from event where source = $1 and position > $2::bigint),
       (select count(*)::integer from event where source = $1 and position > $2::bigint and not telemetry),
       (select count(*)::integer from event where ${isFact}),
       (select min(position)::double precision from event where ${isFact}),
       (select position::double precision from event
        where source = $1 and position > $2::bigint and telemetry order by position limit 1)`,
    [source, String(position)],
  );
  const [all = 0, notValues = 0, facts = 0, firstFact = null, firstTelemetry = null] = rows[0] ?? [];
  const firstOf = (cell: typeof firstFact) => (cell === null ? null : Number(cell));
  const { open, events, isExact } = wantedOf(
    [
      { telemetry: 0, events: Number(facts), first: firstOf(firstFact) },
      { telemetry: 1, events: Number(all) - Number(notValues), first: firstOf(firstTelemetry) },
    ],
    wanted,
  );
  if (events === 0) return NONE;
  if (isExact || events > LOOK_EVENTS) {
    const first = Math.min(...open.map((each) => each.first ?? Number.POSITIVE_INFINITY));
    const found = await ask(
      "select committed_ms::double precision from event where source = $1 and position = $2::bigint",
      [source, String(first)],
    );
    const oldest = found.rows[0]?.[0];
    return { events, oldestMs: oldest === undefined ? null : Number(oldest), exact: isExact };
  }
  const pending = await ask(
    `select position::double precision, kind, bytes, committed_ms::double precision from event
     where ${isPending} and telemetry = any($3::boolean[]) order by position`,
    [source, String(position), plainList(open.map(({ telemetry }) => telemetry === 1))],
  );
  return countRows(source, ask, pendingOf(pending.rows), wanted);
}

async function countAgain(
  source: string,
  ask: Ask,
  sink: string,
  marked: number,
  wanted: Wanted,
): Promise<Count> {
  if (wanted === EVERYTHING || marked > LOOK_EVENTS) {
    return { events: marked, oldestMs: null, exact: wanted === EVERYTHING };
  }
  const { rows } = await ask(
    `select again.position::double precision, kind, coalesce(bytes, 0), coalesce(committed_ms, 0)::double precision
     from again left join event on event.source = $1 and event.position = again.position
     where again.source = $1 and again.sink = $2`,
    [source, sink],
  );
  return countRows(source, ask, pendingOf(rows), wanted);
}

function pendingOf(rows: Rows): readonly PendingRow[] {
  return rows.map(([position, kind, bytes, committedMs]) => ({
    position: Number(position),
    kind: kind === null ? null : (String(kind) as Kind),
    bytes: Number(bytes),
    committed_ms: Number(committedMs),
  }));
}

async function countRows(
  source: string,
  ask: Ask,
  rows: readonly PendingRow[],
  wanted: Wanted,
): Promise<Count> {
  const { ofKind, isLarge } = rowsOfKinds(rows, wanted);
  if (wanted.byKind || isLarge) return counted(ofKind, wanted.byKind);
  const inLog = ofKind.flatMap(({ kind, position }) => (kind === null ? [] : [position]));
  const { rows: bodies } = await ask(
    "select position::double precision, body from event where source = $1 and position = any($2::bigint[])",
    [source, plainList(inLog)],
  );
  const events = new Map(bodies.map(([position, body]) => [Number(position), String(body)]));
  const matching = ofKind.filter(({ position }) => {
    const body = events.get(position);
    return body === undefined || wanted.matches(eventIn(body));
  });
  return counted(matching, true);
}
