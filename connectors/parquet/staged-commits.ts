import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { findColumnIndex } from "../shared/lake/table-model.ts";
import { buildStagedFileName, buildWriterPositionKey, type LakePartition } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { readParquetRows } from "./parquet-file.ts";
import { createRowBuffer, type PartitionBatch, type RowBuffer } from "./row-buffer.ts";
import { type ColumnarRows, createColumnarRows } from "./rows-to-columns.ts";
import {
  type CompleteDay,
  encodeSinkStateChange,
  type ParquetSinkState,
  parseCompleteDay,
  type StagedCommit,
} from "./sink-state.ts";
import type { LakeTableFormat, UploadedFileDigests } from "./table-format.ts";

/** Maximum characters of all different texts in the buffer; these texts take at most 32 MB. */
const MAX_BUFFERED_CHARACTERS = 16_000_000;
/** Limit of the cached row keys; beyond it, the cache is cleared and files are read again. */
const MAX_CACHED_ROW_KEYS = 200_000;

export type StagedCommits = ReturnType<typeof createStagedCommits>;

/**
 * Collects events from the cursor on and commits their rows in stages.
 *   add ─► row buffer ─► staged commit in the sink state ─► files in the lake ─► settled with the cursor
 */
export function createStagedCommits(options: {
  readonly state: Pick<ParquetSinkState, "writerId" | "stagedCommits">;
  readonly store: ObjectStore;
  readonly format: LakeTableFormat;
  readonly sinkState: ConnectorContext["sinkState"];
  readonly clock: ConnectorContext["clock"];
  readonly uploaded: UploadedFileDigests;
  readonly maxRows: number;
  readonly maxAgeMs: number;
}) {
  const { uploaded, state, clock, format, sinkState, store } = options;
  const { writerId } = state;
  /** Commits that a crash interrupted. The sink repeats these commits with the redelivered events. */
  let partialCommits = state.stagedCommits;
  let unsettledCommits: readonly StagedCommit[] = [];
  const partitions = new Map<string, LakePartition>();
  let buffer: RowBuffer = createRowBuffer();
  let firstEventMs = 0;
  let lastPosition = 0;
  let completeDays: readonly CompleteDay[] = [];

  const isRowBufferOld = (): boolean => buffer.eventCount > 0 && clock.monotonic() - firstEventMs >= options.maxAgeMs;

  function isBufferFlushDue(): boolean {
    const isRowBufferFull = buffer.rowCount >= options.maxRows || buffer.characterCount >= MAX_BUFFERED_CHARACTERS;
    return buffer.eventCount > 0 && (isRowBufferFull || isRowBufferOld() || completeDays.length > 0);
  }

  /** Splits an interrupted commit after the buffered events, because a file name contains its exact range of events. */
  function splitInterruptedCommit({ from, keys, through }: StagedCommit): StagedCommit {
    const refilledCommit = { from, through: buffer.through, keys };
    partialCommits = [refilledCommit, { from: buffer.through + 1, through, keys: [] }, ...partialCommits.slice(1)];
    return refilledCommit;
  }

  async function commitRowBuffer(stagedCommit: StagedCommit, signal: AbortSignal): Promise<void> {
    const { from, keys: earlierKeys, through } = stagedCommit;
    const name = format.buildFileName(buildStagedFileName(writerId, from, through));
    const rowsToCommit = { batches: buffer.batches(), updatedPartitions: buffer.updatedPartitions() };
    const keys = [...new Set([...earlierKeys, ...format.listPossibleKeys(rowsToCommit, name)])];
    const laterStagedCommits = partialCommits.filter((interruptedCommit) => interruptedCommit !== stagedCommit);
    const stagedCommits = [...unsettledCommits, { ...stagedCommit, keys }, ...laterStagedCommits];
    await sinkState.put(encodeSinkStateChange({ stagedCommits }));
    // Store the position of the commit's last event in the lake before its first file.
    await store.put(buildWriterPositionKey(writerId), Buffer.from(`${JSON.stringify({ through })}\n`), signal);
    const writerPosition = { writerId, lastPosition: through, isRepeated: partialCommits.includes(stagedCommit) };
    const committedFileKeys = new Set(await format.commit({ ...rowsToCommit, name, writerPosition, uploaded }, signal));
    const unusedFileKeys = keys.filter((key) => !committedFileKeys.has(key));
    if (unusedFileKeys.length > 0) await format.discardFiles(unusedFileKeys, signal);
    unsettledCommits = [...unsettledCommits, { ...stagedCommit, keys }];
    for (const { partition } of rowsToCommit.batches) partitions.set(partition.folder, partition);
    partialCommits = laterStagedCommits;
    buffer = createRowBuffer();
    uploaded.clear();
  }

  return {
    isSettled: () => unsettledCommits.length === 0 && partialCommits.length === 0,
    /** Returns true for an event that was added before: the engine offers events from the cursor on again. */
    hasPosition: (position: number) => position <= lastPosition,
    /** Adds an event, after committing interrupted commits that end before it. Throws `UnmappableEventError`. */
    async addEvent(event: Event, position: number, committedAt: string, signal: AbortSignal): Promise<void> {
      for (let [commit] = partialCommits; commit !== undefined && commit.through < position; [commit] = partialCommits)
        await commitRowBuffer(commit, signal);
      if (buffer.eventCount === 0) firstEventMs = clock.monotonic();
      lastPosition = position;
      buffer.addEvent(event, position, committedAt);
      const day = parseCompleteDay(event);
      if (day !== null) completeDays = [...completeDays, day];
    },
    /** Commits the buffer if it has all events of an interrupted commit again, or if the buffer is full or old. */
    async commit(signal: AbortSignal): Promise<void> {
      const [commit] = partialCommits;
      if (commit === undefined) {
        if (isBufferFlushDue()) await commitRowBuffer({ from: buffer.from, through: buffer.through, keys: [] }, signal);
      } else if (commit.through === buffer.through) await commitRowBuffer(commit, signal);
      else if (isRowBufferOld()) await commitRowBuffer(splitInterruptedCommit(commit), signal);
    },
    /** Returns the state change that marks all events as delivered; null while an event is not in the lake. */
    settleCommits() {
      if (unsettledCommits.length === 0 || partialCommits.length > 0 || buffer.eventCount > 0) return null;
      const stateChanges: SinkStateChange = encodeSinkStateChange({
        writer: { id: writerId, through: lastPosition },
        stagedCommits: [],
        completeDays,
      });
      const commitSettlement = { stateChanges, partitions: [...partitions.values()], completeDays };
      unsettledCommits = [];
      partitions.clear();
      completeDays = [];
      return commitSettlement;
    },
  };
}

