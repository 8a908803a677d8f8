import { beforeEach, describe, expect, test } from "vitest";
import type { TagTotal } from "#src/core/model/building.ts";
import type { DaySealedFact } from "#src/core/model/history-event-data.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import { HISTORY_LEDGER_RANGES_MAX } from "#src/engine/sync/history/ledger-ranges.ts";
import type { HistoryPullOptions } from "#src/engine/sync/history/pull.ts";
import type { StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { DAY_MS, FIVE_MS, HOUR_MS, historyHarness, logBuckets, MINUTE_MS, START } from "./history-harness.ts";
import { runFollower } from "./live-reads-harness.ts";

const FIVE = { name: "h", resolution: "5m", every: "15m", backfill: "1d" };
const UNREADABLE_MESSAGE = 'The value is the text "n/a", and no number, boolean or null.';
const STORED_MESSAGE = `unreadable: ${UNREADABLE_MESSAGE}`;

let { clock, store, service, createPull, told, ledger, listMissing } = historyHarness();
let warnings: object[];

beforeEach(() => {
  ({ clock, store, service, createPull, told, ledger, listMissing } = historyHarness());
  warnings = [];
});

const logged = (tags: readonly string[], stepMs = FIVE_MS) =>
  logBuckets(service, tags, START - 3 * DAY_MS, START + 6 * DAY_MS, { stepMs });

function unreadable(id: string, isUnreadable: (atMs: number) => boolean): void {
  const isBad = ({ time }: { readonly time: string }) => isUnreadable(Date.parse(time));
  service.shorten = (logs) =>
    logs.map((log) => {
      const timesMs = log.measurements.filter(isBad).map(({ time }) => Date.parse(time));
      if (log.id !== id || timesMs.length === 0) return log;
      const measurements = log.measurements.filter((each) => !isBad(each));
      return { ...log, measurements, unreadable: { timesMs, said: UNREADABLE_MESSAGE } };
    });
}

async function pull(tags: readonly string[], classes: readonly object[] = [FIVE]) {
  const log = { info: () => undefined, warn: (about: object) => warnings.push(about), error: () => undefined };
  const metrics = createMetrics();
  const history = await createPull(tags, classes, { metrics, log: log as unknown as HistoryPullOptions["log"] });
  const refusals = async () =>
    (await metrics.historyRefusals.get()).values.map(({ labels }) => (labels as { reason: string }).reason);
  const follow = async (forMs: number, stepMs = 5 * MINUTE_MS) => {
    for (const endMs = clock.monotonic() + forMs; clock.monotonic() < endMs; ) {
      expect(await runFollower(clock, history, 30_000)).toBeNull();
      await clock.advance(stepMs - 30_000);
    }
  };
  return { history, refusals, follow };
}

const refusedIn = ({ spans }: StoredLedger) =>
  spans
    .filter(({ why }) => why === "refused")
    .map(({ from, to, times, reason }) => `${from.slice(5, 16)} ${to.slice(5, 16)} ${times} ${reason}`);

const sealed = () => store.events.filter(({ type }) => type === "day-sealed").map(({ data }) => data as DaySealedFact);

const at = (time: string) => Date.parse(`2026-${time}Z`);

describe("an unreadable measurement", () => {
  const bad = [at("11-01T12:00"), at("11-02T06:00")];

  test("counts as refused and is requested again singly, and the rest of the reply is emitted", async () => {
    logged(["1", "2"]);
    unreadable("1", (atMs) => bad.includes(atMs));
    const { follow, refusals } = await pull(["1", "2"]);
    await follow(45 * MINUTE_MS);
    expect(listMissing("1")).toEqual(bad.map(isoUtc));
    expect(listMissing("2")).toEqual([]);
    const stored = await ledger("1");
    expect(refusedIn(stored)).toEqual(["11-01T12:00 11-01T12:05 2 unreadable", "11-02T06:00 11-02T06:05 2 unreadable"]);
    expect(stored.watermark >= isoUtc(clock.now() - 25 * MINUTE_MS)).toBe(true);
    expect(await refusals()).toEqual(["unreadable"]);
    expect(warnings).toEqual([{ series: { "1 5m": UNREADABLE_MESSAGE } }]);
    const singleRequests = service.requests.filter(({ tagIds, from }) => tagIds.length === 1 && from < "2026-11-02");
    expect(singleRequests).toMatchObject([{ from: "2026-11-01T11:55:00Z", to: "2026-11-01T12:05:00Z" }]);
  });

  test("is emitted once when it becomes readable, and no other point is repeated", async () => {
    logged(["1"]);
    const untilMs = START + 2 * HOUR_MS;
    unreadable("1", (atMs) => clock.now() < untilMs && bad.includes(atMs));
    const { follow } = await pull(["1"]);
    await follow(2 * HOUR_MS);
    expect(listMissing("1")).toEqual(bad.map(isoUtc));
    await follow(DAY_MS);
    expect(listMissing("1")).toEqual([]);
    expect(told().faults).toEqual([]);
    expect(refusedIn(await ledger("1"))).toEqual([]);
  });
});

test("a day with unreadable buckets is finalized after three refusals and names the series of those buckets", async () => {
  const hours = { name: "h", resolution: "1h", every: "1h", backfill: "1d" };
  logged(["1", "2"], HOUR_MS);
  unreadable("1", (atMs) => atMs === at("11-02T12:00"));
  const { follow } = await pull(["1", "2"], [hours]);
  await follow(3 * DAY_MS, HOUR_MS);
  const day = sealed().find(({ date }) => date === "2026-11-02");
  expect(day).toMatchObject({ expected: 48, had: 47, absent: 0, refused: 1, pending: 0, revision: 1 });
  expect(day?.seriesRefused).toMatchObject([{ tagId: "1", buckets: 1, said: STORED_MESSAGE }]);
  service.shorten = (logs) => logs;
  await follow(1.5 * DAY_MS, HOUR_MS);
  const lastRevision = sealed().findLast(({ date }) => date === "2026-11-02");
  expect(lastRevision).toMatchObject({ had: 48, refused: 0, revised: 1, revision: 2 });
});

test("more unreadable ranges than a ledger can store are neither lost nor requested endlessly", async () => {
  logged(["1", "2"]);
  const isBad = (atMs: number) => (atMs / FIVE_MS) % 3 === 0;
  unreadable("1", isBad);
  const { follow } = await pull(["1", "2"]);
  await follow(6 * HOUR_MS);
  expect((await ledger("1")).spans.length).toBeLessThanOrEqual(HISTORY_LEDGER_RANGES_MAX);
  expect(listMissing("1").every((time) => isBad(Date.parse(time)))).toBe(true);
  expect(listMissing("2")).toEqual([]);
  expect(service.requests.filter(({ tagIds }) => tagIds.length === 1).length).toBeLessThan(8);
  expect(told().faults).toEqual([]);
  service.shorten = (logs) => logs;
  await follow(3 * HOUR_MS);
  expect(listMissing("1")).toEqual([]);
});

test("a completely unreadable log does not affect the other tags of the reply", async () => {
  logged(["1", "2"]);
  const message = 'The time of a measurement is the text "noon", and no time.';
  const untilMs = START + HOUR_MS;
  service.shorten = (logs) =>
    logs.map((log) =>
      log.id === "1" && clock.now() < untilMs
        ? { ...log, measurements: [], unreadable: { timesMs: null, said: message } }
        : log,
    );
  const { follow } = await pull(["1", "2"]);
  await follow(HOUR_MS);
  expect(listMissing("2")).toEqual([]);
  expect((await ledger("1")).spans.every(({ reason }) => reason === "unreadable")).toBe(true);
  expect(told().values.get("1 5m")).toBeUndefined();
  await follow(7 * HOUR_MS);
  expect(listMissing("1")).toEqual([]);
  expect(told().faults).toEqual([]);
});

test("an unreadable total counts as refused, and is emitted when it becomes readable", async () => {
  logged(["1", "2"]);
  const untilMs = START + HOUR_MS;
  const { source } = service;
  const { totals } = source;
  Object.assign(source, {
    totals: async (...requests: Parameters<typeof totals>) =>
      (await totals(...requests)).map((total): TagTotal => {
        const isBad = total.id === "1" && clock.now() < untilMs;
        return isBad ? { ...total, total: null, unreadable: UNREADABLE_MESSAGE } : total;
      }),
  });
  const hourly = { ...FIVE, resolution: "1h", every: "1h", total: true, backfill: "0d" };
  const { follow, refusals } = await pull(["1", "2"], [hourly]);
  await follow(HOUR_MS);
  const listTotals = () => store.events.filter(({ type }) => type === "tag-total");
  const count = (id: string) => listTotals().filter(({ subject }) => subject.includes(`/tag/${id}/`)).length;
  expect([count("1"), count("2")]).toEqual([0, 1]);
  expect((await ledger("1", "1h total")).refusal).toMatchObject({ said: STORED_MESSAGE, reason: "unreadable" });
  expect(await refusals()).toEqual(["unreadable"]);
  await follow(3 * HOUR_MS);
  expect(count("1")).toBe(count("2"));
});
