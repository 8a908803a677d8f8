import { describe, expect, test } from "vitest";
import { Points } from "#src/core/codec/points.ts";
import type { Measurement } from "#src/core/model/building.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  adaptLedger,
  addRanges,
  closedUntilMs,
  createLedger,
  fetchedSinceMs,
  findGaps,
  hasNoLog,
  rangeToFollow,
  recordNoLog,
  recordPastRefusal,
  recordRefusal,
  retractNoLog,
  type SeriesRules,
  settleFollowing,
  settlePast,
} from "#src/engine/sync/history/ledger.ts";
import {
  fetchedRanges,
  LEDGER_RANGES_MAX,
  type LedgerRange,
  mergeLearnedRanges,
  rangesFromPoints,
  toRanges,
  toStoredRanges,
} from "#src/engine/sync/history/ledger-ranges.ts";
import type { StoredHistory } from "#src/engine/sync/snapshot.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
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
const summarize = (spans: ReturnType<typeof mergeLearnedRanges>) =>
  spans.map(({ from, to, why }) => `${hours(from)} ${hours(to)} ${why}`);
const minutes = ({ fromMs, toMs, why }: LedgerRange) =>
  `${(fromMs - START) / MINUTE_MS} ${(toMs - START) / MINUTE_MS} ${why}`;
const learned = (before: readonly LedgerRange[], ...spans: readonly LedgerRange[]) =>
  mergeLearnedRanges(toStoredRanges(before), spans, "5m");

describe("a new statement about a recorded range", () => {
  test.each<[string, LedgerRange["why"], Partial<LedgerRange>, LedgerRange["why"], Partial<LedgerRange>, boolean]>([
    ["values replace a range of nulls", "null", {}, "points", {}, true],
    ["values stay when a range of nulls is stated later", "points", {}, "null", {}, false],
    ["a response without values replaces a statement without a request", "null", { said: "empty" }, "null", {}, true],
    ["a response without values stays after a missing log", "null", {}, "no-log", { said: "none" }, false],
    ["the first of two statements about a missing log stays", "no-log", { said: "a" }, "no-log", { said: "b" }, false],
    ["a response removes a refusal", "refused", { said: "a" }, "no-log", { said: "b" }, true],
    ["a newer refusal replaces an older refusal", "refused", { said: "a" }, "refused", { said: "b" }, true],
    ["a fetched range stays after a refusal", "no-log", { said: "a" }, "refused", { said: "b" }, false],
  ])("%s", (_what, why, more, newWhy, newMore, isReplaced) => {
    const [now] = learned([span(0, 3, why, more)], span(0, 3, newWhy, newMore));
    expect([now?.why, now?.said]).toEqual(isReplaced ? [newWhy, newMore.said] : [why, more.said]);
  });

  test("changes only the part of a range that the new statement covers", () => {
    const spans = learned([span(0, 9, "null")], span(3, 6, "points"), span(5, 5, "points"));
    expect(summarize(spans)).toEqual(["0 3 null", "3 6 points", "6 9 null"]);
  });

  test("merges adjacent refusals only when they share a retry time", () => {
    const refusal = (from: number, againAt: string, times = 1) =>
      span(from, from + 1, "refused", { said: "no", times, againAt });
    expect(learned([refusal(0, "a")], refusal(1, "a"))).toHaveLength(1);
    expect(learned([refusal(0, "a")], refusal(1, "b"))).toHaveLength(2);
    expect(learned([refusal(0, "a")], refusal(1, "a", 2))).toHaveLength(2);
    const statement = (from: number, said: string) => span(from, from + 1, "no-log", { said, againAt: `${from}` });
    expect(learned([statement(0, "a")], statement(1, "a"))).toHaveLength(1);
    expect(learned([statement(0, "a")], statement(1, "b"))).toHaveLength(2);
    expect(learned([statement(0, "a")], statement(2, "a"))).toHaveLength(2);
  });

  test.each([
    ["2026-11-03", "2026-11-02", "2026-11-03"],
    ["2026-11-02", "2026-11-03", "2026-11-03"],
    ["2026-11-02", undefined, "2026-11-02"],
    [undefined, "2026-11-03", "2026-11-03"],
    [undefined, undefined, undefined],
  ])("merges adjacent statements with the times %s and %s into one with the time %s", (first, second, expected) => {
    const statement = (from: number, when: string | undefined) =>
      span(from, from + 1, "no-log", { said: "a", ...(when === undefined ? {} : { at: when }) });
    const merged = span(0, 2, "no-log", { said: "a", ...(expected === undefined ? {} : { at: expected }) });
    expect(learned([statement(0, first)], statement(1, second))).toEqual(toStoredRanges([merged]));
  });

  test("merges values across a range of nulls shorter than two hours, if all three ranges touch", () => {
    const short = learned([span(0, 1, "points"), span(1, 2.9, "null")], span(2.9, 4, "points"));
    expect(summarize(short)).toEqual(["0 4 points"]);
    const long = learned([span(0, 1, "points"), span(1, 3, "null")], span(3, 4, "points"));
    expect(summarize(long)).toHaveLength(3);
    const apart = learned([span(0, 0.9, "points"), span(1, 2, "null")], span(2, 4, "points"));
    expect(summarize(apart)).toHaveLength(3);
    const only = learned([span(0, 1, "no-log"), span(1, 2, "null")], span(2, 4, "points"));
    expect(summarize(only)).toHaveLength(3);
  });
});

