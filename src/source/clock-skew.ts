import type { Clock } from "../clock.ts";

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

export function createClockSkew(clock: Clock, changed: (skewMs: number) => void): ClockSkew {
  const seen: number[] = [];
  const ms = () => seen.toSorted((a, b) => a - b)[Math.floor((seen.length - 1) / 2)] ?? null;
  return {
    observe(date, startedMs) {
      const theirsMs = Date.parse(date ?? "");
      const tookMs = clock.monotonic() - startedMs;
      if (Number.isNaN(theirsMs) || tookMs > LONGEST_REPLY_MS) return;
      seen.push(Math.round(clock.now() - tookMs / 2 - theirsMs - HALF_A_SECOND_MS));
      if (seen.length > REMEMBERED) seen.shift();
      changed(ms() ?? 0);
    },
    ms,
  };
}

/** From here on a difference of the clocks is told, in milliseconds; commands are refused from here on, too. */
export const SKEW_TOLD_MS = 30_000;

/** Tells once when the clocks begin to differ, and once when they agree again. */
export function skewTeller(tell: (skewMs: number, differs: boolean) => void): (skewMs: number) => void {
  let differed = false;
  return (skewMs) => {
    const differs = Math.abs(skewMs) > SKEW_TOLD_MS;
    if (differs !== differed) tell(skewMs, differs);
    differed = differs;
  };
}
