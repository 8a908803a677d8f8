import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { columnIndexOf, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns } from "./columns.ts";
import type { ObjectStore } from "./object-store.ts";
import { readParquet } from "./parquet-file.ts";
import { type Partition, stagedName } from "./paths.ts";
import { createRowBuffer, type PartitionBatch, type RowBuffer } from "./row-buffer.ts";
import {
  type CompleteDay,
  completeDayIn,
  recordProgress,
  rememberSettled,
  rememberStaged,
  type SinkState,
  type StagedCommit,
} from "./sink-state.ts";
import type { TableFormat, UploadedFiles } from "./table-format.ts";

/**
 * Largest number of characters of distinct texts in the buffer, whatever the number of rows: at most 32 MB.
 */
const MAX_CHARACTERS = 16_000_000;

/**
 * Collects events from the cursor on and commits their rows in stages.
 *
 *   add ─► row buffer ─► staged commit written to the sink state ─► files in the lake ─► settled with the cursor
 *
 * A crash before the settlement leaves unfinished commits; the redelivered events fill the same commits again.
 */
export interface StagedCommits {
  /** True where no file in the lake may have to be written again. */
  readonly isSettled: boolean;
  /** True where an event of this position was added already: the engine has started again from the cursor. */
  hasSeen(position: number): boolean;
  /** Adds an event. Commits unfinished stages that end before it first. Throws `UnmappableEvent`. */
  take(event: Event, position: number, committedAt: string, signal: AbortSignal): Promise<void>;
  /** Commits the buffer where a stage is complete or the buffer is full or old enough. */
  commit(signal: AbortSignal): Promise<void>;
  /**
   * Returns the state change, partitions and complete days to settle; null while some event is not in the lake.
   */
  settle(): {
    readonly remember: SinkStateChange;
    readonly partitions: readonly Partition[];
    readonly completeDays: readonly CompleteDay[];
  } | null;
}

export function createStagedCommits(options: {
  readonly state: Pick<SinkState, "writerId" | "stagedCommits">;
  readonly store: ObjectStore;
  readonly format: TableFormat;
  readonly memory: ConnectorContext["memory"];
  readonly clock: ConnectorContext["clock"];
  readonly uploaded: UploadedFiles;
  readonly maxRows: number;
  readonly maxAgeMs: number;
}): StagedCommits {
  const { uploaded, state, clock, format, memory, store } = options;
  const { writerId } = state;
  /** Commits that a crash interrupted; the same events fill them again. */
  let unfinished = state.stagedCommits;
  /** Commits that are in the lake and not settled. */
  let unsettled: readonly StagedCommit[] = [];
  /** Partitions with new rows, by folder. */
  const partitions = new Map<string, Partition>();
  let buffer: RowBuffer = createRowBuffer();
  let sinceMs = 0;
  let through = 0;
  let completeDays: readonly CompleteDay[] = [];

  function isOld(): boolean {
    return buffer.events > 0 && clock.monotonic() - sinceMs >= options.maxAgeMs;
  }

  function isFlushDue(): boolean {
    const isFull = buffer.rows >= options.maxRows || buffer.characters >= MAX_CHARACTERS;
    return buffer.events > 0 && (isFull || isOld() || completeDays.length > 0);
  }

  /** Commits the buffer as the positions of `staged`. */
  async function commitAs(staged: StagedCommit, signal: AbortSignal): Promise<void> {
    const { from, keys: before, through: last } = staged;
    const name = format.nameOf(stagedName(writerId, from, last));
    const rows = { batches: buffer.batches(), changes: buffer.changes() };
    const all = [...new Set([...before, ...format.keysOf(rows, name)])];
    const rest = unfinished.filter((each) => each !== staged);
    await memory.put(rememberStaged([...unsettled, { ...staged, keys: all }, ...rest]));
    await recordProgress({ writerId, store }, last, signal);
    const positions = { writerId, through: last, isRepeated: unfinished.includes(staged) };
    const made = new Set(await format.commit({ ...rows, name, positions, uploaded }, signal));
    const unused = all.filter((key) => !made.has(key));
    if (unused.length > 0) await format.discard(unused, signal);
    unsettled = [...unsettled, { ...staged, keys: all }];
    for (const { partition } of rows.batches) partitions.set(partition.folder, partition);
    unfinished = rest;
    buffer = createRowBuffer();
    uploaded.clear();
  }

  return {
    get isSettled() {
      return unsettled.length === 0 && unfinished.length === 0;
    },
    hasSeen: (position) => position <= through,

    async take(event, position, committedAt, signal) {
      for (let next = unfinished[0]; next !== undefined && next.through < position; next = unfinished[0]) {
        await commitAs(next, signal);
      }
      if (buffer.events === 0) sinceMs = clock.monotonic();
      through = position;
      buffer.add(event, position, committedAt);
      const day = completeDayIn(event);
      if (day !== null) completeDays = [...completeDays, day];
    },

    async commit(signal) {
      const [next] = unfinished;
      if (next === undefined) {
        if (isFlushDue()) await commitAs({ from: buffer.from, through: buffer.through, keys: [] }, signal);
      } else if (next.through === buffer.through || isOld()) await commitAs(next, signal);
    },

    settle() {
      if (unsettled.length === 0 || unfinished.length > 0 || buffer.events > 0) return null;
      const remember = rememberSettled(writerId, through, completeDays);
      const done = { remember, partitions: [...partitions.values()], completeDays };
      unsettled = [];
      partitions.clear();
      completeDays = [];
      return done;
    },
  };
}

