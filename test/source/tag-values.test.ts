import { describe, expect, it } from "vitest";
import { errorOf, never, openHarness, reply, TOKEN, tagRecord } from "./source-harness.ts";

const AT = "2026-06-01T00:00:00Z";
const RANGE = { tagIds: ["1"], from: AT, to: "2026-06-02T00:00:00Z", resolution: "1h", timeZone: "UTC" } as const;

const notes = async (harness: ReturnType<typeof openHarness>) =>
  (await harness.metrics.unknownWords.get()).values.map((entry) => (entry.labels as { field: string }).field);

const record = (id: string, value: unknown) => ({ ...tagRecord(id), value });

describe("values of a read response", () => {
  it.each([21.5, 0, -3, true, false, null])("the value %s of a read response is returned unchanged", async (value) => {
    const harness = openHarness(() => reply(200, { data: [{ ...tagRecord("1"), value }] }));
    expect((await harness.source.read(["1"], "live", never())).readings).toMatchObject([{ id: "1", value }]);
  });

  it.each([
    ["21.5", 21.5],
    ["-0.5", -0.5],
    ["1e3", 1_000],
  ])("the text %j is returned as a number", async (text, value) => {
    const harness = openHarness(() => reply(200, { data: [{ ...tagRecord("1"), value: text }] }));
    expect((await harness.source.read(["1"], "live", never())).readings).toMatchObject([{ id: "1", value }]);
    await harness.source.read(["1"], "live", never());
    const { values } = await harness.metrics.unknownWords.get();
    expect(values).toMatchObject([{ labels: { field: "value.text" }, value: 1 }]);
  });

  it.each(['"21,5"', '" 21.5"', '"0x10"', '"NaN"', '"1."', '""', "[1]", "{}", "1e999", '"null"'])(
    "a tag with the value %s is omitted and counted, and the other tags are kept",
    async (value) => {
      const good = JSON.stringify({ ...tagRecord("2"), value: 7 });
      const bad = `{"type":"tags","id":"1","attributes":{},"value":${value}}`;
      const harness = openHarness(() => reply(200, `{"data":[${bad},${good}]}`));
      const { readings } = await harness.source.read(["1", "2"], "live", never());
      expect(readings.map((reading) => reading.id)).toEqual(["2"]);
      expect(await notes(harness)).toContain("tag.value");
    },
  );

  it("requested tags without a value in the reply are counted and returned with the reason", async () => {
    const harness = openHarness(() => reply(200, { data: [record("1", "n/a"), record("2", 7)] }));
    const { unreadTags: leftOut } = await harness.source.read(["1", "2", "3"], "live", never());
    expect(leftOut).toEqual([
      { id: "1", kind: "unreadable", reason: 'Its value is the text "n/a", and no number, boolean or null.' },
      { id: "3", kind: "unanswered", reason: "The reply does not list it." },
    ]);
    expect(await notes(harness)).toEqual(expect.arrayContaining(["tag.value", "tag.unanswered"]));
  });

  it("the record of a tag that was not requested is omitted, and a repeated record counts once", async () => {
    const harness = openHarness(() => reply(200, { data: [record("9", 9), record("1", 1), record("1", "1")] }));
    const { readings } = await harness.source.read(["1", "2"], "live", never());
    expect(readings.map(({ id, value }) => [id, value])).toEqual([["1", 1]]);
  });

  it("a tag listed twice with different values is unreadable", async () => {
    const data = [record("1", 1), record("2", 7), record("1", 2)];
    const harness = openHarness(() => reply(200, { data }));
    const { readings, unreadTags: leftOut } = await harness.source.read(["1", "2"], "live", never());
    expect(readings.map(({ id, value }) => [id, value])).toEqual([["2", 7]]);
    const reason = "The reply lists it 2 times with different values: 1 and 2.";
    expect(leftOut).toEqual([{ id: "1", kind: "unreadable", reason }]);
  });

  it("a record without an id makes the reply malformed", async () => {
    const harness = openHarness(() => reply(200, { data: [{ attributes: {}, value: 1 }] }));
    expect(await errorOf(harness.source.read(["1"], "live", never()))).toMatchObject({ kind: "malformed" });
  });
});

