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
  const closing = new AbortController();
  const connectionLost = createWakeup();
  let session: PostgresSession | null = null;
  let running: Promise<void> | null = null;
  let isDisconnected = false;

  function callListeners(topic: string): void {
    for (const listener of [...(listeners.get(topic) ?? [])]) listener();
  }

  async function connectAndListen(): Promise<PostgresSession> {
    const opened = await connect(closing.signal, {
      onNotification: (notification) => {
        if (notification.channel === channel) callListeners(notification.payload);
      },
      onLost: connectionLost.wakeUp,
    });
    await opened.query(`listen ${quoteName(channel)}`);
    return opened;
  }

  async function listenOrCheck(): Promise<number> {
    if (session === null || session.lost() !== null) {
      session = await connectAndListen();
      if (isDisconnected) log.info("Listening for changes of other processes again.");
      isDisconnected = false;
    } else {
      const checked = session;
      await cutSessionAfter(checked, REPLY_TIMEOUT_MS, () => checked.query("select 1"));
    }
    for (const topic of [...listeners.keys()]) callListeners(topic);
    return CHECK_INTERVAL_MS;
  }

  function start(): void {
    running ??= runLoop({
      clock,
      signal: closing.signal,
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
      start();
      return () => void all.delete(listener);
    },
    async close(): Promise<void> {
      closing.abort(ENDED_EARLY);
      session?.cut(ENDED_EARLY);
      await running;
    },
  };
}
