import type { Clock } from "../../core/runtime/clock.ts";
import type { Store } from "../../engine/store/store.ts";

/** Makes what is asked for by name at most once in a while, however often it is asked. */
export type Made = <T>(name: string, maxAgeMs: number, make: () => Promise<T>) => Promise<T>;

/**
 * Reads what is shown at most once in a while, however many pages are open: a source of 4,000 tags takes tens of
 * milliseconds to read, and every open page asks every two seconds. What it answers must not be changed.
 */
export interface CachedDocuments {
  /** Local changes are visible within a second, whatever the age limit, unless the set is too large. */
  documents<T>(set: string, maxAgeMs: number): Promise<ReadonlyMap<string, T>>;
  /** The same for what is made from a set; `name` is no set's. */
  madeFrom<T>(set: string, name: string, maxAgeMs: number, make: () => Promise<T>): Promise<T>;
  /** The same for what is made from more than one, or from none. */
  readonly made: Made;
}

export function createCachedDocuments(
  store: Pick<Store, "documents" | "version">,
  clock: Pick<Clock, "monotonic">,
): CachedDocuments {
  const made = createMade(clock);
  const sizes = new Map<string, number>();
  const versions = new Map<string, number>();

  async function madeFrom<T>(set: string, name: string, maxAgeMs: number, make: () => Promise<T>): Promise<T> {
    const version = await store.version(set);
    const isChanged = versions.has(name) && versions.get(name) !== version;
    // A worker that has just begun would be said to know of no tags for as long as tags may be old.
    const wantedMs = isChanged ? Math.min(maxAgeMs, WATCHED_MS) : maxAgeMs;
    return made(name, Math.max(wantedMs, ageOf(sizes.get(set) ?? 0)), () => {
      versions.set(name, version);
      return make();
    });
  }

  return {
    made,
    madeFrom,
    documents<T>(set: string, maxAgeMs: number) {
      return madeFrom(set, set, maxAgeMs, async () => {
        const documents = await store.documents<T>(set);
        sizes.set(set, documents.size);
        return documents;
      });
    },
  };
}

/**
 * How old what so many documents were read for may be, milliseconds: to read one takes 4 µs, and a page asks for two large
 * sets, so that an open page costs a hundredth of a core. Of 1,000 it is a second, of 30,000 half a minute.
 */
export function ageOf(documents: number): number {
  return documents;
}

/** Makes something of what was read once, however often it is asked for while the same is remembered. */
export function oncePer<K extends object, T>(make: (read: K) => T): (read: K) => T {
  const made = new WeakMap<K, { readonly value: T }>();
  return (read) => {
    const known = made.get(read) ?? { value: make(read) };
    made.set(read, known);
    return known.value;
  };
}

/** Most cached names; a few dozen are requested all the time. */
const MOST_NAMES = 300;

export function createMade(clock: Pick<Clock, "monotonic">): Made {
  const known = new Map<string, { readonly atMs: number; readonly read: Promise<unknown> }>();

  return async <T>(name: string, maxAgeMs: number, make: () => Promise<T>): Promise<T> => {
    const last = known.get(name);
    if (last !== undefined && clock.monotonic() - last.atMs < maxAgeMs) return (await last.read) as T;
    const read = make();
    known.delete(name);
    known.set(name, { atMs: clock.monotonic(), read });
    for (const oldest of known.keys()) {
      if (known.size <= MOST_NAMES) break;
      known.delete(oldest);
    }
    try {
      return await read;
    } catch (error) {
      known.delete(name);
      throw error;
    }
  };
}

/** How old what is shown may be: what people watch, and what rarely changes, in milliseconds. */
export const WATCHED_MS = 1_000;
export const STEADY_MS = 15_000;
