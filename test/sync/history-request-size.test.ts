import { describe, expect, test } from "vitest";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  acceptCounts,
  INITIAL_SAFE_POINT_COUNTS,
  INITIAL_SIZE,
  learnPointLimit,
  maxBucketsPerTag,
  nextSize,
  sizeAfterFailure,
  sizeAfterReply,
  valuesBelowPointLimit,
} from "#src/engine/sync/history/request-size.ts";
import {
  computeMean,
  halvingStrategy,
  MISSING_LOG_GOALS,
  tagsWithoutLog,
  workerStrategy,
} from "../bench/history/missing-logs.ts";
import { LIMITS, learnedRequests, oracleRequests, WINDOW_GOAL } from "../bench/history/windows.ts";

describe("group testing for tags without a log", () => {
  // Five of the forty seeds of the benchmark, so a little more than the goal is allowed.
  test.each(MISSING_LOG_GOALS)(
    "needs about $atMost requests if the share $share of all tags has no log (adjacent: $clustered)",
    (goal) => {
      const buildings = [1, 2, 3, 4, 5].map((seed) => tagsWithoutLog(goal.share, goal.clustered, seed));
      const outcomes = buildings.map(workerStrategy);
      expect(outcomes.map(({ wrong }) => wrong)).toEqual([0, 0, 0, 0, 0]);
      const requests = computeMean(outcomes.map((outcome) => outcome.requests));
      expect(requests).toBeLessThanOrEqual(goal.atMost * 1.08);
      expect(requests).toBeLessThanOrEqual(computeMean(buildings.map((bad) => halvingStrategy(bad).requests)));
    },
  );
});

describe("the number of values in one history request", () => {
  test.each(LIMITS)(
    "adapts to an unknown limit of %i values with at most 5 %% more requests than for a known limit",
    (limit) => {
      expect(learnedRequests(limit) / oracleRequests(limit)).toBeLessThanOrEqual(WINDOW_GOAL);
    },
  );

  test("shrinks after repeated failures with a number that worked before, and grows back later", () => {
    const limits = { valuesMax: 1_000_000 };
    let size = INITIAL_SIZE;
    let requests = 0;
    const fetch = (limit: number) => {
      const values = nextSize(size, limits);
      requests++;
      size = values > limit ? sizeAfterFailure(size, values) : sizeAfterReply(size, values, limits);
      return values;
    };
    while (requests < 60) fetch(100_000);
    const sizeBefore = nextSize(size, limits);
    requests = 0;
    while (fetch(3_000) > 3_000);
    expect(requests).toBeLessThanOrEqual(10);
    for (let i = 0; i < 20; i++) fetch(3_000);
    expect(nextSize(size, limits)).toBeGreaterThan(2_900);
    requests = 0;
    while (nextSize(size, limits) < sizeBefore) fetch(100_000);
    expect(requests).toBeLessThanOrEqual(3_500);
  });
});

const NOW = Date.UTC(2026, 10, 2);
const DAY_MS = 86_400_000;
const AT = isoUtc(NOW);

test("responses of 1,000 points (a round number) count as complete from the second on, of 2,048 points from the first on", () => {
  const first = acceptCounts(INITIAL_SAFE_POINT_COUNTS, { series: 1_000, answer: 4_108 });
  expect(first.safeCounts).toEqual({ series: 99, answer: 4_108 });
  expect(acceptCounts(first, { series: 1_000, answer: 0 }).safeCounts).toEqual({ series: 1_000, answer: 4_108 });
  const single = acceptCounts(acceptCounts(first, { series: 2_048, answer: 0 }), { series: 1_000, answer: 0 });
  expect(single.safeCounts.series).toBe(99);
});

test("a learned limit of points per response expires after 30 days, and always allows one bucket per tag", () => {
  const cut = learnPointLimit(null, { series: 100, answer: 0 }, AT);
  expect(valuesBelowPointLimit(cut, NOW + 30 * DAY_MS)).toBe(20 * 97);
  expect(valuesBelowPointLimit(cut, NOW + 30 * DAY_MS + 1)).toBe(Number.POSITIVE_INFINITY);
  expect(maxBucketsPerTag(learnPointLimit(null, { series: 0, answer: 30 }, AT), 20, NOW)).toBe(1);
});
