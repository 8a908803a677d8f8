import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AllowedTag } from "#src/engine/commands/config.ts";
import { checkDispatch, differsByMoreThan, isWithinLimits } from "#src/engine/commands/gate.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");

function entry(limits: { readonly min: number; readonly max: number; readonly max_step?: number }) {
  return AllowedTag.parse({ site_id: 1, tag_id: "1", type: "number", ...limits });
}

/** Adjacent double above or below a number. */
function next(value: number, direction: 1 | -1): number {
  if (value === 0) return direction * Number.MIN_VALUE;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const towards = value > 0 === direction > 0 ? 1n : -1n;
  view.setBigInt64(0, view.getBigInt64(0) + towards);
  return view.getFloat64(0);
}

function step(present: number, value: number, max_step: number): string | null {
  const refusing = checkDispatch({
    value,
    expect: null,
    allowedTag: entry({ min: -1e9, max: 1e9, max_step }),
    currentReading: { value: present, quality: "good", time: new Date(NOW).toISOString() },
    forMs: null,
    pastWrites: { writeTimesMs: [], writesLastHour: 0 },
    maxPerHour: 100,
    gateways: [],
    timeZone: "Europe/Oslo",
    nowMs: NOW,
  });
  return refusing?.reason ?? null;
}

describe("the allowed range of a value", () => {
  test.each([
    [15, 25],
    [0, 1],
    [-40, 0],
    [0.1, 0.3],
    [-1e-300, 1e300],
  ])("accepts its bounds %d and %d and rejects the next number outside", (min, max) => {
    const limits = entry({ min, max });
    for (const inside of [min, max, next(min, 1), next(max, -1)]) expect(isWithinLimits(inside, limits)).toBe(true);
    for (const outside of [next(min, -1), next(max, 1), -Infinity, Infinity, Number.NaN])
      expect(isWithinLimits(outside, limits), `${outside}`).toBe(false);
  });
});

describe("the allowed step of a value (max_step)", () => {
  test.each([
    [20, 3],
    [0, 0.5],
    [-7, 2.25],
    [1024, 1],
  ])("from %d: accepts a step of %d up or down and rejects the next larger step", (present, size) => {
    for (const direction of [1, -1] as const) {
      const limit = present + direction * size;
      const outwards = direction;
      const inwards = direction === 1 ? -1 : 1;
      expect(step(present, limit, size)).toBeNull();
      expect(step(present, next(limit, inwards), size)).toBeNull();
      expect(step(present, limit + direction * 1e-9, size)).toBe("step-too-large");
      expect(step(present, next(limit, outwards), size)).toBe("step-too-large");
    }
  });
});

describe("the allowed step between decimal fractions", () => {
  test.each([
    [20.1, 20.3, 0.2],
    [0.6, 1.1, 0.5],
    [18.1, 15.1, 3],
    [-0.1, 0.2, 0.3],
    [1e-7, 3e-7, 2e-7],
    [1e21, 1.5e21, 5e20],
  ])(
    "accepts the change from %d to %d with max_step %d, and rejects the next larger number",
    (present, value, size) => {
      expect(step(present, value, size)).toBeNull();
      expect(step(present, next(value, value > present ? 1 : -1), size)).toBe("step-too-large");
    },
  );

  test("is computed without rounding errors, for random decimals", () => {
    const whole = fc.integer({ min: -1_000_000, max: 1_000_000 });
    fc.assert(
      fc.property(whole, whole, fc.nat(2_000_000), fc.nat(6), (present, value, size, places) => {
        const moved = (number: number) => number / 10 ** places;
        const expected = Math.abs(value - present) > size;
        expect(differsByMoreThan(moved(present), moved(value), moved(size))).toBe(expected);
        const exactly = Math.abs(value - present);
        expect(differsByMoreThan(moved(present), moved(value), moved(exactly))).toBe(false);
      }),
    );
  });
});
