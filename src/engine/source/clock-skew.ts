import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockCheck, DIFFERENCE_BOUND_MS } from "../../core/runtime/clock-check.ts";
import { createLastMedian } from "../../core/runtime/last-median.ts";

/**
 * How far our clock is from the service's, by the Date headers of its replies: the median of the last ones, so that
 * one odd reply, or one that a proxy had kept, changes nothing.
 */
export interface ClockSkew {
  /** A reply with this Date header came; `startedMs` is the monotonic time of its request. */
  observe(date: string | undefined, startedMs: number): void;
  /** Our clock minus the service's, milliseconds, accurate to about half a second; null while no reply said. */
  ms(): number | null;
}

const REMEMBERED = 15;
/** A reply that took longer says little about when its header was written, in milliseconds. */
const LONGEST_REPLY_MS = 10_000;
/** The header has whole seconds, cut off (RFC 9110, 5.6.7); the middle of that second is the best guess. */
const HALF_A_SECOND_MS = 500;

export function createClockSkew(
  clock: Clock,
  doubt: Pick<ClockCheck, "look" | "steps"> & { compared(aheadMs: number): void },
  changed: (skewMs: number) => void,
): ClockSkew {
  const aheads = createLastMedian(REMEMBERED);
  let steps = 0;
  /** Drops comparisons with a clock that has been set since. */
  function forgetBeforeStep(): void {
    doubt.look();
    if (doubt.steps.wakeups() === steps) return;
    steps = doubt.steps.wakeups();
    aheads.forget();
  }
  return {
    observe(date, startedMs) {
      const theirsMs = Date.parse(date ?? "");
      const tookMs = clock.monotonic() - startedMs;
      if (Number.isNaN(theirsMs) || tookMs > LONGEST_REPLY_MS) return;
      forgetBeforeStep();
      const aheadMs = Math.round(clock.now() - tookMs / 2 - theirsMs - HALF_A_SECOND_MS);
      doubt.compared(aheadMs);
      aheads.add(aheadMs);
      changed(aheads.value() ?? 0);
    },
    ms() {
      forgetBeforeStep();
      return aheads.value();
    },
  };
}

/**
 * A clock whose wall time is the service's as far as ours is in doubt, for what is asked for by that time: by a clock
 * that is eight days ahead, eight days that are still to come would be asked for, answered with nothing, and taken as
 * had. Until the first reply after a step it is what ours would be without it.
 */
export function serviceClock(clock: Clock, skewMs: () => number | null, doubt: Pick<ClockCheck, "stepped">): Clock {
  function aheadMs(): number {
    const ms = skewMs() ?? doubt.stepped()?.byMs ?? 0;
    return Math.abs(ms) > DIFFERENCE_BOUND_MS ? ms : 0;
  }
  return { ...clock, now: () => clock.now() - aheadMs() };
}

/** Tells once when the clocks begin to differ, and once when they agree again. */
export function createSkewReporter(tell: (skewMs: number, differs: boolean) => void): (skewMs: number) => void {
  let differed = false;
  return (skewMs) => {
    const differs = Math.abs(skewMs) > DIFFERENCE_BOUND_MS;
    if (differs !== differed) tell(skewMs, differs);
    differed = differs;
  };
}
