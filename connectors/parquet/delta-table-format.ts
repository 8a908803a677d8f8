import { randomBytes } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { LakeTable } from "../shared/lake/table-model.ts";
import { ALARM_EPISODE_TABLE, LAKE_TABLES } from "../shared/lake/tables.ts";
import { buildFileStatistics, computeFileStatistics } from "./delta/statistics.ts";
import { type ActiveDeltaFile, type DeltaTable, openDeltaTable } from "./delta/table.ts";
import { type AddedTableFile, EMPTY_TABLE_CHANGE } from "./delta/table-change.ts";
import { buildFileKey, buildTableFolder, dayPartition, type LakePartition, UNIX_EPOCH_DAY } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { type CompactedFile, joinSmallFiles, mergePartitionFiles } from "./partition-compaction.ts";
import { computeContentDigest, encodeReplacementFile, putBatchFiles, readTableRows } from "./partition-files.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { encodeSinkStateChange } from "./sink-state.ts";
import type { LakeCommit, LakeTableFormat, UploadedFileDigests } from "./table-format.ts";

const MAX_COMMIT_ATTEMPTS = 5;
/** Limit of one vacuum call: 100 removals take 5 s with a distant storage. */
const MAX_FILES_REMOVED_PER_VACUUM = 100;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Change of wall time against monotonic time that counts as a clock step (src/core/runtime/clock-check.ts). */
const MIN_CLOCK_STEP_MS = 2_000;

