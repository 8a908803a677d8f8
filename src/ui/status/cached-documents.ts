import type { Clock } from "../../core/runtime/clock.ts";
import type { Store } from "../../engine/store/store.ts";

/** Loads a named value at most once per `maxAgeMs`, however often it is requested. */
export type Cache = <T>(name: string, maxAgeMs: number, load: () => Promise<T>) => Promise<T>;

export type CachedDocuments = ReturnType<typeof createCachedDocuments>;

/** Age limits for data that people watch, and for data that rarely changes. */
export const WATCHED_DATA_AGE_MS = 1_000;
export const SLOW_DATA_MS = 15_000;

/** Cache for the responses to all open pages. Returned values must not be changed. */
export function createCachedDocuments(store: Pick<Store, "documents" | "version">, clock: Pick<Clock, "monotonic">) {
  const computed = createCache(clock);
  const documentCounts = new Map<string, number>();
  const versions = new Map<string, number>();

  /** Caches a value that is computed from one set. `name` must not be the name of a set. */
  async function computedFrom<T>(set: string, name: string, maxAgeMs: number, load: () => Promise<T>): Promise<T> {
    const version = await store.version(set);
    const isChanged = versions.has(name) && versions.get(name) !== version;
    // Otherwise a worker that has just started would show no tags for as long as tags may be old.
    const requestedAgeMs = isChanged ? Math.min(maxAgeMs, WATCHED_DATA_AGE_MS) : maxAgeMs;
    return computed(name, Math.max(requestedAgeMs, ageOf(documentCounts.get(set) ?? 0)), () => {
      versions.set(name, version);
      return load();
    });
  }
  return {
    computed,
    computedFrom,
    /** Local changes are visible within a second, whatever the age limit, unless the set is too large. */
    documents: <T>(set: string, maxAgeMs: number): Promise<ReadonlyMap<string, T>> =>
      computedFrom(set, set, maxAgeMs, async () => {
        const documents = await store.documents<T>(set);
        documentCounts.set(set, documents.size);
        return documents;
      }),
  };
}

/**
 * Least age in milliseconds at which so many documents are read again. Reading one takes 4 µs and a page uses two large sets,
 * so an open page costs a hundredth of a core: 30,000 documents are read every half minute.
 */
export function ageOf(documents: number): number {
  return documents;
}

export function oncePer<K extends object, T>(compute: (input: K) => T): (input: K) => T {
  const results = new WeakMap<K, { readonly value: T }>();
  return (input) => {
    const result = results.get(input) ?? { value: compute(input) };
    results.set(input, result);
    return result.value;
  };
}

const MOST_NAMES = 300;

export function createCache(clock: Pick<Clock, "monotonic">): Cache {
  const entries = new Map<string, { readonly atMs: number; readonly value: Promise<unknown> }>();
  return async <T>(name: string, maxAgeMs: number, load: () => Promise<T>): Promise<T> => {
    const cachedEntry = entries.get(name);
    if (cachedEntry !== undefined && clock.monotonic() - cachedEntry.atMs < maxAgeMs)
      return (await cachedEntry.value) as T;
    const value = load();
    entries.delete(name);
    entries.set(name, { atMs: clock.monotonic(), value });
    for (const oldest of entries.keys()) {
      if (entries.size <= MOST_NAMES) break;
      entries.delete(oldest);
    }
    try {
      return await value;
    } catch (error) {
      entries.delete(name);
      throw error;
    }
  };
}
