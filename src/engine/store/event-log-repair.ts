import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { beginSequenceEpoch } from "./damage-quarantine.ts";
import { DAMAGED_EVENT_REASON, type EventLog } from "./event-log.ts";
import { lastPositionWithinBytes } from "./event-log-rows.ts";
import { type Database, type DatabaseDamageRepair, StateDamaged } from "./sqlite.ts";

/** Limits of rows and bytes that one comparison reads, so that other work waits a few milliseconds at most. */
const MAX_COMPARED_ROWS = 100;
const MAX_COMPARED_BYTES = 256 * 1024;
/** Number of rows that one call compares with their indexes: a million rows take 50 calls, one a minute. */
const MAX_COMPARED_ROWS_PER_CALL = 20_000;
const EVENT_LOG_CHECK_INTERVAL_MS = 24 * 3_600_000;
/** Delays the first check after a start, so that a large log does not make the start slower. */
const FIRST_LOG_CHECK_DELAY_MS = 60_000;

const COUNT_INDEX_ENTRIES_SQL = `select
  (select count(*) from event indexed by event_by_class
    where telemetry in (0, 1) and position > ?1 and position <= ?2) as classed,
  (select count(*) from event as row where row.position > ?1 and row.position <= ?2
    and exists (select 1 from event as entry indexed by sqlite_autoindex_event_1
      where entry.id = row.id and +entry.position = row.position)) as identified`;

/** Checks rows, checksums, indexes and counters of the event log daily in small steps: SQLite's check would block. */
export function createEventLogCheck(database: Database, log: EventLog, clock: Pick<Clock, "monotonic">) {
  let nextCheckMs = clock.monotonic() + FIRST_LOG_CHECK_DELAY_MS;
  let comparedPosition = 0;
  let comparedBytes = 0;

  function compareNextRows(): number {
    const rows = database
      .prepare(`select position, bytes from event where position > ? order by position limit ${MAX_COMPARED_ROWS}`)
      .all<{ readonly position: number; readonly bytes: number }>(comparedPosition);
    const lastPosition = lastPositionWithinBytes(rows, MAX_COMPARED_BYTES) ?? log.end();
    const intactRows = log.readRange(comparedPosition, lastPosition);
    database.transaction(() => {
      if (rows.some(({ position }, n) => n > 0 && position <= (rows[n - 1]?.position ?? 0)))
        throw new StateDamaged(`${database.path} is damaged (the rows of the log are not in order).`);
      const indexEntryCounts = database
        .prepare(COUNT_INDEX_ENTRIES_SQL)
        .get<{ readonly classed: number; readonly identified: number }>(comparedPosition, lastPosition);
      if (indexEntryCounts?.classed !== intactRows.length || indexEntryCounts.identified !== intactRows.length)
        throw new StateDamaged(`${database.path} is damaged (an index does not match the rows of the log).`);
    });
    comparedBytes += intactRows.reduce((sum, row) => sum + row.bytes, 0);
    comparedPosition = Math.max(comparedPosition, lastPosition);
    return rows.length;
  }

  return {
    noteRemovedRows(rows: readonly { readonly position: number; readonly bytes: number }[]): void {
      for (const row of rows) if (row.position <= comparedPosition) comparedBytes -= row.bytes;
    },
    async checkNextRows(): Promise<void> {
      if (clock.monotonic() < nextCheckMs) return;
      if (comparedPosition === 0) comparedBytes = 0;
      for (let comparedRowCount = 0; comparedRowCount < MAX_COMPARED_ROWS_PER_CALL; await yieldToEventLoop()) {
        const newlyComparedRows = compareNextRows();
        comparedRowCount += newlyComparedRows;
        if (newlyComparedRows > 0) continue;
        const byteDifference = comparedBytes - log.bytes();
        if (byteDifference !== 0) database.prepare("update log_size set bytes = bytes + ?").run(byteDifference);
        comparedPosition = 0;
        nextCheckMs = clock.monotonic() + EVENT_LOG_CHECK_INTERVAL_MS;
        return;
      }
    },
  };
}

export type EventLogCheck = ReturnType<typeof createEventLogCheck>;