/**
 * Table format in which the Delta log lists the files of a table. Each table is committed separately. After a crash
 * between two tables, the staged commit is repeated. The log of each table shows if its rows are already committed:
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
    const deltaTable = deltaTables.get(table) ?? openDeltaTable({ store, table, clock, log });
    deltaTables.set(table, deltaTable);
    return deltaTable;
  }

  async function isCommitDone(table: LakeTable, { writerPosition }: LakeCommit, signal: AbortSignal): Promise<boolean> {
    if (writerPosition === null || !writerPosition.isRepeated) return false;
    const lastWriterPosition = await getDeltaTable(table).readLastTxnVersion(writerPosition.writerId, signal);
    return lastWriterPosition !== null && lastWriterPosition >= writerPosition.lastPosition;
  }

  async function appendBatches(
    table: LakeTable,
    batches: readonly PartitionBatch[],
    { uploaded, name, writerPosition }: LakeCommit,
    signal: AbortSignal,
  ) {
    const buildBatchKey = ({ partition }: PartitionBatch, digest: string) =>
      chooseUnusedFileKey(buildFileKey(partition, name), digest, uploaded);
    const addedFiles: AddedTableFile[] = [];
    for (const { key, bytes, batch, rows } of await putBatchFiles(batches, buildBatchKey, store, uploaded, signal))
      addedFiles.push(await describeAddedFile(key, bytes, batch.partition, rows.length, { ...batch, rows }));
    const tableChange = { ...EMPTY_TABLE_CHANGE, add: addedFiles, txn: buildDeltaTransaction(writerPosition) };
    const outcome = await getDeltaTable(table).commit(tableChange, signal);
    return outcome === "committed" ? addedFiles.map(({ key }) => key) : [];
  }

  async function replaceRows(
    table: LakeTable,
    updatedPartitions: readonly PartitionUpdates[],
    { uploaded, name, writerPosition }: Pick<LakeCommit, "uploaded" | "name" | "writerPosition">,
    signal: AbortSignal,
  ) {
    for (let attempt = 0; attempt < MAX_COMMIT_ATTEMPTS; attempt++) {
      const { version, files } = await getDeltaTable(table).readActiveFiles(signal);
      const addedFiles: AddedTableFile[] = [];
      const removedKeys: string[] = [];
      for (const partitionUpdates of updatedPartitions) {
        const { formerPartition, partition } = partitionUpdates;
        const storedFileKeys = findPartitionFiles(partition, files).map(({ key }) => key);
        const replacementFile = await encodeReplacementFile(partitionUpdates, storedFileKeys, tableFormat, signal);
        if (replacementFile === null) continue;
        const { bytes, rows } = replacementFile;
        const contentDigest = computeContentDigest(bytes);
        const key = chooseUnusedFileKey(buildFileKey(partition, name), contentDigest, uploaded);
        if (!uploaded.has(key)) await store.put(key, bytes, signal);
        uploaded.set(key, contentDigest);
        addedFiles.push(await describeAddedFile(key, bytes.length, partition, rows.length, replacementFile));
        removedKeys.push(...storedFileKeys);
        if (formerPartition !== undefined)
          removedKeys.push(...findPartitionFiles(formerPartition, files).map((file) => file.key));
      }
      if (addedFiles.length === 0) return [];
      const txn = buildDeltaTransaction(writerPosition);
      const tableChange = { add: addedFiles, remove: removedKeys, txn, operation: "MERGE", dataChange: true } as const;
      const outcome = await getDeltaTable(table).commit({ ...tableChange, basedOn: version }, signal);
      if (outcome === "done-before") return [];
      const keys = addedFiles.map(({ key }) => key);
      if (outcome === "committed") return keys;
      await tableFormat.discardFiles(keys, signal);
      for (const key of keys) uploaded.delete(key);
    }
    throw new Retryable(
      `The Delta table ${store.location}/${buildTableFolder(table)} is changed by others faster than we can.`,
    );
  }

  function findPartitionFiles({ table, dayAndSite }: LakePartition, files: readonly ActiveDeltaFile[]) {
    const wantedValues = Object.entries(toPartitionValues(dayAndSite));
    const partitionFiles = files.filter(({ partitionValues }) =>
      wantedValues.every(([name, value]) => partitionValues[name] === value),
    );
    const filesInFolder = partitionFiles.flatMap(({ bytes, key }) => (key === null ? [] : { bytes, key }));
    if (filesInFolder.length === partitionFiles.length)
      return filesInFolder.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    throw new ConfigError(
      `The Delta table ${store.location}/${buildTableFolder(table)} has a file that lies outside of its folder, and cannot be read from here.`,
      { hint: "Somebody else put it there: write its rows into the table instead of the file's address." },
    );
  }

  /** Replaces files in one commit, so readers always see each row once. Returns false after a conflict. */
  async function replaceDeltaTableFiles(
    table: LakeTable,
    compactedFiles: readonly CompactedFile[],
    signal: AbortSignal,
  ) {
    const newFileKeys = compactedFiles.map(({ kind, partition }) =>
      buildFileKey(partition, `${kind}-${createRandomHex()}`),
    );
    await sinkState.put(encodeSinkStateChange({ compactions: newFileKeys.map((result) => ({ result, sources: [] })) }));
    const addedFiles: AddedTableFile[] = [];
    for (const [n, { bytes, content, partition, rows }] of compactedFiles.entries()) {
      const key = newFileKeys[n] ?? "";
      await store.put(key, bytes, signal);
      addedFiles.push(await describeAddedFile(key, bytes.length, partition, rows, content));
    }
    const dataChange = compactedFiles.some(({ rows, sourceRows }) => rows !== sourceRows);
    const operation = dataChange ? "MERGE" : "OPTIMIZE";
    const removedKeys = compactedFiles.flatMap(({ sources }) => sources);
    const tableChange = { ...EMPTY_TABLE_CHANGE, add: addedFiles, remove: removedKeys, operation, dataChange } as const;
    const outcome = await getDeltaTable(table).commit(tableChange, signal);
    if (outcome === "conflict") await tableFormat.discardFiles(newFileKeys, signal);
    await sinkState.put(encodeSinkStateChange({ compactions: [] }));
    return outcome !== "conflict";
  }

  const tableFormat: LakeTableFormat = {
    name: "delta",
    location: store.location,
    async readFile(key, signal) {
      const bytes = await store.get(key, signal);
      if (bytes !== null) return bytes;
      throw new ConfigError(`${store.location}/${key} is a file of its Delta table and is not there.`, {
        hint: "Put it back; or take it out of the table (DELETE, or FSCK REPAIR TABLE), and its rows with it.",
      });
    },
    async createTable(table, signal) {
      const { version } = await getDeltaTable(table).readActiveFiles(signal);
      const storedFiles = version < 0 ? await store.list(buildTableFolder(table), signal) : [];
      const file = storedFiles.find(({ key }) => key.endsWith(".parquet"));
      if (file !== undefined)
        throw new ConfigError(`${store.location}/${file.key} is there, and no Delta log that it belongs to.`, {
          hint: "Choose a new folder or prefix for table_format: delta.",
        });
      await getDeltaTable(table).createIfMissing(signal);
    },
    buildFileName: (commit) => `${commit}-${processId}`,
    listPossibleKeys: ({ updatedPartitions, batches }, name) =>
      [...batches, ...updatedPartitions].map(({ partition }) => buildFileKey(partition, name)),
    async commit(lakeCommit, signal) {
      const addedKeys: string[] = [];
      for (const [table, batches] of Map.groupBy(lakeCommit.batches, ({ partition }) => partition.table)) {
        if (!(await isCommitDone(table, lakeCommit, signal)))
          addedKeys.push(...(await appendBatches(table, batches, lakeCommit, signal)));
      }
      for (const [table, updatedPartitions] of Map.groupBy(
        lakeCommit.updatedPartitions,
        ({ partition }) => partition.table,
      )) {
        if (!(await isCommitDone(table, lakeCommit, signal)))
          addedKeys.push(...(await replaceRows(table, updatedPartitions, lakeCommit, signal)));
      }
      return addedKeys;
    },
    async discardFiles(keys, signal) {
      for (const table of LAKE_TABLES) {
        const tableKeys = keys.filter((key) => key.startsWith(buildTableFolder(table)));
        if (tableKeys.length === 0) continue;
        for (const key of await getDeltaTable(table).findUnreferencedKeys(tableKeys, signal))
          await store.remove(key, signal);
      }
    },
    async listFiles(partition, signal) {
      const { files } = await getDeltaTable(partition.table).readActiveFiles(signal);
      return findPartitionFiles(partition, files);
    },
    async *listPartitions(table, signal) {
      const { files } = await getDeltaTable(table).readActiveFiles(signal());
      const partitions = files.flatMap(({ partitionValues: { date, site } }) =>
        typeof date === "string" ? dayPartition(table, date, site ?? null) : [],
      );
      yield* new Map(partitions.map((partition) => [partition.folder, partition])).values();
    },
    async mergeFiles(partition, signal) {
      await mergePartitionFiles(tableFormat, partition, signal, async (mergedFile) => {
        if (await replaceDeltaTableFiles(partition.table, [mergedFile], signal)) return;
        throw new Retryable(`Somebody else changed ${store.location}/${partition.folder} while it was compacted.`);
      });
    },
    /** Joins small files of partitions in one commit. After a conflict with another writer, they stay unjoined. */
    async joinFiles(partitions, signal) {
      const compactedFiles: CompactedFile[] = [];
      for (const partition of partitions) {
        const joinedFile = await joinSmallFiles(tableFormat, partition, signal);
        if (joinedFile !== null) compactedFiles.push(joinedFile);
      }
      const [table] = compactedFiles.map(({ partition }) => partition.table);
      if (table !== undefined) await replaceDeltaTableFiles(table, compactedFiles, signal);
    },
    async finishCompaction(compactions, signal) {
      const newFileKeys = compactions.map(({ result }) => result);
      await tableFormat.discardFiles(newFileKeys, signal);
      await sinkState.put(encodeSinkStateChange({ compactions: [] }));
    },
    /** Moves alarms without a time, which earlier Plenum versions put under 1970-01-01. */
    async repairFiles(signal) {
      const table = ALARM_EPISODE_TABLE;
      const { files } = await getDeltaTable(table).readActiveFiles(signal);
      const epochDayFiles = files.filter(({ partitionValues }) => partitionValues.date === UNIX_EPOCH_DAY);
      const movedRowUpdates: PartitionUpdates[] = [];
      for (const site of new Set(epochDayFiles.map(({ partitionValues }) => partitionValues.site ?? null))) {
        const oldPartition = dayPartition(table, UNIX_EPOCH_DAY, site);
        const keys = findPartitionFiles(oldPartition, files).map(({ key }) => key);
        const updates = await readTableRows(table, keys, tableFormat, signal);
        movedRowUpdates.push({ partition: dayPartition(table, null, site), updates, formerPartition: oldPartition });
      }
      const movedRowsCommit = { name: `moved-${createRandomHex()}`, writerPosition: null, uploaded: new Map() };
      if (movedRowUpdates.length > 0) await replaceRows(table, movedRowUpdates, movedRowsCommit, signal);
    },
    /** Vacuums some files of one table per call, so that no other work waits for long. */
    async vacuum(signal) {
      if (vacuumSchedule.isVacuumDue()) tablesToVacuum = LAKE_TABLES;
      const [table] = tablesToVacuum;
      if (table === undefined || !vacuumSchedule.isTrusted()) return;
      const removedFileCount = await getDeltaTable(table).vacuum(signal, MAX_FILES_REMOVED_PER_VACUUM);
      if (removedFileCount < MAX_FILES_REMOVED_PER_VACUUM) tablesToVacuum = tablesToVacuum.slice(1);
    },
  };
  return tableFormat;
}

