import { randomBytes } from "node:crypto";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Database, SqliteValue, StateTable } from "./sqlite.ts";
import { CHECKED_TABLES, checksumSql, isDamagedSql, StateDamaged } from "./sqlite.ts";
import type { DamagedRows } from "./store.ts";

const QUARANTINED_ROW_RETENTION_MS = 30 * 24 * 60 * 60_000;

/** Quarantine for rows with a wrong checksum: stores their bytes, reports them, and removes them from their table. */
export function createDamagedRowQuarantine(database: Database, clock: Clock, log: Log | undefined) {
  function copyRowsToQuarantine(table: StateTable, whereSql: string, ...values: readonly SqliteValue[]): number {
    const { columns, part, key } = CHECKED_TABLES[table];
    const bodySql = columns.at(-1) === "body" ? "body" : `json_array(${columns.join(", ")})`;
    const rowCount = database
      .prepare(
        `insert into damaged (found_ms, table_name, part, key, body)
         select ?, '${table}', coalesce(${part}, ''), coalesce(cast(${key} as text), ''), coalesce(cast(${bodySql} as blob), x'') from ${table}
         where (${whereSql}) and ${isDamagedSql(table)}`,
      )
      .run(clock.now(), ...values);
    if (rowCount > 0)
      log?.error(
        { table, rows: rowCount },
        "Damaged rows of the state were found and set aside; `plenum state check` names them. Check the disk and the memory of this machine.",
      );
    return rowCount;
  }

  /** Moves damaged rows into the quarantine; returns how many. Call it inside a transaction. */
  function quarantineDamagedRows(table: StateTable, where = "true", ...values: readonly SqliteValue[]): number {
    const rowCount = copyRowsToQuarantine(table, where, ...values);
    if (rowCount === 0) return 0;
    const removed = database.prepare(`delete from ${table} where (${where}) and ${isDamagedSql(table)}`).run(...values);
    // If fewer rows were deleted than copied, the pages of the table that lead to those rows are damaged.
    if (removed < rowCount)
      throw new StateDamaged(`${database.path} is damaged (rows of ${table} are not where they belong).`);
    return rowCount;
  }

  /** Resets damaged sink cursors to the start of the log, so that no event is skipped. Needs a transaction. */
  function repairCursors(): boolean {
    if (copyRowsToQuarantine("sink", "true") === 0) return false;
    const initialCursorValues = { position: "0", dropped: "0", ended: "null", counted: "0", epoch: "?1", urgent: "0" };
    database
      .prepare(
        `update sink set position = 0, dropped = 0, ended = null, counted = 0, epoch = ?1, urgent = 0,
           checksum = ${checksumSql("sink", initialCursorValues)}
         where ${isDamagedSql("sink")}`,
      )
      .run(createEpoch());
    return true;
  }

  return {
    quarantineRows: quarantineDamagedRows,
    repairCursors,
    isCursorLost: (): boolean =>
      database.number("select count(*) from damaged where table_name = 'sink' and is_open = 1") > 0,
    claimCursor(sink: string): void {
      database
        .prepare("update damaged set is_open = 0 where table_name = 'sink' and is_open = 1 and part = ?")
        .run(sink);
    },
    copyToQuarantine: copyRowsToQuarantine,
    /** Checks the small tables at each start; events are checked when they are read. */
    checkTablesAtStart(): void {
      database.prepare("delete from damaged where found_ms < ?").run(clock.now() - QUARANTINED_ROW_RETENTION_MS);
      repairCursors();
      for (const table of ["document", "again", "gap", "age_mark", "quota", "quota_hold"] as const)
        quarantineDamagedRows(table);
      // Damaged rows of these tables stay in their place, without a checksum.
      for (const table of ["record", "dead_letter"] as const) {
        const hasChecksumSql = `${table}.checksum is not null`;
        if (copyRowsToQuarantine(table, hasChecksumSql) > 0)
          database.exec(`update ${table} set checksum = null where ${hasChecksumSql} and ${isDamagedSql(table)}`);
      }
      // Clear `resending` of dead letters that are not queued in `again`: otherwise they would stay hidden for ever.
      database.exec(`update dead_letter set resending = 0 where resending <> 0 and not exists
        (select 1 from again where again.sink = dead_letter.sink and again.position = dead_letter.position)`);
      raiseNextEventPosition(database);
    },
    damagedDocumentKeys: (setName: string): readonly string[] =>
      database
        .prepare("select distinct key from damaged where table_name = 'document' and part = ?")
        .all<{ readonly key: string }>(setName)
        .map(({ key }) => key),
    rowsFoundSince: (table: StateTable, sinceMs: number) =>
      database
        .prepare("select id, found_ms as foundMs from damaged where table_name = ? and found_ms > ?")
        .all<{ readonly id: number; readonly foundMs: number }>(table, sinceMs),
  };
}

export type DamagedRowQuarantine = ReturnType<typeof createDamagedRowQuarantine>;

export function summarizeDamagedRows(database: Database): readonly DamagedRows[] {
  return database
    .prepare(
      `select table_name as 'table', part, count(*) as rows, max(found_ms) as foundMs from damaged
       group by table_name, part order by table_name, part`,
    )
    .all<Omit<DamagedRows, "lastFound"> & { readonly foundMs: number }>()
    .map(({ foundMs, ...rows }) => ({ ...rows, lastFound: isoUtc(foundMs) }));
}

/** Raises the next event position above all cursors: an event below a cursor would never be delivered. */
function raiseNextEventPosition(database: Database): void {
  const highestPositionSql = `(select max(p) from (select max(position) as p from event union all
    select max(max(position, urgent)) from sink union all select max(newest) from age_mark union all
    select max(position) from again union all select max(position) from dead_letter))`;
  const raisedCounterCount = database
    .prepare(
      `update sqlite_sequence set seq = ${highestPositionSql} where name = 'event' and (seq < ${highestPositionSql} or seq > 9007199254740991)`,
    )
    .run();
  const counterRowCount = database.number("select count(*) from sqlite_sequence where name = 'event'");
  if (raisedCounterCount > 0 || counterRowCount > 0) return;
  database.exec(
    `insert into sqlite_sequence (name, seq) select 'event', ${highestPositionSql} where ${highestPositionSql} is not null`,
  );
}

export function createEpoch(): string {
  return randomBytes(8).toString("hex");
}

/** Starts new sequence epochs: sinks number events from 1 again, because one may be lost. Needs a transaction. */
export function beginSequenceEpoch(database: Database, whereSql: string, ...values: readonly SqliteValue[]): void {
  const newEpochValues = { counted: "0", epoch: "?1" };
  database
    .prepare(
      `update sink set counted = 0, epoch = ?1, checksum = ${checksumSql("sink", newEpochValues)}
       where (${whereSql}) and ${checksumSql("sink")} is checksum`,
    )
    .run(createEpoch(), ...values);
}
