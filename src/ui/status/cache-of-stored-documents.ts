import type { Clock } from "../../core/runtime/clock.ts";
import type { Store } from "../../engine/store/store.ts";

export type CachedDocuments = ReturnType<typeof createCachedDocuments>;

export const WATCHED_DATA_AGE_MS = 1_000;
export const SLOW_DATA_AGE_MS = 15_000;

/** Caches stored documents for all open pages; callers must not change the documents. */
export function createCachedDocuments(store: Pick<Store, "documents" | "version">, clock: Pick<Clock, "monotonic">) {
  const memoize = createValueCache(clock);
  const documentCountBySet = new Map<string, number>();
  const versionByName = new Map<string, number>();

  /** Caches a value that is computed from one document set. `name` must not be the name of a set. */
  async function memoizeFrom<T>(set: string, name: string, maxAgeMs: number, load: () => Promise<T>): Promise<T> {
    const versionOfSet = await store.version(set);
    const isSetChanged = versionByName.has(name) && versionByName.get(name) !== versionOfSet;
    // Without this limit, a worker that has just started would show no tags for many seconds.
    const allowedAgeMs = isSetChanged ? Math.min(maxAgeMs, WATCHED_DATA_AGE_MS) : maxAgeMs;
    return memoize(name, Math.max(allowedAgeMs, minCacheAgeMs(documentCountBySet.get(set) ?? 0)), () => {
      versionByName.set(name, versionOfSet);
      return load();
    });
  }
  return {
    memoize,
    memoizeFrom,
    /** Returns a document set. Writes of this worker appear within 1 s; in a set of 30,000 documents within 30 s. */
    documents: <T>(set: string, maxAgeMs: number): Promise<ReadonlyMap<string, T>> =>
      memoizeFrom(set, set, maxAgeMs, async () => {
        const documents = await store.documents<T>(set);
        documentCountBySet.set(set, documents.size);
        return documents;
      }),
  };
}

/** Returns the cache time, 1 ms per document: 30,000 documents, read in 0.12 s, are read at most every 30 s. */
export const minCacheAgeMs = (documentCount: number): number => documentCount;

export function memoizeByObject<K extends object, T>(compute: (input: K) => T): (input: K) => T {
  const resultByInput = new WeakMap<K, { readonly value: T }>();
  return (input) => {
    const result = resultByInput.get(input) ?? { value: compute(input) };
    resultByInput.set(input, result);
    return result.value;
  };
}

const MAX_CACHED_NAMES = 300;

/** The returned function loads a named value at most once per `maxAgeMs`, however often it is requested. */
export function createValueCache(clock: Pick<Clock, "monotonic">) {
  const cachedEntries = new Map<string, { readonly atMs: number; readonly value: Promise<unknown> }>();
  return async <T>(name: string, maxAgeMs: number, load: () => Promise<T>): Promise<T> => {
    const cachedEntry = cachedEntries.get(name);
    if (cachedEntry !== undefined && clock.monotonic() - cachedEntry.atMs < maxAgeMs) return cachedEntry.value as T;
    const value = load();
    value.catch(() => cachedEntries.delete(name));
    cachedEntries.delete(name);
    cachedEntries.set(name, { atMs: clock.monotonic(), value });
    const [oldestName = name] = cachedEntries.keys();
    if (cachedEntries.size > MAX_CACHED_NAMES) cachedEntries.delete(oldestName);
    return value;
  };
}
