import { asFailure, errorText, LocalFailure } from "../../core/errors/errors.ts";
import { MACHINE_RETRY_MS } from "../../core/errors/local-machine-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import type { DeliveryConfig } from "./config.ts";

const STOPPED_SINK_RETRY_MS = 5 * 60_000;
/** Longest wait that a server can demand, in milliseconds; a wrong header must not stop a sink for years. */
const MAX_THROTTLE_WAIT_MS = 24 * 60 * 60_000;

export function createDeliveryFailurePolicy(
  { retry, schedule }: Pick<DeliveryConfig, "retry" | "schedule">,
  random: () => number,
) {
  const retryBackoff = { firstMs: retry.first, maxMs: retry.max };
  let failedEventKey: string | null = null;
  let attempts = 0;
  let rejectionCount = 0;
  let failureCount = 0;
  let throttleCount = 0;

  function resetDeliveryAttempts(): void {
    failedEventKey = null;
    attempts = 0;
    rejectionCount = 0;
  }

  return {
    attempts: () => attempts,
    /** Decides whether to wait, end the sink or, if `mayGiveUp`, give up the event that `failedStep` identifies. */
    decide(error: unknown, failedStep: string, mayGiveUp: boolean) {
      const failure = asFailure(error);
      /** The sink retries after `waitMs`, with a new connection if `reopen` is true. */
      const buildWaitDecision = (sinkState: "retrying" | "throttled" | "stopped", waitMs: number, reopen = true) =>
        ({ action: "wait", sinkState, failure, attempts, waitMs, reopen }) as const;

      if (failure.kind === "config") {
        if (failure.reason === "gone") return { action: "end", reason: maskCredentials(errorText(failure)) } as const;
        return buildWaitDecision("stopped", STOPPED_SINK_RETRY_MS);
      }
      if (failure.kind === "throttled") {
        throttleCount += 1;
        const demandedWaitMs = failure.retryAfterMs ?? backoffMs(retryBackoff, throttleCount, random);
        return buildWaitDecision("throttled", Math.min(Math.max(demandedWaitMs, 0), MAX_THROTTLE_WAIT_MS), false);
      }
      // A failure of this machine does not count as an attempt and is retried soon.
      if (failure instanceof LocalFailure) return buildWaitDecision("retrying", MACHINE_RETRY_MS);

      failureCount += 1;
      if (failedEventKey !== failedStep) resetDeliveryAttempts();
      failedEventKey = failedStep;
      attempts += 1;
      const isEventRejection = failure.kind === "rejected" && mayGiveUp;
      if (isEventRejection) rejectionCount += 1;
      if (isEventRejection && schedule !== undefined && rejectionCount > schedule.length) {
        resetDeliveryAttempts();
        return { action: "give-up" } as const;
      }
      const scheduledWaitMs = isEventRejection ? schedule?.[rejectionCount - 1] : undefined;
      return buildWaitDecision("retrying", scheduledWaitMs ?? backoffMs(retryBackoff, failureCount, random));
    },
    reset(): void {
      resetDeliveryAttempts();
      failureCount = 0;
      throttleCount = 0;
    },
  };
}
