import { randomBytes } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { Table } from "../shared/lake/table-model.ts";
import { ALARM_EPISODE_TABLE, TABLES } from "../shared/lake/tables.ts";
import { buildStatistics, computeStatistics } from "./delta/statistics.ts";
import { type ActiveFile, type DeltaTable, openDeltaTable } from "./delta/table.ts";
import { type AddedFile, EMPTY_CHANGE } from "./delta/table-change.ts";
import { EPOCH_DAY, fileKey, hasPartitions, type LakePartition, tableFolder, toPartition } from "./lake-paths.ts";
import type { ObjectStore, StoredFile } from "./object-store.ts";
import { type CompactedFile, joinFiles, mergeFiles } from "./partition-compaction.ts";
import { computeDigest, type EncodedRows, encodeReplacement, putBatches, readRows } from "./partition-files.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { encodeChange } from "./sink-state.ts";
import type { CommitWork, TableFormat, UploadedFiles } from "./table-format.ts";

const MAX_COMMIT_ATTEMPTS = 5;
/** Files that one call of the vacuum removes: 100 removals take 5 s with a distant storage. */
const MAX_REMOVED_FILES = 100;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Change between wall and monotonic time that counts as a clock step (src/core/runtime/clock-check.ts). */
const MIN_CLOCK_STEP_MS = 2_000;

/**
 * Table format in which the Delta log says which files belong to a table. Each table is committed separately. After a
 * crash between two tables the staged commit is repeated, and each table's log says whether the rows are there:
 *
 *   staged commit 101–200   value: txn 200 in its log → skipped      alarm: txn 100 → committed now
 */
