import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { type AddLakeRow, emitEventRows } from "#connectors/shared/lake/event-rows.ts";
import type { Cell, ColumnType, LakeRow, LakeTable } from "#connectors/shared/lake/table-model.ts";
import { applyRowUpdates } from "#connectors/shared/lake/table-model.ts";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import type { Event } from "#src/core/model/event.ts";

const DOCS = join(import.meta.dirname, "..", "..", "docs", "lake");

export type Lake = Awaited<ReturnType<typeof openLake>>;

export async function openLake() {
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  return {
    async query(sql: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
      const reader = await connection.runAndReadAll(sql);
      return reader.getRowObjectsJson();
    },
    async run(sql: string): Promise<void> {
      await connection.run(sql);
    },
    close(): void {
      connection.closeSync();
      instance.closeSync();
    },
  };
}

export function viewsIn(file: string): { readonly tables: string; readonly views: string } {
  const [tables = "", views = ""] = readFileSync(join(DOCS, file), "utf8").split(/^-- Views$/m);
  return { tables, views };
}

const TYPES: Readonly<Record<ColumnType, string>> = {
  text: "VARCHAR",
  json: "VARCHAR",
  time: "TIMESTAMPTZ",
  number: "DOUBLE",
  integer: "BIGINT",
  boolean: "BOOLEAN",
};

export function rowsOfEvents(events: readonly Event[]): ReadonlyMap<LakeTable, readonly LakeRow[]> {
  const rows = new Map<LakeTable, readonly LakeRow[]>(LAKE_TABLES.map((table) => [table, []]));
  const add: AddLakeRow = (table, row) => {
    const storedRows = rows.get(table) ?? [];
    const kept = [...row];
    rows.set(table, table.rowPolicy === "append" ? [...storedRows, kept] : applyRowUpdates(table, storedRows, [kept]));
  };
  events.forEach((event, n) => {
    emitEventRows({ event, position: n + 1, committedAt: event.time }, add);
  });
  return rows;
}

export async function fillTables(lake: Lake, rows: ReadonlyMap<LakeTable, readonly LakeRow[]>): Promise<void> {
  await lake.run("SET TimeZone = 'UTC'");
  for (const [table, held] of rows) {
    const columns = table.columns.map(({ name, type }) => `"${name}" ${TYPES[type]}`);
    await lake.run(`CREATE TABLE "${table.name}" (${columns.join(", ")})`);
    if (held.length === 0) continue;
    const values = held.map((row) => `(${row.map((cell, at) => literal(cell, table.columns[at]?.type)).join(", ")})`);
    await lake.run(`INSERT INTO "${table.name}" VALUES ${values.join(", ")}`);
  }
}

function literal(cell: Cell, type: ColumnType | undefined): string {
  if (cell === null) return "NULL";
  if (type === "time") return `TIMESTAMPTZ '${new Date(Number(cell)).toISOString()}'`;
  if (type === "number") return `'${cell}'::DOUBLE`;
  return typeof cell === "string" ? `'${cell.replaceAll("'", "''")}'` : String(cell);
}
