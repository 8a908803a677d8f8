import { randomUUID } from "node:crypto";
import { VERSION } from "../../../src/core/runtime/version.ts";
import type { Table } from "../../shared/lake/table.ts";
import { type Action, decodedPathOf, pathOf } from "./log-format.ts";
import { checkAppendOnly, fitSchema, newMetaData, type PartitionColumn, PROTOCOL } from "./schema.ts";
import { lastChangeOf, type PartitionValues, partitionKey, type Snapshot } from "./snapshot.ts";
import type { Statistics } from "./statistics.ts";

export interface AddedFile {
  /** Never the key of an earlier file of the table, which readers may still use. */
  readonly key: string;
  readonly bytes: number;
  readonly rows: number;
  readonly partitionValues: PartitionValues;
  readonly stats: Statistics;
}

export interface Change {
  readonly add: readonly AddedFile[];
  readonly remove: readonly string[];
  /** The change is done where the log has this version of the application or a higher one. */
  readonly txn: { readonly appId: string; readonly version: number } | null;
  readonly operation: "WRITE" | "MERGE" | "OPTIMIZE";
  /** False in compaction: readers that follow the table skip the change. */
  readonly dataChange: boolean;
  /** Table version of the rows read; a later change of the same partitions is a conflict. Null where no rows were read. */
  readonly basedOn: number | null;
}

export const EMPTY_CHANGE: Change = {
  add: [],
  remove: [],
  txn: null,
  operation: "WRITE",
  dataChange: true,
  basedOn: null,
};

/** After a conflict, the change must be made again from the current rows. */
export type CommitOutcome =
  | { readonly outcome: "committed"; readonly version: number }
  | { readonly outcome: "done-before" }
  | { readonly outcome: "conflict"; readonly reason: string };

export interface TableLocation {
  readonly table: Table;
  readonly prefix: string;
  readonly partitionColumns: readonly PartitionColumn[];
  readonly where: string;
}

/** Returns null where the change can be written. */
export function earlyOutcome(change: Change, before: Snapshot, prefix: string): CommitOutcome | null {
  const { add, remove, txn, basedOn } = change;
  const last = txn === null ? undefined : before.txns.get(txn.appId)?.version;
  if (last !== undefined && txn !== null && last >= txn.version) return { outcome: "done-before" };
  const removed = remove.map((key) => before.files.get(decodedPathOf(key, prefix)));
  if (removed.includes(undefined)) {
    return { outcome: "conflict", reason: "Somebody else took a file away that was to be replaced." };
  }
  for (const { key } of add) {
    if (before.files.has(decodedPathOf(key, prefix))) {
      throw new Error(`The file ${key} is in the table already, and its name may not be used twice.`);
    }
  }
  if (basedOn === null) return null;
  const partitions = [...add, ...removed.flatMap((file) => file ?? [])];
  if (partitions.some(({ partitionValues }) => lastChangeOf(before, partitionKey(partitionValues)) > basedOn)) {
    return { outcome: "conflict", reason: "Somebody else changed rows of the same day and site meanwhile." };
  }
  return null;
}

/** Actions of a commit. Throws ConfigError where the table does not accept them. */
export function actionsOf(
  { add, basedOn, dataChange, operation, remove, txn }: Change,
  before: Snapshot,
  { table, prefix, partitionColumns, where }: TableLocation,
  id: string,
  nowMs: number,
): readonly Action[] {
  const commitInfo = {
    timestamp: nowMs,
    operation,
    operationParameters: {},
    // delta-rs cannot show the history of a table where this is below zero.
    ...(before.version >= 0 && { readVersion: before.version }),
    isBlindAppend: remove.length === 0 && basedOn === null,
    engineInfo: `Plenum/${VERSION}`,
    txnId: id,
  };
  const actions: Action[] = [{ commitInfo }];
  if (before.metaData === null) {
    actions.push({ protocol: PROTOCOL });
    actions.push({ metaData: newMetaData(table, partitionColumns, randomUUID(), nowMs) });
  } else {
    const metaData = fitSchema(before.metaData, table, partitionColumns, where);
    checkAppendOnly(metaData, dataChange && remove.length > 0, where);
    if (metaData !== before.metaData) actions.push({ metaData });
  }
  if (txn !== null) actions.push({ txn: { ...txn, lastUpdated: nowMs } });
  for (const key of remove) {
    const stored = before.files.get(decodedPathOf(key, prefix));
    if (stored === undefined) throw new Error(`The file ${key} is not in the table.`);
    const { path, partitionValues, size } = stored;
    const removed = { path, deletionTimestamp: nowMs, dataChange, extendedFileMetadata: true, partitionValues, size };
    actions.push({ remove: removed });
  }
  for (const { key, bytes, rows, partitionValues, stats } of add) {
    const added = { path: pathOf(key, prefix), partitionValues, size: bytes, modificationTime: nowMs, dataChange };
    actions.push({ add: { ...added, stats: JSON.stringify({ numRecords: rows, ...stats }) } });
  }
  return actions;
}
