import { type Told, tellRows } from "../shared/lake/rows.ts";
import type { Row, Table } from "../shared/lake/table.ts";
import { type ColumnWriter, createColumn, type Parameter, takenText } from "./columns.ts";

/** Rows for one table: a statement. */
export interface Rows {
  readonly table: Table;
  readonly columns: readonly Parameter[];
}

/** What some events are in the tables. */
export interface Portion {
  readonly rows: readonly Rows[];
  /** Of tables of versions, what is new, in the order in which it was told. */
  readonly news: ReadonlyMap<Table, readonly Row[]>;
}

/**
 * Rows of one statement at most: beyond, a statement only takes longer. An event of history with 8,000 points makes two;
 * they are of one transaction all the same.
 */
const MOST_ROWS = 5_000;

/** Throws what `tellRows` throws, and Rejected for a value that PostgreSQL does not have. */
export function portionOf(told: Iterable<Told>): Portion {
  const rows: Rows[] = [];
  const news = new Map<Table, Row[]>();
  const writers = new Map<Table, TableWriter>();

  function add(table: Table, row: Row): void {
    if (table.keeping === "versions") {
      const known = news.get(table);
      const cells = row.map((cell) => (typeof cell === "string" ? takenText(cell) : cell));
      if (known === undefined) news.set(table, [cells]);
      else known.push(cells);
      return;
    }
    let writer = writers.get(table);
    if (writer === undefined) {
      writer = createTableWriter(table);
      writers.set(table, writer);
    }
    writer.add(row);
    if (writer.length() === MOST_ROWS) rows.push(writer.take());
  }

  for (const each of told) tellRows(each, add);
  for (const writer of writers.values()) if (writer.length() > 0) rows.push(writer.take());
  return { rows, news };
}

/** The same for rows that are there already. */
export function rowsFor(table: Table, rows: readonly Row[]): Rows {
  const writer = createTableWriter(table);
  for (const row of rows) writer.add(row);
  return writer.take();
}

interface TableWriter {
  add(row: Row): void;
  length(): number;
  take(): Rows;
}

function createTableWriter(table: Table): TableWriter {
  // One column has to be a list, so that the statement knows how many rows there are.
  const columns: readonly ColumnWriter[] = table.columns.map(({ name, type }) =>
    createColumn(`${table.name}.${name}`, type, name === table.time),
  );
  let length = 0;
  return {
    add(row) {
      for (let n = 0; n < columns.length; n++) (columns[n] as ColumnWriter).push(row[n] ?? null);
      length++;
    },
    length: () => length,
    take() {
      length = 0;
      return { table, columns: columns.map((column) => column.take()) };
    },
  };
}
