import { yieldToEventLoop } from "../../src/core/runtime/waiting.ts";
import { type Cell, type Column, columnIndexOf, type Row, type Table } from "../shared/lake/table.ts";

/**
 * Rows of one table as columns: a text is an index into a dictionary, everything else a typed array element. A
 * history row takes about 100 bytes this way, and more than 1,000 as an object.
 */
export interface Columns {
  readonly table: Table;
  readonly length: number;
  readonly characters: number;
  /** Copies the cells of a row and returns its row number. */
  add(row: Row): number;
  /**
   * Appends `rows` rows, column by column in the order of the table: `cellsOf` returns the cells of a column, or null
   * where all of them are null. Pauses between columns, so nothing else may add rows meanwhile.
   */
  addAll(rows: number, cellsOf: (index: number) => Promise<ArrayLike<unknown> | null>): Promise<void>;
  cell(index: number, row: number): Cell;
  /** Returns the function that reads cells of one column. */
  reading(index: number): (row: number) => Cell;
  /** Compares rows by columns, one after the other; null comes first. Rows added later are not ranked. */
  comparing(names: readonly string[]): Comparing;
}

type Comparing = (a: number, b: number) => number;

interface Store {
  readonly characters: number;
  add(cell: Cell, row: number): void;
  cell(row: number): Cell;
  comparing(): Comparing;
}

const FIRST_ROWS = 256;
/** Column of unique texts: a dictionary look-up would cost more than a duplicate. */
const IDENTITY = "event_id";

export function createColumns(table: Table): Columns {
  const stores = table.columns.map(storeOf);
  let length = 0;

  function storeAt(index: number): Store {
    const store = stores[index];
    if (store === undefined) throw new Error(`The table ${table.name} has no column ${index}.`);
    return store;
  }

  return {
    table,
    get length() {
      return length;
    },
    get characters() {
      return stores.reduce((sum, { characters }) => sum + characters, 0);
    },

    add(row) {
      for (let index = 0; index < stores.length; index++) storeAt(index).add(row[index] ?? null, length);
      length += 1;
      return length - 1;
    },

    async addAll(rows, cellsOf) {
      for (let index = 0; index < stores.length; index++) {
        const store = storeAt(index);
        const cells = await cellsOf(index);
        for (let n = 0; n < rows; n++) store.add(cellOf(cells?.[n]), length + n);
      }
      length += rows;
    },

    cell: (index, row) => storeAt(index).cell(row),
    reading: (index) => storeAt(index).cell,

    comparing(names) {
      const all = names.map((name) => storeAt(columnIndexOf(table, name)).comparing());
      return (a, b) => {
        for (const compare of all) {
          const order = compare(a, b);
          if (order !== 0) return order;
        }
        return 0;
      };
    },
  };
}

/**
 * Returns a function that sorts rows by their table's `sortedBy`; equal rows keep their order. Yields often.
 */
export function sorting(columns: Columns): (rows: readonly number[]) => Promise<Uint32Array> {
  const compare = columns.comparing(columns.table.sortedBy);
  return (rows) => mergedRuns(Uint32Array.from(rows), (a, b) => compare(a, b) || a - b);
}

/**
 * Sorts all rows and keeps, of rows with the same key, only the one observed last. Merges the ascending runs that
 * already exist, for example one per file that was read, and yields often.
 */
export async function sortedOnce(columns: Columns): Promise<Uint32Array> {
  const { table } = columns;
  const rest = table.key.filter((name) => !table.sortedBy.includes(name));
  const compare = columns.comparing([...table.sortedBy, ...rest, "observed_at", "position"]);
  const hasSameKey = columns.comparing(table.key);
  const rows = await mergedRuns(
    new Uint32Array(columns.length).map((_, row) => row),
    compare,
  );
  const once = new Uint32Array(rows.length);
  let count = 0;
  for (let n = 0; n < rows.length; n++) {
    const [row, next] = [rows[n] ?? 0, rows[n + 1]];
    if (next === undefined || hasSameKey(row, next) !== 0) once[count++] = row;
    if (n % ROWS_AT_ONCE === 0) await pause();
  }
  return once.subarray(0, count);
}

/** Rows compared before the time is checked: 1,000 comparisons take less than 1 ms. */
const ROWS_AT_ONCE = 1_000;

