import * as fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { buildCreateTableSql, buildInsertSql, buildPrimaryKey } from "#connectors/postgres/sql-statements.ts";
import { encodeTableRows } from "#connectors/postgres/write-batch.ts";
import type { Cell, ColumnType, LakeRow, LakeTable } from "#connectors/shared/lake/table-model.ts";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import type { Receipt } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { connectTo } from "../../query-postgres.ts";
import { absent } from "../../real-servers.ts";
import { expectFailure } from "../../receivers/receiver-helpers.ts";
import { ALARM, sampleEvent, sampleOfEveryKind, TAG, valueEvent } from "../../sample-events.ts";
import { never, offered } from "../context.ts";
import { createDatabase, type Database, openSink, useServer, write } from "./test-database.ts";

const HOUR_MS = 3_600_000;

function longHistory(points: number, value: (n: number) => number | null = (n) => n / 4): Event<"tag-history"> {
  const event = sampleEvent("tag-history", {}, points);
  const first = Date.parse("2020-01-01T00:00:00Z");
  const timeOf = (n: number) => new Date(first + n * HOUR_MS).toISOString();
  const all = Array.from({ length: points }, (_, n) => ({ time: timeOf(n), value: value(n) }));
  return { ...event, data: { ...event.data, points: all } };
}

