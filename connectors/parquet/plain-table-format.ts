import { hash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { formatUtcDay } from "../shared/lake/event-rows.ts";
import { LAKE_TABLES } from "../shared/lake/tables.ts";
import {
  buildFileKey,
  buildTableFolder,
  dayPartition,
  EMPTY_PARQUET_FILE_NAME,
  hasDayPartitions,
  type LakePartition,
  parsePartitionFolders,
  UNIX_EPOCH_DAY,
} from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { encodeParquet } from "./parquet-file.ts";
import { type CompactedFile, joinSmallFiles, mergePartitionFiles } from "./partition-compaction.ts";
import { encodeReplacementFile, putBatchFiles, readTableRows } from "./partition-files.ts";
import type { PartitionBatch, PartitionUpdates } from "./row-buffer.ts";
import { createColumnarRows } from "./rows-to-columns.ts";
import { encodeSinkStateChange, type StoredCompaction } from "./sink-state.ts";
import type { LakeTableFormat } from "./table-format.ts";

/** Table format in which all files of a folder belong to its table. A repeated commit overwrites its own files. */
export function createPlainTableFormat(
  store: ObjectStore,
  { clock, sinkState }: Pick<ConnectorContext, "clock" | "sinkState">,
  maxRows?: number,
): LakeTableFormat {
  /** Writes the new file, then removes its sources: for a moment, readers see rows twice, but never miss a row. */
  async function replaceSourceFiles({ bytes, kind, partition, sources }: CompactedFile, signal: AbortSignal) {
    const contentDigest = hash("sha256", bytes).slice(0, 16);
    const compaction = { result: buildFileKey(partition, `${kind}-${contentDigest}`), sources };
    await sinkState.put(encodeSinkStateChange({ compactions: [compaction] }));
    await store.put(compaction.result, bytes, signal);
    await removeSourceFiles(compaction, signal);
    await sinkState.put(encodeSinkStateChange({ compactions: [] }));
  }

  async function removeSourceFiles({ result, sources }: StoredCompaction, signal: AbortSignal): Promise<void> {
    for (const key of sources) if (key !== result) await store.remove(key, signal);
  }

  async function replacePartitionRows(change: PartitionUpdates, signal: AbortSignal): Promise<void> {
    const { formerPartition, partition } = change;
    const key = buildWholeTableFileKey(partition);
    const replacementFile = await encodeReplacementFile(change, [key], tableFormat, signal);
    if (replacementFile !== null) await store.put(key, replacementFile.bytes, signal);
    if (formerPartition !== undefined) await store.remove(buildWholeTableFileKey(formerPartition), signal);
  }

  const tableFormat: LakeTableFormat = {
    name: "plain",
    location: store.location,
    readFile: (key, signal) => store.get(key, signal),
    /** Adds an empty file to the newest partition, or to today's: views need at least one file with every column. */
    async createTable(table, signal) {
      const emptyParquetFile = await encodeParquet(createColumnarRows(table), new Uint32Array());
      const folder = buildTableFolder(table);
      if (!hasDayPartitions(table)) {
        await store.putIfAbsent(`${folder}${table.name}.parquet`, emptyParquetFile, signal);
        return;
      }
      const dates = await store.listFolders(folder, signal);
      const newestDate = dates.filter((date) => /^date=\d/.test(date) && date !== `date=${UNIX_EPOCH_DAY}`).at(-1);
      const [siteFolder] = newestDate === undefined ? [] : await store.listFolders(`${folder}${newestDate}/`, signal);
      const todayPartitionFolder = dayPartition(table, formatUtcDay(clock.now()), null).folder;
      const targetFolder = siteFolder === undefined ? todayPartitionFolder : `${folder}${newestDate}/${siteFolder}/`;
      await store.put(`${targetFolder}${EMPTY_PARQUET_FILE_NAME}`, emptyParquetFile, signal);
    },
    /** Creates missing tables, and moves rows that earlier Plenum versions put under 1970-01-01. */
    async repairFiles(signal) {
      for (const table of LAKE_TABLES.filter(hasDayPartitions)) {
        const dateFolders = await store.listFolders(buildTableFolder(table), signal);
        const hasEpochDayPartition = dateFolders.includes(`date=${UNIX_EPOCH_DAY}`);
        if (dateFolders.length === (hasEpochDayPartition ? 1 : 0)) await tableFormat.createTable(table, signal);
        if (!hasEpochDayPartition) continue;
        for (const { key } of await store.list(`${buildTableFolder(table)}date=${UNIX_EPOCH_DAY}/`, signal)) {
          if (key.endsWith(`/${EMPTY_PARQUET_FILE_NAME}`)) await store.remove(key, signal);
          if (!key.endsWith(`/${table.name}.parquet`)) continue;
          const [, dateFolder = "", siteFolder = ""] = key.split("/");
          const oldPartition = parsePartitionFolders(table, dateFolder, siteFolder);
          if (oldPartition === null) continue;
          const updates = await readTableRows(table, [key], tableFormat, signal);
          const partition = dayPartition(table, null, oldPartition.dayAndSite?.site ?? null);
          await replacePartitionRows({ partition, updates, formerPartition: oldPartition }, signal);
        }
      }
    },
    buildFileName: (commit) => commit,
    listPossibleKeys: ({ batches }, name) => batches.map(({ partition }) => buildFileKey(partition, name)),
    async commit({ batches, updatedPartitions, name, uploaded }, signal) {
      const buildBatchKey = ({ partition }: PartitionBatch) => buildFileKey(partition, name);
      const files = await putBatchFiles(batches, buildBatchKey, store, uploaded, signal);
      for (const partitionUpdates of updatedPartitions) await replacePartitionRows(partitionUpdates, signal);
      return files.map(({ key }) => key);
    },
    async discardFiles(keys, signal) {
      for (const key of keys) await store.remove(key, signal);
    },
    async listFiles({ folder }, signal) {
      const files = await store.list(folder, signal);
      return files.filter(({ key }) => key.endsWith(".parquet") && !key.endsWith(`/${EMPTY_PARQUET_FILE_NAME}`));
    },
    async *listPartitions(table, signal) {
      for (const dateFolder of await store.listFolders(buildTableFolder(table), signal())) {
        for (const siteFolder of await store.listFolders(`${buildTableFolder(table)}${dateFolder}/`, signal())) {
          const partition = parsePartitionFolders(table, dateFolder, siteFolder);
          if (partition !== null) yield partition;
        }
      }
    },
    mergeFiles: (partition, signal) =>
      mergePartitionFiles(tableFormat, partition, signal, (file) => replaceSourceFiles(file, signal), maxRows),
    async joinFiles(partitions, signal) {
      for (const partition of partitions) {
        const joinedParquetFile = await joinSmallFiles(tableFormat, partition, signal);
        if (joinedParquetFile !== null) await replaceSourceFiles(joinedParquetFile, signal);
      }
    },
    async finishCompaction(compactions, signal) {
      for (const compaction of compactions) {
        const { result } = compaction;
        const isResultWritten = (await store.list(result, signal)).some(({ key }) => key === result);
        if (isResultWritten) await removeSourceFiles(compaction, signal);
      }
      await sinkState.put(encodeSinkStateChange({ compactions: [] }));
    },
  };
  return tableFormat;
}

/** Key of the only file of a partition whose rows change. */
const buildWholeTableFileKey = (partition: LakePartition): string => buildFileKey(partition, partition.table.name);
