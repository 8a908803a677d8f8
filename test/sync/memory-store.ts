import type { Event } from "#src/event.ts";
import { Conflict, type Store } from "#src/store/store.ts";

/**
 * The store's documents and event log in memory, for tests that commit a hundred thousand times. Values pass
 * through JSON, as they do in the real one; an event whose id is in the log already is not told twice.
 */
export interface MemoryStore extends Store {
  readonly events: readonly Event[];
  /** When the event of this id was committed, milliseconds since 1970 by the clock that the store was given. */
  toldAtMs(id: string): number;
  /** Ids that were committed again. */
  readonly repeated: readonly string[];
  readonly commits: () => number;
  /** Every document and every id is gone, as when the file is lost; only this test's list of events stays. */
  forget(): void;
  /** The next commit with events fails, and leaves nothing. */
  failNext(): void;
}

export function createMemoryStore(now: () => number = () => 0): MemoryStore {
  const sets = new Map<string, Map<string, string>>();
  const events: Event[] = [];
  const ids = new Map<string, number>();
  const repeated: string[] = [];
  let commits = 0;
  let fail = false;
  const setOf = (name: string) => {
    const set = sets.get(name) ?? new Map<string, string>();
    sets.set(name, set);
    return set;
  };
  const absent = () => {
    throw new Error("not part of the memory store");
  };

  return {
    events,
    toldAtMs: (id) => ids.get(id) ?? Number.NaN,
    repeated,
    commits: () => commits,
    forget() {
      sets.clear();
      ids.clear();
    },
    failNext() {
      fail = true;
    },
    async document<T>(set: string, key: string) {
      const body = setOf(set).get(key);
      return body === undefined ? undefined : (JSON.parse(body) as T);
    },
    async documents<T>(set: string) {
      return new Map([...setOf(set)].map(([key, body]) => [key, JSON.parse(body) as T]));
    },
    async commit(change) {
      if (fail && (change.events ?? []).length > 0) {
        fail = false;
        throw new Error("The disk is full.");
      }
      commits += 1;
      for (const { set, put = [], insert = [], remove = [] } of change.documents ?? []) {
        for (const key of remove) setOf(set).delete(key);
        for (const [key, value] of insert) {
          if (setOf(set).has(key)) throw new Conflict(set, key);
          setOf(set).set(key, JSON.stringify(value));
        }
        for (const [key, value] of put) setOf(set).set(key, JSON.stringify(value));
      }
      const again = (change.events ?? []).filter((event) => ids.has(event.id)).map((event) => event.id);
      repeated.push(...again);
      for (const event of change.events ?? []) {
        if (ids.has(event.id)) continue;
        ids.set(event.id, now());
        events.push(JSON.parse(JSON.stringify(event)) as Event);
      }
      return { lastPosition: events.length, repeated: again };
    },
    records: absent,
    lastRecord: absent,
    get outbox() {
      return absent();
    },
    get quotaLog() {
      return absent();
    },
    describe: absent,
    async close() {},
  };
}
