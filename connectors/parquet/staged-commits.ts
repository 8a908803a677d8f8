import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { findColumnIndex } from "../shared/lake/table-model.ts";
import { type Columns, createColumns } from "./columnar-rows.ts";
import { type LakePartition, stagedFileName, writerPositionKey } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { readParquet } from "./parquet-file.ts";
import { createRowBuffer, type PartitionBatch, type RowBuffer } from "./row-buffer.ts";
import { type CompleteDay, encodeChange, parseCompleteDay, type SinkState, type StagedCommit } from "./sink-state.ts";
import type { TableFormat, UploadedFiles } from "./table-format.ts";

/** Maximum characters of the different texts in the buffer; they take at most 32 MB. */
const MAX_BUFFERED_CHARACTERS = 16_000_000;
/** Limit of the cached row keys; beyond it, the cache is cleared and files are read again. */
const MAX_CACHED_ROW_KEYS = 200_000;

export type StagedCommits = ReturnType<typeof createStagedCommits>;

/**
 * Collects events from the cursor on and commits their rows in stages.
 *
 *   add ─► row buffer ─► staged commit in the sink state ─► files in the lake ─► settled with the cursor
 */
export function createStagedCommits(options: {
  readonly state: Pick<SinkState, "writerId" | "stagedCommits">;
  readonly store: ObjectStore;
  readonly format: TableFormat;
  readonly sinkState: ConnectorContext["sinkState"];
  readonly clock: ConnectorContext["clock"];
  readonly uploaded: UploadedFiles;
  readonly maxRows: number;
  readonly maxAgeMs: number;
}) {
  const { uploaded, state, clock, format, sinkState, store } = options;
  const { writerId } = state;
  /** Commits that a crash interrupted; redelivered events fill them again. */
  let interrupted = state.stagedCommits;
  let unsettled: readonly StagedCommit[] = [];
  const partitions = new Map<string, LakePartition>();
  let buffer: RowBuffer = createRowBuffer();
  let firstEventMs = 0;
  let lastPosition = 0;
  let completeDays: readonly CompleteDay[] = [];

  function isBufferOld(): boolean {
    return buffer.events > 0 && clock.monotonic() - firstEventMs >= options.maxAgeMs;
  }

  function isFlushDue(): boolean {
    const isFull = buffer.rows >= options.maxRows || buffer.characters >= MAX_BUFFERED_CHARACTERS;
    return buffer.events > 0 && (isFull || isBufferOld() || completeDays.length > 0);
  }

  /** Splits an interrupted commit after the events in the buffer: a file has all events of the range in its name. */
  function splitInterrupted({ from, keys, through }: StagedCommit): StagedCommit {
    const refilledCommit = { from, through: buffer.through, keys };
    interrupted = [refilledCommit, { from: buffer.through + 1, through, keys: [] }, ...interrupted.slice(1)];
    return refilledCommit;
  }

  async function commitBuffer(staged: StagedCommit, signal: AbortSignal): Promise<void> {
    const { from, keys: before, through: last } = staged;
    const name = format.fileNameOf(stagedFileName(writerId, from, last));
    const rows = { batches: buffer.batches(), changes: buffer.changes() };
    const keys = [...new Set([...before, ...format.possibleKeysOf(rows, name)])];
    const laterStagedCommits = interrupted.filter((each) => each !== staged);
    await sinkState.put(encodeChange({ stagedCommits: [...unsettled, { ...staged, keys }, ...laterStagedCommits] }));
    // Record in the lake how far this writer goes, before it writes the first file.
    await store.put(writerPositionKey(writerId), Buffer.from(`${JSON.stringify({ through: last })}\n`), signal);
    const positions = { writerId, through: last, isRepeated: interrupted.includes(staged) };
    const committedKeys = new Set(await format.commit({ ...rows, name, positions, uploaded }, signal));
    const unusedKeys = keys.filter((key) => !committedKeys.has(key));
    if (unusedKeys.length > 0) await format.discard(unusedKeys, signal);
    unsettled = [...unsettled, { ...staged, keys }];
    for (const { partition } of rows.batches) partitions.set(partition.folder, partition);
    interrupted = laterStagedCommits;
    buffer = createRowBuffer();
    uploaded.clear();
  }

  return {
    isSettled: () => unsettled.length === 0 && interrupted.length === 0,
    /** Returns true for an event that was added before: the engine has started again from the cursor. */
    hasPosition: (position: number) => position <= lastPosition,
    /** Adds an event, after committing interrupted commits that end before the event. Throws `UnmappableEvent`. */
    async addEvent(event: Event, position: number, committedAt: string, signal: AbortSignal): Promise<void> {
      for (let next = interrupted[0]; next !== undefined && next.through < position; next = interrupted[0]) {
        await commitBuffer(next, signal);
      }
      if (buffer.events === 0) firstEventMs = clock.monotonic();
      lastPosition = position;
      buffer.add(event, position, committedAt);
      const day = parseCompleteDay(event);
      if (day !== null) completeDays = [...completeDays, day];
    },
    /** Commits the buffer if an interrupted commit is complete again, or if the buffer is full or old. */
    async commit(signal: AbortSignal): Promise<void> {
      const [next] = interrupted;
      if (next === undefined) {
        if (isFlushDue()) await commitBuffer({ from: buffer.from, through: buffer.through, keys: [] }, signal);
      } else if (next.through === buffer.through) await commitBuffer(next, signal);
      else if (isBufferOld()) await commitBuffer(splitInterrupted(next), signal);
    },
    /** Returns the state change that settles all events; null while an event is not in the lake. */
    settleCommits() {
      if (unsettled.length === 0 || interrupted.length > 0 || buffer.events > 0) return null;
      const stateChanges: SinkStateChange = encodeChange({
        writer: { id: writerId, through: lastPosition },
        stagedCommits: [],
        completeDays,
      });
      const settlement = { stateChanges, partitions: [...partitions.values()], completeDays };
      unsettled = [];
      partitions.clear();
      completeDays = [];
      return settlement;
    },
  };
}

