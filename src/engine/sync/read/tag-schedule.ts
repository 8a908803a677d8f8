import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { assignGroupPhases, keepPositions, plannedReadMs } from "../plan/cadence.ts";
import { createPlannedTags, NEVER_READ_MS, type PlannedTags } from "../plan/next-read-group.ts";
import { backOffInterval, computeQuotaOverload, earliestStretchedReadAge } from "../plan/overload.ts";
import type { TagIsolation } from "./refused-tag-search.ts";
import { createScheduledTag, type ScheduledTag, type StoredTagReads } from "./scheduled-tag.ts";
import type { WatchedTag } from "./value-event.ts";

export interface TagScheduleContext {
  isGatewayOffline(siteId: number): boolean;
  canSeeSite(siteId: number): boolean;
  hasIsolatedTags(): boolean;
  isolationOf(id: string): TagIsolation | null;
  /** Wall time minus monotonic time. Planned times of tags are wall times, so that a restart does not change them. */
  wallOffsetMs(): number;
}

export interface ReadClassFreshness {
  readonly name: string;
  readonly tags: number;
  readonly promisedMs: number;
  /** Greatest age of a value in the last minutes, or the wait for a late first value; null before the first value. */
  readonly achievedMs: number | null;
}

interface SiteState {
  readonly isGatewayOffline: boolean;
  readonly isVisible: boolean;
}

/** Nulls in a row after which a tag no longer counts for the freshness of its read class. */
const NULLS_OF_SILENT_TAG_MIN = 3;
const FAILED_TAG_RETRY_WAIT_MS = 15_000;
/** Relative change of a slot's length below which the planned times of tags stay. */
const SLOT_CHANGE_MIN = 0.15;

