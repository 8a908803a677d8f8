import { describe, expect, test } from "vitest";
import { buildCreateHypertableSql, buildCreateTableSql } from "#connectors/postgres/sql-statements.ts";
import { LAKE_TABLES, TAG_VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { absent } from "../../real-servers.ts";
import { sampleEvent, sampleOfEveryKind, valueEvent } from "../../sample-events.ts";
import { never } from "../context.ts";
import { createDatabase, type Database, failureText, sinkIn, useServer, write } from "./test-database.ts";

describe.skipIf(absent("postgres"))("the tables that the PostgreSQL sink creates", () => {
  const server = useServer();

  async function made(options: Readonly<Record<string, unknown>> = {}): Promise<Database> {
    const database = await createDatabase(server());
    await sinkIn(database, options).open(never());
    return database;
  }

  const openFailure = (database: Database, options: Readonly<Record<string, unknown>> = {}) =>
    failureText(sinkIn(database, options).open(never()));

  test("PostgreSQL tables are created once, with comments", async () => {
    const database = await made();
    const [[tables, commented, columns] = []] = await database.query(`select count(distinct c.oid)::int,
count(distinct c.oid) filter (where obj_description(c.oid) <> '')::int,
count(*) filter (where col_description(c.oid, a.attnum) <> '')::int
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = 'plenum'::regnamespace and c.relkind = 'r' and c.relname <> 'schema_version'`);
    expect(tables).toBe(LAKE_TABLES.length);
    expect(commented).toBe(LAKE_TABLES.length);
    expect(columns).toBe(LAKE_TABLES.reduce((sum, table) => sum + table.columns.length, 0));
    expect(await openFailure(database)).toBe("");
    expect(await database.query("select version from plenum.schema_version")).toEqual([[1]]);
  });

  test("PostgreSQL tables answer a query by tag and time with one index", async () => {
    const database = await made();
    for (const name of ["value", "history"]) {
      const plan = await database.query(`set enable_seqscan = off; set enable_bitmapscan = off;
explain select * from plenum.${name} where tag_id = '1' ${name === "history" ? "and resolution = '1h'" : ""} and time >= '2026-01-01' and time < '2026-02-01'`);
      expect(plan.flat().join("\n"), name).toMatch(/Index Cond: .*tag_id.*"time" >=.*"time" </);
    }
  });

  test("two concurrent workers create one schema, and lose and duplicate no row", async () => {
    const database = await createDatabase(server());
    const sinks = [0, 1].map(() => sinkIn(database));
    await Promise.all(sinks.map((sink) => sink.open(never())));
    await Promise.all(
      sinks.map(async (sink, worker) => {
        const source = `/sources/w${worker}`;
        for (let round = 0; round < 20; round += 1) {
          const samples = sampleOfEveryKind().map((event) => ({ ...event, source }));
          await write(sink, [...samples, { ...valueEvent(round), source }], 1 + round * 100);
        }
      }),
    );
    expect(await database.query("select source, count(*)::int from plenum.value group by 1 order by 1")).toEqual([
      ["w0", 21],
      ["w1", 21],
    ]);
    expect(await database.query("select source, count(*)::int from plenum.site group by 1 order by 1")).toEqual([
      ["w0", 1],
      ["w1", 1],
    ]);
  });

  test("a column that a later version needs is added, and is null in existing rows", async () => {
    const database = await made();
    await write(sinkIn(database), [valueEvent(1)]);
    await database.query(`alter table plenum.value drop column latency_ms;
update plenum.schema_version set columns = array_remove(columns, 'value.latency_ms')`);
    expect(await openFailure(database, { create: false })).toBe(
      "config: The schema plenum lacks the column value.latency_ms. Set create: true, once with a role that may create them if that of the worker may not.",
    );
    await write(sinkIn(database), [valueEvent(2)], 5);
    expect(await database.query("select latency_ms::int from plenum.value order by time")).toEqual([[null], [80]]);
    expect(await database.query("select version from plenum.schema_version order by 1")).toEqual([[1], [2]]);
  });

  const CHANGES: readonly (readonly [what: string, change: string, said: string])[] = [
    [
      "a dropped column",
      "alter table plenum.value drop column unit",
      'config: The table plenum.value has lost its column unit. Run: alter table "plenum"."value" add column "unit" text',
    ],
    [
      "a renamed column",
      "alter table plenum.alarm rename column description to beschreibung",
      'config: The table plenum.alarm has a column beschreibung that is not null and has no default, and Plenum does not fill it. Run: alter table "plenum"."alarm" alter column "beschreibung" drop not null; or give it a default.',
    ],
    [
      "a column of another type",
      "alter table plenum.value alter column unit type varchar(4)",
      'config: The column unit of plenum.value is character varying(4) and has to be text. Run: alter table "plenum"."value" alter column "unit" type text',
    ],
    [
      "a column that no longer allows null",
      "alter table plenum.value alter column value_number set not null",
      'config: The column value_number of plenum.value has to take null. Run: alter table "plenum"."value" alter column "value_number" drop not null',
    ],
    [
      "a view in place of a table",
      "drop table plenum.value; create view plenum.value as select 1 as x",
      "config: plenum.value is no table. Rename what has that name, or let schema name another.",
    ],
    [
      "a dropped primary key",
      "alter table plenum.value drop constraint value_pkey",
      'config: The table plenum.value has no unique index on source, event_id. Run: create unique index on "plenum"."value" ("source", "event_id")',
    ],
  ];

  test.each(CHANGES)(
    "%s is reported with advice when a sink opens and by a sink that is already open",
    async (_, change, said) => {
      const database = await made();
      const sink = sinkIn(database);
      await write(sink, [sampleEvent("alarm-raised")]);
      await database.query(change);
      expect(await openFailure(database)).toBe(said);
      const value = valueEvent(1, "10042", true);
      const tag = { id: "1", displayName: "x", description: null, unit: "kilowatt" };
      const events = [{ ...value, data: { ...value.data, tag } }, sampleEvent("alarm-resolved")];
      expect(await failureText(write(sink, events, 5))).toBe(said);
    },
  );

  test("columns and tables of other programs are not changed", async () => {
    const database = await made();
    await database.query(`alter table plenum.value add column note text, add column made timestamptz not null default now();
create table plenum.own (x int); create index own_index on plenum.value (note)`);
    await write(sinkIn(database), [valueEvent(1)]);
    expect(await database.query("select note, made is not null from plenum.value")).toEqual([[null, true]]);
  });

  test("a dropped table is created again, and with create: false the missing table is reported", async () => {
    const database = await made();
    await database.query("drop table plenum.value, plenum.total");
    expect(await openFailure(database, { create: false })).toMatch(
      /^config: The schema plenum lacks the table value and 1 more\. Set create: true/,
    );
    expect(await openFailure(database)).toBe("");
    expect(await openFailure(database, { create: false })).toBe("");
  });

  test("a missing timescale extension is reported, and no table is created", async () => {
    const database = await createDatabase(server());
    expect(await openFailure(database, { timescale: true })).toBe(
      "config: The database has no extension timescaledb. Run there: create extension timescaledb; or leave timescale out.",
    );
    expect(await database.query("select to_regnamespace('plenum')")).toEqual([[null]]);
  });
});

describe("SQL statements for the tables", () => {
  test("SQL statements create a hypertable with the time column in its primary key", () => {
    const target = { schema: "plenum", timescale: true };
    expect(buildCreateTableSql(TAG_VALUE_TABLE, target)).toContain('primary key ("source", "event_id", "time")');
    expect(buildCreateHypertableSql(TAG_VALUE_TABLE, target, "public")).toBe(
      `select "public".create_hypertable('"plenum"."value"', 'time', if_not_exists => true, migrate_data => true)`,
    );
  });

  test("SQL statements escape quotes in comments and names", () => {
    const table = { ...TAG_VALUE_TABLE, name: 'a"b', about: "it's" };
    const text = buildCreateTableSql(table, { schema: "s", timescale: false });
    expect(text).toContain(`comment on table "s"."a""b" is 'it''s'`);
  });
});