describe("ranges of a response", () => {
  test.each([
    ["1h", 24],
    ["1d", 48],
    ["1w", 2 * 7 * 24],
  ] as const)(
    "in a response of %s, a range without values counts as values if it is shorter than %d h",
    (resolution, hours) => {
      const bucket = { "1h": 1, "1d": 24, "1w": 7 * 24 }[resolution];
      const why = (silence: number) => {
        const points = Points.of([point(0), point(bucket + silence)]);
        const all = rangesFromPoints(points, range(0, 2 * bucket + silence), { resolution, timeZone: "UTC" });
        return all.map((each) => each.why);
      };
      expect(why(hours)).toEqual(["points", "null", "points"]);
      expect(why(hours - bucket)).toEqual(["points"]);
    },
  );

  test("returns ranges of nulls before, between and after the values, and ignores nulls and points outside the request", () => {
    const points = Points.of([point(9), point(1), point(4, null), point(-1), point(12)]);
    const spans = rangesFromPoints(points, range(0, 12), RULES).map(minutes);
    expect(spans).toEqual(["0 60 null", "60 65 points", "65 540 null", "540 545 points", "545 720 null"]);
    expect(rangesFromPoints(new Points(), range(0, 1), RULES)).toEqual([span(0, 1, "null")]);
  });

  test("the last range of a response ends where the request ends", () => {
    const late = Points.of([point(0), point(5.5 / 60)]);
    const spans = rangesFromPoints(late, { fromMs: START, toMs: at(5.5 / 60) }, RULES);
    expect(spans.map(minutes)).toEqual(["0 5 points", "5 5.5 null"]);
  });
});

