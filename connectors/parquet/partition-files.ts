import { hash } from "node:crypto";
import { applyRowUpdates, type LakeRow, type LakeTable } from "../shared/lake/table-model.ts";
import type { ObjectStore } from "./object-store.ts";
import { encodeParquet, readParquetRows } from "./parquet-file.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { createColumnarRows, createRowSorter, ROWS_BETWEEN_YIELDS, yieldIfBusy } from "./rows-to-columns.ts";
import type { LakeFileReader, UploadedFileDigests } from "./table-format.ts";

/** Number of concurrent uploads; a distant storage needs 50 ms for each object. */
const MAX_CONCURRENT_UPLOADS = 8;

export interface UploadedRowBatch {
  readonly key: string;
  readonly bytes: number;
  readonly rows: Uint32Array;
  readonly batch: PartitionBatch;
}

export async function putBatchFiles(
  batches: readonly PartitionBatch[],
  buildFileKey: (batch: PartitionBatch, digest: string) => string,
  store: ObjectStore,
  uploadedDigests: UploadedFileDigests,
  signal: AbortSignal,
): Promise<readonly UploadedRowBatch[]> {
  const uploadedFiles: UploadedRowBatch[] = [];
  const pendingUploads = new Set<Promise<void>>();
  const uploadErrors: unknown[] = [];
  try {
    for (const batch of batches) {
      if (uploadErrors.length > 0) break;
      signal.throwIfAborted();
      const rows = await batch.sortRowIndexes();
      const bytes = await encodeParquet(batch.columns, rows);
      const contentDigest = computeContentDigest(bytes);
      const key = buildFileKey(batch, contentDigest);
      uploadedFiles.push({ key, bytes: bytes.length, rows, batch });
      if (uploadedDigests.get(key) === contentDigest) continue;
      const upload = store.put(key, bytes, signal).then(
        () => void uploadedDigests.set(key, contentDigest),
        (error: unknown) => void uploadErrors.push(error),
      );
      pendingUploads.add(upload);
      void upload.finally(() => pendingUploads.delete(upload));
      if (pendingUploads.size >= MAX_CONCURRENT_UPLOADS) await Promise.race(pendingUploads);
    }
  } finally {
    await Promise.all(pendingUploads);
  }
  if (uploadErrors.length > 0) throw uploadErrors[0];
  return uploadedFiles;
}

export const computeContentDigest = (bytes: Uint8Array): string => hash("sha256", bytes, "base64");

/** Returns the file that replaces a partition's files; null if the updates change nothing. Safe to repeat. */
export async function encodeReplacementFile(
  { updates, partition: { table } }: PartitionUpdates,
  fileKeys: readonly string[],
  fileReader: LakeFileReader,
  signal: AbortSignal,
) {
  const storedRows = await readTableRows(table, fileKeys, fileReader, signal);
  const mergedRows = applyRowUpdates(table, storedRows, updates);
  if (mergedRows === storedRows) return null;
  const columns = createColumnarRows(table);
  const rowIndexes: number[] = [];
  for (const row of mergedRows) {
    rowIndexes.push(columns.add(row));
    if (rowIndexes.length % ROWS_BETWEEN_YIELDS === 0) await yieldIfBusy();
  }
  const rows = await createRowSorter(columns)(rowIndexes);
  return { bytes: await encodeParquet(columns, rows), columns, rows };
}

/** Reads the rows of files. Skips files that no longer exist. */
export async function readTableRows(
  table: LakeTable,
  fileKeys: readonly string[],
  { readFile, location }: LakeFileReader,
  signal: AbortSignal,
) {
  const columns = createColumnarRows(table);
  for (const key of fileKeys) {
    const bytes = await readFile(key, signal);
    if (bytes !== null) await readParquetRows(bytes, columns, `${location}/${key}`);
  }
  const rows: LakeRow[] = [];
  for (let row = 0; row < columns.length; row++) {
    rows.push(table.columns.map((_, index) => columns.getCell(index, row)));
    if (row % ROWS_BETWEEN_YIELDS === 0) await yieldIfBusy();
  }
  return rows;
}
