import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { fileSize } from "./state-folder.ts";

/** SQLite's record format: https://www.sqlite.org/fileformat2.html. Damaged bytes give null; every read is bounded. */
export type StoredValue = string | number | null | Uint8Array;

/** Reads a varint: seven bits a byte, the high bit means that more follow; the ninth byte has eight bits. */
function readVarint(bytes: Buffer, offset: number): { readonly value: number; readonly nextOffset: number } | null {
  let value = 0;
  for (let n = 0; n < 9; n += 1) {
    const byte = bytes[offset + n];
    if (byte === undefined) return null;
    value = n === 8 ? value * 256 + byte : value * 128 + (byte & 0x7f);
    if (n === 8 || byte < 0x80) return Number.isSafeInteger(value) ? { value, nextOffset: offset + n + 1 } : null;
  }
  return null;
}

const BYTES_BY_INTEGER_TYPE = [0, 1, 2, 3, 4, 6, 8];

function parseSqliteRecord(payload: Buffer): readonly StoredValue[] | null {
  const headerVarint = readVarint(payload, 0);
  if (headerVarint === null || headerVarint.value > payload.length) return null;
  const values: StoredValue[] = [];
  let valueOffset = headerVarint.value;
  for (let typeOffset = headerVarint.nextOffset; typeOffset < headerVarint.value; ) {
    const serialTypeVarint = readVarint(payload, typeOffset);
    if (serialTypeVarint === null) return null;
    const valueSize = valueSizeOfType(serialTypeVarint.value);
    if (valueSize === null || valueOffset + valueSize > payload.length) return null;
    values.push(decodeSqliteValue(serialTypeVarint.value, payload.subarray(valueOffset, valueOffset + valueSize)));
    valueOffset += valueSize;
    typeOffset = serialTypeVarint.nextOffset;
  }
  return values;
}

function valueSizeOfType(type: number): number | null {
  if (type >= 12) return Math.floor((type - 12) / 2);
  if (type === 8 || type === 9) return 0;
  return type === 7 ? 8 : (BYTES_BY_INTEGER_TYPE[type] ?? null);
}

function decodeSqliteValue(type: number, bytes: Buffer): StoredValue {
  if (type >= 12) return type % 2 === 0 ? bytes : bytes.toString("utf8");
  if (type === 0) return null;
  if (type === 7) return bytes.readDoubleBE(0);
  if (type === 8 || type === 9) return type - 8;
  return bytes.length === 8 ? Number(bytes.readBigInt64BE(0)) : bytes.readIntBE(0, bytes.length);
}

/** Size of a page of the state file. With pages of 4 kB, a commit of one value would cost 50 % more. */
export const SQLITE_PAGE_BYTES = 2_048;
const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const SQLITE_FILE_MAGIC = "SQLite format 3\0";
const SQLITE_FILE_HEADER_BYTES = 100;
/** The last bit selects the byte order of the log's checksums: 0 for little-endian. */
const WAL_MAGIC = 0x377f0682;
const TABLE_LEAF_PAGE_TYPE = 0x0d;
const INDEX_LEAF_PAGE_TYPE = 0x0a;
const pageHeaderOffset = (page: number) => (page === 1 ? SQLITE_FILE_HEADER_BYTES : 0);

export interface SqliteRowCell {
  readonly rowid: number | null;
  readonly values: readonly StoredValue[];
}

export type SqlitePages = ReturnType<typeof openSqlitePages>;

/**
 * Reads rows from single pages of a database file and its write-ahead log. Callers verify each row by its checksum.
 * `valid` uses only the commits that SQLite would read; `all` also those behind a damaged part of the log.
 */
