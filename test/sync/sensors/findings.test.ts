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

interface WatchedTag {
  readonly unit?: string | null;
  readonly live?: (hour: number) => TagValue;
  readonly everyHours?: number;
  readonly logged?: (hour: number) => TagValue | undefined;
  readonly resolution?: Resolution;
}

function buildRows(tags: Readonly<Record<string, WatchedTag>>) {
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

function findAll(
  table: Pick<ReturnType<typeof createSensorTable>, "rows">,
  tags: Readonly<Record<string, WatchedTag>> = {},
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

const findings = (tags: Readonly<Record<string, WatchedTag>>) => findAll({ rows: () => buildRows(tags) }, tags);
const findKinds = (watched: WatchedTag) => findings({ "10001": watched }).map(({ finding }) => finding);

describe("comparison of logs and live values", () => {
  const day = (hour: number) => 20 + 5 * Math.sin((hour / 24) * 2 * Math.PI);

  test.each<[string, WatchedTag]>([
    ["in Wh when the live value is in kWh", { live: (hour) => day(hour), logged: (hour) => day(hour) * 1_000 }],
    ["two degrees above the live value", { live: day, logged: (hour) => day(hour) + 2 }],
    ["that stands still while the live value moves", { live: day, logged: () => 20 }],
    ["that is inverted", { live: (hour) => hour % 24 < 16, logged: (hour) => hour % 24 >= 16 }],
  ])("reports log-differs for a log %s", (_, watched) => {
    expect(findKinds(watched)).toEqual(["log-differs"]);
  });

  const random = seededRandom(seed);
  test.each<[string, WatchedTag]>([
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
    expect(findKinds(watched), replay).toEqual([]);
  });
});
