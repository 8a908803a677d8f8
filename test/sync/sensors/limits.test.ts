import { describe, expect, test } from "vitest";
import { findSensorFindings, hasEnoughReadings } from "#src/engine/sync/sensors/sensor-findings.ts";
import type { SensorRow } from "#src/engine/sync/sensors/sensor-statistics.ts";

type LogOf = NonNullable<SensorRow["log"]>;

const ROW: SensorRow = {
  ...{ readings: 100, nulls: 0, hours: 100, spanHours: 168, min: 10, max: 20, type: "number", log: null },
};

/** A log that agrees; its pairs have the mean difference `off` each, and no spread. */
function logOf(more: Partial<LogOf> & { readonly each?: number } = {}): LogOf {
  const { each = 0, pairs = 20, ...rest } = more;
  return {
    ...{ resolution: "1h", replies: 100, leastLagMs: 0, pairs, off: each === 0 ? 0 : pairs },
    ...{ sumOff: each * pairs, sumOffSquared: each * each * pairs },
    ...{ sumLive: 100 * pairs, sumLogged: 100 * pairs, sumSize: 100 * pairs, min: 1, max: 2 },
    ...rest,
  };
}

function findInRows(rows: readonly Partial<SensorRow>[], unit: string | null = "kW", mayRest = false) {
  const sensors = rows.map((row, n) => ({
    row: { ...ROW, ...row },
    siteTag: { tag: { id: String(n), displayName: String(n), description: null, unit }, siteId: 1, systemIds: [] },
  }));
  return findSensorFindings(sensors, { periodHours: 168, mayStayConstant: () => mayRest });
}

const findKinds = (row: Partial<SensorRow>, unit?: string | null, mayRest?: boolean) =>
  findInRows([row], unit, mayRest).map(({ finding }) => finding);

describe("the least number of readings for a finding about a sensor", () => {
  test.each([
    [12, 120, 168, true],
    [11, 120, 168, false],
    [12, 119, 168, false],
    [6, 24, 24, true],
    [5, 24, 24, false],
    [12, 720, 744, true],
  ])(
    "allows a finding for readings in %i different hours, spread over %i of the period's %i hours: %s",
    (hours, spanHours, periodHours, expected) => {
      expect(hasEnoughReadings({ ...ROW, hours, spanHours }, periodHours)).toBe(expected);
    },
  );
});

describe("the limits of the sensor finding never-moved", () => {
  test.each([
    [0, "°C", true],
    [0, "kW", false],
    [0, null, false],
    [1, "kW", true],
    [100, "%", false],
    [-5, null, true],
  ])("allow a report for a constant value of %d %s: %s", (value, unit, expected) => {
    expect(findKinds({ min: value, max: value }, unit)).toEqual(expected ? ["never-moved"] : []);
  });

  test("allow a report for a tag with at most half of its readings null, unless the tag may stay constant", () => {
    const constantRange = { min: 5, max: 5 };
    expect(findKinds({ ...constantRange, nulls: 50 })).toEqual(["never-moved"]);
    expect(findKinds({ ...constantRange, nulls: 51 })).toEqual([]);
    expect(findKinds({ ...constantRange, max: 6 })).toEqual([]);
    expect(findKinds(constantRange, "kW", true)).toEqual([]);
    expect(findInRows([{ ...constantRange, nulls: 40 }], null)[0]).toMatchObject({
      message: "It was 5 at each of 60 readings.",
      value: 5,
    });
  });
});

test("the sensor finding always-null is reported only for a tag without any value", () => {
  const onlyNulls = { nulls: 100, min: 0, max: 0, type: "none" } as const;
  expect(findKinds(onlyNulls)).toEqual(["always-null"]);
  expect(findKinds({ ...onlyNulls, nulls: 99 })).toEqual([]);
  expect(findKinds({ ...onlyNulls, spanHours: 100 })).toEqual([]);
});

