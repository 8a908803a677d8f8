import { type Failure, LocalFailure, meaningOf, sentence } from "../../core/errors/errors.ts";
import { LOCAL_RETRY_MS } from "../../core/errors/local-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import type { DeliveryConfig } from "./config.ts";

const RECHECK_MS = 5 * 60_000;
/** Longest wait that a server can demand, in milliseconds; a wrong header must not stop a sink for years. */
const LONGEST_HOLD_MS = 24 * 60 * 60_000;

export type Consequence =
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

/** Counts failures of one sink and decides what follows. */
export function createSetbacks({ retry, schedule }: Pick<DeliveryConfig, "retry" | "schedule">, random: () => number) {
  const backoff = { firstMs: retry.first, maxMs: retry.max };
  /** Event that failed last, with its number of consecutive failures. */
  let head: string | null = null;
  let attempts = 0;
  let refusals = 0;
  let failures = 0;
  let holds = 0;

  function forgetHead(): void {
    head = null;
    attempts = 0;
    refusals = 0;
  }

  return {
    attempts: () => attempts,
    /** `what` identifies the failed event or step; with `mayGiveUp`, its rejections use up the configured schedule. */
    judge(error: unknown, what: string, mayGiveUp: boolean): Consequence {
      const failure = meaningOf(error);
      const wait = (as: "retrying" | "throttled" | "stopped", waitMs: number, reopen = true) =>
        ({ go: "wait", as, failure, attempts, waitMs, reopen }) as const;

      if (failure.kind === "config") {
        if (failure.reason === "gone") return { go: "end", reason: withoutCredentials(sentence(failure)) };
        return wait("stopped", RECHECK_MS);
      }
      if (failure.kind === "throttled") {
        holds += 1;
        const told = failure.retryAfterMs ?? backoffMs(backoff, holds, random);
        return wait("throttled", Math.min(Math.max(told, 0), LONGEST_HOLD_MS), false);
      }
      // A local failure counts as no attempt and needs no long wait.
      if (failure instanceof LocalFailure) return wait("retrying", LOCAL_RETRY_MS);

      failures += 1;
      if (head !== what) forgetHead();
      head = what;
      attempts += 1;
      const isRefusal = failure.kind === "rejected" && mayGiveUp;
      if (isRefusal) refusals += 1;
      if (isRefusal && schedule !== undefined && refusals > schedule.length) {
        forgetHead();
        return { go: "give-up" };
      }
      const scheduledMs = isRefusal ? schedule?.[refusals - 1] : undefined;
      return wait("retrying", scheduledMs ?? backoffMs(backoff, failures, random));
    },
    over(): void {
      forgetHead();
      failures = 0;
      holds = 0;
    },
  };
}
