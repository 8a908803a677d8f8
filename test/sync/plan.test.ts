import { describe, expect, test } from "vitest";
import { msUntilNextDue, type ReadPlanRules } from "#src/engine/sync/plan/next-read-group.ts";
import { backOffInterval, computeQuotaOverload } from "#src/engine/sync/plan/overload.ts";
import { type Class, ELEVEN_CLASSES, FOUR_CLASSES, simulate } from "../bench/freshness/simulate.ts";
import { columnsOf, demandOf, type PlannedTag, planGroup } from "./planned-tags.ts";

const RULES: ReadPlanRules = { slotMs: 3_000, tagsPerRequest: 20, expectedReplyMs: 0, isSpareSlot: false };

function tag(id: string, ageMs: number | null, intervalMs: number, label: string | null = null): PlannedTag {
  return { id, intervalMs, lastMs: ageMs === null ? null : -ageMs, label };
}

const crowd = (count: number, ageMs: number, intervalMs: number, prefix = "x") =>
  Array.from({ length: count }, (_, i) => tag(`${prefix}${String(i).padStart(3, "0")}`, ageMs, intervalMs));

const searched = (id: string, ageMs: number, siteRequestedMs?: number, label = id): PlannedTag => ({
  ...{ ...tag(id, ageMs, 60_000, label), timing: "patient", siteRequestedMs },
});

const ONE_TAG = { ...RULES, tagsPerRequest: 1 };
const groupOf = (tags: readonly PlannedTag[], rules = RULES) => planGroup(tags, 0, rules).group;

