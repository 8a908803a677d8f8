import { afterEach, expect, test, vi } from "vitest";
import { concatenateParquet, encodeParquet, readParquetRows } from "#connectors/parquet/parquet-file.ts";
import { readTableRows } from "#connectors/parquet/partition-files.ts";
import { createColumnarRows, createRowSorter, sortDistinctRows } from "#connectors/parquet/rows-to-columns.ts";
import { TAG_VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { never } from "../context.ts";
import { countLoopTicks } from "./engine.ts";

afterEach(() => void vi.restoreAllMocks());

const ROWS = 20_000;

function filled(rows: number) {
  const columns = createColumnarRows(TAG_VALUE_TABLE);
  for (let n = 0; n < rows; n++) {
    columns.add(
      TAG_VALUE_TABLE.columns.map(({ isNullable, name, type }) => {
        if (isNullable) return null;
        return type === "text" ? `${name} ${n % 7}` : n;
      }),
    );
  }
  return columns;
}

let nowMs = performance.now();

async function ticksDuring(work: () => Promise<unknown>): Promise<number> {
  vi.spyOn(performance, "now").mockImplementation(() => {
    nowMs += 10;
    return nowMs;
  });
  const ticks = await countLoopTicks(work);
  vi.restoreAllMocks();
  return ticks;
}

const allRows = (count: number) => Uint32Array.from({ length: count }, (_, row) => row);

test("reading, sorting and writing files yields to the event loop", async () => {
  const columns = filled(ROWS);
  const groups = ROWS / 10_000;
  const parts = groups * TAG_VALUE_TABLE.columns.length;
  let bytes: Uint8Array = new Uint8Array();
  const encode = async () => {
    bytes = await encodeParquet(columns, allRows(ROWS));
  };
  expect(await ticksDuring(encode)).toBeGreaterThanOrEqual(parts);
  const decodingTicks = await ticksDuring(() => readParquetRows(bytes, createColumnarRows(TAG_VALUE_TABLE), "x"));
  expect(decodingTicks).toBeGreaterThanOrEqual(parts);
  const read = () => readTableRows(TAG_VALUE_TABLE, ["x"], { location: "lake", readFile: async () => bytes }, never());
  expect(await ticksDuring(read), "with copied rows").toBeGreaterThanOrEqual(decodingTicks + ROWS / 1_000 - 1);
  expect(await ticksDuring(() => sortDistinctRows(columns))).toBeGreaterThanOrEqual(ROWS / 1_000);
  const descending = allRows(ROWS).toReversed();
  expect(await ticksDuring(() => createRowSorter(columns)([...descending]))).toBeGreaterThanOrEqual(ROWS / 1_000);
  const files = Array.from({ length: 10 }, () => ({ bytes, name: "x" }));
  expect(await ticksDuring(() => concatenateParquet(TAG_VALUE_TABLE, files))).toBeGreaterThanOrEqual(10 * groups);
});

test("a file joined from several files has the rows and statistics of all its sources", async () => {
  const [one, two] = [filled(3), filled(5)];
  const files = await Promise.all(
    [one, two].map(async (columns) => ({ bytes: await encodeParquet(columns, allRows(columns.length)), name: "x" })),
  );
  const joined = await concatenateParquet(TAG_VALUE_TABLE, files);
  expect(joined?.rows).toBe(8);
  const read = createColumnarRows(TAG_VALUE_TABLE);
  await readParquetRows(joined?.bytes ?? new Uint8Array(), read, "x");
  expect(read.length).toBe(8);
  const index = TAG_VALUE_TABLE.columns.findIndex(({ name }) => name === "time");
  expect([...Array(8).keys()].map((row) => read.getCell(index, row))).toEqual([0, 1, 2, 0, 1, 2, 3, 4]);
  expect(joined?.bounds[index]).toEqual({ min: 0, max: 4, nulls: 0 });
  const value = TAG_VALUE_TABLE.columns.findIndex(({ name }) => name === "value_number");
  expect(joined?.bounds[value]).toEqual({ min: null, max: null, nulls: 8 });
  const other = { ...TAG_VALUE_TABLE, columns: TAG_VALUE_TABLE.columns.slice(1) };
  expect(await concatenateParquet(other, files)).toBeNull();
});
