import { describe, expect, test } from "vitest";
import { assignGroupPhases, type CadenceClass, plannedReadMs } from "#src/engine/sync/plan/cadence.ts";

const SLOT_MS = 3_000;
const SIZE = 20;

const cadenceClass = (name: string, seconds: number, tags: number): CadenceClass => ({
  ...{ name, intervalMs: seconds * 1_000, tags },
});
const slotsOf = (offsets: readonly number[] | undefined) => (offsets ?? []).map((ms) => Math.floor(ms / SLOT_MS));

describe("the read times of groups of 20 tags within the interval of their class", () => {
  test("are in separate request slots, and in the first or last slot of the interval only if all others are in use", () => {
    for (const groups of [1, 5, 17]) {
      const slots = slotsOf(assignGroupPhases([cadenceClass("a", 60, groups * SIZE)], SLOT_MS, SIZE).get("a"));
      expect(new Set(slots).size).toBe(groups);
      for (const slot of slots) expect(slot > 0 && slot < 19, `${slot}`).toBe(true);
    }
    const all = slotsOf(assignGroupPhases([cadenceClass("a", 60, 20 * SIZE)], SLOT_MS, SIZE).get("a"));
    expect(new Set(all).size).toBe(20);
  });

  test("are spread evenly over the interval", () => {
    for (const groups of [4, 9]) {
      const slots = slotsOf(assignGroupPhases([cadenceClass("a", 300, groups * SIZE)], SLOT_MS, SIZE).get("a"));
      const sorted = slots.toSorted((a, b) => a - b);
      const gaps = sorted.map((slot, n) => (sorted[(n + 1) % groups] ?? 0) - slot + (n === groups - 1 ? 100 : 0));
      expect(Math.max(...gaps)).toBeLessThanOrEqual(200 / groups);
    }
  });

  test("stay the same when tags are added to the class", () => {
    const before = assignGroupPhases([cadenceClass("a", 300, 205)], SLOT_MS, SIZE).get("a") ?? [];
    const after = assignGroupPhases([cadenceClass("a", 300, 265)], SLOT_MS, SIZE).get("a") ?? [];
    expect(after.slice(0, 10)).toEqual(before.slice(0, 10));
    expect(after.at(-1)).toBe(before.at(-1));
  });

  test("avoid the slots of other classes whose interval divides the interval of the class", () => {
    const classes = [cadenceClass("a", 60, 200), cadenceClass("b", 300, 600), cadenceClass("c", 900, 600)];
    const phases = assignGroupPhases(classes, SLOT_MS, SIZE);
    const slotsOfA = new Set(slotsOf(phases.get("a")));
    const slotsOfB = new Set(slotsOf(phases.get("b")));
    for (const slot of slotsOfB) expect(slotsOfA.has(slot % 20)).toBe(false);
    for (const slot of slotsOf(phases.get("c")))
      expect(slotsOfA.has(slot % 20) || slotsOfB.has(slot % 100)).toBe(false);
  });

  test("are equal for incomplete groups that fit into one request and whose intervals (30 s and 60 s) coincide", () => {
    const phasesOf = (...classes: readonly CadenceClass[]) => {
      const phases = assignGroupPhases(classes, SLOT_MS, SIZE);
      return classes.map(({ name }) => phases.get(name)?.at(-1));
    };
    const [half, one] = phasesOf(cadenceClass("half", 30, 28), cadenceClass("one", 60, 52));
    expect(half).toBe(one);
    const [short, tooMany] = phasesOf(cadenceClass("half", 30, 28), cadenceClass("one", 60, 53));
    expect(short).not.toBe((tooMany ?? 0) % 30_000);
    const [thirty, odd] = phasesOf(cadenceClass("thirty", 30, 8), cadenceClass("odd", 45, 8));
    expect(thirty).not.toBe(odd);
  });
});

describe("the nominal time of a reading", () => {
  test.each([
    [15_400, -14_000],
    [15_500, 16_000],
    [16_000, 16_000],
    [40_000, 16_000],
    [45_500, 46_000],
  ])("is 16 s plus a multiple of 30 s: for a reading at %d ms it is %d ms", (readMs, nominalMs) => {
    expect(plannedReadMs(readMs, 16_000, 30_000, 334)).toBe(nominalMs);
  });

  test("is at most half an interval after the reading", () => {
    expect(plannedReadMs(1_400, 3_000, 3_000, SLOT_MS)).toBe(0);
    expect(plannedReadMs(1_600, 3_000, 3_000, SLOT_MS)).toBe(3_000);
  });
});
