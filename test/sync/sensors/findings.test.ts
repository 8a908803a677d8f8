import { describe, expect, test } from "vitest";
import { Points } from "#src/core/codec/points.ts";
import type { Resolution, TagValue } from "#src/core/model/building.ts";
import { findSensorFindings } from "#src/engine/sync/sensors/findings.ts";
import { createSensorTable } from "#src/engine/sync/sensors/sensor-table.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { replay, seed } from "../../seed.ts";

const HOUR = 3_600_000;
const START = Date.UTC(2026, 5, 1);
const WEEK_HOURS = 168;

interface Watched {
  readonly unit?: string | null;
  readonly live?: (hour: number) => TagValue;
  readonly everyHours?: number;
  readonly logged?: (hour: number) => TagValue | undefined;
  readonly resolution?: Resolution;
}

function rowsOf(tags: Readonly<Record<string, Watched>>) {
  const table = createSensorTable();
  for (let hour = 0; hour < WEEK_HOURS; hour++) {
    const atMs = START + hour * HOUR;
    for (const [id, { live, logged, everyHours = 1, resolution = "1h" }] of Object.entries(tags)) {
      if (live !== undefined && hour % everyHours === 0) table.read(id, live(hour), hour, atMs + HOUR / 2);
      const value = logged?.(hour);
      if (value !== undefined)
        table.logged(id, resolution, Points.of([{ time: new Date(atMs).toISOString(), value }]), atMs + HOUR + 60_000);
    }
  }
  return table.rows();
}

function judge(
  table: Pick<ReturnType<typeof createSensorTable>, "rows">,
  tags: Readonly<Record<string, Watched>> = {},
) {
  const sensors = [...table.rows()].map(([id, row]) => ({
    row,
    located: {
      tag: { id, displayName: id, description: null, unit: tags[id]?.unit ?? null },
      siteId: 1,
      systemIds: [],
    },
  }));
  return findSensorFindings(sensors, { periodHours: WEEK_HOURS, mayRest: () => false });
}

const findings = (tags: Readonly<Record<string, Watched>>) => judge({ rows: () => rowsOf(tags) }, tags);
const found = (watched: Watched) => findings({ "10001": watched }).map(({ finding }) => finding);

describe("comparison of logs and live values", () => {
  const day = (hour: number) => 20 + 5 * Math.sin((hour / 24) * 2 * Math.PI);

  test.each<[string, Watched]>([
    ["in Wh when the live value is in kWh", { live: (hour) => day(hour), logged: (hour) => day(hour) * 1_000 }],
    ["two degrees above the live value", { live: day, logged: (hour) => day(hour) + 2 }],
    ["that stands still while the live value moves", { live: day, logged: () => 20 }],
    ["that is inverted", { live: (hour) => hour % 24 < 16, logged: (hour) => hour % 24 >= 16 }],
  ])("reports log-differs for a log %s", (_, watched) => {
    expect(found(watched)).toEqual(["log-differs"]);
  });

  const random = seededRandom(seed);
  test.each<[string, Watched]>([
    ["a meter that counts on within the bucket", { live: (hour) => 10 * hour + 5, logged: (hour) => 10 * hour }],
    [
      "averages of a pump that goes on and off",
      { live: () => (random() < 0.4 ? 10 : 0), logged: () => 3.9 + random() / 5 },
    ],
    ["averages of a switch", { live: () => random() < 0.6, logged: () => 0.58 + random() / 20 }],
    ["a log that is rounded", { live: (hour) => day(hour), logged: (hour) => Math.round(day(hour)) }],
    ["a log without values", { live: day, logged: () => null }],
    ["a log of weeks", { live: day, logged: (hour) => day(hour) * 1_000, resolution: "1w" }],
  ])("reports no finding for %s", (_, watched) => {
    expect(found(watched), replay).toEqual([]);
  });

  test("compares a 5-minute log with one value per hour, but not a log with one value in three hours", () => {
    const pairsWith = (everyHours: number) => {
      const rows = rowsOf({
        "1": { live: () => 20, logged: (hour) => (hour % everyHours === 0 ? 20 : undefined), resolution: "5m" },
      });
      return [...rows][0]?.[1].log?.pairs;
    };
    expect(pairsWith(1)).toBeGreaterThan(70);
    expect(pairsWith(3)).toBe(0);
  });
});

describe("stored statistics of sensors", () => {
  test("statistics of hundreds of tags are the same after packing and loading", () => {
    const random = seededRandom(seed);
    const table = createSensorTable();
    for (let n = 0; n < 5_000; n++) {
      const id = String(Math.floor(random() * 600));
      if (random() < 0.5) table.read(id, random() < 0.2 ? null : random() * 100, n % 168, START + n * HOUR);
      else
        table.logged(
          id,
          "5m",
          Points.of([{ time: new Date(START + n * HOUR).toISOString(), value: random() }]),
          START + n * HOUR,
        );
    }
    expect(table.groups()).toBe(3);
    expect(table.changedGroups()).toHaveLength(3);
    const again = createSensorTable();
    for (const group of table.changedGroups()) again.load(JSON.parse(JSON.stringify(table.pack(group))));
    expect([...again.rows()], replay).toEqual([...table.rows()]);
    expect(table.changedGroups()).toEqual([]);
    table.read("5", 1, 1, null);
    expect(table.changedGroups()).toHaveLength(1);
  });
});
