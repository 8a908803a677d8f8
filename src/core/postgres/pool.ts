import { Retryable } from "../errors/errors.ts";
import { type Backoff, backoffMs } from "../runtime/backoff.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Session } from "./session.ts";

interface PoolOptions {
  readonly connections: number;
  readonly clock: Clock;
  connect(signal: AbortSignal): Promise<Session>;
}

/** Pause after a failed connection; requests during the pause fail at once. */
const BACKOFF: Backoff = { firstMs: 100, maxMs: 2_000 };

export async function cutAfter<T>(
  session: Session,
  limitMs: number,
  work: () => Promise<T>,
  reason?: () => unknown,
): Promise<T> {
  const limit = AbortSignal.timeout(limitMs);
  const cut = () => session.cut(reason?.() ?? limit.reason);
  limit.addEventListener("abort", cut, { once: true });
  try {
    return await work();
  } finally {
    limit.removeEventListener("abort", cut);
  }
}

/** Shares a few connections. Each has one user at a time; waiting users are served in order. */
export function createPool({ connections, clock, connect }: PoolOptions) {
  const idle: Session[] = [];
  const inUse = new Set<Session>();
  const waiting: (() => void)[] = [];
  const closing = new AbortController();
  let taken = 0;
  let failed = 0;
  let down: { readonly error: unknown; readonly untilMs: number } | null = null;

  async function takeTurn(): Promise<void> {
    if (taken < connections) {
      taken += 1;
      return;
    }
    await new Promise<void>((resolve) => waiting.push(resolve));
  }

  function endTurn(): void {
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
    /** The connection is cut after `limitMs`. Rejects with the error of `connect`, and during back-off at once. */
    async use<T>(limitMs: number, work: (session: Session) => Promise<T>): Promise<T> {
      await takeTurn();
      try {
        const session = await connected();
        inUse.add(session);
        const late = () => new Retryable(`The database server has not answered within ${limitMs / 1_000} s.`);
        try {
          return await cutAfter(session, limitMs, () => work(session), late);
        } finally {
          inUse.delete(session);
          if (session.lost() === null) idle.push(session);
        }
      } finally {
        endTurn();
      }
    },

    async close(): Promise<void> {
      const error = new Retryable("The connections to the database were closed.");
      closing.abort(error);
      for (const session of inUse) session.cut(error);
      await Promise.all(idle.splice(0).map((session) => session.end()));
    },
  };
}
