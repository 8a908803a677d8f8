import { createHash } from "node:crypto";
import type { Row, Table } from "../shared/lake/table.ts";
import { withNews } from "../shared/lake/table.ts";
import { type Columns, createColumns, pause, sorting } from "./columns.ts";
import type { ObjectStore } from "./object-store.ts";
import { parquetOf, readParquet } from "./parquet-file.ts";
import type { Change, Portion } from "./row-buffer.ts";
import type { Arrived } from "./table-format.ts";

/** Objects on their way at a time: a storage far away takes 50 ms for each, however small. */
const AT_ONCE = 8;

export interface PutFile {
  readonly key: string;
  readonly bytes: number;
  /** In the order of the file. */
  readonly rows: Uint32Array;
  readonly portion: Portion;
}

/** Puts each portion as a file into its folder; all of them are durable when it resolves. */
export async function putPortions(options: {
  readonly portions: readonly Portion[];
  /** The key for a portion's file of this content. */
  readonly keyFor: (portion: Portion, digest: string) => string;
  readonly store: ObjectStore;
  readonly arrived: Arrived;
  readonly signal: AbortSignal;
}): Promise<readonly PutFile[]> {
  const { arrived, keyFor, portions, signal, store } = options;
  const files: PutFile[] = [];
  const underWay = new Set<Promise<void>>();
  const faults: unknown[] = [];
  try {
    for (const portion of portions) {
      if (faults.length > 0) break;
      signal.throwIfAborted();
      const rows = await portion.sorted();
      const bytes = await parquetOf(portion.columns, rows);
      const digest = digestOf(bytes);
      const key = keyFor(portion, digest);
      files.push({ key, bytes: bytes.length, rows, portion });
      if (arrived.get(key) === digest) continue;
      const put = store.put(key, bytes, signal).then(
        () => void arrived.set(key, digest),
        (error: unknown) => void faults.push(error),
      );
      underWay.add(put);
      void put.finally(() => underWay.delete(put));
      if (underWay.size >= AT_ONCE) await Promise.race(underWay);
    }
  } finally {
    await Promise.all(underWay);
  }
  if (faults.length > 0) throw faults[0];
  return files;
}

export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64");
}

/** Rows that are copied between two looks at the time: 1,000 rows of tags take 2 ms. */
const ROWS_AT_ONCE = 1_000;

interface Replacement {
  readonly bytes: Uint8Array;
  readonly columns: Columns;
  /** In the order of the file. */
  readonly rows: Uint32Array;
}

/**
 * The file that replaces those of a partition whose rows change; null where the news say nothing new. To be told the same
 * twice changes nothing, so a repetition after a crash needs no care.
 */
export async function replacementOf(
  { news, partition: { table } }: Change,
  keys: readonly string[],
  read: (key: string) => Promise<Uint8Array | null>,
  nameOf: (key: string) => string,
): Promise<Replacement | null> {
  const held = await rowsOfFiles(table, keys, read, nameOf);
  const merged = withNews(table, held, news);
  if (merged === held) return null;
  const columns = createColumns(table);
  const added: number[] = [];
  for (const row of merged) {
    added.push(columns.add(row));
    if (added.length % ROWS_AT_ONCE === 0) await pause();
  }
  const rows = await sorting(columns)(added);
  return { bytes: await parquetOf(columns, rows), columns, rows };
}

/** All rows of some files of a table; of a file that is gone, none. */
export async function rowsOfFiles(
  table: Table,
  keys: readonly string[],
  read: (key: string) => Promise<Uint8Array | null>,
  nameOf: (key: string) => string,
): Promise<readonly Row[]> {
  const columns = createColumns(table);
  for (const key of keys) {
    const bytes = await read(key);
    if (bytes !== null) await readParquet(bytes, columns, nameOf(key));
  }
  const rows: Row[] = [];
  for (let row = 0; row < columns.length; row++) {
    rows.push(table.columns.map((_, place) => columns.cell(place, row)));
    if (row % ROWS_AT_ONCE === 0) await pause();
  }
  return rows;
}
