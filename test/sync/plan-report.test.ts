import { describe, expect, test } from "vitest";
import { quotaPlanLines } from "#src/cli/watching/quota-plan-command.ts";
import { type PollingPlanFacts, type ReadClassFacts, reportPlan } from "#src/engine/sync/plan/report.ts";

const NOW_MS = Date.parse("2026-11-02T06:00:00Z");

const readClass = (name: string, tags: number, everyS: number, more: Partial<ReadClassFacts> = {}): ReadClassFacts => ({
  ...{ name, tags, allTagCount: tags, everyMs: everyS * 1_000, firm: false, importance: 1, fresher: true },
  valueAgeMs: null,
  ...more,
});

function facts(classes: readonly ReadClassFacts[], more: Partial<PollingPlanFacts> = {}): PollingPlanFacts {
  return {
    ...{ source: "trial", basis: "state", nowMs: NOW_MS, sites: 1 },
    tags: classes.reduce((sum, { allTagCount: allTags }) => sum + allTags, 0),
    classes,
    history: [],
    backfill: { requestsLeft: 0, requestsAtBest: 0, paused: false },
    quota: { perMinute: 20, reserve: 0, polite: 1, polls: 20, shared: true, size: 20 },
    ...more,
  };
}

const follow = (tags: number, everyMin: number) => ({
  ...{ name: "five", resolution: "5m" as const, total: false, tags, everyMs: everyMin * 60_000, withoutLog: 0 },
});

describe("the report of a plan whose read intervals fit into the quota", () => {
  const plan = reportPlan(facts([readClass("all", 2_000, 600)], { history: [follow(3_000, 60)] }));

  test("states the target intervals as achievable, and the time in which all tags can be read once", () => {
    expect(plan.fits).toBe(true);
    expect(plan.changes).toEqual([]);
    expect(plan.classes[0]).toMatchObject({ targetSeconds: 600, promisedSeconds: 600, stretch: 1 });
    expect(plan.fullSweepSeconds).toBe(300);
  });

  test("divides the quota into lanes whose shares add up to 1", () => {
    const share = (lane: string) => plan.lanes.find((each) => each.lane === lane)?.share ?? Number.NaN;
    expect(share("history")).toBeCloseTo(0.125, 3);
    expect(share("live")).toBeCloseTo(0.5, 1);
    expect(plan.lanes.reduce((sum, each) => sum + each.share, 0)).toBeCloseTo(1, 3);
    for (const each of plan.lanes) expect(each.share).toBe(Number(each.share.toFixed(4)));
  });

  test("gives the backfill the spare requests, and states when the backfill is done", () => {
    const left = { requestsLeft: 1_000, requestsAtBest: 100 };
    const backfill = { ...left, paused: false };
    const past = reportPlan(facts([readClass("all", 2_000, 600)], { backfill })).backfill;
    const minutes = (Date.parse(past?.doneAt ?? "") - NOW_MS) / 60_000;
    expect(minutes).toBeCloseTo(1_000 / (past?.requestsPerMinute ?? 0), 0);
    expect(past?.requestsPerMinute).toBeCloseTo(10, 0);
    const minutesAtBest = (Date.parse(past?.atBestDoneAt ?? "") - NOW_MS) / 60_000;
    expect(minutesAtBest).toBeCloseTo(minutes / 10, 0);
    const paused = reportPlan(facts([], { backfill: { ...left, paused: true } }));
    expect(paused.backfill).toMatchObject({ doneAt: null, atBestDoneAt: null });
  });
});

