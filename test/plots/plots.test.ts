import fc from "fast-check";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import type { Store } from "#src/engine/store/store.ts";
import {
  createMinuteSeries,
  createRaisedAlarmCounts,
  createRefusedRequests,
  DAY_MINUTES,
} from "#src/ui/plots/minute-time-series.ts";
import { ByteReader, ByteWriter, MAX_SIGNED_NUMBER } from "#src/ui/plots/number-encoding.ts";
import { createPlots, minuteSeriesNames, type WorkerPlotNumbers } from "#src/ui/plots/plot-storage.ts";
import { createTagIndexes, createTagPlots, plotDocumentSet } from "#src/ui/plots/tag-plots.ts";
import { decodeChunk, encodeChunk, HOUR_FORMAT, SAMPLE_FORMAT, type Samples } from "#src/ui/plots/tag-samples.ts";
import { sampleEvent } from "../sample-events.ts";
import { emptyStore, NO_NUMBERS } from "../status/status-building.ts";
import { describeService } from "../suites/service-suite.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const NOW_MS = Date.parse("2026-11-21T10:00:00.000Z");
const BEGIN = NOW_MS / 1_000;
const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0),
  fc.integer({ min: -100_000, max: 100_000 }).map((value) => value / 10 ** (value & 3)),
  fc.constantFrom(0, 1, 21.3, -0.05, 1e300, 5e-324),
);
const samples: fc.Arbitrary<Samples> = fc
  .array(fc.tuple(fc.integer({ min: BEGIN - 5, max: BEGIN + 4_000 }), fc.option(number)), { maxLength: 40 })
  .map((readings) => ({ times: readings.map(([time]) => time), values: readings.map(([, value]) => value) }));

test("ByteWriter and ByteReader return every written number unchanged", () => {
  const wholeNumber = fc.integer({ min: -MAX_SIGNED_NUMBER, max: MAX_SIGNED_NUMBER });
  fc.assert(
    fc.property(fc.array(fc.tuple(wholeNumber, fc.double())), (all) => {
      const writer = new ByteWriter();
      for (const [one, other] of all) {
        writer.writeSigned(one);
        writer.writeUnsigned(Math.abs(one));
        writer.writeFloat(other);
      }
      const reader = new ByteReader(writer.toBase64());
      for (const [one, other] of all)
        expect([reader.readSigned() + 0, reader.readUnsigned(), reader.readFloat()]).toEqual([
          one + 0,
          Math.abs(one),
          other,
        ]);
      expect(reader.isDone).toBe(true);
    }),
  );
});

describe("a stored chunk of plot samples", () => {
  const chunk = fc.array(fc.tuple(fc.integer({ min: 0, max: 49 }), samples)).map((parts) => new Map(parts));

  test("returns the samples of all tags or of one tag", () => {
    fc.assert(
      fc.property(chunk, (parts) => {
        const text = encodeChunk(SAMPLE_FORMAT, BEGIN, parts);
        expect(decodeChunk(SAMPLE_FORMAT, BEGIN, text)).toEqual(parts);
        for (const [index, value] of parts)
          expect(decodeChunk(SAMPLE_FORMAT, BEGIN, text, index)).toEqual(new Map([[index, value]]));
        expect(decodeChunk(SAMPLE_FORMAT, BEGIN + 600, text).size).toBe(0);
      }),
    );
  });

  test("returns hourly values rounded to eight digits", () => {
    fc.assert(
      fc.property(number, number, number, (low, high, last) => {
        const text = encodeChunk(HOUR_FORMAT, BEGIN, new Map([[7, { low, high, last }]]));
        const storedHour = decodeChunk(HOUR_FORMAT, BEGIN, text).get(7);
        const roundTo8 = (value: number) => Number(value.toPrecision(8));
        expect(storedHour).toEqual({ low: roundTo8(low), high: roundTo8(high), last: roundTo8(last) });
      }),
      { examples: [[-4_503_599_650_000, -96.789, 0]] },
    );
  });

  test("returns fewer samples without an error when the chunk is damaged", () => {
    fc.assert(
      fc.property(chunk, fc.nat(), fc.nat(255), (parts, at, byte) => {
        const bytes = Buffer.from(encodeChunk(SAMPLE_FORMAT, BEGIN, parts), "base64");
        bytes[at % bytes.length] = byte;
        const cut = bytes.subarray(0, at % bytes.length).toString("base64");
        for (const text of [bytes.toString("base64"), cut, 7, null, undefined])
          expect(decodeChunk(SAMPLE_FORMAT, BEGIN, text).size).toBeLessThanOrEqual(256);
      }),
    );
  });
});

