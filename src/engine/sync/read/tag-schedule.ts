import { assignGroupPhases, keepPositions, nominalReadMs } from "../plan/cadence.ts";
import { createPlannedTags, NEVER_READ_MS, type PlannedTags } from "../plan/next-read-group.ts";
import { backOffInterval, computeQuotaOverload, earliestAgeOfStretched, type QuotaOverload } from "../plan/overload.ts";
import { readingTimeOf, type StoredTagQuarantine, type StoredValue } from "../stored-documents.ts";
import { type TagIsolation, tagQuarantineMs } from "./bisection.ts";
import type { WatchedTag } from "./value-event.ts";

export interface TagScheduleContext {
  gatewayOffline(siteId: number): boolean;
  sees(siteId: number): boolean;
  anyIsolated(): boolean;
  isolationOf(id: string): TagIsolation | null;
  /** Wall time minus monotonic time. Planned times of tags are wall times, so that a restart does not change them. */
  wallOffsetMs(): number;
}

export interface StoredTagReads {
  readonly values: ReadonlyMap<string, StoredValue>;
  readonly quarantines: ReadonlyMap<string, StoredTagQuarantine>;
  readonly nowMs: number;
  toMonotonic(time: string): number;
}

export interface ReadClassFreshness {
  readonly name: string;
  readonly tags: number;
  readonly promisedMs: number;
  /** Greatest age of a value in the last minutes, or the wait for a late first value; null before the first value. */
  readonly achievedMs: number | null;
}

interface ScheduledTag {
  readonly id: string;
  row: number;
  watched: WatchedTag;
  lastMs: number | null;
  /** Time of the last first reading within an interval; the freshness of the read class counts from this time. */
  freshMs: number | null;
  /** Offset of the tag's planned times within its interval; null for a tag without fixed times. */
  phaseMs: number | null;
  readonly countedMs: number | null;
  readonly sinceMs: number;
  nulls: number;
  /** Time of the last counted null: several nulls within one interval count once. */
  nullAtMs: number;
  failures: number;
  retryMs: number;
  underWay: boolean;
  quarantinedUntilMs: number | null;
  gatewayWasOffline: boolean;
  /** True if the tag returned a value although its gateway is listed as offline. */
  answersOffline: boolean;
}

interface SiteState {
  readonly offline: boolean;
  readonly inSight: boolean;
}

/** Nulls in a row after which a tag no longer counts for the freshness of its read class. */
const NULLS_OF_SILENT_TAG_MIN = 3;
const FAILED_TAG_RETRY_WAIT_MS = 15_000;
/** Relative change of a slot's length below which the planned times of tags stay. */
const SLOT_CHANGE_MIN = 0.15;

export type TagSchedule = ReturnType<typeof createTagSchedule>;
export type ScheduledTagState = NonNullable<ReturnType<TagSchedule["known"]>>;