describe.skipIf(absent("postgres"))("rows that the PostgreSQL sink writes", () => {
  const server = useServer();

  async function contents(database: Database): Promise<Readonly<Record<string, unknown>>> {
    const all: Record<string, unknown> = {};
    for (const { name } of LAKE_TABLES) {
      all[name] = await database.query(`select row::text from plenum.${name} as row order by 1`);
    }
    return all;
  }

  const cells: Readonly<Record<ColumnType, fc.Arbitrary<Cell>>> = {
    text: fc.string({ unit: "binary" }).map((text) => text.toWellFormed().replaceAll("\0", " ")),
    time: fc.integer({ min: Date.parse("0001-01-01T00:00:00Z"), max: Date.parse("9999-12-31T23:59:59Z") }),
    number: fc.double({ noNaN: true }).map((number) => number + 0),
    integer: fc.oneof(fc.maxSafeInteger(), fc.constantFrom(-(2 ** 63), 2 ** 62)),
    boolean: fc.boolean(),
    json: fc.json().map((json) => JSON.stringify(JSON.parse(json)).replaceAll("\\u0000", "")),
  };
  const types = Object.keys(cells) as ColumnType[];

  test("cells of every column type are read as written, with equal and different values in a column", async () => {
    const database = await createDatabase(server());
    const column = (name: string, type: ColumnType, isNullable = true) => ({ name, type, isNullable, about: "" });
    const table: LakeTable = {
      name: "cells",
      about: "It's all types.",
      rowPolicy: "latest",
      columns: [
        column("n", "integer", false),
        ...types.map((type) => column(`a_${type}`, type)),
        column("time", "time", false),
        column("observed_at", "time", false),
        column("position", "integer", false),
      ],
      key: ["n"],
      time: "time",
      sortedBy: ["n"],
    };
    const target = { schema: "public", timescale: false };
    await database.query(buildCreateTableSql(table, target));
    const client = await connectTo(server(), database.name);
    onTestFinished(() => client.end());
    const row = fc.tuple(
      ...types.map((type) => fc.option(fc.oneof({ weight: 1, arbitrary: cells[type] }), { nil: null })),
    );
    const some = fc.oneof(
      fc.array(row, { minLength: 1, maxLength: 40 }),
      fc.tuple(row, fc.integer({ min: 1, max: 9 })).map(([one, times]) => Array.from({ length: times }, () => one)),
    );
    await fc.assert(
      fc.asyncProperty(some, async (written) => {
        const rows: LakeRow[] = written.map((each, n) => [n, ...each, 0, 0, 1]);
        const { columns } = encodeTableRows(table, rows);
        await client.query("truncate cells");
        const arrays = columns.map(({ isArray }) => isArray);
        const values = columns.map(({ bytes }) => bytes);
        await client.query(buildInsertSql(table, target, arrays), values);
        const { rows: read } = await client.query({
          text: `select a_text, (extract(epoch from a_time) * 1000)::float8, a_number, a_integer::float8, a_boolean, a_json::text from cells order by n`,
          rowMode: "array",
        });
        const parsed = (cell: Cell | undefined) => (typeof cell === "string" ? JSON.parse(cell) : cell);
        expect(read.map((each) => [...each.slice(0, 5), parsed(each[5])])).toEqual(
          written.map((each) => [...each.slice(0, 5), parsed(each[5])]),
        );
      }),
      { numRuns: 100 },
    );
  });

  test("an event with 12,000 points is written in several statements", async () => {
    const { database, sink } = await openSink(server());
    const event = longHistory(12_000, (n) => (n % 100 === 0 ? null : n / 4));
    expect(await write(sink, [valueEvent(1), event, valueEvent(2)])).toEqual({ rejected: [] });
    const [read] = await database.query(
      `select count(*)::int, count(value_number)::int, sum(value_number), count(distinct time)::int, min(time)::text, max(quality), min(quality) from plenum.history`,
    );
    const sum = event.data.points.reduce((all, { value }) => all + Number(value), 0);
    expect(read).toEqual([12_000, 11_880, sum, 12_000, "2020-01-01 00:00:00+00", "good", "bad"]);
    expect(await database.query("select count(*)::int from plenum.value")).toEqual([[2]]);
  });

  test("a batch that is redelivered completely or partly changes no row", async () => {
    const { database, sink } = await openSink(server());
    const events = [...sampleOfEveryKind(), longHistory(300), ...[1, 2, 3].map((n) => valueEvent(n))];
    await write(sink, events);
    const before = await contents(database);
    expect(Object.values(before).filter((rows) => (rows as unknown[]).length > 0).length).toBeGreaterThan(10);
    await write(sink, events);
    await sink.write(events.slice(20), never(), undefined, { ...offered(events.slice(20), 21), isRedelivery: true });
    expect(await contents(database)).toEqual(before);
  });

  test("a history bucket keeps the value observed last, or with the higher position at the same time", async () => {
    const { database, sink } = await openSink(server());
    const writeValue = (value: number, committedAt: string, position: number) => {
      const offer = { positions: [position], committedAt: [committedAt], isRedelivery: false };
      return sink.write([longHistory(1, () => value)], never(), undefined, offer);
    };
    const now = async () => (await database.query("select value_number, position::int from plenum.history")).flat();
    await writeValue(1, "2026-11-02T08:00:00Z", 70);
    await writeValue(2, "2026-11-02T07:00:00Z", 90);
    expect(await now(), "older, by a worker that lost its state").toEqual([1, 70]);
    await writeValue(3, "2026-11-02T08:00:00Z", 69);
    expect(await now()).toEqual([1, 70]);
    await writeValue(4, "2026-11-02T08:00:00Z", 71);
    expect(await now()).toEqual([4, 71]);
    await writeValue(5, "2026-11-02T09:00:00Z", 1);
    expect(await now()).toEqual([5, 1]);
    const committedAt = ["2026-11-02T10:00:00Z", "2026-11-02T10:00:00Z"];
    const offer = { positions: [5, 4], committedAt, isRedelivery: false };
    await sink.write([longHistory(1, () => 6), longHistory(1, () => 7)], never(), undefined, offer);
    expect(await now()).toEqual([6, 5]);
  });

  test("a tag has one row per state, and each row ends at the time when the next row starts", async () => {
    const { database, sink } = await openSink(server());
    const tag = (kind: "tag-added" | "tag-changed" | "tag-removed", time: string, unit: string) => {
      const event = sampleEvent(kind, { time }, time);
      return { ...event, data: { ...event.data, tag: { ...TAG, unit } } } as Event;
    };
    const states = () =>
      database.query(
        "select unit, to_char(valid_from at time zone 'UTC', 'HH24:MI'), to_char(valid_to at time zone 'UTC', 'HH24:MI'), is_current from plenum.tag order by valid_from",
      );
    const events = [
      tag("tag-added", "2026-11-02T08:00:00.000Z", "°C\0"),
      tag("tag-changed", "2026-11-02T09:00:00.000Z", "K"),
    ];
    await write(sink, events.slice(0, 1), 1);
    await write(sink, events, 1);
    const both = [
      ["°C\ufffd", "08:00", "09:00", false],
      ["K", "09:00", null, true],
    ];
    expect(await states()).toEqual(both);
    await write(sink, events, 1);
    expect(await states(), "redelivered").toEqual(both);
    await write(sink, [tag("tag-removed", "2026-11-02T10:00:00.000Z", "K")], 9);
    expect(await states()).toEqual([both[0], ["K", "09:00", "10:00", false]]);
  });

  test("characters that PostgreSQL cannot store are replaced by U+FFFD in texts and JSON", async () => {
    const { database, sink } = await openSink(server());
    const raised = sampleEvent("alarm-raised");
    const changed = sampleEvent("alarm-changed");
    const awkward = 'a\0b \ud800 \\u0000 "\u{1f321}"';
    const alarm = { ...ALARM, description: awkward };
    const events = [
      { ...raised, data: { ...raised.data, alarm } },
      { ...changed, data: { ...changed.data, alarm, before: { description: awkward } } },
    ];
    expect(await write(sink, events)).toEqual({ rejected: [] });
    const expected = 'a\ufffdb \ufffd \\u0000 "\u{1f321}"';
    const query = "select description, before ->> 'description' from plenum.alarm order by event desc";
    expect(await database.query(query)).toEqual([
      [expected, null],
      [expected, expected],
    ]);
  });

  test("events that cannot be mapped to rows are rejected, and the other events are stored", async () => {
    const { database, sink } = await openSink(server());
    const { rejected } = await write(sink, [
      valueEvent(1),
      { ...valueEvent(7), data: { ...valueEvent(7).data, latencyMs: 1e30 } },
      valueEvent(2),
      { ...valueEvent(8), time: "yesterday" },
      { ...valueEvent(9), data: { ...valueEvent(9).data, time: "-271000-01-01T00:00:00Z" } },
      valueEvent(3),
    ]);
    expect(rejected.map(({ index }) => index)).toEqual([1, 3, 4]);
    expect(rejected[0]?.reason).toBe("value.latency_ms is 1e+30, which is no whole number of 64 bits.");
    expect(await database.query("select count(*)::int from plenum.value")).toEqual([[3]]);
  });

  test("only the events that violate a constraint of the table are rejected", async () => {
    const { database, sink } = await openSink(server());
    await database.query("alter table plenum.value add constraint plausible check (value_number <> 13)");
    const values = Array.from({ length: 100 }, (_, n) =>
      valueEvent(n, TAG.id, [17, 18, 99].includes(n) ? 13 : n + 100),
    );
    const { rejected } = await write(sink, values);
    expect(rejected.map(({ index }) => index)).toEqual([17, 18, 99]);
    expect(rejected[0]?.reason).toMatch(/violates check constraint "plausible" \(23514, constraint plausible\)\.$/);
    expect(rejected[0]?.reason, "no whole rows").not.toContain("Failing row");
    expect(await database.query("select count(*)::int from plenum.value")).toEqual([[97]]);
  });

  test("when nearly all events are refused, the events tested so far are settled and the rest is retried", async () => {
    const { database, sink } = await openSink(server());
    await database.query("alter table plenum.value add constraint plausible check (value_number < 0)");
    const values = Array.from({ length: 300 }, (_, n) => valueEvent(n, TAG.id, n === 0 ? -1 : n));
    const receipt: Receipt = await write(sink, values);
    const from = receipt.retry?.from ?? 0;
    expect(from).toBeGreaterThan(50);
    expect(receipt.rejected.map(({ index }) => index)).toEqual(Array.from({ length: from - 1 }, (_, n) => n + 1));
    expect(receipt.retry?.error).toMatchObject({ kind: "retryable" });
    expect(await database.query("select count(*)::int from plenum.value")).toEqual([[1]]);
  });

  test("a batch is written completely or not at all", async () => {
    const { database, sink } = await openSink(server());
    await database.query("drop table plenum.alarm_episode; create view plenum.alarm_episode as select 1 as x");
    const events = [valueEvent(1), longHistory(6_000), sampleEvent("alarm-raised")];
    await expectFailure(write(sink, events), { kind: "config" });
    const counts = "select (select count(*) from plenum.value)::int, (select count(*) from plenum.history)::int";
    expect(await database.query(counts)).toEqual([[0, 0]]);
  });
});

test("primary keys of PostgreSQL tables start with the sort columns where possible, and contain the time column of a hypertable", () => {
  const keys = (timescale: boolean) =>
    Object.fromEntries(LAKE_TABLES.map((table) => [table.name, buildPrimaryKey(table, { timescale }).join(" ")]));
  expect(keys(false)).toMatchObject({
    value: "source event_id",
    history: "tag_id resolution time source time_zone revision",
    tag: "tag_id valid_from source",
    alarm_episode: "source episode",
  });
  expect(keys(true)).toMatchObject({
    value: "source event_id time",
    total: "source event_id from_time",
    history: "tag_id resolution time source time_zone revision",
    tag: "tag_id valid_from source",
    alarm_episode: "source episode",
  });
});
