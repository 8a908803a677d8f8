import { statfsSync } from "node:fs";
import { errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type DamagedRows, DocumentKeyConflict, type KnownStateCopy, type Store } from "../../engine/store/store.ts";

export interface DiskSpace {
  readonly free: number | null;
  readonly diskBytes: number | null;
}

export interface StateReport extends DiskSpace {
  readonly file: string;
  readonly bytes: number;
  readonly copy: KnownStateCopy | null;
  readonly damaged: readonly DamagedRows[];
}

export function readDiskSpace(file: string): DiskSpace {
  try {
    const { bavail, blocks, bsize } = statfsSync(file);
    return { free: bavail * bsize, diskBytes: blocks * bsize };
  } catch {
    return { free: null, diskBytes: null };
  }
}

const GIBIBYTE = 1024 ** 3;
/** A disk with fewer free bytes counts as full, because the write-ahead log alone can take 16 MiB. */
const DISK_FULL_BYTES = 64 * 1024 ** 2;

export const isDiskFull = (free: number | null): free is number => free !== null && free < DISK_FULL_BYTES;

/** Returns true for a nearly full disk; 10 free GiB are always enough, as a worker writes less in weeks. */
export function isDiskAlmostFull(free: number, diskBytes: number): boolean {
  return free < Math.max(GIBIBYTE, Math.min(0.1 * diskBytes, 10 * GIBIBYTE));
}

export interface CommitFailure {
  readonly since: string;
  readonly problem: string;
}

/** Records the latest write failure per kind of write, because on a nearly full disk small writes may still succeed. */
export function watchFailedWrites(store: Store, clock: Clock) {
  const failureByWriteKind = new Map<"commit" | "settle" | "slot", CommitFailure>();
  async function recordWriteFailure<T>(kind: "commit" | "settle" | "slot", write: () => Promise<T>): Promise<T> {
    try {
      const result = await write();
      failureByWriteKind.delete(kind);
      return result;
    } catch (error) {
      // A conflict between document keys is not a disk failure.
      if (!(error instanceof DocumentKeyConflict)) {
        const since = failureByWriteKind.get(kind)?.since ?? isoUtc(clock.now());
        failureByWriteKind.set(kind, { since, problem: errorText(error) });
      }
      throw error;
    }
  }
  const { outbox, quotaStore } = store;
  return {
    oldestFailure: () => [...failureByWriteKind.values()].toSorted((a, b) => (a.since < b.since ? -1 : 1))[0] ?? null,
    store: {
      ...store,
      commit: (change) => recordWriteFailure("commit", () => store.commit(change)),
      putDeferred: (set, key, value) => recordWriteFailure("commit", () => store.putDeferred(set, key, value)),
      outbox: { ...outbox, settle: (sink, result) => recordWriteFailure("settle", () => outbox.settle(sink, result)) },
      quotaStore: { ...quotaStore, save: (key, slot) => recordWriteFailure("slot", () => quotaStore.save(key, slot)) },
    } satisfies Store,
  };
}

export function failedCommitWarnings(failure: CommitFailure | null): readonly string[] {
  if (failure === null) return [];
  return [
    `Nothing could be written to the state since ${failure.since}, so nothing new is stored or sent: ${failure.problem}`,
  ];
}