describe("the limit of 48 ranges per ledger", () => {
  function silences(count: number): LedgerRange[] {
    const spans: LedgerRange[] = [];
    let from = 0;
    for (let n = 0; n < count; n += 1) {
      const length = n % 2 === 0 ? 1 : 3 + Math.abs(n - 25);
      spans.push(span(from, from + length, n % 2 === 0 ? "points" : "null"));
      from += length;
    }
    return spans;
  }

  test("stores 48 ranges unchanged", () => {
    const spans = silences(LEDGER_RANGES_MAX);
    expect(mergeLearnedRanges([], spans, "5m")).toEqual(toStoredRanges(spans));
  });

  test("merges the shortest range of nulls with the values on both sides when there are 49 ranges", () => {
    const spans = silences(LEDGER_RANGES_MAX + 1);
    const kept = mergeLearnedRanges([], spans, "5m");
    const merged: LedgerRange = { fromMs: spans[24]?.fromMs ?? 0, toMs: spans[26]?.toMs ?? 0, why: "points" };
    expect(kept).toEqual(toStoredRanges([...spans.slice(0, 24), merged, ...spans.slice(27)]));
    expect(fetchedRanges(kept)).toEqual([{ fromMs: START, toMs: spans.at(-1)?.toMs }]);
  });

  test.each([
    ["before", span(9_000, 9_001, "points"), span(9_001, 9_004, "null")],
    ["after", span(9_000, 9_003, "null"), span(9_003, 9_004, "points")],
  ])("merges a range of nulls %s a value, and no range of nulls between gaps", (_, one, other) => {
    const apart = Array.from({ length: LEDGER_RANGES_MAX - 2 }, (_, n) => span(2 * n, 2 * n + 1, "points"));
    const shorter = span(8_000, 8_001, "null");
    const kept = mergeLearnedRanges([], [...apart, shorter, one, other], "5m");
    expect(kept).toEqual(toStoredRanges([...apart, shorter, { fromMs: one.fromMs, toMs: other.toMs, why: "points" }]));
  });

  test("drops the shortest refusal when no range of nulls touches values", () => {
    const apart = Array.from({ length: LEDGER_RANGES_MAX }, (_, n) =>
      n % 2 === 0 ? span(100 * n, 100 * n + 1, "null") : span(100 * n, 100 * n + 2 + n, "refused", { said: `${n}` }),
    );
    const kept = mergeLearnedRanges([], [...apart, span(5_000, 5_001, "points")], "5m");
    expect(kept).toHaveLength(LEDGER_RANGES_MAX);
    expect(summarize(kept).find((text) => text.endsWith("refused"))).toBe("300 305 refused");
  });

  const unreadable = (from: number, to: number) => span(from, to, "refused", { reason: "unreadable" });

  test("merges the two nearest unreadable ranges", () => {
    const spans = Array.from({ length: 25 }, (_, n) => [
      unreadable(n < 10 ? 3 * n : 3 * n - 1, n < 10 ? 3 * n + 1 : 3 * n),
      span(n < 10 ? 3 * n + 1 : 3 * n, n < 9 ? 3 * n + 3 : 3 * n + 2, "points"),
    ]).flat();
    const kept = mergeLearnedRanges([], spans, "5m");
    expect(kept).toHaveLength(LEDGER_RANGES_MAX);
    expect(summarize(kept).slice(17, 20)).toEqual(["25 27 points", "27 30 refused", "30 32 points"]);
    expect(kept[18]).toMatchObject({ reason: "unreadable", emitted: true });
  });

  test.each([
    ["joins unreadable ranges", unreadable],
    ["drops isolated fetched ranges", (from: number, to: number) => span(from, to, "points")],
  ])("never %s across gaps, even above the limit", (_what, rangeOf) => {
    const apart = Array.from({ length: LEDGER_RANGES_MAX + 3 }, (_, n) => rangeOf(2 * n, 2 * n + 1));
    expect(mergeLearnedRanges([], apart, "5m")).toHaveLength(LEDGER_RANGES_MAX + 3);
  });
});

