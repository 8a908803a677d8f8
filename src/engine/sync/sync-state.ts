import type { Store, StoreChange, StoreCommitResult } from "../store/store.ts";

export type SyncState = Awaited<ReturnType<typeof createSyncState>>;

/** Keeps documents in memory, changed only by commits: after a failed commit the next poll finds the same changes. */
export async function createSyncState(store: Store, sets: readonly string[]) {
  const documentsBySet = new Map<string, Map<string, unknown>>();
  for (const set of sets) documentsBySet.set(set, await store.documents(set));
  const documentSetVersions = new Map(sets.map((set) => [set, 0]));
  const observersBySet = new Map<string, (before: unknown, after: unknown) => void>();

  function documentsOfSet(set: string): Map<string, unknown> {
    const documentsById = documentsBySet.get(set);
    if (documentsById === undefined) throw new Error(`The set ${set} is not held by this room.`);
    return documentsById;
  }

  function applyDocumentChange(set: string, id: string, after: unknown): void {
    const documentsById = documentsOfSet(set);
    observersBySet.get(set)?.(documentsById.get(id), after);
    if (after === undefined) documentsById.delete(id);
    else documentsById.set(id, after);
  }
  const incrementSetVersion = (set: string) => documentSetVersions.set(set, (documentSetVersions.get(set) ?? 0) + 1);
  return {
    get<T>(set: string) {
      return documentsOfSet(set) as ReadonlyMap<string, T>;
    },
    version: (set: string) => documentSetVersions.get(set) ?? null,

    /** Calls `observer` for each document of the set now, and at every commit with the document before and after. */
    observe<T>(set: string, observer: (before: T | undefined, after: T | undefined) => void) {
      for (const storedDocument of documentsOfSet(set).values()) observer(undefined, storedDocument as T);
      observersBySet.set(set, observer as (before: unknown, after: unknown) => void);
    },
    async commit(change: StoreChange): Promise<StoreCommitResult | null> {
      const documentChanges = (change.documents ?? []).map(({ set, put = [], remove = [] }) => ({
        ...{ set, put: [...put], remove: [...remove] },
      }));
      const effectiveChanges = documentChanges.filter(({ put, remove }) => put.length > 0 || remove.length > 0);
      if (effectiveChanges.length === 0 && (change.events ?? []).length === 0) return null;
      const commitResult = await store.commit({ ...change, documents: documentChanges });
      for (const { set, put, remove } of effectiveChanges) {
        for (const id of remove) applyDocumentChange(set, id, undefined);
        for (const [id, value] of put) applyDocumentChange(set, id, value);
        incrementSetVersion(set);
      }
      return commitResult;
    },
    /** Changes a document in memory now. Resolves when the change is durable, with the next transaction. */
    async putDeferred(set: string, key: string, value: unknown): Promise<void> {
      applyDocumentChange(set, key, value);
      incrementSetVersion(set);
      await store.putDeferred(set, key, value);
    },
  };
}

/** Returns a store that reads documents from memory. The maps change: copy a map before you wait while iterating. */
export function storeWithSyncState(store: Store, syncState: Pick<SyncState, "get" | "version">): Store {
  return {
    ...store,
    async document<T>(set: string, key: string) {
      return syncState.version(set) === null ? store.document<T>(set, key) : syncState.get<T>(set).get(key);
    },
    async documents<T>(set: string) {
      return syncState.version(set) === null ? store.documents<T>(set) : (syncState.get<T>(set) as Map<string, T>);
    },
    version: async (set) => syncState.version(set) ?? store.version(set),
  };
}
