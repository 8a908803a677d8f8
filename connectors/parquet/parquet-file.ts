import { setImmediate as turn } from "node:timers/promises";
import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetRead, type SchemaElement } from "hyparquet";
import { ByteWriter, type ColumnSource, ParquetWriter } from "hyparquet-writer";
import { ConfigError } from "../../src/errors.ts";
import type { Cell, Column, ColumnType, Row, Table } from "../../src/lake/table.ts";
import type { Columns } from "./columns.ts";

/** What a column is in a file, whatever its rows hold: the same in every file of a table. */
const TYPES: Readonly<Record<ColumnType, Partial<SchemaElement>>> = {
  text: { type: "BYTE_ARRAY", converted_type: "UTF8", logical_type: { type: "STRING" } },
  json: { type: "BYTE_ARRAY", converted_type: "UTF8", logical_type: { type: "STRING" } },
  time: {
    type: "INT64",
    converted_type: "TIMESTAMP_MICROS",
    logical_type: { type: "TIMESTAMP", isAdjustedToUTC: true, unit: "MICROS" },
  },
  number: { type: "DOUBLE" },
  integer: { type: "INT64" },
  boolean: { type: "BOOLEAN" },
};

/**
 * Rows of a row group: what a reader skips or reads as one, and for how long everything else in this process waits at
 * most (10,000 rows of live values take 40 ms). Of 50,000 a value of history would have 1.7 bytes, of these it has 1.9.
 */
const GROUP_ROWS = 10_000;

/** A whole file of these rows, in this order. */
export async function parquetOf(columns: Columns, rows: Uint32Array): Promise<Uint8Array> {
  const { table } = columns;
  const writer = new ByteWriter();
  const file = new ParquetWriter({
    writer,
    schema: [{ name: "root", num_children: table.columns.length }, ...table.columns.map(elementOf)],
    codec: "ZSTD",
    compressors: { ZSTD: (bytes) => zstdCompressSync(bytes) },
    createdBy: "plenum",
  });
  for (let from = 0; from < rows.length; from += GROUP_ROWS) {
    const group = rows.subarray(from, from + GROUP_ROWS);
    const columnData = table.columns.map((column, place) => sourceOf(columns, column, place, group));
    await file.write({ columnData, rowGroupSize: group.length });
    await turn();
  }
  await file.finish();
  return writer.getBytes();
}

/** Any may be null: a column that comes with a later version is null in what was written before. */
function elementOf({ name, type }: Column): SchemaElement {
  return { name, repetition_type: "OPTIONAL", ...TYPES[type] };
}

function sourceOf(columns: Columns, column: Column, place: number, rows: Uint32Array): ColumnSource {
  return {
    name: column.name,
    // Unpacked when it is its turn, so that of all columns one at a time takes memory.
    get data() {
      return unpacked(columns, column, place, rows);
    },
    // Times and positions of a tag rise by nearly the same each: a value's take half a byte, and a position as it is 1.2.
    ...(column.type === "time" || column.name === "position" ? { encoding: "DELTA_BINARY_PACKED" } : {}),
  };
}

function unpacked(columns: Columns, { type }: Column, place: number, rows: Uint32Array): unknown[] {
  const cells: unknown[] = new Array(rows.length);
  for (let n = 0; n < rows.length; n++) cells[n] = physical(type, columns.cell(place, rows[n] ?? 0));
  return cells;
}

function physical(type: ColumnType, cell: Cell): unknown {
  if (typeof cell !== "number" || type === "number") return cell;
  return type === "time" ? BigInt(Math.round(cell * 1_000)) : BigInt(Math.round(cell));
}

/**
 * Adds the rows of a file, in its order, to columns of its table. What the file does not have is null, what the table
 * does not have is left out. Throws ConfigError where the file is none, or has a column of another type.
 */
export async function readParquet(
  bytes: Uint8Array,
  columns: { readonly table: Table; add(row: Row): unknown },
  name: string,
): Promise<void> {
  const { table } = columns;
  const buffer = Uint8Array.from(bytes).buffer;
  const metadata = believed(name, () => parquetMetadata(buffer));
  const had = table.columns.filter(({ name: each }) =>
    metadata.schema.some((element) => element.name === each),
  );
  for (const column of had) {
    const element = metadata.schema.find((each) => each.name === column.name);
    if (element !== undefined && !isOfType(element, column.type)) throw otherType(name, column);
  }
  const chunks = new Map<string, Chunk[]>(had.map((column) => [column.name, []]));
  await parquetRead({
    file: { byteLength: buffer.byteLength, slice: (start, end) => buffer.slice(start, end) },
    metadata,
    columns: [...chunks.keys()],
    compressors: { ZSTD: (input) => zstdDecompressSync(input) },
    parsers: { timestampFromMicroseconds: (micros) => Number(micros) / 1_000 },
    onChunk: ({ columnName, columnData, rowStart }) => {
      chunks.get(columnName)?.push({ cells: columnData, from: rowStart });
    },
  }).catch((error: unknown) => {
    throw unreadable(name, error);
  });
  addRows(columns, Number(metadata.num_rows), chunks);
}

interface Chunk {
  readonly cells: ArrayLike<unknown>;
  readonly from: number;
}

function addRows(
  columns: { readonly table: Table; add(row: Row): unknown },
  length: number,
  chunks: ReadonlyMap<string, Chunk[]>,
): void {
  const cursors = columns.table.columns.map(({ name }) => {
    const parts = (chunks.get(name) ?? []).toSorted((a, b) => a.from - b.from);
    let at = 0;
    return (row: number): Cell => {
      for (let part = parts[at]; part !== undefined; part = parts[++at]) {
        if (row < part.from + part.cells.length) return logical(part.cells[row - part.from]);
      }
      return null;
    };
  });
  for (let row = 0; row < length; row++) columns.add(cursors.map((cellOf) => cellOf(row)));
}

function logical(value: unknown): Cell {
  if (typeof value === "bigint") return Number(value);
  return value === undefined ? null : (value as Cell);
}

/** How many rows a file says that it has. */
export function rowsOf(bytes: Uint8Array, name: string): number {
  return Number(believed(name, () => parquetMetadata(Uint8Array.from(bytes).buffer)).num_rows);
}

function isOfType(element: SchemaElement, type: ColumnType): boolean {
  const wanted = TYPES[type];
  return element.type === wanted.type && element.converted_type === wanted.converted_type;
}

function believed<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw unreadable(name, error);
  }
}

function unreadable(name: string, cause: unknown): ConfigError {
  return new ConfigError(`${name} cannot be read as a Parquet file.`, {
    hint: "Somebody else has written or damaged it: move it out of the lake, or put the right one back.",
    cause,
  });
}

function otherType(name: string, column: Column): ConfigError {
  return new ConfigError(`In ${name} the column ${column.name} is not of the type ${column.type}.`, {
    hint: "Somebody else writes into this lake: choose another folder or prefix, or move that file out of it.",
  });
}
