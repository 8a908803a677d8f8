import fc from "fast-check";
import { expect, test } from "vitest";
import { computeFileStatistics } from "#connectors/parquet/delta/statistics.ts";
import type { Cell, ColumnType, LakeTable } from "#connectors/shared/lake/table-model.ts";
import { replay, seed } from "../../../seed.ts";
import { countLoopTicks } from "../engine.ts";

const TOP = "\u{10FFFF}";

const tableOf = (...types: readonly ColumnType[]): LakeTable => ({
  name: "t",
  about: "",
  rowPolicy: "append",
  columns: types.map((type, n) => ({ name: `c${n}`, type, isNullable: true, about: "" })),
  key: [],
  time: "c0",
  sortedBy: [],
});

async function boundsOf(type: ColumnType, cells: readonly Cell[]) {
  const { minValues, maxValues, nullCount } = await computeFileStatistics(
    tableOf(type),
    cells.length,
    (_, row) => cells[row] ?? null,
  );
  return [minValues.c0, maxValues.c0, nullCount.c0];
}

const a40 = "a".repeat(40);
const a32 = "a".repeat(32);

test.each<[string, ColumnType, readonly Cell[], readonly unknown[]]>([
  ["numbers", "number", [2, null, -1.5, 2], [-1.5, 2, 1]],
  ["a column with only nulls", "number", [null, null], [undefined, undefined, 2]],
  ["an unpaired surrogate, which is stored as U+FFFD", "text", ["\ud800", "\ue000"], ["\ue000", "\ufffd", 0]],
  ["no rows", "text", [], [undefined, undefined, 0]],
  ["numbers with NaN", "number", [1, Number.NaN, 2], [undefined, undefined, 0]],
  ["numbers with infinity", "number", [1, Number.POSITIVE_INFINITY], [undefined, undefined, 0]],
  ["booleans", "boolean", [true, false, null], [undefined, undefined, 1]],
  ["whole numbers", "integer", [3, 1, 2], [1, 3, 0]],
  [
    "times, without fractions of a millisecond",
    "time",
    [1_500.75, 0],
    ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.500Z", 0],
  ],
  ["texts", "text", ["b", "a", "ø"], ["a", "ø", 0]],
  ["long texts, with a shortened minimum, and a shortened and raised maximum", "text", [a40], [a32, `${a32}${TOP}`, 0]],
  ["a long text of the highest Unicode character", "text", [TOP.repeat(40)], [TOP.repeat(32), TOP.repeat(40), 0]],
  ["texts with characters above U+FFFF, which sort last", "text", ["\u{1F600}", "\uFF5E"], ["\uFF5E", "\u{1F600}", 0]],
])("column statistics contain the null count and any minimum and maximum of %s", async (_, type, cells, wanted) => {
  expect(await boundsOf(type, cells)).toEqual(wanted);
});

test("computing statistics of 100,000 rows yields to the event loop", async () => {
  const compute = () => computeFileStatistics(tableOf("number"), 100_000, (_, row) => row);
  expect(await countLoopTicks(compute)).toBeGreaterThan(1);
});

test("only the first 32 columns have statistics, as in Spark", async () => {
  const { nullCount } = await computeFileStatistics(tableOf(...Array<ColumnType>(40).fill("text")), 1, () => "x");
  expect(Object.keys(nullCount)).toHaveLength(32);
});

test("all values are between the minimum and maximum of the statistics, in the order of their UTF-8 bytes", async () => {
  const word = fc.string({
    unit: fc.constantFrom("a", "b", "~", "\u007F", "é", "\uD7FF", "\uE000", "\uFFFD", "\u{10000}", TOP),
    maxLength: 40,
  });
  await fc.assert(
    fc.asyncProperty(fc.array(word, { minLength: 1, maxLength: 8 }), async (words) => {
      const [min, max] = (await boundsOf("text", words)).map((bound) => Buffer.from(String(bound)));
      if (min === undefined || max === undefined) throw new Error("no bounds");
      for (const bytes of words.map((text) => Buffer.from(text))) {
        expect(Buffer.compare(min, bytes), replay).toBeLessThanOrEqual(0);
        expect(Buffer.compare(bytes, max), replay).toBeLessThanOrEqual(0);
      }
      if (words.every((text) => text.length <= 32)) {
        expect(words).toContain(min.toString());
        expect(words).toContain(max.toString());
      }
    }),
    { seed, numRuns: 500 },
  );
});
