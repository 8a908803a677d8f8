import { ConfigError } from "../../core/errors/errors.ts";
import type { PostgresSession } from "../../core/postgres/session.ts";
import { quoteSqlName } from "../../core/postgres/sql-quoting.ts";

/** Comment on a table, by which Plenum recognises its own schema in PostgreSQL. */
const STATE_SCHEMA_COMMENT = "The state of a fleet of Plenum";

/**
 * Step n brings the schema from version n to n + 1. A released step is never changed. Texts are compared byte by byte,
 * because the sort order of a library changes with its version and would invalidate indexes.
 *
 *   source                    holder and end of the log of each source; every transaction locks this row first
 *   event ──┬─◄ sink.position all events up to the position are settled
 *           ├─◄ again         event to send again to one sink
 *           └─◄ dead_letter   copy of the event, because a dead letter outlives the log
 *   document  record  quota   other state of a source
 *   member  takeover  fleet_document   state of the fleet
 */
const POSTGRES_SCHEMA_MIGRATIONS: readonly string[] = [
  `
  create table meta (schema_version integer not null, digest text collate "C");
  comment on table meta is '${STATE_SCHEMA_COMMENT}';
  insert into meta values (0, null);

  create table source (
    name text collate "C" primary key,
    epoch bigint not null default 0, -- increases with every change of the holder
    holder text collate "C", -- member that owns the source, and its session in the next column; null if no member does
    incarnation text collate "C",
    given_by text collate "C", -- last holder, while no member owns the source
    held_since timestamptz,
    reason text collate "C", -- why the holder owns it, or why the last holder released it
    last_commit text collate "C" not null default '', -- id of the last commit: shows after a lost reply whether it succeeded
    last_position bigint not null default 0, -- never used again, even after all events were deleted
    bytes bigint not null default 0, -- of the stored events
    written bigint not null default 0, -- bytes of all events ever committed
    operations bigint not null default 0 -- number of operations by operators
  ) with (fillfactor = 50);

  -- One lease per member covers all its sources, so a renewal changes one row. A session that is gone cannot renew.
  create table member (
    name text collate "C" primary key,
    incarnation text collate "C" not null,
    host text collate "C" not null,
    version text collate "C" not null,
    page text collate "C" not null,
    started_at timestamptz not null,
    seen_at timestamptz not null,
    lease_until timestamptz not null,
    draining boolean not null default false, -- an operator requested that it releases all sources
    leaving boolean not null default false,
    gone text collate "C", -- how it left the fleet: left or lost; null for a current member
    unable text collate "C" not null default '[]', -- sources that it could not start, so other members take them
    digest text collate "C" not null
  ) with (fillfactor = 50);

  create table takeover (
    id bigint generated always as identity primary key,
    source text collate "C" not null,
    from_member text collate "C",
    to_member text collate "C" not null,
    epoch bigint not null,
    at timestamptz not null,
    reason text collate "C" not null
  );

  create table fleet_document (key text collate "C" primary key, body text collate "C" not null);

  create table document (
    source text collate "C" not null,
    set_name text collate "C" not null,
    key text collate "C" not null,
    body text collate "C" not null,
    primary key (source, set_name, key)
  ) with (fillfactor = 90);

  create table record (
    source text collate "C" not null,
    log text collate "C" not null,
    sequence bigint not null,
    body text collate "C" not null,
    primary key (source, log, sequence)
  );

  create table event (
    source text collate "C" not null,
    position bigint not null,
    id text collate "C" not null,
    kind text collate "C" not null,
    telemetry boolean not null,
    committed_ms bigint not null,
    bytes integer not null,
    written bigint not null, -- bytes of all events ever committed, up to and including this one
    body text collate "C" not null,
    primary key (source, position),
    unique (source, id)
  );
  -- Events other than values are rare. This index finds and counts them without reading the values between them.
  create index event_fact on event (source, position) where not telemetry;

  create table sink (
    source text collate "C" not null,
    name text collate "C" not null,
    position bigint not null,
    dropped bigint not null default 0,
    ended text collate "C",
    counted bigint not null default 0,
    epoch text collate "C" not null,
    primary key (source, name)
  ) with (fillfactor = 50);

  create table again (
    source text collate "C" not null,
    sink text collate "C" not null,
    position bigint not null,
    primary key (source, sink, position)
  );
  create index again_by_position on again (source, position);

  create table dead_letter (
    id bigint generated always as identity primary key,
    source text collate "C" not null,
    sink text collate "C" not null,
    position bigint not null,
    reason text collate "C" not null,
    at_ms bigint not null,
    committed_ms bigint not null,
    resending boolean not null default false,
    number bigint, -- sequence number of the event, with its epoch; null if it had none
    epoch text collate "C",
    body text collate "C" not null,
    unique (source, sink, position)
  );

  create table gap (
    id bigint generated always as identity primary key,
    source text collate "C" not null,
    sink text collate "C" not null,
    reason text collate "C" not null,
    first_time text collate "C" not null,
    last_time text collate "C" not null,
    count bigint not null,
    at_ms bigint not null,
    told_ms bigint -- time at which the gap's event was committed; null while the gap still grows
  );
  create index gap_by_sink on gap (source, sink, reason);

  -- Newest position of the log, and position up to which all sinks had settled, by the total run time of the source.
  create table age_mark (
    source text collate "C" not null,
    ran_ms bigint not null,
    newest bigint not null,
    settled bigint not null,
    primary key (source, ran_ms)
  );

  create table quota (
    source text collate "C" not null,
    bucket text collate "C" not null,
    id bigint not null,
    sent_ms double precision not null,
    counted_ms double precision not null,
    primary key (source, bucket, id)
  ) with (fillfactor = 70);

  create table quota_hold (
    source text collate "C" not null,
    bucket text collate "C" not null,
    said_ms double precision not null,
    until_ms double precision not null,
    primary key (source, bucket)
  ) with (fillfactor = 50);

  create table quota_clock (
    source text collate "C" not null,
    bucket text collate "C" not null,
    boot text collate "C" not null,
    wall_ms double precision not null,
    since_boot_ms double precision not null,
    primary key (source, bucket)
  ) with (fillfactor = 50);

  -- Locks the source's row until the transaction ends. Raises PLF01 if another epoch owns the source, or if another commit
  -- came in between. A takeover changes the same row, so one of the two transactions waits for the other.
  create function fence(of text, held bigint, before text, after text) returns void language plpgsql as $$
  begin
    update source set last_commit = after where name = of and epoch = held and last_commit = before;
    if not found then
      raise exception 'the source is held by another epoch' using errcode = 'PLF01', detail = of;
    end if;
  end $$;

  -- Locks the source's row for an operator, who is not the holder. The holder notices the change of "operations".
  create function wait_for(of text) returns void language plpgsql as $$
  begin
    update source set operations = operations + 1 where name = of;
    if not found then
      raise exception 'there is no such source' using errcode = 'PLF02', detail = of;
    end if;
  end $$;

  -- Inserts documents whose keys must not exist yet; raises PLC01 with the first key that exists.
  create function claim(of text, sets text[], keys text[], bodies text[]) returns void language plpgsql as $$
  declare taken record;
  begin
    select told.set_name, told.key into taken
      from unnest(sets, keys) as told (set_name, key) join document using (set_name, key)
      where document.source = of limit 1;
    if found then
      raise exception 'the key is taken' using errcode = 'PLC01',
        detail = json_build_array(taken.set_name, taken.key)::text;
    end if;
    insert into document (source, set_name, key, body)
      select of, told.set_name, told.key, told.body from unnest(sets, keys, bodies) as told (set_name, key, body);
  end $$;
  `,
  `
  -- Observers watch this counter with their own monotonic clock, so a lease's end does not depend on a wall clock.
  alter table member drop column lease_until, add column renewals bigint not null default 0,
    add column reach text collate "C" not null default '{}'; -- by source: whether the member reaches the service
  -- Sum of all steps of the database's wall clock while members ran. Members correct their measurements by it.
  alter table meta add column clock_set_by_ms double precision not null default 0;
  `,
  `
  -- Urgent events up to this position are settled, although values before them may not be.
  alter table sink add column urgent bigint not null default 0;
  `,
];

