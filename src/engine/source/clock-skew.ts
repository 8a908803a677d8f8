import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockCheck, MAX_CLOCK_DIFFERENCE_MS } from "../../core/runtime/clock-check.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createMovingMedian } from "../../core/runtime/moving-median.ts";

const CLOCK_COMPARISONS_MAX = 15;
const REPLY_DURATION_MAX_MS = 10_000;
/** The `Date` header has whole seconds, rounded down (RFC 9110, 5.6.7); the middle of the second is the best guess. */
const DATE_HEADER_ROUNDING_MS = 500;

export type ClockSkew = ReturnType<typeof createClockSkew>;

interface ClockSkewOptions {
  readonly clock: Clock;
  readonly clockCheck: Pick<ClockCheck, "compareClocks" | "stepWakeup" | "recordServiceClock">;
  readonly source: string;
  readonly metrics: Pick<Metrics, "clockSkewSeconds">;
  readonly log: Pick<Log, "warn" | "info">;
}

/** Compares our clock with the service's `Date` headers, stored relative to the monotonic clock, which is never set. */
export function createClockSkew({ clock, clockCheck, source, metrics, log }: ClockSkewOptions) {
  const serviceOffsetsMs = createMovingMedian(CLOCK_COMPARISONS_MAX);
  let seenClockSteps = 0;
  let hasWarned = false;

  const clockAheadMs = (serviceOffsetMs: number) => Math.round(clock.now() - clock.monotonic() - serviceOffsetMs);

  function reportClockSkew(skewMs: number): void {
    metrics.clockSkewSeconds.set({ source }, skewMs / 1_000);
    const isSkewLarge = Math.abs(skewMs) > MAX_CLOCK_DIFFERENCE_MS;
    const seconds = Math.round(skewMs / 1_000);
    if (isSkewLarge && !hasWarned) log.warn({ seconds }, "our clock and the service's differ: set this machine's time");
    if (!isSkewLarge && hasWarned) log.info({ seconds }, "our clock and the service's agree again");
    hasWarned = isSkewLarge;
  }

  return {
    observeDate(date: string | undefined, requestStartMs: number): void {
      const serviceTimeMs = Date.parse(date ?? "");
      const replyDurationMs = clock.monotonic() - requestStartMs;
      if (Number.isNaN(serviceTimeMs) || replyDurationMs > REPLY_DURATION_MAX_MS) return;
      clockCheck.compareClocks();
      // The monotonic clock stands still while the machine is suspended, so earlier comparisons may be wrong.
      if (clockCheck.stepWakeup.wakeupCount() !== seenClockSteps) serviceOffsetsMs.clear();
      seenClockSteps = clockCheck.stepWakeup.wakeupCount();
      const serviceOffsetMs = serviceTimeMs + DATE_HEADER_ROUNDING_MS + replyDurationMs / 2 - clock.monotonic();
      clockCheck.recordServiceClock(source, clockAheadMs(serviceOffsetMs));
      serviceOffsetsMs.add(serviceOffsetMs);
      reportClockSkew(clockAheadMs(serviceOffsetsMs.median() ?? serviceOffsetMs));
    },
    /** Returns our clock minus the service's clock, accurate to half a second; null before the first reply. */
    skewMs(): number | null {
      const serviceOffsetMs = serviceOffsetsMs.median();
      return serviceOffsetMs === null ? null : clockAheadMs(serviceOffsetMs);
    },
  };
}

/** Returns a clock with the service's wall time. A clock that is days ahead would mark future history as fetched. */
export function createServiceClock(
  clock: Clock,
  skewMs: () => number | null,
  clockCheck: Pick<ClockCheck, "latestStep">,
): Clock {
  function clockAheadMs(): number {
    const clockDifferenceMs = skewMs() ?? clockCheck.latestStep()?.byMs ?? 0;
    return Math.abs(clockDifferenceMs) > MAX_CLOCK_DIFFERENCE_MS ? clockDifferenceMs : 0;
  }
  return { ...clock, now: () => clock.now() - clockAheadMs() };
}
