import { ConfigError, type Failure, LocalFailure, meaningOf, Throttled } from "../../core/errors/errors.ts";
import { LOCAL_RETRY_MS } from "../../core/errors/local-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Job, JobOutcome } from "./job.ts";

/** Result of one run. */
export type RunResult = JobOutcome | { readonly kind: "failed"; readonly failure: Failure };

/** One job with its memory: whether it runs, how often it failed in a row, and until when it is to be left alone. */
export interface Runner {
  readonly name: string;
  /** The job of the next run; a running one does not change. */
  job(): Job;
  become(job: Job): void;
  isRunning(): boolean;
  /** True while the service's word is that this job is to be left alone: told to wait, or refused. */
  isHeld(): boolean;
  /** True while it was refused: what the token may decides when it is tried again. */
  isRefused(): boolean;
  /** Runs the job, unless it runs already; null then. Rejects for a stop only. */
  run(signal: AbortSignal): Promise<RunResult | null>;
  /** Failures in a row. */
  failures(): number;
  /** It is held for so many milliseconds from now, and not for longer. */
  holdFor(ms: number): void;
  /** Milliseconds after which the last result is to be followed by another run, before or after the next tick. */
  retryInMs(result: RunResult): number | null;
}

export interface RunnerOptions {
  readonly source: string;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly random: () => number;
  /** Called after each run that did not fail. */
  readonly succeeded?: ((job: string) => void) | undefined;
}

/** Retries after temporary failures, with growing pauses; the next tick comes anyway. */
const RETRY = { firstMs: 15_000, maxMs: 900_000 };
/** Retries of live reads and history, which have no ticks; shorter, because a missed reply is lost. */
const FOLLOWED_RETRY = { firstMs: 15_000, maxMs: 120_000 };
/**
 * Pause in milliseconds after a failure that a person has to fix (403, 422). It ends when the token's scope changes, and is
 * shorter while the scope is unknown: `GET me` is requested once a minute then.
 */
const REFUSED_MS = 900_000;
export const SECOND_LOOK_MS = 60_000;
const SOON_LOOKS = 5;
/**
 * Longest time that a job rests because the service ordered it, in milliseconds. The source keeps back requests for as long
 * as the order says, or until it turns out to be over (src/engine/source/long-waits.ts): then a request has to be there.
 */
export const ORDERED_BACKOFF_MS = 60_000;

export function createRunner(first: Job, options: RunnerOptions): Runner {
  const { source, clock, metrics, random } = options;
  const { name } = first;
  const labels = { source, job: name };
  let job = first;
  let running = false;
  let failures = 0;
  let notBeforeMs = Number.NEGATIVE_INFINITY;
  let refused = false;

  const retryInMs = (result: RunResult): number | null => {
    if (result.kind === "ok") return null;
    if (result.kind === "incomplete") return backoffMs(RETRY, failures, random);
    return statedMs(result.failure) ?? backoffMs(RETRY, failures, random);
  };

  return {
    name,
    job: () => job,
    become(next) {
      job = next;
    },
    isRunning: () => running,
    isHeld: () => clock.monotonic() < notBeforeMs,
    isRefused: () => refused,
    failures: () => failures,
    holdFor(ms) {
      notBeforeMs = clock.monotonic() + ms;
    },
    retryInMs,

    async run(signal) {
      if (running) {
        metrics.polls.inc({ ...labels, outcome: "overlap" });
        return null;
      }
      running = true;
      let result: RunResult;
      try {
        result = await job.run(signal);
      } catch (error) {
        signal.throwIfAborted();
        result = { kind: "failed", failure: meaningOf(error) };
      } finally {
        running = false;
      }
      failures = result.kind === "ok" ? 0 : failures + 1;
      refused = result.kind === "failed" && result.failure instanceof ConfigError;
      metrics.polls.inc({ ...labels, outcome: result.kind });
      if (result.kind !== "failed") {
        metrics.pollSuccess.set(labels, clock.now() / 1000);
        options.succeeded?.(name);
      }
      const heldMs = result.kind === "failed" && !mayPass(result.failure) ? retryInMs(result) : null;
      notBeforeMs = heldMs === null ? Number.NEGATIVE_INFINITY : clock.monotonic() + heldMs;
      return result;
    },
  };
}

/**
 * How long live reads and history rest after a refusal for which the token's word gives no reason, the `refusals`-th in
 * a row, in milliseconds: it may be over at any moment, and everything waits for it.
 */
export function unexplainedBackoffMs(refusals: number): number {
  return refusals <= SOON_LOOKS ? SECOND_LOOK_MS : REFUSED_MS;
}

/** How long live reads and history rest after another failure, the `failures`-th in a row, in milliseconds. */
export function followedBackoffMs(failure: Failure, failures: number, random: () => number): number {
  return statedMs(failure) ?? backoffMs(FOLLOWED_RETRY, failures, random);
}

/** How long a failure says that is to be waited, in milliseconds; null when it does not. */
function statedMs(failure: Failure): number | null {
  if (failure instanceof Throttled) return Math.min(failure.retryAfterMs ?? ORDERED_BACKOFF_MS, ORDERED_BACKOFF_MS);
  if (failure instanceof ConfigError) return REFUSED_MS;
  if (failure instanceof LocalFailure) return LOCAL_RETRY_MS;
  return null;
}

/** Trouble that may be over at any tick; the rest is to be left alone for its time. */
function mayPass(failure: Failure): boolean {
  return !(failure instanceof Throttled || failure instanceof ConfigError);
}
