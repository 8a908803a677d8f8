import { eventIn } from "../../core/codec/stored-event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumSql } from "./checksum.ts";
import { beginEpoch, type Damage, newEpoch } from "./damage.ts";
import { EVENT_COLUMNS, type EventLog, type EventRow, isSound, URGENT } from "./event-log.ts";
import {
  type Count,
  counted,
  EVERYTHING,
  LOOK_EVENTS,
  NONE,
  type PendingRow,
  rowsOfKinds,
  wantedOf,
} from "./outbox-rules.ts";
import type { Bindable, Database } from "./sqlite.ts";
import { type SinkLag, type SinkPosition, sinkStateSet, type Wanted } from "./store.ts";

/**
 * The cursors. Changes belong inside a transaction.
 *
 * A damaged cursor must never skip an event, and nothing else in the state knows how far a sink was. So it begins
 * again at the beginning of the log: the sink gets once more what the replay window still holds, with the same ids.
 * The damage may be in the name. Then the row belongs to a sink that seems to be new; until the row's own name is
 * registered or ended, every sink that seems new begins at the beginning too.
 *
 *   written   "lake" at 4711      registered: lake → not known, a cursor is lost → beginning
 *   read      "lbke" at 4711  →   "lbke" at 0, ended later as not configured
 *
 * A sink whose values are behind may have its urgent events up to a later position, `urgent`:
 *
 *   log      v1 v2 a3 v4 v5 a6 v7      position 2, urgent 6: v1, v2, a3 and a6 are settled; v4 comes next
 *
 * Beside its cursor each sink has the number of the last event that it was offered up to there, and moves both at once:
 * the next one that passes its filter is that number and 1, also after a crash.
 */
export function createSinks(database: Database, log: EventLog, damage: Damage) {
  function row(sink: string): SinkPosition | undefined {
    const found = database
      .prepare("select name as sink, position, urgent, ended from sink where name = ?")
      .get<SinkPosition>(sink);
    return found === undefined ? undefined : { ...found };
  }

  /** Sends damaged cursors back to the beginning. */
  function repair(): void {
    const count = damage.keep("sink", "true");
    if (count === 0) return;
    const sound = { position: "0", dropped: "0", ended: "null", counted: "0", epoch: "?1", urgent: "0" };
    database
      .prepare(
        `update sink set position = 0, dropped = 0, ended = null, counted = 0, epoch = ?1, urgent = 0,
           checksum = ${checksumSql("sink", sound)}
         where checksum is not ${checksumSql("sink")}`,
      )
      .run(newEpoch());
  }

  /** Changes columns of a sink that is what was written; a damaged one is repaired first. `?1` is the sink's name. */
  function change(
    sink: string,
    columns: Readonly<Partial<Record<"position" | "urgent" | "dropped" | "ended" | "counted", string>>>,
    ...values: readonly Bindable[]
  ) {
    const isSound = `${checksumSql("sink")} is checksum`;
    const set = Object.entries(columns).map(([column, value]) => `${column} = ${value}`);
    const changing = database.prepare(
      `update sink set ${set.join(", ")}, checksum = ${checksumSql("sink", columns)}
       where name = ?1 and ${isSound}`,
    );
    if (changing.run(sink, ...values) > 0 || row(sink) === undefined) return;
    repair();
    changing.run(sink, ...values);
  }

  function isLost(): boolean {
    return database.number("select count(*) from damaged where table_name = 'sink' and is_open = 1") > 0;
  }

  /** It is known now whose cursor a damaged row was. */
  function claim(sink: string): void {
    database.prepare("update damaged set is_open = 0 where table_name = 'sink' and part = ?").run(sink);
  }

  return {
    repair,

    find(sink: string): SinkPosition | undefined {
      const damaged = database
        .prepare(`select 1 from sink where name = ? and checksum is not ${checksumSql("sink")}`)
        .get(sink);
      if (damaged !== undefined) database.transaction(repair);
      return row(sink);
    },

    register(sink: string, from: "now" | "beginning"): SinkPosition {
      repair();
      const start = from === "now" && !isLost() ? log.end() : 0;
      database
        .prepare(
          `insert into sink (name, position, epoch, checksum)
           values (?1, ?2, ?3, row_checksum(?1, ?2, 0, null, 0, ?3, 0)) on conflict do nothing`,
        )
        .run(sink, start, newEpoch());
      claim(sink);
      return row(sink) ?? { sink, position: start, urgent: 0, ended: null };
    },

    /** The last number that the sink was offered up to its cursor; undefined where it is not known. */
    counted(sink: string): Sequence | undefined {
      return database.prepare("select epoch, counted as number from sink where name = ?").get<Sequence>(sink);
    },

    /**
     * Never back: what is settled stays settled, in whatever order two settlements arrive. A number of an epoch that has
     * ended meanwhile says nothing of the new one. `which` is the position for all events or the one for urgent events.
     */
    moveTo(
      sink: string,
      to: number,
      counted: Sequence | undefined,
      which: "position" | "urgent" = "position",
    ): void {
      const moved = { [which]: `max(sink.${which}, ?2)` };
      if (counted === undefined) {
        change(sink, moved, to);
        return;
      }
      const number = "iif(sink.epoch = ?3, max(sink.counted, ?4), sink.counted)";
      change(sink, { ...moved, counted: number }, to, counted.epoch, counted.number);
    },

    addDropped: (sink: string, count: number): void => change(sink, { dropped: "sink.dropped + ?2" }, count),

    beginEpoch: (sink: string): void => beginEpoch(database, "name = ?2", sink),

    /** One that goes on may have missed what left the log while it was held for nobody. */
    setEnded(sink: string, reason: string | null): void {
      change(sink, { ended: "?2" }, reason);
      if (reason === null) beginEpoch(database, "name = ?2", sink);
      else claim(sink);
    },
  };
}

export type Sinks = ReturnType<typeof createSinks>;

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
