import { describe, expect, test } from "vitest";
import { computeQuotaOverload, type ReadClassDemand } from "#src/engine/sync/plan/overload.ts";
import { type PlanAdviceFacts, proposePlanChanges } from "#src/engine/sync/plan/report.ts";
import { demandOf } from "./planned-tags.ts";

function changes(demands: readonly ReadClassDemand[], more: Partial<PlanAdviceFacts> = {}) {
  const overload = computeQuotaOverload(demands, 3_000, 20);
  const quota = { size: 20, share: 0.97, replyMs: 0, perMinute: 20, quotaChanges: [] };
  return proposePlanChanges({ demands, overload, ...quota, ...more });
}

describe("proposed changes of read intervals that exceed the quota", () => {
  const often = demandOf("often", 400, 60);
  const rare = demandOf("rare", 200, 300, { importance: 2 });

  test("are empty when the intervals fit into the quota", () => {
    expect(changes([demandOf("often", 388, 60)])).toEqual([]);
    expect(changes([demandOf("often", 389, 60)])).toHaveLength(1);
  });

  test("have the new interval and cost of a single class, if a change of that class alone makes the intervals fit", () => {
    const single = changes([often, rare]).filter(({ text }) => text.startsWith("Let the values of class"));
    expect(single).toEqual([
      {
        text: "Let the values of class often become 1m10s old instead of 1m.",
        yaml: "read: [{name: often, every: 1m10s}]",
        cost: expect.closeTo(400 * (70 / 60 - 1), 9),
      },
    ]);
    const [important] = changes([{ ...often, importance: 3 }]);
    expect(important?.cost).toBeCloseTo(3 * 400 * (70 / 60 - 1), 9);
  });

  test("end with the longer intervals that apply if nothing is changed", () => {
    const overload = { demand: 1.1, factors: new Map([["often", 1.5]]) };
    expect(changes([often, rare], { overload }).at(-1)).toEqual({
      text: "Let every class become 1.50 times older, which is what happens without a change.",
      yaml: "read: [{name: often, every: 1m30s}, {name: rare, every: 5m}]",
      cost: 400 * 0.5,
    });
    const both = { ...overload, factors: new Map([...overload.factors, ["rare", 1.25]]) };
    expect(changes([often, rare], { overload: both }).at(-1)).toMatchObject({
      yaml: "read: [{name: often, every: 1m30s}, {name: rare, every: 6m20s}]",
      cost: 400 * 0.5 + 2 * 200 * 0.25,
    });
    expect(changes([often])).toHaveLength(1);
  });

  test.each([
    ["seconds below a minute", 300, 30, "48s"],
    ["tens of seconds below ten minutes", 400, 60, "1m10s"],
    ["minutes below an hour", 4_500, 600, "12m"],
    ["ten minutes below two hours", 25_000, 3_600, "1h10m"],
    ["ten minutes above two hours", 50_000, 3_600, "2h10m"],
  ])("have intervals rounded to %s", (_, tags, seconds, every) => {
    expect(changes([demandOf("all", tags, seconds)])[0]?.yaml).toBe(`read: [{name: all, every: ${every}}]`);
  });
});

describe("the demand on the quota", () => {
  test("does not lengthen the intervals of classes with firm: true that need up to four fifths of the quota", () => {
    const factor = (tags: number) => {
      const demands = [demandOf("firm", tags, 60, { firm: true }), demandOf("other", 200, 60)];
      return computeQuotaOverload(demands, 3_000, 20).factors.get("firm");
    };
    expect(factor(320)).toBe(1);
    expect(factor(321)).toBeGreaterThan(1);
  });
});
