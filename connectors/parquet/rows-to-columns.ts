import { yieldToEventLoop } from "../../src/core/runtime/waiting.ts";
import { type Cell, type Column, findColumnIndex, type LakeRow, type LakeTable } from "../shared/lake/table-model.ts";

export type ColumnarRows = ReturnType<typeof createColumnarRows>;

type RowComparator = (a: number, b: number) => number;

interface ColumnStore {
  readonly characters: number;
  add(cell: Cell, row: number): void;
  getCell(row: number): Cell;
  createComparator(): RowComparator;
}

const INITIAL_ROW_CAPACITY = 256;
const NULL_TEXT_CODE = -1;
const UNIQUE_TEXT_COLUMN_NAME = "event_id";
/** Number of rows to copy or compare before other work may run; 1,000 rows take up to 2 ms. */
export const ROWS_BETWEEN_YIELDS = 1_000;
const MAX_MS_BETWEEN_YIELDS = 4;

/** Stores rows as columns with a dictionary of texts. A history row takes 100 bytes; as an object more than 1,000. */
export function createColumnarRows(table: LakeTable) {
  const columnStores = table.columns.map(createColumnStore);
  let rowTotal = 0;
  const getColumnStore = (index: number) => columnStores[index] as ColumnStore;

  return {
    table,
    get length() {
      return rowTotal;
    },
    get characterCount() {
      return columnStores.reduce((sum, { characters }) => sum + characters, 0);
    },
    add(row: LakeRow): number {
      for (let index = 0; index < columnStores.length; index++) getColumnStore(index).add(row[index] ?? null, rowTotal);
      return rowTotal++;
    },
    /** Appends rows by column; `readColumn` returns null for an empty column. Add no other rows until it resolves. */
    async addRows(rowCount: number, readColumn: (index: number) => Promise<ArrayLike<unknown> | null>): Promise<void> {
      for (const [index, store] of columnStores.entries()) {
        const columnCells = await readColumn(index);
        for (let n = 0; n < rowCount; n++) store.add(toLakeCell(columnCells?.[n]), rowTotal + n);
      }
      rowTotal += rowCount;
    },
    getCell: (index: number, row: number): Cell => getColumnStore(index).getCell(row),
    createCellReader: (index: number): ((row: number) => Cell) => getColumnStore(index).getCell,
    /** Returns a comparator of rows by these columns, null first. Rows added later cannot be compared. */
    createComparator(names: readonly string[]): RowComparator {
      const columnComparators = names.map((name) => getColumnStore(findColumnIndex(table, name)).createComparator());
      return (a, b) => {
        for (const compareRows of columnComparators) {
          const rowOrder = compareRows(a, b);
          if (rowOrder !== 0) return rowOrder;
        }
        return 0;
      };
    },
  };
}

/** Sorts rows by the columns in `sortedBy`; equal rows keep their order. */
export function createRowSorter(columns: ColumnarRows): (rows: readonly number[]) => Promise<Uint32Array> {
  const compareRows = columns.createComparator(columns.table.sortedBy);
  return (rows) => mergeSortedRuns(Uint32Array.from(rows), (a, b) => compareRows(a, b) || a - b);
}

/** Sorts all rows. Of rows with the same key, keeps only the row observed last. */
export async function sortDistinctRows(columns: ColumnarRows): Promise<Uint32Array> {
  const { table, length } = columns;
  const keyColumnsNotSorted = table.key.filter((name) => !table.sortedBy.includes(name));
  const compareRows = columns.createComparator([...table.sortedBy, ...keyColumnsNotSorted, "observed_at", "position"]);
  const compareRowKeys = columns.createComparator(table.key);
  const rows = await mergeSortedRuns(
    new Uint32Array(length).map((_, row) => row),
    compareRows,
  );
  let distinctCount = 0;
  for (let n = 0; n < length; n++) {
    const [row, nextRow] = [rows[n] ?? 0, rows[n + 1]];
    if (nextRow === undefined || compareRowKeys(row, nextRow) !== 0) rows[distinctCount++] = row;
    if (n % ROWS_BETWEEN_YIELDS === 0) await yieldIfBusy();
  }
  return rows.subarray(0, distinctCount);
}

