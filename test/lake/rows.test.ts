import { describe, expect, test } from "vitest";
import { encodeParquet, readParquetRows } from "#connectors/parquet/parquet-file.ts";
import { createColumnarRows } from "#connectors/parquet/rows-to-columns.ts";
import { emitEventRows, formatUtcDay } from "#connectors/shared/lake/event-rows.ts";
import {
  applyRowUpdates,
  type Cell,
  type ColumnType,
  findColumnIndex,
  type LakeRow,
  type LakeTable,
} from "#connectors/shared/lake/table-model.ts";
import { HISTORY_TABLE, LAKE_TABLES, TAG_TABLE } from "#connectors/shared/lake/tables.ts";
import { encodeEvent, parseEvent } from "#src/core/codec/stored-event.ts";
import type { Event, EventKind } from "#src/core/model/event.ts";
import { toUcumCode } from "#src/core/values/ucum-code.ts";
import { ALARM, sampleEvent, sampleOfEveryKind, staleEvent, valueEvent } from "../sample-events.ts";

const COMMITTED = "2026-11-21T10:00:00.250Z";
const NO_OFFSET = "2026-11-01T00:00:00";
const SEEN_MS = Date.parse(sampleEvent("tag-total").time);

interface TableRow {
  readonly table: LakeTable;
  readonly row: LakeRow;
}

function rowsOf(event: Event, committedAt = COMMITTED): readonly TableRow[] {
  const rows: TableRow[] = [];
  emitEventRows({ event, position: 7, committedAt }, (table, row) => rows.push({ table, row: [...row] }));
  return rows;
}

function cellsOf({ table, row }: TableRow): Record<string, Cell> {
  return Object.fromEntries(table.columns.map(({ name }, index) => [name, row[index] ?? null]));
}

const cellsIn = (table: string, event: Event, committedAt?: string) =>
  rowsOf(event, committedAt)
    .filter((each) => each.table.name === table)
    .map(cellsOf);

function sampleWith<K extends EventKind>(type: K, data: Partial<Event<K>["data"]>): Event {
  const sample = sampleEvent(type);
  return { ...sample, data: { ...sample.data, ...data } } as Event;
}

const alarmWith = (type: Extract<EventKind, `alarm-${string}`>, change: Partial<typeof ALARM> = {}) =>
  sampleWith(type, { alarm: { ...ALARM, ...change } } as never);

const FITS: Readonly<Record<ColumnType, (cell: Cell) => boolean>> = {
  text: (cell) => typeof cell === "string",
  json: (cell) => typeof cell === "string" && JSON.parse(cell) !== undefined,
  time: (cell) => Number.isSafeInteger(cell),
  integer: (cell) => Number.isSafeInteger(cell),
  number: (cell) => typeof cell === "number",
  boolean: (cell) => typeof cell === "boolean",
};

test("a stale value is a row in the table of events, and no row in the table of values", () => {
  const event = staleEvent();
  expect(rowsOf(event).map(({ table }) => table.name)).toEqual(["worker_event"]);
  const [cells] = cellsIn("worker_event", event);
  expect(cells).toMatchObject({ event: "tag-value", subject: "site/1/tag/10042", time: Date.parse(event.time) });
  expect(JSON.parse(String(cells?.data))).toEqual(event.data);
  expect(rowsOf({ ...event, snapshot: true })).toEqual([]);
});

test("every table has unique column names, a key without null, a time column, a sort order and an event_id", () => {
  expect(new Set(LAKE_TABLES.map(({ name }) => name)).size).toBe(LAKE_TABLES.length);
  for (const table of LAKE_TABLES) {
    const names = table.columns.map(({ name }) => name);
    expect(new Set(names).size, table.name).toBe(names.length);
    expect(names, table.name).toEqual(expect.arrayContaining([...table.key, ...table.sortedBy, "event_id"]));
    for (const name of [...table.key, table.time]) {
      expect(table.columns[findColumnIndex(table, name)]?.isNullable, `${table.name}.${name}`).toBe(false);
    }
    expect(table.columns[findColumnIndex(table, table.time)]?.type, table.name).toBe("time");
    for (const name of ["date", "site"]) expect(names).not.toContain(name);
  }
  expect(() => findColumnIndex(HISTORY_TABLE, "nothing")).toThrow("history has no column nothing");
});

