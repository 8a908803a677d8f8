import { describe, expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Resolution, TagValue } from "#src/core/model/building.ts";
import { findSensorFindings } from "#src/engine/sync/sensors/sensor-findings.ts";
import { createSensorTable } from "#src/engine/sync/sensors/sensor-statistics.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { TAG } from "../../sample-events.ts";
import { replay, seed } from "../../seed.ts";

const HOUR = 3_600_000;
const START = Date.UTC(2026, 5, 1);
const WEEK_HOURS = 168;

interface WatchedTag {
  readonly live: (hour: number) => TagValue;
  readonly logged: (hour: number) => TagValue;
  readonly resolution?: Resolution;
}

function findKinds({ live, logged, resolution = "1h" }: WatchedTag) {
  const table = createSensorTable();
  for (let hour = 0; hour < WEEK_HOURS; hour++) {
    const atMs = START + hour * HOUR;
    table.addReading("10001", live(hour), hour, atMs + HOUR / 2);
    const points = TagPoints.fromMeasurements([{ time: new Date(atMs).toISOString(), value: logged(hour) }]);
    table.addPoints("10001", resolution, points, atMs + HOUR + 60_000);
  }
  const located = { tag: { ...TAG, unit: null }, siteId: 1, systemIds: [] };
  const sensors = [...table.rows()].map(([, row]) => ({ row, siteTag: located }));
  const found = findSensorFindings(sensors, { periodHours: WEEK_HOURS, mayStayConstant: () => false });
  return found.map(({ finding }) => finding);
}

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
    ["a meter whose value grows within the bucket", { live: (hour) => 10 * hour + 5, logged: (hour) => 10 * hour }],
    [
      "averages of a pump that switches on and off",
      { live: () => (random() < 0.4 ? 10 : 0), logged: () => 3.9 + random() / 5 },
    ],
    ["averages of a switch", { live: () => random() < 0.6, logged: () => 0.58 + random() / 20 }],
    ["a log that is rounded", { live: (hour) => day(hour), logged: (hour) => Math.round(day(hour)) }],
    ["a log without values", { live: day, logged: () => null }],
    ["a log with weekly buckets", { live: day, logged: (hour) => day(hour) * 1_000, resolution: "1w" }],
  ])("reports no finding for %s", (_, watched) => {
    expect(findKinds(watched), replay).toEqual([]);
  });
});