export type TagSchedule = ReturnType<typeof createTagSchedule>;
/** Stores the last reading and the interval of each tag, in monotonic time. Rewrites only the rows of changed tags. */
export function createTagSchedule(context: TagScheduleContext) {
  let scheduledTags = new Map<string, ScheduledTag>();
  let quarantinedTagIds = new Set<string>();
  let overloadFactors: ReadonlyMap<string, number> = new Map();
  const siteRequestedMs = new Map<number, number>();
  /** Largest age in ms at which a newer value replaced a value, by read class: in this minute and in the last one. */
  let replacedAgesMs = { now: new Map<string, number>(), before: new Map<string, number>() };
  let columns = createPlannedTags(0);
  let writtenSiteStates = { isCurrent: false, sites: new Map<number, SiteState>() as ReadonlyMap<number, SiteState> };
  const changedTags = new Set<ScheduledTag>();
  /** Tag ids by class: positions 0 to 19 are read together, then 20 to 39. */
  let tagIdsByClass = new Map<string, readonly string[]>();
  const grid = {
    ...{ slotMs: 3_000, wallOffsetMs: 0, phaseInputs: "" },
    ...{ isFirstRound: false, awaitedTagCount: 0, firstRoundEndMs: Number.NEGATIVE_INFINITY },
  };

  const readSiteState = (siteId: number): SiteState => ({
    isGatewayOffline: context.isGatewayOffline(siteId),
    isVisible: context.canSeeSite(siteId),
  });
  function createSiteStateCache() {
    const siteStates = new Map<number, SiteState>();
    const siteStateOf = (siteId: number) => {
      const site = siteStates.get(siteId) ?? readSiteState(siteId);
      siteStates.set(siteId, site);
      return site;
    };
    return { sites: siteStates, siteStateOf };
  }
  const stretchedIntervalMsOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.every * (overloadFactors.get(readClass.name) ?? 1);
  const earliestAgeOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.fresher ? 0 : earliestStretchedReadAge(overloadFactors.get(readClass.name) ?? 1);
  const intervalMsOf = (tag: ScheduledTag, { isGatewayOffline }: SiteState) =>
    backOffInterval(stretchedIntervalMsOf(tag), tag.nullCount, isGatewayOffline && !tag.repliesWhileOffline);
  const countsForFreshness = (tag: ScheduledTag, { isVisible }: SiteState) =>
    tag.nullCount < NULLS_OF_SILENT_TAG_MIN && tag.quarantinedUntilMs === null && isVisible;

  function changeScheduledTags(ids: readonly string[], changeTag: (tag: ScheduledTag) => void): void {
    for (const tag of ids.flatMap((id) => scheduledTags.get(id) ?? [])) {
      changeTag(tag);
      changedTags.add(tag);
    }
  }

  /** Assigns the tags of each class to positions: new tags, then the last tags, take the positions of removed tags. */
  function orderTags(): void {
    const tagsByClass = Map.groupBy(scheduledTags.values(), ({ watched }) => watched.readClass.name);
    tagIdsByClass = new Map(
      [...tagsByClass].map(([name, tags]) => {
        const idsBefore = tagIdsByClass.get(name) ?? [];
        const ids = new Set(tags.map(({ id }) => id));
        const newIds = ids.difference(new Set(idsBefore));
        return [name, keepPositions(idsBefore, (id) => ids.has(id), [...newIds])];
      }),
    );
    grid.phaseInputs = "";
  }

  function assignTagPhases(): void {
    const cadenceClasses = [...tagIdsByClass].flatMap(([name, ids]) => {
      const [firstTag] = ids.flatMap((id) => scheduledTags.get(id) ?? []);
      if (firstTag === undefined) return [];
      const intervalMs = stretchedIntervalMsOf(firstTag);
      return [{ name, ids, hasFixedTimes: !Number.isFinite(earliestAgeOf(firstTag)), intervalMs, tags: ids.length }];
    });
    const phaseInputs = JSON.stringify([grid.slotMs, cadenceClasses.map(({ ids: _, ...classInputs }) => classInputs)]);
    if (phaseInputs === grid.phaseInputs) return;
    grid.phaseInputs = phaseInputs;
    const fixedClasses = cadenceClasses.filter(({ hasFixedTimes }) => hasFixedTimes);
    const phases = assignGroupPhases(fixedClasses, grid.slotMs, TAGS_PER_REQUEST);
    for (const { name, ids } of cadenceClasses)
      for (const [position, id] of ids.entries()) {
        const tag = scheduledTags.get(id);
        if (tag !== undefined) tag.phaseMs = phases.get(name)?.[Math.floor(position / TAGS_PER_REQUEST)] ?? null;
      }
  }

  const plannedReadMsOf = ({ phaseMs }: ScheduledTag, readMs: number, intervalMs: number) =>
    phaseMs === null ? readMs : plannedReadMs(readMs, phaseMs - grid.wallOffsetMs, intervalMs, grid.slotMs);

  /**
   * Time from which the age of a tag counts: the planned time of its last reading. Until all tags have a first value,
   * it is the actual time of the reading, which leaves more slots to first values.
   */
  function ageStartMsOf(tag: ScheduledTag, intervalMs: number): number {
    const readMs = tag.lastReadMs ?? tag.assumedReadMs;
    if (readMs === null) return NEVER_READ_MS;
    const plannedMs = plannedReadMsOf(tag, readMs, intervalMs);
    return grid.isFirstRound || plannedMs + intervalMs <= grid.firstRoundEndMs ? readMs : plannedMs;
  }

  /** True if a reading is the first within its interval. Times are monotonic. */
  function startsInterval(tag: ScheduledTag, readMs: number, earlierMs: number): boolean {
    if (tag.phaseMs === null) return true;
    const intervalMs = intervalMsOf(tag, readSiteState(tag.watched.siteId));
    if (grid.isFirstRound && readMs - earlierMs >= intervalMs - grid.slotMs) return true;
    return plannedReadMsOf(tag, readMs, intervalMs) !== plannedReadMsOf(tag, earlierMs, intervalMs);
  }

  const awaitsFirstValue = (tag: ScheduledTag) =>
    tag.lastReadMs === null && tag.assumedReadMs === null && tag.failureCount === 0;

  function countAwaitedTags(getSiteState: (siteId: number) => SiteState): number {
    const isAnyTagIsolated = context.hasIsolatedTags();
    const isAwaited = (tag: ScheduledTag) =>
      awaitsFirstValue(tag) &&
      tag.quarantinedUntilMs === null &&
      getSiteState(tag.watched.siteId).isVisible &&
      !(isAnyTagIsolated && context.isolationOf(tag.id) !== null);
    return scheduledTags.values().reduce((count, tag) => count + (isAwaited(tag) ? 1 : 0), 0);
  }

  /** Rewrites all rows when the last tag without a value is read or fails: ages then count from planned times. */
  function noteFirstReading(tag: ScheduledTag): void {
    if (!awaitsFirstValue(tag)) return;
    grid.awaitedTagCount -= 1;
    if (grid.awaitedTagCount <= 0) writtenSiteStates.isCurrent = false;
  }

  function writeScheduleRow(tag: ScheduledTag, site: SiteState, nowMs: number): void {
    const isGatewayOffline = site.isGatewayOffline && !tag.repliesWhileOffline;
    if (tag.wasGatewayOffline && !isGatewayOffline) tag.nullCount = 0;
    tag.wasGatewayOffline = isGatewayOffline;
    const isRetryPending = tag.retryAtMs > nowMs;
    const intervalMs = intervalMsOf(tag, site);
    columns.intervalMs[tag.rowIndex] = intervalMs;
    columns.ageStartMs[tag.rowIndex] = ageStartMsOf(tag, intervalMs);
    columns.earliestReadAge[tag.rowIndex] = earliestAgeOf(tag);
    columns.scheduledSinceMs[tag.rowIndex] = tag.scheduledSinceMs;
    columns.isUnderWay[tag.rowIndex] = tag.isRequestUnderWay || isRetryPending ? 1 : 0;
    if (isRetryPending) changedTags.add(tag);
    else changedTags.delete(tag);
  }

  function writeIsolationOfRow({ id, rowIndex, watched }: ScheduledTag, nowMs: number): void {
    const tagIsolation = context.isolationOf(id);
    if (tagIsolation === null) return;
    const { label, timing, notBeforeMs = NEVER_READ_MS } = tagIsolation;
    const requestedMs = siteRequestedMs.get(watched.siteId) ?? NEVER_READ_MS;
    columns.isolated.set(rowIndex, { label, timing, siteRequestedMs: requestedMs });
    if (notBeforeMs > nowMs) columns.isUnderWay[rowIndex] = 1;
  }

  function writeScheduleColumns(nowMs: number): void {
    if (columns.isUnderWay.length < scheduledTags.size) columns = createPlannedTags(scheduledTags.size);
    columns.isolated.clear();
    changedTags.clear();
    const { sites, siteStateOf } = createSiteStateCache();
    const isAnyTagIsolated = context.hasIsolatedTags();
    const wasFirstRound = grid.isFirstRound;
    grid.awaitedTagCount = countAwaitedTags(siteStateOf);
    grid.isFirstRound = grid.awaitedTagCount > 0;
    if (wasFirstRound && !grid.isFirstRound) grid.firstRoundEndMs = nowMs;
    let plannedTagCount = 0;
    for (const tag of scheduledTags.values()) {
      const site = siteStateOf(tag.watched.siteId);
      const isTagPlanned = tag.quarantinedUntilMs === null && site.isVisible;
      tag.rowIndex = isTagPlanned ? plannedTagCount : -1;
      if (!isTagPlanned) continue;
      columns.ids[plannedTagCount] = tag.id;
      writeScheduleRow(tag, site, nowMs);
      if (isAnyTagIsolated) writeIsolationOfRow(tag, nowMs);
      plannedTagCount += 1;
    }
    columns.ids.length = plannedTagCount;
    columns.count = plannedTagCount;
    writtenSiteStates = { isCurrent: true, sites };
  }

  const hasAnySiteChanged = () =>
    [...writtenSiteStates.sites].some(
      ([siteId, site]) =>
        context.isGatewayOffline(siteId) !== site.isGatewayOffline || context.canSeeSite(siteId) !== site.isVisible,
    );

  return {
    setWatchedTags(watchedTags: readonly WatchedTag[], storedReads: StoredTagReads): void {
      const nextTags = new Map<string, ScheduledTag>();
      for (const watched of watchedTags) {
        const tag = scheduledTags.get(watched.tag.id) ?? createScheduledTag(watched, storedReads);
        tag.watched = watched;
        nextTags.set(tag.id, tag);
      }
      scheduledTags = nextTags;
      grid.wallOffsetMs = context.wallOffsetMs();
      orderTags();
      assignTagPhases();
      const quarantinedTags = [...scheduledTags.values()].filter((tag) => tag.quarantinedUntilMs !== null);
      quarantinedTagIds = new Set(quarantinedTags.map(({ id }) => id));
      writtenSiteStates.isCurrent = false;
    },
    watchedTag: (id: string) => scheduledTags.get(id)?.watched,
    size: () => scheduledTags.size,

    /** Returns the tags that may be read, without quarantined and invisible tags. Valid until the next call. */
    planTags(nowMs: number): PlannedTags {
      const isAnyTagIsolated = context.hasIsolatedTags() || columns.isolated.size > 0;
      if (!writtenSiteStates.isCurrent || isAnyTagIsolated || hasAnySiteChanged()) writeScheduleColumns(nowMs);
      else
        for (const tag of changedTags)
          if (tag.rowIndex >= 0) writeScheduleRow(tag, readSiteState(tag.watched.siteId), nowMs);
          else changedTags.delete(tag);
      return columns;
    },

    nextQuarantineRetry(nowMs: number): string | undefined {
      const isRetryDue = (tag: ScheduledTag) =>
        !tag.isRequestUnderWay &&
        tag.retryAtMs <= nowMs &&
        (tag.quarantinedUntilMs ?? Number.POSITIVE_INFINITY) <= nowMs &&
        context.canSeeSite(tag.watched.siteId);
      return [...quarantinedTagIds].flatMap((id) => scheduledTags.get(id) ?? []).find(isRetryDue)?.id;
    },

    /** Returns a tag that was never refused singly, preferably not suspected and of another site than `triedTagIds`. */
    pickControlTag(triedTagIds: readonly string[]): string | undefined {
      const triedSiteIds = new Set(triedTagIds.map((id) => scheduledTags.get(id)?.watched.siteId));
      const { siteStateOf } = createSiteStateCache();
      const [bestControlTag] = [...scheduledTags.values()]
        .flatMap((tag) => {
          const { id, watched, lastReadMs, isRequestUnderWay } = tag;
          if (isRequestUnderWay || triedTagIds.includes(id)) return [];
          if (!countsForFreshness(tag, siteStateOf(watched.siteId))) return [];
          const { isSuspect = false, notBeforeMs } = context.isolationOf(id) ?? {};
          if (lastReadMs === null || notBeforeMs !== undefined) return [];
          return [{ id, lastMs: lastReadMs, rank: (triedSiteIds.has(watched.siteId) ? 2 : 0) + (isSuspect ? 1 : 0) }];
        })
        .sort((a, b) => a.rank - b.rank || b.lastMs - a.lastMs);
      return bestControlTag?.id;
    },

    requestSent(ids: readonly string[], nowMs: number): void {
      changeScheduledTags(ids, (tag) => {
        tag.isRequestUnderWay = true;
        if (context.isolationOf(tag.id)?.timing === "patient") siteRequestedMs.set(tag.watched.siteId, nowMs);
      });
    },

    recordReading(id: string, outcome: "value" | "null" | "absent", nowMs: number): void {
      changeScheduledTags([id], (tag) => {
        const { name } = tag.watched.readClass;
        const site = readSiteState(tag.watched.siteId);
        noteFirstReading(tag);
        if (tag.intervalFirstReadMs !== null && countsForFreshness(tag, site))
          replacedAgesMs.now.set(name, Math.max(replacedAgesMs.now.get(name) ?? 0, nowMs - tag.intervalFirstReadMs));
        const isExtraReading =
          tag.lastReadMs !== null && !tag.watched.readClass.on_change && !startsInterval(tag, nowMs, tag.lastReadMs);
        if (!isExtraReading) tag.intervalFirstReadMs = nowMs;
        tag.lastReadMs = nowMs;
        tag.repliesWhileOffline = outcome === "value" && site.isGatewayOffline;
        if (outcome === "value") tag.nullCount = 0;
        else if (nowMs - tag.lastNullMs >= stretchedIntervalMsOf(tag) / 2) {
          tag.nullCount += 1;
          tag.lastNullMs = nowMs;
        }
        tag.failureCount = 0;
        tag.retryAtMs = Number.NEGATIVE_INFINITY;
      });
    },

    /** Records a failed request. Only a failed request for a single tag delays the next request for this tag. */
    requestFailed(ids: readonly string[], nowMs: number): void {
      changeScheduledTags(ids, (tag) => {
        noteFirstReading(tag);
        const retryWaitMs = ids.length > 1 ? 0 : FAILED_TAG_RETRY_WAIT_MS * 2 ** Math.min(tag.failureCount, 10);
        tag.failureCount += 1;
        const intervalMs = intervalMsOf(tag, readSiteState(tag.watched.siteId));
        tag.retryAtMs = nowMs + Math.min(retryWaitMs, Math.max(FAILED_TAG_RETRY_WAIT_MS, intervalMs));
      });
    },

    requestEnded(ids: readonly string[]): void {
      changeScheduledTags(ids, (tag) => (tag.isRequestUnderWay = false));
    },

    /** Sets the time until which the tag is quarantined; null ends its quarantine. */
    setQuarantine(id: string, untilMs: number | null): void {
      changeScheduledTags([id], (tag) => {
        tag.quarantinedUntilMs = untilMs;
        if (untilMs === null) quarantinedTagIds.delete(id);
        else quarantinedTagIds.add(id);
        writtenSiteStates.isCurrent = false;
      });
    },
    quarantinedIds: (): readonly string[] => [...quarantinedTagIds],

    updateOverloadFactors(slotMs: number, quotaShare: number, replyMs: number) {
      const counts = new Map<WatchedTag["readClass"], number>();
      const { siteStateOf } = createSiteStateCache();
      for (const tag of scheduledTags.values()) {
        const site = siteStateOf(tag.watched.siteId);
        if (tag.quarantinedUntilMs !== null || !site.isVisible) continue;
        const { readClass } = tag.watched;
        counts.set(readClass, (counts.get(readClass) ?? 0) + stretchedIntervalMsOf(tag) / intervalMsOf(tag, site));
      }
      const demands = [...counts].map(([readClass, tags]) => ({ ...readClass, tags, everyMs: readClass.every }));
      const overload = computeQuotaOverload(demands, slotMs, TAGS_PER_REQUEST, quotaShare, replyMs, overloadFactors);
      overloadFactors = overload.factors;
      grid.wallOffsetMs = context.wallOffsetMs();
      if (Math.abs(slotMs / grid.slotMs - 1) > SLOT_CHANGE_MIN) grid.slotMs = 60_000 / Math.round(60_000 / slotMs);
      assignTagPhases();
      writtenSiteStates.isCurrent = false;
      return overload;
    },

    /** True if a reading has another planned time than the last emitted reading. Both times are wall times. */
    isNewInterval(id: string, readAtMs: number, emittedAtMs: number): boolean {
      const tag = scheduledTags.get(id);
      return tag === undefined || startsInterval(tag, readAtMs - grid.wallOffsetMs, emittedAtMs - grid.wallOffsetMs);
    },

    freshness(nowMs: number): readonly ReadClassFreshness[] {
      const classStates = new Map<string, { -readonly [key in keyof ReadClassFreshness]: ReadClassFreshness[key] }>();
      const { siteStateOf } = createSiteStateCache();
      for (const tag of scheduledTags.values()) {
        const { name } = tag.watched.readClass;
        const promisedMs = stretchedIntervalMsOf(tag);
        const classFreshness = classStates.get(name) ?? { name, tags: 0, promisedMs, achievedMs: null };
        classStates.set(name, classFreshness);
        classFreshness.tags += 1;
        classFreshness.promisedMs = promisedMs;
        if (!countsForFreshness(tag, siteStateOf(tag.watched.siteId))) continue;
        const replacedAgeMs = Math.max(replacedAgesMs.now.get(name) ?? 0, replacedAgesMs.before.get(name) ?? 0);
        const ageMs = nowMs - (tag.intervalFirstReadMs ?? tag.scheduledSinceMs);
        // The age of a tag without a value counts only when the first value is late.
        if (tag.intervalFirstReadMs === null && ageMs <= promisedMs) continue;
        const shownAgeMs = tag.intervalFirstReadMs === null ? ageMs : Math.max(ageMs, replacedAgeMs);
        classFreshness.achievedMs = Math.max(shownAgeMs, classFreshness.achievedMs ?? 0);
      }
      return [...classStates.values()];
    },

    startFreshnessMinute(): void {
      replacedAgesMs = { now: new Map(), before: replacedAgesMs.now };
    },

    tagState(id: string) {
      const tag = scheduledTags.get(id);
      if (tag === undefined) return undefined;
      const { watched, lastReadMs, nullCount, isRequestUnderWay, quarantinedUntilMs } = tag;
      const site = readSiteState(watched.siteId);
      return {
        watched,
        lastMs: lastReadMs,
        nulls: nullCount,
        underWay: isRequestUnderWay,
        quarantinedUntilMs,
        isVisible: site.isVisible,
        countedMs: lastReadMs === null ? tag.assumedReadMs : null,
        gatewayOffline: site.isGatewayOffline && !tag.repliesWhileOffline,
        configuredMs: watched.readClass.every,
        stretchedMs: stretchedIntervalMsOf(tag),
        intervalMs: intervalMsOf(tag, site),
      };
    },
  };
}
