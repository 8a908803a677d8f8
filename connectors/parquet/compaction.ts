import { type Columns, createColumns, sortedOnce } from "./columns.ts";
import { type Bounds, joinedParquet, parquetOf, readParquet, rowsOf } from "./parquet-file.ts";
import type { Partition } from "./paths.ts";
import type { StoredFile } from "./table-format.ts";

/**
 * A partition is compacted in two stages, so that no row is encoded more often than twice:
 *
 *     each landing        5f0c…-101-130.parquet  5f0c…-131-170.parquet …    4 an hour
 *     once an hour        hour-….parquet     their row groups behind each other, as they are
 *     when the day is     day-….parquet      decoded, sorted, each row once, encoded
 *     over
 */

/** Rows that are in memory at a time, about 35 MB; a day with more of them keeps several files. */
const MAX_ROWS = 300_000;
/** Joined files of a partition; when there are so many, they are joined once more. */
const MOST_JOINED = 8;
/** Bytes that are joined at a time, and of a file that is still worth joining. */
const JOIN_BYTES = 32_000_000;
const SMALL_BYTES = 8_000_000;
const JOINED = /\/hour-[^/]*$/;
const MERGED = /\/day-[^/]*$/;

/** One file in place of several. */
export interface Compacted {
  /** Keys of the files that it was made of; two or more. */
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  /** Rows in the file, and how many its sources had. */
  readonly rows: number;
  readonly sourceRows: number;
  /** The rows by column and their order in the file; of a file whose rows were not decoded, the bounds of its columns. */
  readonly content:
    | { readonly columns: Columns; readonly order: Uint32Array }
    | { readonly bounds: readonly Bounds[] };
}

export interface CompactionTools {
  readonly read: (key: string) => Promise<Uint8Array | null>;
  /** For a person. */
  readonly nameOf: (key: string) => string;
  readonly signal: AbortSignal;
  /** Rows of a file at most. */
  readonly maxRows?: number;
}

/** Merges files into one, sorted, each row once, and gives it to `replace`; of a large partition several. */
export async function merge(
  { table }: Partition,
  files: readonly StoredFile[],
  tools: CompactionTools & { readonly replace: (compacted: Compacted) => Promise<void> },
): Promise<void> {
  const { maxRows = MAX_ROWS, nameOf, read, replace, signal } = tools;
  let columns = createColumns(table);
  let sources: string[] = [];
  /** A file that is decoded when another one follows, because a file alone stays as it is. */
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

  // The smallest first: a full file stays as it is.
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
