import { describe, expect, test } from "vitest";
import { ucumOf } from "#connectors/shared/lake/cells.ts";
import { dayOf, emitRows } from "#connectors/shared/lake/rows.ts";
import { type Cell, type ColumnType, columnIndexOf, type Row, type Table } from "#connectors/shared/lake/table.ts";
import { HISTORY_TABLE, TABLES } from "#connectors/shared/lake/tables.ts";
import { eventIn, eventText } from "#src/core/codec/stored-event.ts";
import type { Event, Kind } from "#src/core/model/event.ts";
import { eventId } from "#src/core/model/event-ids.ts";
import { ALARM, sampleEvent, sampleOfEveryKind, valueEvent } from "../sample-events.ts";

/** Rows of events. */

const COMMITTED = "2026-11-21T10:00:00.250Z";

function told(event: Event, position = 7): readonly { readonly table: Table; readonly row: Row }[] {
  const rows: { table: Table; row: Row }[] = [];
  emitRows({ event, position, committedAt: COMMITTED }, (table, row) => rows.push({ table, row: [...row] }));
  return rows;
}

function named({ table, row }: { readonly table: Table; readonly row: Row }): Record<string, Cell> {
  return Object.fromEntries(table.columns.map(({ name }, place) => [name, row[place] ?? null]));
}

const only = (event: Event, table: string) =>
  told(event)
    .filter((each) => each.table.name === table)
    .map(named);

const FITS: Readonly<Record<ColumnType, (cell: Cell) => boolean>> = {
  text: (cell) => typeof cell === "string",
  json: (cell) => typeof cell === "string" && JSON.parse(cell) !== undefined,
  time: (cell) => Number.isSafeInteger(cell),
  integer: (cell) => Number.isSafeInteger(cell),
  number: (cell) => typeof cell === "number",
  boolean: (cell) => typeof cell === "boolean",
};

describe("the tables", () => {
  test("have keys that are never null, a time, an order and a trace, and no name twice", () => {
    expect(new Set(TABLES.map(({ name }) => name)).size).toBe(TABLES.length);
    for (const table of TABLES) {
      const names = table.columns.map(({ name }) => name);
      expect(new Set(names).size, table.name).toBe(names.length);
      expect(names, table.name).toEqual(expect.arrayContaining([...table.key, ...table.sortedBy, "event_id"]));
      for (const name of [...table.key, table.time]) {
        expect(table.columns[columnIndexOf(table, name)]?.isNullable, `${table.name}.${name}`).toBe(false);
      }
      expect(table.columns[columnIndexOf(table, table.time)]?.type, table.name).toBe("time");
      expect(names).not.toContain("date");
      expect(names).not.toContain("site");
    }
    expect(() => columnIndexOf(HISTORY_TABLE, "nothing")).toThrow("history has no column nothing");
  });
});

describe("an event of any kind", () => {
  test.each(sampleOfEveryKind().map((event) => [event.type, event] as const))("%s fits its tables", (_, event) => {
    const rows = told(event);
    expect(rows.length).toBeGreaterThan(0);
    for (const { table, row } of rows) {
      expect(row).toHaveLength(table.columns.length);
      row.forEach((cell, place) => {
        const { name, type, isNullable } = table.columns[place] as Table["columns"][number];
        const isRight = cell === null ? isNullable : FITS[type](cell);
        expect(isRight, `${table.name}.${name} = ${cell}`).toBe(true);
      });
      expect(named({ table, row })).toMatchObject({
        event_id: event.id,
        position: 7,
        observed_at: Date.parse(COMMITTED),
        source: event.source === "/plenum" ? "" : "main",
      });
    }
  });

  test("that comes from the stored state makes rows only in tables of last states", () => {
    for (const event of sampleOfEveryKind()) {
      const rows = told({ ...event, snapshot: true });
      expect(
        rows.filter(({ table }) => table.rowPolicy === "append"),
        event.type,
      ).toEqual([]);
    }
    const raised = told({ ...sampleEvent("alarm-raised"), snapshot: true });
    expect(raised.map(({ table }) => table.name)).toEqual(["alarm_episode"]);
  });
});

describe("a value", () => {
  test("is a number, a boolean or none, with its quality and its unit", () => {
    const cells = (value: number | boolean | null) => only(valueEvent(1, "4711", value), "value")[0];
    expect(cells(21.5)).toMatchObject({
      value_number: 21.5,
      value_boolean: null,
      quality: "good",
      unit: "°C",
    });
    expect(cells(false)).toMatchObject({ value_number: null, value_boolean: false, unit_ucum: "Cel" });
    expect(cells(null)).toMatchObject({ value_number: null, value_boolean: null, quality: "bad" });
  });
});