test("a tag's row has its names, and a Parquet file without the name columns is read with null names", async () => {
  const { tag } = sampleEvent("tag-added").data;
  const named = { ...tag, alias: "Supply air", path: "b1/supply", unitCode: "Cel" };
  const cells = cellsIn("tag", sampleWith("tag-added", { tag: named }))[0];
  expect(cells).toMatchObject({ alias: "Supply air", path: "b1/supply", unit_code: "Cel" });
  const isNameColumn = ({ name }: { readonly name: string }) => ["alias", "path", "unit_code"].includes(name);
  const oldTable = { ...TAG_TABLE, columns: TAG_TABLE.columns.filter((column) => !isNameColumn(column)) };
  const oldRows = createColumnarRows(oldTable);
  oldRows.add(oldTable.columns.map(({ name }) => cells?.[name] ?? null));
  const rows = createColumnarRows(TAG_TABLE);
  await readParquetRows(await encodeParquet(oldRows, Uint32Array.of(0)), rows, "tag.parquet");
  const row = TAG_TABLE.columns.map((_, index) => rows.getCell(index, 0));
  expect(cellsOf({ table: TAG_TABLE, row })).toEqual({ ...cells, alias: null, path: null, unit_code: null });
  const [unchanged] = rowsOf(sampleEvent("tag-added"), "2026-11-22T00:00:00.000Z");
  const [changed] = rowsOf(sampleWith("tag-added", { tag: named }), "2026-11-22T00:00:00.000Z");
  expect(applyRowUpdates(TAG_TABLE, [row], [unchanged?.row ?? []])).toHaveLength(1);
  expect(applyRowUpdates(TAG_TABLE, [row], [changed?.row ?? []])).toHaveLength(2);
});

describe("the mapping of events to lake rows (emitRows)", () => {
  test.each(sampleOfEveryKind().map((event) => [event.type, event] as const))(
    "emitRows maps %s to rows that fit their tables",
    (_, event) => {
      const rows = rowsOf(event);
      expect(rows.length).toBeGreaterThan(0);
      for (const each of rows) {
        const { table, row } = each;
        expect(row).toHaveLength(table.columns.length);
        for (const [index, { name, type, isNullable }] of table.columns.entries()) {
          const cell = row[index] ?? null;
          expect(cell === null ? isNullable : FITS[type](cell), `${table.name}.${name} = ${cell}`).toBe(true);
        }
        const source = event.source === "/plenum" ? "" : "main";
        const trace = { event_id: event.id, position: 7, observed_at: Date.parse(COMMITTED), source };
        expect(cellsOf(each)).toMatchObject(trace);
      }
    },
  );

  test("a state snapshot event is mapped only to tables with one row per state, not to append-only tables", () => {
    for (const event of sampleOfEveryKind()) {
      const policies = rowsOf({ ...event, snapshot: true }).map(({ table }) => table.rowPolicy);
      expect(policies, event.type).not.toContain("append");
    }
    const raised = rowsOf({ ...sampleEvent("alarm-raised"), snapshot: true });
    expect(raised.map(({ table }) => table.name)).toEqual(["alarm_episode"]);
  });

  test("the column observed_at contains the event's time if the commit time is missing", () => {
    for (const event of [valueEvent(1), sampleEvent("gateway-online")]) {
      expect(rowsOf(event, "").map(cellsOf)[0]).toMatchObject({ observed_at: Date.parse(event.time) });
    }
  });

  test("emitRows throws an error for an event with an invalid time", () => {
    expect(() => rowsOf({ ...valueEvent(1), time: "soon" })).toThrow("is no moment: soon");
  });
});

describe("a tag-value event in the lake", () => {
  test.each([
    [21.5, { value_number: 21.5, value_boolean: null, quality: "good", unit: "°C" }],
    [false, { value_number: null, value_boolean: false, unit_ucum: "Cel" }],
    [null, { value_number: null, value_boolean: null, quality: "bad" }],
  ])(
    "a tag-value event in the lake has a cell of its type, a quality and a unit when its value is %j",
    (value, cells) => {
      expect(cellsIn("value", valueEvent(1, "4711", value))[0]).toMatchObject(cells);
    },
  );

  test("a tag-value event in the lake has the time of its value, which may be earlier than the event's time", () => {
    const time = "2026-11-01T09:00:00+01:00";
    const event = valueEvent(1);
    const earlier = { ...event, data: { ...event.data, time } } as Event;
    expect(cellsIn("value", earlier)[0]).toMatchObject({ time: Date.parse(time) });
    expect(cellsIn("value", event)[0]).toMatchObject({ time: Date.parse(event.time) });
  });
});

