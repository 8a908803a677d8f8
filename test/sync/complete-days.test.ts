import { describe, expect, test } from "vitest";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import type { Resolution } from "#src/core/model/building.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import type {
  DayBucketCounts,
  DaySealedFact,
  SeriesCompleteFact,
  SiteCompleteFact,
} from "#src/core/model/history-event-data.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { dateToDay, getDayCount, utcDay } from "#src/engine/sync/completeness/complete-days.ts";
import { countSeriesDay } from "#src/engine/sync/completeness/daily-bucket-counts.ts";
import { bucketEnd, bucketStart } from "#src/engine/sync/history/buckets.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { createSeriesSelector } from "#src/engine/sync/history/series-registry.ts";
import type { StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";
import { DAY_MS, HOUR_MS, historyHarness } from "./history-harness.ts";
import { inventory, startFollower, tagNamed } from "./live-reads-harness.ts";

function createHarness(startMs: number, zone: string) {
  const { clock, store, service, createPull } = historyHarness(startMs, 2);
  const create = (classes: readonly object[]) => createPull([], classes, { timeZone: zone });
  return {
    clock,
    store,
    service,
    async tags(ids: readonly string[]) {
      const tags = ids.map((id) => tagNamed(id));
      await inventory(store, "trial", tags);
    },
    /** Logs a value per bucket, known as soon as it is over; `value` may say null, or undefined for no bucket. */
    log(
      id: string,
      resolution: Resolution,
      fromMs: number,
      toMs: number,
      value: (at: number) => number | null | undefined,
    ) {
      const points = service.truth.get(`${id} ${resolution}`) ?? [];
      const bucketRules = { resolution, timeZone: zone };
      for (let at = bucketStart(fromMs, bucketRules); at < toMs; at = bucketEnd(at, bucketRules)) {
        const known = value(at);
        if (known !== undefined) points.push({ atMs: at, value: known, knownFromMs: bucketEnd(at, bucketRules) });
      }
      service.truth.set(`${id} ${resolution}`, points);
      const months = service.truth.get(`${id} 1mo`) ?? [];
      const monthMs = bucketStart(fromMs, { ...bucketRules, resolution: "1mo" });
      if (months.length === 0) months.push({ atMs: monthMs, value: 1, knownFromMs: fromMs });
      service.truth.set(`${id} 1mo`, months);
    },
    async work(classes: readonly object[], ms: number, stepMs = HOUR_MS, killed = () => false) {
      let pull = await create(classes);
      for (const endMs = clock.monotonic() + ms; clock.monotonic() < endMs; ) {
        const running = startFollower(pull);
        for (let n = 0; n < 30 && !running.ended(); n++) await clock.advance(1_000);
        const dies = killed();
        await (dies ? running.kill(clock) : running.drain(clock));
        if (dies) pull = await create(classes);
        await clock.advance(stepMs);
      }
    },
    events: () => store.events as readonly AnyEvent[],
    sealed: () => store.events.filter(({ type }) => type === "day-sealed").map(({ data }) => data as DaySealedFact),
    bySeries: () => listCompleteFacts(store.events as readonly AnyEvent[]).filter((fact) => "tag" in fact),
    bySite: () => listCompleteFacts(store.events as readonly AnyEvent[]).filter((fact) => "site" in fact),
  };
}

function listCompleteFacts(events: readonly AnyEvent[]): readonly (SeriesCompleteFact | SiteCompleteFact)[] {
  return events.flatMap((event) => (event.type === "history-complete" ? [event.data] : []));
}

function sum({ had, null: nulls, absent, withoutLog, refused, pending }: DayBucketCounts): number {
  return had + nulls + absent + withoutLog + refused + pending;
}

type PointsBySeries = Map<string, Map<number, number | boolean | null>>;

function addPoints(bySeries: PointsBySeries, event: AnyEvent): void {
  if (event.type !== "tag-history") return;
  const key = `${event.data.tag.id} ${event.data.resolution}`;
  const seriesPoints = bySeries.get(key) ?? new Map();
  for (const { time, value } of event.data.points) seriesPoints.set(Date.parse(time), value);
  bySeries.set(key, seriesPoints);
}

function findFaults(events: readonly AnyEvent[]): readonly string[] {
  const faults: string[] = [];
  const emittedPoints: PointsBySeries = new Map();
  const revisions = new Map<string, number>();
  const dates = new Map<string, number>();
  const countPointsIn = (keys: readonly string[], first: string, last: string) => {
    let [had, nulls] = [0, 0];
    for (const key of keys)
      for (const [at, value] of emittedPoints.get(key) ?? []) {
        if (utcDay(at) < dateToDay(first) || utcDay(at) > dateToDay(last)) continue;
        if (value === null) nulls++;
        else had++;
      }
    return `had ${had}, null ${nulls}`;
  };
  for (const event of events) {
    addPoints(emittedPoints, event);
    if (event.type !== "history-complete" && event.type !== "day-sealed") continue;
    if ("waiting" in event.data) continue;
    const { expected, had, null: nulls, pending } = event.data;
    if (expected !== sum(event.data)) faults.push(`${event.id}: ${JSON.stringify(event.data)} does not add up`);
    if (pending > 0) faults.push(`${event.id} is told with ${pending} pending`);
    let emittedCounts: string;
    if (event.type === "day-sealed") {
      const { date, revision, byResolution } = event.data;
      if (revision !== (revisions.get(date) ?? 0) + 1)
        faults.push(`${date} has revision ${revision} too early or twice`);
      revisions.set(date, revision);
      for (const resolutionAccount of byResolution)
        if (resolutionAccount.expected !== sum(resolutionAccount))
          faults.push(`${date} ${resolutionAccount.resolution} does not add up`);
      emittedCounts = countPointsIn([...emittedPoints.keys()], date, date);
    } else {
      const { tag, resolution, firstDate, lastDate } = event.data as SeriesCompleteFact;
      for (let day = dateToDay(firstDate); day <= dateToDay(lastDate); day++) {
        const key = `${tag.id} ${resolution} ${day}`;
        if (expected <= (dates.get(key) ?? 0)) faults.push(`${key} is complete twice`);
        dates.set(key, expected);
      }
      emittedCounts = countPointsIn([`${tag.id} ${resolution}`], firstDate, lastDate);
    }
    if (emittedCounts !== `had ${had}, null ${nulls}`)
      faults.push(`${event.id} says had ${had}, null ${nulls}; told was ${emittedCounts}`);
  }
  return faults;
}

const FIVE = { name: "five", resolution: "5m", every: "1h", look_back: "6h" };
const START = Date.parse("2026-11-02T00:00:00Z");

describe("events about complete days of a site", () => {
  test("emits history-complete for each series, then for the site, and day-sealed after the look-back was read", async () => {
    const building = createHarness(START + 6 * HOUR_MS, "UTC");
    await building.tags(["101", "102"]);
    building.service.withoutLog.add("102");
    building.log("101", "5m", START, START + 6 * DAY_MS, (at) =>
      at % HOUR_MS === 0 ? undefined : (at / 300_000) % 50 === 7 ? null : 1,
    );
    await building.work([FIVE], 4 * DAY_MS);
    expect(findFaults(building.events())).toEqual([]);
    expect(
      building.bySeries().map((fact) => ("tag" in fact ? [fact.firstDate, fact.expected, fact.notWanted] : [])),
    ).toEqual([
      ["2026-11-02", 217, 71],
      ["2026-11-03", 288, 0],
      ["2026-11-04", 288, 0],
      ["2026-11-05", 288, 0],
    ]);
    expect(building.bySite().at(-1)).toMatchObject({ from: null, until: "2026-11-06", series: 2, waiting: [] });
    const [first, second, third] = building.sealed();
    expect(first).toMatchObject({ date: "2026-11-02", revision: 1, series: 2 });
    expect(second).toMatchObject({
      ...{ site: { id: 1, displayName: "Site" }, date: "2026-11-03", timeZones: ["UTC"], revision: 1, revised: 0 },
      ...{ expected: 576, absent: 24, withoutLog: 288, refused: 0, pending: 0, seriesWithoutLogCount: 1 },
    });
    expect(second?.seriesWithoutLog).toMatchObject([
      { tagId: "102", buckets: 288, said: expect.stringContaining("404") },
    ]);
    expect(third?.date).toBe("2026-11-04");
    expect(building.sealed()).toHaveLength(3);
    const at = (type: string) =>
      building.events().find((event) => event.type === type && event.time > "2026-11-04")?.time ?? "";
    expect(at("day-sealed") >= "2026-11-04T06:00").toBe(true);
  });

  test("emits one new revision of a finalized day an hour after its values changed", async () => {
    const building = createHarness(START, "UTC");
    await building.tags(["101"]);
    building.log("101", "5m", START, START + 13 * DAY_MS, () => 1);
    const points = building.service.truth.get("101 5m") ?? [];
    for (const n of [3, 4])
      points.push({ atMs: START + n * 300_000 + 4 * DAY_MS, value: 7, knownFromMs: START + 5.9 * DAY_MS });
    await building.work([{ ...FIVE, look_back: "1d" }], 9 * DAY_MS, HOUR_MS / 2);
    expect(findFaults(building.events())).toEqual([]);
    const laterRevisions = building.sealed().filter(({ revision }) => revision > 1);
    expect(laterRevisions).toMatchObject([{ date: "2026-11-06", revision: 2, revised: 2, expected: 288, had: 288 }]);
    const at = (revision: number) =>
      building
        .events()
        .find(
          ({ type, data }) =>
            type === "day-sealed" && "date" in data && data.date === "2026-11-06" && data.revision === revision,
        )?.time ?? "";
    const revisedEvent = building.events().find(({ data }) => "revised" in data && data.revised === true);
    expect(Date.parse(at(2)) - building.store.emittedAtMs(revisedEvent?.id ?? "")).toBeGreaterThanOrEqual(HOUR_MS);
  });

  test("emits a new revision of a day for a series added later, and does not wait for a removed series", async () => {
    const building = createHarness(START + 12 * HOUR_MS, "UTC");
    await building.tags(["101", "102"]);
    for (const id of ["101", "102"]) building.log(id, "1h", START, START + 9 * DAY_MS, () => 1);
    const hour = { name: "hour", resolution: "1h", every: "1h", look_back: "6h", select: { name: ["T101"] } };
    await building.work([hour], 3 * DAY_MS, 3 * HOUR_MS);
    const sealedBefore = building.sealed().map(({ date, revision, series }) => [date, revision, series]);
    expect(sealedBefore).toEqual([
      ["2026-11-02", 1, 1],
      ["2026-11-03", 1, 1],
    ]);
    await building.work([{ ...hour, select: {}, backfill: "2d" }], DAY_MS, 3 * HOUR_MS);
    expect(findFaults(building.events())).toEqual([]);
    const sealedAfter = building
      .sealed()
      .filter(({ series }) => series === 2)
      .map(({ date, revision, expected, revised }) => [date, revision, expected, revised]);
    expect(sealedAfter).toContainEqual(["2026-11-03", 2, 36, 12]);
    expect(sealedAfter).not.toContainEqual(["2026-11-03", 3, expect.anything(), expect.anything()]);
    // The lists no longer contain it.
    const set = documentSet("tag", "trial");
    const storedTag = await building.store.document<object>(set, "102");
    await building.store.commit({
      documents: [{ set, put: [["102", { ...storedTag, missingSince: "2026-11-06T12:00:00.000Z" }]] }],
    });
    building.service.failure = ({ tagIds }) => (tagIds.includes("102") ? new Rejected("gone") : null);
    await building.work([{ ...hour, select: {}, backfill: "2d" }], 3 * DAY_MS, 3 * HOUR_MS);
    expect(building.sealed().at(-1)).toMatchObject({ date: "2026-11-07", series: 1, refused: 0 });
    expect(findFaults(building.events())).toEqual([]);
  });

  test("name the series that delays the day of its site; the day is finalized after three refusals of the series", async () => {
    const building = createHarness(START, "UTC");
    await building.tags(["101", "102"]);
    for (const id of ["101", "102"]) building.log(id, "1h", START - DAY_MS, START + 9 * DAY_MS, () => 1);
    const hour = { name: "hour", resolution: "1h", every: "1h", look_back: "6h" };
    await building.work([hour], DAY_MS / 2, HOUR_MS);
    building.service.failure = ({ tagIds }) => (tagIds.includes("102") ? new Rejected("The tag is locked.") : null);
    await building.work([hour], 3 * DAY_MS, HOUR_MS);
    expect(findFaults(building.events())).toEqual([]);
    expect(building.bySite().at(-1)).toMatchObject({
      ...{ until: "2026-11-02", waitingCount: 1 },
      waiting: [{ tagId: "102", displayName: "T102", why: "refused", said: "The tag is locked." }],
    });
    const { date, had, refused, seriesRefused } = building.sealed().at(-1) ?? {};
    expect([date, had, refused]).toEqual(["2026-11-03", 24, 24]);
    expect(seriesRefused).toMatchObject([{ tagId: "102", buckets: 24, said: "The tag is locked." }]);
    building.service.failure = () => null;
    await building.work([hour], 2 * DAY_MS, HOUR_MS);
    expect(building.bySite().at(-1)).toMatchObject({ waiting: [], waitingCount: 0 });
    expect(building.sealed().find((day) => day.date === "2026-11-03" && day.revision === 2)).toMatchObject({
      had: 48,
      refused: 0,
    });
  });

  test("emits each complete day once under random fetches, gaps, refusals, outages and restarts", async () => {
    const random = seededRandom(seed);
    const one = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)] as T;
    const timeZone = one(["Europe/Stockholm", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]);
    // Stockholm has a day of 25 hours on the 25th, Lord Howe one of 23 and a half on the 4th.
    const startMs =
      Date.parse(timeZone === "Australia/Lord_Howe" ? "2026-10-02T10:00:00Z" : "2026-10-23T10:00:00Z") +
      Math.floor(random() * DAY_MS);
    const building = createHarness(startMs, timeZone);
    const ids = ["101", "102", "103", "104"];
    await building.tags(ids);
    const classes = (["5m", "1h", "1d"] as const).map((resolution) => ({
      ...{ name: resolution, resolution, every: one(["1h", "3h"]), look_back: one(["1h", "1d", "2d"]) },
      backfill: one(["0s", "1d", "3d"]),
    }));
    if (random() < 0.3) building.service.withoutLog.add("104");
    for (const id of ids)
      for (const resolution of ["5m", "1h", "1d"] as const) {
        const [nulls, gaps] = [one([0, 0.1]), one([0, 0.3])];
        building.log(id, resolution, startMs - 10 * DAY_MS, startMs + 9 * DAY_MS, () =>
          random() < gaps ? undefined : random() < nulls ? null : 1,
        );
        for (const point of building.service.truth.get(`${id} ${resolution}`) ?? []) {
          if (random() < 0.01) Object.assign(point, { knownFromMs: point.knownFromMs + random() * 40 * HOUR_MS });
        }
      }
    for (let day = 0; day < 4; day++) {
      const troubleOdds = random();
      const victim = one(ids);
      building.service.failure = ({ tagIds }) => {
        if (troubleOdds < 0.2) return new Retryable("504");
        return troubleOdds < 0.5 && tagIds.includes(victim) ? new Rejected("locked") : null;
      };
      await building.work(classes, DAY_MS, 2.9 * HOUR_MS, () => random() < 0.2);
      await expectBalance(building, classes, timeZone);
    }
    expect(findFaults(building.events()), replay).toEqual([]);
  });
});

