import { makeEvent, sourceUri, WORKER_SUBJECT } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { VERSION } from "../../core/runtime/version.ts";
import { createWakeup, endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { StoredPoll } from "./snapshot.ts";

/** Emits `worker-alive` at the start and at the interval, through the outbox. Sinks leave out outdated heartbeats. */
export function createHeartbeat(options: {
  readonly source: string;
  readonly everyMs: number | false;
  readonly store: Pick<Store, "commit" | "document">;
  readonly clock: Clock;
  readonly log: Log;
}): Service & { change(everyMs: number | false): void } {
  const { source, store, clock, log } = options;
  const stopping = new AbortController();
  const changed = createWakeup();
  let { everyMs } = options;
  let lastMs = Number.NEGATIVE_INFINITY;
  let running: Promise<void> = Promise.resolve();

  async function turn(): Promise<number> {
    if (everyMs === false) return Number.POSITIVE_INFINITY;
    const nowMs = clock.monotonic();
    if (nowMs < lastMs + everyMs) return lastMs + everyMs - nowMs;
    await emit(everyMs);
    // After a standstill of several intervals continue from now; after a late timer keep the rhythm.
    lastMs = nowMs - lastMs < 2 * everyMs ? lastMs + everyMs : nowMs;
    return Math.max(0, lastMs + everyMs - clock.monotonic());
  }

  async function emit(intervalMs: number): Promise<void> {
    const polled = await store.document<StoredPoll>(documentSet("poll", source), "alarms");
    const about = { source: sourceUri(source), subject: WORKER_SUBJECT, time: isoUtc(clock.now()) };
    const alarmsPolledAt = polled?.lastSuccess ?? null;
    const data = { intervalSeconds: intervalMs / 1_000, version: VERSION, alarmsPolledAt };
    await store.commit({ events: [makeEvent({ ...about, type: "worker-alive", data, facts: [about.time] })] });
  }

  return startedOnce({
    name: `heartbeat ${source}`,
    async start(signal) {
      running = runLoop({
        clock,
        signal: AbortSignal.any([signal, stopping.signal]),
        wakeup: changed,
        turn,
        fault: (error) => log.warn({ err: error }, "The heartbeat could not be stored; it is tried again."),
      });
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await endsWithin(clock, deadlineMs, running);
    },
    change(next: number | false) {
      everyMs = next;
      changed.wakeUp();
    },
  });
}