export function createDeltaFormat(
  store: ObjectStore,
  { clock, log, sinkState }: Pick<ConnectorContext, "clock" | "log" | "sinkState">,
): TableFormat {
  /** Random part of this process's file names, so that files of an earlier process are never overwritten. */
  const processId = randomBytes(4).toString("hex");
  const tables = new Map<Table, DeltaTable>();
  const vacuumSchedule = createVacuumSchedule(clock);
  let pendingVacuum: readonly Table[] = [];

  function getDeltaTable(table: Table): DeltaTable {
    const deltaTable =
      tables.get(table) ??
      openDeltaTable({
        store,
        table,
        prefix: tableFolder(table),
        partitionColumns: hasPartitions(table) ? ["date", "site"] : [],
        clock,
        log,
      });
    tables.set(table, deltaTable);
    return deltaTable;
  }

  async function isCommitted(table: Table, { positions }: CommitWork, signal: AbortSignal): Promise<boolean> {
    if (positions === null || !positions.isRepeated) return false;
    const lastPosition = await getDeltaTable(table).lastVersionOf(positions.writerId, signal);
    return lastPosition !== null && lastPosition >= positions.through;
  }

  async function appendRows(table: Table, batches: readonly PartitionBatch[], work: CommitWork, signal: AbortSignal) {
    const { uploaded, name, positions } = work;
    const buildKey = ({ partition }: PartitionBatch, digest: string) =>
      chooseUnusedFileKey(fileKey(partition, name), digest, uploaded);
    const add: AddedFile[] = [];
    for (const { key, bytes, batch, rows } of await putBatches(batches, buildKey, store, uploaded, signal)) {
      add.push(await toAddedFile(key, bytes, batch.partition, { columns: batch.columns, rows }));
    }
    const { outcome } = await getDeltaTable(table).commit({ ...EMPTY_CHANGE, add, txn: buildTxn(positions) }, signal);
    return outcome === "committed" ? add.map(({ key }) => key) : [];
  }

  async function replaceRows(
    table: Table,
    changes: readonly PartitionUpdates[],
    work: CommitWork,
    signal: AbortSignal,
  ) {
    const { uploaded, name, positions } = work;
    for (let attempt = 0; attempt < MAX_COMMIT_ATTEMPTS; attempt++) {
      const { version, files } = await getDeltaTable(table).files(signal);
      const add: AddedFile[] = [];
      const remove: string[] = [];
      for (const partitionUpdates of changes) {
        const { from, partition } = partitionUpdates;
        const storedKeys = findFiles(partition, files).map(({ key }) => key);
        const replacement = await encodeReplacement(partitionUpdates, storedKeys, format, signal);
        if (replacement === null) continue;
        const { bytes } = replacement;
        const digest = computeDigest(bytes);
        const key = chooseUnusedFileKey(fileKey(partition, name), digest, uploaded);
        if (!uploaded.has(key)) await store.put(key, bytes, signal);
        uploaded.set(key, digest);
        add.push(await toAddedFile(key, bytes.length, partition, replacement));
        remove.push(...storedKeys);
        if (from !== undefined) remove.push(...findFiles(from, files).map((file) => file.key));
      }
      if (add.length === 0) return [];
      const tableChange = { add, remove, txn: buildTxn(positions), operation: "MERGE", dataChange: true } as const;
      const { outcome } = await getDeltaTable(table).commit({ ...tableChange, basedOn: version }, signal);
      if (outcome === "done-before") return [];
      const keys = add.map(({ key }) => key);
      if (outcome === "committed") return keys;
      await format.discard(keys, signal);
      for (const key of keys) uploaded.delete(key);
    }
    throw new Retryable(
      `The Delta table ${store.where}/${tableFolder(table)} is changed by others faster than we can.`,
    );
  }

  function findFiles({ table, dayAndSite: of }: LakePartition, files: readonly ActiveFile[]): readonly StoredFile[] {
    const values = Object.entries(toPartitionValues(of));
    const all = files.filter(({ partitionValues }) => values.every(([name, value]) => partitionValues[name] === value));
    const filesInFolder = all.flatMap(({ bytes, key }) => (key === null ? [] : { bytes, key }));
    if (filesInFolder.length === all.length) return filesInFolder.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    throw new ConfigError(
      `The Delta table ${store.where}/${tableFolder(table)} has a file that lies outside of its folder, and cannot be read from here.`,
      { hint: "Somebody else put it there: write its rows into the table instead of the file's address." },
    );
  }

  /** Replaces files in one commit, so readers always see each row once. Returns false after a conflict. */
  async function replaceFiles(table: Table, all: readonly CompactedFile[], signal: AbortSignal): Promise<boolean> {
    const results = all.map(({ kind, partition }) => fileKey(partition, `${kind}-${randomBytes(8).toString("hex")}`));
    await sinkState.put(encodeChange({ compactions: results.map((result) => ({ result, sources: [] })) }));
    const add: AddedFile[] = [];
    for (const [n, { bytes, content, partition, rows }] of all.entries()) {
      const key = results[n] ?? "";
      await store.put(key, bytes, signal);
      if ("columns" in content) add.push(await toAddedFile(key, bytes.length, partition, content));
      else {
        const stats = buildStatistics(table, content.bounds);
        add.push({ key, bytes: bytes.length, rows, partitionValues: toPartitionValues(partition.dayAndSite), stats });
      }
    }
    const dataChange = all.some(({ rows, sourceRows }) => rows !== sourceRows);
    const operation = dataChange ? "MERGE" : "OPTIMIZE";
    const remove = all.flatMap(({ sources }) => sources);
    const tableChange = { ...EMPTY_CHANGE, add, remove, operation, dataChange } as const;
    const { outcome } = await getDeltaTable(table).commit(tableChange, signal);
    if (outcome === "conflict") await format.discard(results, signal);
    await sinkState.put(encodeChange({ compactions: [] }));
    return outcome !== "conflict";
  }

  const format: TableFormat = {
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
      const objects = version < 0 ? await store.list(tableFolder(table), signal) : [];
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
      [...batches, ...changes].map(({ partition }) => fileKey(partition, name)),
    async commit(work, signal) {
      const keys: string[] = [];
      for (const [table, batches] of Map.groupBy(work.batches, ({ partition }) => partition.table)) {
        if (!(await isCommitted(table, work, signal))) keys.push(...(await appendRows(table, batches, work, signal)));
      }
      for (const [table, changes] of Map.groupBy(work.changes, ({ partition }) => partition.table)) {
        if (!(await isCommitted(table, work, signal))) keys.push(...(await replaceRows(table, changes, work, signal)));
      }
      return keys;
    },
    async discard(keys, signal) {
      for (const table of TABLES) {
        const tableKeys = keys.filter((key) => key.startsWith(tableFolder(table)));
        if (tableKeys.length === 0) continue;
        for (const key of await getDeltaTable(table).unreferenced(tableKeys, signal)) await store.remove(key, signal);
      }
    },
    async filesOf(partition, signal) {
      const { files } = await getDeltaTable(partition.table).files(signal);
      return findFiles(partition, files);
    },
    async *partitions(table, signal) {
      const { files } = await getDeltaTable(table).files(signal());
      const partitions = files.flatMap(({ partitionValues: { date, site } }) =>
        typeof date === "string" ? toPartition(table, date, site ?? null) : [],
      );
      yield* new Map(partitions.map((partition) => [partition.folder, partition])).values();
    },
    async compact(partition, signal) {
      await mergeFiles(format, partition, signal, async (merged) => {
        if (await replaceFiles(partition.table, [merged], signal)) return;
        throw new Retryable(`Somebody else changed ${store.where}/${partition.folder} while it was compacted.`);
      });
    },
    /** Joins partitions in one commit. After a conflict, all partitions wait for the next pass. */
    async join(table, partitions, signal) {
      const all: CompactedFile[] = [];
      for (const partition of partitions) {
        const joinedFile = await joinFiles(format, partition, signal);
        if (joinedFile !== null) all.push(joinedFile);
      }
      if (all.length > 0) await replaceFiles(table, all, signal);
    },
    async finishCompaction(compactions, signal) {
      const results = compactions.map(({ result }) => result);
      await format.discard(results, signal);
      await sinkState.put(encodeChange({ compactions: [] }));
    },
    /** Moves alarms without a time, which earlier versions put under 1970-01-01. */
    async repairFiles(signal) {
      const table = ALARM_EPISODE_TABLE;
      const { files } = await getDeltaTable(table).files(signal);
      const old = files.filter(({ partitionValues }) => partitionValues.date === EPOCH_DAY);
      const changes: PartitionUpdates[] = [];
      for (const site of new Set(old.map(({ partitionValues }) => partitionValues.site ?? null))) {
        const oldPartition = toPartition(table, EPOCH_DAY, site);
        const keys = findFiles(oldPartition, files).map(({ key }) => key);
        const updates = await readRows(table, keys, format, signal);
        changes.push({ partition: toPartition(table, null, site), updates, from: oldPartition });
      }
      const name = `moved-${randomBytes(8).toString("hex")}`;
      const commitWork = { batches: [], changes, name, positions: null, uploaded: new Map() };
      if (changes.length > 0) await replaceRows(table, changes, commitWork, signal);
    },
    /** Vacuums some files of one table per call, so that no other work waits for long. */
    async vacuum(signal) {
      if (vacuumSchedule.isDue()) pendingVacuum = TABLES;
      const [table] = pendingVacuum;
      if (table === undefined || !vacuumSchedule.isTrusted()) return;
      const removed = await getDeltaTable(table).vacuum(signal, MAX_REMOVED_FILES);
      if (removed < MAX_REMOVED_FILES) pendingVacuum = pendingVacuum.slice(1);
    },
  };
  return format;
}

