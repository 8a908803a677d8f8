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

/** Characters of different words that are held at most, whatever the number of rows: 32 MB in the worst case. */
const MAX_CHARACTERS = 16_000_000;

/** Events on their way into the lake, from the cursor on. */
export interface StagedCommits {
  /** No file in the lake may have to be made again. */
  readonly isSettled: boolean;
  /** Whether an event of this position was taken already, so that the engine has begun anew. */
  hasSeen(position: number): boolean;
  /** Takes an event, after what was begun before a crash and is complete has landed. Throws `Untold`. */
  take(event: Event, position: number, committedAt: string, signal: AbortSignal): Promise<void>;
  /** Nothing more comes just now: what is complete or worth a file lands. */
  commit(signal: AbortSignal): Promise<void>;
  /** Where all that was taken is in the lake: what goes with the settlement, what landed, and days to be sealed afterwards. */
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
  /** Landings of before a crash, to be made again from the same events. */
  let unfinished = state.stagedCommits;
  /** Landings that are in the lake and not settled. */
  let unsettled: readonly StagedCommit[] = [];
  /** By folder; those that got rows by these landings. */
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

  /** Lands what is in the hand, as the positions that `landing` names. */
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

/** Keys of rows that are kept in memory between batches; beyond, files are read anew. */
const MAX_KEYS = 200_000;

/**
 * Lands what was delivered before and is wanted once more, or stands nowhere in the log. It can not be gathered, and
 * nothing tells under which name it lies, so the rows that are there already are looked for and left out: a replay puts
 * back what the lake has lost, and nothing twice.
 */
export function createIdempotentInserts(format: TableFormat, where: string) {
  /** By folder; of the files that were read last. */
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
    /** Something else has been written, or taken away. */
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
