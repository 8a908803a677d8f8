import type { Clock } from "../../src/core/runtime/clock.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** A change of wall against measured time that is a step, as everywhere (src/core/runtime/clock-check.ts). */
const STEP_MS = 2_000;

/**
 * When files are removed that have been out of their table for a week: an hour after the start, and then once a day, all
 * of it measured. That they have been out for so long is a matter of wall time, so nothing is removed in the hour after
 * somebody has set the clock; a machine without a clock of its own has found out the time by then.
 */
export function createVacuumTime(clock: Clock) {
  const offset = () => clock.now() - clock.monotonic();
  let lastOffset = offset();
  let trustedFrom = clock.monotonic() + HOUR_MS;
  let due = clock.monotonic() + HOUR_MS;

  function isTrusted(): boolean {
    const now = offset();
    if (Math.abs(now - lastOffset) > STEP_MS) trustedFrom = clock.monotonic() + HOUR_MS;
    lastOffset = now;
    return clock.monotonic() >= trustedFrom;
  }

  return {
    isTrusted,
    /** True once a day. To be asked every few seconds, so that no step of the clock goes unnoticed. */
    isDue(): boolean {
      if (!isTrusted() || clock.monotonic() < due) return false;
      due = clock.monotonic() + DAY_MS;
      return true;
    },
  };
}