describe("the limits of the sensor finding log-differs", () => {
  // Mean 10; the standard error is the spread divided by the root of 16 pairs.
  const spread = (deviation: number) =>
    logOf({ pairs: 16, each: 10, sumOffSquared: 16 * (100 + deviation * deviation) });
  const ofBoolean = (off: number, on: number) => logOf({ off, sumLive: on, sumLogged: 5 });
  const standing = (off: number, max = 7) => logOf({ off, min: 7, max });
  const BOOLEAN = { type: "boolean", min: 0, max: 1 } as const;

  test.each<[string, boolean, LogOf, Partial<SensorRow>]>([
    ["whose mean difference is 5.1 % of the mean value", true, logOf({ each: 5.1 }), {}],
    ["whose mean difference is -5.1 % of the mean value", true, logOf({ each: -5.1 }), {}],
    ["whose mean difference is 5 % of the mean value", false, logOf({ each: 5 }), {}],
    ["with six pairs of live and logged values", true, logOf({ each: 5.1, pairs: 6 }), {}],
    ["with five pairs of live and logged values", false, logOf({ each: 5.1, pairs: 5 }), {}],
    ["that differs by 5 % of the range of live values", false, logOf({ each: 10 }), { min: 0, max: 200 }],
    ["that differs by 5.05 % of the range of live values", true, logOf({ each: 10.1 }), { min: 0, max: 200 }],
    ["of which half of the pairs differ", true, logOf({ each: 10, off: 10 }), {}],
    ["of which less than half of the pairs differ", false, logOf({ each: 10, off: 9 }), {}],
    ["with a mean difference above four standard errors", true, spread(9.9), {}],
    ["with a mean difference of four standard errors", false, spread(10), {}],
    ["of a boolean that is on 20.5 % of the time more", true, ofBoolean(15, 9.1), BOOLEAN],
    ["of a boolean that is on 20.5 % of the time less", true, ofBoolean(15, 0.9), BOOLEAN],
    ["of a boolean of which 70 % of the pairs differ", false, ofBoolean(14, 9.1), BOOLEAN],
    ["of a boolean that is on 20 % of the time more", false, ofBoolean(15, 9), BOOLEAN],
    ["that is constant while the live value moves", true, standing(15), {}],
    ["that is constant and of which 70 % of the pairs differ", false, standing(14), {}],
    ["that moves and of which 75 % of the pairs differ", false, standing(15, 8), {}],
    ["of a tag with too few readings to judge the live value", true, logOf({ each: 10 }), { hours: 1 }],
  ])("allow a report for a log %s: %s", (_log, isReported, log, row) => {
    expect(findKinds({ ...row, log })).toEqual(isReported ? ["log-differs"] : []);
  });

  test("states both averages with six digits, and the value of a constant log", () => {
    const [finding] = findInRows([{ log: logOf({ each: 20, sumLive: 2_400 / 7, sumLogged: 4_000 / 7 }) }]);
    expect(finding).toMatchObject({
      ...{ finding: "log-differs", value: 17.1429, logged: 28.5714, pairs: 20, resolution: "1h" },
      message: "At 20 times its live value was 17.1429 on average and its log 28.5714.",
    });
    const [constant] = findInRows([{ log: standing(15) }]);
    expect(constant?.message).toBe("Its log stands at 100 while its live value goes from 10 to 20.");
  });
});

describe("the limits of the sensor finding log-clock-off", () => {
  const HOUR = 3_600_000;
  const lagging = (leastLagMs: number, more: Partial<LogOf> = {}, others = 5) =>
    findInRows(
      [...Array<number>(others).fill(0), leastLagMs].map((lag, n) => ({
        log: logOf({ leastLagMs: lag, ...(n === others ? more : {}) }),
      })),
    );

  test.each([
    ["1h", 1.5 * HOUR, 0],
    ["1h", 1.5 * HOUR + 1, 1],
    ["1h", -1.5 * HOUR - 1, 1],
    ["5m", 30 * 60_000, 0],
    ["5m", 30 * 60_000 + 1, 1],
  ] as const)("a log with buckets of %s and a lag of %i ms gives %i findings", (resolution, lagMs, count) => {
    const rows = [0, 0, 0, 0, 0, lagMs].map((leastLagMs) => ({ log: logOf({ resolution, leastLagMs }) }));
    expect(findInRows(rows)).toHaveLength(count);
  });

  test("reports a late log after three replies if four other logs of the site also have three replies", () => {
    expect(lagging(9 * HOUR, { replies: 3 })).toHaveLength(1);
    expect(lagging(9 * HOUR, { replies: 2 })).toEqual([]);
    expect(lagging(9 * HOUR, {}, 4)).toHaveLength(1);
    expect(lagging(9 * HOUR, {}, 3)).toEqual([]);
    expect(lagging(9 * HOUR, { resolution: "1d" })).toEqual([]);
  });

  test("the message about a late log states the lag and its direction", () => {
    expect(lagging(3 * HOUR)[0]).toMatchObject({
      message: "The newest value of its log was never less than 3 h behind those of the other tags of the site.",
      lagMs: 3 * HOUR,
    });
    expect(lagging(-3 * HOUR)[0]?.message).toContain("3 h ahead of those");
  });
});