describe("the choice of tags for the next read request", () => {
  test("starts with a tag that would exceed its interval, then adds the tags with the largest age relative to their interval", () => {
    const others = [...crowd(30, 600_000, 3_600_000, "slow"), ...crowd(30, 30_000, 60_000)];
    const { group } = planGroup([tag("urgent", 58_000, 60_000), ...others], 0, RULES);
    expect(group).toHaveLength(20);
    expect(group[0]).toBe("urgent");
    expect(group.slice(1).every((id) => id.startsWith("x"))).toBe(true);
  });

  test("checks each tag against its own interval, also when another tag is due in the same slot", () => {
    const [quick, slow] = [tag("quick", 0, 6_000), tag("slow", 54_000, 60_000)];
    expect(groupOf([quick, slow], ONE_TAG)).toEqual([]);
    expect(groupOf([quick, tag("quicker", 0, 6_000)], ONE_TAG)).toHaveLength(1);
  });

  test("reserves every slot for a tag that is due in every slot, also when only its reply time makes it due", () => {
    const slow = tag("slow", 51_000, 60_000);
    expect(groupOf([tag("each", 0, 3_000), tag("slow", 54_000, 60_000)], ONE_TAG)).toHaveLength(1);
    const second = tag("second", 0, 6_000);
    expect(groupOf([second, slow], ONE_TAG)).toEqual([]);
    expect(groupOf([second, slow], { ...ONE_TAG, expectedReplyMs: 3_000 })).toHaveLength(1);
  });

  test("prefers the overdue tag with the shorter interval, even if another tag is older", () => {
    const tags = [tag("old", 125_000, 120_000), tag("short", 60_000, 60_000)];
    expect(groupOf(tags, ONE_TAG)).toEqual(["short"]);
    expect(groupOf(tags)).toEqual(["short", "old"]);
  });

  test("fills the request with tags that are nearly due, or with the oldest tags in a spare slot", () => {
    const urgent = tag("urgent", 58_000, 60_000);
    const hourly = tag("hourly", 3_570_000, 3_600_000);
    const minutely = tag("minutely", 45_000, 60_000);
    const two = { ...RULES, tagsPerRequest: 2 };
    expect(groupOf([minutely, urgent, hourly], two)).toEqual(["urgent", "hourly"]);
    const quick = tag("quick", 6_000, 10_000);
    const old = tag("old", 3_240_000, 3_600_000);
    expect(groupOf([old, urgent, quick], two)).toEqual(["urgent", "quick"]);
    expect(groupOf([quick, urgent, hourly], two)).toEqual(["urgent", "hourly"]);
    expect(groupOf([old, urgent, quick], { ...two, isSpareSlot: true })).toEqual(["urgent", "old"]);
    const withHalf = (ageMs: number) => groupOf([tag("half", ageMs, 10_000), urgent, old], two);
    expect([withHalf(4_900), withHalf(5_000)]).toEqual(["old", "half"].map((expected) => ["urgent", expected]));
    expect(groupOf([old, urgent, tag("new", null, 10_000)], two)).toEqual(["urgent", "new"]);
  });

  test("leaves out tags of the class with the most overdue tags when not all overdue tags fit", () => {
    const tags = [...crowd(3, 9_000, 10_000, "a"), ...crowd(17, 12_000, 12_000, "b"), ...crowd(3, 15_000, 15_000, "c")];
    const { group } = planGroup(tags, 0, RULES);
    const taken = (prefix: string) => group.filter((id) => id.startsWith(prefix)).length;
    expect([taken("a"), taken("b"), taken("c")]).toEqual([3, 14, 3]);
  });

  test("leaves the slot to history when all tags can wait, instead of reading 20 tags of short intervals early", () => {
    expect(groupOf(crowd(20, 6_000, 10_000))).toHaveLength(0);
    expect(groupOf(crowd(21, 6_000, 10_000))).toHaveLength(20);
  });

  test("excludes a tag that is being requested, but reserves a slot for its next reading", () => {
    const underWay = crowd(20, 6_000, 6_000, "away").map((each) => ({ ...each, underWay: true }));
    expect(groupOf([...underWay, ...crowd(20, 54_000, 60_000)])).toEqual([]);
    const ordinary = crowd(21, 54_000, 60_000);
    expect(groupOf(ordinary)).toEqual([]);
    expect(groupOf([...underWay, ...ordinary])).toEqual(ordinary.slice(0, 20).map(({ id }) => id));
    const away = { ...tag("away", 6_000, 6_000), underWay: true };
    expect(groupOf([away, tag("next", 57_000, 60_000)], ONE_TAG)).toEqual([]);
  });

  test("prefers a tag whose early reading makes room in a later slot that would be full", () => {
    const quick = tag("quick", 3_000, 6_000);
    const others = crowd(3, 3_000, 15_000);
    expect(groupOf([quick, ...others], ONE_TAG)).toEqual(["x000"]);
  });

  test("alternates between sites with a search for a failing tag, so that a refused site delays no other site", () => {
    const refused = searched("refused", 900_000, -3_000);
    const expected = { group: ["waits"], isBisection: true };
    expect(planGroup([refused, searched("waits", 61_000, -60_000)], 0, RULES)).toEqual(expected);
    expect(groupOf([refused, searched("new", 61_000)])).toEqual(["new"]);
    expect(groupOf([refused, searched("early", 59_000, -59_000)])).toEqual(["refused"]);
    expect(groupOf([searched("due", 60_000)])).toEqual(["due"]);
    expect(groupOf([searched("nearly", 59_999)])).toEqual([]);
  });

  test("ranks a request that searches for a failing tag of several sites by the site that waits longest", () => {
    const two = [searched("late", 61_000, -1_000, "two sites"), searched("long ago", 61_000, -60_000, "two sites")];
    const other = searched("other", 61_000, -30_000);
    expect(groupOf([other, ...two])).toEqual(["late", "long ago"]);
    expect(groupOf([other, ...two.slice(0, 1)])).toEqual(["other"]);
  });

  test("requests a single tag in the last slot before it is overdue if no other tag needs that slot", () => {
    const slow = (ageMs: number) => tag("slow", ageMs, 60_000, "suspects 1");
    expect(groupOf([slow(56_000)])).toEqual([]);
    expect(groupOf([slow(58_000)])).toEqual(["slow"]);
    expect(groupOf([slow(58_000), tag("needs it", 59_000, 60_000)])).toEqual(["needs it"]);
  });

  test("takes never-read tags first, those with short intervals before those with long intervals", () => {
    const tags = [...crowd(15, 0, 60_000, "done"), tag("hourly", null, 3_600_000), tag("minutely", null, 60_000)];
    expect(groupOf(tags).slice(0, 2)).toEqual(["minutely", "hourly"]);
  });

  test("takes a tag with the timing `punctual` after half of its interval, and before overdue tags that are not older", () => {
    const punctual = (ageMs: number): PlannedTag => ({ ...tag("p", ageMs, 60_000, "doubt"), timing: "punctual" });
    expect(planGroup([punctual(30_000)], 0, RULES)).toEqual({ group: ["p"] });
    expect(groupOf([punctual(29_999)])).toEqual([]);
    const ordinary = crowd(5, 58_500, 60_000);
    expect(groupOf([punctual(58_500), ...ordinary])).toEqual(["p"]);
    expect(groupOf([punctual(58_499), ...ordinary])).toHaveLength(5);
    expect(groupOf([punctual(50_000), ...ordinary])).toHaveLength(5);
  });

  test("gives every other slot to tags that must be requested singly and are twice as old as their interval", () => {
    const starving = tag("s1", 120_000, 60_000, "slow");
    const inNeed = crowd(5, 58_500, 60_000);
    const nearly = tag("s1", 119_999, 60_000, "slow");
    expect(planGroup([nearly, ...inNeed], 0, RULES)).toEqual({ group: inNeed.map(({ id }) => id) });
    expect(planGroup([starving, ...inNeed], 0, RULES)).toEqual({ group: ["s1"], displacesDueTags: true });
    const after = { ...RULES, mayDisplace: false };
    expect(planGroup([starving, ...inNeed], 0, after)).toEqual({ group: inNeed.map(({ id }) => id) });
    expect(planGroup([starving, ...crowd(5, 10_000, 60_000)], 0, after)).toEqual({ group: ["s1"] });
  });
});

