/**
 * What a table of the lake is: the same for every connector that keeps events as rows (docs/lake.md).
 *
 * A connector makes of it what its end has: a Parquet schema, a `create table`. The rows come from `rows.ts`.
 */

/**
 * `time`: a moment in UTC; its cell is milliseconds since 1970, as a number, and what is written has microseconds.
 * `number` is a double, `integer` a whole number of 64 bits, `json` a text that holds JSON.
 */
export type ColumnType = "text" | "time" | "number" | "integer" | "boolean" | "json";

/** Never undefined. A number for `time`, `number` and `integer`; a text for `text` and `json`. */
export type Cell = string | number | boolean | null;

export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly isNullable: boolean;
  /** One sentence for the documentation and the comments of a database. */
  readonly about: string;
}

/**
 * How rows are kept:
 * - `append`: each row once and for good. The same key comes again only when the same event does.
 * - `latest`: one row for each key, replaced by a row that was observed later.
 * - `versions`: one row for each state that a thing was in, from `valid_from` to `valid_to` (versions.ts).
 */
export type RowPolicy = "append" | "latest" | "versions";

export interface Table {
  readonly name: string;
  readonly about: string;
  readonly rowPolicy: RowPolicy;
  readonly columns: readonly Column[];
  /** What makes a row this row: names of columns that are never null. */
  readonly key: readonly string[];
  /** The column of type `time` that says when it happened, and so into which day it belongs. */
  readonly time: string;
  /** The order of rows in a file, so that a reader finds what it looks for in few places. */
  readonly sortedBy: readonly string[];
}

/** Cells by the names of columns. */
export type Cells = Readonly<Record<string, Cell>>;

/** One row; its cells stand in the order of the table's columns. */
export type Row = readonly Cell[];

/** Place of a column in a row. A name that the table does not have is a fault of the program. */
export function columnIndexOf(table: Table, column: string): number {
  const index = table.columns.findIndex(({ name }) => name === column);
  if (index < 0) throw new Error(`The table ${table.name} has no column ${column}.`);
  return index;
}

/**
 * Tables whose rows change: a dimension's states one after the other (`versions`), and things of which the last word
 * counts (`latest`). Pure; whoever keeps such a table reads the rows that it may concern, puts the news into them, and
 * writes what comes out. To be told the same twice changes nothing.
 *
 * News of a table of versions: `is_current` says that the thing is so from `valid_from` on; a row that is not current
 * ends whatever was, at its `valid_from`, and is not kept itself.
 *
 *     held  4711 Supply °C  from 08:00  current      news  4711 Supply K  from 09:00  current
 *     →     4711 Supply °C  from 08:00 to 09:00,     4711 Supply K  from 09:00  current
 *
 * Answers `held` itself where nothing changes.
 */
export function applyUpdates(table: Table, stored: readonly Row[], updates: readonly Row[]): readonly Row[] {
  if (table.rowPolicy === "append") throw new Error(`Rows of ${table.name} do not change.`);
  const isVersions = table.rowPolicy === "versions";
  const keyOf = objectKeyOf(table);
  const compare = comparing(table);
  const rows = [...stored];
  /** Of each thing: what it was told last, and where its current row stands. */
  const latest = new Map<string, { newest: Row; at: number | null }>();
  const isCurrent = isVersions ? columnIndexOf(table, "is_current") : -1;
  stored.forEach((row, at) => {
    const key = keyOf(row);
    const known = latest.get(key);
    const newest = known === undefined || compare(row, known.newest) > 0 ? row : known.newest;
    const isAt = !isVersions || row[isCurrent] === true ? at : (known?.at ?? null);
    latest.set(key, { newest, at: isAt });
  });

  let isChanged = false;
  for (const row of updates.toSorted(compare)) {
    const known = latest.get(keyOf(row));
    if (known !== undefined && compare(row, known.newest) <= 0) continue;
    const at = known?.at ?? null;
    const before = at === null ? undefined : rows[at];
    if (!isVersions) {
      if (at === null) rows.push(row);
      else rows[at] = row;
      latest.set(keyOf(row), { newest: row, at: at ?? rows.length - 1 });
    } else if (before !== undefined && row[isCurrent] === true && hasSameState(table, before, row)) {
      continue;
    } else if (before === undefined && row[isCurrent] !== true) {
      continue;
    } else {
      const started = before === undefined ? row : after(table, before, row);
      if (at !== null && before !== undefined)
        rows[at] = ended(table, before, started, row[isCurrent] === true);
      if (row[isCurrent] === true) rows.push(started);
      latest.set(keyOf(row), { newest: row, at: row[isCurrent] === true ? rows.length - 1 : null });
    }
    isChanged = true;
  }
  return isChanged ? rows : stored;
}

/** The thing that a row is about, as one text. */
function objectKeyOf(table: Table): (row: Row) => string {
  const indexes = table.key.filter((name) => name !== "valid_from").map((name) => columnIndexOf(table, name));
  return (row) => JSON.stringify(indexes.map((index) => row[index]));
}

/** Compares rows by the order in which their events were committed. */
function comparing(table: Table): (a: Row, b: Row) => number {
  const observed = columnIndexOf(table, "observed_at");
  const position = columnIndexOf(table, "position");
  return (a, b) => Number(a[observed]) - Number(b[observed]) || Number(a[position]) - Number(b[position]);
}

/** Columns that say when and whence, not how the thing is. */
const CIRCUMSTANCES: ReadonlySet<string> = new Set([
  "valid_from",
  "valid_to",
  "is_current",
  "observed_at",
  "event_id",
  "position",
]);

function hasSameState(table: Table, a: Row, b: Row): boolean {
  return table.columns.every(({ name }, index) => CIRCUMSTANCES.has(name) || a[index] === b[index]);
}

/** A state begins after the one before it, by a millisecond where a clock was set back: no two have the same time. */
function after(table: Table, before: Row, row: Row): Row {
  const from = columnIndexOf(table, "valid_from");
  return withCell(row, from, Math.max(Number(row[from]), Number(before[from]) + 1));
}

/**
 * What was so until something else was. Where nothing follows, the row is traced to the event that ended it: there is no
 * other row by which an older event that comes once more could be told from a new one.
 */
function ended(table: Table, row: Row, by: Row, isFollowed: boolean): Row {
  const to = withCell(row, columnIndexOf(table, "valid_to"), by[columnIndexOf(table, "valid_from")] ?? null);
  const over = withCell(to, columnIndexOf(table, "is_current"), false);
  if (isFollowed) return over;
  return ["observed_at", "event_id", "position"].reduce((traced, name) => {
    const index = columnIndexOf(table, name);
    return withCell(traced, index, by[index] ?? null);
  }, over);
}

function withCell(row: Row, index: number, cell: Cell): Row {
  return row.map((each, at) => (at === index ? cell : each));
}
