import { addAbortListener } from "node:events";
import { Retryable } from "../errors/errors.ts";
import { backoffMs, type RetryBackoff } from "../runtime/backoff.ts";
import type { Clock } from "../runtime/clock.ts";
import type { PostgresSession } from "./session.ts";

interface PostgresPoolOptions {
  readonly connections: number;
  readonly clock: Clock;
  connect(signal: AbortSignal): Promise<PostgresSession>;
}

/** Pause after a failed connection; requests during the pause fail at once. */
const CONNECT_BACKOFF: RetryBackoff = { firstMs: 100, maxMs: 2_000 };

export async function cutSessionAfterTimeout<T>(
  session: PostgresSession,
  limitMs: number,
  work: () => Promise<T>,
  reason?: () => unknown,
): Promise<T> {
  const timeoutSignal = AbortSignal.timeout(limitMs);
  using _abortListener = addAbortListener(timeoutSignal, () => session.cut(reason?.() ?? timeoutSignal.reason));
  return await work();
}

/** Shares a few connections. Each connection serves one caller at a time; waiting callers are served in order. */
export function createPostgresPool({ connections, clock, connect }: PostgresPoolOptions) {
  const idleSessions: PostgresSession[] = [];
  const sessionsInUse = new Set<PostgresSession>();
  const waitingSessionUsers: (() => void)[] = [];
  const poolCloseController = new AbortController();
  let takenConnectionSlots = 0;
  let failedAttempts = 0;
  let connectionOutage: { readonly error: unknown; readonly untilMs: number } | null = null;
  async function waitForConnectionSlot(): Promise<void> {
    if (takenConnectionSlots < connections) {
      takenConnectionSlots += 1;
      return;
    }
    await new Promise<void>((resolve) => waitingSessionUsers.push(resolve));
  }

  function releaseConnectionSlot(): void {
    const startNextSessionUser = waitingSessionUsers.shift();
    if (startNextSessionUser === undefined) takenConnectionSlots -= 1;
    else startNextSessionUser();
  }

  async function takePooledSession(): Promise<PostgresSession> {
    poolCloseController.signal.throwIfAborted();
    for (let session = idleSessions.pop(); session !== undefined; session = idleSessions.pop()) {
      if (session.lostReason() === null) return session;
    }
    if (connectionOutage !== null && clock.monotonic() < connectionOutage.untilMs) throw connectionOutage.error;
    try {
      const session = await connect(poolCloseController.signal);
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
    /** Runs `work`; cuts its connection after `limitMs`. Rejects at once in the pause after a failed connection. */
    async useSession<T>(limitMs: number, work: (session: PostgresSession) => Promise<T>): Promise<T> {
      await waitForConnectionSlot();
      try {
        const session = await takePooledSession();
        sessionsInUse.add(session);
        const timeoutError = () => new Retryable(`The database server has not answered within ${limitMs / 1_000} s.`);
        try {
          return await cutSessionAfterTimeout(session, limitMs, () => work(session), timeoutError);
        } finally {
          sessionsInUse.delete(session);
          if (session.lostReason() === null) idleSessions.push(session);
        }
      } finally {
        releaseConnectionSlot();
      }
    },

    async close(): Promise<void> {
      const poolClosedError = new Retryable("The connections to the database were closed.");
      poolCloseController.abort(poolClosedError);
      for (const session of sessionsInUse) session.cut(poolClosedError);
      await Promise.all(idleSessions.splice(0).map((session) => session.end()));
    },
  };
}
