import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { type EventLog, lastWithin } from "./event-log.ts";
import { Damaged, type Database } from "./sqlite.ts";

/** Rows and bytes that are compared at a time, so that nothing else waits for more than a few milliseconds. */
const SLICE_ROWS = 100;
const SLICE_BYTES = 256 * 1024;
/** Rows that one call compares at most: a million take 50 calls, one a minute. */
const CALL_ROWS = 20_000;
/** From the beginning of one comparison of the log to the next, in milliseconds. */
const EVERY_MS = 24 * 3_600_000;

/** Counts the rows between two positions by each index. */
const ENTRIES = `select
  (select count(*) from event indexed by event_by_class
    where telemetry in (0, 1) and position > ?1 and position <= ?2) as classed,
  (select count(*) from event as row where row.position > ?1 and row.position <= ?2
    and exists (select 1 from event as entry indexed by sqlite_autoindex_event_1
      where entry.id = row.id and +entry.position = row.position)) as identified`;

/**
 * Compares the log with itself in small steps, once after a start and then once a day: each row with its checksum, both
 * indexes with the rows, and the bytes that are counted with what the rows say. SQLite does that in one go, which takes
 * seconds for each gigabyte, at a start or with everything else waiting.
 */
export function createLogCheck(database: Database, log: EventLog, clock: Pick<Clock, "monotonic">) {
  let dueMs = Number.NEGATIVE_INFINITY;
  /** Everything up to this position was compared, and so many bytes of it are still there. */
  let through = 0;
  let bytes = 0;

  /** Answers how many rows it looked at; 0 at the end of the log. */
  function slice(): number {
    const rows = database
      .prepare(`select position, bytes from event where position > ? order by position limit ${SLICE_ROWS}`)
      .all<{ readonly position: number; readonly bytes: number }>(through);
    const last = lastWithin(rows, SLICE_BYTES) ?? log.end();
    const sound = log.readThrough(through, last);
    database.transaction(() => {
      const entries = database
        .prepare(ENTRIES)
        .get<{ readonly classed: number; readonly identified: number }>(through, last);
      if (entries?.classed !== sound.length || entries.identified !== sound.length)
        throw new Damaged(`${database.path} is damaged (an index does not match the rows of the log).`);
    });
    bytes += sound.reduce((sum, row) => sum + row.bytes, 0);
    through = Math.max(through, last);
    return rows.length;
  }

  function compareBytes(): void {
    const known = log.bytes();
    if (known !== bytes) database.prepare("update log_size set bytes = bytes + ?").run(bytes - known);
  }

  return {
    /** Rows that leave the log. */
    removed(rows: readonly { readonly position: number; readonly bytes: number }[]): void {
      for (const row of rows) if (row.position <= through) bytes -= row.bytes;
    },

    /** The next part of the comparison, when it is due. */
    async step(): Promise<void> {
      if (clock.monotonic() < dueMs) return;
      if (through === 0) bytes = 0;
      for (let looked = 0; looked < CALL_ROWS; await yieldToEventLoop()) {
        const count = slice();
        looked += count;
        if (count > 0) continue;
        compareBytes();
        through = 0;
        dueMs = clock.monotonic() + EVERY_MS;
        return;
      }
    },
  };
}

export type LogCheck = ReturnType<typeof createLogCheck>;
