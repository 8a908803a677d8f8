import { describe, expect, test } from "vitest";
import { dateToDay, gaplessDays } from "#src/engine/sync/completeness/complete-days.ts";
import { countSeriesDay, createDayCounter, daySealedFact } from "#src/engine/sync/completeness/daily-bucket-counts.ts";
import { createLedger } from "#src/engine/sync/history/ledger.ts";
import type { SeriesLedger } from "#src/engine/sync/history/series-registry.ts";
import type { StoredLedger, StoredRange } from "#src/engine/sync/stored-documents.ts";
import { tagNamed } from "./live-reads-harness.ts";

const NOW = Date.parse("2026-11-05T12:01:00Z");
const DAY_MS = 86_400_000;
const day = (date: string) => dateToDay(`2026-11-${date}`);
const at = (text: string) => `2026-11-${text}:00.000Z`;

function series(
  id: string,
  ledger: Partial<StoredLedger> = {},
  more: { readonly total?: boolean; readonly lookBackMs?: number; readonly everyMs?: number } = {},
): SeriesLedger {
  const rules = {
    ...{ resolution: ledger.resolution ?? "5m", timeZone: ledger.timeZone ?? "UTC" },
    ...{ everyMs: more.everyMs ?? 3_600_000, backfillMs: 0, graceMs: 60_000 },
    lookBackMs: more.lookBackMs ?? DAY_MS,
  };
  return {
    total: more.total ?? false,
    siteTag: { tag: tagNamed(id), siteId: 1, systemIds: [] },
    rules,
    ledger: {
      ...createLedger(rules, NOW),
      ...{ state: "following", since: at("01T00:00"), wished: at("01T00:00"), watermark: at("05T12:00") },
      spans: [span("01T00:00", "05T12:00")],
      ...ledger,
    },
  };
}

function span(from: string, to: string, more: Partial<StoredRange> = {}): StoredRange {
  return { from: at(from), to: at(to), why: "points", ...more };
}

const MESSAGE = { said: "The tag is locked.", at: at("05T11:00") };
const REFUSAL = { ...MESSAGE, times: 3, againAt: at("05T13:00") };

/** The day of a series that is followed from 06:00 on the third. */
function account(ledger: Partial<StoredLedger>, date: string, count?: { readonly had: number; readonly null: number }) {
  const sinceThird = { since: at("03T06:00"), wished: at("03T06:00"), spans: [span("03T06:00", "05T12:00")] };
  return countSeriesDay(series("1", { ...sinceThird, ...ledger }), day(date), count, NOW);
}

describe("the completeness of a history series for one UTC day", () => {
  test("counts values, nulls and absent buckets of a fetched day", () => {
    expect(account({}, "04", { had: 200, null: 8 })).toEqual({
      ...{ expected: 288, had: 200, null: 8, absent: 80, withoutLog: 0, refused: 0, pending: 0, notWanted: 0 },
      ...{ why: null, noLog: null, refusal: null },
    });
    expect(account({}, "04")).toMatchObject({ expected: 288, had: 0, null: 0, absent: 288 });
  });

  test("counts buckets for which the service reported no log, and refused buckets, each with the last message", () => {
    const olderMessage = { said: "older", at: at("04T01:00") };
    const spans = [
      span("04T00:00", "04T01:00", { why: "no-log", ...olderMessage }),
      span("04T01:00", "04T03:00", { why: "no-log" }),
      span("04T03:00", "04T04:00", { why: "refused", ...olderMessage }),
      span("04T04:00", "04T06:00", { why: "refused", ...MESSAGE }),
      span("04T06:00", "05T12:00"),
    ];
    expect(account({ spans }, "04", { had: 216, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 216, withoutLog: 36, refused: 36, pending: 0 },
      ...{ noLog: { said: null, at: null }, refusal: MESSAGE },
    });
  });

  test("counts pending buckets as without a log when the service reported no log for the series", () => {
    const ledger = { state: "no-log" as const, spans: [span("04T00:00", "04T06:00")] };
    expect(account(ledger, "04", { had: 72, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 72, withoutLog: 216, pending: 0 },
      ...{ noLog: { said: null, at: null }, why: null },
    });
    expect(account({ ...ledger, refusal: REFUSAL }, "04")).toMatchObject({ withoutLog: 216, noLog: MESSAGE });
  });

  test("counts refused buckets after the last fetched time as refused, and earlier refused buckets as pending", () => {
    const ledger = { refusal: REFUSAL, watermark: at("04T12:00"), spans: [span("04T06:00", "04T12:00")] };
    expect(account(ledger, "04", { had: 72, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 72, refused: 144, pending: 72, refusal: MESSAGE, why: "behind" },
    });
    expect(account(ledger, "05")).toMatchObject({ expected: 288, refused: 144, pending: 144, refusal: MESSAGE });
    expect(account(ledger, "03")).toMatchObject({ expected: 216, refused: 0, pending: 216, refusal: null });
    const unproven = account({ ...ledger, state: "unproven" }, "03");
    expect(unproven).toMatchObject({ refused: 216, pending: 0, refusal: MESSAGE });
  });
});

