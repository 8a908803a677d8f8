import { hash } from "node:crypto";
import type { Session } from "../../core/postgres/session.ts";
import { textList } from "../../core/postgres/sql-text.ts";

/** Tables that belong to sources, with their columns besides `source`. */
const TABLES = {
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

export type TableName = keyof typeof TABLES;
const TABLE_NAMES = Object.keys(TABLES) as readonly TableName[];

export type MovedRow = readonly [table: TableName, source: string, values: Readonly<Record<string, unknown>>];
type Type = "text" | "bigint" | "boolean" | "double precision";

/** Types of columns that are not text. The ids of events are texts, those of quota slots numbers. */
function typeOf(table: TableName, column: string): Type {
  if (["sent_ms", "counted_ms", "said_ms", "until_ms", "wall_ms", "since_boot_ms"].includes(column)) {
    return "double precision";
  }
  if (["telemetry", "resending"].includes(column)) return "boolean";
  const counts = ["sequence", "position", "bytes", "written", "dropped", "counted", "urgent", "number", "count"];
  const isNumber = [...counts, "newest", "settled"].includes(column) || column.endsWith("_ms");
  return isNumber || (table === "quota" && column === "id") ? "bigint" : "text";
}

/** Text for null in a row; no stored text begins so. */
const NULL = "\\N";

function cellText(value: unknown): string {
  return value === null || value === undefined ? NULL : String(value);
}

/** Row count, and a digest that differs when any row differs. */
export interface TableSum {
  readonly rows: number;
  readonly digest: string;
}

const SEPARATOR = "\u001f";
const HASH_DIGITS = 15;

function digestOf(sum: bigint): string {
  return BigInt.asUintN(64, sum).toString(16).padStart(16, "0");
}

/** Computes a row's part of the digest as `digestSql` does. Fractions are compared by their bits. */
function rowHash([table, , values]: MovedRow): bigint {
  const texts = TABLES[table].map((column) => {
    const text = cellText(values[column]);
    if (typeOf(table, column) !== "double precision" || text === NULL) return text;
    const bits = Buffer.alloc(8);
    bits.writeDoubleBE(Number(text));
    return bits.toString("hex");
  });
  return BigInt(`0x${hash("md5", texts.join(SEPARATOR)).slice(0, HASH_DIGITS)}`);
}

function digestSql(table: TableName): string {
  const texts = TABLES[table].map((column) =>
    typeOf(table, column) === "double precision"
      ? `encode(float8send(${column}), 'hex')`
      : `coalesce(${column}::text, '${NULL}')`,
  );
  return `sum(('x' || left(md5(${texts.join(" || chr(31) || ")}), ${HASH_DIGITS}))::bit(${4 * HASH_DIGITS})::bigint)::text`;
}

const MAX_BATCH_ROWS = 500;
const MAX_BATCH_CHARACTERS = 1_000_000;

/** Rows and digests by table, then by source; only where there are rows. */
export type SumsByTable = ReadonlyMap<TableName, ReadonlyMap<string, TableSum>>;
export type MoveSession = Pick<Session, "query">;

/** Writes rows within the open transaction; returns their sums. `qualified` qualifies a table's name. */
export async function writeRows(
  session: MoveSession,
  qualified: (name: string) => string,
  rows: Iterable<MovedRow>,
): Promise<SumsByTable> {
  const sums = new Map<TableName, Map<string, { rows: number; sum: bigint }>>();
  let batch: MovedRow[] = [];
  let characters = 0;

  async function flush(): Promise<void> {
    const [first] = batch;
    if (first !== undefined) await insert(session, first[0], qualified(first[0]), batch);
    batch = [];
    characters = 0;
  }

  for (const row of rows) {
    const [table, source, values] = row;
    if (table !== batch[0]?.[0] || batch.length >= MAX_BATCH_ROWS || characters >= MAX_BATCH_CHARACTERS) await flush();
    batch.push(row);
    for (const column of TABLES[table]) characters += cellText(values[column]).length;
    const bySource = sums.get(table) ?? new Map<string, { rows: number; sum: bigint }>();
    sums.set(table, bySource);
    const before = bySource.get(source) ?? { rows: 0, sum: 0n };
    bySource.set(source, { rows: before.rows + 1, sum: before.sum + rowHash(row) });
  }
  await flush();
  const results = [...sums].map(([table, bySource]) => {
    const bySources = [...bySource].map(
      ([source, all]) => [source, { rows: all.rows, digest: digestOf(all.sum) }] as const,
    );
    return [table, new Map(bySources)] as const;
  });
  return new Map(results);
}

async function insert(session: MoveSession, table: TableName, qualified: string, batch: readonly MovedRow[]) {
  const columns: readonly string[] = TABLES[table];
  const cells = columns.map((column) => `nullif(${column}, '${NULL}')::${typeOf(table, column)}`);
  const lists = ["source", ...columns].map((_, index) => `$${index + 1}::text[]`);
  await session.query(
    `insert into ${qualified} (source, ${columns.join(", ")})
     select source, ${cells.join(", ")} from unnest(${lists.join(", ")}) as row (source, ${columns.join(", ")})`,
    [
      textList(batch.map(([, source]) => source)),
      ...columns.map((column) => textList(batch.map(([, , values]) => cellText(values[column])))),
    ],
  );
}

export async function readSums(
  session: MoveSession,
  qualified: (name: string) => string,
  sources: readonly string[],
): Promise<SumsByTable> {
  const sums = new Map<TableName, ReadonlyMap<string, TableSum>>();
  for (const table of TABLE_NAMES) {
    const { rows } = await session.query(
      `select source, count(*), ${digestSql(table)} from ${qualified(table)} where source = any ($1::text[]) group by source`,
      [textList(sources)],
    );
    if (rows.length === 0) continue;
    const found = rows.map(([source, count, sum]): readonly [string, TableSum] => [
      String(source),
      { rows: Number(count), digest: digestOf(BigInt(String(sum))) },
    ]);
    sums.set(table, new Map(found));
  }
  return sums;
}

export function firstDifference(
  a: SumsByTable,
  b: SumsByTable,
): { readonly table: TableName; readonly source: string } | null {
  for (const table of TABLE_NAMES) {
    const [one, other] = [a.get(table), b.get(table)];
    for (const source of new Set([...(one?.keys() ?? []), ...(other?.keys() ?? [])])) {
      const [first, second] = [one?.get(source), other?.get(source)];
      if (first?.rows !== second?.rows || first?.digest !== second?.digest) return { table, source };
    }
  }
  return null;
}
