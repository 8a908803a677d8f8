import { type Columns, createColumns, sortedOnce } from "./columns.ts";
import { type Bounds, joinedParquet, parquetOf, readParquet, rowsOf } from "./parquet-file.ts";
import type { Partition } from "./paths.ts";
import type { StoredFile } from "./table-format.ts";

/**
 * Compacts a partition in two stages, so that no row is encoded more than twice:
 *
 *   each commit        5f0c…-101-130.parquet  5f0c…-131-170.parquet …    4 an hour
 *   once an hour       hour-….parquet     their row groups, concatenated
 *   after the day      day-….parquet      decoded, sorted, without duplicates, encoded
 */

/** Rows in memory at a time, about 35 MB; a larger day keeps several files. */
const MAX_ROWS = 300_000;
/** Number of joined files at which they are joined again. */
const MOST_JOINED = 8;
/** Bytes joined at a time, and largest file that is worth joining. */
const JOIN_BYTES = 32_000_000;
const SMALL_BYTES = 8_000_000;
const JOINED = /\/hour-[^/]*$/;
const MERGED = /\/day-[^/]*$/;

/** File that replaces several others. */
export interface Compacted {
  /** Keys of the replaced files; two or more. */
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  /** Rows in the file and in its sources. */
  readonly rows: number;
  readonly sourceRows: number;
  /** Rows and their order in the file; only column bounds where the rows were not decoded. */
  readonly content: { readonly columns: Columns; readonly order: Uint32Array } | { readonly bounds: readonly Bounds[] };
}

export interface CompactionTools {
  readonly read: (key: string) => Promise<Uint8Array | null>;
  readonly nameOf: (key: string) => string;
  readonly signal: AbortSignal;
  readonly maxRows?: number;
}

/**
 * Merges files into one, sorted and without duplicates, and passes it to `replace`; a large partition gets
 * several.
 */
export async function merge(
  { table }: Partition,
  files: readonly StoredFile[],
  tools: CompactionTools & { readonly replace: (compacted: Compacted) => Promise<void> },
): Promise<void> {
  const { maxRows = MAX_ROWS, nameOf, read, replace, signal } = tools;
  let columns = createColumns(table);
  let sources: string[] = [];
  /** Decoded only when another file follows, because a single file stays as it is. */
  let first: { readonly bytes: Uint8Array; readonly key: string; readonly rows: number } | null = null;

  async function add(key: string, bytes: Uint8Array): Promise<void> {
    await readParquet(bytes, columns, nameOf(key));
    sources.push(key);
  }

  async function close(): Promise<void> {
    const [all, group] = [columns, sources];
    columns = createColumns(table);
    sources = [];
    first = null;
    if (group.length < 2) return;
    const rows = await sortedOnce(all);
    await replace({
      sources: group,
      bytes: await parquetOf(all, rows),
      rows: rows.length,
      sourceRows: all.length,
      content: { columns: all, order: rows },
    });
  }

  // Start with the smallest: a full file stays as it is.
  for (const { key } of files.toSorted((a, b) => a.bytes - b.bytes)) {
    signal.throwIfAborted();
    const bytes = await read(key);
    if (bytes === null) continue;
    const rows = rowsOf(bytes, nameOf(key));
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

/**
 * Joins small files into one without decoding them. Returns null where there are fewer than two, and where one of them
 * was written by another program or with other columns; those wait until the partition is merged.
 */
export async function join(
  { table }: Partition,
  files: readonly StoredFile[],
  { nameOf, read, signal }: CompactionTools,
): Promise<Compacted | null> {
  const small = files.filter(({ bytes, key }) => bytes <= SMALL_BYTES && !MERGED.test(key));
  const joined = small.filter(({ key }) => JOINED.test(key));
  const wanted = joined.length >= MOST_JOINED ? small : small.filter(({ key }) => !JOINED.test(key));
  const found: { readonly bytes: Uint8Array; readonly key: string; readonly name: string }[] = [];
  let size = 0;
  for (const { bytes, key } of wanted) {
    signal.throwIfAborted();
    size += bytes;
    if (size > JOIN_BYTES && found.length > 1) break;
    const content = await read(key);
    if (content !== null) found.push({ bytes: content, key, name: nameOf(key) });
  }
  if (found.length < 2) return null;
  const done = await joinedParquet(table, found);
  if (done === null) return null;
  const { bounds, bytes, rows } = done;
  return { sources: found.map(({ key }) => key), bytes, rows, sourceRows: rows, content: { bounds } };
}
