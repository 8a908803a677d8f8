import { Rejected } from "../../src/core/errors/errors.ts";
import type { Cell, ColumnType } from "../shared/lake/table-model.ts";

/**
 * Cells of one column as a binary statement parameter: one value where all rows have the same cell, otherwise an array.
 *
 *   dimensions 1 · has null · type · length · lower bound 1 · (bytes · value)*       (-1 bytes is null)
 *
 * Integers are big-endian; a time is microseconds since 2000.
 * https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES, array_recv in arrayfuncs.c
 */
export interface StatementParameter {
  readonly isArray: boolean;
  readonly bytes: Buffer | null;
}

export type ColumnWriter = ReturnType<typeof createColumnWriter>;

/** PostgreSQL type and its object id (part of an encoded array) for each column type. */
export const SQL_TYPES: Readonly<Record<ColumnType, { readonly name: string; readonly oid: number }>> = {
  text: { name: "text", oid: 25 },
  time: { name: "timestamp with time zone", oid: 1184 },
  number: { name: "double precision", oid: 701 },
  integer: { name: "bigint", oid: 20 },
  boolean: { name: "boolean", oid: 16 },
  json: { name: "jsonb", oid: 25 },
};

const SQL_ARRAY_HEADER_BYTES = 20;
/** First size of the buffer, enough for 20 numbers. Later batches start with the size of the batch before. */
const INITIAL_COLUMN_BUFFER_BYTES = 256;
const EMPTY_BUFFER = Buffer.alloc(0);

/** Creates a column writer. `columnName` is for messages; with `isAlwaysList` even equal cells become an array. */
export function createColumnWriter(columnName: string, type: ColumnType, isAlwaysList = false) {
  const writeCell = CELL_WRITER_BY_COLUMN_TYPE[type];
  let bytes = EMPTY_BUFFER;
  let nextBufferBytes = INITIAL_COLUMN_BUFFER_BYTES;
  let offset = SQL_ARRAY_HEADER_BYTES;
  let rowCount = 0;
  let hasNull = false;
  let areCellsEqual = true;
  let lastCell: Cell = null;
  let lastCellOffset = 0;

  function reserveBufferBytes(additionalBytes: number): void {
    if (offset + additionalBytes <= bytes.length) return;
    const largerBuffer = Buffer.allocUnsafe(Math.max(nextBufferBytes, 2 * bytes.length, offset + additionalBytes));
    bytes.copy(largerBuffer, 0, 0, offset);
    bytes = largerBuffer;
  }

  function appendCell(cell: Cell): void {
    if (cell === null) {
      reserveBufferBytes(4);
      lastCellOffset = offset;
      offset = bytes.writeInt32BE(-1, offset);
      hasNull = true;
    } else {
      reserveBufferBytes(4 + maxCellBytes(cell));
      const endOffset = writeCell(cell, bytes, offset + 4, columnName);
      bytes.writeInt32BE(endOffset - offset - 4, offset);
      lastCellOffset = offset;
      offset = endOffset;
    }
    lastCell = cell;
  }

  function repeatLastCell(): void {
    const lastCellBytes = offset - lastCellOffset;
    reserveBufferBytes(lastCellBytes);
    bytes.copyWithin(offset, lastCellOffset, offset);
    lastCellOffset = offset;
    offset += lastCellBytes;
  }

  return {
    pushCell(cell: Cell): void {
      if (rowCount === 0) appendCell(cell);
      else if (cell === lastCell) {
        if (!areCellsEqual || isAlwaysList) repeatLastCell();
      } else {
        if (areCellsEqual && !isAlwaysList) for (let row = 1; row < rowCount; row++) repeatLastCell();
        areCellsEqual = false;
        appendCell(cell);
      }
      rowCount++;
    },
    takeParameter(): StatementParameter {
      const isArrayParameter = !areCellsEqual || isAlwaysList;
      const parameter = { isArray: isArrayParameter, bytes: isArrayParameter ? encodeCellArray() : encodeScalar() };
      bytes = EMPTY_BUFFER;
      nextBufferBytes = Math.max(INITIAL_COLUMN_BUFFER_BYTES, offset);
      offset = SQL_ARRAY_HEADER_BYTES;
      rowCount = 0;
      hasNull = false;
      areCellsEqual = true;
      return parameter;
    },
  };

  function encodeCellArray(): Buffer {
    const header = [1, hasNull ? 1 : 0, SQL_TYPES[type].oid, rowCount, 1];
    for (const [n, field] of header.entries()) bytes.writeInt32BE(field, 4 * n);
    return bytes.subarray(0, offset);
  }

  function encodeScalar(): Buffer | null {
    return hasNull ? null : bytes.subarray(SQL_ARRAY_HEADER_BYTES + 4, offset);
  }
}