describe("createTagIndexes (the index of each tag in the chunks)", () => {
  test("keeps indexes over a restart and reuses an index after 33 days without a reading", () => {
    const indexes = createTagIndexes();
    for (let n = 0; n < 150; n++) expect(indexes.assignIndex(`t${n}`, n < 10 ? 100 : 120)).toBe(n);
    const reloaded = createTagIndexes();
    for (const group of [0, 1, 2]) reloaded.load(group, indexes.pack(group), 140);
    expect([reloaded.find("t149"), reloaded.find("t3"), reloaded.groupCount()]).toEqual([149, 3, 3]);
    const index = reloaded.assignIndex("new", 140);
    expect(index).toBeLessThan(10);
    expect(reloaded.find(`t${index}`)).toBeUndefined();
    expect(reloaded.takeChanged()).toEqual([0]);
  });

  test("does not reuse the 50 indexes of a group that cannot be loaded", () => {
    const indexes = createTagIndexes();
    indexes.load(0, undefined, 100);
    expect(indexes.assignIndex("t", 100)).toBe(50);
  });
});

test("createMinuteSeries stores one value a minute for a day, and drops older values", () => {
  const column = fc.array(fc.option(number), { minLength: 1, maxLength: 50 });
  fc.assert(
    fc.property(column, (values) => {
      const minutes = createMinuteSeries();
      for (const [n, value] of values.entries()) minutes.set("lag", 1_000_000 + n, value);
      const lastMinute = 1_000_000 + values.length - 1;
      const restoredMinutes = createMinuteSeries();
      restoredMinutes.load(minutes.pack(lastMinute));
      expect(restoredMinutes.valuesOfDay("lag", lastMinute).slice(-values.length)).toEqual(values);
      expect(restoredMinutes.valuesOfDay("lag", lastMinute + DAY_MINUTES).every((value) => value === null)).toBe(true);
    }),
    { numRuns: 50 },
  );
});