/** Largest number of row keys cached between batches; beyond it, files are read again. */
const MAX_KEYS = 200_000;

/**
 * Inserts redelivered events, and events without a log position, idempotently: it reads the keys that the
 * partition's files already have and leaves those rows out. A replay restores what the lake has lost and
 * duplicates nothing.
 */
export function createIdempotentInserts(format: TableFormat, where: string) {
  /** Keys of the rows in a partition, by folder. */
  const known = new Map<string, Set<string>>();

  async function keysIn({ partition }: PartitionBatch, signal: AbortSignal): Promise<Set<string>> {
    const { folder, table } = partition;
    const before = known.get(folder);
    if (before !== undefined) return before;
    const existing = new Set<string>();
    for (const { key } of await format.filesOf(partition, signal)) {
      const bytes = await format.read(key, signal);
      if (bytes === null) continue;
      const read = createColumns({ ...table, columns: keyColumns(table) });
      await readParquet(bytes, read, `${where}/${key}`);
      for (let row = 0; row < read.length; row++) existing.add(keyOf(read, row));
    }
    if ([...known.values()].reduce((sum, { size }) => sum + size, existing.size) > MAX_KEYS) known.clear();
    known.set(folder, existing);
    return existing;
  }

  return {
    /** Clears the cache, because files were written or removed. */
    forget: () => known.clear(),

    async commit(buffer: RowBuffer, signal: AbortSignal): Promise<void> {
      const name = `again-${randomBytes(8).toString("hex")}`;
      const batches: PartitionBatch[] = [];
      for (const batch of buffer.batches()) {
        const { columns } = batch;
        const existing = await keysIn(batch, signal);
        const added = new Set<string>();
        const rows = (await batch.sorted()).filter((row) => {
          const key = keyOf(columns, row);
          if (existing.has(key) || added.has(key)) return false;
          added.add(key);
          return true;
        });
        if (rows.length > 0) batches.push({ ...batch, sorted: async () => rows });
        for (const key of added) existing.add(key);
      }
      const changes = buffer.changes();
      await format.commit({ batches, changes, name, positions: null, uploaded: new Map() }, signal);
    },
  };
}

function keyColumns(table: Table) {
  return table.columns.filter(({ name }) => table.key.includes(name));
}

function keyOf({ table, cell }: Columns, row: number): string {
  return JSON.stringify(table.key.map((name) => cell(columnIndexOf(table, name), row)));
}
