import { cutSessionAfter } from "../../core/postgres/pool.ts";
import type { PostgresSession, ServerNotification } from "../../core/postgres/session.ts";
import { quoteName } from "../../core/postgres/sql-text.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, ENDED_EARLY, runLoop } from "../../core/runtime/waiting.ts";

const CHECK_INTERVAL_MS = 30_000;
const REPLY_TIMEOUT_MS = 10_000;
const RECONNECT_BACKOFF = { firstMs: 200, maxMs: 5_000 };

interface NotificationsOptions {
  readonly channel: string;
  readonly clock: Clock;
  readonly log: Log;
  connect(
    signal: AbortSignal,
    more: { readonly onNotification: (notification: ServerNotification) => void; readonly onLost: () => void },
  ): Promise<PostgresSession>;
}

/** Listens to a PostgreSQL channel whose payload is a topic. Calls all listeners after a lost connection. */
export function createNotifications({ channel, clock, log, connect }: NotificationsOptions) {
  const listeners = new Map<string, Set<() => void>>();
  const closeController = new AbortController();
  const connectionLost = createWakeup();
  let session: PostgresSession | null = null;
  let running: Promise<void> | null = null;
  let isDisconnected = false;

  function callListeners(topic: string): void {
    for (const listener of [...(listeners.get(topic) ?? [])]) listener();
  }

  async function connectAndListen(): Promise<PostgresSession> {
    const newSession = await connect(closeController.signal, {
      onNotification: (notification) => {
        if (notification.channel === channel) callListeners(notification.payload);
      },
      onLost: connectionLost.wakeUp,
    });
    await newSession.query(`listen ${quoteName(channel)}`);
    return newSession;
  }

  async function listenOrCheck(): Promise<number> {
    if (session === null || session.lost() !== null) {
      session = await connectAndListen();
      if (isDisconnected) log.info("Listening for changes of other processes again.");
      isDisconnected = false;
    } else {
      const checkedSession = session;
      await cutSessionAfter(checkedSession, REPLY_TIMEOUT_MS, () => checkedSession.query("select 1"));
    }
    for (const topic of [...listeners.keys()]) callListeners(topic);
    return CHECK_INTERVAL_MS;
  }

  function startListening(): void {
    running ??= runLoop({
      clock,
      signal: closeController.signal,
      wakeup: connectionLost,
      turn: listenOrCheck,
      fault(error) {
        if (!isDisconnected)
          log.warn({ err: error }, "Listening for changes of other processes failed; Plenum connects again.");
        isDisconnected = true;
      },
      backoff: RECONNECT_BACKOFF,
    });
  }

  return {
    listen(topic: string, listener: () => void): () => void {
      const all = listeners.get(topic) ?? new Set();
      listeners.set(topic, all.add(listener));
      startListening();
      return () => void all.delete(listener);
    },
    async close(): Promise<void> {
      closeController.abort(ENDED_EARLY);
      session?.cut(ENDED_EARLY);
      await running;
    },
  };
}
