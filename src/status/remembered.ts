import type { Clock } from "../clock.ts";
import type { Store } from "../store/store.ts";

/** Makes what is asked for by name at most once in a while, however often it is asked. */
export type Made = <T>(name: string, maxAgeMs: number, make: () => Promise<T>) => Promise<T>;

/**
 * Reads what is shown at most once in a while, however many pages are open: a source of 4,000 tags takes tens of
 * milliseconds to read, and every open page asks every two seconds. What it answers must not be changed.
 */
export interface Remembered {
  documents<T>(set: string, maxAgeMs: number): Promise<ReadonlyMap<string, T>>;
  /** The same for what is made from more than one set; `name` is no set's. */
  readonly made: Made;
}

export function createRemembered(
  store: Pick<Store, "documents">,
  clock: Pick<Clock, "monotonic">,
): Remembered {
  const made = createMade(clock);
  return { made, documents: (set, maxAgeMs) => made(set, maxAgeMs, () => store.documents(set)) };
}

/** Whoever looks at one tag after the other leaves no more than so many behind; a few dozen are asked for all the time. */
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
