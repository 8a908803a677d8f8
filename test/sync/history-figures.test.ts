import { describe, expect, test } from "vitest";
import { createGroupTesting } from "#src/engine/sync/history/log-discovery.ts";
import { afterFailure, afterResponse, INITIAL_WINDOW, windowValues } from "#src/engine/sync/history/request-size.ts";
import {
  halvingStrategy,
  MISSING_LOG_GOALS,
  mean,
  tagsWithoutLog,
  workerStrategy,
} from "../bench/history/missing-logs.ts";
import { LIMITS, learnedRequests, oracleRequests, WINDOW_GOAL } from "../bench/history/windows.ts";

describe("group testing for tags without a log", () => {
  // Five of the forty seeds of the benchmark, so a little more than the goal is allowed.
  test.each(MISSING_LOG_GOALS)(
    "finds $share of tags without a log (clustered: $clustered) with about $atMost requests",
    (goal) => {
      const buildings = [1, 2, 3, 4, 5].map((seed) => tagsWithoutLog(goal.share, goal.clustered, seed));
      const outcomes = buildings.map(workerStrategy);
      expect(outcomes.map(({ wrong }) => wrong)).toEqual([0, 0, 0, 0, 0]);
      const requests = mean(outcomes.map((outcome) => outcome.requests));
      expect(requests).toBeLessThanOrEqual(goal.atMost * 1.08);
      expect(requests).toBeLessThanOrEqual(mean(buildings.map((bad) => halvingStrategy(bad).requests)));
    },
  );

  test("repeats a group until the group is settled, and accepts new members in between", () => {
    const testing = createGroupTesting<number>(20);
    testing.add([1, 2, 3]);
    expect(testing.next()).toEqual([1, 2, 3]);
    testing.add([4]);
    expect(testing.next()).toEqual([1, 2, 3]);
    expect(testing.settle(true)).toEqual({ good: [1, 2, 3], bad: [] });
    expect(testing.next()).toEqual([4]);
    expect(testing.settle(false)).toEqual({ good: [], bad: [4] });
    expect(testing.next()).toEqual([]);
    expect(testing.settle(true)).toEqual({ good: [], bad: [] });
  });
});

describe("the size of a history request", () => {
  test.each(LIMITS)(
    "with an unknown limit of %i values, needs at most 5 %% more requests than with a known limit",
    (limit) => {
      expect(learnedRequests(limit) / oracleRequests(limit)).toBeLessThanOrEqual(WINDOW_GOAL);
    },
  );

  test("returns to at least half its size after failures in an outage", () => {
    const limits = { most: 1_000_000 };
    let window = INITIAL_WINDOW;
    for (let i = 0; i < 12; i++) window = afterResponse(window, windowValues(window, limits), limits);
    const before = windowValues(window, limits);
    window = afterFailure(window, window.good * 2);
    expect(window.bad).not.toBeNull();
    for (let i = 0; i < 3; i++) window = afterFailure(window, window.good);
    expect(window.bad).toBeNull();
    window = afterResponse(window, window.good, limits);
    expect(windowValues(window, limits)).toBeGreaterThanOrEqual(before / 2);
  });

  test("shrinks after repeated failures at a size that worked before, and grows back later", () => {
    const limits = { most: 1_000_000 };
    let window = INITIAL_WINDOW;
    let requests = 0;
    const fetch = (limit: number) => {
      const values = windowValues(window, limits);
      requests++;
      window = values > limit ? afterFailure(window, values) : afterResponse(window, values, limits);
      return values;
    };
    while (requests < 60) fetch(100_000);
    const before = windowValues(window, limits);
    requests = 0;
    while (fetch(3_000) > 3_000);
    expect(requests).toBeLessThanOrEqual(10);
    for (let i = 0; i < 20; i++) fetch(3_000);
    expect(windowValues(window, limits)).toBeGreaterThan(2_900);
    requests = 0;
    while (windowValues(window, limits) < before) fetch(100_000);
    expect(requests).toBeLessThanOrEqual(3_500);
  });

  test("does not grow after a response with few values", () => {
    const limits = { most: 1_000_000 };
    let window = INITIAL_WINDOW;
    for (let i = 0; i < 12; i++) window = afterResponse(window, windowValues(window, limits), limits);
    const before = windowValues(window, limits);
    for (let i = 0; i < 6; i++) window = afterResponse(afterFailure(window, before / 2), 20, limits);
    expect(windowValues(window, limits)).toBeLessThan(before / 4);
  });
});
