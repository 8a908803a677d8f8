import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { type FileMetaData, parquetMetadata, parquetRead, type RowGroup, type SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Cell, Column, ColumnType, LakeTable } from "../shared/lake/table-model.ts";
import { compareInUtf8Order } from "./object-store.ts";
import { type ColumnarRows, yieldIfBusy } from "./rows-to-columns.ts";

const PARQUET_TEXT_TYPE: Partial<SchemaElement> = {
  type: "BYTE_ARRAY",
  converted_type: "UTF8",
  logical_type: { type: "STRING" },
};

const PARQUET_TYPES: Readonly<Record<ColumnType, Partial<SchemaElement>>> = {
  text: PARQUET_TEXT_TYPE,
  json: PARQUET_TEXT_TYPE,
  time: {
    type: "INT64",
    converted_type: "TIMESTAMP_MICROS",
    logical_type: { type: "TIMESTAMP", isAdjustedToUTC: true, unit: "MICROS" },
  },
  number: { type: "DOUBLE" },
  integer: { type: "INT64" },
  boolean: { type: "BOOLEAN" },
};

/** Number of rows in a Parquet row group; encoding one of its columns takes 2 to 5 ms. */
const ROWS_PER_ROW_GROUP = 10_000;
/** Size above which row groups are read column by column, so that other work can run in between. */
const LARGE_ROW_GROUP_ROWS = 2_000;
/** Largest page that stays uncompressed, because creating a compressor takes 0.1 ms. */
const MAX_UNCOMPRESSED_PAGE_BYTES = 128;

/** Encodes the given rows as a Parquet file, in the given order. Yields to the event loop between columns. */
export async function encodeParquet(columns: ColumnarRows, rows: Uint32Array): Promise<Uint8Array> {
  const { table } = columns;
  const { file, writer } = createParquetFileWriter(table);
  for (let groupStart = 0; groupStart < rows.length; groupStart += ROWS_PER_ROW_GROUP) {
    const rowGroup = rows.subarray(groupStart, groupStart + ROWS_PER_ROW_GROUP);
    const groupStartOffset = writer.offset;
    const columnRowGroups: RowGroup[] = [];
    for (const [index, { name, type }] of table.columns.entries()) {
      const data = toParquetCellValues(columns, index, rowGroup);
      // Times and positions of a tag rise by nearly equal steps: with this encoding, a value takes 0.5 to 1.2 bytes.
      const areAscending = type === "time" || name === "position";
      const encodedColumn = areAscending ? { name, data, encoding: "DELTA_BINARY_PACKED" as const } : { name, data };
      await file.write({ columnData: [encodedColumn], rowGroupSize: rowGroup.length });
      columnRowGroups.push(...file.row_groups.splice(-1));
      await yieldIfBusy();
    }
    file.row_groups.push({
      columns: columnRowGroups.flatMap((group) => group.columns),
      total_byte_size: columnRowGroups.reduce((sum, group) => sum + group.total_byte_size, 0n),
      total_compressed_size: BigInt(writer.offset - groupStartOffset),
      num_rows: BigInt(rowGroup.length),
    });
  }
  file.num_rows = BigInt(rows.length);
  await file.finish();
  return writer.getBytes();
}

function createParquetFileWriter({ columns }: LakeTable) {
  const byteWriter = new ByteWriter();
  // Every column is optional: a column added later is null in older files.
  const schemaElements = columns.map(({ name, type }) => ({
    name,
    repetition_type: "OPTIONAL" as const,
    ...PARQUET_TYPES[type],
  }));
  const parquetWriter = new ParquetWriter({
    writer: byteWriter,
    schema: [{ name: "root", num_children: columns.length }, ...schemaElements],
    codec: "ZSTD",
    compressors: { ZSTD: compressParquetPage },
    createdBy: "plenum",
  });
  return { file: parquetWriter, writer: byteWriter };
}

function compressParquetPage(bytes: Uint8Array): Uint8Array {
  if (bytes.length === 0 || bytes.length > MAX_UNCOMPRESSED_PAGE_BYTES) return zstdCompressSync(bytes);
  const zstdFrame = new Uint8Array(9 + bytes.length);
  // Header of an uncompressed Zstandard frame (RFC 8878): magic number, flags, frame size, size of the last block.
  zstdFrame.set([0x28, 0xb5, 0x2f, 0xfd, 0x20, bytes.length, (bytes.length << 3) | 1, bytes.length >> 5, 0]);
  zstdFrame.set(bytes, 9);
  return zstdFrame;
}

function toParquetCellValues(columns: ColumnarRows, columnIndex: number, rows: Uint32Array): unknown[] {
  const { name, type } = columns.table.columns[columnIndex] as Column;
  const readCell = columns.createCellReader(columnIndex);
  const values: unknown[] = new Array(rows.length);
  for (let n = 0; n < rows.length; n++) {
    const cell = readCell(rows[n] ?? 0);
    if (typeof cell !== "number" || type === "number") values[n] = cell;
    else if (type === "time") values[n] = BigInt(Math.round(cell * 1_000));
    else values[n] = name === "position" && (cell | 0) === cell ? cell : BigInt(Math.round(cell));
  }
  return values;
}