export function openSqlitePages(path: string, wal: "valid" | "all") {
  const databaseFileDescriptor = openSync(path, "r");
  const walPath = `${path}-wal`;
  const walFd = fileSize(walPath) > WAL_HEADER_BYTES ? openSync(walPath, "r") : null;
  const pageBytes = readDatabasePageSize(databaseFileDescriptor, walFd);
  const walOffsets =
    walFd === null ? new Map<number, number>() : findCommittedPages(walFd, fileSize(walPath), pageBytes, wal);
  const pageCount = Math.max(Math.floor(fileSize(path) / pageBytes), ...walOffsets.keys());

  function readDatabasePage(page: number): Buffer | null {
    if (page < 1 || page > pageCount) return null;
    const walOffset = walOffsets.get(page);
    return walOffset !== undefined && walFd !== null
      ? readFileRange(walFd, walOffset, pageBytes)
      : readFileRange(databaseFileDescriptor, (page - 1) * pageBytes, pageBytes);
  }

  /** Reads the payload of a row: a part in its cell, and the rest in a chain of overflow pages. */
  function readRowPayload(bytes: Buffer, at: number, payloadSize: number, isTable: boolean): Buffer | null {
    const cellBytes = payloadBytesInCell(payloadSize, isTable, pageBytes);
    const payloadParts = [bytes.subarray(at, at + cellBytes)];
    let remainingBytes = payloadSize - cellBytes;
    let nextPage = remainingBytes > 0 && at + cellBytes + 4 <= bytes.length ? bytes.readUInt32BE(at + cellBytes) : 0;
    // No row is longer than the file, so a chain that runs in a circle ends.
    if (remainingBytes > pageCount * pageBytes) return null;
    while (remainingBytes > 0) {
      const page = readDatabasePage(nextPage);
      if (page === null) return null;
      payloadParts.push(page.subarray(4, 4 + remainingBytes));
      remainingBytes -= pageBytes - 4;
      nextPage = page.readUInt32BE(0);
    }
    return Buffer.concat(payloadParts);
  }

  function parseRowCell(bytes: Buffer, cellOffset: number, isTable: boolean): SqliteRowCell | null {
    const payloadSizeVarint = readVarint(bytes, cellOffset);
    const rowid = payloadSizeVarint !== null && isTable ? readVarint(bytes, payloadSizeVarint.nextOffset) : null;
    const payloadOffset = isTable ? rowid?.nextOffset : payloadSizeVarint?.nextOffset;
    if (payloadSizeVarint === null || payloadOffset === undefined) return null;
    const fullPayload = readRowPayload(bytes, payloadOffset, payloadSizeVarint.value, isTable);
    const values = fullPayload === null ? null : parseSqliteRecord(fullPayload);
    return values === null ? null : { rowid: rowid?.value ?? null, values };
  }

  return {
    count: pageCount,
    readPage: readDatabasePage,
    /** Returns the number of rows that a leaf page states; it is larger than the number of rows that can be read. */
    statedRowCount(page: number): number {
      const header = pageHeaderOffset(page);
      const bytes = readDatabasePage(page);
      const isLeafPage = bytes?.[header] === TABLE_LEAF_PAGE_TYPE || bytes?.[header] === INDEX_LEAF_PAGE_TYPE;
      return isLeafPage ? (bytes?.readUInt16BE(header + 3) ?? 0) : 0;
    },
    /** Returns the readable rows of a leaf page; none for any other page. */
    readCells(page: number): readonly SqliteRowCell[] {
      const bytes = readDatabasePage(page);
      const headerOffset = pageHeaderOffset(page);
      const pageType = bytes?.[headerOffset];
      if (bytes === null || (pageType !== TABLE_LEAF_PAGE_TYPE && pageType !== INDEX_LEAF_PAGE_TYPE)) return [];
      return Array.from({ length: bytes.readUInt16BE(headerOffset + 3) }, (_, n) => headerOffset + 8 + 2 * n)
        .filter((offset) => offset + 2 <= pageBytes)
        .map((offset) => parseRowCell(bytes, bytes.readUInt16BE(offset), pageType === TABLE_LEAF_PAGE_TYPE))
        .filter((cell) => cell !== null);
    },
    [Symbol.dispose](): void {
      closeSync(databaseFileDescriptor);
      if (walFd !== null) closeSync(walFd);
    },
  };
}

