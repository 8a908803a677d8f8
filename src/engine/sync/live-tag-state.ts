import type { Clock } from "../../core/runtime/clock.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { ActiveAlarmCounts } from "./alarms/stored-alarms.ts";
import type { PollTime } from "./job.ts";
import type { LiveReads } from "./read/live-reads.ts";

export type { FirstInventoryReport } from "./first-inventory-progress.ts";
export type { PollTime } from "./job.ts";
export type { SuddenValueChange as SuddenChange } from "./read/unusual-replies.ts";

export interface SourceCounts {
  readonly activeAlarms: ActiveAlarmCounts;
  readonly siteIds: readonly number[];
  readonly tagsWithoutValue: { readonly unreadable: number; readonly unanswered: number } | null;
  /** Last successful poll since the worker's start, by job; for `live` the last reply that had a value. */
  readonly lastPolls: ReadonlyMap<string, PollTime>;
  /** Monotonic time of the most recent page of a first inventory; null without a page since the start. */
  readonly inventoryPageMs: number | null;
}

/** State of one tag in the live reads. Durations are seconds, times UTC. */
export type LiveTagState = NonNullable<ReturnType<typeof describeLiveTag>>;

export type TagReadClass = NonNullable<ReturnType<typeof findTagReadClass>>;

export function findTagReadClass(live: Pick<LiveReads, "known">, id: string) {
  const knownTag = live.known(id);
  if (knownTag === undefined) return null;
  return { className: knownTag.watched.readClass.name, promisedMs: knownTag.stretchedMs };
}

export function describeLiveTag(liveReads: LiveReads, id: string, clock: Clock) {
  const knownTag = liveReads.known(id);
  if (knownTag === undefined) return null;
  const { readClass } = knownTag.watched;
  const formatWallTime = (monotonicMs: number) => isoUtc(clock.now() + monotonicMs - clock.monotonic());
  const { configuredMs, stretchedMs, intervalMs, lastMs, countedMs, quarantinedUntilMs } = knownTag;
  const isTagQuarantined = quarantinedUntilMs !== null;
  const fromMs = lastMs ?? countedMs;
  const nextReadMs = isTagQuarantined ? quarantinedUntilMs : fromMs === null ? clock.monotonic() : fromMs + intervalMs;
  const isTagSilent = !knownTag.gatewayOffline && intervalMs > stretchedMs;
  const silenceText = knownTag.leftOut === undefined ? "answered nothing" : "had no usable value";
  const isTagUnread = fromMs === null && !isTagQuarantined && knownTag.isVisible;
  const intervalReasons = [
    `Class ${readClass.name} has the interval ${formatDuration(configuredMs)}.`,
    stretchedMs > configuredMs &&
      `The intervals exceed the quota, so the class is stretched by ${(stretchedMs / configuredMs).toFixed(2)}.`,
    knownTag.gatewayOffline && "Its gateway is offline: it is read a tenth as often.",
    knownTag.leftOut !== undefined &&
      `The replies have had no usable value of it since ${knownTag.leftOut.since}. ${knownTag.leftOut.reason}`,
    isTagSilent && `It ${silenceText} ${knownTag.nulls} times in a row, so it is read less often.`,
    !knownTag.isVisible && "The token does not see its site, so it is not read.",
    isTagQuarantined && "It was refused alone twice, so it is left out and asked alone at that time.",
    knownTag.isolation !== null && describeIsolation(knownTag.isolation),
    countedMs !== null &&
      "The clock was set back after it was read, so the time of the reading is unknown; its age counts from the start of the worker.",
    isTagUnread && "It was not read since it is known; it takes the next place.",
    knownTag.underWay && "It is on its way now.",
  ].filter((reason) => reason !== false);
  return {
    className: readClass.name,
    targetSeconds: configuredMs / 1_000,
    /** The read interval is the target interval times the overload factor, plus the back-off of a failing tag. */
    everySeconds: Math.round(intervalMs / 100) / 10,
    lastAt: lastMs === null ? null : formatWallTime(lastMs),
    dueAt: knownTag.underWay || !knownTag.isVisible ? null : formatWallTime(nextReadMs),
    reasons: intervalReasons,
  };
}

function describeIsolation(label: string): string {
  return label.startsWith("single ")
    ? "Its value was unreadable in a reply of several tags, so it is requested singly for some time."
    : "Its requests were slow or refused, so it travels apart from the others until that is cleared up.";
}
