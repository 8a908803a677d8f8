import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";

/** How long the whole service is left alone after a 503. */
export interface Maintenance {
  /** A 503 arrived. Milliseconds to wait: as told, or a growing, jittered while when nobody said. */
  seen(toldMs: number | null): number;
  /** The service answered again. */
  over(): void;
}

/** 30 s at first, so that a short restart is hardly noticed; at most 15 min, so that the end of a long one is. */
const BACKOFF = { firstMs: 30_000, maxMs: 900_000 };

export function createMaintenance(options: {
  readonly clock: Clock;
  readonly random: () => number;
}): Maintenance {
  const { clock, random } = options;
  let attempts = 0;
  let untilMs = Number.NEGATIVE_INFINITY;

  return {
    seen(toldMs) {
      const nowMs = clock.monotonic();
      // Requests that were under way together bring one maintenance several times.
      if (nowMs >= untilMs) attempts++;
      const waitMs = toldMs ?? Math.max(backoffMs(BACKOFF, Math.max(1, attempts), random), untilMs - nowMs);
      untilMs = Math.max(untilMs, nowMs + waitMs);
      return waitMs;
    },
    over() {
      attempts = 0;
    },
  };
}