/** Returns how many bytes of a row lie in its cell, for pages without reserved space. */
function payloadBytesInCell(payloadSize: number, isTable: boolean, pageBytes: number): number {
  const maxCellPayloadBytes = isTable ? pageBytes - 35 : Math.floor(((pageBytes - 12) * 64) / 255) - 23;
  if (payloadSize <= maxCellPayloadBytes) return payloadSize;
  const minCellPayloadBytes = Math.floor(((pageBytes - 12) * 32) / 255) - 23;
  const fittingPayloadBytes = minCellPayloadBytes + ((payloadSize - minCellPayloadBytes) % (pageBytes - 4));
  return fittingPayloadBytes <= maxCellPayloadBytes ? fittingPayloadBytes : minCellPayloadBytes;
}

/** Reads the page size from the file, else from its write-ahead log; otherwise returns Plenum's default. */
function readDatabasePageSize(databaseFd: number, walFd: number | null): number {
  const fileHeader = readFileRange(databaseFd, 0, SQLITE_FILE_HEADER_BYTES);
  if (fileHeader?.toString("latin1", 0, SQLITE_FILE_MAGIC.length) === SQLITE_FILE_MAGIC) {
    // The stated size may be damaged. The default size is right if the stated number of pages then fills the file.
    if (fileHeader.readUInt32BE(28) * SQLITE_PAGE_BYTES === fstatSync(databaseFd).size) return SQLITE_PAGE_BYTES;
    // The two-byte field holds 1 for 65,536.
    const statedPageSize = fileHeader.readUInt16BE(16);
    const pageSize = statedPageSize === 1 ? 65_536 : statedPageSize;
    if (isValidPageSize(pageSize)) return pageSize;
  }
  const header = walFd === null ? null : readFileRange(walFd, 0, WAL_HEADER_BYTES);
  if (header !== null && isWalHeader(header) && isValidPageSize(header.readUInt32BE(8))) return header.readUInt32BE(8);
  return SQLITE_PAGE_BYTES;
}

function isValidPageSize(pageSize: number): boolean {
  return pageSize >= 512 && pageSize <= 65_536 && (pageSize & (pageSize - 1)) === 0;
}

function isWalHeader(header: Buffer): boolean {
  return (header.readUInt32BE(0) & ~1) === WAL_MAGIC;
}

/** True if SQLite will read the file's write-ahead log: SQLite ignores a log with a damaged header. */
export function hasReadableWal(path: string): boolean {
  if (fileSize(`${path}-wal`) <= WAL_HEADER_BYTES) return false;
  const walFd = openSync(`${path}-wal`, "r");
  try {
    const header = readFileRange(walFd, 0, WAL_HEADER_BYTES);
    return header !== null && isWalHeader(header) && walChecksumMatches(header, 24, walHeaderChecksum(header));
  } finally {
    closeSync(walFd);
  }
}

type WalChecksum = readonly [first: number, second: number];

function walChecksumMatches(bytes: Buffer, offset: number, [first, second]: WalChecksum): boolean {
  return first === bytes.readUInt32BE(offset) && second === bytes.readUInt32BE(offset + 4);
}

function walHeaderChecksum(header: Buffer): WalChecksum {
  return addToWalChecksum(header, [0, 0], header.subarray(0, 24));
}

/** Continues the checksum of a write-ahead log; each frame includes the frames before: https://www.sqlite.org/walformat.html */
function addToWalChecksum(logHeader: Buffer, previousChecksum: WalChecksum, bytes: Buffer): WalChecksum {
  const isBigEndian = logHeader.readUInt32BE(0) !== WAL_MAGIC;
  let [first, second] = previousChecksum;
  for (let offset = 0; offset < bytes.length; offset += 8) {
    first = (first + (isBigEndian ? bytes.readUInt32BE(offset) : bytes.readUInt32LE(offset)) + second) >>> 0;
    second = (second + (isBigEndian ? bytes.readUInt32BE(offset + 4) : bytes.readUInt32LE(offset + 4)) + first) >>> 0;
  }
  return [first, second];
}

