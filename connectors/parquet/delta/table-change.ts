import { randomUUID } from "node:crypto";
import { VERSION } from "../../../src/core/runtime/version.ts";
import type { LakeTable } from "../../shared/lake/table-model.ts";
import { buildTableFolder } from "../lake-paths.ts";
import { type DeltaLogAction, encodeDataFilePath, getPathInTableFolder } from "./log-format.ts";
import { addMissingColumns, buildDeltaMetaData, checkAppendOnlyTable, WRITTEN_DELTA_PROTOCOL } from "./schema.ts";
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
  /** Id and version of Delta's `txn`: the change is already done if the log has this version or a higher one. */
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
export type CommitOutcome = "committed" | "done-before" | "conflict";

/** Returns null if the change can be written, otherwise why not: already done, or a conflict. */
export function precheckCommit(
  change: DeltaTableChange,
  snapshot: DeltaSnapshot,
  prefix: string,
): CommitOutcome | null {
  const { add, remove, txn, basedOn } = change;
  const lastTxnVersion = txn === null ? undefined : snapshot.txns.get(txn.appId)?.version;
  if (lastTxnVersion !== undefined && txn !== null && lastTxnVersion >= txn.version) return "done-before";
  const removedFiles = remove.map((key) => snapshot.files.get(getPathInTableFolder(key, prefix)));
  if (removedFiles.includes(undefined)) return "conflict";
  for (const { key } of add) {
    if (snapshot.files.has(getPathInTableFolder(key, prefix)))
      throw new Error(`The file ${key} is in the table already, and its name may not be used twice.`);
  }
  if (basedOn === null) return null;
  const changedFiles = [...add, ...removedFiles.flatMap((file) => file ?? [])];
  const isChanged = changedFiles.some(
    ({ partitionValues }) => getChangeVersion(snapshot, partitionKey(partitionValues)) > basedOn,
  );
  return isChanged ? "conflict" : null;
}

/** Builds the actions of a commit. Throws ConfigError if the table does not accept the actions. */
export function buildCommitActions(
  { add, basedOn, dataChange, operation, remove, txn }: DeltaTableChange,
  snapshot: DeltaSnapshot,
  table: LakeTable,
  tablePath: string,
  commitId: string,
  nowMs: number,
): readonly DeltaLogAction[] {
  const prefix = buildTableFolder(table);
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
    commitActions.push({ metaData: buildDeltaMetaData(table, randomUUID(), nowMs) });
  } else {
    const metaData = addMissingColumns(snapshot.metaData, table, tablePath);
    checkAppendOnlyTable(metaData, dataChange && remove.length > 0, tablePath);
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