export const SCHEMA_VERSION = POSTGRES_SCHEMA_MIGRATIONS.length;
const MIGRATION_TIMEOUT_MS = 10 * 60_000;

/** First number ("PLNM") of the advisory lock for preparing a schema; the second is a hash of the schema's name. */
const MIGRATION_LOCK_ID = 0x504c4e4d;

/** Checks the schema; `migrate` creates or updates it. Throws for a schema of another program or of a newer version. */
export async function prepareSchema(session: PostgresSession, schema: string, migrate: boolean): Promise<void> {
  const currentSchemaVersion = await readSchemaVersion(session, schema);
  if (currentSchemaVersion === SCHEMA_VERSION) return;
  refuseNewerSchema(currentSchemaVersion, schema);
  if (!migrate)
    throw new ConfigError(
      currentSchemaVersion === null
        ? `There is no state in the schema ${schema} of the database yet.`
        : `The schema ${schema} of the database is older (${currentSchemaVersion} instead of ${SCHEMA_VERSION}).`,
      { field: "schema", hint: "Start a worker of this version once; it brings the schema up to date." },
    );
  await session.query(`begin; set local statement_timeout = ${MIGRATION_TIMEOUT_MS}`);
  try {
    // Another process may have prepared the schema in the meantime.
    await session.query(`select pg_advisory_xact_lock(${MIGRATION_LOCK_ID}, hashtext($1))`, [schema]);
    const schemaVersion = await readSchemaVersion(session, schema);
    refuseNewerSchema(schemaVersion, schema);
    if (schemaVersion === null) await createPostgresSchema(session, schema);
    for (const migration of POSTGRES_SCHEMA_MIGRATIONS.slice(schemaVersion ?? 0)) await session.query(migration);
    await session.query(`update meta set schema_version = ${SCHEMA_VERSION}`);
    await session.query("commit");
  } catch (error) {
    if (session.lostReason() === null) await session.query("rollback");
    throw error;
  }
}

