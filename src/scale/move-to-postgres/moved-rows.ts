import { hash } from "node:crypto";
import type { PostgresSession } from "../../core/postgres/session.ts";
import { textArray } from "../../core/postgres/sql-quoting.ts";

/** Columns of each moved table, except the column `source`. */
const COLUMN_NAMES_BY_TABLE = {
  document: ["set_name", "key", "body"],
  record: ["log", "sequence", "body"],
  event: ["position", "id", "kind", "telemetry", "committed_ms", "bytes", "written", "body"],
  sink: ["name", "position", "dropped", "ended", "counted", "epoch", "urgent"],
  again: ["sink", "position"],
  dead_letter: ["sink", "position", "reason", "at_ms", "committed_ms", "resending", "number", "epoch", "body"],
  gap: ["sink", "reason", "first_time", "last_time", "count", "at_ms", "told_ms"],
  age_mark: ["ran_ms", "newest", "settled"],
  quota: ["bucket", "id", "sent_ms", "counted_ms"],
  quota_hold: ["bucket", "said_ms", "until_ms"],
  quota_clock: ["bucket", "boot", "wall_ms", "since_boot_ms"],
} as const;

export type MovedTableName = keyof typeof COLUMN_NAMES_BY_TABLE;
const STATE_TABLE_NAMES = Object.keys(COLUMN_NAMES_BY_TABLE) as readonly MovedTableName[];

export type MovedRow = readonly [table: MovedTableName, source: string, values: Readonly<Record<string, unknown>>];

function columnType(table: MovedTableName, column: string) {
  if (["sent_ms", "counted_ms", "said_ms", "until_ms", "wall_ms", "since_boot_ms"].includes(column))
    return "double precision";
  if (["telemetry", "resending"].includes(column)) return "boolean";
  const isIntegerColumn = INTEGER_COLUMNS.includes(column) || column.endsWith("_ms");
  return isIntegerColumn || (table === "quota" && column === "id") ? "bigint" : "text";
}

const INTEGER_COLUMNS = "sequence position bytes written dropped counted urgent number count newest settled".split(" ");

/** Text that stands for null in a row, because no stored text begins with it. */
const NULL_CELL_TEXT = "\\N";

function formatRowCell(value: unknown): string {
  return value === null || value === undefined ? NULL_CELL_TEXT : String(value);
}

/** Number of the rows of a table and the sum of their hashes modulo 2^64, which changes with any row. */
interface TableRowSum {
  readonly rows: number;
  readonly hashSum: bigint;
}

const ROW_CELL_SEPARATOR = "\u001f";
const ROW_HASH_DIGITS = 15;

export const formatRowDigest = ({ hashSum }: TableRowSum): string => hashSum.toString(16).padStart(16, "0");

/** Computes a row's hash as `rowDigestSql` does in the database. Hashes the bits of fractions, not their text. */
function computeRowHash([table, , values]: MovedRow): bigint {
  const cellTexts = COLUMN_NAMES_BY_TABLE[table].map((column) => {
    const cellText = formatRowCell(values[column]);
    if (columnType(table, column) !== "double precision" || cellText === NULL_CELL_TEXT) return cellText;
    const doubleBytes = Buffer.alloc(8);
    doubleBytes.writeDoubleBE(Number(cellText));
    return doubleBytes.toString("hex");
  });
  return BigInt(`0x${hash("md5", cellTexts.join(ROW_CELL_SEPARATOR)).slice(0, ROW_HASH_DIGITS)}`);
}

function rowDigestSql(table: MovedTableName): string {
  const cellTexts = COLUMN_NAMES_BY_TABLE[table].map((column) =>
    columnType(table, column) === "double precision"
      ? `encode(float8send(${column}), 'hex')`
      : `coalesce(${column}::text, '${NULL_CELL_TEXT}')`,
  );
  return `sum(('x' || left(md5(${cellTexts.join(" || chr(31) || ")}), ${ROW_HASH_DIGITS}))::bit(${4 * ROW_HASH_DIGITS})::bigint)::text`;
}

const MAX_INSERT_BATCH_ROWS = 500;
const MAX_INSERT_BATCH_CHARACTERS = 1_000_000;

