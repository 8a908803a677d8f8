import fc from "fast-check";
import { expect, it } from "vitest";
import { batches } from "#src/source/batches.ts";

it("groups keep the order, hold each id once and are full but the last", () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ maxLength: 2 }), { maxLength: 100 }),
      fc.integer({ min: 1, max: 25 }),
      (ids, size) => {
        const groups = batches(ids, size);
        expect(groups.flat()).toEqual([...new Set(ids)]);
        for (const [index, group] of groups.entries()) {
          if (index < groups.length - 1) expect(group).toHaveLength(size);
          else expect(group.length).toBeGreaterThan(0);
          expect(group.length).toBeLessThanOrEqual(size);
        }
      },
    ),
  );
});

it("no ids make no group, and 20 is the interface's limit", () => {
  expect(batches([])).toEqual([]);
  expect(batches(Array.from({ length: 41 }, (_, i) => String(i))).map((group) => group.length)).toEqual([
    20, 20, 1,
  ]);
});
