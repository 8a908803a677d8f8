import type { Table } from "../shared/lake/table.ts";
import type { StoredFile } from "./object-store.ts";
import type { Partition } from "./paths.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import type { Compaction } from "./sink-state.ts";

/** Content of the files in the lake. */
export interface LakeFiles {
  /** Location of the lake, for messages. */
  readonly where: string;
  /** Returns the content of a file; null where it was removed meanwhile, which a Delta log forbids. */
  read(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
}

/** Decides which files belong to a table: those in its folder (plain-format.ts) or in its log (delta-format.ts). */
export interface TableFormat extends LakeFiles {
  readonly name: "plain" | "delta";
  /** Creates the table with all its columns. Throws ConfigError where foreign files are in its folder. */
  make(table: Table, signal: AbortSignal): Promise<void>;
  /** File name of a staged commit, without the ending. */
  nameOf(commit: string): string;
  /** Keys that a commit may put. They are stored before the commit, because only the sink state finds them later. */
  keysOf(rows: CommitRows, name: string): readonly string[];
  /** Puts the rows into the lake. Returns the keys of its files that belong to the lake. */
  commit(work: CommitWork, signal: AbortSignal): Promise<readonly string[]>;
  /** Removes files of a commit that do not belong to the lake. */
  discard(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Lists the files of a partition, ascending by key. */
  filesOf(partition: Partition, signal: AbortSignal): Promise<readonly StoredFile[]>;
  /** Yields all partitions of a divided table. Requests a signal for each step, since the caller may pause. */
  partitions(table: Table, signal: () => AbortSignal): AsyncGenerator<Partition>;
  /** Merges the files of a partition into one, sorted, without duplicate rows. */
  compact(partition: Partition, signal: AbortSignal): Promise<void>;
  /** Concatenates the small files of each partition into one file. */
  join(table: Table, partitions: readonly Partition[], signal: AbortSignal): Promise<void>;
  /** Completes or undoes compactions that a crash interrupted. */
  finishCompaction(compactions: readonly Compaction[], signal: AbortSignal): Promise<void>;
  /** Called once after the start: repairs what an earlier version left or a person removed. */
  prepare(signal: AbortSignal): Promise<void>;
  /** Called every few seconds: removes files that readers no longer need, where due. */
  tidy?(signal: AbortSignal): Promise<void>;
}

export interface CommitRows {
  readonly batches: readonly PartitionBatch[];
  readonly changes: readonly Change[];
}

export interface CommitWork extends CommitRows {
  /** File name without the ending. */
  readonly name: string;
  /** Null for redelivered events and events without a log position: only their missing rows are committed. */
  readonly positions: {
    readonly writerId: string;
    readonly through: number;
    /** True after an interrupted commit: any part of it may be in the lake. */
    readonly isRepeated: boolean;
  } | null;
  readonly uploaded: UploadedFiles;
}

/** Content digest by key of the uploaded files of an unfinished commit, which may need more than one write. */
export type UploadedFiles = Map<string, string>;