describe("tags with a fixed read time", () => {
  const fixed = (id: string, ageMs: number | null, intervalMs: number) => ({
    ...tag(id, ageMs, intervalMs),
    earliestAge: Number.POSITIVE_INFINITY,
  });
  const fixedCrowd = (count: number, ageMs: number, intervalMs: number, prefix = "x") =>
    crowd(count, ageMs, intervalMs, prefix).map((each) => ({ ...each, earliestAge: Number.POSITIVE_INFINITY }));

  test("are read with the tags of their own group when two groups are due in the same request slot", () => {
    const groups = [...fixedCrowd(20, 60_000, 60_000, "b"), ...fixedCrowd(20, 300_500, 300_000, "a")];
    expect(groupOf(groups).every((id) => id.startsWith("a"))).toBe(true);
  });

  test("are considered again when the last slot of their interval begins", () => {
    const until = (...tags: readonly PlannedTag[]) => msUntilNextDue(columnsOf(tags, 0), 0, RULES);
    expect(until(fixed("soon", 56_000, 60_000), fixed("late", 61_000, 60_000))).toBe(1_001);
    expect(until(fixed("later", 10_000, 60_000))).toBe(3_001);
    expect(until({ ...fixed("away", 56_000, 60_000), underWay: true })).toBe(3_001);
  });
});

describe("tags whose interval is lengthened because the quota is overloaded", () => {
  const stretched = (id: string, ageMs: number) => ({ ...tag(id, ageMs, 120_000), earliestAge: 0.5 });
  const chooseRead = (eager: boolean, ...tags: readonly PlannedTag[]) =>
    groupOf(tags, { ...RULES, isSpareSlot: eager });

  test("are read in spare requests once their configured interval has passed, the oldest first", () => {
    expect(chooseRead(true, stretched("early", 59_999))).toEqual([]);
    const oldestFirst = chooseRead(
      true,
      stretched("early", 59_999),
      stretched("ready", 60_000),
      stretched("old", 90_000),
    );
    expect(oldestFirst).toEqual(["old", "ready"]);
    expect(chooseRead(false, stretched("old", 90_000))).toEqual([]);
    expect(chooseRead(false, stretched("late", 118_000), stretched("early", 59_999))).toEqual(["late"]);
  });

  test("are considered for a spare request as soon as their configured interval has passed", () => {
    const untilMs = (eager: boolean) =>
      msUntilNextDue(columnsOf([stretched("soon", 59_000)], 0), 0, { ...RULES, isSpareSlot: eager });
    expect([untilMs(true), untilMs(false)]).toEqual([1_001, 3_001]);
  });
});