describe("a tag-history event in the lake", () => {
  const points = [
    { time: "2026-11-20T23:55:00.000Z", value: 1.5 },
    { time: "2026-11-21T00:00:00.000Z", value: null },
    { time: "2026-11-21T00:05:00.000Z", value: true },
    { time: "2026-11-21T00:10:00.000Z", value: -1e-7 },
  ];
  const event = sampleWith("tag-history", { points, revised: false });

  test.each([
    ["an event", event],
    ["a stored event", parseEvent(encodeEvent(event))],
  ])("a tag-history event in the lake has one row for each of its points (%s)", (_, each) => {
    const rows = cellsIn("history", each);
    expect(rows.map((row) => [row.time, row.value_number, row.value_boolean, row.quality, row.revision])).toEqual([
      [Date.parse("2026-11-20T23:55:00.000Z"), 1.5, null, "good", 0],
      [Date.parse("2026-11-21T00:00:00.000Z"), null, null, "bad", 0],
      [Date.parse("2026-11-21T00:05:00.000Z"), null, true, "good", 0],
      [Date.parse("2026-11-21T00:10:00.000Z"), -1e-7, null, "good", 0],
    ]);
    expect(formatUtcDay(Number(rows[0]?.time))).toBe("2026-11-20");
  });

  test("a tag-history event in the lake gets the commit time as revision when it replaces values", () => {
    const revisions = cellsIn("history", sampleWith("tag-history", { points, revised: true })).map(
      (row) => row.revision,
    );
    expect(new Set(revisions)).toEqual(new Set([Date.parse(COMMITTED)]));
  });

  test("a tag-history event in the lake has no row for a point with an invalid time", () => {
    const invalid = { time: "2026-11-21T00:02:30", value: 3 };
    const mixed = sampleWith("tag-history", { points: [invalid, ...points] });
    expect(cellsIn("history", mixed)).toHaveLength(points.length);
  });
});

describe("a time without a UTC offset", () => {
  const from = "2026-10-31T23:00:00Z";
  const to = "2026-11-01T23:00:00Z";
  const fromMs = Date.parse(from);
  const toMs = Date.parse(to);
  test.each([
    ["from", NO_OFFSET, to, SEEN_MS, toMs],
    ["to", from, NO_OFFSET, fromMs, SEEN_MS],
    ["neither", from, to, fromMs, toMs],
  ])(
    "a time without a UTC offset is replaced by the event's time in tag-total and delivery-gap events (without an offset: %s)",
    (_, a, b, aMs, bMs) => {
      const [total] = cellsIn("total", sampleWith("tag-total", { from: a, to: b }));
      expect(total).toMatchObject({ from_time: aMs, to_time: bMs });
      const [gap] = cellsIn("delivery_gap", sampleWith("delivery-gap", { firstTime: a, lastTime: b }));
      expect(gap).toMatchObject({ first_time: aMs, last_time: bMs, time: SEEN_MS });
    },
  );
});

describe("an alarm event in the lake", () => {
  const resolvedAt = "2026-11-21T09:30:00.000Z";
  const over = { status: "resolved", resolvedAt, resolvedAtRaw: "2026-11-21T10:30:00+01:00" };
  const closed = { resolved_at_offset: "+01:00", resolved_at_raw: "2026-11-21T10:30:00+01:00" };
  const unknownEnd = { state: "resolved", ended_at: SEEN_MS, resolved_at: null };

  test.each([
    ["alarm-raised", {}, { state: "active", ended_at: null }],
    ["alarm-resolved", over, { state: "resolved", ended_at: Date.parse(resolvedAt), ...closed }],
    ["alarm-resolved", { status: "resolved", resolvedAt: null }, unknownEnd],
    ["alarm-resolved", { status: "resolved", resolvedAt: NO_OFFSET }, unknownEnd],
    ["alarm-acknowledged", over, { state: "resolved" }],
    ["alarm-vanished", {}, { state: "vanished", ended_at: SEEN_MS }],
    ["alarm-out-of-scope", {}, { state: "out-of-scope", ended_at: null }],
  ] as const)("%s with %j updates the row of the alarm episode", (type, change, cells) => {
    expect(cellsIn("alarm_episode", alarmWith(type, change))[0]).toMatchObject(cells);
  });

  test("an alarm event in the lake keeps the text of an invalid trigger time, and its time column is null", () => {
    const triggeredAt = "2026-11-21T10:30:00";
    const event = alarmWith("alarm-raised", { triggeredAt, triggeredAtRaw: triggeredAt });
    const cells = { triggered_at: null, triggered_at_raw: triggeredAt, triggered_at_offset: null };
    expect(cellsIn("alarm", event)[0]).toMatchObject(cells);
    expect(cellsIn("alarm_episode", event)[0]).toMatchObject({ raised_at: 0, triggered_at: null });
  });

  test.each<[EventKind, object, object]>([
    ["alarm-raised", {}, { event: "alarm-raised", alarm_id: ALARM.id }],
    ["alarm-raised", { initial: true }, { initial: true, late: false, before: null }],
    ["alarm-changed", { before: { description: "x" } }, { initial: false, before: '{"description":"x"}' }],
    ["alarm-raised", { alarm: { ...ALARM, lastActiveEvent: null } }, { event_value: null, event_text: null }],
  ])("%s with %j has a row in the alarm table", (type, data, cells) => {
    expect(cellsIn("alarm", sampleWith(type, data as never))[0]).toMatchObject(cells);
  });
});

