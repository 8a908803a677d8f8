import type { Store, StoreChange, StoreCommitResult } from "../store/store.ts";

export type SyncState = Awaited<ReturnType<typeof createSyncState>>;

interface LoadedSet {
  readonly documents: Map<string, unknown>;
  version: number;
  observe: (before: unknown, after: unknown) => void;
}

/** Keeps documents in memory, changed only by commits: after a failed commit the next poll finds the same changes. */
export async function createSyncState(store: Store, setNames: readonly string[]) {
  const documentSets = new Map<string, LoadedSet>();
  for (const setName of setNames)
    documentSets.set(setName, { documents: await store.documents(setName), version: 0, observe: () => undefined });

  function loadedSet(setName: string): LoadedSet {
    const documentSet = documentSets.get(setName);
    if (documentSet === undefined) throw new Error(`The set ${setName} was not loaded.`);
    return documentSet;
  }

  function applyDocumentChange({ documents, observe }: LoadedSet, id: string, newDocument: unknown): void {
    observe(documents.get(id), newDocument);
    if (newDocument === undefined) documents.delete(id);
    else documents.set(id, newDocument);
  }

  return {
    get<T>(setName: string) {
      return loadedSet(setName).documents as ReadonlyMap<string, T>;
    },
    version: (setName: string) => documentSets.get(setName)?.version ?? null,

    /** Calls `observer` for each document of the set now, and at every commit with the document before and after. */
    observe<T>(setName: string, observer: (before: T | undefined, after: T | undefined) => void) {
      const documentSet = loadedSet(setName);
      for (const storedDocument of documentSet.documents.values()) observer(undefined, storedDocument as T);
      documentSet.observe = observer as LoadedSet["observe"];
    },
    async commit(change: StoreChange): Promise<StoreCommitResult | null> {
      const documentChanges = (change.documents ?? []).map(({ set, put = [], remove = [] }) => ({
        ...{ set, put: [...put], remove: [...remove] },
      }));
      const effectiveChanges = documentChanges.filter(({ put, remove }) => put.length > 0 || remove.length > 0);
      if (effectiveChanges.length === 0 && (change.events ?? []).length === 0) return null;
      const commitResult = await store.commit({ ...change, documents: documentChanges });
      for (const { set, put, remove } of effectiveChanges) {
        const documentSet = loadedSet(set);
        for (const id of remove) applyDocumentChange(documentSet, id, undefined);
        for (const [id, value] of put) applyDocumentChange(documentSet, id, value);
        documentSet.version += 1;
      }
      return commitResult;
    },
    /** Changes a document in memory now. Resolves when the change is durable, with the next transaction. */
    async putDeferred(setName: string, key: string, value: unknown): Promise<void> {
      const documentSet = loadedSet(setName);
      applyDocumentChange(documentSet, key, value);
      documentSet.version += 1;
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
