import { describe, expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Resolution, TagValue } from "#src/core/model/building.ts";
import type { SensorFinding } from "#src/core/model/tag-event-data.ts";
import { SilentSensorsConfig } from "#src/engine/sync/sensors/config.ts";
import { createSensorTable, distanceFromBuckets } from "#src/engine/sync/sensors/sensor-statistics.ts";
import { splitReport } from "#src/engine/sync/sensors/silent-sensor-watch.ts";
import { SITE, TAG } from "../../sample-events.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const START = Date.UTC(2026, 5, 1);

function watchTag(resolution: Resolution = "1h") {
  const table = createSensorTable();
  const lengthMs = { "5m": 5 * MINUTE, "1h": HOUR, "1d": 24 * HOUR }[resolution as "5m" | "1h" | "1d"];
  const row = () => {
    const [first] = [...table.rows()];
    if (first === undefined) throw new Error("no row");
    return first[1];
  };
  return {
    table,
    row,
    read: (hour: number, value: TagValue) => table.addReading("1", value, Math.floor(hour), START + hour * HOUR),
    log(...buckets: readonly (readonly [hour: number, value: TagValue])[]) {
      const points = buckets.map(([hour, value]) => ({ time: new Date(START + hour * HOUR).toISOString(), value }));
      const lastHour = Math.max(...buckets.map(([hour]) => hour));
      table.addPoints("1", resolution, TagPoints.fromMeasurements(points), START + lastHour * HOUR + lengthMs + MINUTE);
    },
    pairs: () => row().log?.pairs,
  };
}

describe("readings in the sensor table", () => {
  test("are counted per tag, with the nulls, the hours with a value, the smallest and largest value, and the value type", () => {
    const one = watchTag();
    for (const [hour, value] of [
      [2, 7],
      [2.5, null],
      [5, -3],
    ] as const)
      one.read(hour, value);
    expect(one.row()).toMatchObject({
      ...{ readings: 3, nulls: 1, hours: 2, spanHours: 4, min: -3, max: 7, type: "number", log: null },
    });
    one.read(5, true);
    expect(one.row()).toMatchObject({ type: "mixed", min: -3, max: 7, hours: 2 });
  });
});

describe("pairs of a live value and a log bucket", () => {
  test("are formed from a reading and the bucket that contains its time, when the next bucket arrives", () => {
    const one = watchTag();
    one.read(0.5, 21.5);
    one.log([0, 20]);
    expect(one.pairs()).toBe(0);
    one.log([1, 20]);
    expect(one.row().log).toMatchObject({
      ...{ resolution: "1h", replies: 2, leastLagMs: MINUTE },
      ...{ pairs: 1, off: 1, sumOff: 1, sumOffSquared: 1 },
      ...{ sumLive: 21.5, sumLogged: 20, sumSize: 21.5, min: 20, max: 20 },
    });
  });

  test("are summed: the differences, and the larger of both absolute values of each pair", () => {
    const one = watchTag();
    one.log([0, 10]);
    for (const [hour, live, logged] of [
      [1, 8, 10],
      [2, 10, 10],
      [3, -12.5, 10],
    ] as const) {
      one.read(hour - 0.5, live);
      one.log([hour, logged]);
    }
    expect(one.row().log).toMatchObject({
      ...{ pairs: 3, off: 2, sumOff: -1.5 - 22, sumOffSquared: 1.5 ** 2 + 22 ** 2 },
      ...{ sumLive: 5.5, sumLogged: 30, sumSize: 10 + 10 + 12.5, min: 10, max: 10 },
    });
  });

  test.each([
    ["pairs a reading at the very beginning of its bucket", 1, 1],
    ["does not pair a reading before its bucket", 0.99, 0],
    ["does not pair a reading at the end of its bucket, where the next bucket begins", 2, 0],
  ])("the sensor table %s", (_, hour, pairs) => {
    const one = watchTag();
    one.log([1, 5]);
    one.read(hour, 5);
    one.log([2, 5]);
    expect(one.pairs()).toBe(pairs);
  });

  test("a live value within the range of the previous log bucket agrees with the log, unless that bucket is too old", () => {
    for (const [before, off] of [
      [1, 0],
      [-1, 1],
    ] as const) {
      const one = watchTag();
      one.log([before, 10], [2, 20]);
      one.read(2.5, 12);
      one.log([3, 30]);
      expect(one.row().log).toMatchObject({ pairs: 1, off });
    }
  });

  test.each([
    ["5m", 2, 1],
    ["5m", 2.01, 0],
    ["1d", 36, 1],
    ["1d", 36.01, 0],
  ] as const)(
    "log buckets of %s that are %d hours apart give %i pairs of live and logged values",
    (resolution, hours, pairs) => {
      const one = watchTag(resolution);
      one.log([0, 5]);
      one.read(0.01, 5);
      one.log([hours, 5]);
      expect(one.pairs()).toBe(pairs);
    },
  );

  test("contain only the first reading in each bucket, and no reading with an unreliable time", () => {
    const one = watchTag();
    one.log([0, 5]);
    one.table.addReading("1", 99, 0, null);
    one.read(0.2, 5);
    one.read(0.4, 99);
    one.log([1, 5]);
    one.read(1.2, 6);
    one.log([2, 5]);
    expect(one.row().log).toMatchObject({ pairs: 2, sumLive: 11 });
  });
});

