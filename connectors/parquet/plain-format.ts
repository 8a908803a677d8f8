import { createHash } from "node:crypto";
import type { SinkMemory } from "../../src/connector.ts";
import { type Compaction, compacting } from "./book.ts";
import { replacementOf } from "./changing.ts";
import { createColumns } from "./columns.ts";
import { compact } from "./compaction.ts";
import { putPortions } from "./landing.ts";
import type { ObjectStore } from "./object-store.ts";
import { parquetOf } from "./parquet-file.ts";
import { emptyOf, undivided, wholeOf } from "./paths.ts";
import type { TableFormat } from "./table-format.ts";

/**
 * A file counts by lying in its table's folder. What is repeated after a crash gets the same names and overwrites what was
 * there; what changes is one object, replaced whole.
 */
export function createPlainFormat(options: {
  readonly store: ObjectStore;
  readonly memory: Pick<SinkMemory, "put">;
  /** Rows of a compacted file at most. */
  readonly maxRows?: number;
}): TableFormat {
  const { memory, store } = options;
  const where = (key: string) => `${store.where}/${key}`;

  async function removeSources({ result, sources }: Compaction, signal: AbortSignal): Promise<void> {
    for (const key of sources) if (key !== result) await store.remove(key, signal);
    await memory.put(compacting(null));
  }

  const format: TableFormat = {
    name: "plain",

    /**
     * A file without rows: a view over a table of which nothing was told yet, or that names a column which came later,
     * fails where no file has it.
     */
    async make(table, signal) {
      const empty = await parquetOf(createColumns(table), new Uint32Array());
      if (table.keeping === "versions") await store.putIfAbsent(wholeOf(undivided(table)), empty, signal);
      else await store.put(emptyOf(table), empty, signal);
    },

    nameOf: (landing) => landing,
    keysOf: ({ portions }, name) => portions.map(({ partition }) => `${partition.folder}${name}.parquet`),

    async land({ portions, changes, name, arrived }, signal) {
      const keyFor = ({ partition }: (typeof portions)[number]) => `${partition.folder}${name}.parquet`;
      const files = await putPortions({ portions, keyFor, store, arrived, signal });
      for (const change of changes) {
        const key = wholeOf(change.partition);
        const replacement = await replacementOf(change, [key], (each) => store.get(each, signal), where);
        if (replacement !== null) await store.put(key, replacement.bytes, signal);
      }
      return files.map(({ key }) => key);
    },

    async discard(keys, signal) {
      for (const key of keys) await store.remove(key, signal);
    },

    async filesOf({ folder }, signal) {
      const objects = await store.list(folder, signal);
      return objects.map(({ key }) => key).filter((key) => key.endsWith(".parquet"));
    },
    read: (key, signal) => store.get(key, signal),

    /**
     * The new file is put before the old ones are removed, so a reader misses nothing; for the moment in between it meets
     * rows twice, with the same key. Which files are to go is written down first. A name says what is in the file, so a
     * file is never replaced by another while somebody reads it.
     */
    async compact(partition, signal) {
      await compact(partition, await format.filesOf(partition, signal), {
        read: (key) => store.get(key, signal),
        nameOf: where,
        signal,
        ...(options.maxRows === undefined ? {} : { maxRows: options.maxRows }),
        async replace({ bytes, sources }) {
          const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
          const compaction = { result: `${partition.folder}day-${digest}.parquet`, sources };
          await memory.put(compacting(compaction));
          await store.put(compaction.result, bytes, signal);
          await removeSources(compaction, signal);
        },
      });
    },

    /** Where the new file is there, the files that it was made of go. */
    async finishCompaction(compaction, signal) {
      const { result } = compaction;
      const isThere = (await store.list(result, signal)).some(({ key }) => key === result);
      await removeSources(isThere ? compaction : { result, sources: [] }, signal);
    },
  };
  return format;
}
