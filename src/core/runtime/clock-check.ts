import { isoUtc } from "../values/iso-utc.ts";
import type { Clock } from "./clock.ts";
import { type Service, Stopping, startedOnce } from "./lifecycle.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import { createWakeup, runLoop } from "./waiting.ts";

export interface ClockDifference {
  readonly sinceMs: number;
  /** How far the clock went forward, or is ahead of the service's, in milliseconds. */
  readonly byMs: number;
  readonly message: string;
}

/** Difference between our clock and a service's from which it is reported and stops writing, in milliseconds. */
export const MAX_CLOCK_DIFFERENCE_MS = 30_000;

/** Change of wall time against measured time that counts as a step, in milliseconds. */
const MIN_STEP_MS = 2_000;
/** Rate at which a time server may slew a clock (kernel limit, 500 ppm). Slower changes are no step: 1.8 s per hour. */
const MAX_SLEW_RATE = 500e-6;
const COMPARE_INTERVAL_MS = 5_000;
/** Consecutive replies that must agree, because a single one may come from a proxy's cache. */
const AGREEING_REPLIES = 2;

export interface ClockCheckOptions {
  readonly clock: Clock;
  readonly log: Pick<Log, "warn" | "info">;
  readonly metrics?: Pick<Metrics, "clockSteps" | "clockInDoubt">;
  /** Latest wall time in the stored state. A clock behind it was set back. */
  readonly lastKnownMs?: number;
  /** For people, at the beginning of a sentence: "The wall clock" unless another is given. */
  readonly whose?: string;
}

export type ClockCheck = ReturnType<typeof createClockCheck>;

/**
 * Decides whether the wall clock can be trusted. Lifetimes of commands, hours of writing and ages are stated in wall time.
 * While the clock is unverified, Plenum writes nothing and drops nothing for its age. Waits use measured time.
 *
 * The clock is unverified after a step (set by a person or a time server, or a suspended machine) until two consecutive
 * replies of one service agree with it. For one service it is unverified while that service's `Date` differs.
 *
 *   wall − measured:  ───────┐          a step of −3,600 s: schedules restart, commands are rejected
 *                            └───┬───   two replies agree: trusted again
 */
export function createClockCheck(options: ClockCheckOptions) {
  const { clock, log, metrics, lastKnownMs, whose = "The wall clock" } = options;
  const stepWakeup = createWakeup();
  const differences = new Map<string, ClockDifference>();
  /** Consecutive replies that agree, by service; negative if they differ from our clock. */
  const replies = new Map<string, number>();
  let lookedMs = clock.monotonic();
  let offsetMs = clock.now() - lookedMs;
  let currentStep: ClockDifference | null = null;
  function compareClocks(): void {
    const nowMs = clock.monotonic();
    const changeMs = clock.now() - nowMs - offsetMs;
    const slewedMs = (nowMs - lookedMs) * MAX_SLEW_RATE;
    lookedMs = nowMs;
    if (Math.abs(changeMs) <= MIN_STEP_MS) {
      offsetMs += Math.max(-slewedMs, Math.min(slewedMs, changeMs));
      return;
    }
    offsetMs += changeMs;
    noteStep(changeMs);
  }

  function noteStep(byMs: number): void {
    const wallMs = clock.now();
    const previousStep = currentStep ?? { sinceMs: wallMs, byMs: 0 };
    currentStep = describeStep(whose, previousStep.sinceMs, previousStep.byMs + byMs);
    replies.clear();
    differences.clear();
    metrics?.clockSteps.inc({ direction: byMs > 0 ? "forward" : "back" });
    updateMetric();
    const seconds = Math.round(byMs / 1_000);
    log.warn({ seconds, before: isoUtc(wallMs - byMs), now: isoUtc(wallMs) }, STEP_MESSAGE);
    stepWakeup.wakeUp();
  }
  const updateMetric = () => metrics?.clockInDoubt.set(currentStep !== null || differences.size > 0 ? 1 : 0);
  const behindMs = (lastKnownMs ?? clock.now()) - clock.now();
  if (behindMs > MIN_STEP_MS) noteStep(-behindMs);
  return {
    /** Compares wall and measured time, as each other function here does. */
    look: compareClocks,
    steps: stepWakeup,
    /** A step that no service's clock has agreed to yet; null while there is none. */
    stepped(): ClockDifference | null {
      compareClocks();
      return currentStep;
    },
    /** A step, or a difference to the clock of any service; null while the clock can be trusted. */
    anywhere(): ClockDifference | null {
      compareClocks();
      return currentStep ?? differences.values().next().value ?? null;
    },
    /** Takes the difference from the `Date` of a reply: our clock is `aheadMs` ahead of the service's. */
    compared(service: string, aheadMs: number): void {
      compareClocks();
      const isDifferent = Math.abs(aheadMs) > MAX_CLOCK_DIFFERENCE_MS;
      const previousReplies = replies.get(service) ?? 0;
      const agreeingReplies = isDifferent ? Math.min(previousReplies, 0) - 1 : Math.max(previousReplies, 0) + 1;
      replies.set(service, agreeingReplies);
      if (Math.abs(agreeingReplies) < AGREEING_REPLIES) return;
      if (isDifferent) {
        const sinceMs = differences.get(service)?.sinceMs ?? clock.now();
        differences.set(service, describeDifference(whose, service, sinceMs, aheadMs));
      } else {
        differences.delete(service);
        if (currentStep !== null) log.info({ service }, "the wall clock agrees with a service's again: it is trusted");
        currentStep = null;
      }
      updateMetric();
    },
    notices(): readonly string[] {
      compareClocks();
      return currentStep === null ? [] : [currentStep.message];
    },
    watch: (signal: AbortSignal): Promise<void> =>
      runLoop({
        clock,
        signal,
        onlyChecks: true,
        async turn() {
          compareClocks();
          return COMPARE_INTERVAL_MS;
        },
        fault: (error) => log.warn({ err: error }, "the clocks could not be compared"),
      }),
  };
}

export function createClockWatch(check: Pick<ClockCheck, "watch">): Service {
  const stopController = new AbortController();
  let running: Promise<void> | null = null;
  return startedOnce({
    name: "clock",
    async start(signal) {
      running = check.watch(AbortSignal.any([signal, stopController.signal]));
    },
    async stop() {
      stopController.abort(new Stopping());
      await running;
    },
  });
}

const STEP_MESSAGE =
  "the wall clock was set, or the machine was suspended: nothing is written until a service's clock agrees with it";

function describeStep(whose: string, sinceMs: number, byMs: number): ClockDifference {
  const way = byMs < 0 ? "back" : "forward";
  const message =
    `${whose} went ${way} by ${formatSeconds(byMs)} at ${isoUtc(sinceMs)}: nothing is written, and no event is dropped ` +
    "for its age, until a service's clock agrees with it.";
  return { sinceMs, byMs, message };
}

function describeDifference(whose: string, service: string, sinceMs: number, byMs: number): ClockDifference {
  const message = `${whose} and that of ${service} differ by ${formatSeconds(byMs)}.`;
  return { sinceMs, byMs, message };
}

function formatSeconds(ms: number): string {
  return `${Math.round(Math.abs(ms) / 1_000)} s`;
}
