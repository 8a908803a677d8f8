import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import type { SiteCompleteFact } from "#src/core/model/history-event-data.ts";
import { absent } from "../../real-servers.ts";
import { ALARM, sampleEvent, TAG, valueEvent } from "../../sample-events.ts";
import { createDatabase, type Database, sinkIn, useServer, write } from "./test-database.ts";

const file = join(import.meta.dirname, "../../../docs/lake/postgresql.sql");

function valueAt(time: string, value: number): Event {
  const event = valueEvent(value, TAG.id, value);
  return { ...event, id: `tag-value.${time}`, time, data: { ...event.data, time } };
}

function historyOf(value: number, revised: boolean, fact: string): Event {
  const event = sampleEvent("tag-history", {}, fact);
  const points = [{ time: "2026-11-02T04:00:00Z", value }, ...event.data.points.slice(1)];
  return { ...event, data: { ...event.data, points: revised ? points.slice(0, 1) : points, revised } };
}

function siteComplete(until: string): SiteCompleteFact {
  const site = { id: 1, displayName: "Kvarnholmen 4" };
  const series = { resolution: "1h" as const, timeZone: "Europe/Oslo", total: false, series: 3 };
  return { site, ...series, from: null, until, waiting: [], waitingCount: 0 };
}

describe.skipIf(absent("postgres"))("the SQL views in docs/lake/postgresql.sql", () => {
  const server = useServer();
  let database: Database;

  beforeAll(async () => {
    database = await createDatabase(server());
    const sink = database.sink();
    const added = sampleEvent("tag-added", { time: "2026-11-02T05:00:00.000Z" });
    const renamed = sampleEvent("tag-changed", { time: "2026-11-02T07:00:00.000Z" });
    await write(sink, [
      sampleEvent("site-added"),
      sampleEvent("system-added"),
      added,
      { ...renamed, data: { ...renamed.data, tag: { ...TAG, displayName: "VS1-GT12" } } },
      valueAt("2026-11-01T00:00:00.000Z", 1),
      valueAt("2026-11-02T06:00:00.000Z", 2),
      valueAt("2026-11-02T08:00:00.000Z", 3),
      historyOf(20.5, false, "first"),
      historyOf(20.7, true, "late data"),
      sampleEvent("alarm-raised"),
    ]);
    await database.query(`insert into plenum.tag_system (source, site_id, tag_id, system_id, valid_from, valid_to, is_current, observed_at, event_id, position)
values ('main', '1', '${TAG.id}', '5', '2026-11-02T05:00:00Z', '2026-11-02T07:00:00Z', false, now(), 'x', 1)`);
    await database.query(readFileSync(file, "utf8"));
    await sink.close();
  });

  test("the SQL views can be created a second time", async () => {
    await database.query(readFileSync(file, "utf8"));
  });

  test("current_value has the last value of each tag", async () => {
    const rows = await database.query("select source, tag_id, name, value_number from plenum.current_value");
    expect(rows).toEqual([["main", TAG.id, "VS1-GT12", 3]]);
  });

  test("history_current has only the last value of each bucket, and history has all values", async () => {
    const [[all] = []] = await database.query("select count(*)::int from plenum.history");
    expect(all).toBe(4);
    expect(await database.query("select value_number, revision > 0 from plenum.history_current order by time")).toEqual(
      [
        [20.7, true],
        [null, false],
        [21, false],
      ],
    );
  });

  test("alarm_duration counts to the end of an ended alarm, and to now for an active alarm", async () => {
    const durations =
      "select is_active, duration = ended_at - triggered_at, duration > interval '0' from plenum.alarm_duration";
    expect(await database.query(durations)).toEqual([[true, null, true]]);
    await write(sinkIn(database), [sampleEvent("alarm-resolved")], 100);
    expect(await database.query(durations)).toEqual([[false, true, true]]);
    const [[seconds] = []] = await database.query("select duration_s from plenum.alarm_duration");
    expect(seconds).toBe((Date.parse("2026-11-02T06:20:00Z") - Date.parse(ALARM.triggeredAt)) / 1_000);
  });

  test("history_named has each bucket once, with the names valid at its time", async () => {
    const query = "select value_number, tag_name, site_name from plenum.history_named order by time limit 1";
    expect(await database.query(query)).toEqual([[20.7, "VS1-GT11", "Kvarnholmen 4"]]);
  });

  test("completeness has the last revision of a day, and watermark the last state of a site", async () => {
    const sealed = sampleEvent("day-sealed");
    const later = sampleEvent("day-sealed", {}, "again");
    await write(sinkIn(database), [
      sealed,
      { ...later, data: { ...later.data, revision: 2, had: 7, null: 1 } },
      sampleEvent("history-complete"),
      { ...sampleEvent("history-complete", {}, "site"), data: siteComplete("2026-11-01") },
      { ...sampleEvent("history-complete", {}, "later"), data: siteComplete("2026-11-02") },
    ]);
    const days = await database.query(
      "select source, site_id, date::text, revision, had, nulls from plenum.completeness",
    );
    expect(days).toEqual([["main", sealed.siteid, sealed.data.date, "2", "7", "1"]]);
    const watermarks = await database.query(
      "select resolution, is_total, complete_from::text, complete_until::text, series from plenum.watermark",
    );
    expect(watermarks).toEqual([["1h", false, null, "2026-11-02", "3"]]);
  });

  test("value_named has each value once, with the names valid at its time", async () => {
    const query = "select value_number, tag_name, site_name, system_names from plenum.value_named order by time";
    expect(await database.query(query)).toEqual([
      [1, "VS1-GT11", "Kvarnholmen 4", ["Heating 1"]],
      [2, "VS1-GT11", "Kvarnholmen 4", ["Heating 1"]],
      [3, "VS1-GT12", "Kvarnholmen 4", null],
    ]);
  });
});
