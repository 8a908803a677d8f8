import { describe, expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Measurement } from "#src/core/model/building.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  adaptLedger,
  addLedgerRanges,
  createLedger,
  hasSeriesNoLog,
  rangeToFetch,
  recordNoLog,
  recordPastRefusal,
  recordRefusal,
  retractNoLogReplies,
  type SeriesRules,
  settleNewRange,
} from "#src/engine/sync/history/ledger.ts";
import {
  fetchedRanges,
  HISTORY_LEDGER_RANGES_MAX,
  type LedgerRange,
  mergeIntoLedgerRanges,
  rangesFromPoints,
  toStoredRanges,
} from "#src/engine/sync/history/ledger-ranges.ts";
import type { StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "./history-harness.ts";

const START = Date.parse("2026-11-02T00:00:00Z");
const RULES: SeriesRules = {
  ...{ resolution: "5m", timeZone: "UTC", everyMs: 15 * MINUTE_MS },
  ...{ backfillMs: 3 * DAY_MS, graceMs: 2 * MINUTE_MS, lookBackMs: 2 * DAY_MS },
};
const at = (hours: number) => START + hours * HOUR_MS;
const range = (from: number, to: number) => ({ fromMs: at(from), toMs: at(to) });
const span = (from: number, to: number, why: LedgerRange["why"], more: Partial<LedgerRange> = {}): LedgerRange => ({
  ...range(from, to),
  why,
  ...more,
});
const point = (hours: number, value: number | null = 1): Measurement => ({ time: isoUtc(at(hours)), value });
const hours = (time: string) => (Date.parse(time) - START) / HOUR_MS;
const summarize = (spans: ReturnType<typeof mergeIntoLedgerRanges>) =>
  spans.map(({ from, to, why }) => `${hours(from)} ${hours(to)} ${why}`);
const minutes = ({ fromMs, toMs, why }: LedgerRange) =>
  `${(fromMs - START) / MINUTE_MS} ${(toMs - START) / MINUTE_MS} ${why}`;
const mergeLearned = (before: readonly LedgerRange[], ...spans: readonly LedgerRange[]) =>
  mergeIntoLedgerRanges(toStoredRanges(before), spans, "5m");

describe("a new response about a time range that the history ledger already contains", () => {
  test.each<[string, LedgerRange["why"], Partial<LedgerRange>, LedgerRange["why"], Partial<LedgerRange>, boolean]>([
    ["values replace a range of nulls", "null", {}, "points", {}, true],
    ["values stay when a range of nulls is stated later", "points", {}, "null", {}, false],
    ["nulls in a response replace nulls concluded without a request", "null", { said: "empty" }, "null", {}, true],
    ["a range of nulls stays after a later missing-log reply", "null", {}, "no-log", { said: "none" }, false],
    ["the first of two missing-log replies stays", "no-log", { said: "a" }, "no-log", { said: "b" }, false],
    ["a missing-log reply replaces a refusal", "refused", { said: "a" }, "no-log", { said: "b" }, true],
    ["a newer refusal replaces an older refusal", "refused", { said: "a" }, "refused", { said: "b" }, true],
    ["a missing-log reply stays after a later refusal", "no-log", { said: "a" }, "refused", { said: "b" }, false],
  ])("%s", (_what, why, more, newWhy, newMore, isReplaced) => {
    const [now] = mergeLearned([span(0, 3, why, more)], span(0, 3, newWhy, newMore));
    expect([now?.why, now?.said]).toEqual(isReplaced ? [newWhy, newMore.said] : [why, more.said]);
  });

  test("changes only the part of the recorded range that it covers", () => {
    const merged = mergeLearned([span(0, 9, "null")], span(3, 6, "points"), span(5, 5, "points"));
    expect(summarize(merged)).toEqual(["0 3 null", "3 6 points", "6 9 null"]);
  });

  test("joins ranges of values across a range of nulls shorter than two hours, if all three ranges touch", () => {
    const merged = mergeLearned([span(0, 1, "points"), span(1, 2.9, "null")], span(2.9, 4, "points"));
    expect(summarize(merged)).toEqual(["0 4 points"]);
    const long = mergeLearned([span(0, 1, "points"), span(1, 3, "null")], span(3, 4, "points"));
    expect(summarize(long)).toHaveLength(3);
    const apart = mergeLearned([span(0, 0.9, "points"), span(1, 2, "null")], span(2, 4, "points"));
    expect(summarize(apart)).toHaveLength(3);
    const only = mergeLearned([span(0, 1, "no-log"), span(1, 2, "null")], span(2, 4, "points"));
    expect(summarize(only)).toHaveLength(3);
  });
});

describe("time ranges derived from a history response", () => {
  test.each([
    ["1h", 24],
    ["1d", 48],
    ["1w", 2 * 7 * 24],
  ] as const)(
    "with buckets of %s, a range without values is joined with the values around it if it is shorter than %d h",
    (resolution, hours) => {
      const bucket = { "1h": 1, "1d": 24, "1w": 7 * 24 }[resolution];
      const why = (silence: number) => {
        const points = TagPoints.fromMeasurements([point(0), point(bucket + silence)]);
        const all = rangesFromPoints(points, range(0, 2 * bucket + silence), { resolution, timeZone: "UTC" });
        return all.map((each) => each.why);
      };
      expect(why(hours)).toEqual(["points", "null", "points"]);
      expect(why(hours - bucket)).toEqual(["points"]);
    },
  );

  test("are returned for nulls before, between and after the values, and ignore points outside the request", () => {
    const points = TagPoints.fromMeasurements([point(9), point(1), point(4, null), point(-1), point(12)]);
    const responseRanges = rangesFromPoints(points, range(0, 12), RULES).map(minutes);
    expect(responseRanges).toEqual(["0 60 null", "60 65 points", "65 540 null", "540 545 points", "545 720 null"]);
    expect(rangesFromPoints(new TagPoints(), range(0, 1), RULES)).toEqual([span(0, 1, "null")]);
  });
});

describe("the limit of 48 ranges per history ledger", () => {
  function silences(count: number): LedgerRange[] {
    const spans: LedgerRange[] = [];
    let from = 0;
    for (let n = 0; n < count; n += 1) {
      const lengthHours = n % 2 === 0 ? 1 : 3 + Math.abs(n - 25);
      spans.push(span(from, from + lengthHours, n % 2 === 0 ? "points" : "null"));
      from += lengthHours;
    }
    return spans;
  }

  test("merges the shortest range of nulls with the values on both sides when there are 49 ranges", () => {
    const spans = silences(HISTORY_LEDGER_RANGES_MAX + 1);
    const stored = mergeIntoLedgerRanges([], spans, "5m");
    const mergedRange: LedgerRange = { fromMs: spans[24]?.fromMs ?? 0, toMs: spans[26]?.toMs ?? 0, why: "points" };
    expect(stored).toEqual(toStoredRanges([...spans.slice(0, 24), mergedRange, ...spans.slice(27)]));
    expect(fetchedRanges(stored)).toEqual([{ fromMs: START, toMs: spans.at(-1)?.toMs }]);
  });

  test.each([
    ["before", span(9_000, 9_001, "points"), span(9_001, 9_004, "null")],
    ["after", span(9_000, 9_003, "null"), span(9_003, 9_004, "points")],
  ])("merges a range of nulls with values directly %s it, and no range of nulls between gaps", (_, one, other) => {
    const apart = Array.from({ length: HISTORY_LEDGER_RANGES_MAX - 2 }, (_, n) => span(2 * n, 2 * n + 1, "points"));
    const shorter = span(8_000, 8_001, "null");
    const stored = mergeIntoLedgerRanges([], [...apart, shorter, one, other], "5m");
    expect(stored).toEqual(
      toStoredRanges([...apart, shorter, { fromMs: one.fromMs, toMs: other.toMs, why: "points" }]),
    );
  });

  test("drops the shortest refused range when no range of nulls borders on a range with values", () => {
    const apart = Array.from({ length: HISTORY_LEDGER_RANGES_MAX }, (_, n) =>
      n % 2 === 0 ? span(100 * n, 100 * n + 1, "null") : span(100 * n, 100 * n + 2 + n, "refused", { said: `${n}` }),
    );
    const stored = mergeIntoLedgerRanges([], [...apart, span(5_000, 5_001, "points")], "5m");
    expect(stored).toHaveLength(HISTORY_LEDGER_RANGES_MAX);
    expect(summarize(stored).find((text) => text.endsWith("refused"))).toBe("300 305 refused");
  });

  const unreadable = (from: number, to: number) => span(from, to, "refused", { reason: "unreadable" });

  test.each([
    ["joins unreadable ranges", unreadable],
    ["drops isolated fetched ranges", (from: number, to: number) => span(from, to, "points")],
  ])("never %s across history gaps, even above the limit", (_what, rangeOf) => {
    const apart = Array.from({ length: HISTORY_LEDGER_RANGES_MAX + 3 }, (_, n) => rangeOf(2 * n, 2 * n + 1));
    expect(mergeIntoLedgerRanges([], apart, "5m")).toHaveLength(HISTORY_LEDGER_RANGES_MAX + 3);
  });
});

describe("following the new history of a series", () => {
  const nowMs = at(48);
  const ledger: StoredLedger = { ...createLedger(RULES, nowMs), state: "following" };

  test("rereads the last two buckets at each request, the last day once a day, and the look-back once a week", () => {
    const all = toStoredRanges([span(-400, 48, "points")]);
    const followedLedger = { ...ledger, spans: all, watermark: isoUtc(at(47)), rememberedFrom: isoUtc(at(-400)) };
    const requestedFromHour = (changes: Partial<StoredLedger>) =>
      ((rangeToFetch({ ...followedLedger, ...changes }, RULES, nowMs)?.fromMs ?? Number.NaN) - START) / HOUR_MS;
    const day = { dailyAt: isoUtc(at(24)) };
    const week = { weeklyAt: isoUtc(at(48 - 168)) };
    expect(requestedFromHour({})).toBeCloseTo(47 - 10 / 60, 9);
    expect(requestedFromHour(day)).toBe(0);
    expect(requestedFromHour({ rereadFrom: isoUtc(nowMs) })).toBeNaN();
    expect(requestedFromHour({ dailyAt: isoUtc(at(24) + 1) })).toBeCloseTo(47 - 10 / 60, 9);
    expect(requestedFromHour(week)).toBe(48 - 168 - 48);
    expect(requestedFromHour({ weeklyAt: isoUtc(at(48 - 168) + 1) })).toBeCloseTo(47 - 10 / 60, 9);
    expect(requestedFromHour({ ...week, rememberedFrom: isoUtc(at(-100)) })).toBe(-100);
    expect(requestedFromHour({ ...week, rememberedFrom: isoUtc(at(-100) + 1) })).toBeCloseTo(-100 + 5 / 60, 9);
    expect(requestedFromHour({ ...week, spans: toStoredRanges([span(-50, 48, "points")]) })).toBe(-50);
  });

  test("stores when the last day and the look-back were reread, unless the request did not cover them", () => {
    const old = { ...ledger, dailyAt: isoUtc(nowMs - DAY_MS), weeklyAt: isoUtc(nowMs - 7 * DAY_MS) };
    const settleLedger = (before: StoredLedger) =>
      settleNewRange(before, RULES, new TagPoints(), range(40, 47), new Map(), nowMs).ledger;
    const rereadNow = { dailyAt: isoUtc(nowMs), weeklyAt: isoUtc(nowMs), rereadFrom: null };
    expect(settleLedger({ ...old, watermark: isoUtc(at(47)) })).toMatchObject(rereadNow);
    const recent = { dailyAt: isoUtc(nowMs - DAY_MS + 1), weeklyAt: isoUtc(nowMs - 7 * DAY_MS + 1) };
    expect(settleLedger({ ...ledger, ...recent })).toMatchObject(recent);
    const late = { ...ledger, ...old, watermark: isoUtc(at(47)), rememberedFrom: isoUtc(at(20)) };
    const fetched = toStoredRanges([span(20, 47, "points")]);
    const short = settleNewRange({ ...late, spans: fetched }, RULES, new TagPoints(), range(46, 47), new Map(), nowMs);
    expect(short.ledger).toMatchObject({ dailyAt: old.dailyAt, weeklyAt: old.weeklyAt });
    expect(settleLedger({ ...old, rereadFrom: isoUtc(at(40)) })).toMatchObject({ dailyAt: old.dailyAt });
    expect(settleLedger({ ...old, watermark: isoUtc(at(47.5)) }).rereadFrom).toBe(isoUtc(at(47)));
  });

  test("keeps its ledger when the depth of the backfill changes, and starts a new ledger when the time zone changes", () => {
    const deeper = { ...RULES, backfillMs: 30 * DAY_MS };
    expect(adaptLedger(ledger, RULES, nowMs)).toBe(ledger);
    expect(adaptLedger(ledger, { ...RULES, backfillMs: DAY_MS }, nowMs)).toBe(ledger);
    expect(adaptLedger(ledger, { ...RULES, backfillMs: 4 * DAY_MS - 5 * MINUTE_MS }, nowMs)).toBe(ledger);
    const wished = isoUtc(Date.parse(ledger.since) - 30 * DAY_MS);
    expect(adaptLedger(ledger, deeper, nowMs)).toEqual({ ...ledger, wished });
    const refusal = { said: "no" } as unknown as StoredLedger["refusal"];
    const moved = { ...RULES, timeZone: "Europe/Oslo" };
    const fields = { state: "no-log" as const, refusal };
    expect(adaptLedger({ ...ledger, ...fields }, moved, at(96))).toEqual({ ...createLedger(moved, at(96)), ...fields });
  });
});

describe("responses for the past of a series", () => {
  const ledger: StoredLedger = { ...createLedger(RULES, at(48)), watermark: isoUtc(at(10)) };

  test("a fetched range that touches the watermark moves the watermark to its end", () => {
    expect(addLedgerRanges(ledger, [span(9, 12, "points")]).watermark).toBe(isoUtc(at(12)));
    expect(addLedgerRanges(ledger, [span(11, 12, "points")]).watermark).toBe(ledger.watermark);
    const statement = { said: "none", at: isoUtc(START) };
    expect(addLedgerRanges(ledger, [span(8, 11, "no-log", statement)])).toMatchObject({
      watermark: isoUtc(at(11)),
      spans: [{ why: "no-log", said: "none", at: isoUtc(START) }],
    });
    expect(addLedgerRanges(ledger, [span(8, 10, "no-log", statement)]).watermark).toBe(ledger.watermark);
  });
});

const LEDGER = createLedger(RULES, START);
const RANGE = range(-2, -1);
const withPoints: StoredLedger = { ...LEDGER, spans: toStoredRanges([{ ...RANGE, why: "points" }]) };
const noLog = (ledger: StoredLedger) => recordNoLog(ledger, "no log", START);

test.each([
  ["before any missing-log reply", false, LEDGER],
  ["after one missing-log reply when the tag never had points", true, noLog(LEDGER)],
  ["after one missing-log reply when the tag had points", false, noLog(withPoints)],
  ["after two missing-log replies when the tag had points", true, noLog(noLog(withPoints))],
  ["when the number of missing-log replies is unknown", false, { ...noLog(withPoints), refusal: null }],
])("a tag is classified as having no log %s: %s", (_case, expected, ledger) => {
  expect(hasSeriesNoLog(ledger)).toBe(expected);
});

test("a refused request for a tag without a log keeps the count of missing-log replies and is retried after ten minutes", () => {
  const { state, refusal } = recordRefusal(noLog(LEDGER), "try later", START);
  expect(state).toBe("no-log");
  expect(refusal).toMatchObject({ times: 1, againAt: isoUtc(START + 10 * MINUTE_MS) });
});

test("a refusal that an older version stored without a count is not counted: the next refusal is the first", () => {
  expect(noLog({ ...noLog(LEDGER), refusal: null }).refusal?.times).toBe(1);
  const before = { ...LEDGER, spans: toStoredRanges([{ ...RANGE, why: "refused" }]) };
  expect(recordPastRefusal(before, RANGE, "not now", START).spans).toMatchObject([{ why: "refused", times: 1 }]);
});

test("withdrawing a missing-log reply moves the watermark back to the reply's range for meter totals, not for measurements", () => {
  const spans = toStoredRanges([{ ...RANGE, why: "no-log", at: isoUtc(START) }]);
  const ledger: StoredLedger = { ...LEDGER, watermark: isoUtc(START), spans };
  expect(retractNoLogReplies(ledger, isoUtc(START), true).watermark).toBe(isoUtc(RANGE.fromMs));
  expect(retractNoLogReplies(ledger, isoUtc(START), false).watermark).toBe(isoUtc(START));
});