/** If damage returns within this time after a rebuild of the indexes, the indexes are not its cause. */
const INDEX_REPAIR_INTERVAL_MS = 3_600_000;

/** Selects events that both indexes have and the table has lost. */
const UNREACHABLE_ROWS_SQL = `select byid.position, byid.id from event as byid indexed by sqlite_autoindex_event_1
  where not exists (select 1 from event as found not indexed where found.position = byid.position)
    and exists (select 1 from event as byclass indexed by event_by_class
      where byclass.telemetry in (0, 1) and byclass.position = byid.position)`;

/** Rebuilds the indexes of the open file. If that does not help, marks the file unusable: the next start replaces it. */
export function createSqliteIndexRepair(
  database: Database,
  clock: Pick<Clock, "now" | "monotonic">,
  log: Log | undefined,
): DatabaseDamageRepair & { readonly damaged: AbortSignal } {
  const damageController = new AbortController();
  let lastRepairMs = Number.NEGATIVE_INFINITY;

  return {
    damaged: damageController.signal,
    attemptRepair(error) {
      if (damageController.signal.aborted || clock.monotonic() - lastRepairMs < INDEX_REPAIR_INTERVAL_MS) return false;
      lastRepairMs = clock.monotonic();
      let lostEventCount = 0;
      try {
        database.transaction(() => {
          lostEventCount = deadLetterUnreachableEvents(database, clock.now());
          database.exec("reindex");
        });
      } catch (failure) {
        // Two rows with one id cannot be indexed: the rows themselves are damaged.
        throw failure instanceof StateDamaged
          ? failure
          : new StateDamaged(`${database.path} is damaged (its indexes cannot be rebuilt).`, { cause: failure });
      }
      log?.error(
        { file: database.path, lost: lostEventCount, err: error },
        `The indexes of the state did not match its rows and were rebuilt; ${lostEventCount} events were lost and are dead letters of the sinks that had not got them. Check the disk and the memory of this machine.`,
      );
      return true;
    },
    onRepairFailed(error) {
      if (damageController.signal.aborted) return;
      markStateFileUnusable(database.path);
      log?.error(
        { file: database.path, err: error },
        "The state file is damaged beyond its indexes. The worker starts again with a fresh one and takes over what was not delivered.",
      );
      damageController.abort(error);
    },
  };
}

/** Before a rebuild drops events that only the indexes have, stores them as dead letters of sinks that lack them. */
function deadLetterUnreachableEvents(database: Database, nowMs: number): number {
  let rows: readonly { readonly position: number; readonly id: string }[];
  try {
    rows = database.prepare(UNREACHABLE_ROWS_SQL).all();
  } catch (error) {
    if (error instanceof StateDamaged) return 0;
    throw error;
  }
  const isPendingForSinkSql = `sink.ended is null and (sink.position < ?2 or exists (select 1 from again
    where again.sink = sink.name and again.position = ?2))`;
  for (const { position, id } of rows) {
    beginSequenceEpoch(database, "ended is null and sink.position < ?2", position);
    database
      .prepare(
        `insert into dead_letter (sink, position, reason, at_ms, committed_ms, body)
         select sink.name, ?2, ?3, ?1, ?1, ?4 from sink where ${isPendingForSinkSql} on conflict do nothing`,
      )
      .run(nowMs, position, DAMAGED_EVENT_REASON, id);
    database
      .prepare(
        "insert into damaged (found_ms, table_name, part, key, body) values (?, 'event', '', ?, cast(? as blob))",
      )
      .run(nowMs, id, id);
  }
  return rows.length;
}

const unusableFileMarkPath = (file: string) => join(dirname(file), "plenum.db-condemned");

/** Marks a state file that must not be opened; `quarantinedFile` is the damaged file that is being copied. */
export function markStateFileUnusable(file: string, quarantinedFile = ""): void {
  writeFileSync(unusableFileMarkPath(file), quarantinedFile, { mode: 0o600, flush: true });
}

/** Returns null if the file may be opened, otherwise the name of the quarantined file or an empty text. */
export function readUnusableFileMark(file: string): string | null {
  try {
    return readFileSync(unusableFileMarkPath(file), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

export function removeUnusableFileMark(file: string): void {
  rmSync(unusableFileMarkPath(file), { force: true });
}
