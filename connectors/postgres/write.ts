import type { Receipt, Rejection } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import { isAboutData, isAboutTables, reasonOf } from "../../src/core/postgres/outcome.ts";
import { quoted } from "../../src/core/postgres/quoted.ts";
import type { Query, Session } from "../../src/core/postgres/session.ts";
import { transact, transactAtOnce } from "../../src/core/postgres/transact.ts";
import { emitRows, type OfferedEvent } from "../shared/lake/rows.ts";
import { applyUpdates, type Cell, columnIndexOf, type Row, type Table } from "../shared/lake/table.ts";
import { type ColumnWriter, createColumn, type Parameter, storableText } from "./columns.ts";
import { lockTables } from "./schema.ts";
import { insertText, listOf, nameOf, type Target } from "./sql.ts";

export interface WriteContext {
  readonly session: Session;
  readonly target: Target;
  readonly timeoutMs: number;
  /** Texts of statements that were made already. */
  readonly texts: Map<string, string>;
  /** Called where the server refuses a batch; throws where the tables are to blame. True when it has made what was gone. */
  check(): Promise<boolean>;
}

/** A search for events that are refused is put off after so many parts; 14 find one among 5,000. */
const MOST_PARTS = 200;

/**
 * Writes a batch in one transaction. Where the server refuses it over a value, it is searched for, by halves, in
 * another transaction with savepoints; the events that are left alone and refused are rejected, all others stored.
 */
export async function writeBatch(batch: readonly OfferedEvent[], context: WriteContext): Promise<Receipt> {
  const { session, timeoutMs } = context;
  const { offered, rejected, tableRows } = readable(batch);
  if (tableRows.rows.length + tableRows.updates.size === 0) return { rejected };
  try {
    if (tableRows.updates.size > 0)
      await transact(session, { statementMs: timeoutMs }, () => store(tableRows, context));
    else
      await transactAtOnce(
        session,
        { statementMs: timeoutMs },
        tableRows.rows.map((rows) => insertOf(rows, context)),
      );
    return { rejected };
  } catch (error) {
    const isData = isAboutData(error);
    if (!isData && !isAboutTables(error)) throw error;
    if (await context.check())
      throw new Retryable("Tables were gone from the database; they were made anew.");
    if (!isData) throw error;
  }
  const found = await transact(session, { statementMs: timeoutMs }, () => search(offered, context));
  const end = found.kept?.from ?? batch.length;
  return { ...found, rejected: [...rejected.filter(({ index }) => index < end), ...found.rejected] };
}

interface Numbered {
  readonly index: number;
  readonly offered: OfferedEvent;
}

interface Readable {
  readonly offered: readonly Numbered[];
  readonly rejected: readonly Rejection[];
  readonly tableRows: TableRows;
}

/** Without those that no rows can be made of. */
function readable(batch: readonly OfferedEvent[]): Readable {
  const numbered = batch.map((offered, index) => ({ index, offered }));
  try {
    return { offered: numbered, rejected: [], tableRows: tableRowsOf(batch) };
  } catch {
    const rejected: Rejection[] = [];
    const offered = numbered.filter(({ index, offered: each }) => {
      try {
        tableRowsOf([each]);
        return true;
      } catch (error) {
        rejected.push({ index, reason: reasonOf(error) });
        return false;
      }
    });
    return { offered, rejected, tableRows: tableRowsOf(offered.map((each) => each.offered)) };
  }
}

async function store({ rows, updates }: TableRows, context: WriteContext): Promise<void> {
  const { session, target } = context;
  await session.queries(rows.map((each) => insertOf(each, context)));
  if (updates.size > 0) await lockTables(session, target);
  for (const [table, offered] of updates) {
    const changed = await changedRows(session, table, offered, target);
    if (changed !== null) await session.queries([insertOf(changed, context)]);
  }
}

function insertOf({ table, columns }: Rows, { target, texts }: WriteContext): Query {
  const arrays = columns.map(({ isArray }) => isArray);
  const key = `${table.name} ${arrays.map(Number).join("")}`;
  const text = texts.get(key) ?? insertText(table, target, arrays);
  texts.set(key, text);
  return { text, values: columns.map(({ bytes }) => bytes) };
}