/** Keeps the last read and the interval of each tag in monotonic time. Rewrites only changed rows. */
export function createTagSchedule(context: TagScheduleContext) {
  let scheduledTags = new Map<string, ScheduledTag>();
  let quarantinedTagIds = new Set<string>();
  let stretchFactors: ReadonlyMap<string, number> = new Map();
  const siteRequestedMs = new Map<number, number>();
  /** Largest age at which a value was replaced, by read class, in this minute and in the minute before. */
  let replacedAgesMs = { now: new Map<string, number>(), before: new Map<string, number>() };
  let columns = createPlannedTags(0);
  let writtenSiteStates = { isCurrent: false, sites: new Map<number, SiteState>() as ReadonlyMap<number, SiteState> };
  const changedTags = new Set<ScheduledTag>();
  /** Tag ids by class: positions 0 to 19 are read together, then 20 to 39. */
  let orderByClass = new Map<string, readonly string[]>();
  const grid = {
    ...{ slotMs: 3_000, groupSize: 20, wallOffsetMs: 0, inputs: "" },
    ...{ isFirstRound: false, awaitedTags: 0, firstRoundEndMs: Number.NEGATIVE_INFINITY },
  };

  const readSiteState = (siteId: number): SiteState => ({
    offline: context.gatewayOffline(siteId),
    inSight: context.sees(siteId),
  });
  function createSiteStateCache() {
    const siteStates = new Map<number, SiteState>();
    const siteStateOf = (siteId: number) => {
      const site = siteStates.get(siteId) ?? readSiteState(siteId);
      siteStates.set(siteId, site);
      return site;
    };
    return { sites: siteStates, siteOf: siteStateOf };
  }
  const stretchedIntervalMsOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.every * (stretchFactors.get(readClass.name) ?? 1);
  const earliestAgeOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.fresher ? 0 : earliestAgeOfStretched(stretchFactors.get(readClass.name) ?? 1);
  const intervalMsOf = (tag: ScheduledTag, { offline }: SiteState) =>
    backOffInterval(stretchedIntervalMsOf(tag), tag.nulls, offline && !tag.answersOffline);
  const countsForFreshness = (tag: ScheduledTag, { inSight }: SiteState) =>
    tag.nulls < NULLS_OF_SILENT_TAG_MIN && tag.quarantinedUntilMs === null && inSight;

  function changeScheduledTags(ids: readonly string[], make: (tag: ScheduledTag) => void): void {
    for (const tag of ids.flatMap((id) => scheduledTags.get(id) ?? [])) {
      make(tag);
      changedTags.add(tag);
    }
  }

  function createScheduledTag(watched: WatchedTag, stored: StoredTagReads): ScheduledTag {
    const { id } = watched.tag;
    const storedValue = stored.values.get(id);
    const quarantine = stored.quarantines.get(id);
    // A stored time is in the future if the clock was set back later: count the value as read now.
    const storedReadMs = storedValue === undefined ? null : stored.toMonotonic(readingTimeOf(storedValue));
    const isStoredTimeAhead = storedReadMs !== null && storedReadMs > stored.nowMs;
    return {
      ...{ id, row: -1, watched, phaseMs: null },
      lastMs: isStoredTimeAhead ? null : storedReadMs,
      freshMs: isStoredTimeAhead ? null : storedReadMs,
      countedMs: isStoredTimeAhead ? stored.nowMs : null,
      ...{ sinceMs: stored.nowMs, nulls: storedValue?.nulls ?? 0, failures: 0 },
      ...{ nullAtMs: Number.NEGATIVE_INFINITY, retryMs: Number.NEGATIVE_INFINITY },
      // Older versions, which stored no count, could quarantine a readable tag: request the tag again.
      quarantinedUntilMs:
        quarantine?.times === undefined
          ? null
          : Math.min(stored.toMonotonic(quarantine.until), stored.nowMs + tagQuarantineMs(quarantine.times)),
      ...{ underWay: false, gatewayWasOffline: storedValue?.behindGateway !== undefined, answersOffline: false },
    };
  }

  /** Groups the tags of each class: new tags fill holes or come last, and the last tags fill the other holes. */
  function orderTags(): void {
    const tagsByClass = Map.groupBy(scheduledTags.values(), ({ watched }) => watched.readClass.name);
    orderByClass = new Map(
      [...tagsByClass].map(([name, tags]) => {
        const idsBefore = orderByClass.get(name) ?? [];
        const ids = new Set(tags.map(({ id }) => id));
        const newIds = ids.difference(new Set(idsBefore));
        return [name, keepPositions(idsBefore, (id) => ids.has(id), [...newIds])];
      }),
    );
    grid.inputs = "";
  }

  function assignTagPhases(): void {
    const cadenceClasses = [...orderByClass].flatMap(([name, ids]) => {
      const [first] = ids.flatMap((id) => scheduledTags.get(id) ?? []);
      if (first === undefined) return [];
      const intervalMs = stretchedIntervalMsOf(first);
      return [{ name, ids, hasGrid: !Number.isFinite(earliestAgeOf(first)), intervalMs, tags: ids.length }];
    });
    const inputs = JSON.stringify([grid.slotMs, cadenceClasses.map(({ ids: _, ...each }) => each)]);
    if (inputs === grid.inputs) return;
    grid.inputs = inputs;
    const fixedClasses = cadenceClasses.filter(({ hasGrid }) => hasGrid);
    const phases = assignGroupPhases(fixedClasses, grid.slotMs, grid.groupSize);
    for (const { name, ids } of cadenceClasses)
      for (const [position, id] of ids.entries()) {
        const tag = scheduledTags.get(id);
        if (tag !== undefined) tag.phaseMs = phases.get(name)?.[Math.floor(position / grid.groupSize)] ?? null;
      }
  }

  const nominalMsOf = ({ phaseMs }: ScheduledTag, readMs: number, intervalMs: number) =>
    phaseMs === null ? readMs : nominalReadMs(readMs, phaseMs - grid.wallOffsetMs, intervalMs, grid.slotMs);

  /**
   * Time from which the age of a tag counts. Until all tags have a value, the actual reading counts, which leaves more
   * slots to first values; a tag whose planned time passed meanwhile has the rest of its interval for the next reading.
   */
  function countedReadMs(tag: ScheduledTag, intervalMs: number): number {
    const readMs = tag.lastMs ?? tag.countedMs;
    if (readMs === null) return NEVER_READ_MS;
    const nominalMs = nominalMsOf(tag, readMs, intervalMs);
    return grid.isFirstRound || nominalMs + intervalMs <= grid.firstRoundEndMs ? readMs : nominalMs;
  }

  /** True if a reading is the first within its interval. Times are monotonic. */
  function startsInterval(tag: ScheduledTag, readMs: number, earlierMs: number): boolean {
    if (tag.phaseMs === null) return true;
    const intervalMs = intervalMsOf(tag, readSiteState(tag.watched.siteId));
    if (grid.isFirstRound && readMs - earlierMs >= intervalMs - grid.slotMs) return true;
    return nominalMsOf(tag, readMs, intervalMs) !== nominalMsOf(tag, earlierMs, intervalMs);
  }

  const awaitsFirstValue = (tag: ScheduledTag) => tag.lastMs === null && tag.countedMs === null && tag.failures === 0;

  function countAwaitedTags(siteOf: (siteId: number) => SiteState): number {
    const isAnyTagIsolated = context.anyIsolated();
    const isAwaited = (tag: ScheduledTag) =>
      awaitsFirstValue(tag) &&
      tag.quarantinedUntilMs === null &&
      siteOf(tag.watched.siteId).inSight &&
      !(isAnyTagIsolated && context.isolationOf(tag.id) !== null);
    return scheduledTags.values().reduce((count, tag) => count + (isAwaited(tag) ? 1 : 0), 0);
  }

  /** Writes all rows again when the last first value arrives or fails, because ages then count from nominal times. */
  function noteFirstReading(tag: ScheduledTag): void {
    if (!awaitsFirstValue(tag)) return;
    grid.awaitedTags -= 1;
    if (grid.awaitedTags <= 0) writtenSiteStates.isCurrent = false;
  }

  function writeScheduleRow(tag: ScheduledTag, site: SiteState, nowMs: number): void {
    const isGatewayOffline = site.offline && !tag.answersOffline;
    if (tag.gatewayWasOffline && !isGatewayOffline) tag.nulls = 0;
    tag.gatewayWasOffline = isGatewayOffline;
    const isRetryPending = tag.retryMs > nowMs;
    const intervalMs = intervalMsOf(tag, site);
    columns.intervalMs[tag.row] = intervalMs;
    columns.lastMs[tag.row] = countedReadMs(tag, intervalMs);
    columns.earliestAge[tag.row] = earliestAgeOf(tag);
    columns.sinceMs[tag.row] = tag.sinceMs;
    columns.underWay[tag.row] = tag.underWay || isRetryPending ? 1 : 0;
    if (isRetryPending) changedTags.add(tag);
    else changedTags.delete(tag);
  }

  function writeIsolationOfRow({ id, row, watched }: ScheduledTag, nowMs: number): void {
    const tagIsolation = context.isolationOf(id);
    if (tagIsolation === null) return;
    const { label, timing, notBeforeMs = NEVER_READ_MS } = tagIsolation;
    columns.isolated.set(row, { label, timing, siteRequestedMs: siteRequestedMs.get(watched.siteId) ?? NEVER_READ_MS });
    if (notBeforeMs > nowMs) columns.underWay[row] = 1;
  }

  function writeScheduleColumns(nowMs: number): void {
    if (columns.underWay.length < scheduledTags.size) columns = createPlannedTags(scheduledTags.size);
    columns.isolated.clear();
    changedTags.clear();
    const { sites, siteOf } = createSiteStateCache();
    const isAnyTagIsolated = context.anyIsolated();
    const wasFirstRound = grid.isFirstRound;
    grid.awaitedTags = countAwaitedTags(siteOf);
    grid.isFirstRound = grid.awaitedTags > 0;
    if (wasFirstRound && !grid.isFirstRound) grid.firstRoundEndMs = nowMs;
    let plannedTagCount = 0;
    for (const tag of scheduledTags.values()) {
      const site = siteOf(tag.watched.siteId);
      const isTagPlanned = tag.quarantinedUntilMs === null && site.inSight;
      tag.row = isTagPlanned ? plannedTagCount : -1;
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
      ([siteId, site]) => context.gatewayOffline(siteId) !== site.offline || context.sees(siteId) !== site.inSight,
    );

  return {
    watch(watchedTags: readonly WatchedTag[], stored: StoredTagReads): void {
      const nextTags = new Map<string, ScheduledTag>();
      for (const watched of watchedTags) {
        const tag = scheduledTags.get(watched.tag.id) ?? createScheduledTag(watched, stored);
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
    watched: (id: string) => scheduledTags.get(id)?.watched,
    size: () => scheduledTags.size,

    /** Returns the tags that may be read, without quarantined and invisible tags. Valid until the next call. */
    planned(nowMs: number): PlannedTags {
      const isAnyTagIsolated = context.anyIsolated() || columns.isolated.size > 0;
      if (!writtenSiteStates.isCurrent || isAnyTagIsolated || hasAnySiteChanged()) writeScheduleColumns(nowMs);
      else
        for (const tag of changedTags)
          if (tag.row >= 0) writeScheduleRow(tag, readSiteState(tag.watched.siteId), nowMs);
          else changedTags.delete(tag);
      return columns;
    },

    nextProbe(nowMs: number): string | undefined {
      return [...quarantinedTagIds].find((id) => {
        const tag = scheduledTags.get(id);
        if (tag === undefined || tag.underWay || tag.retryMs > nowMs || !context.sees(tag.watched.siteId)) return false;
        return tag.quarantinedUntilMs !== null && tag.quarantinedUntilMs <= nowMs;
      });
    },

    /** Returns a tag that was never refused singly, preferably not suspected and of another site than `tried`. */
    control(tried: readonly string[]): string | undefined {
      const triedSiteIds = new Set(tried.map((id) => scheduledTags.get(id)?.watched.siteId));
      const { siteOf } = createSiteStateCache();
      const [bestControl] = [...scheduledTags.values()]
        .filter(
          (tag) => !tag.underWay && !tried.includes(tag.id) && countsForFreshness(tag, siteOf(tag.watched.siteId)),
        )
        .flatMap(({ id, watched: { siteId }, lastMs }) => {
          const { isSuspect = false, notBeforeMs } = context.isolationOf(id) ?? {};
          if (lastMs === null || notBeforeMs !== undefined) return [];
          return [{ id, lastMs, rank: (triedSiteIds.has(siteId) ? 2 : 0) + (isSuspect ? 1 : 0) }];
        })
        .sort((a, b) => a.rank - b.rank || b.lastMs - a.lastMs);
      return bestControl?.id;
    },

    sent(ids: readonly string[], nowMs: number): void {
      changeScheduledTags(ids, (tag) => {
        tag.underWay = true;
        if (context.isolationOf(tag.id)?.timing === "patient") siteRequestedMs.set(tag.watched.siteId, nowMs);
      });
    },

    answered(id: string, answer: "value" | "null" | "absent", nowMs: number): void {
      changeScheduledTags([id], (tag) => {
        const { name } = tag.watched.readClass;
        const site = readSiteState(tag.watched.siteId);
        noteFirstReading(tag);
        if (tag.freshMs !== null && countsForFreshness(tag, site))
          replacedAgesMs.now.set(name, Math.max(replacedAgesMs.now.get(name) ?? 0, nowMs - tag.freshMs));
        const isExtra =
          tag.lastMs !== null && !tag.watched.readClass.on_change && !startsInterval(tag, nowMs, tag.lastMs);
        if (!isExtra) tag.freshMs = nowMs;
        tag.lastMs = nowMs;
        tag.answersOffline = answer === "value" && site.offline;
        if (answer === "value") tag.nulls = 0;
        else if (nowMs - tag.nullAtMs >= stretchedIntervalMsOf(tag) / 2) {
          tag.nulls += 1;
          tag.nullAtMs = nowMs;
        }
        tag.failures = 0;
        tag.retryMs = Number.NEGATIVE_INFINITY;
      });
    },

    /** Notes a failed request. Only the failure of a request for a single tag delays the next request for the tag. */
    failed(ids: readonly string[], nowMs: number): void {
      changeScheduledTags(ids, (tag) => {
        noteFirstReading(tag);
        const retryWaitMs = ids.length > 1 ? 0 : FAILED_TAG_RETRY_WAIT_MS * 2 ** Math.min(tag.failures, 10);
        tag.failures += 1;
        const intervalMs = intervalMsOf(tag, readSiteState(tag.watched.siteId));
        tag.retryMs = nowMs + Math.min(retryWaitMs, Math.max(FAILED_TAG_RETRY_WAIT_MS, intervalMs));
      });
    },

    returned(ids: readonly string[]): void {
      changeScheduledTags(ids, (tag) => (tag.underWay = false));
    },

    quarantine(id: string, untilMs: number): void {
      changeScheduledTags([id], (tag) => {
        tag.quarantinedUntilMs = untilMs;
        quarantinedTagIds.add(id);
        writtenSiteStates.isCurrent = false;
      });
    },
    release(id: string): void {
      changeScheduledTags([id], (tag) => {
        tag.quarantinedUntilMs = null;
        quarantinedTagIds.delete(id);
        writtenSiteStates.isCurrent = false;
      });
    },
    quarantined: (): readonly string[] => [...quarantinedTagIds],

    stretch(slotMs: number, size: number, share: number, replyMs: number): QuotaOverload {
      const counts = new Map<WatchedTag["readClass"], number>();
      const { siteOf } = createSiteStateCache();
      for (const tag of scheduledTags.values()) {
        const site = siteOf(tag.watched.siteId);
        if (tag.quarantinedUntilMs !== null || !site.inSight) continue;
        const { readClass } = tag.watched;
        counts.set(readClass, (counts.get(readClass) ?? 0) + stretchedIntervalMsOf(tag) / intervalMsOf(tag, site));
      }
      const readClassDemands = [...counts].map(([each, tags]) => ({ ...each, tags, everyMs: each.every }));
      const overload = computeQuotaOverload(readClassDemands, slotMs, size, share, replyMs, stretchFactors);
      stretchFactors = overload.factors;
      grid.groupSize = size;
      grid.wallOffsetMs = context.wallOffsetMs();
      if (Math.abs(slotMs / grid.slotMs - 1) > SLOT_CHANGE_MIN) grid.slotMs = 60_000 / Math.round(60_000 / slotMs);
      assignTagPhases();
      writtenSiteStates.isCurrent = false;
      return overload;
    },

    /** True if no reading was emitted yet for the planned time to which a reading at this wall time belongs. */
    isNewInterval(id: string, readAtMs: number, emittedAtMs: number): boolean {
      const tag = scheduledTags.get(id);
      return tag === undefined || startsInterval(tag, readAtMs - grid.wallOffsetMs, emittedAtMs - grid.wallOffsetMs);
    },

    freshness(nowMs: number): readonly ReadClassFreshness[] {
      const classStates = new Map<string, { -readonly [key in keyof ReadClassFreshness]: ReadClassFreshness[key] }>();
      const { siteOf } = createSiteStateCache();
      for (const tag of scheduledTags.values()) {
        const { name } = tag.watched.readClass;
        const promisedMs = stretchedIntervalMsOf(tag);
        const classFreshness = classStates.get(name) ?? { name, tags: 0, promisedMs, achievedMs: null };
        classStates.set(name, classFreshness);
        classFreshness.tags += 1;
        classFreshness.promisedMs = promisedMs;
        if (!countsForFreshness(tag, siteOf(tag.watched.siteId))) continue;
        const replacedValueAgeMs = Math.max(replacedAgesMs.now.get(name) ?? 0, replacedAgesMs.before.get(name) ?? 0);
        const firstValueWaitMs = nowMs - tag.sinceMs;
        // The age of a tag without a value counts only when the first value is late.
        const lateFirstValueMs = firstValueWaitMs > promisedMs ? firstValueWaitMs : null;
        const valueAgeMs = tag.freshMs === null ? lateFirstValueMs : Math.max(nowMs - tag.freshMs, replacedValueAgeMs);
        if (valueAgeMs !== null) classFreshness.achievedMs = Math.max(valueAgeMs, classFreshness.achievedMs ?? 0);
      }
      return [...classStates.values()];
    },

    startMinute(): void {
      replacedAgesMs = { now: new Map(), before: replacedAgesMs.now };
    },

    known(id: string) {
      const tag = scheduledTags.get(id);
      if (tag === undefined) return undefined;
      const { watched, lastMs, nulls, underWay, quarantinedUntilMs } = tag;
      const site = readSiteState(watched.siteId);
      return {
        ...{ watched, lastMs, nulls, underWay, quarantinedUntilMs, inSight: site.inSight },
        countedMs: lastMs === null ? tag.countedMs : null,
        gatewayOffline: site.offline && !tag.answersOffline,
        configuredMs: watched.readClass.every,
        stretchedMs: stretchedIntervalMsOf(tag),
        intervalMs: intervalMsOf(tag, site),
      };
    },
  };
}