describe("the figures of a plan", () => {
  const quota = facts([]).quota;
  const lanes = (plan: ReturnType<typeof reportPlan>) =>
    Object.fromEntries(plan.lanes.map(({ lane, requestsPerMinute }) => [lane, requestsPerMinute]));

  test("count in whole request slots: 100 tags with a target of 60 s and replies of 0.2 s are read every 19 slots", () => {
    const classes = [readClass("minute", 100, 60, { valueAgeMs: 45_000 }), readClass("none", 0, 60)];
    const plan = reportPlan(facts([...classes, readClass("one", 1, 3_600)], { tags: 110 }));
    expect(lanes(plan)).toEqual({ write: 0, live: 5.26, history: 0, spare: 14.74 });
    expect(plan.classes).toMatchObject([
      { promisedSeconds: 60, atBestSeconds: 15.79, measuredSeconds: 45, requestsPerMinute: 5.26 },
      { measuredSeconds: null, requestsPerMinute: 0 },
      { atBestSeconds: 947.52, requestsPerMinute: 0 },
    ]);
    expect(plan).toMatchObject({ tagsNotRead: 9, fullSweepSeconds: 18, learning: null, backfill: null });
    expect(plan.load).toBeCloseTo(0.263 / 0.97, 3);
  });

  test("contain no age of values below the length of a request slot, even with two tags", () => {
    expect(lanes(reportPlan(facts([readClass("one", 1, 6)]))).live).toBe(1);
    const plan = reportPlan(facts([readClass("one", 1, 10), readClass("two", 1, 3_600)]));
    expect(plan.classes.map(({ atBestSeconds }) => atBestSeconds)).toEqual([3, 60.15]);
  });

  test("at full load, give no requests to the spare lane and the minimum of 0.6 requests a minute to the backfill", () => {
    const backfill = { requestsLeft: 60, requestsAtBest: 6, paused: false };
    const more = { history: [follow(3_000, 15)], backfill, tagsWithoutKnownLog: 5 };
    const plan = reportPlan(facts([readClass("all", 100_000, 60)], more));
    expect(lanes(plan)).toMatchObject({ live: 10, history: 10, spare: 0 });
    expect(plan.learning).toEqual({ tags: 5, requestsPerMinute: 0.6 });
    expect(plan.backfill?.requestsPerMinute).toBe(0.6);
    const full = reportPlan(facts([readClass("all", 1_000, 60)], { history: [follow(6_000, 15)], backfill }));
    expect(lanes(full)).toMatchObject({ history: 20, spare: 0 });
    expect(full.backfill).toMatchObject({ requestsPerMinute: 0.6, doneAt: "2026-11-02T07:40:00.000Z" });
  });

  test("are the same for live reads when history has its own quota", () => {
    const backfill = { requestsLeft: 10, requestsAtBest: 10, paused: false };
    const more = { quota: { ...quota, shared: false }, history: [follow(3_000, 15)], backfill };
    const plan = reportPlan(facts([readClass("all", 100, 60)], more));
    expect(lanes(plan)).toMatchObject({ live: 5.26, history: 10, spare: 14.74 });
    expect(plan.backfill?.requestsPerMinute).toBe(10);
  });

  test("suggest to use more of the quota (such as polite: 1 or reserve_for_writes: 0) if the intervals then fit", () => {
    const yaml = (changes: Partial<typeof quota>) =>
      reportPlan(facts([readClass("all", 1_500, 300)], { quota: { ...quota, ...changes } }))
        .changes.filter(({ cost }) => cost === 0)
        .map((change) => change.yaml);
    expect(yaml({ polls: 10 })).toEqual([]);
    expect(yaml({ polls: 10, polite: 0.5 })).toEqual(["quota: {polite: 1}"]);
    expect(yaml({ polls: 10, perMinute: 10 })).toEqual(["quota: {requests_per_minute: 20}"]);
    expect(yaml({ polls: 10, reserve: 10 })).toEqual(["quota: {reserve_for_writes: 0}"]);
  });
});

describe("the report of a plan whose classes have fixed read times", () => {
  const cadence = (name: string, tags: number, everyS: number, more: Partial<ReadClassFacts> = {}) =>
    readClass(name, tags, everyS, { fresher: false, ...more });

  test("counts the requests of groups of 20, and none for an incomplete group that shares a request with another class", () => {
    const plan = reportPlan(facts([cadence("half", 28, 30), cadence("one", 52, 60), cadence("odd", 5, 45)]));
    const [half, one, odd] = plan.classes.map(({ requestsPerMinute }) => requestsPerMinute);
    expect([half, one, odd]).toEqual([4, 2, 1.33]);
    expect(plan.lanes.find(({ lane }) => lane === "live")?.requestsPerMinute).toBeCloseTo(7.33, 2);
  });

  test("states the emitted rows a day: one per tag and interval, and more with `fresher` or with spare requests in overload", () => {
    const rowsPerDay = (classFacts: ReadClassFacts) => reportPlan(facts([classFacts])).classes[0]?.rowsPerDay;
    expect(rowsPerDay(cadence("all", 20, 30))).toBe(57_600);
    expect(rowsPerDay(readClass("all", 20, 30))).toBe(518_400);
    expect(rowsPerDay(cadence("all", 800, 60))).toBe(571_690);
    expect(quotaPlanLines(reportPlan(facts([cadence("all", 20, 30)]))).join("\n")).toMatch(/rows a day.*\n.* 57600 /);
  });

  test("sets olderThanTarget only if a measured age exceeds the interval by more than the 3 s of a request", () => {
    const olderThanTarget = (measuredMs: number) =>
      reportPlan(facts([cadence("all", 20, 60, { valueAgeMs: measuredMs })])).classes[0]?.olderThanTarget;
    expect([63_000, 64_400, 64_600, 80_000].map(olderThanTarget)).toEqual([false, false, true, true]);
  });
});

