import type { LakePartition } from "./lake-paths.ts";
import { type ColumnBounds, concatenateParquet, encodeParquet, readParquetRows, readRowCount } from "./parquet-file.ts";
import { type ColumnarRows, createColumnarRows, sortDistinctRows } from "./rows-to-columns.ts";
import type { LakeTableFormat } from "./table-format.ts";

/**
 * Compacts a partition in two stages, so that no row is encoded more than twice:
 *   each commit        5f0c…-101-130.parquet  5f0c…-131-170.parquet …    4 an hour
 *   once an hour       hour-….parquet     row groups of the small files, concatenated
 *   after the day      day-….parquet      decoded, sorted, without duplicates, encoded
 */

/** Limit of rows in a merged file and in memory (35 MB); a larger day keeps several files. */
const MAX_MERGED_FILE_ROWS = 300_000;
/** Number of `hour-` files in a partition at which these files are joined again into one. */
const MIN_REJOIN_FILES = 8;
const MAX_JOINED_FILE_BYTES = 32_000_000;
const MAX_SMALL_FILE_BYTES = 8_000_000;
const JOINED_FILE_NAME = /\/hour-[^/]*$/;
const MERGED_FILE_NAME = /\/day-[^/]*$/;

export interface CompactedFile {
  readonly partition: LakePartition;
  readonly kind: "day" | "hour";
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  readonly rows: number;
  readonly sourceRows: number;
  /** Rows of the file, or only the column bounds of a file that was joined without decoding. */
  readonly content:
    | { readonly columns: ColumnarRows; readonly rows: Uint32Array }
    | { readonly bounds: readonly ColumnBounds[] };
}

export async function mergePartitionFiles(
  format: LakeTableFormat,
  partition: LakePartition,
  signal: AbortSignal,
  replaceFiles: (compactedFile: CompactedFile) => Promise<void>,
  maxRows = MAX_MERGED_FILE_ROWS,
): Promise<void> {
  let columns = createColumnarRows(partition.table);
  let sourceFileKeys: string[] = [];
  /** First file, decoded only when another file follows: a single file stays unchanged. */
  let firstFile: { readonly bytes: Uint8Array; readonly key: string; readonly rows: number } | null = null;

  async function appendFileRows(key: string, bytes: Uint8Array): Promise<void> {
    await readParquetRows(bytes, columns, `${format.location}/${key}`);
    sourceFileKeys.push(key);
  }

  async function writeMergedFile(): Promise<void> {
    const [bufferedRows, sourceKeys] = [columns, sourceFileKeys];
    columns = createColumnarRows(partition.table);
    sourceFileKeys = [];
    firstFile = null;
    if (sourceKeys.length < 2) return;
    const rows = await sortDistinctRows(bufferedRows);
    const bytes = await encodeParquet(bufferedRows, rows);
    const content = { columns: bufferedRows, rows };
    const rowCounts = { rows: rows.length, sourceRows: bufferedRows.length };
    await replaceFiles({ partition, kind: "day", sources: sourceKeys, bytes, ...rowCounts, content });
  }

  // Merge small files first, so that files at the row limit stay unchanged.
  for (const { key } of (await format.listFiles(partition, signal)).toSorted((a, b) => a.bytes - b.bytes)) {
    signal.throwIfAborted();
    const bytes = await format.readFile(key, signal);
    if (bytes === null) continue;
    const rowCount = readRowCount(bytes, `${format.location}/${key}`);
    const bufferedRowCount: number = columns.length + (firstFile?.rows ?? 0);
    if (bufferedRowCount + rowCount > maxRows) await writeMergedFile();
    if (firstFile !== null) {
      await appendFileRows(firstFile.key, firstFile.bytes);
      firstFile = null;
    }
    if (sourceFileKeys.length === 0) firstFile = { bytes, key, rows: rowCount };
    else await appendFileRows(key, bytes);
  }
  await writeMergedFile();
}

/** Joins small files without decoding. Returns null for under two files, or if Plenum cannot join their row groups. */
export async function joinSmallFiles(
  format: LakeTableFormat,
  partition: LakePartition,
  signal: AbortSignal,
): Promise<CompactedFile | null> {
  const files = await format.listFiles(partition, signal);
  const smallFiles = files.filter(({ bytes, key }) => bytes <= MAX_SMALL_FILE_BYTES && !MERGED_FILE_NAME.test(key));
  const isRejoiningJoinedFiles = smallFiles.filter(({ key }) => JOINED_FILE_NAME.test(key)).length >= MIN_REJOIN_FILES;
  const selectedFiles = smallFiles.filter(({ key }) => isRejoiningJoinedFiles || !JOINED_FILE_NAME.test(key));
  const loadedFiles: { readonly bytes: Uint8Array; readonly key: string }[] = [];
  let joinedBytes = 0;
  for (const { bytes, key } of selectedFiles) {
    signal.throwIfAborted();
    joinedBytes += bytes;
    if (joinedBytes > MAX_JOINED_FILE_BYTES && loadedFiles.length > 1) break;
    const fileBytes = await format.readFile(key, signal);
    if (fileBytes !== null) loadedFiles.push({ bytes: fileBytes, key });
  }
  if (loadedFiles.length < 2) return null;
  const namedFiles = loadedFiles.map(({ bytes, key }) => ({ bytes, name: `${format.location}/${key}` }));
  const joinedFile = await concatenateParquet(partition.table, namedFiles);
  if (joinedFile === null) return null;
  const { bounds, bytes, rows } = joinedFile;
  const sources = loadedFiles.map(({ key }) => key);
  return { partition, kind: "hour", sources, bytes, rows, sourceRows: rows, content: { bounds } };
}