type CellEncoder = (cell: Exclude<Cell, null>, buffer: Buffer, offset: number, columnName: string) => number;

const CELL_WRITER_BY_COLUMN_TYPE: Readonly<Record<ColumnType, CellEncoder>> = {
  text: (cell, buffer, offset) => writeTextCell(toPostgresText(String(cell)), buffer, offset),
  json: (cell, buffer, offset) => writeTextCell(toPostgresJson(String(cell)), buffer, offset),
  number: (cell, buffer, offset) => buffer.writeDoubleBE(Number(cell), offset),
  boolean: (cell, buffer, offset) => buffer.writeUInt8(cell === true ? 1 : 0, offset),
  integer: (cell, buffer, offset, columnName) => writeIntegerCell(Number(cell), buffer, offset, columnName),
  time: (cell, buffer, offset, columnName) => writeTimeCell(Number(cell), buffer, offset, columnName),
};

const maxCellBytes = (cell: Exclude<Cell, null>): number => (typeof cell === "string" ? 3 * cell.length : 8);

const writeTextCell = (text: string, dest: Buffer, offset: number): number => offset + dest.write(text, offset, "utf8");

/** Replaces U+0000, which PostgreSQL cannot store, and lone surrogates by U+FFFD. */
export function toPostgresText(text: string): string {
  const wellFormedText = text.isWellFormed() ? text : text.toWellFormed();
  return wellFormedText.includes("\0") ? wellFormedText.replaceAll("\0", "\ufffd") : wellFormedText;
}

/** Replaces U+0000 and lone surrogates in JSON escapes; `\\u0000` is a backslash and five letters. */
function toPostgresJson(json: string): string {
  if (!json.includes("\\u")) return json;
  return json.replace(
    /\\(?:u(?:0000|d[89ab][0-9a-f]{2}(?:\\ud[c-f][0-9a-f]{2})?|d[c-f][0-9a-f]{2})|.)/gi,
    // An escape of six characters is U+0000 or a lone surrogate; a pair has twelve, other escapes have two.
    (sequence) => (sequence.length === 6 ? "\\ufffd" : sequence),
  );
}

const TWO_TO_32 = 2 ** 32;
const INT64_LIMIT = 2 ** 63;

function writeIntegerCell(number: number, buffer: Buffer, offset: number, columnName: string): number {
  if (!Number.isInteger(number) || number >= INT64_LIMIT || number < -INT64_LIMIT)
    throw new Rejected(`${columnName} is ${number}, which is no whole number of 64 bits.`);
  if (!Number.isSafeInteger(number)) return buffer.writeBigInt64BE(BigInt(number), offset);
  return writeInt64(number, buffer, offset);
}

/** Epoch of PostgreSQL in microseconds since 1970, and its earliest time (4714-11-24 BC) in milliseconds. */
const POSTGRES_EPOCH_MICROS = 946_684_800_000_000;
const EARLIEST_POSTGRES_TIME_MS = -210_866_803_200_000;

function writeTimeCell(timeMs: number, buffer: Buffer, offset: number, columnName: string): number {
  if (!Number.isFinite(timeMs) || timeMs < EARLIEST_POSTGRES_TIME_MS || timeMs > 8.64e15)
    throw new Rejected(`${columnName} is no moment that PostgreSQL knows.`);
  const microsSincePostgresEpoch = Math.round(timeMs * 1_000) - POSTGRES_EPOCH_MICROS;
  if (Number.isSafeInteger(microsSincePostgresEpoch)) return writeInt64(microsSincePostgresEpoch, buffer, offset);
  return buffer.writeBigInt64BE(BigInt(Math.round(timeMs)) * 1_000n - BigInt(POSTGRES_EPOCH_MICROS), offset);
}

function writeInt64(number: number, buffer: Buffer, offset: number): number {
  const highWord = Math.floor(number / TWO_TO_32);
  buffer.writeInt32BE(highWord, offset);
  return buffer.writeUInt32BE(number - highWord * TWO_TO_32, offset + 4);
}
