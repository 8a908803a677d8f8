import { beforeEach, describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import type { Store } from "#src/engine/store/store.ts";
import type { HistoryPull } from "#src/engine/sync/history/pull.ts";
import { type StoredBackfill, syncSet } from "#src/engine/sync/stored-documents.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { sized } from "../sizes.ts";
import {
  DAY_MS,
  type EmittedPoints,
  FIVE_MS,
  HOUR_MS,
  historyHarness,
  ids,
  logBuckets,
  loggedValuesAt,
  MINUTE_MS,
  START,
  testBackfill,
} from "./history-harness.ts";
import { startFollower } from "./live-reads-harness.ts";

let { clock, store, service, createPull, runOnce, told, ledger, putBackfill, loadBackfill } = historyHarness(START, 2);

beforeEach(() => {
  ({ clock, store, service, createPull, runOnce, told, ledger, putBackfill, loadBackfill } = historyHarness(START, 2));
});

const FIVE = { name: "h", resolution: "5m", every: "15m", grace: "2m" };

function logged(count: number, fromMs: number, toMs: number, options: Parameters<typeof logBuckets>[4] = {}) {
  logBuckets(service, ids(count), fromMs, toMs, options);
  return ids(count);
}

async function follow(history: HistoryPull, forMs: number, everyMs = 15 * MINUTE_MS): Promise<void> {
  const endAtMs = clock.monotonic() + forMs;
  while (clock.monotonic() < endAtMs) {
    await runOnce(history);
    await clock.advance(everyMs);
  }
  await runOnce(history);
}

function expectComplete(emitted: EmittedPoints, tags: readonly string[], fromMs: number, toMs: number): void {
  expect(emitted.faults).toEqual([]);
  const wrong: string[] = [];
  for (const id of tags) {
    const truth = loggedValuesAt(service.truth, id, "5m", clock.now());
    const known = emitted.values.get(`${id} 5m`) ?? new Map();
    for (const at of new Set([...truth.keys(), ...known.keys()])) {
      if (at < fromMs || at >= toMs || (truth.has(at) && known.has(at) && known.get(at) === truth.get(at))) continue;
      wrong.push(`${id} ${new Date(at).toISOString()}: told ${known.get(at)}, is ${truth.get(at)}`);
    }
  }
  expect([wrong.length, ...wrong.slice(0, 5), ...wrong.slice(-3)]).toEqual([0]);
}

describe("following closed history buckets", () => {
  test("misses no bucket when the reply to the first backfill shows that the clock was 17 h ahead", async () => {
    const tags = logged(1, START - DAY_MS, START + DAY_MS);
    let aheadMs = 17 * HOUR_MS;
    service.failure = () => {
      // The first query discovers logs.
      if (service.requests.length > 1) aheadMs = 0;
      return null;
    };
    const wrongClock = { ...clock, now: () => clock.now() + aheadMs };
    const history = await createPull(tags, [{ ...FIVE, backfill: "1d" }], { clock: wrongClock });
    await follow(history, 6 * HOUR_MS);
    expectComplete(told(), tags, START - 6 * HOUR_MS, clock.now() - HOUR_MS);
  });

  test.each([
    ["both ends", { from: true, to: true }],
    ["no end", { from: false, to: false }],
  ])("emits every closed bucket once when responses include %s of the requested range", async (_, ends) => {
    service.ends = ends;
    const tags = logged(25, START - DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [FIVE]);
    await follow(history, 6 * HOUR_MS);
    const sent = told();
    expectComplete(sent, tags, START, Math.floor((clock.now() - 2 * MINUTE_MS) / FIVE_MS) * FIVE_MS - 15 * MINUTE_MS);
    expect(sent.facts.every((fact) => fact.origin === "live" && !fact.revised)).toBe(true);
    const latestMs = Math.max(...[...(sent.values.get("101 5m") ?? [])].map(([at]) => at));
    expect(latestMs + FIVE_MS + 2 * MINUTE_MS).toBeLessThanOrEqual(clock.now());
  });

  test("sends requests for 20 tags each, and only after a bucket has closed", async () => {
    const tags = logged(40, START - DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [FIVE]);
    await follow(history, HOUR_MS);
    const oldCount = service.requests.length;
    await runOnce(history);
    expect(service.requests).toHaveLength(oldCount);
    const bulk = service.requests.filter((query) => query.resolution === "5m");
    expect(bulk.every((query) => query.tagIds.length === 20)).toBe(true);
    expect(bulk.length).toBeLessThanOrEqual(10);
    for (const query of service.requests)
      expect(query.from + query.to).toMatch(/^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ){2}$/);
  });

  test("marks points that changed later as revised, and finds late values within the look-back", async () => {
    const tags = logged(2, START - DAY_MS, START + 3 * DAY_MS);
    const bucket = START + 2 * HOUR_MS;
    const points = service.truth.get("101 5m") ?? [];
    points.push({ atMs: bucket, value: 4711, knownFromMs: bucket + 3 * HOUR_MS });
    const lateIndex = points.findIndex((point) => point.atMs === bucket + HOUR_MS);
    points[lateIndex] = { atMs: bucket + HOUR_MS, value: 815, knownFromMs: bucket + 21 * HOUR_MS };
    await follow(await createPull(tags, [FIVE]), 2.5 * DAY_MS, 30 * MINUTE_MS);
    const sent = told();
    expectComplete(sent, tags, START, clock.now() - HOUR_MS);
    const revisedFacts = sent.facts.filter((fact) => fact.revised);
    expect(revisedFacts).toHaveLength(1);
    expect(revisedFacts[0]?.points.map((point) => point.value)).toEqual([4711]);
    expect(sent.values.get("101 5m")?.get(bucket + HOUR_MS)).toBe(815);
  });
});

