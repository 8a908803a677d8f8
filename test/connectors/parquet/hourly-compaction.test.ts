import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { testFolder } from "../../test-resources.ts";
import { filesIn, query, rowsIn, tableIn } from "./duckdb-query.ts";
import { copyOf, createEngine, DAY_MS, type Engine, LAKES, openS3 } from "./engine.ts";
import { inS3 } from "./s3-server.ts";

const QUARTER_MS = 15 * 60_000;
const HOUR_MS = 4 * QUARTER_MS;
const DAY = "2026-11-21";
const DAY_START = Date.parse(DAY);
const STEPS = 96;
const PARTITIONS = [
  ["value", "1"],
  ["worker_event", "none"],
] as const;

async function lakeAt(where: "folder" | "s3", table_format: "plain" | "delta", more = {}) {
  const options = { table_format, max_age: "14m", ...more };
  if (where === "folder") {
    const folder = testFolder();
    return { config: { folder, ...options }, seen: () => folder, follow: () => undefined };
  }
  const s3 = await openS3();
  /** The storage has the clock of the sink. */
  const follow = (engine: Engine) => {
    s3.now = () => engine.wallMs();
  };
  return { config: inS3(s3, options), seen: () => copyOf(s3), follow };
}

/** A value of one of two sites, and an event of the worker itself, in the quarter `n` of the day. */
function eventsOf(n: number): readonly Event[] {
  const at = new Date(DAY_START + n * QUARTER_MS + 1_000).toISOString();
  const value = (site: string) => {
    const event = valueEvent(n, `1004${site}`);
    return { ...event, id: `${event.id} ${site}`, siteid: site, time: at, data: { ...event.data, time: at } };
  };
  const own = sampleEvent("source-unavailable");
  return [value("1"), value("2"), { ...own, id: `own ${n}`, time: at }];
}

async function live(engine: Engine, from: number, to: number, each: () => void = () => undefined) {
  for (let n = from; n < to; n++) {
    engine.log.push(...eventsOf(n));
    await engine.offer(100);
    engine.pass(QUARTER_MS);
    await engine.settleDown();
    each();
  }
}

async function passHours(engine: Engine, hours: number): Promise<void> {
  for (let hour = 0; hour < hours; hour++) {
    engine.pass(HOUR_MS);
    await engine.settleDown();
  }
}

const manifestOf = (folder: string, site: string) =>
  JSON.parse(readFileSync(join(folder, `_manifests/site=${site}/date=${DAY}.json`), "utf8"));

const filesOf = (folder: string, table: string, site: string) =>
  filesIn(folder, table).filter((file) => file.includes(`${table}/date=${DAY}/site=${site}/`));

const counted = async (folder: string, table: string) =>
  (await rowsIn(folder, table, "count(*)::INTEGER AS rows, count(DISTINCT event_id)::INTEGER AS events"))[0];

describe.each(LAKES)("a lake without history readings (%s, %s)", (where, format) => {
  test("a lake without history readings has few files today, and one file per table and site in a past day", async () => {
    const { config, follow, seen } = await lakeAt(where, format);
    const engine = createEngine(config);
    follow(engine);
    engine.setWall(DAY_START);
    let most = 0;
    await live(engine, 0, STEPS, () => {
      if (where === "folder")
        most = Math.max(most, ...PARTITIONS.map(([table, site]) => filesOf(seen(), table, site).length));
    });
    expect(Math.max(most, filesOf(seen(), "value", "1").length)).toBeLessThanOrEqual(30);
    await passHours(engine, 3);
    const closed = seen();
    for (const [table, site] of [...PARTITIONS, ["value", "2"]] as const) {
      expect(filesOf(closed, table, site), `${table} of ${site}`).toHaveLength(1);
    }
    expect(await counted(closed, "value")).toEqual({ rows: 2 * STEPS, events: 2 * STEPS });
    expect(await counted(closed, "worker_event")).toEqual({ rows: STEPS, events: STEPS });
    for (const [table, site] of PARTITIONS) {
      const manifest = manifestOf(closed, site);
      expect(manifest).toMatchObject({ date: DAY, complete: false, revision: 0, sealed_at: null, account: null });
      expect(manifest.tables[table]).toMatchObject({ rows: STEPS, files: [{ rows: STEPS }] });
      const name: string = manifest.tables[table].files[0].name;
      expect(filesOf(closed, table, site).map((file) => file.replaceAll("%3D", "="))).toEqual([name]);
    }
  });
});