describe("createTagPlots", () => {
  const opened = () => emptyStore(createVirtualClock(NOW_MS));
  const plotsOver = async (store: Store) => {
    const plots = createTagPlots({ store, source: "north" });
    await plots.loadTagIndexes(NOW_MS);
    return plots;
  };

  test("returns the same values from memory, from the store, and from both after a restart", async () => {
    const store = await opened();
    const firstPlots = await plotsOver(store);
    for (let n = 0; n < 40; n++) firstPlots.addReading("t", n === 7 ? null : n, NOW_MS + n * 60_000);
    const half = [NOW_MS, NOW_MS + 3_600_000] as const;
    const inMemory = await firstPlots.samples("t", ...half);
    expect(inMemory.values).toHaveLength(40);
    expect(inMemory.values[7]).toBeNull();
    await firstPlots.writeChunks({ nowMs: NOW_MS + 40 * 60_000, all: true });
    expect(await firstPlots.samples("t", ...half)).toEqual(inMemory);
    const restartedPlots = await plotsOver(store);
    expect(await restartedPlots.samples("t", ...half)).toEqual(inMemory);
    restartedPlots.addReading("t", -3, NOW_MS + 41 * 60_000);
    const joined = await restartedPlots.samples("t", ...half);
    expect(joined.values).toEqual([...inMemory.values, -3]);
    expect(await restartedPlots.hours("t", ...half)).toEqual([[BEGIN, { low: -3, high: 39, last: -3 }]]);
    await restartedPlots.writeChunks({ nowMs: NOW_MS + 42 * 60_000, all: true });
    expect(await (await plotsOver(store)).samples("t", ...half)).toEqual(joined);
    expect(await restartedPlots.samples("other", ...half)).toEqual({ times: [], values: [] });
  });

  test("stores only finished chunks while the worker runs", async () => {
    const store = await opened();
    const plots = await plotsOver(store);
    plots.addReading("t", 1, NOW_MS);
    plots.addReading("t", 2, NOW_MS + 600_000);
    await plots.writeChunks({ nowMs: NOW_MS + 605_000, all: false });
    const restarted = await plotsOver(store);
    expect((await restarted.samples("t", NOW_MS, NOW_MS + 700_000)).values).toEqual([1]);
    expect(restarted.writtenUntilMs()).toBe(NOW_MS + 600_000);
  });

  test("retains readings for a day and hourly values for a month, and overwrites old chunks", async () => {
    const store = await opened();
    const plots = await plotsOver(store);
    for (let hour = 0; hour < 34 * 24; hour++) {
      const atMs = NOW_MS + hour * 3_600_000;
      plots.addReading("t", hour, atMs);
      if (hour % 6 === 5) await plots.writeChunks({ nowMs: atMs + 1_000, all: true });
    }
    const endMs = NOW_MS + 34 * 24 * 3_600_000;
    const keys = [...(await store.documents(plotDocumentSet("north"))).keys()];
    expect(keys.length).toBeLessThanOrEqual(150 + 768 + 2);
    expect((await plots.samples("t", endMs - 86_400_000, endMs)).values).toHaveLength(24);
    expect(await plots.hours("t", endMs - 30 * 86_400_000, endMs)).toHaveLength(720);
    expect(await plots.hours("t", NOW_MS, NOW_MS + 86_400_000)).toEqual([]);
  });

  test("ignores damaged chunks, and all chunks if the document with the number of groups is missing", async () => {
    const store = await opened();
    const plots = await plotsOver(store);
    plots.addReading("a", 1, NOW_MS);
    await plots.writeChunks({ nowMs: NOW_MS, all: true });
    await store.commit({ documents: [{ set: plotDocumentSet("north"), remove: ["groups"] }] });
    const restartedPlots = await plotsOver(store);
    restartedPlots.addReading("b", 2, NOW_MS + 1_000);
    expect((await restartedPlots.samples("b", NOW_MS, NOW_MS + 2_000)).values).toEqual([2]);
    expect((await restartedPlots.samples("a", NOW_MS, NOW_MS + 2_000)).values).toEqual([]);
    await restartedPlots.writeChunks({ nowMs: NOW_MS, all: true });
    const chunks = [...(await store.documents<unknown>(plotDocumentSet("north")))].filter(([key]) => key.includes(" "));
    await store.commit({
      documents: [{ set: plotDocumentSet("north"), put: chunks.map(([key]) => [key, "AAAA"] as const) }],
    });
    const damagedPlots = await plotsOver(store);
    damagedPlots.addReading("b", 3, NOW_MS + 1_500);
    await damagedPlots.writeChunks({ nowMs: NOW_MS, all: true });
    expect((await damagedPlots.samples("b", NOW_MS, NOW_MS + 2_000)).values).toEqual([3]);
  });

  test("retries a failed write", async () => {
    const store = await opened();
    let fails = 0;
    const failingStore: Store = {
      ...store,
      async commit(change) {
        const keys = (change.documents ?? []).flatMap(({ put = [] }) => [...put].map(([key]) => key));
        if (keys.some((key) => key.includes(" ")) && fails++ === 0) throw new Error("disk full");
        return store.commit(change);
      },
    };
    const plots = await plotsOver(failingStore);
    plots.addReading("t", 1, NOW_MS);
    await expect(plots.writeChunks({ nowMs: NOW_MS, all: true })).rejects.toThrow("disk full");
    await plots.writeChunks({ nowMs: NOW_MS, all: true });
    expect((await (await plotsOver(store)).samples("t", NOW_MS, NOW_MS)).values).toEqual([1]);
  });
});

