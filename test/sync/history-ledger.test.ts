import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { TagValue } from "#src/core/model/building.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  bucketBefore,
  bucketStart,
  mergeTimeRanges,
  parseTime,
  subtractRanges,
  type TimeRange,
  totalLengthMs,
} from "#src/engine/sync/history/buckets.ts";
import { chooseBackfill, chooseRecentRequest } from "#src/engine/sync/history/choose-request.ts";
import { listHistoryGaps } from "#src/engine/sync/history/history-progress.ts";
import {
  closedUntilMs,
  createLedger,
  isBackingOff,
  listLedgerGapParts,
  rangeToFetch,
  recordNoLog,
  recordPastRefusal,
  recordRefusal,
  retractNoLogReplies,
  type SeriesRules,
  type SettledHistoryPoints,
  settleNewRange,
  settlePastRange,
  targetPastRange,
} from "#src/engine/sync/history/ledger.ts";
import { fetchedRanges, isFetched, mergeIntoLedgerRanges, toRanges } from "#src/engine/sync/history/ledger-ranges.ts";
import {
  type LegacyHistoryLedger,
  prepareLedger,
  upgradeLegacyLedger,
} from "#src/engine/sync/history/series-registry.ts";
import { isSeriesComplete, type StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { DAY_MS, FIVE_MS, HOUR_MS, MINUTE_MS, START, seriesWith } from "./history-harness.ts";

const RULES: SeriesRules = {
  ...{ resolution: "5m", timeZone: "UTC", everyMs: 15 * MINUTE_MS },
  ...{ backfillMs: 3 * DAY_MS, graceMs: 2 * MINUTE_MS, lookBackMs: DAY_MS },
};

const NO_POINTS = new TagPoints();

function points({ fromMs, toMs }: TimeRange, value: (atMs: number) => number | null | undefined): TagPoints {
  const all = new TagPoints();
  for (let atMs = fromMs; atMs < toMs; atMs += FIVE_MS) {
    const pointValue = value(atMs);
    if (pointValue !== undefined) all.add({ time: isoUtc(atMs), value: pointValue });
  }
  return all;
}

const at = (hours: number) => START + hours * HOUR_MS;
const hours = (from: number, to: number): TimeRange => ({ fromMs: at(from), toMs: at(to) });

describe("a history ledger after random responses and refusals", () => {
  type RandomStep = { readonly kind: string; readonly size: number; readonly waitMs: number; readonly every: number };
  const randomStep = fc.record({
    kind: fc.constantFrom("answer", "answer", "answer", "no-log", "refused", "scope-lost", "asleep"),
    size: fc.integer({ min: 1, max: 300 }),
    waitMs: fc.constantFrom(0, 0, 10 * MINUTE_MS, HOUR_MS, 7 * HOUR_MS),
    every: fc.constantFrom(0, 1, 1, 12, 40),
  });

  test("covers the target range with fetched ranges and gaps, has a response for each fetched range, and repeats no point", () => {
    fc.assert(
      fc.property(
        fc.array(randomStep, { maxLength: 80 }),
        fc.boolean(),
        (steps: readonly RandomStep[], followsFirst) => {
          let nowMs = START;
          let ledger: StoredLedger = { ...createLedger(RULES, nowMs), state: "following" };
          const answeredRanges: TimeRange[] = [];
          const emitted = new Map<number, TagValue>();
          for (const [i, { kind, size, waitMs, every }] of steps.entries()) {
            nowMs += waitMs;
            if (kind === "asleep") continue;
            if (kind === "scope-lost") {
              ledger = retractNoLogReplies(ledger, isoUtc(nowMs - HOUR_MS), false);
              ledger = { ...ledger, state: "following" };
              continue;
            }
            const value = (atMs: number) =>
              every === 0 ? (atMs % 2 === 0 ? null : undefined) : (atMs / FIVE_MS) % every === 0 ? i : undefined;
            const isFront = followsFirst === (i % 2 === 0);
            if (isFront) {
              const range = isBackingOff(ledger, nowMs) ? null : rangeToFetch(ledger, RULES, nowMs);
              if (range === null) continue;
              const part = { fromMs: range.fromMs, toMs: Math.min(range.toMs, range.fromMs + size * FIVE_MS) };
              if (kind === "no-log") ledger = { ...recordNoLog(ledger, "404", nowMs), state: "following" };
              else if (kind === "refused") ledger = recordRefusal(ledger, "403", nowMs);
              else {
                const settled = settleNewRange(ledger, RULES, points(part, value), part, emitted, nowMs);
                ledger = settled.ledger;
                for (const fresh of settled.newPoints) emitted.set(parseTime(fresh.time), fresh.value);
                answeredRanges.push(part);
              }
            } else {
              const openGap = listLedgerGapParts(ledger, targetPastRange(ledger), nowMs).at(-1);
              if (openGap === undefined) continue;
              const part = { fromMs: Math.max(openGap.fromMs, openGap.toMs - size * FIVE_MS), toMs: openGap.toMs };
              if (kind === "no-log") {
                const statement = { why: "no-log" as const, said: "404", at: isoUtc(nowMs) };
                ledger = { ...ledger, spans: mergeIntoLedgerRanges(ledger.spans, [{ ...part, ...statement }], "5m") };
              } else if (kind === "refused") ledger = recordPastRefusal(ledger, part, "403", nowMs);
              else {
                const settled = settlePastRange(ledger, points(part, value), part);
                ledger = settled.ledger;
                for (const fresh of settled.newPoints) {
                  expect(emitted.has(parseTime(fresh.time))).toBe(false);
                  emitted.set(parseTime(fresh.time), fresh.value);
                }
                answeredRanges.push(part);
              }
            }

            const ledgerRanges = toRanges(ledger.spans);
            for (const [n, span] of ledgerRanges.entries()) {
              expect(span.fromMs).toBeLessThan(span.toMs);
              expect(span.fromMs).toBeGreaterThanOrEqual(ledgerRanges[n - 1]?.toMs ?? 0);
            }
            const values = ledgerRanges.filter(({ why }) => why === "points" || why === "null");
            expect(values.flatMap((span) => subtractRanges(span, answeredRanges))).toEqual([]);
            const targetRange = targetPastRange(ledger);
            const holes = listLedgerGapParts(ledger, targetRange, Number.MAX_SAFE_INTEGER);
            const hadInside = subtractRanges(targetRange, subtractRanges(targetRange, fetchedRanges(ledger.spans)));
            expect(totalLengthMs(holes) + totalLengthMs(hadInside)).toBe(targetRange.toMs - targetRange.fromMs);
            expect(isSeriesComplete(ledger)).toBe(
              holes.length === 0 && ledger.refusal === null && !ledgerRanges.some((span) => !isFetched(span)),
            );

            const series = seriesWith(ledger, RULES);
            const reportedGaps = listHistoryGaps([series], { open: [], paused: false }, nowMs, { silences: true }).map(
              ({ from, to }) => ({ fromMs: parseTime(from ?? ""), toMs: parseTime(to ?? "") }),
            );
            const valueRanges = ledgerRanges.filter(({ why }) => why === "points");
            expect(mergeTimeRanges([...reportedGaps, ...valueRanges]).length).toBe(1);
            expect(totalLengthMs(reportedGaps)).toBe(totalLengthMs(mergeTimeRanges(reportedGaps)));
          }
        },
      ),
      {
        numRuns: 150,
        // A silence where the past had no log, and the retracted statement about that log.
        examples: [
          [
            ["no-log", "answer", "scope-lost", "answer", "answer"].map((kind, i) => ({
              ...{ kind, size: 1, waitMs: i === 0 ? 7 * HOUR_MS : 0, every: 0 },
            })),
            false,
          ],
        ],
      },
    );
  });
});

describe("the time range of a history request", () => {
  const readAgain = (): StoredLedger => ({
    ...createLedger(RULES, at(48)),
    state: "following",
    watermark: isoUtc(at(48)),
    spans: [{ from: isoUtc(at(0)), to: isoUtc(at(48)), why: "points" }],
    rememberedFrom: isoUtc(at(24) + 1_000),
    dailyAt: isoUtc(at(24) + 1_000),
  });

  test("starts and ends at bucket borders despite a size limit and a stored time inside a bucket", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 600 }), (values) => {
        const series = seriesWith(readAgain(), RULES);
        const ask = chooseRecentRequest([series], at(49), { maxValues: values, prefersSingle: false });
        expect(ask?.range.fromMs).toBe(at(24) + FIVE_MS);
        expect(((ask?.range.toMs ?? 1) - at(24)) % FIVE_MS).toBe(0);
      }),
    );
  });
});