describe.each(["plain", "delta"] as const)("hourly compaction with table_format %s", (format) => {
  test("hourly compaction compacts late rows of a past day in its next hourly runs, not at each commit", async () => {
    const { config, seen } = await lakeAt("folder", format);
    const engine = createEngine(config);
    engine.setWall(DAY_START);
    await live(engine, 0, 4);
    engine.setWall(DAY_START + 3 * DAY_MS);
    engine.pass(HOUR_MS);
    await engine.settleDown();
    expect(filesOf(seen(), "value", "1")).toHaveLength(1);
    await live(engine, 4, 6);
    expect(filesOf(seen(), "value", "1").length).toBeGreaterThan(1);
    await passHours(engine, 2);
    expect(filesOf(seen(), "value", "1")).toHaveLength(1);
    expect(await counted(seen(), "value")).toEqual({ rows: 12, events: 12 });
    expect(manifestOf(seen(), "1").tables.value.rows).toBe(6);
  });

  test("hourly compaction continues after a week without the worker, and after the sink state is lost", async () => {
    const { config, seen } = await lakeAt("folder", format);
    const engine = createEngine(config);
    engine.setWall(DAY_START);
    await live(engine, 0, 3);
    engine.setWall(DAY_START + 7 * DAY_MS);
    engine.kill();
    await engine.settleDown();
    expect(filesOf(seen(), "value", "1")).toHaveLength(1);
    const lost = createEngine(config);
    lost.setWall(DAY_START);
    await live(lost, 3, 6);
    const other = createEngine(config);
    other.setWall(DAY_START + DAY_MS);
    await other.settleDown();
    expect(filesOf(seen(), "value", "1")).toHaveLength(1);
    expect(await counted(seen(), "value")).toEqual({ rows: 12, events: 12 });
  });

  test("hourly compaction writes no manifest if the source reads history; the event day-sealed follows", async () => {
    const { config, seen } = await lakeAt("folder", format);
    const engine = createEngine(config, undefined, { readsHistory: true });
    engine.setWall(DAY_START);
    await live(engine, 0, 3);
    engine.pass(DAY_MS + HOUR_MS);
    await engine.settleDown();
    expect(filesOf(seen(), "value", "1")).toHaveLength(1);
    expect(readdirSync(seen())).not.toContain("_manifests");
  });
});

test("compaction skips a day with an unreadable file and compacts the other days", async () => {
  const { config, seen } = await lakeAt("folder", "plain");
  const engine = createEngine(config);
  engine.setWall(DAY_START);
  await live(engine, 0, 2);
  const [file = ""] = filesOf(seen(), "value", "1");
  writeFileSync(join(seen(), decodeURIComponent(file)), "no Parquet");
  engine.pass(DAY_MS + HOUR_MS);
  await engine.settleDown();
  expect(filesOf(seen(), "value", "2")).toHaveLength(1);
  engine.log.push(...eventsOf(5));
  expect(await engine.offer(10)).toBe(3);
});

test("alarms without a time and empty files are moved out of the partition of 1970", async () => {
  const { config, seen } = await lakeAt("folder", "plain");
  const engine = createEngine(config);
  const raised = sampleEvent("alarm-raised");
  const alarm = { ...raised.data.alarm, triggeredAt: "2026-11-02 08:00:00" };
  await engine.deliver({ ...raised, data: { ...raised.data, alarm } });
  const folder = seen();
  const undated = join(folder, "alarm_episode/date=__HIVE_DEFAULT_PARTITION__/site=1");
  expect(readdirSync(undated)).toEqual(["alarm_episode.parquet"]);
  mkdirSync(join(folder, "alarm_episode/date=1970-01-01"));
  renameSync(undated, join(folder, "alarm_episode/date=1970-01-01/site=1"));
  mkdirSync(join(folder, "value/date=1970-01-01/site=none"), { recursive: true });
  const [empty = ""] = readdirSync(join(folder, "value"), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith("empty.parquet"),
  );
  cpSync(join(folder, "value", empty), join(folder, "value/date=1970-01-01/site=none/empty.parquet"));
  rmSync(join(folder, "command"), { recursive: true });
  engine.kill();
  await engine.tick();
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  expect(names.filter((name) => name.includes("1970") && name.endsWith(".parquet"))).toEqual([]);
  expect(
    await query(`SELECT count(*)::INTEGER AS rows, any_value(date) AS date FROM ${tableIn(folder, "alarm_episode")}`),
  ).toEqual([{ rows: 1, date: null }]);
  for (const table of ["value", "command"]) {
    expect(await query(`SELECT count(*)::INTEGER AS rows FROM ${tableIn(folder, table)}`)).toEqual([{ rows: 0 }]);
  }
});