/** Joins row groups of files without decoding. Returns null if a file has other columns or another program wrote it. */
export async function concatenateParquet(
  table: LakeTable,
  files: readonly { readonly bytes: Uint8Array; readonly name: string }[],
): Promise<{ readonly bytes: Uint8Array; readonly rows: number; readonly bounds: readonly ColumnBounds[] } | null> {
  const { file, writer } = createParquetFileWriter(table);
  const parsers = {
    stringFromBytes: (bytes: Uint8Array) => bytes,
    timestampFromMicroseconds: (micros: bigint) => micros,
  };
  for (const { bytes, name } of files) {
    const fileBuffer = toArrayBuffer(bytes);
    const fileMetadata = parseParquetMetadata(fileBuffer, name, parsers);
    if (!canConcatenateFile(table, fileMetadata)) return null;
    for (const rowGroup of fileMetadata.row_groups) {
      const [pageStart, pageEnd] = getPageByteRange(rowGroup);
      const offsetShift = BigInt(writer.offset - pageStart);
      writer.appendBytes(new Uint8Array(fileBuffer, pageStart, pageEnd - pageStart));
      file.row_groups.push({
        ...rowGroup,
        columns: rowGroup.columns.map((column) => shiftChunkOffsets(column, offsetShift)),
      });
      file.num_rows += rowGroup.num_rows;
      await yieldIfBusy();
    }
  }
  await file.finish();
  const nonEmptyRowGroups = file.row_groups.filter(({ num_rows }) => num_rows > 0n);
  const columnBounds = table.columns.map(({ type }, index) =>
    combineColumnChunkBounds(
      type,
      nonEmptyRowGroups.flatMap(({ columns }) => columns[index] ?? []),
    ),
  );
  return { bytes: writer.getBytes(), rows: Number(file.num_rows), bounds: columnBounds };
}

/** Minimum, maximum and null count of a column. Both bounds are null if they are unknown. */
export interface ColumnBounds {
  readonly min: Cell;
  readonly max: Cell;
  readonly nulls: number;
}

type ColumnChunk = RowGroup["columns"][number];

function combineColumnChunkBounds(type: ColumnType, chunks: readonly ColumnChunk[]): ColumnBounds {
  let allBounds: ColumnBounds = { min: null, max: null, nulls: 0 };
  let hasBounds = type !== "boolean";
  for (const { meta_data } of chunks) {
    const { is_max_value_exact, is_min_value_exact, max_value, min_value, null_count } = meta_data?.statistics ?? {};
    const nulls = allBounds.nulls + Number(null_count ?? 0);
    const [min, max] = [decodeColumnBound(type, min_value), decodeColumnBound(type, max_value)];
    const areBoundsExact = is_max_value_exact !== false && is_min_value_exact !== false;
    if (min === null || max === null || !areBoundsExact) {
      hasBounds &&= areBoundsExact && Number(null_count) === Number(meta_data?.num_values);
      allBounds = { ...allBounds, nulls };
    } else {
      allBounds = { min: getOuterBound(allBounds.min, min, -1), max: getOuterBound(allBounds.max, max, 1), nulls };
    }
  }
  return hasBounds ? allBounds : { min: null, max: null, nulls: allBounds.nulls };
}

function getOuterBound(a: Cell, b: Cell, sign: -1 | 1): Cell {
  if (a === null) return b;
  const areTextBounds = typeof a === "string" && typeof b === "string";
  const boundOrder = areTextBounds ? compareInUtf8Order(a, b) : Number(a) - Number(b);
  return boundOrder * sign >= 0 ? a : b;
}

