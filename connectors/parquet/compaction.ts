import { type Columns, createColumns, sortedOnce } from "./columns.ts";
import { parquetOf, readParquet, rowsOf } from "./parquet-file.ts";
import type { Partition } from "./paths.ts";

/** Rows that are in memory at a time, about 35 MB; a day with more of them keeps several files. */
const MAX_ROWS = 300_000;

/** One file in place of several. */
export interface Compacted {
  /** Keys of the files that it was made of; two or more. */
  readonly sources: readonly string[];
  readonly bytes: Uint8Array;
  readonly columns: Columns;
  /** In the order of the file. */
  readonly rows: Uint32Array;
}

/** Makes one file of several, sorted, each row once, and hands it to `replace`; of a large partition several. */
export async function compact(
  { table }: Partition,
  keys: readonly string[],
  tools: {
    readonly read: (key: string) => Promise<Uint8Array | null>;
    /** For a person. */
    readonly nameOf: (key: string) => string;
    readonly replace: (compacted: Compacted) => Promise<void>;
    readonly signal: AbortSignal;
    /** Rows of a file at most. */
    readonly maxRows?: number;
  },
): Promise<void> {
  const { maxRows = MAX_ROWS, nameOf, read, replace, signal } = tools;
  let columns = createColumns(table);
  let sources: string[] = [];

  async function close(): Promise<void> {
    const [all, group] = [columns, sources];
    columns = createColumns(table);
    sources = [];
    if (group.length < 2) return;
    const rows = sortedOnce(all);
    await replace({ sources: group, bytes: await parquetOf(all, rows), columns: all, rows });
  }

  for (const key of keys) {
    signal.throwIfAborted();
    const bytes = await read(key);
    if (bytes === null) continue;
    if (columns.length + rowsOf(bytes, nameOf(key)) > maxRows) await close();
    await readParquet(bytes, columns, nameOf(key));
    sources.push(key);
  }
  await close();
}
