import { ConfigError } from "../../core/errors/errors.ts";
import { type Database, openDatabase, StateDamaged } from "./sqlite.ts";

/** "PLNM": tells our files from other SQLite files. */
const APPLICATION_ID = 0x504c4e4d;

/** Tables whose rows got a checksum by migration 4, and the columns that it covered then. */
const INITIAL_CHECKSUM_COLUMNS = {
  document: "set_name, key, body",
  record: "log, sequence, body",
  event: "id, kind, telemetry, committed_ms, bytes, body",
  dead_letter: "sink, position, at_ms, committed_ms, reason, body",
  sink: "name, position, dropped, ended",
  again: "sink, position",
  gap: "sink, reason, first_time, last_time, count, at_ms, told_ms",
  age_mark: "ran_ms, newest, settled",
  quota: "bucket, id, sent_ms, counted_ms",
  quota_hold: "bucket, said_ms, until_ms",
} as const;

/**
 * Step n brings a file from schema version n to n + 1. A released step is never changed.
 *
 *   event ──┬─◄ sink.position      all events up to this position are settled
 *           ├─◄ again              event to send again to one sink
 *           └─◄ dead_letter        copy of the event, because a dead letter outlives the log
 *   document   record   quota      other state
 *   damaged                        damaged rows of any table
 */
const SQLITE_SCHEMA_MIGRATIONS: readonly string[] = [
  `
  create table document (
    set_name text not null,
    key text not null,
    body text not null,
    primary key (set_name, key)
  ) strict, without rowid;

  create table record (
    log text not null,
    sequence integer not null,
    body text not null,
    primary key (log, sequence)
  ) strict, without rowid;

  create table event (
    position integer primary key autoincrement, -- never used twice, also after everything was removed
    id text not null unique,
    kind text not null,
    telemetry integer not null,
    committed_ms integer not null,
    bytes integer not null,
    body text not null
  ) strict;
  create index event_by_class on event (telemetry, position);

  create table log_size (bytes integer not null) strict;
  insert into log_size values (0);

  create table sink (
    name text primary key,
    position integer not null,
    dropped integer not null default 0,
    ended text
  ) strict, without rowid;

  -- Time at which all sinks had settled all events up to a position. The replay window of these events starts then.
  create table settled (at_ms integer primary key, position integer not null) strict;

  create table again (
    sink text not null,
    position integer not null,
    primary key (sink, position)
  ) strict, without rowid;
  create index again_by_position on again (position);

  create table dead_letter (
    id integer primary key autoincrement,
    sink text not null,
    position integer not null,
    reason text not null,
    at_ms integer not null,
    committed_ms integer not null,
    resending integer not null default 0,
    body text not null,
    unique (sink, position)
  ) strict;

  -- Delete a row of "again" together with the last copy of its event, in "event" or in "dead_letter".
  create trigger event_gone after delete on event begin
    delete from again where position = old.position and not exists (
      select 1 from dead_letter where dead_letter.sink = again.sink and dead_letter.position = old.position);
  end;
  create trigger letter_gone after delete on dead_letter begin
    delete from again where sink = old.sink and position = old.position and not exists (
      select 1 from event where event.position = old.position);
  end;

  create table gap (
    id integer primary key autoincrement,
    sink text not null,
    reason text not null,
    first_time text not null,
    last_time text not null,
    count integer not null,
    at_ms integer not null,
    told_ms integer -- when its event was committed; null while losses are still gathered
  ) strict;

  create table quota (
    bucket text not null,
    id integer not null,
    sent_ms real not null,
    counted_ms real not null,
    primary key (bucket, id)
  ) strict, without rowid;
  `,
  `
  create table quota_hold (
    bucket text primary key,
    said_ms real not null,
    until_ms real not null
  ) strict, without rowid;
  `,
  `
  -- Sum of the bytes of all events ever committed, up to and including this one, so differences give sizes of ranges.
  alter table event add column written integer not null default 0;
  alter table log_size add column written integer not null default 0;
  update event set written = upto.bytes from
    (select position, sum(bytes) over (order by position) as bytes from event) as upto
    where upto.position = event.position;
  update log_size set written = (select coalesce(max(written), 0) from event);
  `,
  `
  -- Newest position of the log, and position up to which all sinks had settled, by the total run time of workers.
  drop table settled;
  create table age_mark (
    ran_ms integer primary key,
    newest integer not null,
    settled integer not null
  ) strict;
  `,
  `
  -- Checksum of the row, which finds a damaged byte when the row is read. Null: the row is known to be damaged.
  ${Object.entries(INITIAL_CHECKSUM_COLUMNS)
    .map(
      ([table, columns]) => `alter table ${table} add column checksum integer;
  update ${table} set checksum = row_checksum(${columns});`,
    )
    .join("\n  ")}

  -- Damaged rows with their bytes.
  create table damaged (
    id integer primary key autoincrement,
    found_ms integer not null,
    table_name text not null,
    part text not null, -- the set, log, sink or bucket
    key text not null,
    is_open integer not null default 1, -- for a sink: until it is known whose cursor was lost
    body blob not null
  ) strict;
  `,
  `
  -- Number of events offered to the sink in this epoch, up to its cursor. The update keeps a damaged row damaged.
  alter table sink add column counted integer not null default 0;
  alter table sink add column epoch text not null default '';
  update sink set epoch = lower(hex(randomblob(8))) where checksum is row_checksum(${INITIAL_CHECKSUM_COLUMNS.sink});
  update sink set checksum = row_checksum(name, position, dropped, ended, counted, epoch) where epoch <> '';

  -- Sequence number of the rejected event; null if it had none.
  alter table dead_letter add column number integer;
  alter table dead_letter add column epoch text;
  update dead_letter set checksum = row_checksum(sink, position, at_ms, committed_ms, reason, number, epoch, body)
    where checksum is row_checksum(${INITIAL_CHECKSUM_COLUMNS.dead_letter});
  `,
  `
  -- Urgent events up to this position are settled, although values before them may not be. Damaged rows stay damaged.
  alter table sink add column urgent integer not null default 0;
  update sink set checksum = row_checksum(name, position, dropped, ended, counted, epoch, urgent)
    where checksum is row_checksum(name, position, dropped, ended, counted, epoch);
  `,
];

