import { describe, expect, it } from "vitest";
import { failureOf, never, reply, tagRecord, trialSource } from "./trial-source.ts";

const RANGE = {
  tagIds: ["1"],
  from: "2026-06-01T00:00:00Z",
  to: "2026-06-02T00:00:00Z",
  resolution: "1h",
  timeZone: "UTC",
} as const;

const notes = async (trial: ReturnType<typeof trialSource>) =>
  (await trial.metrics.unknownWords.get()).values.map((entry) => (entry.labels as { field: string }).field);

describe("values of a read", () => {
  it.each([21.5, 0, -3, true, false, null])("%s is passed on as it is", async (value) => {
    const trial = trialSource(() => reply(200, { data: [{ ...tagRecord("1"), value }] }));
    expect((await trial.source.read(["1"], "live", never())).readings).toMatchObject([{ id: "1", value }]);
  });

  it.each(['"21.5"', '""', "[1]", "{}", "1e999", '"null"'])(
    "%s is neither a number nor null: the tag is left out and counted, the others stay",
    async (value) => {
      const good = JSON.stringify({ ...tagRecord("2"), value: 7 });
      const trial = trialSource(() =>
        reply(200, `{"data":[{"type":"tags","id":"1","attributes":{},"value":${value}},${good}]}`),
      );
      const { readings } = await trial.source.read(["1", "2"], "live", never());
      expect(readings.map((reading) => reading.id)).toEqual(["2"]);
      expect(await notes(trial)).toContain("tag.value");
    },
  );

  it("what has no value is named with its reason, and counted", async () => {
    const text = { ...tagRecord("1"), value: "21.5" };
    const trial = trialSource(() => reply(200, { data: [text, { ...tagRecord("2"), value: 7 }] }));
    const { leftOut } = await trial.source.read(["1", "2", "3"], "live", never());
    expect(leftOut).toEqual([
      { id: "1", kind: "unreadable", reason: "Its value is a text, and no number, boolean or null." },
      { id: "3", kind: "unanswered", reason: "The reply does not list it." },
    ]);
    expect(await notes(trial)).toEqual(expect.arrayContaining(["tag.value", "tag.unanswered"]));
  });

  it("no value is not null", async () => {
    const trial = trialSource(() => reply(200, { data: [tagRecord("1")] }));
    expect((await trial.source.read(["1"], "live", never())).readings).toEqual([]);
  });

  it("what was not asked for, and what comes twice, is left out", async () => {
    const record = (id: string, value: number) => ({ ...tagRecord(id), value });
    const trial = trialSource(() => reply(200, { data: [record("9", 9), record("1", 1), record("1", 2)] }));
    const { readings } = await trial.source.read(["1", "2"], "live", never());
    expect(readings.map(({ id, value }) => [id, value])).toEqual([["1", 1]]);
  });

  it("a record without an id makes the reply unusable", async () => {
    const trial = trialSource(() => reply(200, { data: [{ attributes: {}, value: 1 }] }));
    expect(await failureOf(trial.source.read(["1"], "live", never()))).toMatchObject({ kind: "malformed" });
  });
});

describe("logs", () => {
  const log = (measurements: unknown) => () => reply(200, { data: [{ ...tagRecord("1"), measurements }] });

  it("stamps are UTC whatever their offset; null stays null", async () => {
    const trial = trialSource(
      log([
        { timestamp: "2026-06-01T00:00:00Z", value: 1 },
        { timestamp: "2026-06-01T03:00:00+02:00", value: null },
        { timestamp: "2026-06-01T02:00:00.000Z", value: true },
        { timestamp: "2026-06-01T03:00:00Z", value: "4" },
      ]),
    );
    const [series] = await trial.source.history(RANGE, "history", never());
    expect([...(series?.measurements ?? [])]).toEqual([
      { time: "2026-06-01T00:00:00.000Z", value: 1 },
      { time: "2026-06-01T01:00:00.000Z", value: null },
      { time: "2026-06-01T02:00:00.000Z", value: true },
    ]);
    expect(await notes(trial)).toEqual(["measurement.value"]);
  });

  it.each([[null], [5], [{}], [[{ value: 1 }]], [[{ timestamp: "noon", value: 1 }]], [[7]]])(
    "%j is malformed",
    async (measurements) => {
      const trial = trialSource(log(measurements));
      expect(await failureOf(trial.source.history(RANGE, "history", never()))).toMatchObject({
        kind: "malformed",
      });
    },
  );
});

describe("totals in all their shapes (trap 49)", () => {
  const total = (record: object) =>
    trialSource(() => reply(200, { data: [{ ...tagRecord("1"), ...record }] }));

  it.each([
    ["value", { value: 42.5 }, 42.5],
    ["measurements as a number", { measurements: 42.5 }, 42.5],
    ["measurements with one number", { measurements: [42.5] }, 42.5],
    ["measurements as an object", { measurements: { value: 42.5 } }, 42.5],
    ["measurements with one object", { measurements: [{ value: 42.5 }] }, 42.5],
    ["with a stamp", { measurements: [{ timestamp: "2026-06-01T00:00:00Z", value: 42.5 }] }, 42.5],
    ["value beside empty measurements", { value: 42.5, measurements: [] }, 42.5],
    ["null value beside measurements", { value: null, measurements: [42.5] }, 42.5],
    ["negative after a reset (trap 50)", { measurements: [-900] }, -900],
    ["zero", { value: 0 }, 0],
    ["null", { value: null }, null],
    ["null in measurements", { measurements: [null] }, null],
    ["nothing in the period", { measurements: [] }, null],
  ])("%s", async (_name, record, expected) => {
    expect(await total(record).source.totals(RANGE, "history", never())).toMatchObject([
      { id: "1", total: expected },
    ]);
  });

  it.each([
    ["neither", {}],
    ["text", { value: "42.5" }],
    ["a boolean", { value: true }],
    [
      "a series",
      {
        measurements: [
          { timestamp: "2026-06-01T00:00:00Z", value: 1 },
          { timestamp: "2026-06-01T01:00:00Z", value: 2 },
        ],
      },
    ],
    ["two numbers", { measurements: [1, 2] }],
    ["nested", { measurements: [[1]] }],
    ["an empty object", { measurements: {} }],
  ])("%s is no total", async (_name, record) => {
    expect(await failureOf(total(record).source.totals(RANGE, "history", never()))).toMatchObject({
      kind: "malformed",
    });
  });
});
