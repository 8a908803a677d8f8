import { eventIn } from "../../core/codec/stored-event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { checksumSql } from "./checksum.ts";
import { beginEpoch, type Damage, newEpoch } from "./damage.ts";
import { EVENT_COLUMNS, type EventLog, type EventRow, isSound, URGENT } from "./event-log.ts";
import type { ClassCount, LagQueries, PendingRow, SinkRow } from "./lag.ts";
import type { Bindable, Database } from "./sqlite.ts";
import { type SinkPosition, sinkStateSet } from "./store.ts";

/**
 * Stores the cursors of sinks. Call changes inside a transaction.
 *
 * A damaged cursor must never skip an event, and nothing else records how far the sink was. So it returns to the
 * beginning of the log, and the sink gets the events of the replay window again, with the same ids. If the sink's name
 * is damaged, the row belongs to a sink that now seems new: until the true name is registered or ended, every new sink
 * starts at the beginning too.
 *
 *   written   "lake" at 4711      registered: lake → not known, a cursor is lost → beginning
 *   read      "lbke" at 4711  →   "lbke" at 0, ended later as not configured
 *
 * A sink that is behind with values may be ahead with urgent events, up to `urgent`:
 *
 *   log      v1 v2 a3 v4 v5 a6 v7      position 2, urgent 6: v1, v2, a3 and a6 are settled; v4 comes next
 *
 * Each sink also has the sequence number of the last event that it was offered up to its cursor. Both move together, so
 * the next event that passes the filter gets the next number, also after a crash.
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

  /** Changes columns of a sound sink; a damaged one is repaired first. `?1` is the sink's name. */
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

  /** Notes that the owner of a damaged cursor is known. */
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

    /** The sequence number at the cursor; undefined when it is unknown. */
    counted(sink: string): Sequence | undefined {
      return database.prepare("select epoch, counted as number from sink where name = ?").get<Sequence>(sink);
    },

    /**
     * Moves a cursor forward, never back, whatever the order of settlements. Numbers of an old epoch are ignored.
     * `which` is the cursor for all events or the one for urgent events.
     */
    moveTo(sink: string, to: number, counted: Sequence | undefined, which: "position" | "urgent" = "position"): void {
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

    /** A sink that continues may have missed events that left the log while it was ended. */
    setEnded(sink: string, reason: string | null): void {
      change(sink, { ended: "?2" }, reason);
      if (reason === null) beginEpoch(database, "name = ?2", sink);
      else claim(sink);
    },
  };
}

export type Sinks = ReturnType<typeof createSinks>;

/** The queries that `sinkLags` needs. */
export function lagQueries(database: Database): LagQueries {
  // Urgent events may be settled although values before them are not.
  const isPending = ({ position, urgent }: Pick<SinkPosition, "position" | "urgent">) =>
    urgent > position ? `position > ?1 and not (position <= ${urgent} and ${URGENT})` : "position > ?1";
  return {
    sinks: () =>
      database
        .prepare(
          `select name as sink, position, urgent, ended, dropped,
             (select count(*) from dead_letter where sink = sink.name and resending = 0) as deadLetters,
             (select count(*) from document where set_name = '${sinkStateSet("")}' || sink.name) as remembered,
             (select count(*) from again where again.sink = sink.name) as marked
           from sink order by name`,
        )
        .all<SinkRow>(),
    last: () => database.number("select coalesce(max(position), 0) from event"),
    // The index on the class answers both without reading a body.
    classes: (cursor) =>
      [0, 1].flatMap((telemetry) =>
        database
          .prepare(
            `select ?2 as telemetry, count(*) as events, min(position) as first from event
             where telemetry = ?2 and ${isPending(cursor)}`,
          )
          .all<ClassCount>(cursor.position, telemetry),
      ),
    committedMs: (position) =>
      database
        .prepare("select committed_ms from event where position = ?")
        .get<{ readonly committed_ms: number }>(position)?.committed_ms ?? null,
    pending: (cursor, telemetry) =>
      telemetry.flatMap((each) =>
        database
          .prepare(
            `select position, kind, bytes, committed_ms from event
             where telemetry = ?2 and ${isPending(cursor)} order by position`,
          )
          .all<PendingRow>(cursor.position, each),
      ),
    marked: (sink) =>
      database
        .prepare(
          `select again.position, kind, coalesce(bytes, 0) as bytes, coalesce(committed_ms, 0) as committed_ms
           from again left join event on event.position = again.position where again.sink = ?`,
        )
        .all<PendingRow>(sink),
    matching(rows, matches) {
      const complete = database.prepare(`select ${EVENT_COLUMNS} from event where position = ?`);
      return rows.filter(({ position, kind }) => {
        const row = kind === null ? undefined : complete.get<EventRow>(position);
        // A damaged event will be a dead letter of the sink.
        return row === undefined || !isSound(row) || matches(eventIn(row.body));
      });
    },
  };
}
