import type { Event } from "#src/core/model/event.ts";
import { createStore } from "#src/engine/store/open.ts";
import { prepareSchema } from "#src/engine/store/schema.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";

/** The store over SQLite in memory, for tests with a hundred thousand commits. */
export interface MemoryStore extends Store {
  readonly events: readonly Event[];
  emittedAtMs(id: string): number;
  readonly repeated: readonly string[];
  readonly commits: () => number;
  /** Removes documents and ids, as when the file is lost; the list of events stays. */
  forget(): void;
  /** Lets the next commit with events fail. */
  failNext(): void;
}

export function createMemoryStore(now: () => number = () => 0): MemoryStore {
  const events: Event[] = [];
  const emittedAtMs = new Map<string, number>();
  const repeated: string[] = [];
  let commits = 0;
  let fail = false;
  let inner = open();

  function open(): Store {
    const database = openDatabase(":memory:");
    prepareSchema(database, true);
    // Deferred writes go with the next commit.
    const sleep = () => new Promise<void>(() => undefined);
    // Tables store whole milliseconds.
    const fullMs = () => Math.floor(now());
    return createStore(database, { now: fullMs, monotonic: now, sleep }, {});
  }

  return {
    events,
    emittedAtMs: (id) => emittedAtMs.get(id) ?? Number.NaN,
    repeated,
    commits: () => commits,
    forget() {
      void inner.close();
      inner = open();
      emittedAtMs.clear();
    },
    failNext() {
      fail = true;
    },
    async commit(change) {
      const emitted = change.events ?? [];
      if (fail && emitted.length > 0) {
        fail = false;
        throw new Error("The disk is full.");
      }
      const committed = await inner.commit(change);
      commits += 1;
      repeated.push(...committed.repeated);
      for (const event of emitted) {
        if (emittedAtMs.has(event.id)) continue;
        emittedAtMs.set(event.id, now());
        events.push(JSON.parse(JSON.stringify(event)) as Event);
      }
      return committed;
    },
    document: (set, key) => inner.document(set, key),
    documents: (set) => inner.documents(set),
    // Commits at once, because tests read what was stored without waiting for the deferred write.
    putDeferred: async (set, key, value) => void (await inner.commit({ documents: [{ set, put: [[key, value]] }] })),
    version: (set) => inner.version(set),
    changes: () => inner.changes(),
    damagedKeys: (set) => inner.damagedKeys(set),
    records: (log, after, limit) => inner.records(log, after, limit),
    lastRecord: (log) => inner.lastRecord(log),
    get outbox() {
      return inner.outbox;
    },
    get quotaStore() {
      return inner.quotaStore;
    },
    describe: () => inner.describe(),
    close: () => inner.close(),
  };
}