describe("history", () => {
  const sample = sampleEvent("tag-history");
  const points = [
    { time: "2026-11-20T23:55:00.000Z", value: 1.5 },
    { time: "2026-11-21T00:00:00.000Z", value: null },
    { time: "2026-11-21T00:05:00.000Z", value: true },
    { time: "2026-11-21T00:10:00.000Z", value: -1e-7 },
  ];
  const event = { ...sample, data: { ...sample.data, points, revised: false } };

  test.each([
    ["as it was made", event],
    ["as it is read from the log", eventIn(eventText(event))],
  ])("is one row for each point, %s", (_, each) => {
    const rows = only(each, "history");
    expect(
      rows.map(({ time, value_number, value_boolean, quality, revision }) => [
        new Date(Number(time)).toISOString(),
        value_number,
        value_boolean,
        quality,
        revision,
      ]),
    ).toEqual([
      ["2026-11-20T23:55:00.000Z", 1.5, null, "good", 0],
      ["2026-11-21T00:00:00.000Z", null, null, "bad", 0],
      ["2026-11-21T00:05:00.000Z", null, true, "good", 0],
      ["2026-11-21T00:10:00.000Z", -1e-7, null, "good", 0],
    ]);
    expect(rows.map(({ time }) => dayOf(Number(time)))[0]).toBe("2026-11-20");
  });

  test("that repeats a bucket with other values has a higher revision", () => {
    const revised = { ...event, data: { ...event.data, revised: true } };
    expect(new Set(only(revised, "history").map(({ revision }) => revision))).toEqual(new Set([Date.parse(COMMITTED)]));
  });

  test("with a stamp that is no moment has no row for that point, and the others have theirs", () => {
    const odd = { time: "2026-11-21T00:02:30", value: 3 };
    const rows = only({ ...event, data: { ...event.data, points: [odd, ...points] } }, "history");
    expect(rows).toHaveLength(points.length);
  });
});

describe("an alarm", () => {
  const at = (type: Extract<Kind, `alarm-${string}`>, change: Partial<typeof ALARM> = {}) => {
    const sample = sampleEvent(type);
    return { ...sample, data: { ...sample.data, alarm: { ...ALARM, ...change } } } as Event;
  };

  test("is a row for each event, and one for its episode that says whether it is over", () => {
    expect(only(at("alarm-raised"), "alarm")[0]).toMatchObject({ event: "alarm-raised", alarm_id: ALARM.id });
    expect(only(at("alarm-raised"), "alarm_episode")[0]).toMatchObject({ state: "active", ended_at: null });
    const resolvedAt = "2026-11-21T09:30:00.000Z";
    const over = { status: "resolved", resolvedAt, resolvedAtRaw: "2026-11-21T10:30:00+01:00" };
    expect(only(at("alarm-resolved", over), "alarm_episode")[0]).toMatchObject({
      state: "resolved",
      ended_at: Date.parse(resolvedAt),
      resolved_at_offset: "+01:00",
      resolved_at_raw: "2026-11-21T10:30:00+01:00",
    });
    const vanished = at("alarm-vanished");
    expect(only(vanished, "alarm_episode")[0]).toMatchObject({
      state: "vanished",
      ended_at: Date.parse(vanished.time),
    });
    expect(only(at("alarm-out-of-scope"), "alarm_episode")[0]).toMatchObject({
      state: "out-of-scope",
      ended_at: null,
    });
    expect(only(at("alarm-acknowledged", over), "alarm_episode")[0]).toMatchObject({ state: "resolved" });
  });

  test("whose trigger time is no moment keeps the text, and no moment is invented", () => {
    const odd = { triggeredAt: "2026-11-21T10:30:00", triggeredAtRaw: "2026-11-21T10:30:00" };
    expect(only(at("alarm-raised", odd), "alarm")[0]).toMatchObject({
      triggered_at: null,
      triggered_at_raw: "2026-11-21T10:30:00",
      triggered_at_offset: null,
    });
    expect(only(at("alarm-raised", odd), "alarm_episode")[0]).toMatchObject({
      raised_at: 0,
      triggered_at: null,
    });
  });
});

test("a tag's systems are a row each, and those that it has left end", () => {
  const sample = sampleEvent("tag-systems-changed");
  const system = (id: string) => ({ id, code: `320.${id}`, displayName: "Heating" });
  const data = { ...sample.data, systems: [system("1"), system("3")], before: ["1", "2"] };
  const rows = only({ ...sample, data }, "tag_system");
  expect(rows.map(({ system_id, is_current }) => [system_id, is_current])).toEqual([
    ["1", true],
    ["3", true],
    ["2", false],
  ]);
});

test("a time of the event itself that is no moment is a fault, not a row", () => {
  const event = { ...valueEvent(1), time: "soon", id: eventId("tag-value", "x") };
  expect(() => told(event)).toThrow("is no moment: soon");
});

test("units have a code where it is certain, and no other", () => {
  expect(ucumOf("kWh")).toBe("kW.h");
  expect(ucumOf(" °C ")).toBe("Cel");
  for (const unit of [null, "", "C", "kn?", "KWH", "binary", "toString", "__proto__"]) expect(ucumOf(unit)).toBe(null);
});
