import type { EventRejection, Receipt } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import { describePostgresRejection, isRowError, isTableError } from "../../src/core/postgres/error-meaning.ts";
import type { PostgresSession, SqlQuery } from "../../src/core/postgres/session.ts";
import { quoteSqlName } from "../../src/core/postgres/sql-quoting.ts";
import { runStatementsInTransaction, runTransaction } from "../../src/core/postgres/transaction.ts";
import { type CommittedEvent, emitEventRows } from "../shared/lake/event-rows.ts";
import {
  applyRowUpdates,
  type Cell,
  type Column,
  findColumnIndex,
  type LakeRow,
  type LakeTable,
} from "../shared/lake/table-model.ts";
import { type ColumnWriter, createColumnWriter, type StatementParameter, toPostgresText } from "./column-encoding.ts";
import { lockTables } from "./create-tables.ts";
import { buildInsertSql, joinQuotedColumnNames, qualifiedName, type TableSettings } from "./sql-statements.ts";

export interface BatchContext {
  readonly session: PostgresSession;
  readonly target: TableSettings;
  readonly timeoutMs: number;
  readonly insertStatements: Map<string, string>;
  recheckTables(): Promise<boolean>;
}

/** Maximum attempts to store parts of a batch in one search for refused events: 27 find one event among 5,000. */
const MAX_REFUSED_EVENT_SEARCH_PARTS = 200;

/** Writes a batch in one transaction. If the server refuses a value, a second transaction stores the other events. */
export async function writeBatch(batch: readonly CommittedEvent[], context: BatchContext): Promise<Receipt> {
  const { session, timeoutMs } = context;
  const { events, rejected, tableRows } = mapEventsToRows(batch);
  if (tableRows.rows.length + tableRows.updates.size === 0) return { rejected };
  const options = { statementMs: timeoutMs };
  try {
    const insertQueries = tableRows.rows.map((rows) => buildInsertQuery(rows, context));
    if (tableRows.updates.size === 0) await runStatementsInTransaction(session, options, insertQueries);
    else await runTransaction(session, options, () => storeTableRows(tableRows, context));
    return { rejected };
  } catch (error) {
    const isDataError = isRowError(error);
    if (!isDataError && !isTableError(error)) throw error;
    if (await context.recheckTables())
      throw new Retryable("Tables were missing in the database; Plenum created them again.");
    if (!isDataError) throw error;
  }
  const searchResult = await runTransaction(session, options, () => storeByBisection(events, context));
  const endIndex = searchResult.retry?.from ?? batch.length;
  return { ...searchResult, rejected: [...rejected.filter(({ index }) => index < endIndex), ...searchResult.rejected] };
}

interface IndexedEvent {
  readonly index: number;
  readonly committedEvent: CommittedEvent;
}

function mapEventsToRows(batch: readonly CommittedEvent[]) {
  const indexedEvents = batch.map((committedEvent, index) => ({ index, committedEvent }));
  const rejected: EventRejection[] = [];
  try {
    return { events: indexedEvents, rejected, tableRows: buildTableRows(indexedEvents) };
  } catch {
    const events = indexedEvents.filter((event) => {
      try {
        buildTableRows([event]);
        return true;
      } catch (error) {
        rejected.push({ index: event.index, reason: describePostgresRejection(error) });
        return false;
      }
    });
    return { events, rejected, tableRows: buildTableRows(events) };
  }
}

async function storeTableRows({ rows, updates }: InsertsAndRowUpdates, context: BatchContext): Promise<void> {
  const { session, target } = context;
  await session.runQueries(rows.map((insertRows) => buildInsertQuery(insertRows, context)));
  if (updates.size > 0) await lockTables(session, target);
  for (const [table, rowUpdates] of updates) {
    const changedRows = await findChangedRows(session, table, rowUpdates, target);
    if (changedRows !== null) await session.runQueries([buildInsertQuery(changedRows, context)]);
  }
}

function buildInsertQuery({ table, columns }: InsertRows, { target, insertStatements }: BatchContext): SqlQuery {
  const isArrayByColumn = columns.map(({ isArray }) => isArray);
  const statementKey = `${table.name} ${isArrayByColumn.map(Number).join("")}`;
  const sqlText = insertStatements.get(statementKey) ?? buildInsertSql(table, target, isArrayByColumn);
  insertStatements.set(statementKey, sqlText);
  return { text: sqlText, values: columns.map(({ bytes }) => bytes) };
}

