import { asFailure, errorText, type Failure, LocalFailure } from "../../core/errors/errors.ts";
import { MACHINE_RETRY_MS } from "../../core/errors/machine-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import type { DeliveryConfig } from "./config.ts";

const STOPPED_RETRY_MS = 5 * 60_000;
/** Longest wait that a server can demand, in milliseconds; a wrong header must not stop a sink for years. */
const MAX_THROTTLE_MS = 24 * 60 * 60_000;

export type FailureDecision =
  | { readonly go: "end"; readonly reason: string }
  | { readonly go: "give-up" }
  /** Retry after `waitMs`; `reopen` when the connection may be broken. */
  | {
      readonly go: "wait";
      readonly as: "retrying" | "throttled" | "stopped";
      readonly failure: Failure;
      readonly attempts: number;
      readonly waitMs: number;
      readonly reopen: boolean;
    };

export function createFailurePolicy(
  { retry, schedule }: Pick<DeliveryConfig, "retry" | "schedule">,
  random: () => number,
) {
  const backoff = { firstMs: retry.first, maxMs: retry.max };
  /** Event that failed last, with its number of consecutive failures. */
  let failedEvent: string | null = null;
  let attempts = 0;
  let rejections = 0;
  let failures = 0;
  let throttles = 0;

  function resetAttempts(): void {
    failedEvent = null;
    attempts = 0;
    rejections = 0;
  }

  return {
    attempts: () => attempts,
    /** `what` identifies the failed event or step; with `mayGiveUp`, its rejections use up the configured schedule. */
    decide(error: unknown, what: string, mayGiveUp: boolean): FailureDecision {
      const failure = asFailure(error);
      const buildWait = (as: "retrying" | "throttled" | "stopped", waitMs: number, reopen = true) =>
        ({ go: "wait", as, failure, attempts, waitMs, reopen }) as const;

      if (failure.kind === "config") {
        if (failure.reason === "gone") return { go: "end", reason: maskCredentials(errorText(failure)) };
        return buildWait("stopped", STOPPED_RETRY_MS);
      }
      if (failure.kind === "throttled") {
        throttles += 1;
        const demandedMs = failure.retryAfterMs ?? backoffMs(backoff, throttles, random);
        return buildWait("throttled", Math.min(Math.max(demandedMs, 0), MAX_THROTTLE_MS), false);
      }
      // A local failure counts as no attempt and needs no long wait.
      if (failure instanceof LocalFailure) return buildWait("retrying", MACHINE_RETRY_MS);

      failures += 1;
      if (failedEvent !== what) resetAttempts();
      failedEvent = what;
      attempts += 1;
      const isRefusal = failure.kind === "rejected" && mayGiveUp;
      if (isRefusal) rejections += 1;
      if (isRefusal && schedule !== undefined && rejections > schedule.length) {
        resetAttempts();
        return { go: "give-up" };
      }
      const scheduledMs = isRefusal ? schedule?.[rejections - 1] : undefined;
      return buildWait("retrying", scheduledMs ?? backoffMs(backoff, failures, random));
    },
    reset(): void {
      resetAttempts();
      failures = 0;
      throttles = 0;
    },
  };
}
