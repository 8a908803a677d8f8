import type { Clock } from "../clock.ts";
import { rest, WOKEN } from "../waiting.ts";
import type { Database } from "./sqlite.ts";

/** The longest that a write which may wait does wait, in milliseconds. */
const SOON_MS = 5_000;

/** A database with writes that need not be on the disk at once, because what a crash loses of them is done again. */
export interface PatientDatabase extends Database {
  /**
   * Does the write with the next transaction, before the transaction's own work, and after 5 s in one of its own: a
   * transaction of its own costs a thousand times what the write does. Of two with one key the later takes the place of
   * the earlier. Resolves when it is on the disk.
   */
  soon(key: string, write: () => void): Promise<void>;
  /** Whether what waited its 5 s could not be written: then nothing more should be put off. */
  isBehind(): boolean;
  /** Writes what waits. */
  flush(): void;
  /** True when another process has changed the file since this was asked last. */
  othersChanged(): boolean;
}

/** Told how each transaction ends. */
export interface Witness {
  committed(): void;
  rolledBack(): void;
}

interface Waiting {
  readonly write: () => void;
  readonly done: PromiseWithResolvers<void>;
}

export function createPatientDatabase(database: Database, clock: Clock, witness: Witness): PatientDatabase {
  const waiting = new Map<string, Waiting>();
  const closing = new AbortController();
  let isTimed = false;
  let behind = false;
  let version = database.number("pragma data_version");

  function transaction<T>(work: () => T): T {
    try {
      const result = database.transaction(work);
      witness.committed();
      return result;
    } catch (error) {
      witness.rolledBack();
      throw error;
    }
  }

  const self: PatientDatabase = {
    ...database,

    transaction(work) {
      if (waiting.size === 0) return transaction(work);
      const all = [...waiting];
      const result = transaction(() => {
        for (const [, { write }] of all) write();
        return work();
      });
      behind = false;
      for (const [key, each] of all) {
        if (waiting.get(key) === each) waiting.delete(key);
        each.done.resolve();
      }
      return result;
    },

    soon(key, write) {
      const done = waiting.get(key)?.done ?? Promise.withResolvers<void>();
      waiting.set(key, { write, done });
      if (!isTimed) void flushInTime();
      return done.promise;
    },

    isBehind: () => behind,

    flush: () => self.transaction(() => undefined),

    othersChanged() {
      const before = version;
      version = database.number("pragma data_version");
      return version !== before;
    },

    close() {
      closing.abort(WOKEN);
      try {
        if (waiting.size > 0) self.flush();
      } finally {
        database.close();
      }
    },
  };

  async function flushInTime(): Promise<void> {
    isTimed = true;
    while (waiting.size > 0 && (await rest(clock, SOON_MS, closing.signal))) {
      try {
        if (waiting.size > 0) self.flush();
      } catch {
        // Whoever writes next is told why, by the same fault.
        behind = true;
      }
    }
    isTimed = false;
  }

  return self;
}