test("a history request made while the clock was eight days ahead moves the watermark only to the last closed bucket", () => {
  const ledger = createLedger(RULES, START);
  const range = { fromMs: parseTime(ledger.watermark), toMs: at(8 * 24) };
  const settled = settleNewRange(ledger, RULES, NO_POINTS, range, new Map(), at(1));
  expect(settled.ledger.watermark).toBe(isoUtc(closedUntilMs(RULES, at(1))));
  expect(rangeToFetch(settled.ledger, RULES, at(2))?.toMs).toBe(closedUntilMs(RULES, at(2)));
});

test("after the clock was ahead, the backfill requests only closed buckets", () => {
  const series = seriesWith({ ...createLedger(RULES, at(4)), state: "following" }, RULES);
  const limit = { maxValues: 100, prefersSingle: false };
  expect(chooseBackfill([series], START, limit)?.range.toMs).toBe(closedUntilMs(RULES, START));
  expect(chooseBackfill([series], at(9), limit)?.range.toMs).toBe(parseTime(series.ledger.watermark));
});

test.each([3, 8, 14])(
  "a series first seen at minute %i is fetched at minutes 17, 32 and 47 with every: 15m",
  (firstSeen) => {
    let ledger = createLedger({ ...RULES, backfillMs: 0 }, START + firstSeen * MINUTE_MS);
    const fetchMinutes = Array.from({ length: 60 - firstSeen }, (_, n) => firstSeen + n).filter((minute) => {
      const nowMs = START + minute * MINUTE_MS;
      const range = rangeToFetch(ledger, RULES, nowMs);
      if (range !== null) ledger = settleNewRange(ledger, RULES, NO_POINTS, range, new Map(), nowMs).ledger;
      return range !== null;
    });
    expect(fetchMinutes).toEqual(expect.arrayContaining([17, 32, 47]));
    expect(fetchMinutes.length).toBeLessThanOrEqual(4);
  },
);

