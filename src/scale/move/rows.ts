import { hash } from "node:crypto";
import { textList } from "../../core/postgres/lists.ts";
import type { Session } from "../../core/postgres/session.ts";

/** Types of the columns that are moved. A row is the text of each column, null where it has none. */
export type Column = "text" | "bigint" | "boolean" | "double precision";

export interface Row {
  readonly source: string;
  readonly cells: readonly (string | null)[];
}

/** Tables that belong to sources, with their columns besides `source`. */
export const TABLES = {
  document: { set_name: "text", key: "text", body: "text" },
  record: { log: "text", sequence: "bigint", body: "text" },
  event: {
    position: "bigint",
    id: "text",
    kind: "text",
    telemetry: "boolean",
    committed_ms: "bigint",
    bytes: "bigint",
    written: "bigint",
    body: "text",
  },
  sink: {
    name: "text",
    position: "bigint",
    dropped: "bigint",
    ended: "text",
    counted: "bigint",
    epoch: "text",
    urgent: "bigint",
  },
  again: { sink: "text", position: "bigint" },
  dead_letter: {
    sink: "text",
    position: "bigint",
    reason: "text",
    at_ms: "bigint",
    committed_ms: "bigint",
    resending: "boolean",
    number: "bigint",
    epoch: "text",
    body: "text",
  },
  gap: {
    sink: "text",
    reason: "text",
    first_time: "text",
    last_time: "text",
    count: "bigint",
    at_ms: "bigint",
    told_ms: "bigint",
  },
  age_mark: { ran_ms: "bigint", newest: "bigint", settled: "bigint" },
  quota: { bucket: "text", id: "bigint", sent_ms: "double precision", counted_ms: "double precision" },
  quota_hold: { bucket: "text", said_ms: "double precision", until_ms: "double precision" },
  quota_clock: {
    bucket: "text",
    boot: "text",
    wall_ms: "double precision",
    since_boot_ms: "double precision",
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Column>>>>;

export type TableName = keyof typeof TABLES;
const TABLE_NAMES = Object.keys(TABLES) as readonly TableName[];

/** A row to move, and its table. */
export type Moving = readonly [table: TableName, row: Row];

function columnsOf(table: TableName): readonly (readonly [name: string, type: Column])[] {
  return Object.entries(TABLES[table]);
}

/** Text for null in a row; no stored text begins so. */
export const NULL = "\\N";

/** Row count, and a digest that differs when any row differs. */
export interface TableSum {
  readonly rows: number;
  /** 16 hexadecimal digits, whatever the order of the rows. */
  readonly digest: string;
}

/** Computes the digest of rows as `digestSql` does. */
function createDigest(table: TableName) {
  const types = columnsOf(table).map(([, type]) => type);
  let rows = 0;
  let sum = 0n;
  return {
    add(cells: Row["cells"]): void {
      const text = cells.map((cell, index) => digestText(cell, types[index] ?? "text")).join(BETWEEN);
      sum += BigInt(`0x${hash("md5", text).slice(0, DIGITS)}`);
      rows += 1;
    },
    result: (): TableSum => ({ rows, digest: digestOf(sum) }),
  };
}

const BETWEEN = "\u001f";
/** Hexadecimal digits of each row's hash that are added up: 60 bits, which fit into a bigint. */
const DIGITS = 15;

export function digestOf(sum: bigint): string {
  return BigInt.asUintN(64, sum).toString(16).padStart(16, "0");
}

/** Fractions are compared by their bits, because every system prints them differently. */
function digestText(cell: string | null, type: Column): string {
  if (cell === null) return NULL;
  if (type !== "double precision") return cell;
  const bits = Buffer.alloc(8);
  bits.writeDoubleBE(Number(cell));
  return bits.toString("hex");
}

/** SQL for the sum of the rows of a table, as numeric. */
function digestSql(table: TableName): string {
  const texts = columnsOf(table).map(([name, type]) => {
    if (type === "double precision") return `encode(float8send(${name}), 'hex')`;
    return `coalesce(${name}::text, '${NULL}')`;
  });
  const row = texts.join(" || chr(31) || ");
  return `sum(('x' || left(md5(${row}), ${DIGITS}))::bit(${4 * DIGITS})::bigint)::text`;
}

/** Rows and characters per statement. */
const ROWS = 500;
const CHARACTERS = 1_000_000;

/** Rows and digests by table, then by source; only where there are rows. */
export type Sums = ReadonlyMap<TableName, ReadonlyMap<string, TableSum>>;

export type MoveSession = Pick<Session, "query">;

/** Writes rows within the open transaction; returns their sums. `table` qualifies a table's name. */
export async function writeRows(
  session: MoveSession,
  table: (name: string) => string,
  rows: Iterable<Moving>,
): Promise<Sums> {
  const summers = new Map<TableName, Map<string, ReturnType<typeof createDigest>>>();
  let batch: Row[] = [];
  let characters = 0;
  let name: TableName | null = null;

  async function flush(): Promise<void> {
    if (name !== null && batch.length > 0) {
      await session.query(insertion(name, table(name)), valuesOf(name, batch));
    }
    batch = [];
    characters = 0;
  }

  for (const [next, row] of rows) {
    if (next !== name || batch.length >= ROWS || characters >= CHARACTERS) await flush();
    name = next;
    batch.push(row);
    for (const cell of row.cells) characters += cell?.length ?? 0;
    const bySource = summers.get(next) ?? new Map<string, ReturnType<typeof createDigest>>();
    summers.set(next, bySource);
    const summer = bySource.get(row.source) ?? createDigest(next);
    bySource.set(row.source, summer);
    summer.add(row.cells);
  }
  await flush();
  return new Map(
    [...summers].map(([at, bySource]) => [
      at,
      new Map([...bySource].map(([source, summer]) => [source, summer.result()])),
    ]),
  );
}

/** Reads the sums of these sources from the database's tables. */
export async function readSums(
  session: MoveSession,
  table: (name: string) => string,
  sources: readonly string[],
): Promise<Sums> {
  const sums = new Map<TableName, ReadonlyMap<string, TableSum>>();
  for (const name of TABLE_NAMES) {
    const { rows } = await session.query(
      `select source, count(*)::text, ${digestSql(name)} from ${table(name)} where source = any ($1::text[]) group by source`,
      [textList(sources)],
    );
    if (rows.length === 0) continue;
    const found = rows.map(([source, count, sum]): readonly [string, TableSum] => [
      String(source),
      { rows: Number(count), digest: digestOf(BigInt(String(sum))) },
    ]);
    sums.set(name, new Map(found));
  }
  return sums;
}

/** The first table and source of which two sums differ; null when they are the same. */
export function firstDifference(a: Sums, b: Sums): { readonly table: TableName; readonly source: string } | null {
  for (const table of TABLE_NAMES) {
    const [one, other] = [a.get(table), b.get(table)];
    for (const source of new Set([...(one?.keys() ?? []), ...(other?.keys() ?? [])])) {
      const [here, there] = [one?.get(source), other?.get(source)];
      if (here?.rows !== there?.rows || here?.digest !== there?.digest) return { table, source };
    }
  }
  return null;
}

function insertion(name: TableName, qualified: string): string {
  const columns = columnsOf(name);
  const names = columns.map(([column]) => column);
  const cells = columns.map(([column, type]) => `nullif(${column}, '${NULL}')::${type}`);
  const lists = ["source", ...names].map((_, index) => `$${index + 1}::text[]`);
  return `insert into ${qualified} (${["source", ...names].join(", ")})
    select source, ${cells.join(", ")} from unnest(${lists.join(", ")}) as row (source, ${names.join(", ")})`;
}

function valuesOf(name: TableName, rows: readonly Row[]): readonly Buffer[] {
  return [
    textList(rows.map(({ source }) => source)),
    ...columnsOf(name).map((_, index) => textList(rows.map(({ cells }) => cells[index] ?? NULL))),
  ];
}
