import type { Table } from "../shared/lake/table.ts";
import type { StoredFile } from "./object-store.ts";
import type { Partition } from "./paths.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import type { Compaction } from "./sink-state.ts";

export interface LakeFiles {
  readonly where: string;
  /** Null where the file was removed meanwhile, which a Delta log forbids. */
  read(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
}

/** Decides which files belong to a table: those in its folder (plain-format.ts) or in its log (delta-format.ts). */
export interface TableFormat extends LakeFiles {
  readonly name: "plain" | "delta";
  /** Throws ConfigError where foreign files are in the table's folder. */
  createTable(table: Table, signal: AbortSignal): Promise<void>;
  /** File name of a commit, without the ending. */
  fileNameOf(commit: string): string;
  /** Keys that a commit may put, stored before the commit so that they can be found after a crash. */
  possibleKeysOf(rows: CommitRows, name: string): readonly string[];
  /** Returns the keys of its files that belong to the lake. */
  commit(work: CommitWork, signal: AbortSignal): Promise<readonly string[]>;
  discard(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Ascending by key. */
  filesOf(partition: Partition, signal: AbortSignal): Promise<readonly StoredFile[]>;
  /** Partitions of a divided table. Requests a signal for each step, since the caller may pause. */
  partitions(table: Table, signal: () => AbortSignal): AsyncGenerator<Partition>;
  /** Merges the files of a partition into a sorted one without duplicate rows. */
  compact(partition: Partition, signal: AbortSignal): Promise<void>;
  join(table: Table, partitions: readonly Partition[], signal: AbortSignal): Promise<void>;
  /** Completes or undoes compactions that a crash interrupted. */
  finishCompaction(compactions: readonly Compaction[], signal: AbortSignal): Promise<void>;
  /** Repairs at the start what an earlier version left or a person removed. */
  repairFiles(signal: AbortSignal): Promise<void>;
  /** Removes files that readers no longer need, where due. Called every few seconds. */
  vacuum?(signal: AbortSignal): Promise<void>;
}

export interface CommitRows {
  readonly batches: readonly PartitionBatch[];
  readonly changes: readonly Change[];
}

export interface CommitWork extends CommitRows {
  readonly name: string;
  /** Null for redelivered events and events without a log position. */
  readonly positions: {
    readonly writerId: string;
    readonly through: number;
    /** True after an interrupted commit: any part of the commit may be in the lake. */
    readonly isRepeated: boolean;
  } | null;
  readonly uploaded: UploadedFiles;
}

/** Content digest by key of the files that an unfinished commit has uploaded. */
export type UploadedFiles = Map<string, string>;
