import { Retryable } from "../errors/errors.ts";
import { type Backoff, backoffMs } from "../runtime/backoff.ts";
import type { Clock } from "../runtime/clock.ts";
import type { PostgresSession } from "./session.ts";

interface PoolOptions {
  readonly connections: number;
  readonly clock: Clock;
  connect(signal: AbortSignal): Promise<PostgresSession>;
}

/** Pause after a failed connection; requests during the pause fail at once. */
const CONNECT_BACKOFF: Backoff = { firstMs: 100, maxMs: 2_000 };

export async function cutSessionAfter<T>(
  session: PostgresSession,
  limitMs: number,
  work: () => Promise<T>,
  reason?: () => unknown,
): Promise<T> {
  const limit = AbortSignal.timeout(limitMs);
  const cutSession = () => session.cut(reason?.() ?? limit.reason);
  limit.addEventListener("abort", cutSession, { once: true });
  try {
    return await work();
  } finally {
    limit.removeEventListener("abort", cutSession);
  }
}

/** Shares a few connections. Each has one user at a time; waiting users are served in order. */
export function createPool({ connections, clock, connect }: PoolOptions) {
  const idleSessions: PostgresSession[] = [];
  const inUse = new Set<PostgresSession>();
  const slotWaiters: (() => void)[] = [];
  const closing = new AbortController();
  let takenSlots = 0;
  let failedAttempts = 0;
  let outage: { readonly error: unknown; readonly untilMs: number } | null = null;
  async function takeSlot(): Promise<void> {
    if (takenSlots < connections) {
      takenSlots += 1;
      return;
    }
    await new Promise<void>((resolve) => slotWaiters.push(resolve));
  }

  function releaseSlot(): void {
    const nextWaiter = slotWaiters.shift();
    if (nextWaiter === undefined) takenSlots -= 1;
    else nextWaiter();
  }

  async function takeSession(): Promise<PostgresSession> {
    closing.signal.throwIfAborted();
    for (let session = idleSessions.pop(); session !== undefined; session = idleSessions.pop()) {
      if (session.lost() === null) return session;
    }
    if (outage !== null && clock.monotonic() < outage.untilMs) throw outage.error;
    try {
      const session = await connect(closing.signal);
      failedAttempts = 0;
      outage = null;
      return session;
    } catch (error) {
      failedAttempts += 1;
      outage = { error, untilMs: clock.monotonic() + backoffMs(CONNECT_BACKOFF, failedAttempts) };
      throw error;
    }
  }
  return {
    /** The connection is cut after `limitMs`. Rejects with the error of `connect`, and during back-off at once. */
    async use<T>(limitMs: number, work: (session: PostgresSession) => Promise<T>): Promise<T> {
      await takeSlot();
      try {
        const session = await takeSession();
        inUse.add(session);
        const timeoutFailure = () => new Retryable(`The database server has not answered within ${limitMs / 1_000} s.`);
        try {
          return await cutSessionAfter(session, limitMs, () => work(session), timeoutFailure);
        } finally {
          inUse.delete(session);
          if (session.lost() === null) idleSessions.push(session);
        }
      } finally {
        releaseSlot();
      }
    },

    async close(): Promise<void> {
      const error = new Retryable("The connections to the database were closed.");
      closing.abort(error);
      for (const session of inUse) session.cut(error);
      await Promise.all(idleSessions.splice(0).map((session) => session.end()));
    },
  };
}