describe("following of a series", () => {
  const nowMs = at(48);
  const ledger: StoredHistory = { ...createLedger(RULES, nowMs), state: "following" };

  test("a new ledger begins with the open bucket and stores points as far back as the look-back", () => {
    const [now, since] = ["2026-11-04T00:01:00.000Z", "2026-11-03T23:55:00.000Z"];
    expect(createLedger(RULES, at(48) + MINUTE_MS)).toEqual({
      ...{ version: 2, resolution: "5m", timeZone: "UTC", since, watermark: since, dailyAt: now, weeklyAt: now },
      ...{ wished: "2026-10-31T23:55:00.000Z", rememberedFrom: "2026-11-01T23:55:00.000Z" },
      ...{ spans: [], days: "", rereadFrom: null, state: "unproven", refusal: null },
    });
  });

  test("keeps the target start of the backfill when the ledger is adapted later, also with monthly buckets", () => {
    for (const resolution of ["1h", "1d", "1w", "1mo"] as const) {
      const rules = { ...RULES, resolution, backfillMs: 400 * 24 * 60 * MINUTE_MS };
      for (const [day, later] of Object.entries({ 0: 3, 17: 40 })) {
        const first = createLedger(rules, at(24 * Number(day)));
        expect(adaptLedger(first, rules, at(24 * later)).wished).toBe(first.wished);
      }
    }
  });

  test("requests nothing before its interval has passed, and never an empty range", () => {
    expect(closedUntilMs(RULES, at(1) + MINUTE_MS)).toBe(at(1) - 5 * MINUTE_MS);
    expect(closedUntilMs(RULES, at(1) + 2 * MINUTE_MS)).toBe(at(1));
    const watermark = Date.parse(ledger.watermark);
    expect(rangeToFollow(ledger, RULES, nowMs, watermark + 15 * MINUTE_MS - 1)).toBeNull();
    expect(rangeToFollow(ledger, RULES, nowMs, watermark + 15 * MINUTE_MS)).toMatchObject({
      toMs: watermark + 15 * MINUTE_MS,
    });
    const again = { ...ledger, rereadFrom: isoUtc(watermark) };
    expect(rangeToFollow(again, RULES, nowMs, watermark)).toBeNull();
    expect(rangeToFollow(again, RULES, nowMs, watermark + 1)).toEqual({ fromMs: watermark, toMs: watermark + 1 });
  });

  test("rereads two buckets at each request, the last day once a day, and the look-back once a week", () => {
    const all = toStoredRanges([span(-400, 48, "points")]);
    const before = { ...ledger, spans: all, watermark: isoUtc(at(47)), rememberedFrom: isoUtc(at(-400)) };
    const from = (changes: Partial<StoredHistory>) =>
      ((rangeToFollow({ ...before, ...changes }, RULES, nowMs)?.fromMs ?? Number.NaN) - START) / HOUR_MS;
    const day = { dailyAt: isoUtc(at(24)) };
    const week = { weeklyAt: isoUtc(at(48 - 168)) };
    expect(from({})).toBeCloseTo(47 - 10 / 60, 9);
    expect(from(day)).toBe(0);
    expect(from({ dailyAt: isoUtc(at(24) + 1) })).toBeCloseTo(47 - 10 / 60, 9);
    expect(from(week)).toBe(48 - 168 - 48);
    expect(from({ weeklyAt: isoUtc(at(48 - 168) + 1) })).toBeCloseTo(47 - 10 / 60, 9);
    expect(from({ ...week, rememberedFrom: isoUtc(at(-100)) })).toBe(-100);
    expect(from({ ...week, rememberedFrom: isoUtc(at(-100) + 1) })).toBeCloseTo(-100 + 5 / 60, 9);
    expect(from({ ...week, spans: toStoredRanges([span(-50, 48, "points")]) })).toBe(-50);
  });

  test("fetchedSince returns the start of the range that ends at the watermark", () => {
    expect(fetchedSinceMs(ledger)).toBe(Date.parse(ledger.watermark));
    const spans = toStoredRanges([span(0, 1, "points"), span(40, 48, "points")]);
    expect(fetchedSinceMs({ ...ledger, spans, watermark: isoUtc(at(48)) })).toBe(at(40));
    expect(fetchedSinceMs({ ...ledger, spans, watermark: isoUtc(at(48) + 1) })).toBe(at(48) + 1);
  });

  test("stores when the last day and the look-back were reread, unless the request did not cover them", () => {
    const old = { ...ledger, dailyAt: isoUtc(nowMs - DAY_MS), weeklyAt: isoUtc(nowMs - 7 * DAY_MS) };
    const settled = (before: StoredHistory) =>
      settleFollowing(before, RULES, new Points(), range(40, 47), new Map(), nowMs).ledger;
    const reread = { dailyAt: isoUtc(nowMs), weeklyAt: isoUtc(nowMs), rereadFrom: null };
    expect(settled({ ...old, watermark: isoUtc(at(47)) })).toMatchObject(reread);
    const recent = { dailyAt: isoUtc(nowMs - DAY_MS + 1), weeklyAt: isoUtc(nowMs - 7 * DAY_MS + 1) };
    expect(settled({ ...ledger, ...recent })).toMatchObject(recent);
    const late = { ...ledger, ...old, watermark: isoUtc(at(47)), rememberedFrom: isoUtc(at(20)) };
    const spans = toStoredRanges([span(20, 47, "points")]);
    const short = settleFollowing({ ...late, spans }, RULES, new Points(), range(46, 47), new Map(), nowMs);
    expect(short.ledger).toMatchObject({ dailyAt: old.dailyAt, weeklyAt: old.weeklyAt });
    expect(settled({ ...old, rereadFrom: isoUtc(at(40)) })).toMatchObject({ dailyAt: old.dailyAt });
    expect(settled({ ...old, watermark: isoUtc(at(47.5)) }).rereadFrom).toBe(isoUtc(at(47)));
  });

  test("emits a value as new or as revised, and omits an unchanged value", () => {
    const points = Points.of([...[point(46.5, 2), point(46, 1), point(45, 3), point(47.99, 9), point(39, 9)]]);
    const before = new Map<number, number | null>([
      [at(46), 1],
      [at(45), 4],
    ]);
    const settled = settleFollowing(ledger, RULES, points, range(40, 48), before, nowMs);
    expect([...settled.fresh]).toEqual([point(46.5, 2)]);
    expect([...settled.revised]).toEqual([point(45, 3)]);
  });

  test("adaptLedger keeps the ledger when the depth of the backfill changes, and restarts it in another time zone", () => {
    const deeper = { ...RULES, backfillMs: 30 * DAY_MS };
    expect(adaptLedger(ledger, RULES, nowMs)).toBe(ledger);
    expect(adaptLedger(ledger, { ...RULES, backfillMs: DAY_MS }, nowMs)).toBe(ledger);
    expect(adaptLedger(ledger, { ...RULES, backfillMs: 4 * DAY_MS - 5 * MINUTE_MS }, nowMs)).toBe(ledger);
    const wished = isoUtc(Date.parse(ledger.since) - 30 * DAY_MS);
    expect(adaptLedger(ledger, deeper, nowMs)).toEqual({ ...ledger, wished });
    const refusal = { said: "no" } as unknown as StoredHistory["refusal"];
    const moved = { ...RULES, timeZone: "Europe/Oslo" };
    const kept = { state: "no-log" as const, refusal };
    expect(adaptLedger({ ...ledger, ...kept }, moved, at(96))).toEqual({ ...createLedger(moved, at(96)), ...kept });
  });
});