async function search(batch: readonly Numbered[], context: WriteContext): Promise<Receipt> {
  const { session } = context;
  const rejected: Rejection[] = [];
  const middle = (part: readonly Numbered[]) => Math.ceil(part.length / 2);
  const todo = [batch];
  let parts = 0;
  for (let part = todo.pop(); part !== undefined; part = todo.pop()) {
    const [first] = part;
    if (first === undefined) continue;
    if (parts >= MOST_PARTS) {
      const error = new Retryable("More faulty events than one write can sort out; the rest follows.");
      return { rejected, kept: { from: first.index, error } };
    }
    parts++;
    await session.query("savepoint part");
    try {
      await store(tableRowsOf(part.map(({ offered }) => offered)), context);
      await session.query("release part");
    } catch (error) {
      if (!isAboutData(error)) throw error;
      await session.query("rollback to part");
      if (part.length === 1) rejected.push({ index: first.index, reason: reasonOf(error) });
      else todo.push(part.slice(middle(part)), part.slice(0, middle(part)));
    }
  }
  return { rejected };
}

/** Rows for one table: a statement. */
export interface Rows {
  readonly table: Table;
  readonly columns: readonly Parameter[];
}

/** What some events are in the tables. */
interface TableRows {
  readonly rows: readonly Rows[];
  /** Of tables of versions, what is new, in the order in which it was told. */
  readonly updates: ReadonlyMap<Table, readonly Row[]>;
}

/**
 * Rows of one statement at most: beyond, a statement only takes longer. An event of history with 8,000 points makes two;
 * they are of one transaction all the same.
 */
const MOST_ROWS = 5_000;

/** Throws what `tellRows` throws, and Rejected for a value that PostgreSQL does not have. */
function tableRowsOf(offered: Iterable<OfferedEvent>): TableRows {
  const rows: Rows[] = [];
  const updates = new Map<Table, Row[]>();
  const writers = new Map<Table, TableWriter>();

  function add(table: Table, row: Row): void {
    if (table.rowPolicy === "versions") {
      const known = updates.get(table);
      const cells = row.map((cell) => (typeof cell === "string" ? storableText(cell) : cell));
      if (known === undefined) updates.set(table, [cells]);
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

  for (const each of offered) emitRows(each, add);
  for (const writer of writers.values()) if (writer.length() > 0) rows.push(writer.take());
  return { rows, updates };
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

/**
 * The rows of a table of versions that news change or add. What is held of the things is read first, so nobody else may
 * change them before the transaction ends.
 */
async function changedRows(
  session: Session,
  table: Table,
  updates: readonly Row[],
  target: Target,
): Promise<Rows | null> {
  const stored = await storedVersionsOf(session, table, updates, target);
  const known = new Set(stored);
  const changed = applyUpdates(table, stored, updates).filter((row) => !known.has(row));
  return changed.length === 0 ? null : rowsFor(table, changed);
}

/** All states of the things that the news are about. */
async function storedVersionsOf(
  session: Session,
  table: Table,
  updates: readonly Row[],
  target: Target,
): Promise<readonly Row[]> {
  const thing = table.key.filter((name) => name !== table.time);
  const values = thing.map((name) => updates.map((row) => String(row[columnIndexOf(table, name)])));
  const { rows } = await session.query(
    `select ${table.columns.map(({ name, type }) => readAs(name, type)).join(", ")} from ${nameOf(target, table)}
where (${listOf(thing)}) in (select ${thing.map((_, n) => `told.c${n}`).join(", ")} from unnest(${values.map((_, n) => `$${n + 1}::text[]`).join(", ")}) as told (${thing.map((_, n) => `c${n}`).join(", ")}))`,
    values,
  );
  return rows.map((row) => row.map((cell): Cell => cell));
}

/** Milliseconds for a time, and a double for a whole number, of which the library would make a text. */
function readAs(name: string, type: Table["columns"][number]["type"]): string {
  if (type === "time") return `(extract(epoch from ${quoted(name)}) * 1000)::double precision`;
  if (type === "integer") return `${quoted(name)}::double precision`;
  return type === "json" ? `${quoted(name)}::text` : quoted(name);
}
