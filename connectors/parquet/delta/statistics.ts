import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Cell, ColumnType, LakeTable } from "../../shared/lake/table-model.ts";
import { compareInUtf8Order } from "../object-store.ts";
import type { ColumnBounds } from "../parquet-file.ts";

type ColumnBound = string | number;

/** Column statistics of a file, by which readers skip files. Source: PROTOCOL.md, "Per-file Statistics". */
export type DeltaFileStatistics = ReturnType<typeof buildFileStatistics>;

/** Number of leading columns with statistics, as Spark's default (`delta.dataSkippingNumIndexedCols`). */
const MAX_COLUMNS_WITH_STATISTICS = 32;
/** Longest text bound in characters, as in Spark. */
const MAX_COLUMN_BOUND_LENGTH = 32;
const CELLS_BETWEEN_YIELDS = 20_000;
/** Highest character: a truncated text that ends with it sorts after all texts with the same beginning. */
const HIGHEST_UNICODE_CHARACTER = "\u{10FFFF}";
const SURROGATE = /[\ud800-\udfff]/;

export async function computeFileStatistics(
  table: LakeTable,
  rowCount: number,
  getCell: (index: number, row: number) => Cell,
) {
  const columnBounds: ColumnBounds[] = [];
  for (const [index, { type }] of table.columns.slice(0, MAX_COLUMNS_WITH_STATISTICS).entries())
    columnBounds.push(await computeColumnBounds(type, rowCount, (row) => getCell(index, row)));
  return buildFileStatistics(table, columnBounds);
}

export function buildFileStatistics(table: LakeTable, bounds: readonly ColumnBounds[]) {
  const minValues: Record<string, ColumnBound> = {};
  const maxValues: Record<string, ColumnBound> = {};
  const nullCount: Record<string, number> = {};
  for (const [index, { name, type }] of table.columns.slice(0, MAX_COLUMNS_WITH_STATISTICS).entries()) {
    const { max = null, min = null, nulls = 0 } = bounds[index] ?? {};
    nullCount[name] = nulls;
    if (min === null || max === null || typeof min === "boolean" || typeof max === "boolean") continue;
    minValues[name] = encodeColumnBound(type, min, truncateLowerBound);
    maxValues[name] = encodeColumnBound(type, max, truncateUpperBound);
  }
  return { minValues, maxValues, nullCount };
}

/** Counts nulls and finds minimum and maximum of a column. Booleans get no bounds, because none would skip a file. */
async function computeColumnBounds(
  type: ColumnType,
  rowCount: number,
  getCell: (row: number) => Cell,
): Promise<ColumnBounds> {
  let nulls = 0;
  let min: ColumnBound | null = null;
  let max: ColumnBound | null = null;
  // A column with NaN or infinity gets no bounds: JSON has neither, and readers disagree about the order.
  let canHaveBounds = type !== "boolean";
  for (let row = 0; row < rowCount; row += 1) {
    if (row % CELLS_BETWEEN_YIELDS === CELLS_BETWEEN_YIELDS - 1) await yieldToEventLoop();
    const rawCell = getCell(row);
    // A lone surrogate becomes U+FFFD in the file, and is not valid JSON.
    const value = typeof rawCell === "string" ? rawCell.toWellFormed() : rawCell;
    if (value === null) nulls += 1;
    else if (typeof value === "boolean" || (typeof value === "number" && !Number.isFinite(value))) {
      canHaveBounds = false;
    } else if (value !== min && value !== max) {
      if (min === null || isColumnBoundLess(value, min)) min = value;
      if (max === null || isColumnBoundLess(max, value)) max = value;
    }
  }
  return canHaveBounds ? { nulls, min, max } : { nulls, min: null, max: null };
}

function encodeColumnBound(type: ColumnType, bound: ColumnBound, truncate: (text: string) => string): ColumnBound {
  if (typeof bound === "string") return truncate(bound);
  return type === "time" ? isoUtc(Math.floor(bound)) : bound;
}

/** Compares texts in UTF-8 order; UTF-16 order differs only for surrogates. */
function isColumnBoundLess(a: ColumnBound, b: ColumnBound): boolean {
  if (typeof a !== "string" || typeof b !== "string" || !(SURROGATE.test(a) || SURROGATE.test(b))) return a < b;
  return compareInUtf8Order(a, b) < 0;
}

const truncateLowerBound = (text: string): string =>
  text.length <= MAX_COLUMN_BOUND_LENGTH ? text : [...text].slice(0, MAX_COLUMN_BOUND_LENGTH).join("");

function truncateUpperBound(text: string): string {
  if (text.length <= MAX_COLUMN_BOUND_LENGTH) return text;
  const characters = [...text];
  let length = MAX_COLUMN_BOUND_LENGTH;
  while (characters[length] === HIGHEST_UNICODE_CHARACTER) length += 1;
  return characters.length <= length ? text : `${characters.slice(0, length).join("")}${HIGHEST_UNICODE_CHARACTER}`;
}