test.each<[EventKind, object, object]>([
  [
    "command-accepted",
    { requested: 21.5 },
    { requested_number: 21.5, requested_boolean: null, before_number: null, read_back_number: null },
  ],
  [
    "command-result",
    { requested: true, before: false, readBack: null },
    {
      ...{ requested_number: null, requested_boolean: true, before_boolean: false },
      ...{ read_back_number: null, read_back_boolean: null },
    },
  ],
  [
    "command-not-restored",
    { wanted: 20, inForce: 22 },
    { requested_number: 20, read_back_number: 22, reason: "expired", expires_at: null },
  ],
])("the command row of a %s event has its values in columns for numbers or booleans", (type, data, cells) => {
  expect(cellsIn("command", sampleWith(type, data as never))[0]).toMatchObject(cells);
});

test.each([
  ["gateway-online", true, true],
  ["gateway-offline", false, true],
  ["gateway-added", true, null],
] as const)("the lake row of a %s event has online %s and whole_site %s", (type, online, whole_site) => {
  expect(cellsIn("gateway_state", sampleEvent(type))[0]).toMatchObject({ online, whole_site });
});

test.each(["gateway", "site", "system", "tag", "host"] as const)(
  "the row of an added or changed %s is current, and the row of a removed one ends at the event's time",
  (table) => {
    const rowOf = (change: "added" | "changed" | "removed") => cellsIn(table, sampleEvent(`${table}-${change}`))[0];
    const current = { is_current: true, valid_from: SEEN_MS, valid_to: null };
    expect(rowOf("added")).toMatchObject(current);
    expect(rowOf("changed")).toMatchObject(current);
    expect(rowOf("removed")).toMatchObject({ is_current: false, valid_from: SEEN_MS, valid_to: SEEN_MS });
  },
);

test("the row of a host has the id of its gateway, or null without a gateway", () => {
  const { host } = sampleEvent("host-added").data;
  const gatewayId = (gateway: typeof host.gateway) =>
    cellsIn("host", sampleWith("host-added", { host: { ...host, gateway } }))[0]?.gateway_id;
  expect(gatewayId({ id: 7, displayName: "Basement gateway" })).toBe("7");
  expect(gatewayId(null)).toBeNull();
});

test("a tag has a current row for each of its systems, and an ended row for each system that it left", () => {
  const system = (id: string) => ({ id, code: `320.${id}`, displayName: "Heating" });
  const event = sampleWith("tag-systems-changed", { systems: [system("1"), system("3")], before: ["1", "2"] });
  const rows = cellsIn("tag_system", event);
  expect(rows.map(({ system_id, is_current, valid_to }) => [system_id, is_current, valid_to])).toEqual([
    ["1", true, null],
    ["3", true, null],
    ["2", false, SEEN_MS],
  ]);
});

test("toUcum returns the UCUM code of an unambiguous unit, and null for all other units", () => {
  expect(["kWh", " °C ", "ppm", "m3/h", "m³/h", "Pa"].map(toUcumCode)).toEqual([
    ...["kW.h", "Cel", "[ppm]", "m3/h", "m3/h", "Pa"],
  ]);
  for (const unit of [null, "", "C", "kn?", "KWH", "binary", "toString", "__proto__"])
    expect(toUcumCode(unit)).toBe(null);
});
