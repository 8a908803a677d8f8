import type { LakeTable } from "../shared/lake/table-model.ts";
import type { LakePartition } from "./lake-paths.ts";
import type { StoredLakeFile } from "./object-store.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import type { StoredCompaction } from "./sink-state.ts";

export interface LakeFileReader {
  readonly location: string;
  /** Reads a file; null if the file was removed meanwhile, which is an error in a Delta table. */
  readFile(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
}

/** Defines a table's files: all in the folder (plain-table-format.ts), or those in a log (delta-table-format.ts). */
export interface LakeTableFormat extends LakeFileReader {
  readonly name: "plain" | "delta";
  /** Creates a table. Throws ConfigError if the table's folder has files of another program. */
  createTable(table: LakeTable, signal: AbortSignal): Promise<void>;
  /** File name of a commit, without the ending. */
  buildFileName(commitName: string): string;
  /** Lists the keys of files that a commit may write. The sink stores the keys first, so a restart finds the files. */
  listPossibleKeys(rows: RowsToCommit, fileName: string): readonly string[];
  /** Writes rows; returns the keys of the files that now belong to the lake. */
  commit(lakeCommit: LakeCommit, signal: AbortSignal): Promise<readonly string[]>;
  discardFiles(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Lists the files of a partition, ascending by key. */
  listFiles(partition: LakePartition, signal: AbortSignal): Promise<readonly StoredLakeFile[]>;
  /** Yields the partitions of a divided table. Calls `signal` at each step, because each step has its own signal. */
  listPartitions(table: LakeTable, signal: () => AbortSignal): AsyncGenerator<LakePartition>;
  /** Merges the files of a partition into a sorted file without duplicate rows. */
  mergeFiles(partition: LakePartition, signal: AbortSignal): Promise<void>;
  /** Joins the small files of partitions of one table. */
  joinFiles(partitions: readonly LakePartition[], signal: AbortSignal): Promise<void>;
  /** Completes or undoes compactions that a crash interrupted. */
  finishCompaction(compactions: readonly StoredCompaction[], signal: AbortSignal): Promise<void>;
  /** Repairs files at the start: moves misplaced rows of earlier Plenum versions, creates removed tables again. */
  repairFiles(signal: AbortSignal): Promise<void>;
  /** Removes files that readers no longer need, if due. Called every few seconds. */
  vacuum?(signal: AbortSignal): Promise<void>;
}

export interface RowsToCommit {
  readonly batches: readonly PartitionBatch[];
  readonly updatedPartitions: readonly PartitionUpdates[];
}

export interface LakeCommit extends RowsToCommit {
  readonly name: string;
  /** Writer and its last position in the event log; null for redelivered events and events outside this log. */
  readonly writerPosition: {
    readonly writerId: string;
    readonly lastPosition: number;
    /** True for a repeated commit: any part of the commit may already be in the lake. */
    readonly isRepeated: boolean;
  } | null;
  readonly uploaded: UploadedFileDigests;
}

/** Content digest by key of the files that an unfinished commit has uploaded. */
export type UploadedFileDigests = Map<string, string>;
