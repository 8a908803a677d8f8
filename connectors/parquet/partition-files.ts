import { createHash } from "node:crypto";
import { applyUpdates, type Row, type Table } from "../shared/lake/table-model.ts";
import { type Columns, createColumns, createSorter, ROWS_PER_CHUNK, yieldIfBusy } from "./columnar-rows.ts";
import type { ObjectStore } from "./object-store.ts";
import { encodeParquet, readParquet } from "./parquet-file.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import type { LakeFiles, UploadedFiles } from "./table-format.ts";

/** Number of concurrent uploads; a distant storage needs 50 ms for each object. */
const UPLOADS_AT_ONCE = 8;

export interface EncodedRows {
  readonly bytes: Uint8Array;
  readonly columns: Columns;
  readonly rows: Uint32Array;
}

export interface UploadedBatch {
  readonly key: string;
  readonly bytes: number;
  readonly rows: Uint32Array;
  readonly batch: PartitionBatch;
}

/** Puts each batch as a file into its partition's folder. */
export async function putBatches(
  batches: readonly PartitionBatch[],
  keyFor: (batch: PartitionBatch, digest: string) => string,
  store: ObjectStore,
  uploaded: UploadedFiles,
  signal: AbortSignal,
): Promise<readonly UploadedBatch[]> {
  const files: UploadedBatch[] = [];
  const uploads = new Set<Promise<void>>();
  const errors: unknown[] = [];
  try {
    for (const batch of batches) {
      if (errors.length > 0) break;
      signal.throwIfAborted();
      const rows = await batch.sorted();
      const bytes = await encodeParquet(batch.columns, rows);
      const digest = computeDigest(bytes);
      const key = keyFor(batch, digest);
      files.push({ key, bytes: bytes.length, rows, batch });
      if (uploaded.get(key) === digest) continue;
      const upload = store.put(key, bytes, signal).then(
        () => void uploaded.set(key, digest),
        (error: unknown) => void errors.push(error),
      );
      uploads.add(upload);
      void upload.finally(() => uploads.delete(upload));
      if (uploads.size >= UPLOADS_AT_ONCE) await Promise.race(uploads);
    }
  } finally {
    await Promise.all(uploads);
  }
  if (errors.length > 0) throw errors[0];
  return files;
}

export function computeDigest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64");
}

/** Returns the file that replaces a partition's files; null if the updates change nothing. Safe to repeat. */
export async function encodeReplacement(
  { updates, partition: { table } }: PartitionUpdates,
  keys: readonly string[],
  files: LakeFiles,
  signal: AbortSignal,
): Promise<EncodedRows | null> {
  const storedRows = await readRows(table, keys, files, signal);
  const mergedRows = applyUpdates(table, storedRows, updates);
  if (mergedRows === storedRows) return null;
  const columns = createColumns(table);
  const rowIndexes: number[] = [];
  for (const row of mergedRows) {
    rowIndexes.push(columns.add(row));
    if (rowIndexes.length % ROWS_PER_CHUNK === 0) await yieldIfBusy();
  }
  const rows = await createSorter(columns)(rowIndexes);
  return { bytes: await encodeParquet(columns, rows), columns, rows };
}

/** Returns all rows of some files of a table. Missing files are skipped. */
export async function readRows(table: Table, keys: readonly string[], { read, where }: LakeFiles, signal: AbortSignal) {
  const columns = createColumns(table);
  for (const key of keys) {
    const bytes = await read(key, signal);
    if (bytes !== null) await readParquet(bytes, columns, `${where}/${key}`);
  }
  const rows: Row[] = [];
  for (let row = 0; row < columns.length; row++) {
    rows.push(table.columns.map((_, index) => columns.cell(index, row)));
    if (row % ROWS_PER_CHUNK === 0) await yieldIfBusy();
  }
  return rows;
}
