import type { ConnectorContext } from "../../src/core/connector.ts";
import type { TooOld } from "./store-lines.ts";

/**
 * Counts the points that the server left out because its bucket keeps nothing that old, and says so: at the first
 * one, and then once an hour while more come. One by one they would fill the log and the dead letters of a backfill,
 * and writing them again could not help.
 */
export interface TooOldPoints {
  add(answer: TooOld): void;
}

/** How often it is said that there were more, in milliseconds. */
const SAY_EVERY_MS = 3_600_000;

export function countTooOld(context: ConnectorContext): TooOldPoints {
  let unsaid = 0;
  let total = 0;
  let saidAtMs: number | null = null;
  return {
    add({ points, reason }) {
      unsaid += points;
      total += points;
      const nowMs = context.clock.monotonic();
      if (saidAtMs !== null && nowMs - saidAtMs < SAY_EVERY_MS) return;
      context.log.warn(
        { points: unsaid, total, answer: reason },
        "the server keeps nothing as old as these points, and leaves them out; shorten backfill or keep longer there",
      );
      unsaid = 0;
      saidAtMs = nowMs;
    },
  };
}
