import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { dayOf } from "../shared/lake/rows.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { putBatches, replacementOf, rowsOfFiles } from "./batches.ts";
import { createColumns } from "./columns.ts";
import { type Compacted, join, merge } from "./compaction.ts";
import type { ObjectStore } from "./object-store.ts";
import { parquetOf } from "./parquet-file.ts";
import {
  EMPTY,
  FIRST_DAY,
  folderOf,
  isDivided,
  type Partition,
  partitionIn,
  partitionOf,
  singleFileOf,
  undivided,
} from "./paths.ts";
import type { Change } from "./row-buffer.ts";
import { type Compaction, rememberCompactions } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/**
 * Table format in which all files of a table's folder belong to the table. A repeated commit writes the same names
 * and so overwrites its earlier files; rows that change are one object, replaced completely.
 */
export function createPlainFormat(options: {
  readonly store: ObjectStore;
  readonly memory: Pick<ConnectorContext["memory"], "put">;
  readonly clock: Pick<ConnectorContext["clock"], "now">;
  readonly maxRows?: number;
}): TableFormat {
  const { clock, memory, store } = options;
  const where = (key: string) => `${store.where}/${key}`;

  /**
   * Puts the new file before it removes the old ones, so a reader misses nothing; for a moment it sees rows twice,
   * with the same key. The sources are recorded first. The name contains a digest of the content, so a file never
   * changes while it is read.
   */
  async function replace(
    kind: "day" | "hour",
    { folder }: Partition,
    { bytes, sources }: Compacted,
    signal: AbortSignal,
  ): Promise<void> {
    const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
    const compaction = { result: `${folder}${kind}-${digest}.parquet`, sources };
    await memory.put(rememberCompactions([compaction]));
    await store.put(compaction.result, bytes, signal);
    await removeSources(compaction, signal);
    await memory.put(rememberCompactions([]));
  }

  async function removeSources({ result, sources }: Compaction, signal: AbortSignal): Promise<void> {
    for (const key of sources) if (key !== result) await store.remove(key, signal);
  }

  const toolsFor = (signal: AbortSignal) => ({
    read: (key: string) => store.get(key, signal),
    nameOf: where,
    signal,
    ...(options.maxRows === undefined ? {} : { maxRows: options.maxRows }),
  });

  async function change({ from, updates, partition }: Change, signal: AbortSignal): Promise<void> {
    const key = singleFileOf(partition);
    const work = { partition, updates };
    const replacement = await replacementOf(work, [key], (each) => store.get(each, signal), where);
    if (replacement !== null) await store.put(key, replacement.bytes, signal);
    if (from !== undefined) await store.remove(singleFileOf(from), signal);
  }

  const format: TableFormat = {
    name: "plain",

    /**
     * Writes a file without rows into the newest partition, or today's: a view fails where no file has a table or
     * one of its columns.
     */
    async make(table, signal) {
      const empty = await parquetOf(createColumns(table), new Uint32Array());
      if (!isDivided(table)) {
        await store.putIfAbsent(singleFileOf(undivided(table)), empty, signal);
        return;
      }
      const dates = await store.folders(folderOf(table), signal);
      const newest = dates.filter((date) => /^date=\d/.test(date) && date !== `date=${FIRST_DAY}`).at(-1);
      const sites = newest === undefined ? [] : await store.folders(`${folderOf(table)}${newest}/`, signal);
      const newestFolder = sites[0] === undefined ? null : `${folderOf(table)}${newest}/${sites[0]}/`;
      const folder = newestFolder ?? partitionOf(table, dayOf(clock.now()), null).folder;
      await store.put(`${folder}${EMPTY}`, empty, signal);
    },

    /**
     * Writes an empty file for each table without files, and moves what earlier versions put under 1970-01-01:
     * empty files, and alarms without a time.
     */
    async prepare(signal) {
      for (const table of TABLES) {
        if (!isDivided(table)) continue;
        const dates = await store.folders(folderOf(table), signal);
        const isOld = dates.includes(`date=${FIRST_DAY}`);
        if (dates.length === (isOld ? 1 : 0)) await format.make(table, signal);
        if (!isOld) continue;
        for (const { key } of await store.list(`${folderOf(table)}date=${FIRST_DAY}/`, signal)) {
          if (key.endsWith(`/${EMPTY}`)) await store.remove(key, signal);
          if (!key.endsWith(`/${table.name}.parquet`)) continue;
          const [, date = "", site = ""] = key.split("/");
          const from = partitionIn(table, date, site);
          if (from === null) continue;
          const updates = await rowsOfFiles(table, [key], (each) => store.get(each, signal), where);
          await change({ partition: partitionOf(table, null, from.of?.site ?? null), updates, from }, signal);
        }
      }
    },

    nameOf: (name) => name,
    keysOf: ({ batches }, name) => batches.map(({ partition }) => `${partition.folder}${name}.parquet`),

    async commit({ batches, changes, name, uploaded }, signal) {
      const keyFor = ({ partition }: (typeof batches)[number]) => `${partition.folder}${name}.parquet`;
      const files = await putBatches({ batches, keyFor, store, uploaded, signal });
      for (const each of changes) await change(each, signal);
      return files.map(({ key }) => key);
    },

    async discard(keys, signal) {
      for (const key of keys) await store.remove(key, signal);
    },

    async filesOf({ folder }, signal) {
      const objects = await store.list(folder, signal);
      return objects.filter(({ key }) => key.endsWith(".parquet") && !key.endsWith(`/${EMPTY}`));
    },
    read: (key, signal) => store.get(key, signal),

    async *partitions(table, signal) {
      for (const date of await store.folders(folderOf(table), signal())) {
        for (const site of await store.folders(`${folderOf(table)}${date}/`, signal())) {
          const partition = partitionIn(table, date, site);
          if (partition !== null) yield partition;
        }
      }
    },

    async compact(partition, signal) {
      await merge(partition, await format.filesOf(partition, signal), {
        ...toolsFor(signal),
        replace: (merged) => replace("day", partition, merged, signal),
      });
    },

    async join(_table, partitions, signal) {
      for (const partition of partitions) {
        const joined = await join(partition, await format.filesOf(partition, signal), toolsFor(signal));
        if (joined !== null) await replace("hour", partition, joined, signal);
      }
    },

    /** Removes the sources of a compaction whose result exists. */
    async finishCompaction(compactions, signal) {
      for (const compaction of compactions) {
        const { result } = compaction;
        const isThere = (await store.list(result, signal)).some(({ key }) => key === result);
        if (isThere) await removeSources(compaction, signal);
      }
      await memory.put(rememberCompactions([]));
    },
  };
  return format;
}
