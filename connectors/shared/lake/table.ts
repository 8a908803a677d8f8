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
export type Keeping = "append" | "latest" | "versions";

export interface Table {
  readonly name: string;
  readonly about: string;
  readonly keeping: Keeping;
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
export function placeOf(table: Table, column: string): number {
  const place = table.columns.findIndex(({ name }) => name === column);
  if (place < 0) throw new Error(`The table ${table.name} has no column ${column}.`);
  return place;
}
