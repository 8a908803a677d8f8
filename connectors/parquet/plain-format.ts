import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { dayOf } from "../shared/lake/rows.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { createColumns } from "./columns.ts";
import { type Compacted, joinFiles, mergeFiles } from "./compaction.ts";
import type { ObjectStore } from "./object-store.ts";
import { encodeParquet } from "./parquet-file.ts";
import { encodeReplacement, putBatches, readRows } from "./partition-files.ts";
import {
  EMPTY_FILE_NAME,
  FIRST_DAY,
  fileKeyIn,
  folderOf,
  isDivided,
  type Partition,
  partitionIn,
  partitionOf,
} from "./paths.ts";
import type { Change, PartitionBatch } from "./row-buffer.ts";
import { type Compaction, stateChange } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/** Table format in which all files in a table's folder belong to the table. A repeated commit overwrites its files. */
export function createPlainFormat(
  store: ObjectStore,
  { clock, memory }: Pick<ConnectorContext, "clock" | "memory">,
  maxRows?: number,
): TableFormat {
  /** Readers miss no row, and for a moment see rows twice, with the same key. The digest makes file names immutable. */
  async function replace({ bytes, kind, partition, sources }: Compacted, signal: AbortSignal): Promise<void> {
    const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
    const compaction = { result: fileKeyIn(partition, `${kind}-${digest}`), sources };
    await memory.put(stateChange({ compactions: [compaction] }));
    await store.put(compaction.result, bytes, signal);
    await removeSources(compaction, signal);
    await memory.put(stateChange({ compactions: [] }));
  }

  async function removeSources({ result, sources }: Compaction, signal: AbortSignal): Promise<void> {
    for (const key of sources) if (key !== result) await store.remove(key, signal);
  }

  async function replaceRows(change: Change, signal: AbortSignal): Promise<void> {
    const { from, partition } = change;
    const key = singleFileOf(partition);
    const replacement = await encodeReplacement(change, [key], format, signal);
    if (replacement !== null) await store.put(key, replacement.bytes, signal);
    if (from !== undefined) await store.remove(singleFileOf(from), signal);
  }

  const format: TableFormat = {
    name: "plain",
    where: store.where,
    read: (key, signal) => store.get(key, signal),

    /** Puts an empty file into the newest partition, or today's: views need each table and column in some file. */
    async createTable(table, signal) {
      const empty = await encodeParquet(createColumns(table), new Uint32Array());
      const folder = folderOf(table);
      if (!isDivided(table)) {
        await store.putIfAbsent(`${folder}${table.name}.parquet`, empty, signal);
        return;
      }
      const dates = await store.folders(folder, signal);
      const newest = dates.filter((date) => /^date=\d/.test(date) && date !== `date=${FIRST_DAY}`).at(-1);
      const [site] = newest === undefined ? [] : await store.folders(`${folder}${newest}/`, signal);
      const today = partitionOf(table, dayOf(clock.now()), null).folder;
      await store.put(`${site === undefined ? today : `${folder}${newest}/${site}/`}${EMPTY_FILE_NAME}`, empty, signal);
    },

    /** Creates missing tables, and moves what earlier versions put under 1970-01-01. */
    async repairFiles(signal) {
      for (const table of TABLES.filter(isDivided)) {
        const dates = await store.folders(folderOf(table), signal);
        const isOld = dates.includes(`date=${FIRST_DAY}`);
        if (dates.length === (isOld ? 1 : 0)) await format.createTable(table, signal);
        if (!isOld) continue;
        for (const { key } of await store.list(`${folderOf(table)}date=${FIRST_DAY}/`, signal)) {
          if (key.endsWith(`/${EMPTY_FILE_NAME}`)) await store.remove(key, signal);
          if (!key.endsWith(`/${table.name}.parquet`)) continue;
          const [, date = "", site = ""] = key.split("/");
          const from = partitionIn(table, date, site);
          if (from === null) continue;
          const updates = await readRows(table, [key], format, signal);
          await replaceRows(
            { partition: partitionOf(table, null, from.dayAndSite?.site ?? null), updates, from },
            signal,
          );
        }
      }
    },

    fileNameOf: (commit) => commit,
    possibleKeysOf: ({ batches }, name) => batches.map(({ partition }) => fileKeyIn(partition, name)),

    async commit({ batches, changes, name, uploaded }, signal) {
      const keyFor = ({ partition }: PartitionBatch) => fileKeyIn(partition, name);
      const files = await putBatches(batches, keyFor, store, uploaded, signal);
      for (const change of changes) await replaceRows(change, signal);
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
      for (const date of await store.folders(folderOf(table), signal())) {
        for (const site of await store.folders(`${folderOf(table)}${date}/`, signal())) {
          const partition = partitionIn(table, date, site);
          if (partition !== null) yield partition;
        }
      }
    },

    compact: (partition, signal) => mergeFiles(format, partition, signal, (merged) => replace(merged, signal), maxRows),

    async join(_table, partitions, signal) {
      for (const partition of partitions) {
        const joined = await joinFiles(format, partition, signal);
        if (joined !== null) await replace(joined, signal);
      }
    },

    async finishCompaction(compactions, signal) {
      for (const compaction of compactions) {
        const { result } = compaction;
        const isWritten = (await store.list(result, signal)).some(({ key }) => key === result);
        if (isWritten) await removeSources(compaction, signal);
      }
      await memory.put(stateChange({ compactions: [] }));
    },
  };
  return format;
}

/** Key of the only file of a partition whose rows change. */
function singleFileOf(partition: Partition): string {
  return fileKeyIn(partition, partition.table.name);
}
