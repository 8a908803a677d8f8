import { randomBytes } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { LakeTable } from "../shared/lake/table-model.ts";
import { ALARM_EPISODE_TABLE, LAKE_TABLES } from "../shared/lake/tables.ts";
import { buildFileStatistics, computeFileStatistics } from "./delta/statistics.ts";
import { type ActiveDeltaFile, type DeltaTable, openDeltaTable } from "./delta/table.ts";
import { type AddedTableFile, EMPTY_TABLE_CHANGE } from "./delta/table-change.ts";
import {
  buildFileKey,
  buildTableFolder,
  dayPartition,
  hasDayPartitions,
  type LakePartition,
  UNIX_EPOCH_DAY,
} from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { type CompactedFile, joinSmallFiles, mergePartitionFiles } from "./partition-compaction.ts";
import {
  computeContentDigest,
  type EncodedParquetRows,
  encodeReplacementFile,
  putBatchFiles,
  readTableRows,
} from "./partition-files.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { encodeSinkStateChange } from "./sink-state.ts";
import type { LakeCommit, LakeTableFormat, UploadedFileDigests } from "./table-format.ts";

const MAX_COMMIT_ATTEMPTS = 5;
/** Limit of one vacuum call: 100 removals take 5 s with a distant storage. */
const MAX_FILES_REMOVED_PER_VACUUM = 100;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Change between wall and monotonic time that counts as a clock step (src/core/runtime/clock-check.ts). */
const MIN_CLOCK_STEP_MS = 2_000;

/**
 * Table format in which the Delta log says which files belong to a table. Each table is committed separately. After a
 * crash between two tables the staged commit is repeated, and each table's log says whether the rows are there:
 *   staged commit 101–200   value: txn 200 in its log → skipped      alarm: txn 100 → committed now
 */