/** Sorts rows: merges ascending runs (for example one per file) in pairs until one run is left. */
async function mergeSortedRuns(rows: Uint32Array<ArrayBuffer>, compare: RowComparator): Promise<Uint32Array> {
  const { length } = rows;
  let runStarts: number[] = [];
  for (let n = 0; n < length; n++) {
    if (n === 0 || compare(rows[n - 1] ?? 0, rows[n] ?? 0) > 0) runStarts.push(n);
    if (n % ROWS_BETWEEN_YIELDS === 0) await yieldIfBusy();
  }
  let [sorted, target] = [rows, new Uint32Array(length)];
  while (runStarts.length > 1) {
    for (let runIndex = 0; runIndex < runStarts.length; runIndex += 2) {
      const [from = 0, middle = length, end = length] = runStarts.slice(runIndex, runIndex + 3);
      let [left, right] = [from, middle];
      for (let targetIndex = from; targetIndex < end; targetIndex++) {
        const takesLeftRun = right >= end || (left < middle && compare(sorted[left] ?? 0, sorted[right] ?? 0) <= 0);
        target[targetIndex] = sorted[takesLeftRun ? left++ : right++] ?? 0;
        if (targetIndex % ROWS_BETWEEN_YIELDS === 0) await yieldIfBusy();
      }
    }
    [sorted, target] = [target, sorted];
    runStarts = runStarts.filter((_, index) => index % 2 === 0);
  }
  return sorted;
}

function toLakeCell(value: unknown): Cell {
  if (typeof value === "bigint") return Number(value);
  return value === undefined ? null : (value as Cell);
}

function createColumnStore({ name, type }: Column): ColumnStore {
  if (type === "text" || type === "json") return createTextColumnStore(name === UNIQUE_TEXT_COLUMN_NAME);
  return createNumberColumnStore(type === "boolean");
}

/** Stores numbers, with NaN for null, and booleans as 0 or 1. */
function createNumberColumnStore(isBoolean: boolean): ColumnStore {
  let numbers = new Float64Array(INITIAL_ROW_CAPACITY);
  return {
    characters: 0,
    add(cell, row) {
      if (row === numbers.length) numbers = new Float64Array(numbers.buffer.transfer(2 * numbers.byteLength));
      numbers[row] = typeof cell === "number" || typeof cell === "boolean" ? Number(cell) : Number.NaN;
    },
    getCell(row) {
      const value = numbers[row];
      if (value === undefined || Number.isNaN(value)) return null;
      return isBoolean ? value === 1 : value;
    },
    createComparator: () => (a, b) => {
      const [x = Number.NaN, y = Number.NaN] = [numbers[a], numbers[b]];
      if (x < y) return -1;
      if (x > y) return 1;
      return Number(Number.isNaN(y)) - Number(Number.isNaN(x));
    },
  };
}

function createTextColumnStore(isUnique: boolean): ColumnStore {
  let textCodeByRow = new Int32Array(INITIAL_ROW_CAPACITY);
  let characterCount = 0;
  const texts: string[] = [];
  const codeByText = new Map<string, number>();
  let lastTextCode = NULL_TEXT_CODE;

  function encodeDictionaryText(text: string): number {
    if (lastTextCode !== NULL_TEXT_CODE && texts[lastTextCode] === text) return lastTextCode;
    const textCode = isUnique ? undefined : codeByText.get(text);
    if (textCode === undefined) characterCount += text.length;
    lastTextCode = textCode ?? texts.push(text) - 1;
    if (!isUnique) codeByText.set(text, lastTextCode);
    return lastTextCode;
  }

  const readDictionaryText = (row: number) => texts[textCodeByRow[row] ?? NULL_TEXT_CODE] ?? null;
  return {
    get characters() {
      return characterCount;
    },
    add(cell, row) {
      if (row === textCodeByRow.length)
        textCodeByRow = new Int32Array(textCodeByRow.buffer.transfer(2 * textCodeByRow.byteLength));
      textCodeByRow[row] = typeof cell === "string" ? encodeDictionaryText(cell) : NULL_TEXT_CODE;
    },
    getCell: readDictionaryText,
    createComparator() {
      if (isUnique) return (a, b) => compareTexts(readDictionaryText(a), readDictionaryText(b));
      const rankByTextCode = new Int32Array(texts.length);
      const sortedTextCodes = texts.map((_, code) => code).sort((a, b) => compareTexts(texts[a], texts[b]));
      for (const [rank, code] of sortedTextCodes.entries()) rankByTextCode[code] = rank;
      const findTextRank = (row: number) => rankByTextCode[textCodeByRow[row] ?? NULL_TEXT_CODE] ?? NULL_TEXT_CODE;
      return (a, b) => findTextRank(a) - findTextRank(b);
    },
  };
}

function compareTexts(a: string | null | undefined, b: string | null | undefined): number {
  const [x, y] = [a ?? "", b ?? ""];
  return x < y ? -1 : Number(x > y);
}

let lastYieldMs = performance.now();

export async function yieldIfBusy(): Promise<void> {
  if (performance.now() - lastYieldMs < MAX_MS_BETWEEN_YIELDS) return;
  await yieldToEventLoop();
  lastYieldMs = performance.now();
}