function decodeColumnBound(type: ColumnType, value: unknown): Cell {
  if (value instanceof Uint8Array) return new TextDecoder().decode(value);
  if (typeof value === "bigint") return type === "time" ? Number(value) / 1_000 : Number(value);
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function canConcatenateFile(
  { columns: expectedColumns }: LakeTable,
  { created_by, row_groups, schema }: FileMetaData,
): boolean {
  const [, ...elements] = schema;
  return (
    created_by === "plenum" &&
    elements.length === expectedColumns.length &&
    expectedColumns.every(({ name, type }, n) => elements[n]?.name === name && hasColumnType(elements[n], type)) &&
    row_groups.every(({ columns }) =>
      columns.every(
        ({ meta_data, column_index_offset, offset_index_offset }) =>
          meta_data !== undefined && column_index_offset === undefined && offset_index_offset === undefined,
      ),
    )
  );
}

function getPageByteRange({ columns }: RowGroup): readonly [start: number, end: number] {
  const columnChunks = columns.flatMap(({ meta_data }) => meta_data ?? []);
  const chunkStarts = columnChunks.map((chunk) => Number(chunk.dictionary_page_offset ?? chunk.data_page_offset));
  const chunkEnds = columnChunks.map((chunk, n) => (chunkStarts[n] ?? 0) + Number(chunk.total_compressed_size));
  return [Math.min(...chunkStarts), Math.max(...chunkEnds)];
}

function shiftChunkOffsets(column: ColumnChunk, offsetShift: bigint): ColumnChunk {
  const { meta_data } = column;
  if (meta_data === undefined) return column;
  const { data_page_offset, dictionary_page_offset: dictionary } = meta_data;
  const chunkMetadata = { ...meta_data, data_page_offset: data_page_offset + offsetShift };
  return {
    ...column,
    meta_data:
      dictionary === undefined ? chunkMetadata : { ...chunkMetadata, dictionary_page_offset: dictionary + offsetShift },
  };
}

type ColumnCells = ArrayLike<unknown>;

/** Appends a file's rows. Missing columns become null. Throws ConfigError for an unreadable file or a wrong type. */
export async function readParquetRows(bytes: Uint8Array, columns: ColumnarRows, name: string): Promise<void> {
  const { table } = columns;
  const fileBuffer = toArrayBuffer(bytes);
  const fileMetadata = parseParquetMetadata(fileBuffer, name);
  const columnsInFile: string[] = [];
  for (const column of table.columns) {
    const schemaElement = fileMetadata.schema.find((element) => element.name === column.name);
    if (schemaElement === undefined) continue;
    if (!hasColumnType(schemaElement, column.type)) throw createColumnTypeError(name, column);
    columnsInFile.push(column.name);
  }

  async function readParquetColumns(names: string[], from: number, to: number): Promise<Map<string, ColumnCells>> {
    const cellsByColumn = new Map<string, ColumnCells>();
    await parquetRead({
      file: { byteLength: fileBuffer.byteLength, slice: (start, end) => fileBuffer.slice(start, end) },
      metadata: fileMetadata,
      columns: names,
      rowStart: from,
      rowEnd: to,
      compressors: { ZSTD: (input) => zstdDecompressSync(input) },
      parsers: { timestampFromMicroseconds: (micros) => Number(micros) / 1_000 },
      onChunk: ({ columnName, columnData, rowStart }) => {
        const earlierCells = cellsByColumn.get(columnName);
        if (earlierCells === undefined && rowStart === from) cellsByColumn.set(columnName, columnData);
        else cellsByColumn.set(columnName, insertParquetPage(earlierCells ?? [], columnData, rowStart - from));
      },
    }).catch((error: unknown) => {
      throw createParquetError(name, error);
    });
    return cellsByColumn;
  }

  let groupEnd = 0;
  for (const { num_rows } of fileMetadata.row_groups) {
    const rowCount = Number(num_rows);
    const groupStart = groupEnd;
    groupEnd += rowCount;
    const cellsByColumn =
      rowCount > LARGE_ROW_GROUP_ROWS ? null : await readParquetColumns(columnsInFile, groupStart, groupEnd);
    await columns.addRows(rowCount, async (index) => {
      const columnName = table.columns[index]?.name ?? "";
      if (!columnsInFile.includes(columnName)) return null;
      await yieldIfBusy();
      return (cellsByColumn ?? (await readParquetColumns([columnName], groupStart, groupEnd))).get(columnName) ?? null;
    });
    await yieldIfBusy();
  }
}

function insertParquetPage(earlierCells: ColumnCells, page: ColumnCells, position: number): ColumnCells {
  const cells = Array.isArray(earlierCells) ? earlierCells : Array.from(earlierCells);
  for (let n = 0; n < page.length; n++) cells[position + n] = page[n];
  return cells;
}

export const readRowCount = (bytes: Uint8Array, name: string): number =>
  Number(parseParquetMetadata(toArrayBuffer(bytes), name).num_rows);

function toArrayBuffer(bytes: Uint8Array): ArrayBuffer {
  const { buffer, byteLength } = bytes;
  const isEntireBuffer = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  return isEntireBuffer ? buffer : Uint8Array.from(bytes).buffer;
}

function hasColumnType(element: SchemaElement | undefined, type: ColumnType): boolean {
  return element?.type === PARQUET_TYPES[type].type && element?.converted_type === PARQUET_TYPES[type].converted_type;
}

function parseParquetMetadata(buffer: ArrayBuffer, name: string, parsers = {}): FileMetaData {
  try {
    return parquetMetadata(buffer, { parsers });
  } catch (error) {
    throw createParquetError(name, error);
  }
}

function createParquetError(name: string, cause: unknown): ConfigError {
  return new ConfigError(`${name} cannot be read as a Parquet file.`, {
    hint: "Somebody else has written or damaged it: move it out of the lake, or put the right one back.",
    cause,
  });
}

function createColumnTypeError(name: string, column: Column): ConfigError {
  return new ConfigError(`In ${name} the column ${column.name} is not of the type ${column.type}.`, {
    hint: "Somebody else writes into this lake: choose another folder or prefix, or move that file out of it.",
  });
}
