import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { sleepFor, WOKEN } from "../../core/runtime/waiting.ts";
import type { Database } from "./sqlite.ts";

/** Longest delay of a deferred write, in milliseconds. */
const SOON_MS = 5_000;

/**
 * Writes that join the next transaction, because a transaction of their own costs a thousand times what they do:
 *
 *   write ── waiting ──┬─ another transaction begins ─┬─ take() ── committed() ── the promise resolves
 *                      └─ 5 s later, one of its own ──┘     └─ not committed: stays waiting, next try in 5 s
 *
 * A crash loses what is waiting, so a deferred write must be one that is repeated after a crash. `Write` is a function
 * that runs inside a transaction of SQLite, or one that returns a statement for PostgreSQL.
 */
export interface DeferredWrites<Write, Flushed = void> {
  /**
   * Adds a write; of two with the same key, the later replaces the earlier. Resolves when it is durable. Rejects when the
   * write itself fails; then it is dropped.
   */
  write(key: string, write: Write): Promise<void>;
  /** Returns the waiting writes to a transaction that begins now. */
  take(): Taken<Write>;
  /** Whether writes that waited their 5 s could not be written: then nothing more should be deferred. */
  isBehind(): boolean;
  /** Commits the waiting writes; does nothing when there are none. */
  flush(): Flushed | undefined;
  /** Stops the timer; the caller flushes. */
  stop(): void;
}

interface Taken<Write> {
  readonly writes: readonly Write[];
  /** The transaction is durable. */
  committed(): void;
  /** Drops a write that failed. */
  reject(write: Write, error: unknown): void;
}

interface Waiting<Write> {
  /** Monotonic time of the first write of this key, in milliseconds. */
  readonly sinceMs: number;
  readonly write: Write;
  readonly done: PromiseWithResolvers<void>;
}

/** `commit` makes a transaction that takes the waiting writes. */
export function createDeferredWrites<Write, Flushed>(
  clock: Clock,
  commit: () => Flushed,
): DeferredWrites<Write, Flushed> {
  const waiting = new Map<string, Waiting<Write>>();
  const stopping = new AbortController();
  let isTimed = false;
  let isBehind = false;

  const flush = () => (waiting.size > 0 ? commit() : undefined);

  /** When the oldest write has waited 5 s. Frequent transactions take it before. */
  function dueMs(): number {
    // Map order: a key keeps the place of its first write.
    const [oldest] = waiting.values();
    return (oldest?.sinceMs ?? clock.monotonic()) + SOON_MS;
  }

  async function flushInTime(): Promise<void> {
    isTimed = true;
    let inMs = SOON_MS;
    while (waiting.size > 0 && (await sleepFor(clock, inMs, stopping.signal))) {
      inMs = dueMs() - clock.monotonic();
      if (inMs > 0) continue;
      inMs = SOON_MS;
      try {
        await flush();
      } catch {
        // The next caller that writes meets the same failure and reports it.
        isBehind = true;
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
    take() {
      const taken = [...waiting];
      return {
        writes: taken.map(([, { write }]) => write),
        committed() {
          isBehind = false;
          for (const [key, each] of taken) {
            // A later write of the same key waits for the next transaction, and the promise with it.
            if (waiting.get(key) !== each) continue;
            waiting.delete(key);
            each.done.resolve();
          }
        },
        reject(write, error) {
          for (const [key, each] of taken) {
            if (each.write !== write) continue;
            waiting.delete(key);
            each.done.reject(error);
          }
        },
      };
    },
    isBehind: () => isBehind,
    flush,
    stop: () => stopping.abort(WOKEN),
  };
}

/** Deferred writes of a SQLite database: each transaction runs them before its own work. */
export function deferWrites(database: Database, clock: Clock): DeferredWrites<() => void> {
  let taken: Taken<() => void> | null = null;
  const soon = createDeferredWrites<() => void, void>(clock, () => database.transaction(() => undefined));
  database.watch({
    begun() {
      taken = soon.take();
      for (const write of taken.writes) {
        try {
          write();
        } catch (error) {
          // A failure of the disk or the file fails the transaction; any other would fail every later one too.
          if (error instanceof Retryable || error instanceof ConfigError) throw error;
          taken.reject(write, error);
        }
      }
    },
    committed: () => taken?.committed(),
    rolledBack() {
      taken = null;
    },
  });
  return soon;
}
