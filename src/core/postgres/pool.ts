import { Retryable } from "../errors/errors.ts";
import { type Backoff, backoffMs } from "../runtime/backoff.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Session } from "./session.ts";

/** A few connections, each with one user at a time, in the order of asking. */
export interface Pool {
  /**
   * Work on a connection, which is cut after so many milliseconds. Throws what `connect` throws; while it has just failed,
   * the same at once.
   */
  use<T>(limitMs: number, work: (session: Session) => Promise<T>): Promise<T>;
  /** Closes all connections; running statements fail. */
  close(): Promise<void>;
}

export interface PoolOptions {
  readonly connections: number;
  readonly clock: Clock;
  connect(signal: AbortSignal): Promise<Session>;
}

/** Pause after a failed connection; requests during the pause fail at once. */
const BACKOFF: Backoff = { firstMs: 100, maxMs: 2_000 };

export function createPool({ connections, clock, connect }: PoolOptions): Pool {
  const idle: Session[] = [];
  const inUse = new Set<Session>();
  const waiting: (() => void)[] = [];
  const closing = new AbortController();
  let taken = 0;
  let failed = 0;
  let down: { readonly error: unknown; readonly untilMs: number } | null = null;

  async function place(): Promise<void> {
    if (taken < connections) {
      taken += 1;
      return;
    }
    // The next waiting caller gets the connection when one is released.
    await new Promise<void>((resolve) => waiting.push(resolve));
  }

  function leave(): void {
    const next = waiting.shift();
    if (next === undefined) taken -= 1;
    else next();
  }

  async function connected(): Promise<Session> {
    closing.signal.throwIfAborted();
    for (let session = idle.pop(); session !== undefined; session = idle.pop()) {
      if (session.lost() === null) return session;
    }
    if (down !== null && clock.monotonic() < down.untilMs) throw down.error;
    try {
      const session = await connect(closing.signal);
      failed = 0;
      down = null;
      return session;
    } catch (error) {
      failed += 1;
      down = { error, untilMs: clock.monotonic() + backoffMs(BACKOFF, failed) };
      throw error;
    }
  }

  return {
    async use(limitMs, work) {
      await place();
      try {
        const session = await connected();
        inUse.add(session);
        const limit = AbortSignal.timeout(limitMs);
        const cut = () =>
          session.cut(new Retryable(`The database server has not answered within ${limitMs / 1_000} s.`));
        limit.addEventListener("abort", cut, { once: true });
        try {
          return await work(session);
        } finally {
          limit.removeEventListener("abort", cut);
          inUse.delete(session);
          if (session.lost() === null) idle.push(session);
        }
      } finally {
        leave();
      }
    },

    async close() {
      const error = new Retryable("The connections to the database were closed.");
      closing.abort(error);
      for (const session of inUse) session.cut(error);
      await Promise.all(idle.splice(0).map((session) => session.end()));
    },
  };
}
