import type { CommitResult, Store, StoreChange } from "../store/store.ts";

export type SyncState = Awaited<ReturnType<typeof createSyncState>>;

/** Keeps documents in memory, changed only by commits: after a failed commit the next poll finds the same changes. */
export async function createSyncState(store: Store, sets: readonly string[]) {
  const documents = new Map<string, Map<string, unknown>>();
  for (const set of sets) documents.set(set, await store.documents(set));
  const setVersions = new Map(sets.map((set) => [set, 0]));
  const observers = new Map<string, (before: unknown, after: unknown) => void>();

  function documentsOfSet(set: string): Map<string, unknown> {
    const documentMap = documents.get(set);
    if (documentMap === undefined) throw new Error(`The set ${set} is not held by this room.`);
    return documentMap;
  }

  function applyChange(set: string, id: string, after: unknown): void {
    const documentMap = documentsOfSet(set);
    observers.get(set)?.(documentMap.get(id), after);
    if (after === undefined) documentMap.delete(id);
    else documentMap.set(id, after);
  }
  const countVersion = (set: string) => setVersions.set(set, (setVersions.get(set) ?? 0) + 1);
  return {
    get<T>(set: string) {
      return documentsOfSet(set) as ReadonlyMap<string, T>;
    },
    version: (set: string) => setVersions.get(set) ?? null,

    /** Calls `observer` for each document of the set now, and at every commit with the document before and after. */
    observe<T>(set: string, observer: (before: T | undefined, after: T | undefined) => void) {
      for (const document of documentsOfSet(set).values()) observer(undefined, document as T);
      observers.set(set, observer as (before: unknown, after: unknown) => void);
    },
    async commit(change: StoreChange): Promise<CommitResult | null> {
      const changes = (change.documents ?? []).map(({ set, put = [], remove = [] }) => ({
        ...{ set, put: [...put], remove: [...remove] },
      }));
      const effectiveChanges = changes.filter(({ put, remove }) => put.length > 0 || remove.length > 0);
      if (effectiveChanges.length === 0 && (change.events ?? []).length === 0) return null;
      const commitResult = await store.commit({ ...change, documents: changes });
      for (const { set, put, remove } of effectiveChanges) {
        for (const id of remove) applyChange(set, id, undefined);
        for (const [id, value] of put) applyChange(set, id, value);
        countVersion(set);
      }
      return commitResult;
    },
    /** Changes a document in memory now. Resolves when the change is durable, with the next transaction. */
    async putDeferred(set: string, key: string, value: unknown): Promise<void> {
      applyChange(set, key, value);
      countVersion(set);
      await store.putDeferred(set, key, value);
    },
  };
}

/** Returns a store that reads documents from memory. The maps change: copy a map before you wait while iterating. */
export function withSyncState(store: Store, syncState: Pick<SyncState, "get" | "version">): Store {
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