describe("responses for the past of a series", () => {
  const ledger: StoredHistory = { ...createLedger(RULES, at(48)), watermark: isoUtc(at(10)) };

  test("emits only points that were not fetched before, each timestamp once", () => {
    const known = { ...ledger, spans: toStoredRanges([span(2, 4, "points")]) };
    const points = Points.of([...[point(1), point(2), point(3.9), point(4), point(5, 1), point(5, 2), point(6)]]);
    const settled = settlePast(known, points, range(0, 6));
    expect([...settled.fresh]).toEqual([point(1), point(4), point(5, 2)]);
    expect([...settled.revised]).toEqual([]);
    expect(findGaps(settled.ledger, range(-1, 7))).toEqual([range(-1, 0), range(6, 7)]);
  });

  test("moves the watermark when a total or an empty range touches it", () => {
    expect(addRanges(ledger, [span(9, 12, "points")]).watermark).toBe(isoUtc(at(12)));
    expect(addRanges(ledger, [span(11, 12, "points")]).watermark).toBe(ledger.watermark);
    const statement = { said: "none", at: isoUtc(START) };
    expect(addRanges(ledger, [span(8, 11, "no-log", statement)])).toMatchObject({
      watermark: isoUtc(at(11)),
      spans: [{ why: "no-log", said: "none", at: isoUtc(START) }],
    });
    expect(addRanges(ledger, [span(8, 10, "no-log", statement)]).watermark).toBe(ledger.watermark);
  });
});

const LEDGER = createLedger(RULES, START);
const RANGE = range(-2, -1);
const withPoints: StoredHistory = { ...LEDGER, spans: toStoredRanges([{ ...RANGE, why: "points" }]) };
const noLog = (ledger: StoredHistory) => recordNoLog(ledger, "no log", START);

describe("hasNoLog", () => {
  test.each([
    ["false without a statement", LEDGER, false],
    ["true after one statement when the tag never had points", noLog(LEDGER), true],
    ["false after one statement when the tag had points", noLog(withPoints), false],
    ["true after two statements when the tag had points", noLog(noLog(withPoints)), true],
    ["false when the number of statements is unknown", { ...noLog(withPoints), refusal: null }, false],
  ])("returns %s", (_case, ledger, expected) => {
    expect(hasNoLog(ledger)).toBe(expected);
  });
});

describe("a refused request of a tag without a log", () => {
  test("keeps the state and the number of statements, and is retried after ten minutes", () => {
    const before = noLog(LEDGER);
    const after = recordRefusal(before, "try later", START);
    expect(after.state).toBe("no-log");
    expect(after.refusal?.times).toBe(1);
    expect(after.refusal?.againAt).toBe(isoUtc(START + 10 * MINUTE_MS));
  });

  test("changes nothing when the ledger has no refusal", () => {
    const before = { ...noLog(LEDGER), refusal: null };
    expect(recordRefusal(before, "try later", START)).toEqual(before);
    expect(noLog(before).refusal?.times).toBe(1);
  });
});

test("the first refusal of a range that was stored without a count counts as the first", () => {
  const stored = { ...LEDGER, spans: toStoredRanges([{ ...RANGE, why: "refused" }]) };
  const [refused] = toRanges(recordPastRefusal(stored, RANGE, "not now", START).spans);
  expect(refused).toMatchObject({ ...RANGE, why: "refused", times: 1 });
});

test("a retracted statement of a total moves the watermark back to the range, and of a point series does not", () => {
  const spans = toStoredRanges([{ ...RANGE, why: "no-log", at: isoUtc(START) }]);
  const ledger: StoredHistory = { ...LEDGER, watermark: isoUtc(START), spans };
  expect(retractNoLog(ledger, isoUtc(START), true).watermark).toBe(isoUtc(RANGE.fromMs));
  expect(retractNoLog(ledger, isoUtc(START), false).watermark).toBe(isoUtc(START));
});