const createRandomHex = (): string => randomBytes(8).toString("hex");

/** Adds a number to a key under which a different file was uploaded: the log may already refer to that file. */
function chooseUnusedFileKey(key: string, digest: string, uploaded: UploadedFileDigests): string {
  let unusedFileKey = key;
  for (let n = 2; uploaded.has(unusedFileKey) && uploaded.get(unusedFileKey) !== digest; n++)
    unusedFileKey = key.replace(/\.parquet$/, `-${n}.parquet`);
  return unusedFileKey;
}

async function describeAddedFile(
  key: string,
  fileBytes: number,
  { dayAndSite, table }: LakePartition,
  rows: number,
  content: CompactedFile["content"],
): Promise<AddedTableFile> {
  const stats =
    "bounds" in content
      ? buildFileStatistics(table, content.bounds)
      : await computeFileStatistics(table, rows, (column, n) => content.columns.getCell(column, content.rows[n] ?? 0));
  return { key, bytes: fileBytes, rows, partitionValues: toPartitionValues(dayAndSite), stats };
}

function toPartitionValues(dayAndSite: LakePartition["dayAndSite"]): Readonly<Record<string, string | null>> {
  if (dayAndSite === null) return {};
  return {
    date: dayAndSite.day,
    site: dayAndSite.site === null || dayAndSite.site === "" ? null : dayAndSite.site.toWellFormed(),
  };
}