/** Row counts and sums of row hashes, by table, then by source. */
export type RowSumsByTable = ReadonlyMap<MovedTableName, ReadonlyMap<string, TableRowSum>>;
export type MoveSession = Pick<PostgresSession, "query">;

/** Writes rows within the open transaction and returns their sums. `qualifyTable` adds the schema to a table's name. */
export async function writeStateRows(
  session: MoveSession,
  qualifyTable: (name: string) => string,
  rows: Iterable<MovedRow>,
): Promise<RowSumsByTable> {
  const rowSumsByTable = new Map<MovedTableName, Map<string, TableRowSum>>();
  let batch: MovedRow[] = [];
  let batchLength = 0;

  async function flushBatch(): Promise<void> {
    const [firstRow] = batch;
    if (firstRow !== undefined) await insertRows(session, firstRow[0], qualifyTable(firstRow[0]), batch);
    batch = [];
    batchLength = 0;
  }

  for (const row of rows) {
    const [table, source, values] = row;
    if (table !== batch[0]?.[0] || batch.length >= MAX_INSERT_BATCH_ROWS || batchLength >= MAX_INSERT_BATCH_CHARACTERS)
      await flushBatch();
    batch.push(row);
    for (const column of COLUMN_NAMES_BY_TABLE[table]) batchLength += formatRowCell(values[column]).length;
    const rowSumsBySource = rowSumsByTable.get(table) ?? new Map<string, TableRowSum>();
    rowSumsByTable.set(table, rowSumsBySource);
    const { rows: rowsBefore, hashSum } = rowSumsBySource.get(source) ?? { rows: 0, hashSum: 0n };
    rowSumsBySource.set(source, {
      rows: rowsBefore + 1,
      hashSum: BigInt.asUintN(64, hashSum + computeRowHash(row)),
    });
  }
  await flushBatch();
  return rowSumsByTable;
}

async function insertRows(
  session: MoveSession,
  table: MovedTableName,
  qualifiedTableName: string,
  batch: readonly MovedRow[],
) {
  const columnNames: readonly string[] = COLUMN_NAMES_BY_TABLE[table];
  const castsSql = columnNames.map((column) => `nullif(${column}, '${NULL_CELL_TEXT}')::${columnType(table, column)}`);
  const arrayParametersSql = ["source", ...columnNames].map((_, index) => `$${index + 1}::text[]`);
  await session.query(
    `insert into ${qualifiedTableName} (source, ${columnNames.join(", ")})
     select source, ${castsSql.join(", ")} from unnest(${arrayParametersSql.join(", ")}) as row (source, ${columnNames.join(", ")})`,
    [
      textArray(batch.map(([, source]) => source)),
      ...columnNames.map((column) => textArray(batch.map(([, , values]) => formatRowCell(values[column])))),
    ],
  );
}

export async function readTableRowSums(
  session: MoveSession,
  qualifyTable: (name: string) => string,
  sources: readonly string[],
): Promise<RowSumsByTable> {
  const rowSumsByTable = new Map<MovedTableName, ReadonlyMap<string, TableRowSum>>();
  for (const table of STATE_TABLE_NAMES) {
    const { rows } = await session.query(
      `select source, count(*), ${rowDigestSql(table)} from ${qualifyTable(table)} where source = any ($1::text[]) group by source`,
      [textArray(sources)],
    );
    if (rows.length === 0) continue;
    const rowSumEntries = rows.map(([source, count, sum]): readonly [string, TableRowSum] => [
      String(source),
      { rows: Number(count), hashSum: BigInt.asUintN(64, BigInt(String(sum))) },
    ]);
    rowSumsByTable.set(table, new Map(rowSumEntries));
  }
  return rowSumsByTable;
}

export function findFirstSumDifference(a: RowSumsByTable, b: RowSumsByTable) {
  for (const table of STATE_TABLE_NAMES) {
    const [firstSums, secondSums] = [a.get(table), b.get(table)];
    for (const source of new Set([...(firstSums?.keys() ?? []), ...(secondSums?.keys() ?? [])])) {
      const [firstSum, secondSum] = [firstSums?.get(source), secondSums?.get(source)];
      if (firstSum?.rows !== secondSum?.rows || firstSum?.hashSum !== secondSum?.hashSum) return { table, source };
    }
  }
  return null;
}
