import { createHash } from "node:crypto";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { ParquetConfig } from "./config.ts";
import { createFolderStore, probeFolder } from "./folder-store.ts";
import type { ObjectStore } from "./object-store.ts";
import { endpointOf } from "./s3-answer.ts";
import { createS3Store } from "./s3-store.ts";

/** Where the lake is, by the configuration. */
export interface LakeStore {
  readonly store: ObjectStore;
  /** As in `Sink`. */
  readonly farEnd: string;
  /** As in `Sink`. */
  lastStepMs(): number;
  /** Writes nothing. */
  probe(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export function createLakeStore({ folder, mode, s3 }: ParquetConfig, clock: Clock): LakeStore {
  if (s3 !== undefined) {
    const store = createS3Store(s3, clock);
    const farEnd = hashOf(`${endpointOf(s3)} ${store.where}`);
    const { lastStepMs } = store;
    return { store, farEnd, lastStepMs, probe: (signal) => store.probe(signal), close: () => store.close() };
  }
  if (folder === undefined) throw new Error("A lake without a place passed the schema.");
  const store = createFolderStore(folder, Number.parseInt(mode, 8), clock);
  return {
    store,
    lastStepMs: () => store.lastStepMs(),
    farEnd: hashOf(store.where),
    probe: () => probeFolder(folder),
    close: async () => undefined,
  };
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
