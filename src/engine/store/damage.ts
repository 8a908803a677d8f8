import { randomBytes } from "node:crypto";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { CHECKED, type CheckedName, checksumSql, unsound } from "./checksum.ts";
import { type Bindable, Damaged, type Database } from "./sqlite.ts";
import type { DamagedRows } from "./store.ts";

/** How long damaged rows are kept and told of, in milliseconds. */
const KEPT_MS = 30 * 24 * 60 * 60_000;

/**
 * Rows that are not what had been written. None of them is believed: each is kept with its bytes where a person can
 * look at it, told in the log and the status, and taken out of the way.
 *
 * What is safe instead differs: a document of the service is asked for again (`documents`), a cursor begins at the
 * beginning of the log (`sinks`), an event becomes a dead letter of those who had not got it (`event-log`), a slot of
 * the quota counts as spent now (`quota-memory`), a record of the audit log stays in its place, where it breaks the
 * chain (`documents`).
 */
export function createDamage(database: Database, clock: Clock, log: Log | undefined) {
  function tell(table: CheckedName, rows: number): void {
    log?.error(
      { table, rows },
      "Damaged rows of the state were found and set aside; `plenum state check` names them. Check the disk and the memory of this machine.",
    );
  }

  /** Keeps a copy of the damaged rows among those that a condition picks; answers how many. */
  function keep(table: CheckedName, where: string, values: readonly Bindable[]): number {
    const { columns, part, key } = CHECKED[table];
    const body = columns.at(-1) === "body" ? "body" : `json_array(${columns.join(", ")})`;
    const kept = database
      .prepare(
        `insert into damaged (found_ms, table_name, part, key, body)
         select ?, '${table}', coalesce(${part}, ''), coalesce(cast(${key} as text), ''), coalesce(cast(${body} as blob), x'') from ${table}
         where (${where}) and ${unsound(table)}`,
      )
      .run(clock.now(), ...values);
    if (kept > 0) tell(table, kept);
    return kept;
  }

  /** Takes the damaged rows among them out of their table. Belongs inside a transaction; answers how many. */
  function setAside(table: CheckedName, where = "true", ...values: readonly Bindable[]): number {
    const kept = keep(table, where, values);
    if (kept === 0) return 0;
    const removed = database
      .prepare(`delete from ${table} where (${where}) and ${unsound(table)}`)
      .run(...values);
    // Seen in a search and not where it belongs: the pages above the row are damaged.
    if (removed < kept)
      throw new Damaged(`${database.path} is damaged (rows of ${table} are not where they belong).`);
    return kept;
  }

  /** Keeps copies, leaves the rows where they are, and marks them, so that each is told once. */
  function mark(table: CheckedName): number {
    const fresh = `${table}.checksum is not null`;
    const kept = keep(table, fresh, []);
    if (kept > 0) database.exec(`update ${table} set checksum = null where ${fresh} and ${unsound(table)}`);
    return kept;
  }

  return {
    setAside,
    keep: (table: CheckedName, where: string, ...values: readonly Bindable[]) => keep(table, where, values),
    mark,

    /** What the small tables hold is looked through at each start; events are when they are read. */
    inspect(): void {
      database.prepare("delete from damaged where found_ms < ?").run(clock.now() - KEPT_MS);
      for (const table of ["document", "again", "gap", "age_mark", "quota", "quota_hold"] as const)
        setAside(table);
      for (const table of ["record", "dead_letter"] as const) mark(table);
      // A letter that waits to be sent again by a mark that is gone would be hidden for good.
      database.exec(`update dead_letter set resending = 0 where resending <> 0 and not exists
        (select 1 from again where again.sink = dead_letter.sink and again.position = dead_letter.position)`);
      keepPositionsAhead(database);
    },

    /** Keys of a set whose documents were set aside. */
    keys: (set: string): readonly string[] =>
      database
        .prepare("select distinct key from damaged where table_name = 'document' and part = ?")
        .all<{ readonly key: string }>(set)
        .map(({ key }) => key),

    /** When rows of a table were found damaged after a moment, milliseconds since 1970. */
    foundSince: (table: CheckedName, sinceMs: number): readonly Found[] =>
      database
        .prepare("select id, found_ms as foundMs from damaged where table_name = ? and found_ms > ?")
        .all<Found>(table, sinceMs)
        .map((row) => ({ ...row })),

    summary: (): readonly DamagedRows[] => summaryOf(database),
  };
}

export type Damage = ReturnType<typeof createDamage>;

interface Found {
  readonly id: number;
  readonly foundMs: number;
}

/** What was set aside, by table and part. */
export function summaryOf(database: Database): readonly DamagedRows[] {
  return database
    .prepare(
      `select table_name as 'table', part, count(*) as rows, max(found_ms) as foundMs from damaged
       group by table_name, part order by table_name, part`,
    )
    .all<Omit<DamagedRows, "lastFound"> & { readonly foundMs: number }>()
    .map(({ foundMs, ...rows }) => ({ ...rows, lastFound: isoUtc(foundMs) }));
}

/** SQL for a letter's checksum where its event is what was written; null where it is not. */
export function letterChecksum(source: "event" | "dead_letter", changed: Readonly<Record<string, string>>) {
  return `case when ${checksumSql(source)} is ${source}.checksum then ${checksumSql("dead_letter", changed)} end`;
}

/**
 * The counter from which positions are taken must not fall behind what anybody holds: after a pruned log, event 12
 * would be committed below a cursor that stands at 500, and never be offered.
 */
function keepPositionsAhead(database: Database): void {
  const highest = `(select max(p) from (select max(position) as p from event union all
    select max(max(position, urgent)) from sink union all select max(newest) from age_mark union all
    select max(position) from again union all select max(position) from dead_letter))`;
  const repaired = database
    .prepare(
      `update sqlite_sequence set seq = ${highest} where name = 'event' and (seq < ${highest} or seq > 9007199254740991)`,
    )
    .run();
  const known = database.number("select count(*) from sqlite_sequence where name = 'event'");
  if (repaired > 0 || known > 0) return;
  database.exec(
    `insert into sqlite_sequence (name, seq) select 'event', ${highest} where ${highest} is not null`,
  );
}

/** What no other stretch of counting is called, of any sink and any state: 16 hexadecimal digits. */
export function newEpoch(): string {
  return randomBytes(8).toString("hex");
}

/**
 * Has sinks count anew from 1, because what they were offered cannot be told by their old count any more: an event was
 * lost to them, or nobody knows whether one was. A receiver that sees the numbers 1, 2, 3 of an epoch so has all there
 * was of it, and a new epoch is where something may be missing. Belongs inside a transaction; a row that is damaged gets
 * its epoch when it is repaired.
 */
export function beginEpoch(database: Database, where: string, ...values: readonly Bindable[]): void {
  const anew = { counted: "0", epoch: "?1" };
  database
    .prepare(
      `update sink set counted = 0, epoch = ?1, checksum = ${checksumSql("sink", anew)}
       where (${where}) and ${checksumSql("sink")} is checksum`,
    )
    .run(newEpoch(), ...values);
}
