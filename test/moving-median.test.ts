import fc from "fast-check";
import { expect, test } from "vitest";
import { createMovingMedian } from "#src/core/runtime/moving-median.ts";

test("createMovingMedian returns the median of the last values for any input, also after a reset", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 8 }),
      fc.array(fc.oneof(fc.integer({ min: -3, max: 3 }), fc.constant(null)), { maxLength: 60 }),
      (remembered, steps) => {
        const median = createMovingMedian(remembered);
        let all: number[] = [];
        for (const step of steps) {
          if (step === null) {
            median.clear();
            all = [];
          } else {
            median.add(step);
            all.push(step);
          }
          const lastSorted = all.slice(-remembered).toSorted((a, b) => a - b);
          expect(median.count()).toBe(lastSorted.length);
          expect(median.median()).toBe(lastSorted[Math.floor(lastSorted.length / 2)] ?? null);
        }
      },
    ),
  );
});