test.each<[string, string, StoredLedger["state"], string, string]>([
  ["it is not known yet whether there is a log", "03T06:00", "unproven", "04", "unproven"],
  ["the worker already follows later days", "05T00:00", "following", "04", "backfill"],
  ["the worker has not followed history up to that day", "04T23:55", "following", "04", "behind"],
  ["the day is not over", "05T12:00", "following", "05", "open"],
  ["the day has not begun for the series", "05T12:00", "following", "06", "open"],
])("states why buckets are pending when %s", (_, watermark, state, date, why) => {
  expect(account({ watermark: at(watermark), state, spans: [] }, date).why).toBe(why);
});

describe("the completeness of all series of a site for one UTC day", () => {
  test("is the sum over its series, in total and by resolution, time zone, and points or totals", () => {
    const siteDay = createDayCounter(day("04"));
    const fullCount = { had: 288, null: 0 };
    expect(siteDay.add(series("1"), fullCount, NOW)).toMatchObject({ expected: 288, had: 288 });
    siteDay.add(series("2"), { had: 280, null: 4 }, NOW);
    siteDay.add(series("3", {}, { total: true }), fullCount, NOW);
    siteDay.add(series("4", { resolution: "1h", timeZone: "Europe/Oslo" }), { had: 24, null: 0 }, NOW);
    const laterLedger = { since: at("05T00:00"), wished: at("05T00:00"), spans: [] };
    expect(siteDay.add(series("5", laterLedger), undefined, NOW)).toMatchObject({ expected: 0, notWanted: 288 });
    const done = siteDay.buildCounts();
    expect(done.account).toMatchObject({ expected: 3 * 288 + 24, had: 288 + 280 + 288 + 24, null: 4, absent: 4 });
    expect(done.series).toBe(4);
    expect(
      done.byResolution.map((part) => [part.resolution, part.timeZone, part.total, part.series, part.expected]),
    ).toEqual([
      ["5m", "UTC", false, 2, 576],
      ["5m", "UTC", true, 1, 288],
      ["1h", "Europe/Oslo", false, 1, 24],
    ]);
    expect([done.withoutLog, done.refused]).toEqual([[], []]);
    const dayFact = daySealedFact({ id: 1, displayName: "Site" }, day("04"), done, 2, 7);
    expect(dayFact).toMatchObject({
      ...{ site: { id: 1 }, date: "2026-11-04", revision: 2, revised: 7, series: 4, expected: 888 },
      ...{ timeZones: ["UTC", "Europe/Oslo"], seriesWithoutLogCount: 0, seriesRefusedCount: 0 },
    });
  });
});

