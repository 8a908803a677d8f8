import { errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, maskCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { SinkLag } from "../store/store.ts";

/**
 *   starting ──► idle ◄──► delivering
 *                  ▲          │
 *                  │   ┌──────┼───────────┐
 *                  │   ▼      ▼           ▼
 *                  └ retrying throttled stopped ──► ended (410 Gone: for good, or until a person continues the sink)
 *
 * `stopped`: a person has to change something; the sink tries again every 5 minutes.
 */
export type SinkStateName = "starting" | "idle" | "delivering" | "retrying" | "throttled" | "stopped" | "ended";

export interface SinkStatus extends ReturnType<SinkStatusTracker["status"]> {
  /** Number of requests that the sink still sends for settled events; see `Sink.pendingRequests`. */
  readonly waiting: number;
  readonly lag: SinkLag | null;
}

type FailingSinkState = "retrying" | "throttled" | "stopped";

export type SinkStatusTracker = ReturnType<typeof createSinkStatusTracker>;

const RESTART_NOTICE_DURATION_MS = 60 * 60_000;

export function createSinkStatusTracker(options: {
  readonly name: string;
  readonly connector: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}) {
  const { name, connector, clock, log, metrics } = options;
  let sinkState: SinkStateName = "starting";
  let stateSinceMs = clock.now();
  let lastError: string | null = null;
  let failedAttempts = 0;
  let nextAttemptMs: number | null = null;
  let lastRestart: { readonly atMs: number; readonly time: string; readonly redeliveredCount: number } | null = null;

  function changeSinkState(next: SinkStateName): void {
    if (sinkStateGroup(next) !== sinkStateGroup(sinkState)) stateSinceMs = clock.now();
    sinkState = next;
    metrics.sinkUp.set({ sink: name }, sinkStateGroup(next) === "well" ? 1 : 0);
  }

  return {
    showWriting(): void {
      if (sinkState === "starting" || sinkState === "idle") changeSinkState("delivering");
    },
    showWorking(next: "idle" | "delivering"): void {
      if (sinkStateGroup(sinkState) === "trouble" || sinkState === "stopped") {
        log.info({ sink: name, troubleMs: clock.now() - stateSinceMs }, "The sink accepts events again.");
      }
      changeSinkState(next);
      lastError = null;
      failedAttempts = 0;
      nextAttemptMs = null;
    },
    /** Logs a warning only when the kind of problem changes, not at each attempt. */
    showFailure(next: FailingSinkState, error: unknown, attemptCount: number, waitMs: number): void {
      lastError = maskCredentials(errorText(error));
      failedAttempts = attemptCount;
      nextAttemptMs = clock.now() + waitMs;
      const isNewFailure = sinkStateGroup(next) !== sinkStateGroup(sinkState);
      changeSinkState(next);
      if (!isNewFailure) return;
      const message =
        next === "stopped"
          ? "The sink has stopped: a person has to change something. Its events are kept."
          : "The sink does not accept events. They are kept and tried again.";
      log.warn({ sink: name, problem: lastError, waitMs }, message);
    },
    showEnded(reason: string): void {
      if (sinkState === "ended") return;
      changeSinkState("ended");
      lastError = maskCredentials(reason);
      nextAttemptMs = null;
      log.warn({ sink: name, problem: lastError }, "The sink has ended for good and gets no more events.");
    },
    onRestart(redeliveredCount: number): void {
      lastRestart = { atMs: clock.monotonic(), time: isoUtc(clock.now()), redeliveredCount };
    },
    notices(): readonly string[] {
      if (lastRestart === null || clock.monotonic() - lastRestart.atMs > RESTART_NOTICE_DURATION_MS) return [];
      const { time, redeliveredCount } = lastRestart;
      return [
        `The server of sink ${name} was restarted; Plenum noticed it at ${time}. Events that the server had acknowledged shortly before and may have lost are sent again: ${formatCount(redeliveredCount, "event")}.`,
      ];
    },
    showResumed(): void {
      if (sinkState !== "ended") return;
      changeSinkState("starting");
      lastError = null;
      log.info({ sink: name }, "The sink had ended; it continues with the events that it has not received.");
    },
    status: () => ({
      name,
      connector,
      state: sinkState,
      since: isoUtc(stateSinceMs),
      lastError,
      attempts: failedAttempts,
      nextAttemptAt: nextAttemptMs === null ? null : isoUtc(nextAttemptMs),
    }),
  };
}

function sinkStateGroup(state: SinkStateName): string {
  if (state === "idle" || state === "delivering") return "well";
  if (state === "retrying" || state === "throttled") return "trouble";
  return state;
}
