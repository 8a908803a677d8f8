import { isoUtc } from "../values/iso-utc.ts";
import type { Clock } from "./clock.ts";
import { type Service, Stopping, startedOnce } from "./lifecycle.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import { createWakeup, loop, type Wakeup } from "./waiting.ts";

/**
 * Whether the wall clock can be trusted. What is measured never hangs on it; but lives of commands, hours of writing
 * and the age of what a person sees are stated in wall time, so while it is in doubt nothing is written and nothing is
 * dropped for its age.
 *
 * It is in doubt from a step on (a person or a time server set it, or the machine was suspended, when measured time
 * stands still), until two replies in a row of one service carry a `Date` that agrees with it. And it is in doubt, as
 * far as a service is concerned, while that one's `Date` differs.
 *
 *   wall − measured:  ───────┐          a step of −3,600 s: schedules start anew, commands are refused
 *                            └───┬───   two replies agree: trusted again
 */
export interface ClockCheck {
  /** Compares wall and measured time. Cheap, and made by itself at every question, so that no decision is too early. */
  look(): void;
  /** Rings at every step. */
  readonly steps: Wakeup;
  /** A step that no service's clock has agreed to yet; null while there is none. */
  stepped(): ClockDifference | null;
  /** A step, or a difference to the clock of any service; null while the clock can be trusted. */
  anywhere(): ClockDifference | null;
  /** A reply's `Date` said that our clock is so many milliseconds ahead of the service's. */
  compared(service: string, aheadMs: number): void;
  /** A sentence about a step, for a person; the difference to a service's clock is told with the service. */
  notices(): readonly string[];
  /** Looks every few seconds until the signal aborts. */
  watch(signal: AbortSignal): Promise<void>;
}

export interface ClockDifference {
  /** Wall time at which it was noticed, as the clock stood then. */
  readonly sinceMs: number;
  /** By how much the clock went forward, or is ahead of the service's, in milliseconds. */
  readonly byMs: number;
  readonly message: string;
}

/** From here on a difference of the clocks, ours and a service's, is told, and closes writing; milliseconds. */
export const DIFFERENCE_BOUND_MS = 30_000;

/** A change of wall against measured time that is a step. Nobody's schedule or time to live suffers from less. */
const STEP_MS = 2_000;
/**
 * What a time server does to a clock without stepping it, and what one crystal differs from another: 500 millionths
 * (the kernel's own limit). A change that comes no faster is followed and never adds up to a step: 1.8 s in an hour.
 */
const SLEW = 500e-6;
const LOOK_EVERY_MS = 5_000;
/** Replies in a row that say the same: one may be an old one that a proxy had kept. */
const REPLIES = 2;

export interface ClockCheckOptions {
  readonly clock: Clock;
  readonly log: Pick<Log, "warn" | "info">;
  readonly metrics?: Pick<Metrics, "clockSteps" | "clockInDoubt">;
  /** Wall time of the latest thing that the state holds: a clock that is behind it was set back meanwhile. */
  readonly lastKnownMs?: number;
  /** For people, at the beginning of a sentence: "The wall clock" unless another is given. */
  readonly whose?: string;
}

export function createClockCheck(options: ClockCheckOptions): ClockCheck {
  const { clock, log, metrics, lastKnownMs, whose = "The wall clock" } = options;
  const steps = createWakeup();
  const differences = new Map<string, ClockDifference>();
  /** By service, how many replies in a row said the same; negative where they differ. */
  const replies = new Map<string, number>();
  let lookedMs = clock.monotonic();
  let offsetMs = clock.now() - lookedMs;
  let step: ClockDifference | null = null;

  function look(): void {
    const nowMs = clock.monotonic();
    const changeMs = clock.now() - nowMs - offsetMs;
    const slewedMs = (nowMs - lookedMs) * SLEW;
    lookedMs = nowMs;
    if (Math.abs(changeMs) <= STEP_MS) {
      offsetMs += Math.max(-slewedMs, Math.min(slewedMs, changeMs));
      return;
    }
    offsetMs += changeMs;
    noteStep(changeMs);
  }

  function noteStep(byMs: number): void {
    const wallMs = clock.now();
    const before = step ?? { sinceMs: wallMs, byMs: 0 };
    step = stepDoubt(whose, before.sinceMs, before.byMs + byMs);
    replies.clear();
    differences.clear();
    metrics?.clockSteps.inc({ direction: byMs > 0 ? "forward" : "back" });
    show();
    const seconds = Math.round(byMs / 1_000);
    log.warn({ seconds, before: isoUtc(wallMs - byMs), now: isoUtc(wallMs) }, STEP_LINE);
    steps.wakeUp();
  }

  const show = () => metrics?.clockInDoubt.set(step !== null || differences.size > 0 ? 1 : 0);

  const behindMs = (lastKnownMs ?? clock.now()) - clock.now();
  if (behindMs > STEP_MS) noteStep(-behindMs);

  return {
    look,
    steps,
    stepped() {
      look();
      return step;
    },
    anywhere() {
      look();
      return step ?? differences.values().next().value ?? null;
    },
    compared(service, aheadMs) {
      look();
      const differs = Math.abs(aheadMs) > DIFFERENCE_BOUND_MS;
      const before = replies.get(service) ?? 0;
      const now = differs ? Math.min(before, 0) - 1 : Math.max(before, 0) + 1;
      replies.set(service, now);
      if (Math.abs(now) < REPLIES) return;
      if (differs) {
        const sinceMs = differences.get(service)?.sinceMs ?? clock.now();
        differences.set(service, differenceDoubt(whose, service, sinceMs, aheadMs));
      } else {
        differences.delete(service);
        if (step !== null)
          log.info({ service }, "the wall clock agrees with a service's again: it is trusted");
        step = null;
      }
      show();
    },
    notices() {
      look();
      return step === null ? [] : [step.message];
    },
    watch: (signal) =>
      loop({
        clock,
        signal,
        looks: true,
        async turn() {
          look();
          return LOOK_EVERY_MS;
        },
        fault: (error) => log.warn({ err: error }, "the clocks could not be compared"),
      }),
  };
}

/** Looks at the clocks for as long as the worker runs. */
export function watching(doubt: Pick<ClockCheck, "watch">): Service {
  const stopping = new AbortController();
  let running: Promise<void> | null = null;
  return startedOnce({
    name: "clock",
    async start(signal) {
      running = doubt.watch(AbortSignal.any([signal, stopping.signal]));
    },
    async stop() {
      stopping.abort(new Stopping());
      await running;
    },
  });
}

const STEP_LINE =
  "the wall clock was set, or the machine was suspended: nothing is written until a service's clock agrees with it";

function stepDoubt(whose: string, sinceMs: number, byMs: number): ClockDifference {
  const way = byMs < 0 ? "back" : "forward";
  const message =
    `${whose} went ${way} by ${seconds(byMs)} at ${isoUtc(sinceMs)}: nothing is written, and no event is dropped ` +
    "for its age, until a service's clock agrees with it.";
  return { sinceMs, byMs, message };
}

function differenceDoubt(whose: string, service: string, sinceMs: number, byMs: number): ClockDifference {
  const message = `${whose} and that of ${service} differ by ${seconds(byMs)}.`;
  return { sinceMs, byMs, message };
}

function seconds(ms: number): string {
  return `${Math.round(Math.abs(ms) / 1_000)} s`;
}