export function createDeltaTableFormat(
  store: ObjectStore,
  { clock, log, sinkState }: Pick<ConnectorContext, "clock" | "log" | "sinkState">,
): LakeTableFormat {
  /** Random part of this process's file names, so that files of an earlier process are never overwritten. */
  const processId = randomBytes(4).toString("hex");
  const deltaTables = new Map<LakeTable, DeltaTable>();
  const vacuumSchedule = createVacuumSchedule(clock);
  let tablesToVacuum: readonly LakeTable[] = [];

  function getDeltaTable(table: LakeTable): DeltaTable {
    const deltaTable =
      deltaTables.get(table) ??
      openDeltaTable({
        store,
        table,
        prefix: buildTableFolder(table),
        partitionColumns: hasDayPartitions(table) ? ["date", "site"] : [],
        clock,
        log,
      });
    deltaTables.set(table, deltaTable);
    return deltaTable;
  }

  async function isCommitDone(table: LakeTable, { positions }: LakeCommit, signal: AbortSignal): Promise<boolean> {
    if (positions === null || !positions.isRepeated) return false;
    const lastWriterPosition = await getDeltaTable(table).lastVersionOf(positions.writerId, signal);
    return lastWriterPosition !== null && lastWriterPosition >= positions.through;
  }

  async function appendBatches(
    table: LakeTable,
    batches: readonly PartitionBatch[],
    work: LakeCommit,
    signal: AbortSignal,
  ) {
    const { uploaded, name, positions } = work;
    const buildBatchKey = ({ partition }: PartitionBatch, digest: string) =>
      chooseUnusedFileKey(buildFileKey(partition, name), digest, uploaded);
    const add: AddedTableFile[] = [];
    for (const { key, bytes, batch, rows } of await putBatchFiles(batches, buildBatchKey, store, uploaded, signal)) {
      add.push(await describeAddedFile(key, bytes, batch.partition, { columns: batch.columns, rows }));
    }
    const tableChange = { ...EMPTY_TABLE_CHANGE, add, txn: buildDeltaTransaction(positions) };
    const { outcome } = await getDeltaTable(table).commit(tableChange, signal);
    return outcome === "committed" ? add.map(({ key }) => key) : [];
  }

  async function replaceRows(
    table: LakeTable,
    changes: readonly PartitionUpdates[],
    work: LakeCommit,
    signal: AbortSignal,
  ) {
    const { uploaded, name, positions } = work;
    for (let attempt = 0; attempt < MAX_COMMIT_ATTEMPTS; attempt++) {
      const { version, files } = await getDeltaTable(table).files(signal);
      const add: AddedTableFile[] = [];
      const remove: string[] = [];
      for (const partitionUpdates of changes) {
        const { from, partition } = partitionUpdates;
        const storedFileKeys = findPartitionFiles(partition, files).map(({ key }) => key);
        const replacementFile = await encodeReplacementFile(partitionUpdates, storedFileKeys, tableFormat, signal);
        if (replacementFile === null) continue;
        const { bytes } = replacementFile;
        const contentDigest = computeContentDigest(bytes);
        const key = chooseUnusedFileKey(buildFileKey(partition, name), contentDigest, uploaded);
        if (!uploaded.has(key)) await store.put(key, bytes, signal);
        uploaded.set(key, contentDigest);
        add.push(await describeAddedFile(key, bytes.length, partition, replacementFile));
        remove.push(...storedFileKeys);
        if (from !== undefined) remove.push(...findPartitionFiles(from, files).map((file) => file.key));
      }
      if (add.length === 0) return [];
      const txn = buildDeltaTransaction(positions);
      const tableChange = { add, remove, txn, operation: "MERGE", dataChange: true } as const;
      const { outcome } = await getDeltaTable(table).commit({ ...tableChange, basedOn: version }, signal);
      if (outcome === "done-before") return [];
      const keys = add.map(({ key }) => key);
      if (outcome === "committed") return keys;
      await tableFormat.discard(keys, signal);
      for (const key of keys) uploaded.delete(key);
    }
    throw new Retryable(
      `The Delta table ${store.where}/${buildTableFolder(table)} is changed by others faster than we can.`,
    );
  }

  function findPartitionFiles({ table, dayAndSite: of }: LakePartition, files: readonly ActiveDeltaFile[]) {
    const wanted = Object.entries(toPartitionValues(of));
    const all = files.filter(({ partitionValues }) => wanted.every(([name, value]) => partitionValues[name] === value));
    const filesInFolder = all.flatMap(({ bytes, key }) => (key === null ? [] : { bytes, key }));
    if (filesInFolder.length === all.length) return filesInFolder.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    throw new ConfigError(
      `The Delta table ${store.where}/${buildTableFolder(table)} has a file that lies outside of its folder, and cannot be read from here.`,
      { hint: "Somebody else put it there: write its rows into the table instead of the file's address." },
    );
  }

  /** Replaces files in one commit, so readers always see each row once. Returns false after a conflict. */
  async function replaceDeltaTableFiles(table: LakeTable, all: readonly CompactedFile[], signal: AbortSignal) {
    const newFileKeys = all.map(({ kind, partition }) => buildFileKey(partition, `${kind}-${randomHexText()}`));
    await sinkState.put(encodeSinkStateChange({ compactions: newFileKeys.map((result) => ({ result, sources: [] })) }));
    const add: AddedTableFile[] = [];
    for (const [n, { bytes, content, partition, rows }] of all.entries()) {
      const key = newFileKeys[n] ?? "";
      await store.put(key, bytes, signal);
      if ("columns" in content) add.push(await describeAddedFile(key, bytes.length, partition, content));
      else {
        const stats = buildFileStatistics(table, content.bounds);
        add.push({ key, bytes: bytes.length, rows, partitionValues: toPartitionValues(partition.dayAndSite), stats });
      }
    }
    const dataChange = all.some(({ rows, sourceRows }) => rows !== sourceRows);
    const operation = dataChange ? "MERGE" : "OPTIMIZE";
    const remove = all.flatMap(({ sources }) => sources);
    const tableChange = { ...EMPTY_TABLE_CHANGE, add, remove, operation, dataChange } as const;
    const { outcome } = await getDeltaTable(table).commit(tableChange, signal);
    if (outcome === "conflict") await tableFormat.discard(newFileKeys, signal);
    await sinkState.put(encodeSinkStateChange({ compactions: [] }));
    return outcome !== "conflict";
  }

  const tableFormat: LakeTableFormat = {
    name: "delta",
    where: store.where,
    async read(key, signal) {
      const bytes = await store.get(key, signal);
      if (bytes !== null) return bytes;
      throw new ConfigError(`${store.where}/${key} is a file of its Delta table and is not there.`, {
        hint: "Put it back; or take it out of the table (DELETE, or FSCK REPAIR TABLE), and its rows with it.",
      });
    },
    async createTable(table, signal) {
      const { version } = await getDeltaTable(table).files(signal);
      const objects = version < 0 ? await store.list(buildTableFolder(table), signal) : [];
      const file = objects.find(({ key }) => key.endsWith(".parquet"));
      if (file !== undefined) {
        throw new ConfigError(`${store.where}/${file.key} is there, and no Delta log that it belongs to.`, {
          hint: "Choose a new folder or prefix for table_format: delta.",
        });
      }
      await getDeltaTable(table).createIfMissing(signal);
    },
    fileNameOf: (commit) => `${commit}-${processId}`,
    possibleKeysOf: ({ changes, batches }, name) =>
      [...batches, ...changes].map(({ partition }) => buildFileKey(partition, name)),
    async commit(work, signal) {
      const keys: string[] = [];
      for (const [table, batches] of Map.groupBy(work.batches, ({ partition }) => partition.table)) {
        if (!(await isCommitDone(table, work, signal)))
          keys.push(...(await appendBatches(table, batches, work, signal)));
      }
      for (const [table, changes] of Map.groupBy(work.changes, ({ partition }) => partition.table)) {
        if (!(await isCommitDone(table, work, signal))) keys.push(...(await replaceRows(table, changes, work, signal)));
      }
      return keys;
    },
    async discard(keys, signal) {
      for (const table of LAKE_TABLES) {
        const tableKeys = keys.filter((key) => key.startsWith(buildTableFolder(table)));
        if (tableKeys.length === 0) continue;
        for (const key of await getDeltaTable(table).unreferenced(tableKeys, signal)) await store.remove(key, signal);
      }
    },
    async filesOf(partition, signal) {
      const { files } = await getDeltaTable(partition.table).files(signal);
      return findPartitionFiles(partition, files);
    },
    async *partitions(table, signal) {
      const { files } = await getDeltaTable(table).files(signal());
      const partitions = files.flatMap(({ partitionValues: { date, site } }) =>
        typeof date === "string" ? dayPartition(table, date, site ?? null) : [],
      );
      yield* new Map(partitions.map((partition) => [partition.folder, partition])).values();
    },
    async compact(partition, signal) {
      await mergePartitionFiles(tableFormat, partition, signal, async (merged) => {
        if (await replaceDeltaTableFiles(partition.table, [merged], signal)) return;
        throw new Retryable(`Somebody else changed ${store.where}/${partition.folder} while it was compacted.`);
      });
    },
    /** Joins partitions in one commit. After a conflict, the partitions wait for an hour. */
    async join(table, partitions, signal) {
      const all: CompactedFile[] = [];
      for (const partition of partitions) {
        const joinedFile = await joinSmallFiles(tableFormat, partition, signal);
        if (joinedFile !== null) all.push(joinedFile);
      }
      if (all.length > 0) await replaceDeltaTableFiles(table, all, signal);
    },
    async finishCompaction(compactions, signal) {
      const newFileKeys = compactions.map(({ result }) => result);
      await tableFormat.discard(newFileKeys, signal);
      await sinkState.put(encodeSinkStateChange({ compactions: [] }));
    },
    /** Moves alarms without a time, which earlier versions put under 1970-01-01. */
    async repairFiles(signal) {
      const table = ALARM_EPISODE_TABLE;
      const { files } = await getDeltaTable(table).files(signal);
      const old = files.filter(({ partitionValues }) => partitionValues.date === UNIX_EPOCH_DAY);
      const movedRowUpdates: PartitionUpdates[] = [];
      for (const site of new Set(old.map(({ partitionValues }) => partitionValues.site ?? null))) {
        const oldPartition = dayPartition(table, UNIX_EPOCH_DAY, site);
        const keys = findPartitionFiles(oldPartition, files).map(({ key }) => key);
        const updates = await readTableRows(table, keys, tableFormat, signal);
        movedRowUpdates.push({ partition: dayPartition(table, null, site), updates, from: oldPartition });
      }
      const name = `moved-${randomHexText()}`;
      const movedRowsCommit = { batches: [], changes: movedRowUpdates, name, positions: null, uploaded: new Map() };
      if (movedRowUpdates.length > 0) await replaceRows(table, movedRowUpdates, movedRowsCommit, signal);
    },
    /** Vacuums some files of one table per call, so that no other work waits for long. */
    async vacuum(signal) {
      if (vacuumSchedule.isDue()) tablesToVacuum = LAKE_TABLES;
      const [table] = tablesToVacuum;
      if (table === undefined || !vacuumSchedule.isTrusted()) return;
      const removedFileCount = await getDeltaTable(table).vacuum(signal, MAX_FILES_REMOVED_PER_VACUUM);
      if (removedFileCount < MAX_FILES_REMOVED_PER_VACUUM) tablesToVacuum = tablesToVacuum.slice(1);
    },
  };
  return tableFormat;
}

