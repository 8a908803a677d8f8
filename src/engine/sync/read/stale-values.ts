import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import { STALE_REASONS, type StaleReason, type TagValueQuality } from "../../../core/model/tag-event-data.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { combineWakeups, createWakeup, runLoop, yieldIfManyObjects } from "../../../core/runtime/waiting.ts";
import type { SiteTag } from "../inventory/requestable-tags.ts";
import type { UnreadableReason, UnreadableSites } from "../site-availability.ts";
import { lastEmittedOf, lastGoodOf, readingTimeOf, type StoredValue } from "../stored-documents.ts";
import type { TokenScope } from "../token-scope.ts";
import type { StoredTagReads } from "./scheduled-tag.ts";
import type { TagSchedule } from "./tag-schedule.ts";

/** A value that is no longer confirmed by a reading, with the reason. */
export interface StaleTag {
  readonly siteTag: SiteTag;
  readonly reason: StaleReason;
}

/** Stores stale values and emits their events in one transaction. Returns the stored reasons by tag id. */
export type CommitStaleValues = (
  ids: readonly string[],
  findStaleTag: (id: string) => StaleTag | null,
) => Promise<ReadonlyMap<string, StaleReason>>;

export interface StaleValueOptions {
  readonly source: string;
  readonly schedule: Pick<TagSchedule, "tagState" | "watchedTag">;
  readonly scope: Pick<TokenScope, "hasAbility" | "changes">;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  readonly metrics: Pick<Metrics, "tagsStale">;
  /** Time between two requests, in milliseconds. */
  readonly slotMs: () => number;
  readonly isServiceDown: () => boolean;
  /** True if a read of the tag failed, was refused, left out the tag or got no reply since the last outage. */
  readonly isUnanswered: (id: string) => boolean;
  /** Forgets the failed reads of tags that cannot be read for another reason, such as a lost site. */
  readonly forgetFailuresOf: (isAffected: (id: string) => boolean) => void;
  /** Selects the tags and their intervals; called before the first check and after a change of the read classes. */
  readonly refresh: () => Promise<unknown>;
  readonly commit: CommitStaleValues;
}

interface TrackedValue {
  /** Monotonic time of the last reading that was good or uncertain; null after a bad one. */
  readMs: number | null;
  dueTimeBucket: number;
}

const READ_TAGS_ABILITY = "read:tags";
/** Width of a bucket of due times: a value becomes stale up to one second after its due time. */
const DUE_BUCKET_MS = 1_000;
/** Request slots by which a reading may be late: 1.7 were measured while a backfill used every slot. */
const LATE_SLOTS_MAX = 2;
/** A stored value that is `uncertain`, or over a minute in the future, has an unknown age and is stale at the start. */
const CLOCK_CORRECTION_MAX_MS = 60_000;
const STALE_VALUES_PER_COMMIT = 250;

export type StaleValues = ReturnType<typeof createStaleValues>;

/**
 * Emits a `stale` value for each tag whose good value was not read again within its interval plus two request slots.
 * Emits it at once when the token loses the tag's site or the permission `read:tags`, and again with a new reason.
 * A bucket lists the tags that are due in one second. When it is due, tags that were read meanwhile move to later ones.
 */
