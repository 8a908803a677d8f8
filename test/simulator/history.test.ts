import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { errorStatuses, type SimulatedService, simulatedService } from "./simulated-service.ts";

interface Point {
  readonly timestamp: string;
  readonly value: number | boolean | null;
}
type Parameters = Readonly<Record<string, string>>;
type History = NonNullable<SimulatorOptionsInput["history"]>;

const DAY = { from: "2026-11-20T00:00:00Z", to: "2026-11-21T00:00:00Z", resolution: "1h", tz: "UTC" };

function points(service: SimulatedService, query: Parameters): Point[] {
  return service.get("tags/history", { ...DAY, ...query }).body.data[0].measurements;
}

const withHistory = (history: History) => simulatedService({ history });
const rangeQuery = (from: string, to: string) => ({ from: `2026-${from}:00Z`, to: `2026-${to}:00Z` });

describe("validation of history requests", () => {
  const service = simulatedService();

  test("reports missing fields in the order of the specification", () => {
    const sources = (query: Parameters) =>
      service.get("tags/history", query).body.errors.map((error: { source: string }) => error.source);
    expect(sources({})).toEqual(["tags", "from", "to", "resolution", "tz"]);
    expect(sources({ tags: "10168", tz: "UTC" })).toEqual(["from", "to", "resolution"]);
  });

  test.each([
    ["from", "2026-11-20T00:00:00+01:00"],
    ["resolution", "15m"],
    ["tz", "Europe/Atlantis"],
    ["scalar", "yes"],
    ["to", "2026-11-19T00:00:00Z"],
  ])("rejects %s=%s with 422", (source, value) => {
    service.advance(60);
    const { errors } = service.get("tags/history", { tags: "10168", ...DAY, [source]: value }).body;
    expect(errors).toMatchObject([{ status: 422, source }]);
  });
});

describe("history buckets", () => {
  const listTimestamps = (now: string, from: string, to: string, tz: string, resolution: string) => {
    const service = simulatedService({ loops_before: 3, sites: [9] }, Date.parse(now));
    return points(service, { tags: "10192", from, to, tz, resolution }).map(({ timestamp }) => timestamp);
  };

  test.each([
    ["2027-04-02", ["2027-03-26T23", "2027-03-27T23", "2027-03-28T22", "2027-03-29T22"], "2027-03-30T22"],
    ["2026-11-02", ["2026-10-23T22", "2026-10-24T22", "2026-10-25T23"], "2026-10-26T23"],
  ])("aligns days to local time when the clocks change before %s", (now, starts, end) => {
    const expected = starts.map((start) => `${start}:00:00Z`);
    const foundStarts = listTimestamps(now, expected[0] ?? "", `${end}:00:00Z`, "Europe/Stockholm", "1d");
    expect(foundStarts).toEqual(expected);
  });

  test("returns 25 hourly buckets for a day when the clocks go back, and supports half-hour offsets", () => {
    const long = rangeQuery("10-24T22:00", "10-25T23:00");
    const hours = listTimestamps("2026-11-02", long.from, long.to, "Europe/Stockholm", "1h");
    expect([hours.length, new Set(hours).size]).toEqual([25, 25]);
    const short = rangeQuery("10-24T00:00", "10-24T03:00");
    const halfHours = listTimestamps("2026-11-02", short.from, short.to, "Asia/Kolkata", "1h");
    expect(halfHours.slice(1)).toEqual([0, 1, 2].map((hour) => `2026-10-24T0${hour}:30:00Z`));
  });

  test("returns the mean of analog samples and the last value of meters and booleans", () => {
    const service = simulatedService();
    const raw = points(service, { tags: "10192", resolution: "5m" }).map(({ value }) => Number(value));
    const [day] = points(service, { tags: "10192", resolution: "1d" });
    expect(raw).toHaveLength(144);
    expect(day?.value).toBeCloseTo(raw.reduce((sum, value) => sum + value, 0) / raw.length, 3);
    const meter = points(service, { tags: "10002" });
    expect(points(service, { tags: "10002", resolution: "1d" })[0]?.value).toBe(meter.at(-1)?.value);
    expect(typeof points(service, { tags: "10150" })[0]?.value).toBe("boolean");
  });

  test("returns null for a bucket of null samples and no point for a bucket without samples", () => {
    const service = simulatedService();
    service.simulator.control.setTag("10192", null);
    service.advance(4 * 3600);
    service.simulator.control.releaseTag("10192");
    service.advance(3600);
    const hours = points(service, { tags: "10192", ...rangeQuery("11-21T08:00", "11-21T15:00") });
    expect(hours.map(({ value }) => value === null)).toEqual([false, false, true, true, true, true, false]);
    const hourly = { tags: "10168", resolution: "5m", ...rangeQuery("11-20T08:00", "11-20T10:00") };
    const times = points(service, hourly).map(({ timestamp }) => timestamp);
    expect(times).toEqual(["2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z"]);
  });

  test("returns a provisional value for the current bucket and no point in the future", () => {
    const service = simulatedService();
    const query = { tags: "10192", resolution: "1d", ...rangeQuery("11-21T00:00", "12-01T00:00") };
    const earlyPoints = points(service, query);
    service.advance(6 * 3600);
    const laterPoints = points(service, query);
    expect([earlyPoints.length, laterPoints.length]).toEqual([1, 1]);
    expect(laterPoints[0]?.value).not.toBe(earlyPoints[0]?.value);
  });

  test("computes an incomplete bucket from the samples inside the range, or from all samples, as configured", () => {
    const cut = { tags: "10192", ...rangeQuery("11-20T00:30", "11-20T01:00") };
    const complete = points(simulatedService(), { ...cut, from: DAY.from });
    const [partial] = points(simulatedService(), cut);
    expect(partial?.timestamp).toBe(DAY.from);
    expect(partial?.value).not.toBe(complete[0]?.value);
    const unaligned = { ...cut, from: "2026-11-19T23:30:00Z" };
    expect(points(withHistory({ unaligned_range: "whole" }), unaligned)).toEqual(complete);
  });

  test.each([
    ["exclusive", 2],
    ["inclusive", 3],
  ] as const)("treats the end of the range as %s", (range_end, count) => {
    const query = { tags: "10168", ...rangeQuery("11-20T08:00", "11-20T10:00") };
    expect(points(withHistory({ range_end }), query)).toHaveLength(count);
  });

  test("changes a closed bucket when late samples arrive", () => {
    const service = withHistory({ late_data: { minutes: 180, share: 0.5 } });
    const query = { tags: "10192", ...rangeQuery("11-21T08:00", "11-21T09:00") };
    const pointsBefore = points(service, query);
    service.advance(3 * 3600);
    expect(points(service, query)[0]?.value).not.toBe(pointsBefore[0]?.value);
    expect(points(service, query)).toEqual(points(simulatedService(), query));
  });

  test("repeats the last value every five minutes with log_every_s", () => {
    expect(points(withHistory({ log_every_s: 300 }), { tags: "10168", resolution: "5m" })).toHaveLength(288);
  });
});

