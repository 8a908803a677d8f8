import { textList } from "../../core/postgres/lists.ts";
import type { Session } from "../../core/postgres/session.ts";
import type { Moving } from "./reading.ts";
import {
  columnsOf,
  createSummer,
  digestOf,
  digestSql,
  NULL,
  type Row,
  type Sum,
  TABLE_NAMES,
  type TableName,
} from "./tables.ts";

/** So many rows, or characters, go in one statement. */
const ROWS = 500;
const CHARACTERS = 1_000_000;

/** Rows and digests by table, then by source; only where there are rows. */
export type Sums = ReadonlyMap<TableName, ReadonlyMap<string, Sum>>;

export type Asking = Pick<Session, "query">;

/** Writes the rows, within the transaction that is open; answers what was written. `table` qualifies a table's name. */
export async function writeRows(
  session: Asking,
  table: (name: string) => string,
  rows: Iterable<Moving>,
): Promise<Sums> {
  const summers = new Map<TableName, Map<string, ReturnType<typeof createSummer>>>();
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
    const bySource = summers.get(next) ?? new Map<string, ReturnType<typeof createSummer>>();
    summers.set(next, bySource);
    const summer = bySource.get(row.source) ?? createSummer(next);
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

/** What the database holds of these sources, read from its tables. */
export async function readSums(
  session: Asking,
  table: (name: string) => string,
  sources: readonly string[],
): Promise<Sums> {
  const sums = new Map<TableName, ReadonlyMap<string, Sum>>();
  for (const name of TABLE_NAMES) {
    const { rows } = await session.query(
      `select source, count(*)::text, ${digestSql(name)} from ${table(name)} where source = any ($1::text[]) group by source`,
      [textList(sources)],
    );
    if (rows.length === 0) continue;
    const found = rows.map(([source, count, sum]): readonly [string, Sum] => [
      String(source),
      { rows: Number(count), digest: digestOf(BigInt(String(sum))) },
    ]);
    sums.set(name, new Map(found));
  }
  return sums;
}

/** The first table and source of which two sums differ; null when they are the same. */
export function firstDifference(
  a: Sums,
  b: Sums,
): { readonly table: TableName; readonly source: string } | null {
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
