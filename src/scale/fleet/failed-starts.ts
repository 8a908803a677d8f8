import { sentence } from "../../core/errors/errors.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";

/**
 * Sources that this member could not start. It leaves them to others for a growing time, and tries again when no other member can
 * start them either.
 */
export interface FailedStarts {
  failed(source: string, error: unknown): void;
  worked(source: string): void;
  /** Sources left to others now, sorted. */
  sources(): readonly string[];
  /** Milliseconds until one is tried again; infinite when there is none. */
  nextMs(): number;
  /** A sentence about each, for a person. */
  notices(): readonly string[];
}

const BACKOFF = { firstMs: 10_000, maxMs: 300_000 };

interface Attempt {
  readonly failed: number;
  readonly untilMs: number;
  readonly reason: string;
}

export function createFailedStarts(clock: Clock, random: () => number = Math.random): FailedStarts {
  const attempts = new Map<string, Attempt>();
  const current = () => [...attempts].filter(([, { untilMs }]) => untilMs > clock.monotonic());
  return {
    failed(source, error) {
      const failed = (attempts.get(source)?.failed ?? 0) + 1;
      const untilMs = clock.monotonic() + backoffMs(BACKOFF, failed, random);
      attempts.set(source, { failed, untilMs, reason: sentence(error) });
    },
    worked: (source) => void attempts.delete(source),
    sources: () =>
      current()
        .map(([source]) => source)
        .toSorted(),
    nextMs: () =>
      Math.min(Number.POSITIVE_INFINITY, ...current().map(([, { untilMs }]) => untilMs - clock.monotonic())),
    notices: () =>
      current().map(
        ([source, { reason }]) =>
          `The source ${source} could not be started here, and is left to other members: ${reason}`,
      ),
  };
}
