import { describe, expect, test } from "vitest";
import { draftConfiguration } from "#src/cli/running/write-first-configuration.ts";
import type { PlanReport } from "#src/engine/sync/plan/report.ts";
import {
  historyPollMs,
  INTERVALS_MS,
  planLines,
  proposeChoices,
  quotaUseText,
  type SetupChoices,
  unitGroups,
} from "#src/ui/setup/setup-choices.ts";
import { buildingWith, CONFIGURATION_VALUES, HISTORY } from "./buildings.ts";

const HOUR_MS = 3_600_000;

describe("unitGroups (the tags of a building by unit)", () => {
  const groups = (units: Readonly<Record<string, number>>) =>
    unitGroups(buildingWith(units)).map(
      (each) => `${each.group} ${each.tags}: ${each.units.map(({ unit }) => unit).join(" ")}`,
    );

  test("returns the non-empty groups: readings, meters and tags without a unit", () => {
    expect(groups({ "°C": 5, kWh: 3, "m³": 2, "": 1, "%": 4 })).toEqual([
      "readings 9: °C %",
      "meters 5: kWh m³",
      "rest 1: ",
    ]);
    expect(groups({ kWh: 1 })).toEqual(["meters 1: kWh"]);
    expect(groups({})).toEqual([]);
  });

  test.each([
    ["meters", "Wh MWh kVArh Gcal MJ m3 Sm³ Nm3 l L liter pulse pulses imp"],
    ["readings", "W kW m3/h l/s kWh/m²"],
  ])("returns %s for the units %s", (group, units) => {
    for (const unit of units.split(" ")) expect(groups({ [unit]: 1 })).toEqual([`${group} 1: ${unit}`]);
  });

  test("moves all but the 24 most frequent units to the group of other units", () => {
    const units = Object.fromEntries(Array.from({ length: 26 }, (_, n) => [`u${n}`, 100 - n]));
    const [readings, rest] = unitGroups(buildingWith(units));
    expect(readings?.units.map(({ unit }) => unit)).toEqual(Array.from({ length: 24 }, (_, n) => `u${n}`));
    expect(rest).toMatchObject({ group: "rest", tags: 76 + 75, units: [{ unit: "u24" }, { unit: "u25" }] });
  });
});

describe("proposedChoices (read intervals and history for a building)", () => {
  /** A plan with load 1 when the shortest interval is `fitsMs`; a longer interval has a lower load. */
  const planCosting = (fitsMs: number) => {
    const tried: number[] = [];
    const planOf = ({ every }: SetupChoices) => {
      const shortestMs = every.readings ?? every.meters ?? every.rest ?? 0;
      tried.push(shortestMs);
      return { load: fitsMs / shortestMs } as PlanReport;
    };
    return { tried, planOf };
  };
  const units = { "°C": 5, kWh: 3, "": 1 };
  const propose = (fitsMs: number, of: Readonly<Record<string, number>> = units) =>
    proposeChoices(buildingWith(of), HISTORY, planCosting(fitsMs).planOf);

  test("returns the shortest intervals that use 80 % of the quota, never below 30 s", () => {
    expect(propose(0).every).toEqual({ readings: 30_000, meters: 900_000, rest: 120_000 });
    // 60 s × 0.8: the next step is just enough.
    expect(propose(48_000).every.readings).toBe(60_000);
    expect(propose(48_001).every.readings).toBe(120_000);
    const day = 24 * HOUR_MS;
    expect(propose(1e12).every).toEqual({ readings: day, meters: day, rest: day });
    // Two steps slower than 30 min.
    expect(propose(1_440_000).every).toEqual({ readings: 1_800_000, meters: 2 * HOUR_MS, rest: 2 * HOUR_MS });
  });

  test("computes at most 4 plans", () => {
    const { planOf, tried } = planCosting(1_440_000);
    proposeChoices(buildingWith(units), HISTORY, planOf);
    expect(tried.length).toBeLessThanOrEqual(4);
    expect(INTERVALS_MS.map((ms) => ms / 60_000)).toEqual([
      ...[1 / 6, 1 / 4, 1 / 2, 1, 2, 5, 10, 15, 30],
      ...[60, 120, 180, 360, 720, 1_440],
    ]);
  });

  test("gives tags without a unit the shortest interval only when the building has no other tags", () => {
    expect(propose(0, { "": 5 }).every).toEqual({ readings: null, meters: null, rest: 30_000 });
    expect(propose(0, { "": 5, kWh: 1 }).every).toEqual({ readings: null, meters: 900_000, rest: 120_000 });
    expect(propose(0, { kWh: 1 }).every).toEqual({ readings: null, meters: 900_000, rest: null });
  });

  test("proposes history if the building has tags, and uses the complete quota", () => {
    expect(propose(0)).toMatchObject({ history: HISTORY, polite: 1 });
    expect(propose(0, {})).toEqual({
      ...{ every: { readings: null, meters: null, rest: null }, history: null, polite: 1 },
    });
  });

  test("fetches history hourly up to 1,000 tags, then every 6 h, then daily", () => {
    expect([1, 1_000, 1_001, 4_000, 4_001].map((tags) => historyPollMs(tags) / HOUR_MS)).toEqual([1, 1, 6, 6, 24]);
  });
});