/** Returns an unused key: the log may refer to an uploaded file although the response was lost. */
function chooseUnusedFileKey(key: string, digest: string, uploaded: UploadedFiles): string {
  let unusedKey = key;
  for (let n = 2; uploaded.has(unusedKey) && uploaded.get(unusedKey) !== digest; n++) {
    unusedKey = key.replace(/\.parquet$/, `-${n}.parquet`);
  }
  return unusedKey;
}

async function toAddedFile(
  key: string,
  bytes: number,
  { dayAndSite: of, table }: LakePartition,
  { columns, rows }: Pick<EncodedRows, "columns" | "rows">,
): Promise<AddedFile> {
  const stats = await computeStatistics(table, rows.length, (column, n) => columns.cell(column, rows[n] ?? 0));
  return { key, bytes, rows: rows.length, partitionValues: toPartitionValues(of), stats };
}

function toPartitionValues(of: LakePartition["dayAndSite"]): Readonly<Record<string, string | null>> {
  if (of === null) return {};
  return { date: of.day, site: of.site === null || of.site === "" ? null : of.site.toWellFormed() };
}

function buildTxn(positions: CommitWork["positions"]) {
  return positions === null ? null : { appId: positions.writerId, version: positions.through };
}

/** Schedules the daily vacuum. Tombstones have wall times: after a clock step, the vacuum waits for an hour. */
export function createVacuumSchedule(clock: Clock) {
  const clockOffset = () => clock.now() - clock.monotonic();
  let lastOffset = clockOffset();
  let trustedFromMs = clock.monotonic() + HOUR_MS;
  let dueAtMs = trustedFromMs;

  function isClockTrusted(): boolean {
    const now = clockOffset();
    if (Math.abs(now - lastOffset) > MIN_CLOCK_STEP_MS) trustedFromMs = clock.monotonic() + HOUR_MS;
    lastOffset = now;
    return clock.monotonic() >= trustedFromMs;
  }

  return {
    isTrusted: isClockTrusted,
    /** Must be called every few seconds, so that it notices each clock step. */
    isDue(): boolean {
      if (!isClockTrusted() || clock.monotonic() < dueAtMs) return false;
      dueAtMs = clock.monotonic() + DAY_MS;
      return true;
    },
  };
}
