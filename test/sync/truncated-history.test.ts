import { beforeEach, describe, expect, test } from "vitest";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import { type PointLimit, syncSet } from "#src/engine/sync/stored-documents.ts";
import {
  DAY_MS,
  FIVE_MS,
  HOUR_MS,
  historyHarness,
  ids,
  logBuckets,
  type SimulatedTagLog,
  START,
  testBackfill,
} from "./history-harness.ts";
import { runFollower } from "./live-reads-harness.ts";

const LONG_AGO = START - 35 * DAY_MS;
const LOGGED_UNTIL = START + 11 * DAY_MS;
const BACKFILL_MS = 12 * DAY_MS;
const FIVE = { name: "h", resolution: "5m", every: "15m", backfill: "12d" };

let { clock, store, service, createPull, runOnce, told, putBackfill } = historyHarness();

beforeEach(() => {
  ({ clock, store, service, createPull, runOnce, told, putBackfill } = historyHarness());
});

const logged = (id: string, fromMs: number, isSilent = (_atMs: number) => false, stepMs = FIVE_MS) =>
  logBuckets(service, [id], fromMs, LOGGED_UNTIL, { isSilent: (atMs) => isSilent(atMs) || atMs % stepMs !== 0 });

const pull = (tags: readonly string[], more: object = {}, valuesMax = 100_000) =>
  createPull(tags, [{ ...FIVE, ...more }], { valuesMax });

function listMissing(tags: readonly string[], beforeMs: number): readonly string[] {
  const emitted = told();
  const missingPoints = tags.flatMap((id) =>
    (service.truth.get(`${id} 5m`) ?? [])
      .filter(({ atMs }) => atMs >= START - beforeMs && atMs < clock.now() - HOUR_MS)
      .filter(({ atMs }) => emitted.values.get(`${id} 5m`)?.has(atMs) !== true)
      .map(({ atMs }) => `${id} ${isoUtc(atMs)}`),
  );
  return [...emitted.faults, ...missingPoints];
}

const bulk = () => service.requests.filter(({ resolution }) => resolution === "5m").length;
const cut = () => store.document<PointLimit>(syncSet("history-window", "trial"), "cut");

type Cut = (logs: readonly SimulatedTagLog[]) => readonly SimulatedTagLog[];
const cutEachSeries =
  (part: (all: SimulatedTagLog["measurements"]) => SimulatedTagLog["measurements"]): Cut =>
  (logs) =>
    logs.map((log) => ({ ...log, measurements: part(log.measurements) }));

const ofAll =
  (most: number, isLast: boolean, keyOf: (time: string, tag: number) => string): Cut =>
  (logs) => {
    const keys = logs.flatMap(({ measurements }, tag) => [...measurements].map(({ time }) => keyOf(time, tag))).sort();
    const keptKeys = new Set(isLast ? keys.slice(-most) : keys.slice(0, most));
    const cutLog = ({ measurements }: SimulatedTagLog, tag: number) =>
      measurements.filter(({ time }) => keptKeys.has(keyOf(time, tag)));
    return logs.map((log, tag) => ({ ...log, measurements: cutLog(log, tag) }));
  };
const byTag = (time: string, tag: number) => `${String(tag).padStart(3, "0")} ${time}`;
const byTime = (time: string, tag: number) => `${time} ${tag}`;

