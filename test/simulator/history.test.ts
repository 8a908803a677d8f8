import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { errorsOf, simulatedService } from "./simulated-service.ts";

interface Point {
  readonly timestamp: string;
  readonly value: number | boolean | null;
}

const DAY = { from: "2026-11-20T00:00:00Z", to: "2026-11-21T00:00:00Z", resolution: "1h", tz: "UTC" };

function points(service: ReturnType<typeof simulatedService>, query: Record<string, string>): Point[] {
  return service.get("tags/history", { ...DAY, ...query }).body.data[0].measurements;
}

describe("what is asked", () => {
  const service = simulatedService();

  test("missing fields are told in the order of the specification", () => {
    const sources = (query: Record<string, string>) =>
      service.get("tags/history", query).body.errors.map((error: { source: string }) => error.source);
    expect(sources({})).toEqual(["tags", "from", "to", "resolution", "tz"]);
    expect(sources({ tags: "10168", tz: "UTC" })).toEqual(["from", "to", "resolution"]);
  });

  test.each([
    ["from", "2026-11-20T00:00:00+01:00"],
    ["to", "2026-11-21"],
    ["resolution", "15m"],
    ["tz", "Europe/Atlantis"],
    ["scalar", "yes"],
    ["to", "2026-11-19T00:00:00Z"],
  ])("refuses %s=%s", (source, value) => {
    service.advance(60);
    expect(service.get("tags/history", { tags: "10168", ...DAY, [source]: value }).body.errors).toMatchObject(
      [{ status: 422, source }],
    );
  });
});

