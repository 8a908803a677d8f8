import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Cell, ColumnType, Table } from "../../shared/lake/table.ts";
import { compareUtf8 } from "../object-store.ts";
import type { Bounds } from "../parquet-file.ts";

type Bound = string | number;

/** Statistics by which readers skip files. Source: PROTOCOL.md, "Per-file Statistics". */
export interface Statistics {
  readonly minValues: Readonly<Record<string, Bound>>;
  readonly maxValues: Readonly<Record<string, Bound>>;
  readonly nullCount: Readonly<Record<string, number>>;
}

/** Spark's default number of leading columns with statistics (`delta.dataSkippingNumIndexedCols`). */
const INDEXED_COLUMNS = 32;
/** Longest text bound in characters, as in Spark. */
const MAX_TEXT_LENGTH = 32;
/** Cells between two yields: 5 ms of work. */
const CELLS_PER_CHUNK = 20_000;
/** Highest character: a truncated text that ends with it sorts after all texts with the same beginning. */
const HIGHEST_CHARACTER = "\u{10FFFF}";
const SURROGATE = /[\ud800-\udfff]/;

export async function statisticsOf(
  table: Table,
  rows: number,
  cell: (index: number, row: number) => Cell,
): Promise<Statistics> {
  const bounds: Bounds[] = [];
  for (const [index, { type }] of table.columns.slice(0, INDEXED_COLUMNS).entries()) {
    bounds.push(await boundsOf(type, rows, (row) => cell(index, row)));
  }
  return statisticsFrom(table, bounds);
}

/** Columns without bounds have only a null count. */
export function statisticsFrom(table: Table, bounds: readonly Bounds[]): Statistics {
  const minValues: Record<string, Bound> = {};
  const maxValues: Record<string, Bound> = {};
  const nullCount: Record<string, number> = {};
  for (const [index, { name, type }] of table.columns.slice(0, INDEXED_COLUMNS).entries()) {
    const { max = null, min = null, nulls = 0 } = bounds[index] ?? {};
    nullCount[name] = nulls;
    if (min === null || max === null || typeof min === "boolean" || typeof max === "boolean") continue;
    minValues[name] = boundValue(type, min, truncateLower);
    maxValues[name] = boundValue(type, max, truncateUpper);
  }
  return { minValues, maxValues, nullCount };
}

/** Booleans have no bounds, because they would skip no file. */
async function boundsOf(type: ColumnType, rows: number, cell: (row: number) => Cell): Promise<Bounds> {
  let nulls = 0;
  let min: Bound | null = null;
  let max: Bound | null = null;
  // JSON has no NaN or infinity, and readers disagree about their order.
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
      if (min === null || comesBefore(value, min)) min = value;
      if (max === null || comesBefore(max, value)) max = value;
    }
  }
  return isOrdered ? { nulls, min, max } : { nulls, min: null, max: null };
}

function boundValue(type: ColumnType, bound: Bound, cut: (text: string) => string): Bound {
  if (typeof bound === "string") return cut(bound);
  return type === "time" ? isoUtc(Math.floor(bound)) : bound;
}

/** Compares texts as UTF-8 sorts them; UTF-16 units sort differently only for surrogates. */
function comesBefore(a: Bound, b: Bound): boolean {
  if (typeof a !== "string" || typeof b !== "string" || !(SURROGATE.test(a) || SURROGATE.test(b))) return a < b;
  return compareUtf8(a, b) < 0;
}

function truncateLower(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : [...text].slice(0, MAX_TEXT_LENGTH).join("");
}

function truncateUpper(text: string): string {
  if (text.length <= MAX_TEXT_LENGTH) return text;
  const characters = [...text];
  let length = MAX_TEXT_LENGTH;
  while (characters[length] === HIGHEST_CHARACTER) length += 1;
  return characters.length <= length ? text : `${characters.slice(0, length).join("")}${HIGHEST_CHARACTER}`;
}
