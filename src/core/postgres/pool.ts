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

export async function cutSessionAfterTimeout<T>(
  session: PostgresSession,
  limitMs: number,
  work: () => Promise<T>,
  reason?: () => unknown,
): Promise<T> {
  const timeoutSignal = AbortSignal.timeout(limitMs);
  const cutSession = () => session.cut(reason?.() ?? timeoutSignal.reason);
  timeoutSignal.addEventListener("abort", cutSession, { once: true });
  try {
    return await work();
  } finally {
    timeoutSignal.removeEventListener("abort", cutSession);
  }
}

/** Shares a few connections. Each has one user at a time; waiting users are served in order. */
export function createPool({ connections, clock, connect }: PoolOptions) {
  const idleSessions: PostgresSession[] = [];
  const sessionsInUse = new Set<PostgresSession>();
  const waitingUsers: (() => void)[] = [];
  const closeController = new AbortController();
  let takenConnectionSlots = 0;
  let failedAttempts = 0;
  let connectionOutage: { readonly error: unknown; readonly untilMs: number } | null = null;
  async function waitForConnectionSlot(): Promise<void> {
    if (takenConnectionSlots < connections) {
      takenConnectionSlots += 1;
      return;
    }
    await new Promise<void>((resolve) => waitingUsers.push(resolve));
  }

  function releaseConnectionSlot(): void {
    const startNextUser = waitingUsers.shift();
    if (startNextUser === undefined) takenConnectionSlots -= 1;
    else startNextUser();
  }

  async function takeSession(): Promise<PostgresSession> {
    closeController.signal.throwIfAborted();
    for (let session = idleSessions.pop(); session !== undefined; session = idleSessions.pop()) {
      if (session.lost() === null) return session;
    }
    if (connectionOutage !== null && clock.monotonic() < connectionOutage.untilMs) throw connectionOutage.error;
    try {
      const session = await connect(closeController.signal);
      failedAttempts = 0;
      connectionOutage = null;
      return session;
    } catch (error) {
      failedAttempts += 1;
      connectionOutage = { error, untilMs: clock.monotonic() + backoffMs(CONNECT_BACKOFF, failedAttempts) };
      throw error;
    }
  }
  return {
    /** Cuts the connection after `limitMs`. Rejects at once during the pause after a failed connection. */
    async use<T>(limitMs: number, work: (session: PostgresSession) => Promise<T>): Promise<T> {
      await waitForConnectionSlot();
      try {
        const session = await takeSession();
        sessionsInUse.add(session);
        const timeoutFailure = () => new Retryable(`The database server has not answered within ${limitMs / 1_000} s.`);
        try {
          return await cutSessionAfterTimeout(session, limitMs, () => work(session), timeoutFailure);
        } finally {
          sessionsInUse.delete(session);
          if (session.lost() === null) idleSessions.push(session);
        }
      } finally {
        releaseConnectionSlot();
      }
    },

    async close(): Promise<void> {
      const error = new Retryable("The connections to the database were closed.");
      closeController.abort(error);
      for (const session of sessionsInUse) session.cut(error);
      await Promise.all(idleSessions.splice(0).map((session) => session.end()));
    },
  };
}