test("a history ledger created while the clock was ahead restarts, unless it contains fetched points", () => {
  const liveRules = { ...RULES, backfillMs: 0 };
  const earlyLedger: StoredLedger = { ...createLedger(liveRules, at(4)), state: "following" };
  const preparedLedger = prepareLedger(earlyLedger, liveRules, false, START);
  expect(preparedLedger).toEqual({ ...createLedger(liveRules, START), state: "following" });
  expect(rangeToFetch(preparedLedger, liveRules, at(1))).toMatchObject({ toMs: closedUntilMs(liveRules, at(1)) });
  expect(prepareLedger(earlyLedger, liveRules, false, at(4))).toBe(earlyLedger);
  const had: StoredLedger = { ...earlyLedger, spans: [{ from: isoUtc(at(-2)), to: isoUtc(at(-1)), why: "points" }] };
  expect(prepareLedger(had, liveRules, false, START)).toBe(had);
});

describe("retries of refused history", () => {
  test("request a refused range singly, without other tags, after 10 minutes, 1, 6 and 24 hours", () => {
    let ledger: StoredLedger = { ...createLedger(RULES, START), state: "following" };
    const waitsInMinutes: number[] = [];
    let nowMs = START;
    for (let i = 0; i < 5; i++) {
      ledger = recordPastRefusal(ledger, hours(-20, 0), "403", nowMs);
      const againMs = parseTime(ledger.spans[0]?.againAt ?? "");
      waitsInMinutes.push((againMs - nowMs) / MINUTE_MS);
      expect(listLedgerGapParts(ledger, hours(-20, 0), againMs - 1)).toEqual([]);
      expect(listLedgerGapParts(ledger, hours(-20, 0), againMs)).toEqual([{ ...hours(-20, 0), isSingle: true }]);
      nowMs = againMs;
    }
    expect(waitsInMinutes).toEqual([10, 60, 360, 1_440, 1_440]);
  });

  test("begin after 10 minutes for a tag that had a log before, and after 24 hours for a tag that never had a log", () => {
    const listWaits = (first: StoredLedger) => {
      let ledger = first;
      return Array.from({ length: 7 }, () => {
        ledger = recordNoLog(ledger, "404", START);
        return (parseTime(ledger.refusal?.againAt ?? "") - START) / HOUR_MS;
      });
    };
    const newLedger = createLedger(RULES, START);
    expect(listWaits(newLedger)).toEqual([24, 48, 96, 192, 384, 768, 768]);
    const value = points(hours(-1, 0), () => 1);
    expect(listWaits(settlePastRange(newLedger, value, hours(-1, 0)).ledger)).toEqual([1 / 6, 1, 6, 24, 24, 48, 96]);
  });
});

