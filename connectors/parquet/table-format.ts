import type { Table } from "../shared/lake/table.ts";
import type { Partition } from "./paths.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import type { Compaction } from "./sink-state.ts";

/**
 * Decides which files in the lake belong to a table: those in its folder (plain-format.ts), or those in its log
 * (delta-format.ts). Buffering, commits, sink state and finalized days are the same for both.
 */
export interface TableFormat {
  readonly name: "plain" | "delta";
  /** Creates the table with all its columns. Throws ConfigError where other files are in its place. */
  make(table: Table, signal: AbortSignal): Promise<void>;
  /** File name of a staged commit, without the ending. */
  nameOf(work: string): string;
  /**
   * Keys that a commit may put and that only the sink state can find after a crash; they are recorded before.
   */
  keysOf(rows: CommitRows, name: string): readonly string[];
  /** Puts the rows into the lake. Returns the keys of its files that belong to the lake. */
  commit(work: CommitWork, signal: AbortSignal): Promise<readonly string[]>;
  /** Removes files of a commit that do not belong to the lake. */
  discard(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Lists the files of a partition, ascending by key. */
  filesOf(partition: Partition, signal: AbortSignal): Promise<readonly StoredFile[]>;
  /**
   * Yields all partitions of a divided table. Requests a signal for each step, since the caller may pause for
   * long.
   */
  partitions(table: Table, signal: () => AbortSignal): AsyncGenerator<Partition>;
  /** Returns the content of a file; null where it was removed meanwhile, which a Delta log forbids. */
  read(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
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

export interface StoredFile {
  readonly key: string;
  readonly bytes: number;
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

/**
 * Uploaded files of an unfinished commit: content digest by key. A commit of thousands of objects may need more
 * than one write, and continues where it stopped.
 */
export type UploadedFiles = Map<string, string>;