describe("the report of a plan whose read intervals exceed the quota", () => {
  const classes = [readClass("fast", 40, 10), readClass("minute", 130, 60), readClass("rest", 3_600, 3_600)];
  const plan = reportPlan(facts(classes));

  test("lists the cheapest change first, and each change makes the plan fit", () => {
    expect(plan.changes.length).toBeGreaterThan(1);
    const costs = plan.changes.map(({ cost }) => cost);
    expect(costs).toEqual(costs.toSorted((a, b) => a - b));
    for (const { yaml } of plan.changes) {
      const changed = classes.map((each) => {
        const seconds = new RegExp(`name: ${each.name}, every: ((\\d+h)?(\\d+m)?(\\d+s)?)[,}]`).exec(yaml);
        const part = (unit: string) => Number(new RegExp(`(\\d+)${unit}`).exec(seconds?.[1] ?? "")?.[1] ?? 0);
        const everyMs = ((part("h") * 60 + part("m")) * 60 + part("s")) * 1_000;
        return everyMs === 0 ? each : { ...each, everyMs };
      });
      expect(reportPlan(facts(changed)).fits, yaml).toBe(true);
    }
  });

  test("counts fewer requests for tags that stay null, because the worker reads such tags less often", () => {
    const loud = readClass("all", 3_000, 300);
    expect(reportPlan(facts([loud])).fits).toBe(false);
    const plan = reportPlan(facts([{ ...loud, tags: 1_700 }]));
    expect(plan.fits).toBe(true);
    expect(plan.classes[0]?.tags).toBe(3_000);
  });
});

describe("measured ages of values in a plan", () => {
  test.each([
    [60, null, false],
    [60, 59.9, false],
    [60, 60, false],
    [60, 60.04, false],
    [60, 60.06, true],
    [60, 78, true],
    [900, 902, false],
    [900, 904, true],
    [86_400, 90_000, true],
  ])(
    "target %i s, measured age %s s: olderThanTarget is %s, consistent with the rounded figures",
    (target, age, older) => {
      const measuredMs = age === null ? null : age * 1_000;
      for (const tags of [10, 100_000]) {
        const plan = reportPlan(facts([readClass("one", tags, target, { valueAgeMs: measuredMs })]));
        expect(plan.classes[0]?.olderThanTarget).toBe(older);
        const lines = quotaPlanLines(plan).join("\n");
        expect(lines.includes("values were older than their interval: one ")).toBe(older);
        expect(lines.includes("No measured value was older")).toBe(age !== null && !older);
        expect(lines.includes("It fits")).toBe(plan.fits);
      }
    },
  );
});

describe("the poll of active alarms in a plan", () => {
  const alarms = (pages: number, everyMs: number, listsPerMinute = 30) =>
    reportPlan(facts([], { alarms: { alarms: pages * 500, pages, everyMs, listsPerMinute } }));

  test("has a message only if the pages of the list do not fit between two polls", () => {
    expect(alarms(15, 30_000).alarms).toBeUndefined();
    const plan = alarms(20, 30_000);
    expect(plan.alarms).toBe(
      "10000 active alarms are 20 pages, and 30 lists a minute are allowed: expect a poll of the alarms every 60 s instead of every 30 s.",
    );
    expect(quotaPlanLines(plan).join("\n")).toContain(plan.alarms);
    expect(alarms(20, 60_000, 10).alarms).toMatch(/every 120 s|every 2 min/);
  });
});