async function expectBalance(
  here: ReturnType<typeof createHarness>,
  classes: readonly object[],
  zone: string,
): Promise<void> {
  const selectSeries = createSeriesSelector(HistoryConfig.parse(classes), zone);
  const ledgers = await here.store.documents<StoredLedger>(documentSet("history", "trial"));
  expect(ledgers.size).toBe(12);
  const nowMs = here.clock.now();
  const emittedPoints: PointsBySeries = new Map();
  for (const event of here.events()) addPoints(emittedPoints, event);
  for (const [key, stored] of ledgers) {
    const placed = { tag: tagNamed(key.split(" ")[0] ?? ""), siteId: 1, systemIds: [] };
    const series = selectSeries(placed, []).find((each) => each.key === key);
    if (series === undefined) throw new Error(`${key} is not followed.`);
    for (let day = utcDay(nowMs) - 12; day <= utcDay(nowMs); day++) {
      const account = countSeriesDay(
        { ledger: stored, siteTag: {}, rules: series.rules },
        day,
        await getDayCount(here.store, "trial", key, stored, day),
        nowMs,
      );
      const points = [...(emittedPoints.get(key) ?? [])].filter(([at]) => utcDay(at) === day);
      const details = JSON.stringify([key, day, account, stored.spans]);
      expect(account.expected, `${details} ${replay}`).toBe(sum(account));
      expect(
        Math.min(...Object.values(account).filter((value) => typeof value === "number")),
        `${details} ${replay}`,
      ).toBeGreaterThanOrEqual(0);
      expect(account.expected + account.notWanted, replay).toBeGreaterThanOrEqual(points.length);
      expect([account.had, account.null], `${details} ${replay}`).toEqual([
        points.filter(([, value]) => value !== null).length,
        points.filter(([, value]) => value === null).length,
      ]);
    }
  }
}