const randomHexText = (): string => randomBytes(8).toString("hex");

/** Returns an unused key: the log may refer to an uploaded file although the response was lost. */
function chooseUnusedFileKey(key: string, digest: string, uploaded: UploadedFileDigests): string {
  let unusedFileKey = key;
  for (let n = 2; uploaded.has(unusedFileKey) && uploaded.get(unusedFileKey) !== digest; n++) {
    unusedFileKey = key.replace(/\.parquet$/, `-${n}.parquet`);
  }
  return unusedFileKey;
}

async function describeAddedFile(
  key: string,
  bytes: number,
  { dayAndSite: of, table }: LakePartition,
  { columns, rows }: Pick<EncodedParquetRows, "columns" | "rows">,
): Promise<AddedTableFile> {
  const stats = await computeFileStatistics(table, rows.length, (column, n) => columns.cell(column, rows[n] ?? 0));
  return { key, bytes, rows: rows.length, partitionValues: toPartitionValues(of), stats };
}

function toPartitionValues(of: LakePartition["dayAndSite"]): Readonly<Record<string, string | null>> {
  if (of === null) return {};
  return { date: of.day, site: of.site === null || of.site === "" ? null : of.site.toWellFormed() };
}

const buildDeltaTransaction = (positions: LakeCommit["positions"]) =>
  positions === null ? null : { appId: positions.writerId, version: positions.through };

/** Schedules the daily vacuum. Tombstones have wall times: after a clock step, the vacuum waits for an hour. */
export function createVacuumSchedule(clock: Clock) {
  const readWallClockOffset = () => clock.now() - clock.monotonic();
  let lastClockOffset = readWallClockOffset();
  let clockTrustedFromMs = clock.monotonic() + HOUR_MS;
  let nextVacuumMs = clockTrustedFromMs;

  function isClockTrusted(): boolean {
    const now = readWallClockOffset();
    if (Math.abs(now - lastClockOffset) > MIN_CLOCK_STEP_MS) clockTrustedFromMs = clock.monotonic() + HOUR_MS;
    lastClockOffset = now;
    return clock.monotonic() >= clockTrustedFromMs;
  }

  return {
    isTrusted: isClockTrusted,
    /** Returns true if a vacuum is due. Call this method every few seconds, to notice each clock step. */
    isDue(): boolean {
      if (!isClockTrusted() || clock.monotonic() < nextVacuumMs) return false;
      nextVacuumMs = clock.monotonic() + DAY_MS;
      return true;
    },
  };
}
