import type { Clock } from "../../core/runtime/clock.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { ActiveCounts } from "./alarms/active-counts.ts";
import type { PollTime } from "./job.ts";
import type { LiveReads } from "./read/live-reads.ts";

export type { FirstInventoryReport } from "./first-inventory.ts";
export type { PollTime } from "./job.ts";
export type { SuddenChange } from "./read/unusual-replies.ts";

/**
 * Counts that a running worker changes with each commit, so that `/readyz` and `/metrics` read no tag, value or alarm: a building of
 * 50,000 tags takes 0.3 s to read.
 */
export interface SourceCounts {
  readonly activeAlarms: ActiveCounts;
  readonly siteIds: readonly number[];
  /** Tags without a usable value in the replies; null before the first reply. */
  readonly leftOut: { readonly unreadable: number; readonly unanswered: number } | null;
  /** Last successful polls since the start by job; of `live` the last reply that had a value. */
  readonly lastPolls: ReadonlyMap<string, PollTime>;
  /** When the last page of a first inventory came, monotonic milliseconds; null where there was none since the start. */
  readonly inventoryPageMs: number | null;
}

/** State of one tag in the live reads. Durations are seconds, times UTC. */
export interface LiveTag {
  readonly className: string;
  readonly wishedSeconds: number;
  /** Current interval: the target interval, times the overload factor, plus back-off of a failing tag. */
  readonly everySeconds: number;
  readonly lastAt: string | null;
  /** When it is due; null while it is on its way. It may go earlier, when a request has a place left. */
  readonly dueAt: string | null;
  /** Why it is read when it is, a sentence each. */
  readonly reasons: readonly string[];
}

/** How a tag is read, in a word, for who looks at all of them. */
export interface TagReading {
  readonly className: string;
  /** How old its value may become by the present plan, milliseconds. */
  readonly promisedMs: number;
}

/** Null when no class of live reads has the tag. */
export function readingOf(live: Pick<LiveReads, "known">, id: string): TagReading | null {
  const known = live.known(id);
  if (known === undefined) return null;
  return { className: known.watched.readClass.name, promisedMs: known.stretchedMs };
}

/** Null when no class of live reads has the tag. */
export function liveTag(live: LiveReads, id: string, clock: Clock): LiveTag | null {
  const known = live.known(id);
  if (known === undefined) return null;
  const { readClass } = known.watched;
  const wallOf = (monotonicMs: number) => isoUtc(clock.now() + monotonicMs - clock.monotonic());
  const { wishedMs, stretchedMs, intervalMs, lastMs, countedMs, quarantinedUntilMs } = known;
  const isAside = quarantinedUntilMs !== null;
  const fromMs = lastMs ?? countedMs;
  const dueMs = isAside ? quarantinedUntilMs : fromMs === null ? clock.monotonic() : fromMs + intervalMs;
  const reasons = [
    `Class ${readClass.name} wants its values to be at most ${formatDuration(wishedMs)} old.`,
    ...(stretchedMs > wishedMs
      ? [`The wishes exceed the quota, so that class is stretched by ${(stretchedMs / wishedMs).toFixed(2)}.`]
      : []),
    ...(known.gatewayOffline ? ["Its gateway is offline: it is read a tenth as often."] : []),
    ...(known.leftOut === undefined
      ? []
      : [`The replies have had no usable value of it since ${known.leftOut.since}. ${known.leftOut.reason}`]),
    ...(!known.gatewayOffline && intervalMs > stretchedMs
      ? [
          `It ${known.leftOut === undefined ? "answered nothing" : "had no usable value"} ${known.nulls} times in a row, so it is read less often.`,
        ]
      : []),
    ...(known.inSight ? [] : ["The token does not see its site, so it is not read."]),
    ...(isAside ? ["It was refused alone twice, so it is left out and asked alone at that time."] : []),
    ...(known.isolation === null ? [] : [isolationReason(known.isolation)]),
    ...(countedMs === null
      ? []
      : ["The clock was set back since it was read, so nobody knows when that was; it counts from the start."]),
    ...(fromMs === null && !isAside && known.inSight
      ? ["It was not read since it is known; it takes the next place."]
      : []),
    ...(known.underWay ? ["It is on its way now."] : []),
  ];
  return {
    className: readClass.name,
    wishedSeconds: wishedMs / 1_000,
    everySeconds: Math.round(intervalMs / 100) / 10,
    lastAt: lastMs === null ? null : wallOf(lastMs),
    dueAt: known.underWay || !known.inSight ? null : wallOf(dueMs),
    reasons,
  };
}

function isolationReason(label: string): string {
  return label.startsWith("single ")
    ? "Its value was unreadable in a reply of several tags, so it is requested singly for some time."
    : "Its requests were slow or refused, so it travels apart from the others until that is cleared up.";
}
