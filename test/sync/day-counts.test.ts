import { describe, expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Resolution } from "#src/core/model/building.ts";
import {
  countEmittedPoints,
  countOfDay,
  countsBetween,
  dateToDay,
  dayDate,
  gaplessDays,
  getDayCount,
  isCountedDay,
  mergeCounts,
  newCompleteDays,
  splitDayCounts,
  utcDay,
} from "#src/engine/sync/completeness/complete-days.ts";
import { createFinalizedDays } from "#src/engine/sync/completeness/finalized-days.ts";
import { bucketEnd, bucketStart, bucketStartFinder, countBuckets, DAY_MS } from "#src/engine/sync/history/buckets.ts";
import { createLedger } from "#src/engine/sync/history/ledger.ts";
import { toStoredRanges } from "#src/engine/sync/history/ledger-ranges.ts";
import type { StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { seriesWith } from "./history-harness.ts";
import { createMemoryStore, type MemoryStore } from "./memory-store.ts";

const NOW = Date.parse("2026-11-02T06:00:00Z");
const RULES = {
  ...{ resolution: "5m" as const, timeZone: "UTC", everyMs: 3_600_000 },
  ...{ backfillMs: 400 * DAY_MS, graceMs: 120_000, lookBackMs: DAY_MS },
};

describe("stored counts of points per UTC day", () => {
  test("the text that stores the counts equals a map of counts after random additions, and joins equal consecutive days", () => {
    const random = seededRandom(seed);
    let counts = "";
    const expectedCounts = new Map<number, { had: number; null: number }>();
    for (let round = 0; round < 300; round++) {
      const addedCounts = new Map<number, { had: number; null: number }>();
      const firstDay = 100 + Math.floor(random() * 30);
      for (let day = firstDay; day < firstDay + random() * 10; day++) {
        const knownCount = expectedCounts.get(day) ?? { had: 0, null: 0 };
        const added = { had: Math.floor(random() * 3) - Math.min(1, knownCount.had), null: Math.floor(random() * 2) };
        addedCounts.set(day, added);
        expectedCounts.set(day, { had: knownCount.had + added.had, null: knownCount.null + added.null });
      }
      counts = mergeCounts(counts, addedCounts);
      expect(
        new Map([...countsBetween(counts, 0, 200)].map(([day, { had, null: nulls }]) => [day, { had, null: nulls }])),
        replay,
      ).toEqual(new Map([...expectedCounts].sort(([a], [b]) => a - b)));
      const at = 95 + Math.floor(random() * 45);
      expect(countOfDay(counts, at)?.had, replay).toBe(expectedCounts.get(at)?.had);
      const [before, rest] = splitDayCounts(counts, at);
      expect(mergeCounts(before, countsBetween(rest, 0, 200)), replay).toBe(counts);
    }
    const year = new Map(Array.from({ length: 365 }, (_, i) => [20_000 + i, { had: 288, null: 0 }] as const));
    expect(mergeCounts("", year)).toBe("20000+364:288");
    expect(mergeCounts("20000+364:288", new Map([[20_100, { had: -1, null: 1 }]]))).toBe(
      "20000+99:288,20100:287.1,20101+263:288",
    );
  });

  test("a revised point moves between the counts of values and nulls, and several points of a bucket count once", () => {
    const [fresh, revised] = [new TagPoints(), new TagPoints()];
    for (const minute of [0, 2, 5, 10]) fresh.push(NOW + minute * 60_000, 1);
    revised.push(NOW + 900_000, Number.NaN);
    revised.push(NOW + 1_200_000, 3);
    revised.push(NOW + 1_500_000, 4);
    const valuesBefore = new Map<number, number | null>([
      [NOW + 900_000, 1],
      [NOW + 1_200_000, null],
      [NOW + 1_500_000, null],
    ]);
    expect(
      countEmittedPoints({ newPoints: fresh, revisedPoints: revised, valuesBefore }, RULES).get(utcDay(NOW)),
    ).toEqual({ had: 4, null: -1, points: 6 });
  });
});

describe("buckets of a UTC day", () => {
  const zones = [
    "UTC",
    "Europe/Stockholm",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Cairo",
    "Pacific/Apia",
  ];
  test.each(zones)("counts every bucket of a year in %s in exactly one UTC day", (zone) => {
    for (const resolution of ["5m", "1h", "1d", "1w", "1mo"] as const satisfies readonly Resolution[]) {
      const [from, until] =
        resolution === "5m"
          ? [dateToDay("2026-03-20"), dateToDay("2026-04-10")]
          : [dateToDay("2026-01-01"), dateToDay("2027-01-01")];
      const startsByDay = new Map<number, number>();
      const bucketRules = { resolution, timeZone: zone };
      const finder = bucketStartFinder(bucketRules);
      for (let at = bucketStart(from * DAY_MS, bucketRules); at < until * DAY_MS; at = bucketEnd(at, bucketRules)) {
        startsByDay.set(utcDay(at), (startsByDay.get(utcDay(at)) ?? 0) + 1);
        const lastMs = bucketEnd(at, bucketRules) - 1;
        expect([finder(at), finder(at + 1), finder(lastMs)]).toEqual([at, at, at]);
      }
      for (let day = from; day < until; day++)
        expect(countBuckets(day, bucketRules), `${zone} ${resolution} ${dayDate(day)}`).toBe(startsByDay.get(day) ?? 0);
    }
  });
});

const finalizedDays = (store: MemoryStore) =>
  createFinalizedDays({
    ...{ store, clock: createVirtualClock(NOW), source: "trial" },
    ...{ series: () => [], knowsTagsOf: () => false },
  });

const had = (from: string, to: string) =>
  toStoredRanges([{ fromMs: Date.parse(from), toMs: Date.parse(to), why: "points" }]);

describe("counts per UTC day in the ledger of a series", () => {
  test("a ledger of an earlier version has counts only for days after its upgrade", async () => {
    const { days: _, ...before } = {
      ...createLedger(RULES, NOW),
      state: "following" as const,
      spans: had("2026-10-01T00:00Z", "2026-11-02T05:55Z"),
      watermark: "2026-11-02T05:55:00.000Z",
    };
    const ledgerAfter = {
      ...before,
      spans: had("2026-10-01T00:00Z", "2026-11-04T00:00Z"),
      watermark: "2026-11-04T00:00:00.000Z",
    };
    const dayChanges = finalizedDays(createMemoryStore()).collectDayChanges(NOW);
    const noPoints = { newPoints: new TagPoints(), revisedPoints: new TagPoints(), valuesBefore: new Map() };
    const countedLedger = await dayChanges.countReplyPoints(seriesWith(before, RULES), before, ledgerAfter, noPoints);
    expect(countedLedger.countedFrom).toBe("2026-11-02T05:55:00.000Z");
    expect(dayChanges.events.map(({ data }) => "firstDate" in data && [data.firstDate, data.lastDate])).toEqual([
      ["2026-11-03", "2026-11-03"],
    ]);
    expect(
      [dateToDay("2026-11-02"), dateToDay("2026-11-03")].map((day) => isCountedDay(countedLedger, day, NOW)),
    ).toEqual([false, true]);
    expect(gaplessDays(seriesWith(countedLedger, RULES)).finalizableFrom).toBe(dateToDay("2026-11-03"));
  });

  test("long counts are stored outside the ledger, and the count of each day is still found", async () => {
    const store = createMemoryStore();
    let ledger: StoredLedger = { ...createLedger(RULES, NOW), state: "following" };
    const firstMs = NOW - 300 * DAY_MS;
    for (let round = 0; round < 3; round++) {
      const newPoints = new TagPoints();
      for (let day = round * 100; day < round * 100 + 100; day++)
        for (let n = 0; n < 1 + (day % 7) * 3; n++)
          newPoints.push(Math.floor(firstMs / DAY_MS + day) * DAY_MS + n * 300_000, n);
      const dayChanges = finalizedDays(store).collectDayChanges(NOW);
      ledger = await dayChanges.countReplyPoints(seriesWith(ledger, RULES), ledger, ledger, {
        newPoints,
        revisedPoints: new TagPoints(),
        valuesBefore: new Map(),
      });
      await store.commit({ documents: dayChanges.documents() });
      expect(ledger.days?.length).toBeLessThanOrEqual(600);
    }
    for (let day = 0; day < 300; day++)
      expect((await getDayCount(store, "trial", "101 5m", ledger, utcDay(firstMs) + day))?.had).toBe(1 + (day % 7) * 3);
  });

  test("a ledger that a backfill fills backwards reports each day once, when the first bucket of the day arrives", () => {
    const ledger = { ...createLedger(RULES, NOW), wished: "2026-10-01T00:00:00.000Z" };
    const of = (from: string, to: string): StoredLedger => ({ ...ledger, spans: had(from, to) });
    const before = of("2026-10-30T12:00Z", "2026-11-02T00:00Z");
    expect(newCompleteDays(ledger, before)).toEqual([
      { fromDay: dateToDay("2026-10-31"), untilDay: dateToDay("2026-11-02") },
    ]);
    expect(newCompleteDays(before, of("2026-10-30T00:05Z", "2026-11-02T00:00Z"))).toEqual([]);
    expect(newCompleteDays(before, of("2026-10-29T00:00Z", "2026-11-02T23:55Z"))).toEqual([
      { fromDay: dateToDay("2026-10-29"), untilDay: dateToDay("2026-10-31") },
    ]);
  });
});
