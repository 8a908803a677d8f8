import type { Change, Committed, Store } from "../store/store.ts";

/**
 * The snapshot in memory: the documents that only this room changes, read once and changed by commits alone.
 * A commit that fails leaves it as it was, so that the next poll finds the same difference and tells it.
 */
export interface Holding {
  get<T>(set: string): ReadonlyMap<string, T>;
  /** One transaction: documents and events together, or neither. A change of nothing costs nothing. */
  commit(change: Change): Promise<Committed | null>;
}

export async function createHolding(store: Store, sets: readonly string[]): Promise<Holding> {
  const held = new Map<string, Map<string, unknown>>();
  for (const set of sets) held.set(set, await store.documents(set));

  const mapOf = (set: string): Map<string, unknown> => {
    const map = held.get(set);
    if (map === undefined) throw new Error(`The set ${set} is not held by this room.`);
    return map;
  };

  return {
    get<T>(set: string) {
      return mapOf(set) as ReadonlyMap<string, T>;
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
        const map = mapOf(set);
        for (const id of remove) map.delete(id);
        for (const [id, value] of put) map.set(id, value);
      }
      return committed;
    },
  };
}