describe("buckets", () => {
  test("a local day has 23 or 25 hours when the clocks change, and is stamped in UTC", () => {
    const stamps = (start: string, from: string, to: string, tz: string, resolution: string) =>
      points(simulatedService({ loops_before: 3, sites: [9] }, Date.parse(start)), {
        tags: "10192",
        from,
        to,
        tz,
        resolution,
      }).map((point) => point.timestamp);
    expect(
      stamps(
        "2027-04-02T00:00:00Z",
        "2027-03-26T23:00:00Z",
        "2027-03-30T22:00:00Z",
        "Europe/Stockholm",
        "1d",
      ),
    ).toEqual([
      "2027-03-26T23:00:00Z",
      "2027-03-27T23:00:00Z",
      "2027-03-28T22:00:00Z",
      "2027-03-29T22:00:00Z",
    ]);
    expect(
      stamps(
        "2026-11-02T00:00:00Z",
        "2026-10-23T22:00:00Z",
        "2026-10-26T23:00:00Z",
        "Europe/Stockholm",
        "1d",
      ),
    ).toEqual(["2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]);
    const hours = stamps(
      "2026-11-02T00:00:00Z",
      "2026-10-24T22:00:00Z",
      "2026-10-25T23:00:00Z",
      "Europe/Stockholm",
      "1h",
    );
    expect(hours).toHaveLength(25);
    expect(new Set(hours).size).toBe(25);
    expect(
      stamps(
        "2026-11-02T00:00:00Z",
        "2026-10-24T00:00:00Z",
        "2026-10-24T03:00:00Z",
        "Asia/Kolkata",
        "1h",
      ).slice(1),
    ).toEqual(["2026-10-24T00:30:00Z", "2026-10-24T01:30:00Z", "2026-10-24T02:30:00Z"]);
  });

  test("weeks begin on Monday, months on the first, in local time", () => {
    const service = simulatedService();
    const week = points(service, {
      tags: "10192",
      resolution: "1w",
      from: "2026-11-08T23:00:00Z",
      to: "2026-11-21T10:00:00Z",
      tz: "Europe/Oslo",
    });
    expect(week.map((point) => point.timestamp)).toEqual(["2026-11-08T23:00:00Z", "2026-11-15T23:00:00Z"]);
    const month = points(service, {
      tags: "10192",
      resolution: "1mo",
      from: "2026-10-31T23:00:00Z",
      to: "2026-11-21T10:00:00Z",
      tz: "Europe/Oslo",
    });
    expect(month.map((point) => point.timestamp)).toEqual(["2026-10-31T23:00:00Z"]);
  });

  test("mean of analog samples, last of meters and booleans", () => {
    const service = simulatedService();
    const raw = points(service, { tags: "10192", resolution: "5m" }).map((point) => Number(point.value));
    const [day] = points(service, { tags: "10192", resolution: "1d" });
    expect(raw).toHaveLength(144);
    expect(day?.value).toBeCloseTo(raw.reduce((sum, value) => sum + value, 0) / raw.length, 3);
    const meter = points(service, { tags: "10002" });
    expect(points(service, { tags: "10002", resolution: "1d" })[0]?.value).toBe(meter.at(-1)?.value);
    expect(typeof points(service, { tags: "10150" })[0]?.value).toBe("boolean");
  });

  test("null where every sample is null, nothing where there is no sample", () => {
    const service = simulatedService();
    service.simulator.control.setTag("10192", null);
    service.advance(4 * 3600);
    service.simulator.control.releaseTag("10192");
    service.advance(3600);
    const hours = points(service, {
      tags: "10192",
      from: "2026-11-21T08:00:00Z",
      to: "2026-11-21T15:00:00Z",
    });
    expect(hours.map(({ value }) => value === null)).toEqual([false, false, true, true, true, true, false]);
    const hourly = points(service, {
      tags: "10168",
      resolution: "5m",
      from: "2026-11-20T08:00:00Z",
      to: "2026-11-20T10:00:00Z",
    });
    expect(hourly.map(({ timestamp }) => timestamp)).toEqual([
      "2026-11-20T08:00:00Z",
      "2026-11-20T09:00:00Z",
    ]);
  });

  test("the open bucket is provisional: it is there, and changes until it closes; nothing lies in the future", () => {
    const service = simulatedService();
    const today = () =>
      points(service, {
        tags: "10192",
        resolution: "1d",
        from: "2026-11-21T00:00:00Z",
        to: "2026-12-01T00:00:00Z",
      });
    const early = today();
    service.advance(6 * 3600);
    const later = today();
    expect([early.length, later.length]).toEqual([1, 1]);
    expect(later[0]?.value).not.toBe(early[0]?.value);
  });

  test("a cut bucket comes from the samples inside the range, or whole", () => {
    const cut = { tags: "10192", from: "2026-11-20T00:30:00Z", to: "2026-11-20T01:00:00Z" };
    const whole = points(simulatedService(), {
      tags: "10192",
      from: "2026-11-20T00:00:00Z",
      to: "2026-11-20T01:00:00Z",
    });
    const partial = points(simulatedService(), cut);
    expect(partial[0]?.timestamp).toBe("2026-11-20T00:00:00Z");
    expect(partial[0]?.value).not.toBe(whole[0]?.value);
    expect(
      points(simulatedService({ history: { unaligned_range: "whole" } }), {
        ...cut,
        from: "2026-11-19T23:30:00Z",
      }),
    ).toEqual(whole);
  });

  test("the end of the range belongs to it only if so set", () => {
    const count = (range_end: "exclusive" | "inclusive") =>
      points(simulatedService({ history: { range_end } }), {
        tags: "10168",
        from: "2026-11-20T08:00:00Z",
        to: "2026-11-20T10:00:00Z",
      }).length;
    expect([count("exclusive"), count("inclusive")]).toEqual([2, 3]);
  });

  test("late samples change a bucket that has closed", () => {
    const service = simulatedService({ history: { late_data: { minutes: 180, share: 0.5 } } });
    const query = { tags: "10192", from: "2026-11-21T08:00:00Z", to: "2026-11-21T09:00:00Z" };
    const before = points(service, query);
    service.advance(3 * 3600);
    expect(points(service, query)[0]?.value).not.toBe(before[0]?.value);
    expect(points(service, query)).toEqual(points(simulatedService(), query));
  });

  test("a log that samples by itself holds the last value in every five minutes", () => {
    const service = simulatedService({ history: { log_every_s: 300 } });
    expect(points(service, { tags: "10168", resolution: "5m" })).toHaveLength(288);
    expect(points(service, { tags: "10168" })).toEqual(points(simulatedService(), { tags: "10168" }));
  });
});

describe("scalars", () => {
  const asked = { tags: "10002", ...DAY, scalar: "1" };
  const scalar = (history: SimulatorOptionsInput["history"]) => {
    const { measurements, value } = simulatedService({ history }).get("tags/history", asked).body.data[0];
    return { measurements, value };
  };

  test("last minus first of a meter, in every form", () => {
    const series = points(simulatedService(), { tags: "10002" });
    const total = Number(series.at(-1)?.value) - Number(series[0]?.value);
    expect(total).toBeGreaterThan(0);
    expect(scalar({})).toEqual({ measurements: [expect.closeTo(total, 3)], value: undefined });
    expect(scalar({ scalar_form: "value" })).toEqual({
      measurements: undefined,
      value: expect.closeTo(total, 3),
    });
    expect(scalar({ scalar_form: "number" }).measurements).toBeCloseTo(total, 3);
    expect(scalar({ scalar_form: "object" }).measurements.value).toBeCloseTo(total, 3);
    expect(scalar({ scalar_form: "point" }).measurements[0].value).toBeCloseTo(total, 3);
  });

  test("a meter goes on through a new pass of the recording, or restarts", () => {
    const over = (meters_on_loop: "continue" | "restart") =>
      simulatedService({ anchor: "start", loops_before: 1, history: { meters_on_loop } }).get(
        "tags/history",
        {
          tags: "10002",
          from: "2026-10-01T00:00:00Z",
          to: "2026-11-21T10:00:01Z",
          resolution: "1d",
          tz: "UTC",
          scalar: "1",
        },
      ).body.data[0].measurements[0];
    expect(over("continue")).toBeGreaterThan(0);
    expect(over("restart")).toBeLessThan(0);
  });
});

describe("tags without a log", () => {
  test("one of them fails the whole request with 404", () => {
    const service = simulatedService({ history: { no_log: { tags: ["10169"] } } });
    const answer = service.get("tags/history", { tags: "10168,10169", ...DAY });
    expect(answer.body.errors).toMatchObject([
      { status: 404, message: expect.stringContaining("all tags have logs") },
    ]);
    expect(errorsOf(service.get("tags/history", { tags: "10168", ...DAY }))).toEqual([]);
  });

  test("a share of all tags, seeded, or of whole hosts", () => {
    const lacking = (cluster_by_host: boolean, seed: number) => {
      const service = simulatedService({
        seed,
        replicate: 10,
        history: { no_log: { share: 0.1, cluster_by_host } },
        limits: { tag_endpoints: { limit: 10_000 } },
      });
      return [...service.simulator.world.tags.values()].filter(
        (tag) => errorsOf(service.get("tags/history", { tags: tag.id, ...DAY, to: DAY.from })).length > 0,
      );
    };
    const spread = lacking(false, 1);
    expect(spread.length / 3160).toBeCloseTo(0.1, 1);
    expect(lacking(false, 1).map((tag) => tag.id)).toEqual(spread.map((tag) => tag.id));
    expect(lacking(false, 2).map((tag) => tag.id)).not.toEqual(spread.map((tag) => tag.id));
    const clustered = lacking(true, 1);
    const hosts = new Set(clustered.map((tag) => tag.hostId));
    expect(hosts.size).toBeLessThan(clustered.length);
  });
});

test("an answer with too many values fails as set", () => {
  const service = simulatedService({ history: { max_values: 100 } });
  expect(errorsOf(service.get("tags/history", { tags: "10192", ...DAY }))).toEqual([]);
  expect(errorsOf(service.get("tags/history", { tags: "10192", ...DAY, resolution: "5m" }))).toEqual([504]);
});

test("the truth tells the same points as the answer", () => {
  const service = simulatedService();
  const told = service.simulator.truth.history({
    tagId: "10192",
    fromMs: Date.parse(DAY.from),
    toMs: Date.parse(DAY.to),
    resolution: "1h",
    tz: "UTC",
  });
  const answered = points(service, { tags: "10192" });
  expect(answered).toEqual(
    told.map(({ startMs, value }) => ({
      timestamp: `${new Date(startMs).toISOString().slice(0, 19)}Z`,
      value,
    })),
  );
});