/** Sorts rows by merging ascending runs in pairs until one is left. */
async function mergedRuns(rows: Uint32Array<ArrayBuffer>, compare: Comparing): Promise<Uint32Array> {
  const { length } = rows;
  let starts: number[] = [];
  for (let n = 0; n < length; n++) {
    if (n === 0 || compare(rows[n - 1] ?? 0, rows[n] ?? 0) > 0) starts.push(n);
    if (n % ROWS_AT_ONCE === 0) await pause();
  }
  let [sorted, spare] = [rows, new Uint32Array(length)];
  while (starts.length > 1) {
    const merged: number[] = [];
    for (let run = 0; run < starts.length; run += 2) {
      const from = starts[run] ?? 0;
      const middle = starts[run + 1] ?? length;
      const end = starts[run + 2] ?? length;
      merged.push(from);
      let [left, right] = [from, middle];
      for (let to = from; to < end; to++) {
        const isLeft = right >= end || (left < middle && compare(sorted[left] ?? 0, sorted[right] ?? 0) <= 0);
        spare[to] = sorted[isLeft ? left++ : right++] ?? 0;
        if (to % ROWS_AT_ONCE === 0) await pause();
      }
    }
    [sorted, spare] = [spare, sorted];
    starts = merged;
  }
  return sorted;
}

function cellOf(value: unknown): Cell {
  if (typeof value === "bigint") return Number(value);
  return value === undefined ? null : (value as Cell);
}

function storeOf({ name, type }: Column): Store {
  if (type === "boolean") return booleans();
  if (type === "text" || type === "json") return words(name === IDENTITY);
  return numbers();
}

/** NaN represents null: no event has NaN as a value. */
function numbers(): Store {
  let all = new Float64Array(FIRST_ROWS);
  return {
    characters: 0,
    add(cell, row) {
      if (row === all.length) {
        const wider = new Float64Array(2 * row);
        wider.set(all);
        all = wider;
      }
      all[row] = typeof cell === "number" ? cell : Number.NaN;
    },
    cell(row) {
      const value = all[row];
      return value === undefined || Number.isNaN(value) ? null : value;
    },
    comparing: () => (a, b) => {
      const [x = Number.NaN, y = Number.NaN] = [all[a], all[b]];
      if (x < y) return -1;
      if (x > y) return 1;
      return Number(Number.isNaN(y)) - Number(Number.isNaN(x));
    },
  };
}

const NULL = -1;

function booleans(): Store {
  let all = new Int8Array(FIRST_ROWS);
  return {
    characters: 0,
    add(cell, row) {
      if (row === all.length) {
        const wider = new Int8Array(2 * row);
        wider.set(all);
        all = wider;
      }
      all[row] = cell === null ? NULL : Number(cell === true);
    },
    cell: (row) => (all[row] === NULL ? null : all[row] === 1),
    comparing: () => (a, b) => (all[a] ?? NULL) - (all[b] ?? NULL),
  };
}

function words(isIdentity: boolean): Store {
  let codes = new Int32Array(FIRST_ROWS);
  let characters = 0;
  const texts: string[] = [];
  const known = new Map<string, number>();
  let last = NULL;

  function codeOf(text: string): number {
    if (last !== NULL && texts[last] === text) return last;
    const code = isIdentity ? undefined : known.get(text);
    if (code === undefined) characters += text.length;
    last = code ?? texts.push(text) - 1;
    if (!isIdentity) known.set(text, last);
    return last;
  }

  const textAt = (row: number) => texts[codes[row] ?? NULL] ?? null;
  return {
    get characters() {
      return characters;
    },
    add(cell, row) {
      if (row === codes.length) {
        const wider = new Int32Array(2 * row);
        wider.set(codes);
        codes = wider;
      }
      codes[row] = typeof cell === "string" ? codeOf(cell) : NULL;
    },
    cell: textAt,
    comparing() {
      if (isIdentity) return (a, b) => byText(textAt(a), textAt(b));
      const ranks = new Int32Array(texts.length);
      const ascending = texts.map((_, code) => code).sort((a, b) => byText(texts[a], texts[b]));
      for (const [rank, code] of ascending.entries()) ranks[code] = rank;
      const rank = (row: number) => ranks[codes[row] ?? NULL] ?? NULL;
      return (a, b) => rank(a) - rank(b);
    },
  };
}

function byText(a: string | null | undefined, b: string | null | undefined): number {
  const [x, y] = [a ?? "", b ?? ""];
  return x < y ? -1 : Number(x > y);
}

/** Longest work without a yield to the event loop, in milliseconds. */
const AT_ONCE_MS = 4;

let lastMs = performance.now();

/** Yields to the event loop if this function last yielded more than `AT_ONCE_MS` ago. */
export async function pause(): Promise<void> {
  if (performance.now() - lastMs < AT_ONCE_MS) return;
  await yieldToEventLoop();
  lastMs = performance.now();
}
