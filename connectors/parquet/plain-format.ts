import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { formatUtcDay } from "../shared/lake/event-rows.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { createColumns } from "./columnar-rows.ts";
import {
  EMPTY_FILE_NAME,
  EPOCH_DAY,
  fileKey,
  hasPartitions,
  type LakePartition,
  parsePartition,
  tableFolder,
  toPartition,
} from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { encodeParquet } from "./parquet-file.ts";
import { type CompactedFile, joinFiles, mergeFiles } from "./partition-compaction.ts";
import { encodeReplacement, putBatches, readRows } from "./partition-files.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { encodeChange, type StoredCompaction } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/** Table format in which all files of a folder belong to its table. A repeated commit overwrites its own files. */
export function createPlainFormat(
  store: ObjectStore,
  { clock, sinkState }: Pick<ConnectorContext, "clock" | "sinkState">,
  maxRows?: number,
): TableFormat {
  /** Writes the new file, then removes its sources: for a moment, readers see rows twice, but never miss a row. */
  async function replaceFiles({ bytes, kind, partition, sources }: CompactedFile, signal: AbortSignal): Promise<void> {
    const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
    const compaction = { result: fileKey(partition, `${kind}-${digest}`), sources };
    await sinkState.put(encodeChange({ compactions: [compaction] }));
    await store.put(compaction.result, bytes, signal);
    await removeSources(compaction, signal);
    await sinkState.put(encodeChange({ compactions: [] }));
  }

  async function removeSources({ result, sources }: StoredCompaction, signal: AbortSignal): Promise<void> {
    for (const key of sources) if (key !== result) await store.remove(key, signal);
  }

  async function replaceRows(change: PartitionUpdates, signal: AbortSignal): Promise<void> {
    const { from, partition } = change;
    const key = undividedFileKey(partition);
    const replacement = await encodeReplacement(change, [key], format, signal);
    if (replacement !== null) await store.put(key, replacement.bytes, signal);
    if (from !== undefined) await store.remove(undividedFileKey(from), signal);
  }

  const format: TableFormat = {
    name: "plain",
    where: store.where,
    read: (key, signal) => store.get(key, signal),
    /** Puts an empty file into the newest partition, or today's: views need at least one file with every column. */
    async createTable(table, signal) {
      const emptyFile = await encodeParquet(createColumns(table), new Uint32Array());
      const folder = tableFolder(table);
      if (!hasPartitions(table)) {
        await store.putIfAbsent(`${folder}${table.name}.parquet`, emptyFile, signal);
        return;
      }
      const dates = await store.folders(folder, signal);
      const newestDate = dates.filter((date) => /^date=\d/.test(date) && date !== `date=${EPOCH_DAY}`).at(-1);
      const [site] = newestDate === undefined ? [] : await store.folders(`${folder}${newestDate}/`, signal);
      const todayFolder = toPartition(table, formatUtcDay(clock.now()), null).folder;
      const targetFolder = site === undefined ? todayFolder : `${folder}${newestDate}/${site}/`;
      await store.put(`${targetFolder}${EMPTY_FILE_NAME}`, emptyFile, signal);
    },
    /** Creates missing tables, and moves rows that earlier versions put under 1970-01-01. */
    async repairFiles(signal) {
      for (const table of TABLES.filter(hasPartitions)) {
        const dates = await store.folders(tableFolder(table), signal);
        const hasFirstPartitionDay = dates.includes(`date=${EPOCH_DAY}`);
        if (dates.length === (hasFirstPartitionDay ? 1 : 0)) await format.createTable(table, signal);
        if (!hasFirstPartitionDay) continue;
        for (const { key } of await store.list(`${tableFolder(table)}date=${EPOCH_DAY}/`, signal)) {
          if (key.endsWith(`/${EMPTY_FILE_NAME}`)) await store.remove(key, signal);
          if (!key.endsWith(`/${table.name}.parquet`)) continue;
          const [, date = "", site = ""] = key.split("/");
          const oldPartition = parsePartition(table, date, site);
          if (oldPartition === null) continue;
          const updates = await readRows(table, [key], format, signal);
          await replaceRows(
            { partition: toPartition(table, null, oldPartition.dayAndSite?.site ?? null), updates, from: oldPartition },
            signal,
          );
        }
      }
    },
    fileNameOf: (commit) => commit,
    possibleKeysOf: ({ batches }, name) => batches.map(({ partition }) => fileKey(partition, name)),
    async commit({ batches, changes, name, uploaded }, signal) {
      const buildKey = ({ partition }: PartitionBatch) => fileKey(partition, name);
      const files = await putBatches(batches, buildKey, store, uploaded, signal);
      for (const partitionUpdates of changes) await replaceRows(partitionUpdates, signal);
      return files.map(({ key }) => key);
    },
    async discard(keys, signal) {
      for (const key of keys) await store.remove(key, signal);
    },
    async filesOf({ folder }, signal) {
      const files = await store.list(folder, signal);
      return files.filter(({ key }) => key.endsWith(".parquet") && !key.endsWith(`/${EMPTY_FILE_NAME}`));
    },
    async *partitions(table, signal) {
      for (const date of await store.folders(tableFolder(table), signal())) {
        for (const site of await store.folders(`${tableFolder(table)}${date}/`, signal())) {
          const partition = parsePartition(table, date, site);
          if (partition !== null) yield partition;
        }
      }
    },
    compact: (partition, signal) =>
      mergeFiles(format, partition, signal, (file) => replaceFiles(file, signal), maxRows),
    async join(_table, partitions, signal) {
      for (const partition of partitions) {
        const joinedParquetFile = await joinFiles(format, partition, signal);
        if (joinedParquetFile !== null) await replaceFiles(joinedParquetFile, signal);
      }
    },
    async finishCompaction(compactions, signal) {
      for (const compaction of compactions) {
        const { result } = compaction;
        const isWritten = (await store.list(result, signal)).some(({ key }) => key === result);
        if (isWritten) await removeSources(compaction, signal);
      }
      await sinkState.put(encodeChange({ compactions: [] }));
    },
  };
  return format;
}

/** Key of the only file of a partition whose rows change. */
function undividedFileKey(partition: LakePartition): string {
  return fileKey(partition, partition.table.name);
}
