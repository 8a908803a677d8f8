import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Cell, ColumnType, Table } from "../../shared/lake/table.ts";

type Bound = string | number;

/**
 * Statistics of a data file, by which readers skip files. Source: PROTOCOL.md, "Per-file Statistics": "String
 * columns are cut off at a fixed prefix length. Timestamp columns are truncated down to milliseconds."
 */
export interface Statistics {
  readonly minValues: Readonly<Record<string, Bound>>;
  readonly maxValues: Readonly<Record<string, Bound>>;
  readonly nullCount: Readonly<Record<string, number>>;
}

/** Number of leading columns with statistics, Spark's default (`delta.dataSkippingNumIndexedCols`). */
const COLUMNS = 32;
/** Longest text bound, in characters, as in Spark. */
const PREFIX = 32;
/** Cells examined without a yield: 5 ms of work. */
const AT_ONCE = 20_000;
/** Highest character: a truncated text that ends with it sorts after all texts with the same beginning. */
const LAST = "\u{10FFFF}";

/**
 * Computes a file's statistics; `cell` returns a cell by column index and row. A column of nulls only has no
 * bounds, nor has a boolean column, whose bounds would skip no file.
 */
export async function statisticsOf(
  table: Table,
  rows: number,
  cell: (index: number, row: number) => Cell,
): Promise<Statistics> {
  const minValues: Record<string, Bound> = {};
  const maxValues: Record<string, Bound> = {};
  const nullCount: Record<string, number> = {};
  for (const [index, { name, type }] of table.columns.slice(0, COLUMNS).entries()) {
    const { min, max, nulls } = await boundsOf(type, rows, (row) => cell(index, row));
    nullCount[name] = nulls;
    if (min !== null) minValues[name] = min;
    if (max !== null) maxValues[name] = max;
  }
  return { minValues, maxValues, nullCount };
}

/** Builds the statistics from known column bounds, in the table's order. */
export function statisticsFrom(
  table: Table,
  bounds: readonly { readonly min: Cell; readonly max: Cell; readonly nulls: number }[],
): Statistics {
  const minValues: Record<string, Bound> = {};
  const maxValues: Record<string, Bound> = {};
  const nullCount: Record<string, number> = {};
  for (const [index, { name, type }] of table.columns.slice(0, COLUMNS).entries()) {
    const { max = null, min = null, nulls = 0 } = bounds[index] ?? {};
    nullCount[name] = nulls;
    if (min === null || max === null || typeof min === "boolean" || typeof max === "boolean") continue;
    minValues[name] = boundValue(type, min, cutBelow);
    maxValues[name] = boundValue(type, max, cutAbove);
  }
  return { minValues, maxValues, nullCount };
}

async function boundsOf(type: ColumnType, rows: number, cell: (row: number) => Cell) {
  let nulls = 0;
  let min: Bound | null = null;
  let max: Bound | null = null;
  // JSON has no NaN or infinity, and readers disagree about their order.
  let isOrdered = type !== "boolean";
  for (let row = 0; row < rows; row += 1) {
    if (row % AT_ONCE === AT_ONCE - 1) await yieldToEventLoop();
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
  if (!isOrdered || min === null || max === null) return { nulls, min: null, max: null };
  return { nulls, min: boundValue(type, min, cutBelow), max: boundValue(type, max, cutAbove) };
}

function boundValue(type: ColumnType, bound: Bound, cut: (text: string) => string): Bound {
  if (typeof bound === "string") return cut(bound);
  return type === "time" ? isoUtc(Math.floor(bound)) : bound;
}

function comesBefore(a: Bound, b: Bound): boolean {
  return typeof a === "string" && typeof b === "string" ? textComesBefore(a, b) : a < b;
}

/**
 * Compares by code points, as UTF-8 bytes sort; JavaScript compares UTF-16 units, which differs above U+D800.
 */
function textComesBefore(a: string, b: string): boolean {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at += 1) {
    const one = a.charCodeAt(at);
    const other = b.charCodeAt(at);
    if (one === other) continue;
    if (one < 0xd800 || other < 0xd800) return one < other;
    return isSurrogate(one) === isSurrogate(other) ? one < other : isSurrogate(other);
  }
  return a.length < b.length;
}

function isSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdfff;
}

function cutBelow(text: string): string {
  return text.length <= PREFIX ? text : [...text].slice(0, PREFIX).join("");
}

/** Truncates an upper bound and appends the highest character. */
function cutAbove(text: string): string {
  if (text.length <= PREFIX) return text;
  const characters = [...text];
  let kept = PREFIX;
  while (characters[kept] === LAST) kept += 1;
  return characters.length <= kept ? text : `${characters.slice(0, kept).join("")}${LAST}`;
}