describe("the planner of live reads, simulated for hours", () => {
  test("reads no tag late at 89 % of the quota, and uses free requests to keep each age below 94 % of its interval", () => {
    expect(simulate(FOUR_CLASSES, { eager: true, hours: 2, warmUpHours: 0 }).late).toBe(0);
    const { worst, load } = simulate(FOUR_CLASSES, { eager: true, hours: 1, warmUpHours: 5 });
    expect(Math.max(...worst)).toBeLessThanOrEqual(load * 1.05);
  });

  test("needs at most 86 % of the slots for eleven classes with uneven intervals that need 76 % in theory", () => {
    const { late, used, fill, load } = simulate(ELEVEN_CLASSES, { eager: false, hours: 3, warmUpHours: 0 });
    expect(load).toBeCloseTo(0.76, 2);
    expect(late).toBe(0);
    expect(used).toBeLessThanOrEqual(0.86);
    expect(fill).toBeGreaterThan(0.99);
  });

  test.each([
    ["10, 12 and 15 s", { 15: 46, 10: 3, 12: 34 }],
    ["9 and 12 s next to minutes", { 90: 141, 300: 121, 9: 20, 12: 25 }],
  ])("reads no tag late with classes of short intervals that could collide: %s", (_mix, tagsBySeconds) => {
    const classes = Object.entries(tagsBySeconds).map(([seconds, tags]): Class => [tags, Number(seconds)]);
    const { late, load } = simulate(classes, { eager: true, hours: 1, warmUpHours: 1 });
    expect(load).toBeLessThan(0.95);
    expect(late).toBe(0);
  });
});

describe("target intervals that exceed the quota", () => {
  test("do not prevent the first reading of a tag although the other tags need every slot", () => {
    const lastMs = new Map<string, number>(Array.from({ length: 25 }, (_, n) => [`read ${n}`, n * 2_000]));
    const unread = Array.from({ length: 5 }, (_, n) => `unread ${n}`);
    const ids = [...lastMs.keys(), ...unread];
    for (let nowMs = 60_000; nowMs < 1_000_000; nowMs += 3_000) {
      const times = { intervalMs: 60_000, sinceMs: 60_000, label: null };
      const tags = ids.map((id) => ({ id, lastMs: lastMs.get(id) ?? null, ...times }));
      const { group } = planGroup(tags, nowMs, {
        slotMs: 3_000,
        tagsPerRequest: 1,
        expectedReplyMs: 500,
        isSpareSlot: false,
      });
      for (const id of group) lastMs.set(id, nowMs);
    }
    expect(unread.filter((id) => !lastMs.has(id))).toEqual([]);
  });

  test("are lengthened by one factor for all classes, less for important classes, and not for classes with firm: true", () => {
    const alike = computeQuotaOverload([demandOf("a", 400, 60), demandOf("b", 2_000, 300)], 3_000, 20);
    expect(alike.demand).toBeCloseTo(2);
    expect(alike.factors.get("a")).toBeCloseTo(alike.factors.get("b") ?? 0, 5);
    expect(alike.factors.get("a")).toBeGreaterThan(1.99);
    const important = [demandOf("firm", 200, 60, { firm: true }), demandOf("high", 400, 60, { importance: 4 })];
    const mixed = computeQuotaOverload([...important, demandOf("low", 2_000, 300)], 3_000, 20);
    expect(mixed.factors.get("firm")).toBe(1);
    const high = (mixed.factors.get("high") ?? 0) - 1;
    expect(((mixed.factors.get("low") ?? 0) - 1) / high).toBeCloseTo(4);
  });

  test("are lengthened until the demand is 5 % below the quota, so that read times do not change every minute", () => {
    const factorOf = (tags: number, ...before: readonly [string, number][]) =>
      computeQuotaOverload(
        [demandOf("a", tags, 60, { fresher: false })],
        3_000,
        20,
        0.97,
        0,
        new Map(before),
      ).factors.get("a");
    expect([factorOf(388), factorOf(388, ["a", 1])]).toEqual([1, 1]);
    expect([factorOf(389), factorOf(388, ["a", 1.2]), factorOf(369, ["a", 1.2])].every((each) => (each ?? 1) > 1)).toBe(
      true,
    );
    expect(factorOf(368, ["a", 1.2])).toBe(1);
  });

  test("are up to ten times longer for a tag that stays null or may make its requests fail", () => {
    expect([0, 2, 3, 4, 20].map((nulls) => backOffInterval(60_000, nulls, false) / 60_000)).toEqual([1, 1, 2, 4, 10]);
    expect(backOffInterval(60_000, 0, true)).toBe(600_000);
  });
});
