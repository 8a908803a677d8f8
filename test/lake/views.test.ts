import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import { type Event, makeEvent } from "#src/core/model/event.ts";
import { ALARM, sampleEvent, TAG } from "../sample-events.ts";
import { fillTables, type Lake, openLake, rowsOfEvents, viewsIn } from "./duckdb.ts";

let lake: Lake;
beforeEach(async () => {
  lake = await openLake();
});
afterEach(() => lake.close());

const at = (time: string) => `2026-11-21T${time}:00.000Z`;

function value(time: string, number: number | null, tagId = TAG.id): Event {
  const sample = sampleEvent("tag-value");
  const data = { ...sample.data, tag: { ...TAG, id: tagId }, value: number, time: at(time) };
  return { ...sample, id: `tag-value.${tagId}${time}`, time: at(time), data } as Event;
}

function history(time: string, told: string, number: number, revised: boolean): Event {
  const sample = sampleEvent("tag-history");
  const data = { ...sample.data, tag: TAG, points: [{ time: at(time), value: number }], revised };
  return { ...sample, id: `tag-history.${time}${told}`, time: at(told), data } as Event;
}

function named(type: "tag-added" | "tag-changed" | "tag-removed", time: string, displayName: string): Event {
  const tag = { ...TAG, displayName };
  const data = type === "tag-changed" ? { tag, before: {} } : { tag };
  return makeEvent({
    type,
    source: sampleEvent("tag-value").source,
    subject: `site/1/tag/${TAG.id}`,
    time: at(time),
    siteId: 1,
    data: data as never,
    facts: [time],
  });
}

async function fill(events: readonly Event[]): Promise<void> {
  await fillTables(lake, rowsOfEvents(events));
  await lake.run(viewsIn("duckdb.sql").views);
}

test("docs/lake/duckdb.sql has a view of every table", () => {
  const { tables } = viewsIn("duckdb.sql");
  for (const { name } of LAKE_TABLES)
    expect(tables).toMatch(new RegExp(`VIEW "?${name}"? AS SELECT \\* FROM read_parquet\\('${name}/`));
});

describe("the DuckDB views of the lake", () => {
  test("current_value has the last value of each tag", async () => {
    await fill([value("10:00", 20), value("10:05", 21), value("10:03", 5, "other")]);
    expect(await lake.query("SELECT tag_id, value_number FROM current_value ORDER BY tag_id")).toEqual([
      { tag_id: TAG.id, value_number: 21 },
      { tag_id: "other", value_number: 5 },
    ]);
  });

  test("history_current has each bucket once, with its last revision", async () => {
    await fill([
      history("08:00", "09:00", 1, false),
      history("08:05", "09:00", 2, false),
      history("08:00", "11:00", 7, true),
      history("08:00", "10:00", 3, true),
    ]);
    expect(await lake.query("SELECT value_number FROM history_current ORDER BY time")).toEqual([
      { value_number: 7 },
      { value_number: 2 },
    ]);
  });

  test("alarm_duration has the duration of an ended alarm, and null for an active alarm", async () => {
    const raised = sampleEvent("alarm-raised");
    const alarm = { ...ALARM, triggeredAt: at("08:00"), resolvedAt: at("09:30"), status: "resolved" };
    const resolved = sampleEvent("alarm-resolved");
    const open = { ...ALARM, id: "2", triggeredAt: at("08:00") };
    await fill([
      { ...raised, data: { ...raised.data, alarm: { ...alarm, resolvedAt: null, status: "active" } } },
      { ...raised, id: "b", data: { ...raised.data, alarm: open, episode: "open" } },
      { ...resolved, time: at("09:31"), data: { ...resolved.data, alarm } },
    ]);
    expect(await lake.query("SELECT alarm_id, state, duration_s FROM alarm_duration ORDER BY duration_s")).toEqual([
      { alarm_id: ALARM.id, state: "resolved", duration_s: 5_400 },
      { alarm_id: "2", state: "active", duration_s: null },
    ]);
  });

  test("value_named has each value once, with the name of its tag at that time", async () => {
    await fill([
      sampleEvent("site-added"),
      named("tag-added", "10:00", "Supply"),
      named("tag-changed", "11:00", "Return"),
      value("09:00", 1),
      value("10:30", 2),
      value("11:00", 3),
      value("11:30", 4, "nobody knows"),
    ]);
    expect(await lake.query("SELECT value_number, tag_name, site_name FROM value_named ORDER BY time")).toEqual([
      { value_number: 1, tag_name: "Supply", site_name: "Kvarnholmen 4" },
      { value_number: 2, tag_name: "Supply", site_name: "Kvarnholmen 4" },
      { value_number: 3, tag_name: "Return", site_name: "Kvarnholmen 4" },
      { value_number: 4, tag_name: null, site_name: "Kvarnholmen 4" },
    ]);
  });
});