describe("logs of a history response", () => {
  const log = (measurements: unknown) => () => reply(200, { data: [{ ...tagRecord("1"), measurements }] });

  it("timestamps with any UTC offset are converted to UTC, and null values stay null", async () => {
    const harness = openHarness(
      log([
        { timestamp: "2026-06-01T00:00:00Z", value: 1 },
        { timestamp: "2026-06-01T03:00:00+02:00", value: null },
        { timestamp: "2026-06-01T02:00:00.000Z", value: true },
        { timestamp: "2026-06-01T03:00:00Z", value: "4" },
        { timestamp: "2026-06-01T04:00:00Z", value: "4,5" },
        { timestamp: "2026-06-01T05:00:00Z" },
      ]),
    );
    const [series] = await harness.source.history(RANGE, "history", never());
    expect([...(series?.measurements ?? [])]).toEqual([
      { time: "2026-06-01T00:00:00.000Z", value: 1 },
      { time: "2026-06-01T01:00:00.000Z", value: null },
      { time: "2026-06-01T02:00:00.000Z", value: true },
      { time: "2026-06-01T03:00:00.000Z", value: 4 },
    ]);
    expect(series?.unreadable).toEqual({
      timesMs: [Date.parse("2026-06-01T04:00:00Z"), Date.parse("2026-06-01T05:00:00Z")],
      said: 'The value at 2026-06-01T04:00:00.000Z is the text "4,5", and no number, boolean or null.',
    });
    expect((await harness.metrics.unknownWords.get()).values).toMatchObject([
      { labels: { field: "measurement.value" }, value: 2 },
      { labels: { field: "value.text" }, value: 1 },
    ]);
  });

  const noon = { timestamp: "noon", value: 1 };
  it.each([
    [null, "The measurements of the log are null, and no list."],
    [5, "The measurements of the log are 5, and no list."],
    [{}, "The measurements of the log are the object {}, and no list."],
    [[{ value: 1 }], "The time of a measurement is missing, and no time."],
    [[{ timestamp: AT, value: 1 }, noon], 'The time of a measurement is the text "noon", and no time.'],
    [[7], "A measurement is 7, and no object."],
  ])("a log with the measurements %j is unreadable, without effect on other logs", async (measurements, said) => {
    const good = { ...tagRecord("2"), measurements: [{ timestamp: AT, value: 1 }] };
    const harness = openHarness(() => reply(200, { data: [{ ...tagRecord("1"), measurements }, good] }));
    const query = { ...RANGE, tagIds: ["1", "2"] };
    const logs = await harness.source.history(query, "history", never());
    expect(logs.map((each) => [...each.measurements].length)).toEqual([0, 1]);
    expect(logs.map(({ unreadable }) => unreadable)).toEqual([{ timesMs: null, said }, undefined]);
  });

  it.each([
    [1, 1, 1, undefined],
    [1, 2, 0, "The reply lists the log more than once with different measurements."],
  ])("a log listed twice with %j and %j is readable only if equal", async (one, other, count, said) => {
    const of = (value: number) => ({ ...tagRecord("1"), measurements: [{ timestamp: AT, value }] });
    const harness = openHarness(() => reply(200, { data: [of(one), of(other)] }));
    const [series] = await harness.source.history(RANGE, "history", never());
    expect([...(series?.measurements ?? [])]).toHaveLength(count);
    expect(series?.unreadable?.said).toBe(said);
  });

  it("a message that quotes a value of a log has no secrets and no control characters", async () => {
    const value = `\u001b[31m${TOKEN} ${"x".repeat(5_000)}`;
    const harness = openHarness(log([{ timestamp: AT, value }]));
    const [series] = await harness.source.history(RANGE, "history", never());
    expect(series?.unreadable?.said).toHaveLength(146);
    expect(series?.unreadable?.said).toContain("[redacted]");
    expect(series?.unreadable?.said).not.toMatch(/\p{Cc}/u);
  });
});

describe("totals in all their forms", () => {
  const total = (record: object) => openHarness(() => reply(200, { data: [{ ...tagRecord("1"), ...record }] }));

  it.each([
    ["value", { value: 42.5 }, 42.5],
    ["measurements as a number", { measurements: 42.5 }, 42.5],
    ["measurements with one number", { measurements: [42.5] }, 42.5],
    ["measurements as an object", { measurements: { value: 42.5 } }, 42.5],
    ["measurements with one object", { measurements: [{ value: 42.5 }] }, 42.5],
    ["with a timestamp", { measurements: [{ timestamp: "2026-06-01T00:00:00Z", value: 42.5 }] }, 42.5],
    ["value next to empty measurements", { value: 42.5, measurements: [] }, 42.5],
    ["null value next to measurements", { value: null, measurements: [42.5] }, 42.5],
    ["negative after a reset", { measurements: [-900] }, -900],
    ["zero", { value: 0 }, 0],
    ["a number as text", { value: "42.5" }, 42.5],
    ["a number as text in measurements", { measurements: ["42.5"] }, 42.5],
    ["null", { value: null }, null],
    ["null in measurements", { measurements: [null] }, null],
    ["no measurements in the period", { measurements: [] }, null],
  ])("a total is read from: %s", async (_name, record, expected) => {
    expect(await total(record).source.totals(RANGE, "history", never())).toMatchObject([{ id: "1", total: expected }]);
  });

  it.each([
    ["neither value nor measurements", {}],
    ["text", { value: "42,5" }],
    ["a boolean", { value: true }],
    ["a series", { measurements: [1, 2].map((value) => ({ timestamp: `2026-06-01T0${value}:00:00Z`, value })) }],
    ["two numbers", { measurements: [1, 2] }],
    ["nested lists", { measurements: [[1]] }],
    ["an empty object", { measurements: {} }],
  ])("a total is unreadable from: %s", async (_name, record) => {
    const [told] = await total(record).source.totals(RANGE, "history", never());
    expect(told).toMatchObject({ id: "1", total: null });
    expect(told?.unreadable).toMatch(/^The total is .*, and not one number\.$/);
  });

  it("a total listed twice with different values is unreadable", async () => {
    const harness = openHarness(() => reply(200, { data: [record("1", 1), record("1", 2)] }));
    const unreadable = "The reply lists it 2 times with different totals: 1 and 2.";
    expect(await harness.source.totals(RANGE, "history", never())).toMatchObject([{ total: null, unreadable }]);
  });
});