describe("the complete days of a series", () => {
  const NEVER = Number.NEGATIVE_INFINITY;
  const EVER = Number.POSITIVE_INFINITY;
  const reads = { dailyAt: at("05T12:00"), weeklyAt: at("05T12:00") };

  test("reach from the first requested day to the last complete day, and may be finalized after the look-back", () => {
    expect(gaplessDays(series("1", reads))).toEqual({
      firstWantedDay: day("01"),
      from: NEVER,
      until: day("05"),
      finalizableFrom: NEVER,
      finalizableUntil: day("04"),
    });
    const old = { dailyAt: at("05T12:00"), weeklyAt: at("02T12:00") };
    expect(gaplessDays(series("1", old)).finalizableUntil).toBe(day("04"));
    expect(gaplessDays(series("1", old, { lookBackMs: 3 * DAY_MS })).finalizableUntil).toBe(day("01") - 2);
    const weekly = { dailyAt: at("02T12:00"), weeklyAt: at("05T12:00") };
    expect(gaplessDays(series("1", weekly)).finalizableUntil).toBe(day("04"));
    expect(gaplessDays(series("1", { ...reads, rereadFrom: at("02T06:00") })).finalizableUntil).toBe(day("02"));
    expect(gaplessDays(series("1", { ...reads, weeklyAt: at("01T00:00") }, { total: true })).finalizableUntil).toBe(
      day("05"),
    );
  });

  test("have the look-back of daily values counted in calendar days, also over a day of 23 hours", () => {
    const watermark = "2027-03-28T22:00:00.000Z";
    const spans: StoredRange[] = [{ from: "2027-03-20T23:00:00.000Z", to: watermark, why: "points" }];
    const daily = { resolution: "1d", timeZone: "Europe/Oslo", watermark, spans } as const;
    const finalizedUntil = (time: string) =>
      gaplessDays(series("1", { ...daily, since: spans[0]?.from ?? "", dailyAt: time, weeklyAt: time }))
        .finalizableUntil;
    // A day before Monday 00:30 is Sunday 00:30; Sunday began at 23:00 UTC on the 27th.
    expect(finalizedUntil("2027-03-28T22:30:00.000Z")).toBe(dateToDay("2027-03-27"));
    expect(finalizedUntil("2027-03-28T21:30:00.000Z")).toBe(dateToDay("2027-03-26"));
  });

  test("may be finalized if ranges of a day were refused three times, but not if they were refused only twice", () => {
    const refused = (times: number) => ({
      ...reads,
      spans: [
        span("01T00:00", "02T00:00"),
        span("02T00:00", "03T00:00", { why: "refused", said: "no", at: at("05T00:00"), times }),
        span("03T00:00", "05T12:00"),
      ],
    });
    expect(gaplessDays(series("1", refused(2)))).toMatchObject({ from: day("03"), finalizableFrom: day("03") });
    const finallyRefused = gaplessDays(series("1", refused(3)));
    expect(finallyRefused).toMatchObject({ from: day("03"), finalizableFrom: NEVER, finalizableUntil: day("04") });
  });

  test("delay no day of the site after the series was refused three times in a row", () => {
    const refusal = { said: "no", at: at("05T00:00"), againAt: at("05T13:00") };
    const ledger = { ...reads, weeklyAt: at("01T00:00"), dailyAt: at("01T00:00") };
    const sealUntil = (times: number) =>
      gaplessDays(series("1", { ...ledger, refusal: { ...refusal, times } })).finalizableUntil;
    expect([sealUntil(2), sealUntil(3)]).toEqual([day("01") - 1, EVER]);
    const unproven = { ...ledger, state: "unproven" as const, spans: [], refusal: { ...refusal, times: 3 } };
    const unprovenDays = gaplessDays(series("1", unproven));
    expect(unprovenDays).toMatchObject({
      firstWantedDay: day("01"),
      finalizableFrom: day("01"),
      finalizableUntil: EVER,
    });
  });
});
