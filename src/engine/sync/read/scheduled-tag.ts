import { readingTimeOf, type StoredTagQuarantine, type StoredValue } from "../stored-documents.ts";
import { tagQuarantineMs } from "./refused-tag-search.ts";
import type { WatchedTag } from "./value-event.ts";

export interface StoredTagReads {
  readonly values: ReadonlyMap<string, StoredValue>;
  readonly quarantines: ReadonlyMap<string, StoredTagQuarantine>;
  readonly nowMs: number;
  toMonotonic(time: string): number;
}

/** A tag of the schedule: its last reading, its planned times and why it may be read later. Times are monotonic. */
export interface ScheduledTag {
  readonly id: string;
  rowIndex: number;
  watched: WatchedTag;
  lastReadMs: number | null;
  /** Time of the latest reading that was the first within its interval; freshness counts from this time. */
  intervalFirstReadMs: number | null;
  /** Offset of the tag's planned times within its interval; null for a tag without fixed times. */
  phaseMs: number | null;
  readonly assumedReadMs: number | null;
  readonly scheduledSinceMs: number;
  nullCount: number;
  /** Time of the last counted null: several nulls within one interval count once. */
  lastNullMs: number;
  failureCount: number;
  retryAtMs: number;
  isRequestUnderWay: boolean;
  quarantinedUntilMs: number | null;
  wasGatewayOffline: boolean;
  /** True if the tag returned a value although its gateway is listed as offline. */
  repliesWhileOffline: boolean;
}

/** Creates a tag of the schedule from its stored value and quarantine. */
export function createScheduledTag(watched: WatchedTag, storedReads: StoredTagReads): ScheduledTag {
  const { id } = watched.tag;
  const storedValue = storedReads.values.get(id);
  const quarantine = storedReads.quarantines.get(id);
  // The stored time is in the future if the clock was set back after the reading: count the value as read now.
  const storedReadMs = storedValue === undefined ? null : storedReads.toMonotonic(readingTimeOf(storedValue));
  const isStoredTimeAhead = storedReadMs !== null && storedReadMs > storedReads.nowMs;
  return {
    ...{ id, rowIndex: -1, watched, phaseMs: null },
    lastReadMs: isStoredTimeAhead ? null : storedReadMs,
    intervalFirstReadMs: isStoredTimeAhead ? null : storedReadMs,
    assumedReadMs: isStoredTimeAhead ? storedReads.nowMs : null,
    ...{ scheduledSinceMs: storedReads.nowMs, nullCount: storedValue?.nulls ?? 0, failureCount: 0 },
    ...{ lastNullMs: Number.NEGATIVE_INFINITY, retryAtMs: Number.NEGATIVE_INFINITY },
    // Older versions of Plenum, which stored no count, could quarantine a readable tag: request it again.
    quarantinedUntilMs:
      quarantine?.times === undefined
        ? null
        : Math.min(storedReads.toMonotonic(quarantine.until), storedReads.nowMs + tagQuarantineMs(quarantine.times)),
    isRequestUnderWay: false,
    wasGatewayOffline: storedValue?.behindGateway !== undefined,
    repliesWhileOffline: false,
  };
}
