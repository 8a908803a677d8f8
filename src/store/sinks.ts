import { checksumSql } from "./checksum.ts";
import type { Damage } from "./damage.ts";
import type { EventLog } from "./event-log.ts";
import type { Database } from "./sqlite.ts";
import type { SinkPosition } from "./store.ts";

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
 */
export function createSinks(database: Database, log: EventLog, damage: Damage) {
  function row(sink: string): SinkPosition | undefined {
    const found = database
      .prepare("select name as sink, position, ended from sink where name = ?")
      .get<SinkPosition>(sink);
    return found === undefined ? undefined : { ...found };
  }

  /** Sends damaged cursors back to the beginning. */
  function repair(): void {
    const count = damage.keep("sink", "true");
    if (count === 0) return;
    const sound = { position: "0", dropped: "0", ended: "null" };
    database.exec(
      `update sink set position = 0, dropped = 0, ended = null, checksum = ${checksumSql("sink", sound)}
       where checksum is not ${checksumSql("sink")}`,
    );
  }

  /** Changes columns of a sink that is what was written; a damaged one is repaired first. */
  function change(
    sink: string,
    column: "position" | "dropped" | "ended",
    value: string,
    by: number | string | null,
  ) {
    const isSound = `${checksumSql("sink")} is checksum`;
    const changing = database.prepare(
      `update sink set ${column} = ${value}, checksum = ${checksumSql("sink", { [column]: value })}
       where name = ?2 and ${isSound}`,
    );
    if (changing.run(by, sink) > 0 || row(sink) === undefined) return;
    repair();
    changing.run(by, sink);
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
          `insert into sink (name, position, checksum) values (?1, ?2, row_checksum(?1, ?2, 0, null))
           on conflict do nothing`,
        )
        .run(sink, start);
      claim(sink);
      return row(sink) ?? { sink, position: start, ended: null };
    },

    /** Never back: what is settled stays settled, in whatever order two settlements arrive. */
    moveTo: (sink: string, position: number): void =>
      change(sink, "position", "max(sink.position, ?1)", position),

    addDropped: (sink: string, count: number): void => change(sink, "dropped", "sink.dropped + ?1", count),

    setEnded(sink: string, reason: string | null): void {
      change(sink, "ended", "?1", reason);
      if (reason !== null) claim(sink);
    },
  };
}

export type Sinks = ReturnType<typeof createSinks>;
