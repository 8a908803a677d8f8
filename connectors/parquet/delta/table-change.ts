import { randomUUID } from "node:crypto";
import { VERSION } from "../../../src/core/runtime/version.ts";
import type { Table } from "../../shared/lake/table-model.ts";
import { encodePath, type LogAction, relativePath } from "./log-format.ts";
import { buildMetaData, checkAppendOnly, fitTableSchema, type PartitionColumn, WRITTEN_PROTOCOL } from "./schema.ts";
import { lastPartitionChange, type PartitionValues, partitionKey, type Snapshot } from "./snapshot.ts";
import type { FileStatistics } from "./statistics.ts";

export interface AddedFile {
  /** Storage key, never that of an earlier file of the table, which readers may still use. */
  readonly key: string;
  readonly bytes: number;
  readonly rows: number;
  readonly partitionValues: PartitionValues;
  readonly stats: FileStatistics;
}

export interface TableChange {
  readonly add: readonly AddedFile[];
  readonly remove: readonly string[];
  /** Application and version: the change is already done if the log has this version or a higher one. */
  readonly txn: { readonly appId: string; readonly version: number } | null;
  readonly operation: "WRITE" | "MERGE" | "OPTIMIZE";
  /** False for compaction: readers that follow the table skip the change. */
  readonly dataChange: boolean;
  /** Table version of the rows read, or null; a later change of the same partitions is a conflict. */
  readonly basedOn: number | null;
}

export const EMPTY_CHANGE: TableChange = {
  add: [],
  remove: [],
  txn: null,
  operation: "WRITE",
  dataChange: true,
  basedOn: null,
};

/** Outcome of a commit. After a conflict, build the change again from the current rows. */
export type CommitOutcome =
  | { readonly outcome: "committed"; readonly version: number }
  | { readonly outcome: "done-before" }
  | { readonly outcome: "conflict"; readonly reason: string };

export interface DeltaTableLocation {
  readonly table: Table;
  readonly prefix: string;
  readonly partitionColumns: readonly PartitionColumn[];
  readonly where: string;
}

/** Returns null if the change can be written, otherwise why not: already done, or a conflict. */
export function precheckCommit(change: TableChange, before: Snapshot, prefix: string): CommitOutcome | null {
  const { add, remove, txn, basedOn } = change;
  const lastAppVersion = txn === null ? undefined : before.txns.get(txn.appId)?.version;
  if (lastAppVersion !== undefined && txn !== null && lastAppVersion >= txn.version) return { outcome: "done-before" };
  const removedFiles = remove.map((key) => before.files.get(relativePath(key, prefix)));
  if (removedFiles.includes(undefined)) {
    return { outcome: "conflict", reason: "Somebody else took a file away that was to be replaced." };
  }
  for (const { key } of add) {
    if (before.files.has(relativePath(key, prefix))) {
      throw new Error(`The file ${key} is in the table already, and its name may not be used twice.`);
    }
  }
  if (basedOn === null) return null;
  const partitions = [...add, ...removedFiles.flatMap((file) => file ?? [])];
  if (partitions.some(({ partitionValues }) => lastPartitionChange(before, partitionKey(partitionValues)) > basedOn)) {
    return { outcome: "conflict", reason: "Somebody else changed rows of the same day and site meanwhile." };
  }
  return null;
}

/** Builds the actions of a commit. Throws ConfigError if the table does not accept the actions. */
export function buildCommitActions(
  { add, basedOn, dataChange, operation, remove, txn }: TableChange,
  before: Snapshot,
  { table, prefix, partitionColumns, where }: DeltaTableLocation,
  id: string,
  nowMs: number,
): readonly LogAction[] {
  const commitInfo = {
    timestamp: nowMs,
    operation,
    operationParameters: {},
    ...(before.version >= 0 && { readVersion: before.version }),
    isBlindAppend: remove.length === 0 && basedOn === null,
    engineInfo: `Plenum/${VERSION}`,
    txnId: id,
  };
  const actions: LogAction[] = [{ commitInfo }];
  if (before.metaData === null) {
    actions.push({ protocol: WRITTEN_PROTOCOL });
    actions.push({ metaData: buildMetaData(table, partitionColumns, randomUUID(), nowMs) });
  } else {
    const metaData = fitTableSchema(before.metaData, table, partitionColumns, where);
    checkAppendOnly(metaData, dataChange && remove.length > 0, where);
    if (metaData !== before.metaData) actions.push({ metaData });
  }
  if (txn !== null) actions.push({ txn: { ...txn, lastUpdated: nowMs } });
  for (const key of remove) {
    const storedFile = before.files.get(relativePath(key, prefix));
    if (storedFile === undefined) throw new Error(`The file ${key} is not in the table.`);
    const { path, partitionValues, size } = storedFile;
    const removal = { path, deletionTimestamp: nowMs, dataChange, extendedFileMetadata: true, partitionValues, size };
    actions.push({ remove: removal });
  }
  for (const { key, bytes, rows, partitionValues, stats } of add) {
    const action = { path: encodePath(key, prefix), partitionValues, size: bytes, modificationTime: nowMs, dataChange };
    actions.push({ add: { ...action, stats: JSON.stringify({ numRecords: rows, ...stats }) } });
  }
  return actions;
}
