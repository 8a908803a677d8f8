import { randomUUID } from "node:crypto";
import { VERSION } from "../../../src/core/runtime/version.ts";
import type { LakeTable } from "../../shared/lake/table-model.ts";
import { type DeltaLogAction, encodeDataFilePath, getPathInTableFolder } from "./log-format.ts";
import {
  addMissingColumns,
  buildDeltaMetaData,
  checkAppendOnlyTable,
  type PartitionColumn,
  WRITTEN_DELTA_PROTOCOL,
} from "./schema.ts";
import { type DeltaSnapshot, getChangeVersion, type PartitionValues, partitionKey } from "./snapshot.ts";
import type { DeltaFileStatistics } from "./statistics.ts";

export interface AddedTableFile {
  /** Storage key of a new file. Keys are never reused, because readers may still use an earlier file. */
  readonly key: string;
  readonly bytes: number;
  readonly rows: number;
  readonly partitionValues: PartitionValues;
  readonly stats: DeltaFileStatistics;
}

export interface DeltaTableChange {
  readonly add: readonly AddedTableFile[];
  readonly remove: readonly string[];
  /** Application and version: the change is already done if the log has this version or a higher one. */
  readonly txn: { readonly appId: string; readonly version: number } | null;
  readonly operation: "WRITE" | "MERGE" | "OPTIMIZE";
  /** False for compaction: readers that follow the table skip the change. */
  readonly dataChange: boolean;
  /** Table version from which the change was built, or null. A later change of the same partitions is a conflict. */
  readonly basedOn: number | null;
}

export const EMPTY_TABLE_CHANGE: DeltaTableChange = {
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
  readonly table: LakeTable;
  readonly prefix: string;
  readonly partitionColumns: readonly PartitionColumn[];
  readonly location: string;
}

/** Returns null if the change can be written, otherwise why not: already done, or a conflict. */
export function precheckCommit(
  change: DeltaTableChange,
  snapshot: DeltaSnapshot,
  prefix: string,
): CommitOutcome | null {
  const { add, remove, txn, basedOn } = change;
  const lastTxnVersion = txn === null ? undefined : snapshot.txns.get(txn.appId)?.version;
  if (lastTxnVersion !== undefined && txn !== null && lastTxnVersion >= txn.version) return { outcome: "done-before" };
  const removedFiles = remove.map((key) => snapshot.files.get(getPathInTableFolder(key, prefix)));
  if (removedFiles.includes(undefined))
    return { outcome: "conflict", reason: "Somebody else took a file away that was to be replaced." };
  for (const { key } of add) {
    if (snapshot.files.has(getPathInTableFolder(key, prefix)))
      throw new Error(`The file ${key} is in the table already, and its name may not be used twice.`);
  }
  if (basedOn === null) return null;
  const changedFiles = [...add, ...removedFiles.flatMap((file) => file ?? [])];
  if (changedFiles.some(({ partitionValues }) => getChangeVersion(snapshot, partitionKey(partitionValues)) > basedOn))
    return { outcome: "conflict", reason: "Somebody else changed rows of the same day and site meanwhile." };
  return null;
}

/** Builds the actions of a commit. Throws ConfigError if the table does not accept the actions. */
export function buildCommitActions(
  { add, basedOn, dataChange, operation, remove, txn }: DeltaTableChange,
  snapshot: DeltaSnapshot,
  { table, prefix, partitionColumns, location }: DeltaTableLocation,
  commitId: string,
  nowMs: number,
): readonly DeltaLogAction[] {
  const commitInfo = {
    timestamp: nowMs,
    operation,
    operationParameters: {},
    ...(snapshot.version >= 0 && { readVersion: snapshot.version }),
    isBlindAppend: remove.length === 0 && basedOn === null,
    engineInfo: `Plenum/${VERSION}`,
    txnId: commitId,
  };
  const commitActions: DeltaLogAction[] = [{ commitInfo }];
  if (snapshot.metaData === null) {
    commitActions.push({ protocol: WRITTEN_DELTA_PROTOCOL });
    commitActions.push({ metaData: buildDeltaMetaData(table, partitionColumns, randomUUID(), nowMs) });
  } else {
    const metaData = addMissingColumns(snapshot.metaData, table, partitionColumns, location);
    checkAppendOnlyTable(metaData, dataChange && remove.length > 0, location);
    if (metaData !== snapshot.metaData) commitActions.push({ metaData });
  }
  if (txn !== null) commitActions.push({ txn: { ...txn, lastUpdated: nowMs } });
  for (const key of remove) {
    const removedTableFile = snapshot.files.get(getPathInTableFolder(key, prefix));
    if (removedTableFile === undefined) throw new Error(`The file ${key} is not in the table.`);
    const { path, partitionValues, size } = removedTableFile;
    const removal = { path, deletionTimestamp: nowMs, dataChange, extendedFileMetadata: true, partitionValues, size };
    commitActions.push({ remove: removal });
  }
  for (const { key, bytes, rows, partitionValues, stats } of add) {
    const path = encodeDataFilePath(key, prefix);
    const addedFileFields = { path, partitionValues, size: bytes, modificationTime: nowMs, dataChange };
    commitActions.push({ add: { ...addedFileFields, stats: JSON.stringify({ numRecords: rows, ...stats }) } });
  }
  return commitActions;
}