describe("the configured backfill of history", () => {
  test("fetches points down to the configured depth while new points are followed, marks each as backfill, and then stops", async () => {
    const tags = logged(30, START - 40 * DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [{ ...FIVE, backfill: "10d" }]);
    await follow(history, 3 * HOUR_MS);
    const sent = told();
    expectComplete(sent, tags, START - 10 * DAY_MS, clock.now() - HOUR_MS);
    const earlyFacts = sent.facts.filter((fact) => Date.parse(fact.points[0]?.time ?? "") < START - HOUR_MS);
    expect(earlyFacts.length).toBeGreaterThan(0);
    expect(earlyFacts.every((fact) => fact.origin === "backfill")).toBe(true);
    const resolutions = [{ tags: 30, complete: 30, pendingRanges: 0, done: 1 }];
    expect(history.progress()).toMatchObject({ requestsLeft: 0, unproven: 0, resolutions });
  });

  test("stops a month before the first month that the monthly overview contains", async () => {
    const tags = logged(5, START - 20 * DAY_MS, START + DAY_MS);
    await runOnce(await createPull(tags, [{ ...FIVE, backfill: "365d" }]));
    const requested = service.requests.filter(({ resolution }) => resolution === "5m").map(({ from }) => from);
    expect(requested.toSorted()[0]).toBe("2026-08-31T23:55:00Z");
    expectComplete(told(), tags, START - 20 * DAY_MS, START - 10 * MINUTE_MS);
  });
});

describe("failures of history requests", () => {
  test("reveal tags without a log, which are requested again after a day and followed once they have a log", async () => {
    const tags = logged(60, START - DAY_MS, START + 5 * DAY_MS);
    for (const id of ["107", "131", "132", "133"]) service.withoutLog.add(id);
    const goodTags = tags.filter((id) => !service.withoutLog.has(id));
    await follow(await createPull(tags, [FIVE]), 2 * HOUR_MS);
    expectComplete(told(), goodTags, START, clock.now() - HOUR_MS);
    const oldCount = service.requests.length;
    const history = await createPull(tags, [FIVE]);
    await follow(history, 6 * HOUR_MS);
    const spoilt = service.requests
      .slice(oldCount)
      .filter(({ tagIds }) => tagIds.some((id) => service.withoutLog.has(id)));
    expect(spoilt).toEqual([]);
    expect(history.progress().resolutions[0]?.withoutLog).toBe(4);
    service.withoutLog.delete("107");
    await clock.advance(DAY_MS);
    await follow(history, HOUR_MS);
    const emittedAfter = told();
    expect(emittedAfter.values.get("107 5m")?.size).toBeGreaterThan(200);
    expect((await ledger("107")).state).toBe("following");
  });
});

describe("totals of meters", () => {
  test("emits one total per closed period, and marks the period in which a meter was reset", async () => {
    const zone = "Europe/Stockholm";
    const value = (at: number) => (at < START ? at / FIVE_MS : (at - START) / FIVE_MS);
    const tags = logged(3, START - 5 * DAY_MS, START + 3 * DAY_MS, { value });
    const classes = [{ name: "meters", resolution: "1d", total: true, backfill: "3d", time_zone: zone }];
    await follow(await createPull(tags, classes), 2 * DAY_MS, HOUR_MS);
    const totals = store.events.filter((event) => event.type === "tag-total") as Event<"tag-total">[];
    const ofTag = totals.filter((event) => event.data.tag.id === "101");
    const tagTotals = ofTag.sort((a, b) => (a.data.from < b.data.from ? -1 : 1));
    const days = ["10-29", "10-30", "10-31", "11-01", "11-02"];
    expect(tagTotals.map(({ data }) => data.from)).toEqual(days.map((day) => `2026-${day}T23:00:00Z`));
    expect(tagTotals.map(({ data }) => data.reset)).toEqual([false, false, false, true, false]);
    expect(tagTotals[0]).toMatchObject({ subject: "site/1/tag/101/total/1d", data: { timeZone: zone } });
    expect(new Set(totals.map((event) => event.id)).size).toBe(totals.length);
  });
});

