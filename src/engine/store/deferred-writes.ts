import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { sleepFor, WOKEN } from "../../core/runtime/waiting.ts";
import type { Database } from "./sqlite.ts";

/** The longest that a write which may wait does wait, in milliseconds. */
const SOON_MS = 5_000;

/** Writes that need not be on the disk at once, because what a crash loses of them is done again. */
export interface DeferredWrites {
  /**
   * Does the write with the next transaction, before the transaction's own work, and after 5 s in one of its own: a
   * transaction of its own costs a thousand times what the write does. Of two with one key the later takes the place of
   * the earlier. Resolves when it is on the disk; rejects when the write itself is at fault, and is left out then.
   */
  write(key: string, write: () => void): Promise<void>;
  /** Whether what waited its 5 s could not be written: then nothing more should be put off. */
  isBehind(): boolean;
  /** Writes what waits. */
  flush(): void;
  /** The same, for the last time. */
  close(): void;
}

interface Waiting {
  /** Since when something of this key waits, monotonic milliseconds. */
  readonly sinceMs: number;
  readonly write: () => void;
  readonly done: PromiseWithResolvers<void>;
}

export function createDeferredWrites(database: Database, clock: Clock): DeferredWrites {
  const waiting = new Map<string, Waiting>();
  /** What the transaction under way has written. */
  let written: readonly (readonly [string, Waiting])[] = [];
  const closing = new AbortController();
  let isTimed = false;
  let behind = false;

  database.watch({
    begun() {
      written = [...waiting];
      for (const [key, { write, done }] of written) {
        try {
          write();
        } catch (error) {
          // A trouble of the disk or the file is the whole transaction's; any other would stop all of them for ever.
          if (error instanceof Retryable || error instanceof ConfigError) throw error;
          waiting.delete(key);
          done.reject(error);
        }
      }
    },
    committed() {
      behind = false;
      for (const [key, each] of written) {
        if (waiting.get(key) === each) waiting.delete(key);
        each.done.resolve();
      }
    },
    rolledBack() {
      written = [];
    },
  });

  function flush(): void {
    if (waiting.size > 0) database.transaction(() => undefined);
  }

  /** When what waits longest has waited its time; where transactions come often enough that never is. */
  function dueMs(): number {
    // The first key was put first, whatever was written under it since.
    const [oldest] = waiting.values();
    return (oldest?.sinceMs ?? clock.monotonic()) + SOON_MS;
  }

  async function flushInTime(): Promise<void> {
    isTimed = true;
    let inMs = SOON_MS;
    while (waiting.size > 0 && (await sleepFor(clock, inMs, closing.signal))) {
      inMs = dueMs() - clock.monotonic();
      if (inMs > 0) continue;
      inMs = SOON_MS;
      try {
        flush();
      } catch {
        // Whoever writes next is told why, by the same fault.
        behind = true;
      }
    }
    isTimed = false;
  }

  return {
    write(key, write) {
      const before = waiting.get(key);
      const { sinceMs, done } = before ?? { sinceMs: clock.monotonic(), done: Promise.withResolvers<void>() };
      waiting.set(key, { sinceMs, write, done });
      if (!isTimed) void flushInTime();
      return done.promise;
    },
    isBehind: () => behind,
    flush,
    close() {
      closing.abort(WOKEN);
      try {
        flush();
      } catch {
        // As after a crash: it is done again.
      }
    },
  };
}
