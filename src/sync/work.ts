import { type Clock, isoUtc } from "../clock.ts";
import { formatDuration } from "../duration.ts";
import type { LiveReads } from "./read/live-reads.ts";

/** Where one tag stands in the live reads of a running worker. Durations are seconds, times UTC. */
export interface LiveTag {
  readonly className: string;
  readonly wishedSeconds: number;
  /** What is kept now: the wish, stretched by the plan and backed off where the tag keeps failing. */
  readonly everySeconds: number;
  readonly lastAt: string | null;
  /** When it is due; null while it is on its way. It may go earlier, when a request has a place left. */
  readonly dueAt: string | null;
  /** Why it is read when it is, a sentence each. */
  readonly reasons: readonly string[];
}

/** Null when no class of live reads has the tag. */
export function liveTag(live: LiveReads, id: string, clock: Clock): LiveTag | null {
  const known = live.known(id);
  if (known === undefined) return null;
  const { readClass } = known.watched;
  const wallOf = (monotonicMs: number) => isoUtc(clock.now() + monotonicMs - clock.monotonic());
  const { wishedMs, stretchedMs, intervalMs, lastMs, quarantinedUntilMs } = known;
  const inQuarantine = quarantinedUntilMs !== null;
  const dueMs = inQuarantine ? quarantinedUntilMs : lastMs === null ? clock.monotonic() : lastMs + intervalMs;
  const reasons = [
    `Class ${readClass.name} wants its values to be at most ${formatDuration(wishedMs)} old.`,
    ...(stretchedMs > wishedMs
      ? [`The wishes exceed the quota, so that class is stretched by ${(stretchedMs / wishedMs).toFixed(2)}.`]
      : []),
    ...(known.gatewayOffline ? ["Its gateway is offline: it is only probed."] : []),
    ...(!known.gatewayOffline && intervalMs > stretchedMs
      ? [`It answered nothing ${known.troubles} times in a row, so it is read less often.`]
      : []),
    ...(inQuarantine
      ? ["It made its whole request fail, so it is left out and asked alone once a day."]
      : []),
    ...(known.apart === null ? [] : ["Its requests were slow, so it travels apart from the others."]),
    ...(lastMs === null && !inQuarantine
      ? ["It was not read since it is known; it takes the next place."]
      : []),
    ...(known.underWay ? ["It is on its way now."] : []),
  ];
  return {
    className: readClass.name,
    wishedSeconds: wishedMs / 1_000,
    everySeconds: Math.round(intervalMs / 100) / 10,
    lastAt: lastMs === null ? null : wallOf(lastMs),
    dueAt: known.underWay ? null : wallOf(dueMs),
    reasons,
  };
}