export function createStaleValues(options: StaleValueOptions) {
  const { source, schedule, scope, clock, log, metrics } = options;
  let trackedValues = new Map<string, TrackedValue>();
  let staleReasons = new Map<string, StaleReason>();
  /** Tags that have a stored value, but that no read class selects. */
  let unscheduledTags = new Map<string, SiteTag>();
  const dueBuckets = new Map<number, string[]>();
  const overdueIds = new Set<string>();
  let nextBucket = bucketAt(clock.monotonic());
  let promisedMsOfBuckets: ReadonlyMap<string, number> = new Map();
  let areBucketsComplete = false;
  /** False after a change of the selected tags or of the token's scope, and after a failed read. */
  let areReasonsChecked = false;
  let wakeUpBucket = 0;
  /** `count`: changes of the read classes until now. `appliedCount`: changes that the selected tags already include. */
  const classChanges = { count: 1, appliedCount: 0 };
  const dueTimesChanged = createWakeup();
  let unreadableSites: UnreadableSites | null = null;
  const unreadableSitesChanged = createWakeup();

  function dueMsOf(id: string, readMs: number, slotMs = options.slotMs()): number {
    const tag = schedule.tagState(id);
    return tag === undefined ? readMs : readMs + tag.stretchedMs + LATE_SLOTS_MAX * slotMs;
  }

  function putIntoBucket(id: string, trackedValue: TrackedValue, readMs: number, slotMs?: number): void {
    trackedValue.dueTimeBucket = Math.max(nextBucket, Math.ceil(dueMsOf(id, readMs, slotMs) / DUE_BUCKET_MS));
    const bucketIds = dueBuckets.get(trackedValue.dueTimeBucket);
    if (bucketIds === undefined) dueBuckets.set(trackedValue.dueTimeBucket, [id]);
    else bucketIds.push(id);
    if (trackedValue.dueTimeBucket < wakeUpBucket) dueTimesChanged.wakeUp();
  }

  /** Reason why the tag cannot be read, which makes its value stale at once; null while it may be read. */
  function findNoAccessReason(id: string): StaleReason | null {
    const tag = schedule.tagState(id);
    if (tag === undefined) return "not-scheduled";
    if (!tag.isVisible) return "out-of-scope";
    return scope.hasAbility(READ_TAGS_ABILITY) ? null : "no-ability";
  }

  function reasonOfOldValue(id: string): StaleReason {
    const tag = schedule.tagState(id);
    if (tag !== undefined && tag.quarantinedUntilMs !== null) return "quarantined";
    if (tag?.gatewayOffline === true) return "gateway-offline";
    return options.isServiceDown() || options.isUnanswered(id) ? "source-unavailable" : "not-scheduled";
  }

  function findStaleTag(id: string): StaleTag | null {
    const storedReason = staleReasons.get(id);
    const readMs = trackedValues.get(id)?.readMs ?? null;
    const siteTag = schedule.watchedTag(id) ?? unscheduledTags.get(id);
    if ((readMs === null && storedReason === undefined) || siteTag === undefined) return null;
    const noAccessReason = findNoAccessReason(id);
    if (noAccessReason === null && readMs !== null && dueMsOf(id, readMs) > clock.monotonic()) return null;
    const reason = noAccessReason ?? reasonOfOldValue(id);
    // While a tag waits for its next read, the former reason stays.
    const isUnchanged = reason === storedReason || (noAccessReason === null && reason === "not-scheduled");
    return storedReason !== undefined && isUnchanged ? null : { siteTag, reason };
  }

  /** Moves the tags of due buckets to `overdueIds`, or to a later bucket if they were read meanwhile. */
  function drainDueBuckets(): void {
    const nowMs = clock.monotonic();
    const dueIds: string[] = [];
    for (; nextBucket <= bucketAt(nowMs) && dueBuckets.size > 0; nextBucket += 1) {
      const bucketIds = dueBuckets.get(nextBucket) ?? [];
      dueIds.push(...bucketIds.filter((id) => trackedValues.get(id)?.dueTimeBucket === nextBucket));
      dueBuckets.delete(nextBucket);
    }
    nextBucket = Math.max(nextBucket, bucketAt(nowMs) + 1);
    const slotMs = options.slotMs();
    for (const id of dueIds) {
      const trackedValue = trackedValues.get(id);
      if (trackedValue === undefined || trackedValue.readMs === null) trackedValues.delete(id);
      else if (dueMsOf(id, trackedValue.readMs, slotMs) <= nowMs) overdueIds.add(id);
      else putIntoBucket(id, trackedValue, trackedValue.readMs, slotMs);
    }
  }

  function msUntilNextBucket(): number {
    if (dueBuckets.size === 0) return Number.POSITIVE_INFINITY;
    let bucket = nextBucket;
    while (!dueBuckets.has(bucket)) bucket += 1;
    return bucket * DUE_BUCKET_MS - clock.monotonic();
  }

  async function checkStaleReasons(): Promise<void> {
    await yieldIfManyObjects(trackedValues.size + staleReasons.size);
    options.forgetFailuresOf((id) => findNoAccessReason(id) !== null);
    for (const [id, { readMs }] of trackedValues)
      if (readMs !== null && findNoAccessReason(id) !== null) overdueIds.add(id);
    for (const id of staleReasons.keys()) if (findStaleTag(id) !== null) overdueIds.add(id);
    if (staleReasons.size > 0) setUnreadableSites(findUnreadableSites());
  }

  async function commitStaleBatch(ids: readonly string[]): Promise<void> {
    const storedReasons = await options.commit(ids, findStaleTag);
    for (const id of ids) {
      overdueIds.delete(id);
      const reason = storedReasons.get(id);
      const trackedValue = trackedValues.get(id);
      if (reason !== undefined) {
        trackedValues.delete(id);
        staleReasons.set(id, reason);
      } else if (trackedValue !== undefined && trackedValue.readMs !== null && findStaleTag(id) === null)
        // The tag was read while its batch waited for the transaction.
        putIntoBucket(id, trackedValue, trackedValue.readMs);
      else trackedValues.delete(id);
    }
  }

  async function emitStaleValues(): Promise<number> {
    wakeUpBucket = 0;
    if (!areReasonsChecked) {
      areReasonsChecked = true;
      await checkStaleReasons();
    }
    drainDueBuckets();
    if (overdueIds.size > 0) {
      const ids = [...overdueIds];
      const batches = Array.from({ length: Math.ceil(ids.length / STALE_VALUES_PER_COMMIT) }, (_, batchIndex) =>
        ids.slice(batchIndex * STALE_VALUES_PER_COMMIT, (batchIndex + 1) * STALE_VALUES_PER_COMMIT),
      );
      const outcomes = await Promise.allSettled(batches.map((batchIds) => commitStaleBatch(batchIds)));
      setStaleMetrics();
      setUnreadableSites(findUnreadableSites());
      const failedOutcome = outcomes.find((outcome) => outcome.status === "rejected");
      if (failedOutcome !== undefined) throw failedOutcome.reason;
    }
    const dueInMs = msUntilNextBucket();
    wakeUpBucket = bucketAt(clock.monotonic() + dueInMs);
    return Math.max(0, dueInMs);
  }

  function setStaleMetrics(): void {
    const countsByReason = new Map<StaleReason, number>();
    for (const reason of staleReasons.values()) countsByReason.set(reason, (countsByReason.get(reason) ?? 0) + 1);
    for (const reason of STALE_REASONS) metrics.tagsStale.set({ source, reason }, countsByReason.get(reason) ?? 0);
  }

  const siteIdOf = (id: string) => (schedule.watchedTag(id) ?? unscheduledTags.get(id))?.siteId ?? Number.NaN;

  function findUnreadableSites(): UnreadableSites {
    const reasons = new Map<number, UnreadableReason | null>();
    for (const [id, reason] of staleReasons)
      if (reason === "no-ability" || (reason === "source-unavailable" && options.isUnanswered(id)))
        reasons.set(siteIdOf(id), reason);
      else if (reason === "source-unavailable" && !reasons.has(siteIdOf(id))) reasons.set(siteIdOf(id), null);
    if (reasons.size > 0) for (const id of trackedValues.keys()) reasons.delete(siteIdOf(id));
    return reasons;
  }

  function setUnreadableSites(sites: UnreadableSites): void {
    unreadableSites = sites;
    unreadableSitesChanged.wakeUp();
  }

  function rebuildDueBuckets(): void {
    areBucketsComplete = true;
    dueBuckets.clear();
    const slotMs = options.slotMs();
    for (const [id, trackedValue] of trackedValues)
      if (trackedValue.readMs === null) trackedValues.delete(id);
      else if (!overdueIds.has(id)) putIntoBucket(id, trackedValue, trackedValue.readMs, slotMs);
  }

  return {
    unreadableSites: () => unreadableSites,
    unreadableSitesChanged,
    /** Replaces the tracked tags after a change of the schedule. `tags`: the complete inventory. */
    setTags(tags: readonly SiteTag[], storedReads: StoredTagReads): void {
      const nextTrackedValues: typeof trackedValues = new Map();
      const nextStaleReasons: typeof staleReasons = new Map();
      const nextUnscheduledTags: typeof unscheduledTags = new Map();
      for (const siteTag of tags) {
        const { id } = siteTag.tag;
        const storedValue = storedReads.values.get(id);
        if (storedValue === undefined) continue;
        if (schedule.watchedTag(id) === undefined) nextUnscheduledTags.set(id, siteTag);
        const trackedValue = trackedValues.get(id);
        const staleReason = staleReasons.get(id) ?? (trackedValue === undefined ? storedValue.staleReason : undefined);
        if (trackedValue !== undefined) nextTrackedValues.set(id, trackedValue);
        else if (staleReason !== undefined) nextStaleReasons.set(id, staleReason);
        else if (isUsable(storedValue.quality)) {
          const emitsOnlyChanges = schedule.watchedTag(id)?.readClass.on_change === true;
          const emittedTime = emitsOnlyChanges ? undefined : lastEmittedOf(storedValue)?.time;
          const storedMs = storedReads.toMonotonic(emittedTime ?? readingTimeOf(storedValue));
          const isAgeUnknown =
            storedValue.quality === "uncertain" || storedMs > storedReads.nowMs + CLOCK_CORRECTION_MAX_MS;
          const readMs = isAgeUnknown ? Number.NEGATIVE_INFINITY : Math.min(storedReads.nowMs, storedMs);
          nextTrackedValues.set(id, { readMs, dueTimeBucket: -1 });
        }
      }
      trackedValues = nextTrackedValues;
      staleReasons = nextStaleReasons;
      unscheduledTags = nextUnscheduledTags;
      areBucketsComplete = false;
      areReasonsChecked = false;
      setStaleMetrics();
      setUnreadableSites(findUnreadableSites());
    },
    /** Requests a new selection of the tags, also while Plenum reads no values. */
    classesChanged(): void {
      classChanges.count += 1;
      dueTimesChanged.wakeUp();
    },
    /** Corrects the reasons of stale values after a failed read or the start of an outage. */
    readsFailed(): void {
      areReasonsChecked &&= staleReasons.size === 0;
      dueTimesChanged.wakeUp();
    },
    /** Adapts due times after `setTags` or changed intervals. `promisedMsByClass`: interval plus one slot. */
    intervalsChanged(promisedMsByClass: ReadonlyMap<string, number>): void {
      const isAnyShorter = promisedMsByClass.entries().some(([name, ms]) => ms < (promisedMsOfBuckets.get(name) ?? ms));
      promisedMsOfBuckets = promisedMsByClass;
      if (isAnyShorter || !areBucketsComplete) rebuildDueBuckets();
      dueTimesChanged.wakeUp();
    },
    readingCommitted(id: string, quality: TagValueQuality, readMs: number): void {
      const reason = staleReasons.get(id);
      if (reason !== undefined) {
        staleReasons.delete(id);
        metrics.tagsStale.dec({ source, reason });
        if (unreadableSites?.has(siteIdOf(id)))
          setUnreadableSites(new Map([...unreadableSites].filter(([siteId]) => siteId !== siteIdOf(id))));
      }
      const trackedValue = trackedValues.get(id);
      if (!isUsable(quality)) {
        if (trackedValue !== undefined) trackedValue.readMs = null;
      } else if (trackedValue !== undefined) trackedValue.readMs = readMs;
      else {
        const newlyTracked = { readMs, dueTimeBucket: -1 };
        trackedValues.set(id, newlyTracked);
        putIntoBucket(id, newlyTracked, readMs);
      }
    },
    async watchStaleValues(signal: AbortSignal): Promise<void> {
      let seenScopeWakeups = scope.changes.wakeupCount();
      await runLoop({
        clock,
        signal,
        wakeup: combineWakeups(dueTimesChanged, scope.changes),
        async step() {
          if (classChanges.appliedCount < classChanges.count) {
            const { count: changeCount } = classChanges;
            await options.refresh();
            classChanges.appliedCount = changeCount;
          }
          if (scope.changes.wakeupCount() !== seenScopeWakeups) areReasonsChecked = false;
          seenScopeWakeups = scope.changes.wakeupCount();
          return emitStaleValues();
        },
        onFault: (error, inMs) => log.warn({ err: error, inMs }, "stale values could not be stored; Plenum retries"),
      });
    },
  };
}

