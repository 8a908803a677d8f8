import type { Event } from "#src/core/model/event.ts";
import { createStore } from "#src/engine/store/open.ts";
import { prepareSchema } from "#src/engine/store/schema.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import { type DocumentChange, DocumentKeyConflict, type SettledBatch, type Store } from "#src/engine/store/store.ts";

/** A store in memory for tests with a hundred thousand commits; the event log is the real one over SQLite in memory. */
export interface MemoryStore extends Store {
  readonly events: readonly Event[];
  toldAtMs(id: string): number;
  readonly repeated: readonly string[];
  readonly commits: () => number;
  /** Removes documents and ids, as when the file is lost; the list of events stays. */
  forget(): void;
  /** Lets the next commit with events fail. */
  failNext(): void;
}

export function createMemoryStore(now: () => number = () => 0): MemoryStore {
  const sets = new Map<string, Map<string, string>>();
  const versions = new Map<string, number>();
  const events: Event[] = [];
  const toldAtMs = new Map<string, number>();
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
    const wholeMs = () => Math.floor(now());
    return createStore(database, { now: wholeMs, monotonic: now, sleep }, {});
  }

  function setOf(name: string): Map<string, string> {
    const set = sets.get(name) ?? new Map<string, string>();
    sets.set(name, set);
    return set;
  }

  /** Computes all changes before any is applied. */
  function changed(documents: readonly DocumentChange[]): ReadonlyMap<string, ReadonlyMap<string, string | null>> {
    const all = new Map<string, Map<string, string | null>>();
    for (const { set, put = [], insert = [], remove = [] } of documents) {
      const change = all.get(set) ?? new Map<string, string | null>();
      all.set(set, change);
      for (const key of remove) change.set(key, null);
      for (const [key, value] of insert) {
        const held = change.has(key) ? change.get(key) : setOf(set).get(key);
        if (held !== undefined && held !== null) throw new DocumentKeyConflict(set, key);
        change.set(key, JSON.stringify(value) ?? "null");
      }
      for (const [key, value] of put) change.set(key, JSON.stringify(value) ?? "null");
    }
    return all;
  }

  function take(all: ReturnType<typeof changed>): void {
    for (const [set, change] of all) {
      if (change.size > 0) versions.set(set, (versions.get(set) ?? 0) + 1);
      for (const [key, body] of change) {
        if (body === null) setOf(set).delete(key);
        else setOf(set).set(key, body);
      }
    }
  }

  const self: MemoryStore = {
    events,
    toldAtMs: (id) => toldAtMs.get(id) ?? Number.NaN,
    repeated,
    commits: () => commits,
    forget() {
      void inner.close();
      inner = open();
      sets.clear();
      toldAtMs.clear();
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
      const told = change.events ?? [];
      if (fail && told.length > 0) {
        fail = false;
        throw new Error("The disk is full.");
      }
      const documents = changed(change.documents ?? []);
      const needsLog = told.length > 0 || (change.records ?? []).length > 0;
      const logged = { events: told, records: change.records ?? [] };
      const committed = needsLog ? await inner.commit(logged) : { lastPosition: events.length, repeated: [] };
      take(documents);
      commits += 1;
      repeated.push(...committed.repeated);
      for (const event of told) {
        if (toldAtMs.has(event.id)) continue;
        toldAtMs.set(event.id, now());
        events.push(JSON.parse(JSON.stringify(event)) as Event);
      }
      return committed;
    },
    putDeferred: async (set, key, value) => void (await self.commit({ documents: [{ set, put: [[key, value]] }] })),
    version: async (set) => versions.get(set) ?? 0,
    changes: async () => commits + (await inner.changes()),
    damagedKeys: (set) => inner.damagedKeys(set),
    records: (log, after, limit) => inner.records(log, after, limit),
    lastRecord: (log) => inner.lastRecord(log),
    get outbox() {
      const { outbox } = inner;
      return {
        ...outbox,
        async settle(sink: string, { documents = [], ...settlement }: SettledBatch) {
          await outbox.settle(sink, settlement);
          take(changed(documents));
        },
      };
    },
    get quotaStore() {
      return inner.quotaStore;
    },
    describe: () => inner.describe(),
    close: () => inner.close(),
  };
  return self;
}
