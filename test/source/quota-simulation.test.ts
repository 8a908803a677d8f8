import { describe, expect, test } from "vitest";
import { GOALS, WINDOWS } from "../bench/quota/goals.ts";
import { slowGateway, stalling } from "../bench/quota/network.ts";
import { simulate } from "../bench/quota/run.ts";
import { quantile } from "../bench/quota/sum.ts";
import { replay, seed } from "../seed.ts";

describe(`two hours against limiters unknown to the client (${replay})`, () => {
  test.each(WINDOWS)("against the limiter %s, causes no refusal and uses 99.5 % of the quota", async (limiter) => {
    const outcome = await simulate({ limiter, hours: 2, seed });
    expect(outcome.refused, replay).toBe(0);
    expect(outcome.utilisation, replay).toBeGreaterThanOrEqual(0.995);
  });

  test("behind a slow gateway: causes no refusal and uses 97 % of the quota", async () => {
    const outcome = await simulate({ limiter: "sliding log", hours: 2, seed, network: slowGateway });
    expect(outcome.refused, replay).toBe(0);
    expect(outcome.utilisation, replay).toBeGreaterThanOrEqual(0.97);
  });

  test("with network stalls and clock steps: causes at most one refusal", async () => {
    const weather = { network: stalling, clockStepEveryMs: 60_000 };
    const outcome = await simulate({ limiter: "sliding log", hours: 2, seed, ...weather });
    expect(outcome.refused, replay).toBeLessThanOrEqual(1);
  });

  test.each(["leaky, burst 1", "weighted counter"] as const)(
    "against the limiter %s, adapts after at most three refusals",
    async (limiter) => {
      const outcome = await simulate({ limiter, hours: 2, seed });
      expect(outcome.refused, replay).toBeLessThanOrEqual(3);
      expect(outcome.otherReportedMs, replay).toBeNull();
      expect(outcome.utilisation, replay).toBeGreaterThanOrEqual(0.88);
    },
  );

  test("causes no refusal in a hundred kills of the process", async () => {
    const outcome = await simulate({ limiter: "sliding log", hours: 5, seed, killEveryMs: 180_000 });
    expect(outcome.kills, replay).toBeGreaterThan(60);
    expect(outcome.refused, replay).toBe(0);
  });

  test.each([
    { reserve: 0, goalMs: GOALS.urgent.p95Ms + 1_000 },
    { reserve: 1, goalMs: GOALS.urgent.p95WithReserveMs },
  ])("sends writes in time during continuous polls, with $reserve reserved slots", async ({ reserve, goalMs }) => {
    const outcome = await simulate({ limiter: "sliding log", hours: 4, seed, urgentEveryMs: 60_000, reserve });
    expect(quantile(outcome.urgentWaitsMs, reserve === 0 ? 0.95 : 0.9), replay).toBeLessThanOrEqual(goalMs);
    expect(outcome.refused, replay).toBe(0);
  });

  test("reports another client within ten minutes", async () => {
    const scenario = { otherPerMinute: 6, otherFromMs: 600_000 };
    const outcome = await simulate({ limiter: "first-hit window", hours: 1, seed, ...scenario });
    expect(outcome.otherReportedMs, replay).toBeGreaterThan(600_000);
    expect(outcome.otherReportedMs, replay).toBeLessThan(1_200_000);
  });
});
