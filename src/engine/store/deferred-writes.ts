import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import type { Database } from "./sqlite.ts";

const MAX_DEFERRED_WRITE_DELAY_MS = 5_000;

/**
 * Writes that join the next transaction. A crash loses waiting writes, so the caller must repeat them.
 *
 *   write ── waiting ──┬─ another transaction begins ─┬─ take() ── committed() ── the promise resolves
 *                      └─ 5 s later, one of its own ──┘     └─ not committed: stays waiting, next try in 5 s
 */
export type DeferredWrites<Write, Flushed = void> = ReturnType<typeof createDeferredWrites<Write, Flushed>>;

interface WaitingDeferredWrite<Write> {
  readonly sinceMs: number;
  readonly write: Write;
  readonly completion: PromiseWithResolvers<void>;
}

export function createDeferredWrites<Write, Flushed>(clock: Clock, commit: () => Flushed) {
  const waitingWrites = new Map<string, WaitingDeferredWrite<Write>>();
  const stopController = new AbortController();
  let isFlushPlanned = false;
  let hasFlushFailed = false;

  const flushWaitingWrites = (): Flushed | undefined => (waitingWrites.size > 0 ? commit() : undefined);

  function oldestDueMs(): number {
    // The first entry is the oldest, because a map keeps the order of insertion.
    const [oldestWrite] = waitingWrites.values();
    return (oldestWrite?.sinceMs ?? clock.monotonic()) + MAX_DEFERRED_WRITE_DELAY_MS;
  }

  async function flushWritesWhenDue(): Promise<void> {
    isFlushPlanned = true;
    let delayMs = MAX_DEFERRED_WRITE_DELAY_MS;
    while (waitingWrites.size > 0 && (await sleepFor(clock, delayMs, stopController.signal))) {
      delayMs = oldestDueMs() - clock.monotonic();
      if (delayMs > 0) continue;
      delayMs = MAX_DEFERRED_WRITE_DELAY_MS;
      try {
        await flushWaitingWrites();
      } catch {
        // The next caller that writes meets the same failure and reports it.
        hasFlushFailed = true;
      }
    }
    isFlushPlanned = false;
  }

  return {
    /** The later of two writes with the same key replaces the earlier. Resolves when the write is durable. */
    write(key: string, write: Write): Promise<void> {
      const { sinceMs, completion } = waitingWrites.get(key) ?? {
        sinceMs: clock.monotonic(),
        completion: Promise.withResolvers<void>(),
      };
      waitingWrites.set(key, { sinceMs, write, completion });
      if (!isFlushPlanned) void flushWritesWhenDue();
      return completion.promise;
    },
    takeWaiting() {
      const takenWrites = [...waitingWrites];
      return {
        writes: takenWrites.map(([, { write }]) => write),
        resolveWrites(): void {
          hasFlushFailed = false;
          for (const [key, waitingWrite] of takenWrites) {
            // A later write with the same key waits for the next transaction, so the promise must wait as well.
            if (waitingWrites.get(key) !== waitingWrite) continue;
            waitingWrites.delete(key);
            waitingWrite.completion.resolve();
          }
        },
        reject(write: Write, error: unknown): void {
          for (const [key, waitingWrite] of takenWrites) {
            if (waitingWrite.write !== write) continue;
            waitingWrites.delete(key);
            waitingWrite.completion.reject(error);
          }
        },
      };
    },
    /** True after writes that waited 5 s could not be written; callers should then defer no further writes. */
    isBehind: () => hasFlushFailed,
    flush: flushWaitingWrites,
    stop: (): void => stopController.abort(WAIT_ENDED_EARLY),
  };
}

/** Deferred writes of a SQLite database: each transaction runs them before its own work. */
export function createSqliteDeferredWrites(database: Database, clock: Clock): DeferredWrites<() => void> {
  let takenWrites: ReturnType<DeferredWrites<() => void>["takeWaiting"]> | null = null;
  const deferredWrites = createDeferredWrites<() => void, void>(clock, () => database.transaction(() => undefined));
  database.addListener({
    onBegin() {
      takenWrites = deferredWrites.takeWaiting();
      for (const write of takenWrites.writes) {
        try {
          write();
        } catch (error) {
          // Throw only failures of the disk or file. Another failure rejects this write, which would always fail.
          if (error instanceof Retryable || error instanceof ConfigError) throw error;
          takenWrites.reject(write, error);
        }
      }
    },
    onCommit: () => takenWrites?.resolveWrites(),
    onRollback() {
      takenWrites = null;
    },
  });
  return deferredWrites;
}