describe("history under random failures", () => {
  const seeds =
    process.env.PLENUM_SEED === undefined ? sized([1, 2, 3, 4, 7, 31], [31]) : [Number(process.env.PLENUM_SEED)];

  test.each(seeds)("emits every point once despite late data, 404s, 504s and kills (PLENUM_SEED=%i)", async (seed) => {
    const random = seededRandom(seed);
    const simulatedMs = 4 * DAY_MS;
    const tags = logged(23, START - 3 * DAY_MS, START + simulatedMs + 3 * DAY_MS);
    // A tenth comes late by up to a day, partly with another value first; some buckets never come.
    for (const [key, points] of service.truth) {
      if (!key.endsWith("5m")) continue;
      for (const [i, point] of points.entries()) {
        if (random() < 0.02) points[i] = { ...point, value: null };
        if (random() >= 0.1) continue;
        const knownFromMs = point.atMs + FIVE_MS + random() * 0.95 * DAY_MS;
        if (random() < 0.5) points.push({ atMs: point.atMs, value: -i, knownFromMs });
        else points[i] = { ...point, knownFromMs };
      }
      const remaining = points.filter(() => random() > 0.01);
      service.truth.set(key, remaining);
    }
    for (const id of tags) if (random() < 0.1) service.withoutLog.add(id);
    service.valuesMax = 1_500 + Math.floor(random() * 6_000);
    service.ends = { from: random() < 0.5, to: random() < 0.5 };
    service.failure = () => (random() < 0.05 ? new Retryable("504") : null);

    const classes = [{ ...FIVE, every: "30m", backfill: "2d" }];
    const mortal = (): Store => {
      let commitsLeft = Math.floor(random() * 30);
      return {
        ...store,
        document: (set, key) => store.document(set, key),
        documents: (set) => store.documents(set),
        async commit(change) {
          if (commitsLeft-- === 0) {
            if (random() < 0.5) await store.commit(change);
            throw new Error("killed");
          }
          return store.commit(change);
        },
      } as Store;
    };
    while (clock.now() < START + simulatedMs) {
      const history = await createPull(tags, classes, { store: mortal() });
      for (let i = 0; i < 6; i++) {
        if ((await runOnce(history)) instanceof Error && random() < 0.7) break;
        await clock.advance(30 * MINUTE_MS);
      }
    }
    service.failure = () => null;
    const history = await createPull(tags, classes);
    await follow(history, 1.2 * DAY_MS, 30 * MINUTE_MS);
    const withLog = tags.filter((id) => !service.withoutLog.has(id));
    const settledUntil = clock.now() - 2.1 * DAY_MS;
    expectComplete(told(), withLog, START - 1.9 * DAY_MS, settledUntil);
  });
});