describe("a service that cuts history responses without an error", () => {
  const cuts: readonly (readonly [string, Cut])[] = [
    ["the first 1,000 values of each series", cutEachSeries((all) => all.slice(0, 1_000))],
    ["the last 1,000 values of each series", cutEachSeries((all) => all.slice(-1_000))],
    ["the first 100 values of each series", cutEachSeries((all) => all.slice(0, 100))],
    ["the first 1,000 values of all series", ofAll(1_000, false, byTag)],
    ["the last 1,000 values of all series", ofAll(1_000, true, byTag)],
    ["the earliest 5,000 values of all series", ofAll(5_000, false, byTime)],
    ["the latest 5,000 values of all series", ofAll(5_000, true, byTime)],
  ];
  test.each(cuts)("loses no points of 20 tags when a response contains only %s", async (_, shorten) => {
    service.shorten = shorten;
    const tags = ids(20);
    for (const id of tags) logged(id, LONG_AGO);
    const history = await pull(tags);
    await runOnce(history);
    await runFollower(clock, history, 30 * 60_000);
    expect(listMissing(tags, BACKFILL_MS)).toEqual([]);
    expect(await cut()).toBeDefined();
    expect(history.progress().requestsLeft).toBe(0);
  });

  test.each(cuts)(
    "loses no points of tags that log rarely, or of a single tag, when a response contains only %s",
    async (_, shorten) => {
      service.shorten = shorten;
      logged("101", LONG_AGO);
      logged("102", LONG_AGO, () => false, HOUR_MS);
      logged("103", START - 3 * DAY_MS);
      const history = await pull(ids(3));
      await runOnce(history);
      await runFollower(clock, history, 30 * 60_000);
      expect(listMissing(ids(3), BACKFILL_MS)).toEqual([]);
    },
  );

  test.each(cuts)(
    "loses no points of buckets that closed while the worker was stopped when a response contains only %s",
    async (_, shorten) => {
      const tags = ids(20);
      for (const id of tags) logged(id, START - DAY_MS);
      await runOnce(await pull(tags, { backfill: "0s" }));
      service.shorten = shorten;
      await clock.advance(10 * DAY_MS);
      const history = await pull(tags, { backfill: "0s" });
      await runOnce(history);
      await runFollower(clock, history, 30 * 60_000);
      expect(listMissing(tags, 0)).toEqual([]);
    },
  );

  test.each(cuts.slice(0, 5))(
    "loses no points when the worker is stopped repeatedly and a response contains only %s",
    async (_, shorten) => {
      service.shorten = shorten;
      const tags = ids(5);
      for (const id of tags) logged(id, LONG_AGO);
      for (let i = 0; i < 30; i++) await runFollower(clock, await pull(tags), 5_000);
      await runOnce(await pull(tags));
      expect(listMissing(tags, BACKFILL_MS)).toEqual([]);
    },
  );

  test("sends smaller requests after the first short response, also after a restart", async () => {
    service.shorten = cutEachSeries((all) => all.slice(0, 1_000));
    const tags = ids(20);
    for (const id of tags) logged(id, START - 47 * DAY_MS);
    await runOnce(await pull(tags));
    expect(await cut()).toMatchObject({ series: 1_000 });
    const requestsBefore = bulk();
    await runOnce(await pull(tags, { backfill: "42d" }));
    expect(bulk() - requestsBefore).toBeLessThanOrEqual(Math.ceil((30 * 288) / 997) + 2);
    expect(listMissing(tags, 42 * DAY_MS)).toEqual([]);
  });
});

describe("a service that sends complete history responses", () => {
  function building(count: number): readonly string[] {
    const tags = ids(count);
    for (const [place, id] of tags.entries()) {
      const kind = place % 10;
      const spread = place * 7 * FIVE_MS;
      if (kind === 1) logged(id, START - 7 * DAY_MS - spread);
      else if (kind === 2) logged(id, LONG_AGO, (at) => at > START - 20 * DAY_MS && at < START - 4 * DAY_MS - spread);
      else if (kind === 3 || kind === 4) logged(id, LONG_AGO, (at) => at > START - 9 * DAY_MS);
      else logged(id, LONG_AGO, () => false, kind === 5 ? HOUR_MS : FIVE_MS);
    }
    return tags;
  }

  test("the backfill of 200 tags takes at most 146 requests, of which 124 are necessary", async () => {
    const tags = building(200);
    const history = await pull(tags, { backfill: "30d" }, 20_000);
    await runOnce(history);
    await runFollower(clock, history, 30 * 60_000);
    expect(listMissing(tags, 30 * DAY_MS)).toEqual([]);
    expect(history.progress()).toMatchObject({ requestsLeft: 0, resolutions: [{ complete: 200 }] });
    expect(await cut()).toBeUndefined();
    expect(bulk()).toBeLessThanOrEqual(146);
  });
});

describe("a tag missing in a history response", () => {
  const order = testBackfill(START - 5 * DAY_MS, START - DAY_MS);

  test("requests a tag again at once when a single response leaves it out, and ends the backfill request within a minute", async () => {
    for (const id of ids(20)) logged(id, LONG_AGO);
    await putBackfill("a", order);
    let cutsLeft = 1;
    service.shorten = (logs) => {
      const isLong = logs.some(({ measurements }) => measurements.length > 20);
      return isLong && cutsLeft-- > 0 ? logs.filter(({ id }) => id !== "107") : logs;
    };
    const history = await pull(ids(20), { backfill: "0s" });
    await runFollower(clock, history, 60_000);
    expect(history.progress().orders).toEqual([]);
    expect(listMissing(["107"], 5 * DAY_MS).filter((text) => text < `107 ${order.to}`)).toEqual([]);
  });
});
