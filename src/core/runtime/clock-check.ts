import { isoUtc } from "../values/iso-utc.ts";
import type { Clock } from "./clock.ts";
import { createLoopService, type WorkerService } from "./lifecycle.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import { createWakeup } from "./waiting.ts";

export interface ClockDifference {
  readonly sinceMs: number;
  /** Milliseconds by which this machine's clock jumped forward, or is ahead of a service's clock. */
  readonly byMs: number;
  readonly message: string;
}

/** Minimum difference between this machine's and a service's clock that is reported and stops tag writes. */
export const MAX_CLOCK_DIFFERENCE_MS = 30_000;

/** Minimum jump of the wall clock, compared with the monotonic clock, that counts as a step. */
const MIN_CLOCK_STEP_MS = 2_000;
/** Maximum rate at which a time server gradually adjusts a clock (500 ppm). Slower changes are not steps. */
const MAX_CLOCK_SLEW_RATE = 500e-6;
const CLOCK_COMPARE_INTERVAL_MS = 5_000;
/** Number of consecutive responses that must agree, because one response may come from a proxy's cache. */
const MIN_AGREEING_REPLIES = 2;

export type ClockCheck = ReturnType<typeof createClockCheck>;

/**
 * Decides whether the wall clock can be trusted. Command expiry, permitted hours of tag writes and ages use wall time.
 * While the clock is unverified, Plenum writes nothing and drops nothing for its age. Waits use the monotonic clock.
 *
 * The clock is unverified after a step (set by a person or a time server, or a suspended machine) until two consecutive
 * replies of one service agree with it. It is also unverified while a service's `Date` header differs by over 30 s.
 */
export function createClockCheck(options: {
  readonly clock: Clock;
  readonly log: Pick<Log, "warn" | "info">;
  readonly metrics?: Pick<Metrics, "clockSteps" | "clockInDoubt">;
  /** Latest wall time in the stored state. A current time before `storedTimeMs` means that the clock was set back. */
  readonly storedTimeMs?: number;
  /** Name of the clock at the beginning of a message; "The wall clock" by default. */
  readonly clockName?: string;
}) {
  const { clock, log, metrics, storedTimeMs, clockName = "The wall clock" } = options;
  const clockStepWakeup = createWakeup();
  const clockDifferences = new Map<string, ClockDifference>();
  /** Number of consecutive responses that agree with our clock, by service; negative counts differing responses. */
  const replyCountsByService = new Map<string, number>();
  let lastComparisonMs = clock.monotonic();
  let wallClockOffsetMs = clock.now() - lastComparisonMs;
  let clockStep: ClockDifference | null = null;
  function compareClocks(): void {
    const monotonicNowMs = clock.monotonic();
    const offsetChangeMs = clock.now() - monotonicNowMs - wallClockOffsetMs;
    const maxClockSlewMs = (monotonicNowMs - lastComparisonMs) * MAX_CLOCK_SLEW_RATE;
    lastComparisonMs = monotonicNowMs;
    if (Math.abs(offsetChangeMs) <= MIN_CLOCK_STEP_MS) {
      wallClockOffsetMs += Math.max(-maxClockSlewMs, Math.min(maxClockSlewMs, offsetChangeMs));
      return;
    }
    wallClockOffsetMs += offsetChangeMs;
    recordClockStep(offsetChangeMs);
  }

  function recordClockStep(stepMs: number): void {
    const wallTimeMs = clock.now();
    const previousClockStep = clockStep ?? { sinceMs: wallTimeMs, byMs: 0 };
    clockStep = describeClockStep(clockName, previousClockStep.sinceMs, previousClockStep.byMs + stepMs);
    replyCountsByService.clear();
    clockDifferences.clear();
    metrics?.clockSteps.inc({ direction: stepMs > 0 ? "forward" : "back" });
    updateClockMetric();
    const seconds = Math.round(stepMs / 1_000);
    log.warn({ seconds, before: isoUtc(wallTimeMs - stepMs), now: isoUtc(wallTimeMs) }, CLOCK_STEP_MESSAGE);
    clockStepWakeup.wakeUp();
  }
  const updateClockMetric = () => metrics?.clockInDoubt.set(clockStep !== null || clockDifferences.size > 0 ? 1 : 0);
  const behindStoredStateMs = (storedTimeMs ?? clock.now()) - clock.now();
  if (behindStoredStateMs > MIN_CLOCK_STEP_MS) recordClockStep(-behindStoredStateMs);
  return {
    compareClocks,
    stepWakeup: clockStepWakeup,
    /** Returns the latest clock step; null without a step, or after a service's clock agreed again. */
    latestStep(): ClockDifference | null {
      compareClocks();
      return clockStep;
    },
    /** The latest clock step or difference to a service's clock; null while the clock is trusted. */
    deviation(): ClockDifference | null {
      compareClocks();
      return clockStep ?? clockDifferences.values().next().value ?? null;
    },
    /** Records how far our clock is ahead of the `Date` header of a service's response. */
    recordServiceClock(service: string, aheadMs: number): void {
      compareClocks();
      const clocksDiffer = Math.abs(aheadMs) > MAX_CLOCK_DIFFERENCE_MS;
      const previousReplyCount = replyCountsByService.get(service) ?? 0;
      const agreeingReplies = clocksDiffer ? Math.min(previousReplyCount, 0) - 1 : Math.max(previousReplyCount, 0) + 1;
      replyCountsByService.set(service, agreeingReplies);
      if (Math.abs(agreeingReplies) < MIN_AGREEING_REPLIES) return;
      if (clocksDiffer) {
        const differentSinceMs = clockDifferences.get(service)?.sinceMs ?? clock.now();
        clockDifferences.set(service, describeClockDifference(clockName, service, differentSinceMs, aheadMs));
      } else {
        clockDifferences.delete(service);
        if (clockStep !== null) log.info({ service }, "the wall clock agrees with a service's again: it is trusted");
        clockStep = null;
      }
      updateClockMetric();
    },
    notices(): readonly string[] {
      compareClocks();
      return clockStep === null ? [] : [clockStep.message];
    },
    watchLoop: {
      clock,
      alignSleeps: true,
      async step() {
        compareClocks();
        return CLOCK_COMPARE_INTERVAL_MS;
      },
      onFault: (error: unknown) => log.warn({ err: error }, "the clocks could not be compared"),
    },
  };
}

export function createClockWatchService({ watchLoop }: Pick<ClockCheck, "watchLoop">): WorkerService {
  return createLoopService("clock", watchLoop);
}

const CLOCK_STEP_MESSAGE =
  "the wall clock was set, or the machine was suspended: nothing is written until a service's clock agrees with it";

function describeClockStep(clockName: string, sinceMs: number, byMs: number): ClockDifference {
  const stepDirection = byMs < 0 ? "back" : "forward";
  const message =
    `${clockName} went ${stepDirection} by ${formatWholeSeconds(byMs)} at ${isoUtc(sinceMs)}: nothing is written, and no event is dropped ` +
    "for its age, until a service's clock agrees with it.";
  return { sinceMs, byMs, message };
}

function describeClockDifference(clockName: string, service: string, sinceMs: number, byMs: number): ClockDifference {
  return { sinceMs, byMs, message: `${clockName} and that of ${service} differ by ${formatWholeSeconds(byMs)}.` };
}

function formatWholeSeconds(ms: number): string {
  return `${Math.round(Math.abs(ms) / 1_000)} s`;
}
