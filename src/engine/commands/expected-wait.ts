import type { Clock } from "../../core/runtime/clock.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";

const MINUTE_MS = 60_000;

/**
 * How long the quota would make a write wait that came now, behind so many others: an upper bound in milliseconds.
 * A write goes before every poll, so what a poll would have to wait is enough for the first request.
 */
export function waitOf(source: Source, waiting: number, clock: Clock): number {
  const { buckets, heldUntilMs } = source.quota();
  const left = (untilMs: number | null) => (untilMs === null ? 0 : untilMs - clock.now());
  const requestsBefore = Math.floor(waiting / TAGS_PER_REQUEST);
  const waits = buckets.map((allowance) => {
    const free = allowance.perMinute - allowance.used;
    const slot = free > 0 ? 0 : allowance.nextSlotInMs;
    const others = Math.max(0, requestsBefore - Math.max(0, free - 1)) * (MINUTE_MS / allowance.perMinute);
    return Math.max(left(allowance.heldUntilMs), slot) + others;
  });
  return Math.max(0, left(heldUntilMs), ...waits);
}