describe("the texts of a plan", () => {
  const planFor = (choices: Partial<SetupChoices>, tags = 200) => {
    const building = buildingWith({ "°C": tags });
    const every = { readings: 60_000, meters: null, rest: null };
    return draftConfiguration(CONFIGURATION_VALUES, { every, history: null, polite: 1, ...choices }, building).plan;
  };

  test("state how much of the quota live reads and history use together", () => {
    const plan = planFor({ history: HISTORY });
    const shares: Readonly<Record<string, number>> = { write: 0.05, live: 0.2, history: 0.3, spare: 0.4 };
    const lanes = plan.lanes.map((each) => ({ ...each, share: shares[each.lane] ?? 0 }));
    expect(quotaUseText({ ...plan, lanes })).toBe("These intervals take 50 % of the quota (20 requests a minute).");
    expect(quotaUseText({ ...plan, lanes: [] })).toContain("take 0 %");
    const smallLanes = plan.lanes.map((each) => ({ ...each, share: each.lane === "live" ? 0.001 : 0 }));
    expect(quotaUseText({ ...plan, lanes: smallLanes })).toContain("take 1 %");
    expect(quotaUseText({ ...plan, quota: { ...plan.quota, perMinute: 9.26 } })).toContain("(9.3 requests");
    expect(quotaUseText({ ...plan, fits: false, load: 1.204 })).toBe(
      "These intervals need 120 % of the quota (20 requests a minute), so values become older than configured.",
    );
    expect(quotaUseText({ ...plan, classes: [] })).toBe("No tag is read; alarms are followed.");
  });

  test("state how often tags are read, how many rows are stored, and how long the backfill takes", () => {
    expect(planLines(planFor({}))).toEqual([
      "everything: 200 tags, a value every 60 s",
      "A database or data lake stores 288000 rows of values a day",
    ]);
    const slowPlan = planFor({ every: { readings: 10_000, meters: null, rest: null } }, 1_000);
    expect(planLines(slowPlan)[0]).toMatch(/^everything: 1000 tags, a value every .+, less often than configured$/);
    const [everything] = slowPlan.classes;
    if (everything === undefined) throw new Error("There is one class.");
    const stretchedLine = (stretch: number) => planLines({ ...slowPlan, classes: [{ ...everything, stretch }] })[0];
    expect(stretchedLine(1)).not.toContain("less often than configured");
    expect(stretchedLine(1.01)).toContain("less often than configured");
    const plan = planFor({ history: HISTORY });
    expect(planLines(plan)[2]).toMatch(/^history log: 200 tags at 1h, its past fetched in /);
    const backfill = plan.backfill;
    if (backfill === null) throw new Error("There is a past to fetch.");
    const backfillLine = (requestsLeft: number, requestsPerMinute: number) =>
      planLines({ ...plan, backfill: { ...backfill, requestsLeft, requestsPerMinute } })[2];
    expect(backfillLine(20, 10)).toMatch(/fetched in 2 min$/);
    expect(backfillLine(21, 10)).toMatch(/fetched in 3 min$/);
    expect(planLines({ ...plan, backfill: null })[2]).toBe("history log: 200 tags at 1h");
  });
});