async function storeByBisection(batch: readonly IndexedEvent[], context: BatchContext): Promise<Receipt> {
  const { session } = context;
  const rejections: EventRejection[] = [];
  const batchPartsToStore = [batch];
  let triedParts = 0;
  for (let part = batchPartsToStore.pop(); part !== undefined; part = batchPartsToStore.pop()) {
    const [firstEvent] = part;
    if (firstEvent === undefined) continue;
    if (triedParts >= MAX_REFUSED_EVENT_SEARCH_PARTS) {
      const error = new Retryable("More faulty events than one write can sort out; the rest follows.");
      return { rejected: rejections, retry: { from: firstEvent.index, error } };
    }
    triedParts++;
    await session.query("savepoint part");
    try {
      await storeTableRows(buildTableRows(part), context);
      await session.query("release part");
    } catch (error) {
      if (!isRowError(error)) throw error;
      await session.query("rollback to part");
      const middle = Math.ceil(part.length / 2);
      if (part.length === 1) rejections.push({ index: firstEvent.index, reason: describePostgresRejection(error) });
      else batchPartsToStore.push(part.slice(middle), part.slice(0, middle));
    }
  }
  return { rejected: rejections };
}

interface InsertRows {
  readonly table: LakeTable;
  readonly columns: readonly StatementParameter[];
}

interface InsertsAndRowUpdates {
  readonly rows: readonly InsertRows[];
  /** Updates of tables with the row policy `versions`, in event order. */
  readonly updates: ReadonlyMap<LakeTable, readonly LakeRow[]>;
}

/** Maximum rows in one insert statement. A history event with 8,000 points needs two statements. */
const MAX_INSERT_STATEMENT_ROWS = 5_000;

function buildTableRows(events: readonly IndexedEvent[]): InsertsAndRowUpdates {
  const rows: InsertRows[] = [];
  const updates = new Map<LakeTable, LakeRow[]>();
  const tableWriterByTable = new Map<LakeTable, ReturnType<typeof createTableWriter>>();

  function addRow(table: LakeTable, row: LakeRow): void {
    if (table.rowPolicy === "versions") {
      const storableCells = row.map((cell) => (typeof cell === "string" ? toPostgresText(cell) : cell));
      const tableUpdates = updates.get(table) ?? [];
      tableUpdates.push(storableCells);
      updates.set(table, tableUpdates);
      return;
    }
    const writer = tableWriterByTable.get(table) ?? createTableWriter(table);
    tableWriterByTable.set(table, writer);
    writer.addRow(row);
    if (writer.rowCount() === MAX_INSERT_STATEMENT_ROWS) rows.push(writer.takeRows());
  }

  for (const { committedEvent } of events) emitEventRows(committedEvent, addRow);
  for (const writer of tableWriterByTable.values()) if (writer.rowCount() > 0) rows.push(writer.takeRows());
  return { rows, updates };
}

export function encodeTableRows(table: LakeTable, rows: readonly LakeRow[]): InsertRows {
  const writer = createTableWriter(table);
  for (const row of rows) writer.addRow(row);
  return writer.takeRows();
}

function createTableWriter(table: LakeTable) {
  // The time column is always an array, whose length is the number of rows in the statement.
  const columns = table.columns.map(({ name, type }) =>
    createColumnWriter(`${table.name}.${name}`, type, name === table.time),
  );
  let rowCount = 0;
  return {
    addRow(row: LakeRow): void {
      for (let n = 0; n < columns.length; n++) (columns[n] as ColumnWriter).pushCell(row[n] ?? null);
      rowCount++;
    },
    rowCount: () => rowCount,
    takeRows(): InsertRows {
      rowCount = 0;
      return { table, columns: columns.map((column) => column.takeParameter()) };
    },
  };
}

/** Returns the rows that the updates change or add. The caller must hold the table lock. */
async function findChangedRows(
  session: PostgresSession,
  table: LakeTable,
  updates: readonly LakeRow[],
  target: TableSettings,
) {
  const keyColumns = table.key.filter((name) => name !== table.time);
  const keyValuesByColumn = keyColumns.map((name) => updates.map((row) => String(row[findColumnIndex(table, name)])));
  const keyColumnAliases = keyColumns.map((_, n) => `c${n}`);
  const arrayParameters = keyColumns.map((_, n) => `$${n + 1}::text[]`);
  const result = await session.query(
    `select ${table.columns.map(buildColumnSelectSql).join(", ")} from ${qualifiedName(target, table)}
where (${joinQuotedColumnNames(keyColumns)}) in (select ${keyColumnAliases.join(", ")} from unnest(${arrayParameters.join(", ")}) as changed (${keyColumnAliases.join(", ")}))`,
    keyValuesByColumn,
  );
  const storedRows = result.rows.map((row) => row.map((cell): Cell => cell));
  const storedRowSet = new Set<LakeRow>(storedRows);
  const changedRows = applyRowUpdates(table, storedRows, updates).filter((row) => !storedRowSet.has(row));
  return changedRows.length === 0 ? null : encodeTableRows(table, changedRows);
}

/** Times and integers become doubles, because the library would return integers as texts. */
function buildColumnSelectSql({ name, type }: Column): string {
  if (type === "time") return `(extract(epoch from ${quoteSqlName(name)}) * 1000)::double precision`;
  if (type === "integer") return `${quoteSqlName(name)}::double precision`;
  return type === "json" ? `${quoteSqlName(name)}::text` : quoteSqlName(name);
}
