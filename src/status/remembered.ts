import type { Clock } from "../clock.ts";
import type { Store } from "../store/store.ts";

/**
 * Reads sets of documents at most once in a while, however many pages are open: a source of 4,000 tags takes tens of
 * milliseconds to read, and every open page asks every two seconds. What it answers must not be changed.
 */
export interface Remembered {
  documents<T>(set: string, maxAgeMs: number): Promise<ReadonlyMap<string, T>>;
}

export function createRemembered(store: Pick<Store, "documents">, clock: Clock): Remembered {
  const known = new Map<string, { readonly atMs: number; readonly read: Promise<Map<string, unknown>> }>();
  return {
    async documents<T>(set: string, maxAgeMs: number) {
      const last = known.get(set);
      if (last !== undefined && clock.monotonic() - last.atMs < maxAgeMs) {
        return (await last.read) as Map<string, T>;
      }
      const read = store.documents<unknown>(set);
      known.set(set, { atMs: clock.monotonic(), read });
      try {
        return (await read) as Map<string, T>;
      } catch (error) {
        known.delete(set);
        throw error;
      }
    },
  };
}

/** How old what is shown may be: what people watch, and what rarely changes, in milliseconds. */
export const WATCHED_MS = 1_000;
export const STEADY_MS = 15_000;
