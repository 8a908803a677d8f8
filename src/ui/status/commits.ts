import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { Conflict, type Store } from "../../engine/store/store.ts";

/** Why the state does not take what is to be remembered, and since when (UTC); null while the last write succeeded. */
export interface CommitTrouble {
  readonly since: string;
  readonly problem: string;
}

type Kind = "commit" | "settle" | "slot";

export interface WatchedStore {
  readonly store: Store;
  trouble(): CommitTrouble | null;
}

/**
 * The same store, which notes whether its writes succeed, each kind by itself: what is polled, what sinks have taken,
 * slots of the quota. On a disk that is nearly full a slot of 50 bytes may still fit where no event does.
 */
export function watchCommits(store: Store, clock: Clock): WatchedStore {
  const troubles = new Map<Kind, CommitTrouble>();

  async function noting<T>(kind: Kind, write: () => Promise<T>): Promise<T> {
    try {
      const written = await write();
      troubles.delete(kind);
      return written;
    } catch (error) {
      // A conflict is the store's word about a key, not about the disk.
      if (!(error instanceof Conflict)) {
        const since = troubles.get(kind)?.since ?? isoUtc(clock.now());
        troubles.set(kind, { since, problem: sentence(error) });
      }
      throw error;
    }
  }

  return {
    trouble: () => [...troubles.values()].toSorted((a, b) => (a.since < b.since ? -1 : 1))[0] ?? null,
    store: {
      ...store,
      commit: (change) => noting("commit", () => store.commit(change)),
      putDeferred: (set, key, value) => noting("commit", () => store.putDeferred(set, key, value)),
      outbox: {
        ...store.outbox,
        settle: (sink, settlement) => noting("settle", () => store.outbox.settle(sink, settlement)),
      },
      quotaStore: {
        ...store.quotaStore,
        save: (key, slot) => noting("slot", () => store.quotaStore.save(key, slot)),
      },
    },
  };
}

/** For a person; empty while writes succeed. */
export function commitNotices(trouble: CommitTrouble | null): readonly string[] {
  if (trouble === null) return [];
  return [
    `Nothing could be written to the state since ${trouble.since}, so nothing new is remembered or told: ${trouble.problem}`,
  ];
}
