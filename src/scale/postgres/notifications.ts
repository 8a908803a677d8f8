import { quoted } from "../../core/postgres/quoted.ts";
import type { Notification, Session } from "../../core/postgres/session.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, loop, WOKEN } from "../../core/runtime/waiting.ts";

/** Interval at which listeners are called without a notification, in milliseconds. */
const LOOK_MS = 30_000;

/** Longest wait for the reply of a connection check, in milliseconds. */
const ANSWER_MS = 10_000;

const BACKOFF = { firstMs: 200, maxMs: 5_000 };

export interface Notifications {
  listen(topic: string, listener: () => void): () => void;
  close(): Promise<void>;
}

export interface NotificationsOptions {
  readonly channel: string;
  readonly clock: Clock;
  readonly log: Log;
  connect(
    signal: AbortSignal,
    more: { readonly onNotification: (notification: Notification) => void; readonly onLost: () => void },
  ): Promise<Session>;
}

/**
 * Listens to one channel over a connection of its own, which the first listener opens. The payload is the topic.
 * Notifications are lost while the connection is down, so all listeners are called when it returns.
 */
export function createNotifications({ channel, clock, log, connect }: NotificationsOptions): Notifications {
  const listeners = new Map<string, Set<() => void>>();
  const closing = new AbortController();
  const lost = createWakeup();
  let session: Session | null = null;
  let running: Promise<void> | null = null;
  let isAway = false;

  function call(topic: string): void {
    for (const listener of [...(listeners.get(topic) ?? [])]) listener();
  }

  function callAll(): void {
    for (const topic of [...listeners.keys()]) call(topic);
  }

  async function listening(): Promise<Session> {
    const opened = await connect(closing.signal, {
      onNotification: (notification) => {
        if (notification.channel === channel) call(notification.payload);
      },
      onLost: lost.wakeUp,
    });
    await opened.query(`listen ${quoted(channel)}`);
    return opened;
  }

  async function turn(): Promise<number> {
    if (session === null || session.lost() !== null) {
      session = await listening();
      if (isAway) log.info("Listening for changes of other processes again.");
      isAway = false;
    } else {
      const asked = session;
      const limit = AbortSignal.timeout(ANSWER_MS);
      const cut = () => asked.cut(limit.reason);
      limit.addEventListener("abort", cut, { once: true });
      try {
        await asked.query("select 1");
      } finally {
        limit.removeEventListener("abort", cut);
      }
    }
    callAll();
    return LOOK_MS;
  }

  function start(): void {
    running ??= loop({
      clock,
      signal: closing.signal,
      bell: lost,
      turn,
      fault(error) {
        if (!isAway)
          log.warn({ err: error }, "Listening for changes of other processes failed; Plenum connects again.");
        isAway = true;
      },
      backoff: BACKOFF,
    });
  }

  return {
    listen(topic, listener) {
      const all = listeners.get(topic) ?? new Set();
      listeners.set(topic, all.add(listener));
      start();
      return () => void all.delete(listener);
    },
    async close() {
      closing.abort(WOKEN);
      session?.cut(WOKEN);
      await running;
    },
  };
}
