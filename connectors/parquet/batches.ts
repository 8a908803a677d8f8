import { createHash } from "node:crypto";
import type { Row, Table } from "../shared/lake/table.ts";
import { applyUpdates } from "../shared/lake/table.ts";
import { type Columns, createColumns, pause, sorting } from "./columns.ts";
import type { ObjectStore } from "./object-store.ts";
import { parquetOf, readParquet } from "./parquet-file.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import type { UploadedFiles } from "./table-format.ts";

/** Uploads at a time: a distant storage needs 50 ms for each object, however small. */
const AT_ONCE = 8;

export interface PutFile {
  readonly key: string;
  readonly bytes: number;
  /** In the order of the file. */
  readonly rows: Uint32Array;
  readonly batch: PartitionBatch;
}

/** Puts each batch as a file into its partition's folder. All files are durable when it resolves. */
export async function putBatches(options: {
  readonly batches: readonly PartitionBatch[];
  /** Returns the key of a batch's file with this content. */
  readonly keyFor: (batch: PartitionBatch, digest: string) => string;
  readonly store: ObjectStore;
  readonly uploaded: UploadedFiles;
  readonly signal: AbortSignal;
}): Promise<readonly PutFile[]> {
  const { uploaded, keyFor, batches, signal, store } = options;
  const files: PutFile[] = [];
  const uploads = new Set<Promise<void>>();
  const faults: unknown[] = [];
  try {
    for (const batch of batches) {
      if (faults.length > 0) break;
      signal.throwIfAborted();
      const rows = await batch.sorted();
      const bytes = await parquetOf(batch.columns, rows);
      const digest = digestOf(bytes);
      const key = keyFor(batch, digest);
      files.push({ key, bytes: bytes.length, rows, batch });
      if (uploaded.get(key) === digest) continue;
      const put = store.put(key, bytes, signal).then(
        () => void uploaded.set(key, digest),
        (error: unknown) => void faults.push(error),
      );
      uploads.add(put);
      void put.finally(() => uploads.delete(put));
      if (uploads.size >= AT_ONCE) await Promise.race(uploads);
    }
  } finally {
    await Promise.all(uploads);
  }
  if (faults.length > 0) throw faults[0];
  return files;
}

export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64");
}

/** Rows copied between two checks of the time: 1,000 rows of tags take 2 ms. */
const ROWS_AT_ONCE = 1_000;

interface Replacement {
  readonly bytes: Uint8Array;
  readonly columns: Columns;
  /** In the order of the file. */
  readonly rows: Uint32Array;
}

/**
 * Returns the file that replaces those of a partition whose rows change; null where the updates change nothing.
 * Applying the same updates twice changes nothing, so a repetition after a crash is safe.
 */
export async function replacementOf(
  { updates, partition: { table } }: Change,
  keys: readonly string[],
  read: (key: string) => Promise<Uint8Array | null>,
  nameOf: (key: string) => string,
): Promise<Replacement | null> {
  const stored = await rowsOfFiles(table, keys, read, nameOf);
  const merged = applyUpdates(table, stored, updates);
  if (merged === stored) return null;
  const columns = createColumns(table);
  const added: number[] = [];
  for (const row of merged) {
    added.push(columns.add(row));
    if (added.length % ROWS_AT_ONCE === 0) await pause();
  }
  const rows = await sorting(columns)(added);
  return { bytes: await parquetOf(columns, rows), columns, rows };
}

/** Returns all rows of some files of a table. Missing files are skipped. */
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