export const SCHEMA_VERSION = SQLITE_SCHEMA_MIGRATIONS.length;

/** Throws for a file of another program or of a newer version; `mayMigrate` allows updating an older one. */
export function prepareSchema(database: Database, mayMigrate: boolean): void {
  const schemaVersion = database.number("pragma user_version");
  const applicationId = database.number("pragma application_id");
  const isDatabaseEmpty = database.number("select count(*) from sqlite_master") === 0;
  if (!isDatabaseEmpty) refuseDamagedHeader(database, applicationId, schemaVersion);
  if (!isDatabaseEmpty && applicationId !== APPLICATION_ID) {
    throw new ConfigError(`${database.path} belongs to another program.`, {
      hint: "Set state.folder to a folder of Plenum's own.",
    });
  }
  if (schemaVersion > SCHEMA_VERSION) {
    throw new ConfigError(
      `${database.path} was written by a newer Plenum (schema ${schemaVersion}, this one knows ${SCHEMA_VERSION}).`,
      { hint: "Run the newer version again, or set state.folder to another folder." },
    );
  }
  if (schemaVersion === SCHEMA_VERSION) return;
  if (!mayMigrate) {
    throw new ConfigError(`${database.path} has an older schema (${schemaVersion} instead of ${SCHEMA_VERSION}).`, {
      hint: "Start the worker of this version once; it brings the file up to date.",
    });
  }
  database.transaction(() => {
    for (const migration of SQLITE_SCHEMA_MIGRATIONS.slice(schemaVersion)) database.exec(migration);
    database.exec(`pragma application_id = ${APPLICATION_ID}; pragma user_version = ${SCHEMA_VERSION}`);
  });
}

/** Rejects the file as damaged, not as a foreign file, if one byte of its id is wrong or its version is impossible. */
function refuseDamagedHeader(database: Database, programId: number, version: number): void {
  const wrongIdByteCount = [0, 8, 16, 24].filter((shift) => ((programId ^ APPLICATION_ID) >>> shift) & 0xff).length;
  const isImpossibleSchemaVersion = version < 1 || version > MAX_SCHEMA_VERSION;
  const isSchemaBehind =
    version < SCHEMA_VERSION && programId === APPLICATION_ID && findSchemaProblem(database) === null;
  if (wrongIdByteCount === 1 || (programId === APPLICATION_ID && (isImpossibleSchemaVersion || isSchemaBehind)))
    throw new StateDamaged(`${database.path} is damaged (its header names program ${programId}, schema ${version}).`);
}

const MAX_SCHEMA_VERSION = 1_000;

const SCHEMA_OBJECTS_SQL = `select entry.type || ' ' || entry.name as name, iif(entry.type = 'table', null, entry.sql) as sql,
    group_concat(columns.name || ' ' || columns.type, ', ') as columns
  from sqlite_master as entry left join pragma_table_info(entry.name) as columns
  where entry.name not like 'sqlite_%' group by entry.type, entry.name`;

interface SchemaObject {
  readonly name: string;
  readonly columns: string | null;
  /** Null for a table, because the SQL of a table changes when a column is added. */
  readonly sql: string | null;
}

export function findSchemaProblem(database: Database): string | null {
  using referenceDatabase = openDatabase(":memory:");
  prepareSchema(referenceDatabase, true);
  const describeSchemaObject = ({ name, columns, sql }: SchemaObject) => `${name} ${columns} ${sql}`;
  const schemaObjects = new Set(database.prepare(SCHEMA_OBJECTS_SQL).all<SchemaObject>().map(describeSchemaObject));
  const missingSchemaObject = referenceDatabase
    .prepare(SCHEMA_OBJECTS_SQL)
    .all<SchemaObject>()
    .find((schemaObject) => !schemaObjects.has(describeSchemaObject(schemaObject)));
  return missingSchemaObject === undefined ? null : `the ${missingSchemaObject.name} is not as it was made`;
}
