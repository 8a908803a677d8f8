import { statfsSync } from "node:fs";
import { errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type DamagedRows, DocumentKeyConflict, type KnownStateCopy, type Store } from "../../engine/store/store.ts";

/** Size of the disk in bytes, and the bytes that our user may still write; null when unknown. */
export interface DiskSpace {
  readonly free: number | null;
  readonly diskBytes: number | null;
}

export interface StateReport extends DiskSpace {
  readonly file: string;
  readonly bytes: number;
  /** Origin of a copied state; null when it is no known copy. */
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
/** Free bytes below which the disk counts as full: the write-ahead log alone can take a quarter of it. */
const DISK_FULL_BYTES = 64 * 1024 ** 2;

export function isDiskFull(free: number | null): free is number {
  return free !== null && free < DISK_FULL_BYTES;
}

/** True when less than 1 GiB or less than a tenth is free. 10 GiB are always enough: a worker does not write as much in weeks. */
export function isDiskAlmostFull(free: number, diskBytes: number): boolean {
  return free < Math.max(GIBIBYTE, Math.min(0.1 * diskBytes, 10 * GIBIBYTE));
}

export interface CommitFailure {
  readonly since: string;
  readonly problem: string;
}

/** Wraps a store and records failed writes by kind: on a nearly full disk a slot of 50 bytes may fit where an event does not. */
export function watchFailedWrites(store: Store, clock: Clock) {
  const failureByWriteKind = new Map<"commit" | "settle" | "slot", CommitFailure>();
  async function recordWriteFailure<T>(kind: "commit" | "settle" | "slot", write: () => Promise<T>): Promise<T> {
    try {
      const result = await write();
      failureByWriteKind.delete(kind);
      return result;
    } catch (error) {
      // A conflict is about a key, not about the disk.
      if (!(error instanceof DocumentKeyConflict)) {
        const since = failureByWriteKind.get(kind)?.since ?? isoUtc(clock.now());
        failureByWriteKind.set(kind, { since, problem: errorText(error) });
      }
      throw error;
    }
  }
  const { outbox, quotaStore } = store;
  return {
    trouble: () => [...failureByWriteKind.values()].toSorted((a, b) => (a.since < b.since ? -1 : 1))[0] ?? null,
    store: {
      ...store,
      commit: (change) => recordWriteFailure("commit", () => store.commit(change)),
      putDeferred: (set, key, value) => recordWriteFailure("commit", () => store.putDeferred(set, key, value)),
      outbox: { ...outbox, settle: (sink, result) => recordWriteFailure("settle", () => outbox.settle(sink, result)) },
      quotaStore: { ...quotaStore, save: (key, slot) => recordWriteFailure("slot", () => quotaStore.save(key, slot)) },
    } satisfies Store,
  };
}

export function failedCommitWarnings(trouble: CommitFailure | null): readonly string[] {
  if (trouble === null) return [];
  return [
    `Nothing could be written to the state since ${trouble.since}, so nothing new is stored or sent: ${trouble.problem}`,
  ];
}