describe("a request of `plenum backfill`", () => {
  const iso = (ms: number) => new Date(ms).toISOString();
  const requestBackfill = (id: string, fromMs: number, toMs: number, more: Partial<StoredBackfill> = {}) =>
    putBackfill(id, testBackfill(fromMs, toMs, more));

  test("a backfill request is fetched, marked as backfill, sent once, and marked as done", async () => {
    const tags = logged(25, START - 40 * DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [{ ...FIVE, backfill: "2d" }]);
    await requestBackfill("a", START - 30 * DAY_MS, START - 25 * DAY_MS);
    await requestBackfill("b", START - 27 * DAY_MS, START - 24 * DAY_MS);
    await follow(history, 2 * HOUR_MS);
    const sent = told();
    expectComplete(sent, tags, START - 30 * DAY_MS, START - 24 * DAY_MS);
    expectComplete(sent, tags, START - 2 * DAY_MS, START + HOUR_MS);
    const emittedTimes = [...(sent.values.get("101 5m")?.keys() ?? [])];
    expect(emittedTimes.some((at) => at > START - 23 * DAY_MS && at < START - 3 * DAY_MS)).toBe(false);
    const liveFacts = sent.facts.filter(({ origin }) => origin === "live");
    expect(liveFacts.filter(({ points }) => Date.parse(points[0]?.time ?? "") < START - DAY_MS)).toEqual([]);
    expect((await loadBackfill("a"))?.doneAt).not.toBeNull();
    expect((await loadBackfill("b"))?.doneAt).not.toBeNull();
    expect(history.progress()).toMatchObject({ requestsLeft: 0, orders: [] });
  });

  test("a backfill request is found within five seconds even if no history is followed", async () => {
    const tags = logged(5, START - 40 * DAY_MS, START + DAY_MS);
    const history = await createPull(tags, []);
    const { requests } = service;
    const stop = new AbortController();
    const signals = { draining: stop.signal, forced: stop.signal };
    const followEnd = history.follow({ ...signals, reportSuccess: () => undefined });
    await clock.advance(0);
    const wakeupsBefore = clock.woken();
    await clock.advance(10 * MINUTE_MS);
    expect(clock.woken() - wakeupsBefore).toBe(120);
    expect(requests).toEqual([]);
    await requestBackfill("a", START - 3 * DAY_MS, START, { select: { ids: ["101", "102"] } });
    await clock.advance(6_000);
    expect(requests.length).toBeGreaterThan(0);
    stop.abort(new OrderlyStop());
    await clock.advance(1_000);
    await followEnd;
  });

  test("a backfill request continues after a restart, and waits while backfills are paused", async () => {
    const tags = logged(20, START - 100 * DAY_MS, START + DAY_MS);
    const firstPull = await createPull(tags, [FIVE]);
    await requestBackfill("a", START - 80 * DAY_MS, START - 30 * DAY_MS);
    const run = startFollower(firstPull);
    await clock.advance(9_000);
    const pause = (pausedAt: string | null) =>
      store.commit({ documents: [{ set: syncSet("backfill-pause", "trial"), put: [["pause", { pausedAt }]] }] });
    await pause(iso(clock.now()));
    await run.kill(clock);
    const oldCount = service.requests.length;
    const secondPull = await createPull(tags, [FIVE]);
    await runOnce(secondPull);
    expect(secondPull.progress().orders[0]?.done).toBeGreaterThan(0);
    expect(secondPull.progress().orders[0]?.done).toBeLessThan(1);
    expect(service.requests.slice(oldCount).filter(({ to }) => Date.parse(to) < START - DAY_MS)).toEqual([]);
    await pause(null);
    await follow(secondPull, 2 * HOUR_MS);
    expectComplete(told(), tags, START - 80 * DAY_MS, START - 30 * DAY_MS);
    expect((await loadBackfill("a"))?.doneAt).not.toBeNull();
  });

  test("a backfill request deleted during its fetch stays deleted", async () => {
    const tags = logged(20, START - 40 * DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [FIVE]);
    await requestBackfill("a", START - 20 * DAY_MS, START - 15 * DAY_MS);
    const run = startFollower(history);
    await clock.advance(2_000);
    expect(history.progress().orders).toHaveLength(1);
    await store.commit({ documents: [{ set: syncSet("backfill", "trial"), remove: ["a"] }] });
    await clock.advance(10 * 60_000);
    await run.drain(clock);
    expect(await loadBackfill("a")).toBeUndefined();
  });

  test("removes a backfill request 30 days after it was done, or when 20 later requests are done", async () => {
    const tags = logged(1, START - DAY_MS, START + DAY_MS);
    const history = await createPull(tags, [FIVE]);
    const doneAgo = (ms: number) => ({ doneAt: iso(clock.now() - ms), withoutLog: { buckets: 0, tags: 0 } });
    await requestBackfill("old", START - 50 * DAY_MS, START - 49 * DAY_MS, doneAgo(31 * DAY_MS));
    await requestBackfill("recent", START - 50 * DAY_MS, START - 49 * DAY_MS, doneAgo(29 * DAY_MS));
    await requestBackfill("today", START - HOUR_MS, START);
    await runOnce(history);
    expect((await loadBackfill("today"))?.doneAt).not.toBeNull();
    expect(await Promise.all(["old", "recent", "today"].map(loadBackfill))).toMatchObject([undefined, {}, {}]);
    for (let n = 1; n < 20; n += 1)
      await requestBackfill(`new-${n}`, START - 3 * DAY_MS, START - 2 * DAY_MS, doneAgo(n * HOUR_MS));
    await clock.advance(60_000);
    await runOnce(history);
    expect(await Promise.all(["recent", "new-19", "today"].map(loadBackfill))).toMatchObject([undefined, {}, {}]);
  });
});
