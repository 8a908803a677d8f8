import type { Table } from "../shared/lake/table.ts";
import type { Partition } from "./paths.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import type { Compaction } from "./sink-state.ts";

/**
 * By what a file in the lake counts as rows of its table: by lying in its folder (plain-format.ts), or by a log that says
 * so (delta-format.ts). What is gathered, when it lands, what is remembered and when a day is sealed is the same.
 */
export interface TableFormat {
  readonly name: "plain" | "delta";
  /** Makes the table, with all its columns, where there is none. Throws ConfigError where something else lies there. */
  make(table: Table, signal: AbortSignal): Promise<void>;
  /** How the files of a landing are called, by what it is, without the ending. */
  nameOf(work: string): string;
  /** Keys that a landing may put and that nobody would find after a crash; they are written down before. */
  keysOf(rows: CommitRows, name: string): readonly string[];
  /** The rows are in the lake when it resolves. Answers the keys of which the lake consists now. */
  commit(work: CommitWork, signal: AbortSignal): Promise<readonly string[]>;
  /** Takes away what was put, or may have been, for a landing and is no part of the lake. */
  discard(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Files whose rows count, ascending by key. */
  filesOf(partition: Partition, signal: AbortSignal): Promise<readonly StoredFile[]>;
  /** All partitions of a table that is divided. Takes the signal anew for each step, since a caller may pause for long. */
  partitions(table: Table, signal: () => AbortSignal): AsyncGenerator<Partition>;
  /** The content of one of them; null where somebody has taken it away meanwhile, which a log does not allow. */
  read(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
  /** Merges the files of a partition into one, sorted, each row once. */
  compact(partition: Partition, signal: AbortSignal): Promise<void>;
  /** Joins the small files of some partitions of a table, as they are, into one file for each. */
  join(table: Table, partitions: readonly Partition[], signal: AbortSignal): Promise<void>;
  /** Completes or undoes the compactions that a crash has cut off. */
  finishCompaction(compactions: readonly Compaction[], signal: AbortSignal): Promise<void>;
  /** Called once after the start: mends what an earlier version has left, and what somebody has removed. */
  prepare(signal: AbortSignal): Promise<void>;
  /** Called every few seconds: removes what no reader needs any more, where it is time to. */
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
  /** Of its files, without the ending. */
  readonly name: string;
  /** Null for what comes again or stands nowhere in the log: such rows are looked for before they are landed. */
  readonly positions: {
    readonly writerId: string;
    readonly through: number;
    /** It was begun before, so any part of it may be in the lake. */
    readonly isRepeated: boolean;
  } | null;
  readonly uploaded: UploadedFiles;
}

/**
 * What of an unfinished landing has arrived, by key: a landing of thousands of objects may need more time than one write
 * has, and goes on where it was. The digest is that of the content.
 */
export type UploadedFiles = Map<string, string>;