/** Finds the offset of the newest committed copy of each page in a write-ahead log. */
function findCommittedPages(walFd: number, size: number, pageBytes: number, wal: "valid" | "all"): Map<number, number> {
  const header = readFileRange(walFd, 0, WAL_HEADER_BYTES);
  const walOffsetByCommittedPage = new Map<number, number>();
  if (header === null || !isWalHeader(header) || header.readUInt32BE(8) !== pageBytes) return walOffsetByCommittedPage;
  let checksum = walHeaderChecksum(header);
  if (wal === "valid" && !walChecksumMatches(header, 24, checksum)) return walOffsetByCommittedPage;
  let uncommittedPages = new Map<number, number>();
  for (let at = WAL_HEADER_BYTES; at + FRAME_HEADER_BYTES + pageBytes <= size; at += FRAME_HEADER_BYTES + pageBytes) {
    const walFrame = readFileRange(walFd, at, FRAME_HEADER_BYTES + pageBytes);
    // Frames of an earlier generation of the log have another salt.
    if (walFrame === null || !walFrame.subarray(8, 16).equals(header.subarray(16, 24))) break;
    if (wal === "valid") {
      checksum = addToWalChecksum(header, checksum, walFrame.subarray(0, 8));
      checksum = addToWalChecksum(header, checksum, walFrame.subarray(FRAME_HEADER_BYTES));
      if (!walChecksumMatches(walFrame, 16, checksum)) break;
    }
    uncommittedPages.set(walFrame.readUInt32BE(0), at + FRAME_HEADER_BYTES);
    if (walFrame.readUInt32BE(4) === 0) continue;
    for (const [page, offset] of uncommittedPages) walOffsetByCommittedPage.set(page, offset);
    uncommittedPages = new Map();
  }
  return walOffsetByCommittedPage;
}

function readFileRange(fd: number, offset: number, size: number): Buffer | null {
  const bytes = Buffer.alloc(size);
  try {
    return readSync(fd, bytes, 0, size, offset) === size ? bytes : null;
  } catch {
    // Ignore a read error of one page: the disk may still read the next page.
    return null;
  }
}

/** Type of a free page in the pointer map of a file with auto_vacuum. */
const FREE_PAGE_TYPE = 2;

/** Describes damage of the list of free pages, which lets SQLite overwrite another table. Null without damage. */
export function findFreePageProblem(pages: SqlitePages): string | null {
  const header = pages.readPage(1);
  if (header === null || header.toString("latin1", 0, SQLITE_FILE_MAGIC.length) !== SQLITE_FILE_MAGIC) return null;
  // Write and read version, and three constants: https://www.sqlite.org/fileformat2.html#the_database_header
  const constantHeaderBytes = [header[18], header[19], header[21], header[22], header[23]];
  if (constantHeaderBytes.some((byte, n) => (n < 2 ? byte !== 1 && byte !== 2 : byte !== (n === 2 ? 64 : 32))))
    return "its header is not what SQLite writes";
  const hasPointerMapPages = header.readUInt32BE(52) > 0;
  const pagesPerPointerMap = Math.floor(header.length / 5) + 1;
  const isFreePage = (page: number) => {
    if (page < 3 || page > pages.count) return false;
    const map = 2 + Math.floor((page - 2) / pagesPerPointerMap) * pagesPerPointerMap;
    return map !== page && (!hasPointerMapPages || pages.readPage(map)?.[5 * (page - map - 1)] === FREE_PAGE_TYPE);
  };
  const seenPages = new Set<number>();
  for (let trunkPage = header.readUInt32BE(32); trunkPage !== 0; ) {
    const bytes = pages.readPage(trunkPage);
    if (bytes === null || seenPages.has(trunkPage) || !isFreePage(trunkPage))
      return `page ${trunkPage} is in the list of free pages`;
    seenPages.add(trunkPage);
    const leafPageCount = bytes.readUInt32BE(4);
    if (8 + 4 * leafPageCount > bytes.length) return `page ${trunkPage} of the list of free pages is not whole`;
    for (let n = 0; n < leafPageCount; n += 1) {
      const leafPage = bytes.readUInt32BE(8 + 4 * n);
      if (seenPages.has(leafPage) || !isFreePage(leafPage)) return `page ${leafPage} is in the list of free pages`;
      seenPages.add(leafPage);
    }
    trunkPage = bytes.readUInt32BE(0);
  }
  const freePageCount = header.readUInt32BE(36);
  return seenPages.size === freePageCount ? null : `it has ${seenPages.size} free pages instead of ${freePageCount}`;
}