/** Creates the schema if it is missing, so that an existing empty schema needs no right to create schemas. */
async function createPostgresSchema(session: PostgresSession, schema: string): Promise<void> {
  const { rows } = await session.query("select 1 from pg_namespace where nspname = $1", [schema]);
  if (rows.length === 0) await session.query(`create schema ${quoteSqlName(schema)}`);
}

/** Returns the version of a schema; null if the schema is missing or empty. */
async function readSchemaVersion(session: PostgresSession, schema: string): Promise<number | null> {
  const { rows } = await session.query(
    `select (select count(*) from pg_class where relnamespace = namespace.oid)::integer,
       (select obj_description(oid, 'pg_class') from pg_class where relnamespace = namespace.oid and relname = 'meta')
     from pg_namespace as namespace where nspname = $1`,
    [schema],
  );
  const [relationCount, schemaComment] = rows[0] ?? [0, null];
  if (relationCount === 0) return null;
  if (schemaComment !== STATE_SCHEMA_COMMENT)
    throw new ConfigError(`The schema ${schema} of the database belongs to something else.`, {
      field: "schema",
      hint: "Let state.postgres.schema name one of its own.",
    });
  const { rows: versionRows } = await session.query(`select schema_version from ${quoteSqlName(schema)}.meta`);
  return Number(versionRows[0]?.[0] ?? 0);
}

function refuseNewerSchema(version: number | null, schema: string): void {
  if (version === null || version <= SCHEMA_VERSION) return;
  throw new ConfigError(
    `The schema ${schema} of the database was written by a newer Plenum (schema ${version}, this one knows ${SCHEMA_VERSION}).`,
    { field: "schema", hint: "Run the newer version again, or let state.postgres.schema name another." },
  );
}