const SILENT = pino({ level: "silent" });

describeService("plots", async () => {
  const clock = createVirtualClock(NOW_MS);
  const store = createMemoryStore();
  const service = createPlots({ store, clock, log: SILENT, sources: ["north"], numbers: NO_NUMBERS });
  return { service, quiet: () => expect(clock.sleepers()).toBe(0) };
});

describe("the plotted series about the worker", () => {
  test("store current values, and the increase of counters, for each minute", async () => {
    const clock = createVirtualClock(NOW_MS + 10_000);
    const store = createMemoryStore();
    let accepted = 5;
    const numbers: WorkerPlotNumbers = {
      ...NO_NUMBERS,
      currentGaugeValues: async () => new Map([[minuteSeriesNames.lag("lake"), accepted === 5 ? null : 7]]),
      totalCounts: async () => new Map([[minuteSeriesNames.accepted("lake"), accepted]]),
    };
    const createSamplePlots = () => createPlots({ store, clock, log: SILENT, sources: ["north"], numbers });
    const plots = createSamplePlots();
    await plots.start(new AbortController().signal);
    await clock.advance(60_000);
    accepted = 12;
    await clock.advance(120_000);
    const lastMinute = NOW_MS / 60_000 + 2;
    const lastValues = (each: typeof plots) => [
      each.minutes.valuesOfDay(minuteSeriesNames.accepted("lake"), lastMinute).slice(-4),
      each.minutes.valuesOfDay(minuteSeriesNames.lag("lake"), lastMinute).slice(-4),
    ];
    const expected = [
      [null, 0, 7, 0],
      [null, null, 7, 7],
    ];
    expect(lastValues(plots)).toEqual(expected);
    await plots.stop(1_000);
    const restartedPlots = createSamplePlots();
    await restartedPlots.start(new AbortController().signal);
    expect(lastValues(restartedPlots)).toEqual(expected);
    await restartedPlots.stop(1_000);
  });

  test("count each raised alarm once, also over restarts", async () => {
    const store = createMemoryStore();
    const raise = (n: number) => store.commit({ events: [sampleEvent("alarm-raised", {}, n)] });
    const countRaised = async () => {
      const raisedAlarms = createRaisedAlarmCounts("own", store);
      await raisedAlarms.loadCounts();
      const counts = (await raisedAlarms.allCounts()).map(({ count, day, priority }) => [day, priority, count]);
      await raisedAlarms.writeCounts(Date.parse("2026-11-20T00:00:00Z"));
      return counts;
    };
    for (let n = 0; n < 60; n++) await raise(n);
    expect(await countRaised()).toEqual([["2026-11-02", "A", 60]]);
    await raise(60);
    expect(await countRaised()).toEqual([["2026-11-02", "A", 61]]);
    expect(await countRaised()).toEqual([["2026-11-02", "A", 61]]);
  });

  test("store the last 50 rejected requests, with one entry an hour for identical rejections", async () => {
    const store = createMemoryStore();
    const refusals = createRefusedRequests("own", store);
    const at = (n: number) => new Date(NOW_MS + n * 60_000).toISOString();
    for (let n = 0; n < 61; n++) refusals.addRefusal("north", { at: at(n), what: "alarms", words: "HTTP 500" });
    expect(refusals.refusalsOf("north").map((each) => each.at)).toEqual([at(60), at(0)]);
    for (let n = 0; n < 80; n++) refusals.addRefusal("north", { at: at(n), what: "history", words: `HTTP ${n}` });
    await refusals.writeRefusals();
    const reloadedRefusals = createRefusedRequests("own", store);
    await reloadedRefusals.loadRefusals();
    const northRefusals = reloadedRefusals.refusalsOf("north");
    expect([northRefusals.length, northRefusals[0]?.words]).toEqual([50, "HTTP 79"]);
    expect(reloadedRefusals.refusalsOf("south")).toEqual([]);
  });
});