describe("the history gaps of a series", () => {
  const nowMs = at(0) + MINUTE_MS;
  const describeGaps = (ledger: StoredLedger, { missing = {}, silences = false } = {}) => {
    const series = seriesWith(ledger, RULES);
    const located = { ...series.siteTag, ...missing };
    return listHistoryGaps([{ ...series, siteTag: located }], { open: [], paused: false }, nowMs, { silences }).map(
      ({ why, from, said }) => [why, from, said],
    );
  };
  const followed: StoredLedger = { ...createLedger(RULES, START), state: "following" };
  const nullsFirst = points(hours(-30, 0), (ms) => (ms < at(-20) ? null : 1));
  const nullLedger = settlePastRange(followed, nullsFirst, hours(-30, 0)).ledger;

  test("the list of gaps contains each gap with its reason and the service's message, and ranges of nulls on request", () => {
    const ledger = recordPastRefusal(nullLedger, hours(-40, -30), "403, Forbidden.", START);
    const gap = ["backfill", targetStart(ledger), null];
    const refusal = ["refused", isoUtc(at(-40)), "403, Forbidden."];
    expect(describeGaps(ledger)).toEqual([gap, refusal]);
    expect(describeGaps(ledger, { silences: true })).toEqual([gap, refusal, ["null", isoUtc(at(-30)), null]]);
  });

  test("the list of gaps contains series of sites out of scope, without a log, and not yet requested", () => {
    const outOfScope = ["out-of-scope", targetStart(nullLedger), null];
    expect(describeGaps(nullLedger, { missing: { missing: "site" } })).toEqual([outOfScope]);
    expect(describeGaps(recordNoLog(nullLedger, "404", START))).toEqual([["no-log", targetStart(nullLedger), "404"]]);
    expect(describeGaps({ ...followed, state: "unproven" })).toEqual([["unproven", targetStart(followed), null]]);
    const refusedLedger = recordRefusal({ ...followed, state: "unproven" }, "403", START);
    expect(describeGaps(refusedLedger)).toEqual([["refused", targetStart(followed), "403"]]);
  });

  const targetStart = ({ wished }: StoredLedger) => isoUtc(parseTime(wished));
});

describe("a history ledger stored by an older version", () => {
  const writtenBefore = (state: StoredLedger["state"]): LegacyHistoryLedger =>
    ({
      ...{ resolution: "5m", timeZone: "UTC", state, rereadFrom: null, askAgainAt: null, refusals: 0 },
      ...{ since: isoUtc(START), watermark: isoUtc(at(5)), reached: isoUtc(at(-48)), target: isoUtc(at(-48)) },
      ...{ wished: isoUtc(at(-72)), islands: [{ from: isoUtc(at(-70)), to: isoUtc(at(-60)) }] },
      ...{ dailyAt: isoUtc(at(4)), weeklyAt: isoUtc(at(4)), rememberedFrom: isoUtc(at(-20)) },
    }) as unknown as LegacyHistoryLedger;

  test("keeps the range followed since the start after its upgrade, and earlier history is requested again", () => {
    const ledger = upgradeLegacyLedger(writtenBefore("following"), false);
    expect(ledger).toMatchObject({ version: 2, state: "following", watermark: isoUtc(at(5)), refusal: null });
    expect(ledger.spans).toEqual([{ from: isoUtc(START), to: isoUtc(at(5)), why: "points" }]);
    expect(listLedgerGapParts(ledger, targetPastRange(ledger), at(5))).toEqual([{ ...hours(-72, 0), isSingle: false }]);
    expect(upgradeLegacyLedger(ledger, false)).toBe(ledger);
    expect(closedUntilMs(RULES, at(5))).toBeLessThan(at(5) + 1);
  });

  test("keeps the complete fetched range of a series of totals after its upgrade", () => {
    const ledger = upgradeLegacyLedger(writtenBefore("following"), true);
    expect(ledger.spans).toEqual([{ from: isoUtc(at(-48)), to: isoUtc(at(5)), why: "points" }]);
  });
});

