import { hash } from "node:crypto";
import type { PostgresSession } from "../../core/postgres/session.ts";
import { textArray } from "../../core/postgres/sql-quoting.ts";

/** Tables with rows of sources, and their columns without `source`. */
const COLUMNS_BY_TABLE = {
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

export type TableName = keyof typeof COLUMNS_BY_TABLE;
const TABLE_NAMES = Object.keys(COLUMNS_BY_TABLE) as readonly TableName[];

export type MovedRow = readonly [table: TableName, source: string, values: Readonly<Record<string, unknown>>];
type ColumnType = "text" | "bigint" | "boolean" | "double precision";

/** Type of a column. The `id` of an event is a text, the `id` of a quota slot a number. */
function columnType(table: TableName, column: string): ColumnType {
  if (["sent_ms", "counted_ms", "said_ms", "until_ms", "wall_ms", "since_boot_ms"].includes(column)) {
    return "double precision";
  }
  if (["telemetry", "resending"].includes(column)) return "boolean";
  const isNumber = INTEGER_COLUMNS.includes(column) || column.endsWith("_ms");
  return isNumber || (table === "quota" && column === "id") ? "bigint" : "text";
}

const INTEGER_COLUMNS = "sequence position bytes written dropped counted urgent number count newest settled".split(" ");

/** Text for null in a row; no stored text begins with this text. */
const NULL_TEXT = "\\N";

function formatCell(value: unknown): string {
  return value === null || value === undefined ? NULL_TEXT : String(value);
}

/** Row count and digest of a table's rows; the digest differs when any row differs. */
export interface TableSum {
  readonly rows: number;
  readonly digest: string;
}

const CELL_SEPARATOR = "\u001f";
const ROW_HASH_DIGITS = 15;

function formatDigest(sum: bigint): string {
  return BigInt.asUintN(64, sum).toString(16).padStart(16, "0");
}

/** Computes a row's part of the table's digest like `digestSql`. Fractions are compared by their bits. */
function computeRowHash([table, , values]: MovedRow): bigint {
  const texts = COLUMNS_BY_TABLE[table].map((column) => {
    const cellText = formatCell(values[column]);
    if (columnType(table, column) !== "double precision" || cellText === NULL_TEXT) return cellText;
    const doubleBytes = Buffer.alloc(8);
    doubleBytes.writeDoubleBE(Number(cellText));
    return doubleBytes.toString("hex");
  });
  return BigInt(`0x${hash("md5", texts.join(CELL_SEPARATOR)).slice(0, ROW_HASH_DIGITS)}`);
}

function digestSql(table: TableName): string {
  const texts = COLUMNS_BY_TABLE[table].map((column) =>
    columnType(table, column) === "double precision"
      ? `encode(float8send(${column}), 'hex')`
      : `coalesce(${column}::text, '${NULL_TEXT}')`,
  );
  return `sum(('x' || left(md5(${texts.join(" || chr(31) || ")}), ${ROW_HASH_DIGITS}))::bit(${4 * ROW_HASH_DIGITS})::bigint)::text`;
}

const MAX_BATCH_ROWS = 500;
const MAX_BATCH_CHARACTERS = 1_000_000;

/** Row counts and digests by table, then by source; only for sources with rows. */
export type SumsByTable = ReadonlyMap<TableName, ReadonlyMap<string, TableSum>>;
export type MoveSession = Pick<PostgresSession, "query">;

/** Writes rows within the open transaction and returns their sums. `qualifyTable` adds the schema to a table's name. */
export async function writeRows(
  session: MoveSession,
  qualifyTable: (name: string) => string,
  rows: Iterable<MovedRow>,
): Promise<SumsByTable> {
  const sumsByTable = new Map<TableName, Map<string, { rows: number; sum: bigint }>>();
  let batch: MovedRow[] = [];
  let characters = 0;

  async function flush(): Promise<void> {
    const [first] = batch;
    if (first !== undefined) await insertRows(session, first[0], qualifyTable(first[0]), batch);
    batch = [];
    characters = 0;
  }

  for (const row of rows) {
    const [table, source, values] = row;
    if (table !== batch[0]?.[0] || batch.length >= MAX_BATCH_ROWS || characters >= MAX_BATCH_CHARACTERS) await flush();
    batch.push(row);
    for (const column of COLUMNS_BY_TABLE[table]) characters += formatCell(values[column]).length;
    const sumsBySource = sumsByTable.get(table) ?? new Map<string, { rows: number; sum: bigint }>();
    sumsByTable.set(table, sumsBySource);
    const sourceSum = sumsBySource.get(source) ?? { rows: 0, sum: 0n };
    sumsBySource.set(source, { rows: sourceSum.rows + 1, sum: sourceSum.sum + computeRowHash(row) });
  }
  await flush();
  const results = [...sumsByTable].map(([table, bySource]) => {
    const sourceSums = [...bySource].map(
      ([source, all]) => [source, { rows: all.rows, digest: formatDigest(all.sum) }] as const,
    );
    return [table, new Map(sourceSums)] as const;
  });
  return new Map(results);
}

async function insertRows(session: MoveSession, table: TableName, qualified: string, batch: readonly MovedRow[]) {
  const columns: readonly string[] = COLUMNS_BY_TABLE[table];
  const cells = columns.map((column) => `nullif(${column}, '${NULL_TEXT}')::${columnType(table, column)}`);
  const parameters = ["source", ...columns].map((_, index) => `$${index + 1}::text[]`);
  await session.query(
    `insert into ${qualified} (source, ${columns.join(", ")})
     select source, ${cells.join(", ")} from unnest(${parameters.join(", ")}) as row (source, ${columns.join(", ")})`,
    [
      textArray(batch.map(([, source]) => source)),
      ...columns.map((column) => textArray(batch.map(([, , values]) => formatCell(values[column])))),
    ],
  );
}

export async function readTableSums(
  session: MoveSession,
  qualifyTable: (name: string) => string,
  sources: readonly string[],
): Promise<SumsByTable> {
  const sumsByTable = new Map<TableName, ReadonlyMap<string, TableSum>>();
  for (const table of TABLE_NAMES) {
    const { rows } = await session.query(
      `select source, count(*), ${digestSql(table)} from ${qualifyTable(table)} where source = any ($1::text[]) group by source`,
      [textArray(sources)],
    );
    if (rows.length === 0) continue;
    const sumEntries = rows.map(([source, count, sum]): readonly [string, TableSum] => [
      String(source),
      { rows: Number(count), digest: formatDigest(BigInt(String(sum))) },
    ]);
    sumsByTable.set(table, new Map(sumEntries));
  }
  return sumsByTable;
}

export function findFirstDifference(a: SumsByTable, b: SumsByTable) {
  for (const table of TABLE_NAMES) {
    const [one, other] = [a.get(table), b.get(table)];
    for (const source of new Set([...(one?.keys() ?? []), ...(other?.keys() ?? [])])) {
      const [first, second] = [one?.get(source), other?.get(source)];
      if (first?.rows !== second?.rows || first?.digest !== second?.digest) return { table, source };
    }
  }
  return null;
}
