import { type Cell, type Column, placeOf, type Row, type Table } from "../../src/lake/table.ts";

/**
 * Rows of one table as columns: a text is the number of a word, everything else a place in a typed array. A row of
 * history takes about 100 bytes so, and as an object more than 1,000.
 */
export interface Columns {
  readonly table: Table;
  readonly length: number;
  /** Characters of all its words. */
  readonly characters: number;
  /** Copies the cells of a row, and answers its number. */
  add(row: Row): number;
  cell(place: number, row: number): Cell;
  /** Orders rows by columns, one after the other; null comes first. What is added later is not in the order. */
  comparing(names: readonly string[]): Comparing;
}

type Comparing = (a: number, b: number) => number;

/** A column that grows. */
interface Store {
  readonly characters: number;
  add(cell: Cell, row: number): void;
  cell(row: number): Cell;
  comparing(): Comparing;
}

const FIRST_ROWS = 256;
/** Words that are hardly ever the same: to look each up costs more than to keep one twice. */
const IDENTITY = "event_id";

export function createColumns(table: Table): Columns {
  const stores = table.columns.map(storeOf);
  let length = 0;

  function storeAt(place: number): Store {
    const store = stores[place];
    if (store === undefined) throw new Error(`The table ${table.name} has no column ${place}.`);
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
      for (let place = 0; place < stores.length; place++) storeAt(place).add(row[place] ?? null, length);
      length += 1;
      return length - 1;
    },

    cell: (place, row) => storeAt(place).cell(row),

    comparing(names) {
      const all = names.map((name) => storeAt(placeOf(table, name)).comparing());
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

/** Puts rows into the order of their table's `sortedBy`; those of which it says nothing stay as they came. */
export function sorting(columns: Columns): (rows: readonly number[]) => Uint32Array {
  const compare = columns.comparing(columns.table.sortedBy);
  return (rows) => Uint32Array.from(rows).sort((a, b) => compare(a, b) || a - b);
}

/** All rows in that order, and of those with the same key only the one that was observed last. */
export function sortedOnce(columns: Columns): Uint32Array {
  const { table } = columns;
  const rest = table.key.filter((name) => !table.sortedBy.includes(name));
  const compare = columns.comparing([...table.sortedBy, ...rest, "observed_at", "position"]);
  const isSameThing = columns.comparing(table.key);
  const rows = Uint32Array.from({ length: columns.length }, (_, row) => row).sort(compare);
  return rows.filter((row, n) => {
    const next = rows[n + 1];
    return next === undefined || isSameThing(row, next) !== 0;
  });
}

function storeOf({ name, type }: Column): Store {
  if (type === "boolean") return booleans();
  if (type === "text" || type === "json") return words(name === IDENTITY);
  return numbers();
}

/** NaN stands for null: no number that is told is NaN. */
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
