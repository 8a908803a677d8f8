import type { Store, StoreChange, StoreCommitResult } from "../store/store.ts";

export type SyncState = Awaited<ReturnType<typeof createSyncState>>;

/** Keeps documents in memory, changed only by commits: after a failed commit the next poll finds the same changes. */
export async function createSyncState(store: Store, setNames: readonly string[]) {
  const documentsBySet = new Map<string, Map<string, unknown>>();
  for (const setName of setNames) documentsBySet.set(setName, await store.documents(setName));
  const documentSetVersions = new Map(setNames.map((setName) => [setName, 0]));
  const observersBySet = new Map<string, (before: unknown, after: unknown) => void>();

  function documentsOfSet(setName: string): Map<string, unknown> {
    const documentsById = documentsBySet.get(setName);
    if (documentsById === undefined) throw new Error(`The set ${setName} was not loaded.`);
    return documentsById;
  }

  function applyDocumentChange(setName: string, id: string, newDocument: unknown): void {
    const documentsById = documentsOfSet(setName);
    observersBySet.get(setName)?.(documentsById.get(id), newDocument);
    if (newDocument === undefined) documentsById.delete(id);
    else documentsById.set(id, newDocument);
  }
  const incrementSetVersion = (setName: string) =>
    documentSetVersions.set(setName, (documentSetVersions.get(setName) ?? 0) + 1);
  return {
    get<T>(setName: string) {
      return documentsOfSet(setName) as ReadonlyMap<string, T>;
    },
    version: (setName: string) => documentSetVersions.get(setName) ?? null,

    /** Calls `observer` for each document of the set now, and at every commit with the document before and after. */
    observe<T>(setName: string, observer: (before: T | undefined, after: T | undefined) => void) {
      for (const storedDocument of documentsOfSet(setName).values()) observer(undefined, storedDocument as T);
      observersBySet.set(setName, observer as (before: unknown, after: unknown) => void);
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
    async putDeferred(setName: string, key: string, value: unknown): Promise<void> {
      applyDocumentChange(setName, key, value);
      incrementSetVersion(setName);
      await store.putDeferred(setName, key, value);
    },
  };
}

/** Returns a store that reads documents from memory. Its maps change: copy a map before an iteration that awaits. */
export function storeWithSyncState(store: Store, syncState: Pick<SyncState, "get" | "version">): Store {
  return {
    ...store,
    async document<T>(setName: string, key: string) {
      return syncState.version(setName) === null ? store.document<T>(setName, key) : syncState.get<T>(setName).get(key);
    },
    async documents<T>(setName: string) {
      return syncState.version(setName) === null
        ? store.documents<T>(setName)
        : (syncState.get<T>(setName) as Map<string, T>);
    },
    version: async (setName) => syncState.version(setName) ?? store.version(setName),
  };
}
