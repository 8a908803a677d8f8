import { existsSync, globSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { checkDeltaTable } from "./delta/strict-checker.ts";
import { readObjects } from "./read-objects.ts";

export type SeenRow = Readonly<Record<string, unknown>>;

let instance: Promise<DuckDBInstance> | null = null;

export async function query(sql: string): Promise<readonly SeenRow[]> {
  instance ??= DuckDBInstance.create(":memory:", { threads: "1" });
  const connection = await (await instance).connect();
  try {
    return (await connection.runAndReadAll(sql)).getRowObjectsJson();
  } finally {
    connection.closeSync();
  }
}

export function tableIn(folder: string, table: string): string {
  const paths = activeIn(folder, table) ?? [`${table}/**/*.parquet`];
  const files = paths.map((path) => `'${join(folder, path).replaceAll("'", "''")}'`);
  return `read_parquet([${files.join(", ")}], hive_partitioning=true, union_by_name=true, filename=true, file_row_number=true)`;
}

export async function rowsIn(folder: string, table: string, select = "*", rest = ""): Promise<readonly SeenRow[]> {
  if (filesIn(folder, table).length === 0) return [];
  return query(`SELECT ${select} FROM ${tableIn(folder, table)} ${rest}`);
}

function activeIn(folder: string, table: string): readonly string[] | null {
  if (!existsSync(join(folder, table, "_delta_log"))) return null;
  const { faults, files } = checkDeltaTable(readObjects(join(folder, table)));
  if (faults.length > 0) throw new Error(`${table}: ${faults.join("; ")}`);
  return [...files.keys()].map((path) => `${table}/${decodeURIComponent(path)}`).sort();
}

export function filesIn(folder: string, table = "*"): readonly string[] {
  const active = activeIn(folder, table);
  if (active !== null) return active;
  return globSync(`${table}/**/*.parquet`, { cwd: folder })
    .filter((file) => !file.endsWith("/empty.parquet"))
    .sort();
}