/** Inserts redelivered events: skips rows whose keys are already in the partition's files. */
export function createIdempotentInserts(format: TableFormat) {
  const rowKeysByFolder = new Map<string, Set<string>>();

  async function rowKeysIn(partition: LakePartition, signal: AbortSignal): Promise<Set<string>> {
    const { folder, table } = partition;
    const cachedRowKeys = rowKeysByFolder.get(folder);
    if (cachedRowKeys !== undefined) return cachedRowKeys;
    const rowKeys = new Set<string>();
    for (const { key } of await format.filesOf(partition, signal)) {
      const bytes = await format.read(key, signal);
      if (bytes === null) continue;
      const columns = createColumns({
        ...table,
        columns: table.columns.filter(({ name }) => table.key.includes(name)),
      });
      await readParquet(bytes, columns, `${format.where}/${key}`);
      for (let row = 0; row < columns.length; row++) rowKeys.add(buildRowKey(columns, row));
    }
    const cachedKeyCount = [...rowKeysByFolder.values()].reduce((sum, { size }) => sum + size, rowKeys.size);
    if (cachedKeyCount > MAX_CACHED_ROW_KEYS) rowKeysByFolder.clear();
    rowKeysByFolder.set(folder, rowKeys);
    return rowKeys;
  }

  return {
    clearCache: () => rowKeysByFolder.clear(),
    async commit(buffer: RowBuffer, signal: AbortSignal): Promise<void> {
      const name = `again-${randomBytes(8).toString("hex")}`;
      const batches: PartitionBatch[] = [];
      for (const batch of buffer.batches()) {
        const existingRowKeys = await rowKeysIn(batch.partition, signal);
        const rows = (await batch.sorted()).filter((row) => {
          const key = buildRowKey(batch.columns, row);
          const isNew = !existingRowKeys.has(key);
          existingRowKeys.add(key);
          return isNew;
        });
        if (rows.length > 0) batches.push({ ...batch, sorted: async () => rows });
      }
      const changes = buffer.changes();
      await format.commit({ batches, changes, name, positions: null, uploaded: new Map() }, signal);
    },
  };
}

function buildRowKey({ table, cell }: Columns, row: number): string {
  return JSON.stringify(table.key.map((name) => cell(findColumnIndex(table, name), row)));
}