const buildDeltaTransaction = (writerPosition: LakeCommit["writerPosition"]) =>
  writerPosition === null ? null : { appId: writerPosition.writerId, version: writerPosition.lastPosition };

/** Schedules the daily vacuum. Removed files expire by wall time, so the vacuum waits an hour after a clock step. */
export function createVacuumSchedule(clock: Clock) {
  const readWallClockOffset = () => clock.now() - clock.monotonic();
  let lastClockOffset = readWallClockOffset();
  let clockTrustedFromMs = clock.monotonic() + HOUR_MS;
  let nextVacuumMs = clockTrustedFromMs;

  function isClockTrusted(): boolean {
    const clockOffset = readWallClockOffset();
    if (Math.abs(clockOffset - lastClockOffset) > MIN_CLOCK_STEP_MS) clockTrustedFromMs = clock.monotonic() + HOUR_MS;
    lastClockOffset = clockOffset;
    return clock.monotonic() >= clockTrustedFromMs;
  }

  return {
    isTrusted: isClockTrusted,
    /** Returns true if a vacuum is due. Call this method every few seconds, to notice each clock step. */
    isVacuumDue(): boolean {
      if (!isClockTrusted() || clock.monotonic() < nextVacuumMs) return false;
      nextVacuumMs = clock.monotonic() + DAY_MS;
      return true;
    },
  };
}
