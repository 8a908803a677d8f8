import type { Change, Committed, Store } from "../store/store.ts";

/**
 * The snapshot in memory: the documents that only this room changes, read once and changed by commits alone.
 * A commit that fails leaves it as it was, so that the next poll finds the same difference and tells it.
 */
export interface SyncState {
  get<T>(set: string): ReadonlyMap<string, T>;
  /** How often a set was changed since the start; null when it is not held by this room. */
  version(set: string): number | null;
  /** Calls `changed` for each document of the set: now with what it is, and at every commit with what it was and is. */
  observe<T>(set: string, changed: (before: T | undefined, after: T | undefined) => void): void;
  /** One transaction: documents and events together, or neither. A change of nothing costs nothing. */
  commit(change: Change): Promise<Committed | null>;
  /** Puts a document that may wait for a transaction; here it counts at once. Resolves once it is durable. */
  putDeferred(set: string, key: string, value: unknown): Promise<void>;
}

export async function createSyncState(store: Store, sets: readonly string[]): Promise<SyncState> {
  const held = new Map<string, Map<string, unknown>>();
  const versions = new Map<string, number>();
  for (const set of sets) held.set(set, await store.documents(set));

  const mapOf = (set: string): Map<string, unknown> => {
    const map = held.get(set);
    if (map === undefined) throw new Error(`The set ${set} is not held by this room.`);
    return map;
  };

  const changed = (set: string) => versions.set(set, (versions.get(set) ?? 0) + 1);
  const observers = new Map<string, (before: unknown, after: unknown) => void>();

  function apply(set: string, id: string, after: unknown): void {
    const map = mapOf(set);
    observers.get(set)?.(map.get(id), after);
    if (after === undefined) map.delete(id);
    else map.set(id, after);
  }

  return {
    get<T>(set: string) {
      return mapOf(set) as ReadonlyMap<string, T>;
    },

    version: (set) => (held.has(set) ? (versions.get(set) ?? 0) : null),

    observe<T>(set: string, observer: (before: T | undefined, after: T | undefined) => void) {
      for (const document of mapOf(set).values()) observer(undefined, document as T);
      observers.set(set, observer as (before: unknown, after: unknown) => void);
    },

    async commit(change) {
      const documents = (change.documents ?? []).map((one) => ({
        set: one.set,
        put: [...(one.put ?? [])],
        remove: [...(one.remove ?? [])],
      }));
      const empty = documents.every((one) => one.put.length === 0 && one.remove.length === 0);
      if (empty && (change.events ?? []).length === 0) return null;
      const committed = await store.commit({ ...change, documents });
      for (const { set, put, remove } of documents) {
        for (const id of remove) apply(set, id, undefined);
        for (const [id, value] of put) apply(set, id, value);
        if (put.length > 0 || remove.length > 0) changed(set);
      }
      return committed;
    },

    async putDeferred(set, key, value) {
      apply(set, key, value);
      changed(set);
      await store.putDeferred(set, key, value);
    },
  };
}

/**
 * The same store, but reads documents of this package from memory. 50,000 tags are in memory once instead of once per reader, and
 * reading them does not stop the event loop for half a second. The map keeps changing: copy it before you wait while iterating.
 */
export function withSyncState(store: Store, holding: Pick<SyncState, "get" | "version">): Store {
  return {
    ...store,
    async document<T>(set: string, key: string) {
      return holding.version(set) === null ? store.document<T>(set, key) : holding.get<T>(set).get(key);
    },
    async documents<T>(set: string) {
      return holding.version(set) === null ? store.documents<T>(set) : (holding.get<T>(set) as Map<string, T>);
    },
    version: async (set) => holding.version(set) ?? store.version(set),
  };
}