describe("history totals", () => {
  test("returns the last value of a meter minus its first value, in every form of response", () => {
    const series = points(simulatedService(), { tags: "10002" });
    const difference = Number(series.at(-1)?.value) - Number(series[0]?.value);
    const expectedTotal = expect.closeTo(difference, 3);
    const scalar = (history: History) => {
      const query = { tags: "10002", ...DAY, scalar: "1" };
      const { measurements, value } = withHistory(history).get("tags/history", query).body.data[0];
      return { measurements, value };
    };
    expect(difference).toBeGreaterThan(0);
    expect(scalar({})).toEqual({ measurements: [expectedTotal], value: undefined });
    expect(scalar({ scalar_form: "value" })).toEqual({ measurements: undefined, value: expectedTotal });
    expect(scalar({ scalar_form: "number" }).measurements).toEqual(expectedTotal);
    expect(scalar({ scalar_form: "object" }).measurements.value).toEqual(expectedTotal);
    expect(scalar({ scalar_form: "point" }).measurements[0].value).toEqual(expectedTotal);
  });

  test("continues or restarts a meter when the recording repeats, as configured", () => {
    const query = { tags: "10002", tz: "UTC", resolution: "1d", scalar: "1" };
    const times = { from: "2026-10-01T00:00:00Z", to: "2026-11-21T10:00:01Z" };
    const difference = (meters_on_loop: "continue" | "restart") =>
      simulatedService({ anchor: "start", loops_before: 1, history: { meters_on_loop } }).get("tags/history", {
        ...query,
        ...times,
      }).body.data[0].measurements[0];
    expect(difference("continue")).toBeGreaterThan(0);
    expect(difference("restart")).toBeLessThan(0);
  });
});

describe("tags without a log", () => {
  test("cause a 404 for the complete request", () => {
    const service = withHistory({ no_log: { tags: ["10169"] } });
    const { errors } = service.get("tags/history", { tags: "10168,10169", ...DAY }).body;
    expect(errors).toMatchObject([{ status: 404, message: expect.stringContaining("all tags have logs") }]);
    expect(errorStatuses(service.get("tags/history", { tags: "10168", ...DAY }))).toEqual([]);
  });

  test("are a seeded fraction of all tags, or all tags of some hosts", () => {
    const withoutLog = (cluster_by_host: boolean, seed: number) => {
      const { truth, world } = simulatedService({
        seed,
        replicate: 10,
        history: { no_log: { share: 0.1, cluster_by_host } },
      }).simulator;
      return [...world.tags.values()].filter(({ id }) => !truth.hasLog(id));
    };
    const ids = (seed: number) => withoutLog(false, seed).map(({ id }) => id);
    expect(ids(1).length / 3160).toBeCloseTo(0.1, 1);
    expect(ids(1)).toEqual(ids(1));
    expect(ids(2)).not.toEqual(ids(1));
    const clustered = withoutLog(true, 1);
    expect(new Set(clustered.map(({ hostId }) => hostId)).size).toBeLessThan(clustered.length);
  });
});

test("a history request for more than max_values values fails with 504", () => {
  const service = withHistory({ max_values: 100 });
  expect(errorStatuses(service.get("tags/history", { tags: "10192", ...DAY }))).toEqual([]);
  expect(errorStatuses(service.get("tags/history", { tags: "10192", ...DAY, resolution: "5m" }))).toEqual([504]);
});
