import { createColumns, sortDistinct } from "./columnar-rows.ts";
import type { LakePartition } from "./lake-paths.ts";
import { type ColumnBounds, concatenateParquet, encodeParquet, readParquet, readRowCount } from "./parquet-file.ts";
import type { EncodedRows } from "./partition-files.ts";
import type { TableFormat } from "./table-format.ts";

/**
 * Compacts a partition in two stages, so that no row is encoded more than twice:
 *
 *   each commit        5f0c…-101-130.parquet  5f0c…-131-170.parquet …    4 an hour
 *   once an hour       hour-….parquet     their row groups, concatenated
 *   after the day      day-….parquet      decoded, sorted, without duplicates, encoded
 */

/** Limit of rows in a merged file and in memory (35 MB); a larger day keeps several files. */
const MAX_MERGED_ROWS = 300_000;
/** Number of joined files at which the joined files are joined again. */
const REJOIN_FILE_COUNT = 8;
const MAX_JOINED_BYTES = 32_000_000;
const MAX_SMALL_FILE_BYTES = 8_000_000;
const JOINED_FILE = /\/hour-[^/]*$/;
const MERGED_FILE = /\/day-[^/]*$/;

export interface CompactedFile {
  readonly partition: LakePartition;
  readonly kind: "day" | "hour";
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  readonly rows: number;
  readonly sourceRows: number;
  /** Encoded rows, or only column bounds if the rows were not decoded. */
  readonly content: EncodedRows | { readonly bounds: readonly ColumnBounds[] };
}

export async function mergeFiles(
  format: TableFormat,
  partition: LakePartition,
  signal: AbortSignal,
  replace: (compacted: CompactedFile) => Promise<void>,
  maxRows = MAX_MERGED_ROWS,
): Promise<void> {
  let columns = createColumns(partition.table);
  let sources: string[] = [];
  /** First file; a single file stays unchanged, so this file is decoded only when another file follows. */
  let firstFile: { readonly bytes: Uint8Array; readonly key: string; readonly rows: number } | null = null;

  async function appendFile(key: string, bytes: Uint8Array): Promise<void> {
    await readParquet(bytes, columns, `${format.where}/${key}`);
    sources.push(key);
  }

  async function writeMergedFile(): Promise<void> {
    const [all, group] = [columns, sources];
    columns = createColumns(partition.table);
    sources = [];
    firstFile = null;
    if (group.length < 2) return;
    const rows = await sortDistinct(all);
    const bytes = await encodeParquet(all, rows);
    const content = { bytes, columns: all, rows };
    const counts = { rows: rows.length, sourceRows: all.length };
    await replace({ partition, kind: "day", sources: group, bytes, ...counts, content });
  }

  // Start with the smallest file: a full file stays unchanged.
  for (const { key } of (await format.filesOf(partition, signal)).toSorted((a, b) => a.bytes - b.bytes)) {
    signal.throwIfAborted();
    const bytes = await format.read(key, signal);
    if (bytes === null) continue;
    const rows = readRowCount(bytes, `${format.where}/${key}`);
    const bufferedRows: number = columns.length + (firstFile?.rows ?? 0);
    if (bufferedRows + rows > maxRows) await writeMergedFile();
    if (firstFile !== null) {
      await appendFile(firstFile.key, firstFile.bytes);
      firstFile = null;
    }
    if (sources.length === 0) firstFile = { bytes, key, rows };
    else await appendFile(key, bytes);
  }
  await writeMergedFile();
}

/** Joins small files without decoding. Returns null for fewer than two, or a file with other columns or writer. */
export async function joinFiles(
  format: TableFormat,
  partition: LakePartition,
  signal: AbortSignal,
): Promise<CompactedFile | null> {
  const files = await format.filesOf(partition, signal);
  const smallFiles = files.filter(({ bytes, key }) => bytes <= MAX_SMALL_FILE_BYTES && !MERGED_FILE.test(key));
  const isRejoiningJoinedFiles = smallFiles.filter(({ key }) => JOINED_FILE.test(key)).length >= REJOIN_FILE_COUNT;
  const selectedFiles = smallFiles.filter(({ key }) => isRejoiningJoinedFiles || !JOINED_FILE.test(key));
  const loadedFiles: { readonly bytes: Uint8Array; readonly key: string }[] = [];
  let joinedBytes = 0;
  for (const { bytes, key } of selectedFiles) {
    signal.throwIfAborted();
    joinedBytes += bytes;
    if (joinedBytes > MAX_JOINED_BYTES && loadedFiles.length > 1) break;
    const content = await format.read(key, signal);
    if (content !== null) loadedFiles.push({ bytes: content, key });
  }
  if (loadedFiles.length < 2) return null;
  const namedFiles = loadedFiles.map(({ bytes, key }) => ({ bytes, name: `${format.where}/${key}` }));
  const result = await concatenateParquet(partition.table, namedFiles);
  if (result === null) return null;
  const { bounds, bytes, rows } = result;
  const sources = loadedFiles.map(({ key }) => key);
  return { partition, kind: "hour", sources, bytes, rows, sourceRows: rows, content: { bounds } };
}
