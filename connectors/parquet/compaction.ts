import { createColumns, sortDistinct } from "./columns.ts";
import { type Bounds, concatenateParquet, encodeParquet, readParquet, rowCountOf } from "./parquet-file.ts";
import type { EncodedRows } from "./partition-files.ts";
import type { Partition } from "./paths.ts";
import type { TableFormat } from "./table-format.ts";

/**
 * Compacts a partition in two stages, so that no row is encoded more than twice:
 *
 *   each commit        5f0c…-101-130.parquet  5f0c…-131-170.parquet …    4 an hour
 *   once an hour       hour-….parquet     their row groups, concatenated
 *   after the day      day-….parquet      decoded, sorted, without duplicates, encoded
 */

/** Rows in memory at a time, 35 MB; a larger day keeps several files. */
const MAX_ROWS = 300_000;
/** At this number of joined files, they are joined again. */
const MAX_JOINED_FILES = 8;
const JOIN_BYTES = 32_000_000;
const SMALL_BYTES = 8_000_000;
const JOINED_FILE = /\/hour-[^/]*$/;
const MERGED_FILE = /\/day-[^/]*$/;

export interface Compacted {
  readonly partition: Partition;
  readonly kind: "day" | "hour";
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  readonly rows: number;
  readonly sourceRows: number;
  /** Only column bounds where the rows were not decoded. */
  readonly content: EncodedRows | { readonly bounds: readonly Bounds[] };
}

/** Merges the files of a partition, sorted and without duplicates. A large partition gets several files. */
export async function mergeFiles(
  format: TableFormat,
  partition: Partition,
  signal: AbortSignal,
  replace: (compacted: Compacted) => Promise<void>,
  maxRows = MAX_ROWS,
): Promise<void> {
  let columns = createColumns(partition.table);
  let sources: string[] = [];
  /** A single file stays unchanged, so it is decoded only when another file follows. */
  let first: { readonly bytes: Uint8Array; readonly key: string; readonly rows: number } | null = null;

  async function add(key: string, bytes: Uint8Array): Promise<void> {
    await readParquet(bytes, columns, `${format.where}/${key}`);
    sources.push(key);
  }

  async function close(): Promise<void> {
    const [all, group] = [columns, sources];
    columns = createColumns(partition.table);
    sources = [];
    first = null;
    if (group.length < 2) return;
    const rows = await sortDistinct(all);
    const bytes = await encodeParquet(all, rows);
    const content = { bytes, columns: all, rows };
    const counts = { rows: rows.length, sourceRows: all.length };
    await replace({ partition, kind: "day", sources: group, bytes, ...counts, content });
  }

  // Start with the smallest: a full file stays unchanged.
  for (const { key } of (await format.filesOf(partition, signal)).toSorted((a, b) => a.bytes - b.bytes)) {
    signal.throwIfAborted();
    const bytes = await format.read(key, signal);
    if (bytes === null) continue;
    const rows = rowCountOf(bytes, `${format.where}/${key}`);
    const before: number = columns.length + (first?.rows ?? 0);
    if (before + rows > maxRows) await close();
    if (first !== null) {
      await add(first.key, first.bytes);
      first = null;
    }
    if (sources.length === 0) first = { bytes, key, rows };
    else await add(key, bytes);
  }
  await close();
}

/** Joins small files without decoding them; null for fewer than two, or where a file has other columns or another writer. */
export async function joinFiles(
  format: TableFormat,
  partition: Partition,
  signal: AbortSignal,
): Promise<Compacted | null> {
  const files = await format.filesOf(partition, signal);
  const small = files.filter(({ bytes, key }) => bytes <= SMALL_BYTES && !MERGED_FILE.test(key));
  const joined = small.filter(({ key }) => JOINED_FILE.test(key));
  const selected = joined.length >= MAX_JOINED_FILES ? small : small.filter(({ key }) => !JOINED_FILE.test(key));
  const found: { readonly bytes: Uint8Array; readonly key: string }[] = [];
  let size = 0;
  for (const { bytes, key } of selected) {
    signal.throwIfAborted();
    size += bytes;
    if (size > JOIN_BYTES && found.length > 1) break;
    const content = await format.read(key, signal);
    if (content !== null) found.push({ bytes: content, key });
  }
  if (found.length < 2) return null;
  const named = found.map(({ bytes, key }) => ({ bytes, name: `${format.where}/${key}` }));
  const result = await concatenateParquet(partition.table, named);
  if (result === null) return null;
  const { bounds, bytes, rows } = result;
  const sources = found.map(({ key }) => key);
  return { partition, kind: "hour", sources, bytes, rows, sourceRows: rows, content: { bounds } };
}