/** A service with other bucket borders: each value counts the requested minutes of its bucket. */
function cutElsewhere(query: TimeRange, lengthMs: number, shiftMs: number): TagPoints {
  const all = new TagPoints();
  const firstMs = Math.floor((query.fromMs - shiftMs) / lengthMs) * lengthMs + shiftMs;
  for (let atMs = firstMs; atMs < query.toMs; atMs += lengthMs) {
    if (atMs < query.fromMs) continue;
    all.add({ time: isoUtc(atMs), value: (Math.min(atMs + lengthMs, query.toMs) - atMs) / MINUTE_MS });
  }
  return all;
}

test.each([
  ["a bucket per UTC hour, for Kathmandu", "1h", "Asia/Kathmandu", HOUR_MS, 0],
  ["a bucket per UTC day, for Stockholm", "1d", "Europe/Stockholm", DAY_MS, 0],
  // Weeks from Sunday, without daylight saving.
  ["a bucket per week that begins on Sunday", "1w", "Africa/Lagos", 7 * DAY_MS, 3 * DAY_MS - HOUR_MS],
] as const)(
  "emits a bucket that lies in two requested ranges once, with its complete value: %s",
  (_name, resolution, timeZone, lengthMs, shiftMs) => {
    const lengths = { everyMs: lengthMs, backfillMs: 40 * lengthMs, lookBackMs: 3 * lengthMs };
    const bucketRules: SeriesRules = { ...RULES, resolution, timeZone, ...lengths };
    let ledger: StoredLedger = { ...createLedger(bucketRules, START), state: "following" };
    const emitted = new Map<number, number>();
    const settle = (settled: SettledHistoryPoints) => {
      expect(settled.revisedPoints.length).toBe(0);
      for (const { time, value } of settled.newPoints) {
        expect(emitted.has(parseTime(time))).toBe(false);
        emitted.set(parseTime(time), Number(value));
      }
      ledger = settled.ledger;
    };
    const fetchPoints = (range: TimeRange) => {
      const fromMs = bucketBefore(range.fromMs, { resolution, timeZone });
      return cutElsewhere({ ...range, fromMs }, lengthMs, shiftMs);
    };

    const [fromMs, toMs] = [parseTime(ledger.wished), parseTime(ledger.since)];
    const cuts = [toMs, bucketStart(toMs - 9 * lengthMs, { resolution, timeZone })];
    cuts.push(bucketStart(toMs - 25 * lengthMs, { resolution, timeZone }), fromMs);
    for (let n = 1; n < cuts.length; n += 1) {
      const range = { fromMs: cuts[n] ?? 0, toMs: cuts[n - 1] ?? 0 };
      settle(settlePastRange(ledger, fetchPoints(range), range));
    }
    for (let round = 1; round <= 6; round += 1) {
      const nowMs = START + round * lengthMs;
      const range = rangeToFetch(ledger, bucketRules, nowMs);
      if (range !== null) settle(settleNewRange(ledger, bucketRules, fetchPoints(range), range, emitted, nowMs));
    }

    const emittedTimes = [...emitted.keys()].toSorted((a, b) => a - b);
    expect(new Set(emitted.values())).toEqual(new Set([lengthMs / MINUTE_MS]));
    expect(emittedTimes.length).toBeGreaterThan(40);
    expect(emittedTimes.every((time, n) => n === 0 || time - (emittedTimes[n - 1] ?? 0) === lengthMs)).toBe(true);
  },
);
