import { makeEvent, sourceUri, WORKER_SUBJECT } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createLoopService, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { VERSION } from "../../core/runtime/version.ts";
import { createWakeup } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { StoredJob } from "./stored-documents.ts";

/** Emits `worker-alive` at the start and at the interval, through the outbox. Sinks leave out outdated heartbeats. */
export function createHeartbeat(options: {
  readonly source: string;
  readonly everyMs: number | false;
  readonly store: Pick<Store, "commit" | "document">;
  readonly clock: Clock;
  readonly log: Log;
}): WorkerService & { changeInterval(everyMs: number | false): void } {
  const { source, store, clock, log } = options;
  const heartbeatIntervalChanged = createWakeup();
  let { everyMs } = options;
  let lastHeartbeatMs = Number.NEGATIVE_INFINITY;

  async function emitHeartbeatWhenDue(): Promise<number> {
    if (everyMs === false) return Number.POSITIVE_INFINITY;
    const nowMs = clock.monotonic();
    if (nowMs < lastHeartbeatMs + everyMs) return lastHeartbeatMs + everyMs - nowMs;
    await emitHeartbeat(everyMs);
    // After a pause of 2 or more intervals, the next heartbeat is one interval from now. A late timer shifts nothing.
    lastHeartbeatMs = nowMs - lastHeartbeatMs < 2 * everyMs ? lastHeartbeatMs + everyMs : nowMs;
    return Math.max(0, lastHeartbeatMs + everyMs - clock.monotonic());
  }

  async function emitHeartbeat(intervalMs: number): Promise<void> {
    const storedAlarmPoll = await store.document<StoredJob>(documentSet("poll", source), "alarms");
    const eventBase = { source: sourceUri(source), subject: WORKER_SUBJECT, time: isoUtc(clock.now()) };
    const alarmsPolledAt = storedAlarmPoll?.lastSuccess ?? null;
    const data = { intervalSeconds: intervalMs / 1_000, version: VERSION, alarmsPolledAt };
    await store.commit({ events: [makeEvent({ ...eventBase, type: "worker-alive", data, facts: [eventBase.time] })] });
  }

  return {
    ...createLoopService(`heartbeat ${source}`, {
      clock,
      wakeup: heartbeatIntervalChanged,
      step: emitHeartbeatWhenDue,
      onFault: (error) => log.warn({ err: error }, "The heartbeat could not be stored; it is tried again."),
    }),
    changeInterval(newEveryMs: number | false) {
      everyMs = newEveryMs;
      heartbeatIntervalChanged.wakeUp();
    },
  };
}