const isUsable = (quality: TagValueQuality) => quality === "good" || quality === "uncertain";

function bucketAt(monotonicMs: number): number {
  return Math.floor(monotonicMs / DUE_BUCKET_MS);
}

/** Builds the event that a value is no longer confirmed, and the document that replaces the value. */
export function buildStaleValueEvent(
  { tag, siteId }: SiteTag,
  storedBefore: StoredValue,
  reason: StaleReason,
  { source, time, behindGateway }: { source: string; time: string; behindGateway: string | null },
): { readonly stored: StoredValue; readonly event: Event<"tag-value"> } {
  const lastGood = lastGoodOf(storedBefore);
  const staleReading = { value: null, quality: "stale", time, lastGood, staleReason: reason } as const;
  const data = { tag, ...staleReading, latencyMs: 0, behindGateway };
  const eventFields = { source: sourceUri(source), subject: eventSubject("tag", siteId, tag.id), time, siteId };
  return {
    stored: {
      ...staleReading,
      ...(storedBefore.typeDoubt !== undefined && { typeDoubt: storedBefore.typeDoubt }),
      told: "this",
      ...(behindGateway !== null && { behindGateway }),
    },
    event: makeEvent({ type: "tag-value", ...eventFields, data, facts: ["stale"] }),
  };
}
