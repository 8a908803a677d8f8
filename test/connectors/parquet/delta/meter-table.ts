import { parquetWriteBuffer, type SchemaElement } from "hyparquet-writer";
import { commitFileName } from "#connectors/parquet/delta/log-format.ts";
import { computeFileStatistics } from "#connectors/parquet/delta/statistics.ts";
import { type DeltaTable, type DeltaTableOptions, openDeltaTable } from "#connectors/parquet/delta/table.ts";
import {
  type AddedTableFile,
  type DeltaTableChange,
  EMPTY_TABLE_CHANGE,
} from "#connectors/parquet/delta/table-change.ts";
import type { ObjectStore } from "#connectors/parquet/object-store.ts";
import type { Column, ColumnType, LakeRow, LakeTable } from "#connectors/shared/lake/table-model.ts";
import { createMemoryStore, type MemoryStore } from "./memory-store.ts";

const column = (name: string, type: ColumnType, isNullable = true): Column => ({
  name,
  type,
  isNullable,
  about: `The ${name}.`,
});

export const METER: LakeTable = {
  name: "meter",
  about: "Readings of meters.",
  rowPolicy: "append",
  columns: [
    column("meter_id", "text", false),
    column("time", "time", false),
    column("value", "number"),
    column("is_open", "boolean"),
    column("position", "integer", false),
    column("data", "json"),
  ],
  key: ["meter_id", "position"],
  time: "time",
  sortedBy: ["meter_id", "time"],
};

export const METER_WITH_UNIT: LakeTable = { ...METER, columns: [...METER.columns, column("unit", "text")] };

export const START_MS = Date.parse("2026-11-21T10:00:00.123Z");

/** Reading number `n` of three meters, sometimes null. */
export function reading(n: number): LakeRow {
  return [
    `meter ${n % 3}`,
    START_MS + n * 1_000,
    n % 5 === 0 ? null : n / 4,
    n % 7 === 0 ? null : n % 2 === 0,
    n,
    n % 4 === 0 ? JSON.stringify({ n, word: "blåbær" }) : null,
  ];
}

const PARQUET: Readonly<Record<ColumnType, Omit<SchemaElement, "name">>> = {
  text: { type: "BYTE_ARRAY", converted_type: "UTF8" },
  json: { type: "BYTE_ARRAY", converted_type: "UTF8" },
  time: { type: "INT64", converted_type: "TIMESTAMP_MICROS" },
  number: { type: "DOUBLE" },
  integer: { type: "INT64" },
  boolean: { type: "BOOLEAN" },
};

export function parquetOf(table: LakeTable, rows: readonly LakeRow[]): Uint8Array {
  const bytes = parquetWriteBuffer({
    schema: [
      { name: "root", num_children: table.columns.length },
      ...table.columns.map(
        ({ name, type }): SchemaElement => ({ name, repetition_type: "OPTIONAL", ...PARQUET[type] }),
      ),
    ],
    columnData: table.columns.map(({ name, type }, index) => ({
      name,
      data: rows.map((row) => {
        const cell = row[index] ?? null;
        if (cell === null) return null;
        if (type === "time") return BigInt(Number(cell)) * 1_000n;
        return type === "integer" ? BigInt(Number(cell)) : cell;
      }),
    })),
  });
  return new Uint8Array(bytes);
}

export interface LocatedRow {
  readonly date: string;
  readonly site: string | null;
}

/** Puts rows into the storage as a file that can be added to the table. */
export async function writtenFile(
  store: ObjectStore,
  name: string,
  rows: readonly LakeRow[],
  { table = METER, date = "2026-11-21", site = "1" }: Partial<LocatedRow> & { readonly table?: LakeTable } = {},
): Promise<AddedTableFile> {
  const folder = `${table.name}/date=${date}/site=${site === null ? "none" : encodeURIComponent(site)}/`;
  const key = `${folder}${name}.parquet`;
  const bytes = parquetOf(table, rows);
  await store.put(key, bytes, new AbortController().signal);
  return {
    key,
    bytes: bytes.length,
    rows: rows.length,
    partitionValues: { date, site },
    stats: await computeFileStatistics(table, rows.length, (index, row) => rows[row]?.[index] ?? null),
  };
}

export function openMeter(
  store: ObjectStore,
  options: Partial<DeltaTableOptions> & { readonly now?: () => number } = {},
): DeltaTable & { readonly warnings: readonly string[] } {
  const warnings: string[] = [];
  const { now = () => START_MS, ...rest } = options;
  const table = openDeltaTable({
    store,
    table: METER,
    clock: { now },
    log: { warn: (...words: readonly unknown[]) => void warnings.push(words.map(formatted).join(" ")) },
    ...rest,
  });
  return { ...table, warnings };
}

export const ADDED: DeltaTableChange = EMPTY_TABLE_CHANGE;

export const REARRANGED: DeltaTableChange = { ...ADDED, operation: "OPTIMIZE", dataChange: false };

function formatted(word: unknown): string {
  const { err } = word as { readonly err?: unknown };
  return String(err ?? word);
}

export const LOG = "meter/_delta_log/";

export const actionsOf = (store: MemoryStore, version: number) =>
  store
    .text(`${LOG}${commitFileName(version)}`)
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

export function createMeter() {
  const store = createMemoryStore();
  return { store, table: openMeter(store) };
}