describe("replies of history in the sensor table", () => {
  test("leave the smallest delay between a reply and its newest value in the table", () => {
    const one = watchTag();
    const reply = (hour: number, lateMs: number, ...values: readonly TagValue[]) =>
      one.table.addPoints(
        "1",
        "1h",
        TagPoints.fromMeasurements(
          values.map((value, n) => ({ time: new Date(START + (hour + n) * HOUR).toISOString(), value })),
        ),
        START + (hour + 1) * HOUR + lateMs,
      );
    reply(0, 9 * MINUTE, 1);
    reply(1, 4 * MINUTE, 1, null, null);
    reply(2, 6 * MINUTE, 1);
    reply(3, MINUTE, null);
    reply(4, MINUTE);
    expect(one.row().log).toMatchObject({ replies: 3, leastLagMs: 4 * MINUTE });
  });

  test("replace a coarser series with a finer series, and are ignored if coarser than the stored series", () => {
    const one = watchTag();
    one.log([0, 1]);
    one.read(0.5, 1);
    one.log([1, 1]);
    expect(one.row().log).toMatchObject({ resolution: "1h", replies: 2, pairs: 1 });
    const points = TagPoints.fromMeasurements([{ time: new Date(START).toISOString(), value: 1 }]);
    one.table.addPoints("1", "5m", points, START + HOUR);
    expect(one.row().log).toMatchObject({ resolution: "5m", replies: 1, pairs: 0, sumLive: 0 });
    one.table.addPoints("1", "1d", points, START + 24 * HOUR);
    expect(one.row().log).toMatchObject({ resolution: "5m", replies: 1 });
  });
});

test.each([
  [21.04, [20.9, 21, 21], 0],
  [21.6, [20.9, 21, 21], 0.55],
  [0.06, [0.05], 0.005],
  [0.04, [0.05], -0.005],
  [2e-7, [1e-7], 0],
  [2, [1], 0.5],
])("a live value %d differs from the buckets %j by %d", (live, values, off) => {
  const buckets = values.map((value) => ({ atMs: 0, value }));
  expect(distanceFromBuckets(live, buckets)).toBeCloseTo(off, 9);
});

test("the configuration of silent sensors accepts periods from 1d to 31d and class names of one letter", () => {
  const isTaken = (config: object) => SilentSensorsConfig.safeParse(config).success;
  for (const config of [{ every: "1d" }, { every: "31d" }, { exclude: { classes: ["a"] } }, {}])
    expect(isTaken(config), JSON.stringify(config)).toBe(true);
  for (const config of [{ every: "23h" }, { every: "32d" }, { exclude: { classes: [""] } }])
    expect(isTaken(config), JSON.stringify(config)).toBe(false);
  expect(SilentSensorsConfig.parse(false)).toBe(false);
  expect(SilentSensorsConfig.safeParse(true).success).toBe(false);
  expect(SilentSensorsConfig.parse({})).toMatchObject({ every: 7 * 24 * HOUR, may_rest: { units: [""] } });
});

describe("parts of a long report on silent sensors", () => {
  function findingOfLength(characters: number): SensorFinding {
    const emptyFields = { value: null, logged: null, pairs: null, lagMs: null, resolution: null };
    const shortFinding: SensorFinding = { finding: "always-null", tag: TAG, message: "", readings: 9, ...emptyFields };
    return { ...shortFinding, message: "x".repeat(characters - JSON.stringify(shortFinding).length) };
  }

  const countPerPart = (findings: readonly SensorFinding[]) =>
    splitReport(SITE, { from: "a", to: "b", watchedHours: 1 }, { tags: 1, judged: 1, findings }).map(
      (part) => part.findings.length,
    );

  test("a part has at most 500 findings and 150,000 characters", () => {
    expect(countPerPart([])).toEqual([0]);
    expect(countPerPart(Array(500).fill(findingOfLength(300)))).toEqual([500]);
    expect(countPerPart(Array(501).fill(findingOfLength(300)))).toEqual([500, 1]);
    const halfPart = findingOfLength(75_000);
    expect(countPerPart([halfPart, halfPart])).toEqual([2]);
    expect(countPerPart([halfPart, findingOfLength(75_001)])).toEqual([1, 1]);
    expect(countPerPart([halfPart, findingOfLength(75_001), findingOfLength(74_999)])).toEqual([1, 2]);
    expect(countPerPart([findingOfLength(200_000), findingOfLength(300)])).toEqual([1, 1]);
  });
});