/** Inserts redelivered events: skips rows whose keys are already in the partition's files. */
export function createIdempotentRowInserts(format: LakeTableFormat) {
  const rowKeysByFolder = new Map<string, Set<string>>();

  async function readPartitionRowKeys(partition: LakePartition, signal: AbortSignal): Promise<Set<string>> {
    const { folder, table } = partition;
    const cachedRowKeys = rowKeysByFolder.get(folder);
    if (cachedRowKeys !== undefined) return cachedRowKeys;
    const rowKeys = new Set<string>();
    for (const { key } of await format.listFiles(partition, signal)) {
      const fileBytes = await format.readFile(key, signal);
      if (fileBytes === null) continue;
      const keyColumns = table.columns.filter(({ name }) => table.key.includes(name));
      const columns = createColumnarRows({ ...table, columns: keyColumns });
      await readParquetRows(fileBytes, columns, `${format.location}/${key}`);
      for (let row = 0; row < columns.length; row++) rowKeys.add(buildRowKey(columns, row));
    }
    const cachedRowKeyCount = [...rowKeysByFolder.values()].reduce((sum, { size }) => sum + size, rowKeys.size);
    if (cachedRowKeyCount > MAX_CACHED_ROW_KEYS) rowKeysByFolder.clear();
    rowKeysByFolder.set(folder, rowKeys);
    return rowKeys;
  }

  return {
    clearCache: () => rowKeysByFolder.clear(),
    async commit(buffer: RowBuffer, signal: AbortSignal): Promise<void> {
      const name = `again-${randomBytes(8).toString("hex")}`;
      const partitionBatches: PartitionBatch[] = [];
      for (const batch of buffer.batches()) {
        const existingRowKeys = await readPartitionRowKeys(batch.partition, signal);
        const rows = (await batch.sortRowIndexes()).filter((row) => {
          const key = buildRowKey(batch.columns, row);
          const isNewRow = !existingRowKeys.has(key);
          existingRowKeys.add(key);
          return isNewRow;
        });
        if (rows.length > 0) partitionBatches.push({ ...batch, sortRowIndexes: async () => rows });
      }
      const rowsToCommit = { batches: partitionBatches, updatedPartitions: buffer.updatedPartitions() };
      await format.commit({ ...rowsToCommit, name, writerPosition: null, uploaded: new Map() }, signal);
    },
  };
}

const buildRowKey = ({ table, getCell: cell }: ColumnarRows, row: number): string =>
  JSON.stringify(table.key.map((name) => cell(findColumnIndex(table, name), row)));
