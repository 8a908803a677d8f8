import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Cell, ColumnType, Table } from "../../shared/lake/table-model.ts";
import { compareUtf8 } from "../object-store.ts";
import type { ColumnBounds } from "../parquet-file.ts";

type BoundValue = string | number;

/** Column statistics of a file, by which readers skip files. Source: PROTOCOL.md, "Per-file Statistics". */
export interface FileStatistics {
  readonly minValues: Readonly<Record<string, BoundValue>>;
  readonly maxValues: Readonly<Record<string, BoundValue>>;
  readonly nullCount: Readonly<Record<string, number>>;
}

/** Number of leading columns with statistics, as Spark's default (`delta.dataSkippingNumIndexedCols`). */
const INDEXED_COLUMNS = 32;
/** Longest text bound in characters, as in Spark. */
const MAX_BOUND_LENGTH = 32;
const CELLS_PER_CHUNK = 20_000;
/** Highest character: a truncated text that ends with it sorts after all texts with the same beginning. */
const HIGHEST_UNICODE_CHARACTER = "\u{10FFFF}";
const SURROGATE = /[\ud800-\udfff]/;

export async function computeStatistics(table: Table, rows: number, cell: (index: number, row: number) => Cell) {
  const columnBounds: ColumnBounds[] = [];
  for (const [index, { type }] of table.columns.slice(0, INDEXED_COLUMNS).entries()) {
    columnBounds.push(await computeBounds(type, rows, (row) => cell(index, row)));
  }
  return buildStatistics(table, columnBounds);
}

export function buildStatistics(table: Table, bounds: readonly ColumnBounds[]): FileStatistics {
  const minValues: Record<string, BoundValue> = {};
  const maxValues: Record<string, BoundValue> = {};
  const nullCount: Record<string, number> = {};
  for (const [index, { name, type }] of table.columns.slice(0, INDEXED_COLUMNS).entries()) {
    const { max = null, min = null, nulls = 0 } = bounds[index] ?? {};
    nullCount[name] = nulls;
    if (min === null || max === null || typeof min === "boolean" || typeof max === "boolean") continue;
    minValues[name] = encodeBound(type, min, truncateLowerBound);
    maxValues[name] = encodeBound(type, max, truncateUpperBound);
  }
  return { minValues, maxValues, nullCount };
}

/** Counts nulls and finds minimum and maximum of a column. Booleans get no bounds, because none would skip a file. */
async function computeBounds(type: ColumnType, rows: number, cell: (row: number) => Cell): Promise<ColumnBounds> {
  let nulls = 0;
  let min: BoundValue | null = null;
  let max: BoundValue | null = null;
  // A column with NaN or infinity gets no bounds: JSON has neither, and readers disagree about the order.
  let isOrdered = type !== "boolean";
  for (let row = 0; row < rows; row += 1) {
    if (row % CELLS_PER_CHUNK === CELLS_PER_CHUNK - 1) await yieldToEventLoop();
    const raw = cell(row);
    // A lone surrogate becomes U+FFFD in the file, and is not valid JSON.
    const value = typeof raw === "string" ? raw.toWellFormed() : raw;
    if (value === null) nulls += 1;
    else if (typeof value === "boolean" || (typeof value === "number" && !Number.isFinite(value))) {
      isOrdered = false;
    } else if (value !== min && value !== max) {
      if (min === null || isBoundLess(value, min)) min = value;
      if (max === null || isBoundLess(max, value)) max = value;
    }
  }
  return isOrdered ? { nulls, min, max } : { nulls, min: null, max: null };
}

function encodeBound(type: ColumnType, bound: BoundValue, truncate: (text: string) => string): BoundValue {
  if (typeof bound === "string") return truncate(bound);
  return type === "time" ? isoUtc(Math.floor(bound)) : bound;
}

/** Compares texts in UTF-8 order; UTF-16 order differs only for surrogates. */
function isBoundLess(a: BoundValue, b: BoundValue): boolean {
  if (typeof a !== "string" || typeof b !== "string" || !(SURROGATE.test(a) || SURROGATE.test(b))) return a < b;
  return compareUtf8(a, b) < 0;
}

function truncateLowerBound(text: string): string {
  return text.length <= MAX_BOUND_LENGTH ? text : [...text].slice(0, MAX_BOUND_LENGTH).join("");
}

function truncateUpperBound(text: string): string {
  if (text.length <= MAX_BOUND_LENGTH) return text;
  const characters = [...text];
  let length = MAX_BOUND_LENGTH;
  while (characters[length] === HIGHEST_UNICODE_CHARACTER) length += 1;
  return characters.length <= length ? text : `${characters.slice(0, length).join("")}${HIGHEST_UNICODE_CHARACTER}`;
}
