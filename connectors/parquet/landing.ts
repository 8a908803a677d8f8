import { createHash } from "node:crypto";
import type { Portion } from "./hand.ts";
import type { ObjectStore } from "./object-store.ts";
import { parquetOf } from "./parquet-file.ts";
import type { Arrived } from "./table-format.ts";

/** Objects on their way at a time: a storage far away takes 50 ms for each, however small. */
const AT_ONCE = 8;

export interface PutFile {
  readonly key: string;
  readonly bytes: number;
  /** In the order of the file. */
  readonly rows: Uint32Array;
  readonly portion: Portion;
}

/** Puts each portion as a file into its folder; all of them are durable when it resolves. */
export async function putPortions(options: {
  readonly portions: readonly Portion[];
  /** The key for a portion's file of this content. */
  readonly keyFor: (portion: Portion, digest: string) => string;
  readonly store: ObjectStore;
  readonly arrived: Arrived;
  readonly signal: AbortSignal;
}): Promise<readonly PutFile[]> {
  const { arrived, keyFor, portions, signal, store } = options;
  const files: PutFile[] = [];
  const underWay = new Set<Promise<void>>();
  const faults: unknown[] = [];
  try {
    for (const portion of portions) {
      if (faults.length > 0) break;
      signal.throwIfAborted();
      const rows = await portion.sorted();
      const bytes = await parquetOf(portion.columns, rows);
      const digest = digestOf(bytes);
      const key = keyFor(portion, digest);
      files.push({ key, bytes: bytes.length, rows, portion });
      if (arrived.get(key) === digest) continue;
      const put = store.put(key, bytes, signal).then(
        () => void arrived.set(key, digest),
        (error: unknown) => void faults.push(error),
      );
      underWay.add(put);
      void put.finally(() => underWay.delete(put));
      if (underWay.size >= AT_ONCE) await Promise.race(underWay);
    }
  } finally {
    await Promise.all(underWay);
  }
  if (faults.length > 0) throw faults[0];
  return files;
}

export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64");
}
