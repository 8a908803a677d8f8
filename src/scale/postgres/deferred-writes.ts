import type { Clock } from "../../core/runtime/clock.ts";
import { sleepFor, WOKEN, within } from "../../core/runtime/waiting.ts";
import type { Asked } from "./state-database.ts";

/** The longest that a write which may wait does wait, in milliseconds. */
const SOON_MS = 5_000;

/** How long the last of them may take, in milliseconds. */
const CLOSE_MS = 3_000;

/** Writes that need not be durable at once, because what a crash loses of them is done again. */
export interface DeferredWrites {
  /**
   * Does the write with the next transaction, before the transaction's own work, and after 5 s in one of its own. Of two
   * with one key the later takes the place of the earlier. Resolves when it is durable.
   */
  write(key: string, statement: () => Asked): Promise<void>;
  /** What waits, for a transaction that begins now; `committed` says that it is durable. */
  take(): { readonly asked: readonly Asked[]; committed(): void };
  /** Whether what waited its 5 s could not be written: then nothing more should be put off. */
  isBehind(): boolean;
  flush(): Promise<void>;
  /** The same for the last time, within a few seconds. */
  close(): Promise<void>;
}

interface Waiting {
  readonly statement: () => Asked;
  readonly done: PromiseWithResolvers<void>;
}

/** `commit` makes a transaction that takes what waits. */
export function createDeferredWrites(clock: Clock, commit: () => Promise<unknown>): DeferredWrites {
  const waiting = new Map<string, Waiting>();
  const closing = new AbortController();
  let isTimed = false;
  let behind = false;

  async function flush(): Promise<void> {
    if (waiting.size > 0) await commit();
  }

  async function flushInTime(): Promise<void> {
    isTimed = true;
    while (waiting.size > 0 && (await sleepFor(clock, SOON_MS, closing.signal))) {
      try {
        await flush();
      } catch {
        // Whoever writes next is told why, by the same fault.
        behind = true;
      }
    }
    isTimed = false;
  }

  return {
    write(key, statement) {
      const done = waiting.get(key)?.done ?? Promise.withResolvers<void>();
      waiting.set(key, { statement, done });
      if (!isTimed) void flushInTime();
      return done.promise;
    },
    take() {
      const taken = [...waiting];
      return {
        asked: taken.map(([, { statement }]) => statement()),
        committed() {
          behind = false;
          for (const [key, each] of taken) {
            // One that was written again meanwhile has the next transaction, and the promise with it.
            if (waiting.get(key) !== each) continue;
            waiting.delete(key);
            each.done.resolve();
          }
        },
      };
    },
    isBehind: () => behind,
    flush,
    async close() {
      closing.abort(WOKEN);
      // What does not succeed is done again, as after a crash.
      if (waiting.size > 0) await within(clock, CLOSE_MS, flush());
    },
  };
}
