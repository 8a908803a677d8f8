import { type IsolatedTag, NEVER_READ_MS, type PlannedTags } from "../plan/group.ts";
import { backOffInterval, computeQuotaOverload, type QuotaOverload } from "../plan/overload.ts";
import type { StoredTagQuarantine, StoredValue } from "../snapshot.ts";
import { quarantineMs, type TagIsolation } from "./bisection.ts";
import type { WatchedTag } from "./value-event.ts";

export interface ScheduleContext {
  gatewayOffline(siteId: number): boolean;
  sees(siteId: number): boolean;
  /** True if any tag is isolated; usually false, which saves a query for each of 50,000 tags. */
  anyIsolated(): boolean;
  isolationOf(id: string): TagIsolation | null;
}

export interface StoredReads {
  readonly values: ReadonlyMap<string, StoredValue>;
  readonly quarantines: ReadonlyMap<string, StoredTagQuarantine>;
  readonly nowMs: number;
  /** Converts a wall time; the result is far from now if the wall clock was stepped. */
  toMonotonic(time: string): number;
}

export interface ClassFreshness {
  readonly name: string;
  readonly tags: number;
  readonly promisedMs: number;
  /** Greatest recent age of a value, or the wait of a late first value; null while no value was read. */
  readonly achievedMs: number | null;
}

interface ScheduledTag {
  readonly id: string;
  row: number;
  watched: WatchedTag;
  lastMs: number | null;
  readonly countedMs: number | null;
  readonly sinceMs: number;
  nulls: number;
  /** Time of the last counted null; spare slots may bring several nulls within one interval. */
  nullAtMs: number;
  failures: number;
  retryMs: number;
  underWay: boolean;
  quarantinedUntilMs: number | null;
  gatewayWasOffline: boolean;
  /** True after a value although the list of gateways, which may be old, says offline. */
  answersOffline: boolean;
}

interface SiteState {
  readonly offline: boolean;
  readonly inSight: boolean;
}

type ScheduleColumns = { count: number } & Omit<PlannedTags, "count" | "ids" | "isolated"> & {
    readonly ids: string[];
    readonly isolated: Map<number, IsolatedTag>;
  };

/** Nulls in a row from which a tag no longer counts for the freshness of its class. */
const SILENT_NULLS_MIN = 3;
const RETRY_WAIT_MS = 15_000;

export type TagSchedule = ReturnType<typeof createTagSchedule>;
export type TagState = NonNullable<ReturnType<TagSchedule["known"]>>;

/** Stores reads and intervals of tags in monotonic time. Only changed rows are rewritten: all 50,000 take 1 ms. */
export function createTagSchedule(context: ScheduleContext) {
  let tags = new Map<string, ScheduledTag>();
  let quarantined = new Set<string>();
  let factors: ReadonlyMap<string, number> = new Map();
  const siteRequestedMs = new Map<number, number>();
  /** Largest age at which a value was replaced, by class, in this minute and the one before. */
  let replacedAgesMs = { now: new Map<string, number>(), before: new Map<string, number>() };
  let columns = createColumns(0);
  let writtenState = { isCurrent: false, sites: new Map<number, SiteState>() as ReadonlyMap<number, SiteState> };
  const changedTags = new Set<ScheduledTag>();

  const siteStateOf = (siteId: number): SiteState => ({
    offline: context.gatewayOffline(siteId),
    inSight: context.sees(siteId),
  });
  function createSiteCache() {
    const sites = new Map<number, SiteState>();
    const siteOf = (siteId: number) => {
      const site = sites.get(siteId) ?? siteStateOf(siteId);
      sites.set(siteId, site);
      return site;
    };
    return { sites, siteOf };
  }
  const stretchedIntervalMsOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.every * (factors.get(readClass.name) ?? 1);
  const intervalMsOf = (tag: ScheduledTag, { offline }: SiteState) =>
    backOffInterval(stretchedIntervalMsOf(tag), tag.nulls, offline && !tag.answersOffline);
  const countsForFreshness = (tag: ScheduledTag, { inSight }: SiteState) =>
    tag.nulls < SILENT_NULLS_MIN && tag.quarantinedUntilMs === null && inSight;

  function changeTags(ids: readonly string[], make: (tag: ScheduledTag) => void): void {
    for (const tag of ids.flatMap((id) => tags.get(id) ?? [])) {
      make(tag);
      changedTags.add(tag);
    }
  }

  function newTag(watched: WatchedTag, stored: StoredReads): ScheduledTag {
    const { id } = watched.tag;
    const value = stored.values.get(id);
    const quarantine = stored.quarantines.get(id);
    // A stored time in the future was written before the clock was set back: count the value as read now.
    const readMs = value === undefined ? null : stored.toMonotonic(value.time);
    const isAhead = readMs !== null && readMs > stored.nowMs;
    return {
      ...{ id, row: -1, watched },
      lastMs: isAhead ? null : readMs,
      countedMs: isAhead ? stored.nowMs : null,
      sinceMs: stored.nowMs,
      nulls: value?.nulls ?? 0,
      nullAtMs: Number.NEGATIVE_INFINITY,
      failures: 0,
      retryMs: Number.NEGATIVE_INFINITY,
      // Older versions stored no count and could quarantine a healthy tag: request it again.
      quarantinedUntilMs:
        quarantine?.times === undefined
          ? null
          : Math.min(stored.toMonotonic(quarantine.until), stored.nowMs + quarantineMs(quarantine.times)),
      ...{ underWay: false, gatewayWasOffline: false, answersOffline: false },
    };
  }

  function writeRow(tag: ScheduledTag, site: SiteState, nowMs: number): void {
    const offline = site.offline && !tag.answersOffline;
    if (tag.gatewayWasOffline && !offline) tag.nulls = 0;
    tag.gatewayWasOffline = offline;
    const isWaiting = tag.retryMs > nowMs;
    columns.intervalMs[tag.row] = intervalMsOf(tag, site);
    columns.lastMs[tag.row] = tag.lastMs ?? tag.countedMs ?? NEVER_READ_MS;
    columns.sinceMs[tag.row] = tag.sinceMs;
    columns.underWay[tag.row] = tag.underWay || isWaiting ? 1 : 0;
    if (isWaiting) changedTags.add(tag);
    else changedTags.delete(tag);
  }

  function writeIsolation({ id, row, watched }: ScheduledTag, nowMs: number): void {
    const isolation = context.isolationOf(id);
    if (isolation === null) return;
    const { label, timing, notBeforeMs = NEVER_READ_MS } = isolation;
    columns.isolated.set(row, { label, timing, siteRequestedMs: siteRequestedMs.get(watched.siteId) ?? NEVER_READ_MS });
    if (notBeforeMs > nowMs) columns.underWay[row] = 1;
  }

  function writeColumns(nowMs: number): void {
    if (columns.underWay.length < tags.size) columns = createColumns(tags.size);
    columns.isolated.clear();
    changedTags.clear();
    const { sites, siteOf } = createSiteCache();
    const anyIsolated = context.anyIsolated();
    let count = 0;
    for (const tag of tags.values()) {
      const site = siteOf(tag.watched.siteId);
      const isPlanned = tag.quarantinedUntilMs === null && site.inSight;
      tag.row = isPlanned ? count : -1;
      if (!isPlanned) continue;
      columns.ids[count] = tag.id;
      writeRow(tag, site, nowMs);
      if (anyIsolated) writeIsolation(tag, nowMs);
      count += 1;
    }
    columns.ids.length = count;
    columns.count = count;
    writtenState = { isCurrent: true, sites };
  }

  const isSiteChanged = () =>
    [...writtenState.sites].some(
      ([siteId, site]) => context.gatewayOffline(siteId) !== site.offline || context.sees(siteId) !== site.inSight,
    );

  return {
    watch(watchedTags: readonly WatchedTag[], stored: StoredReads): void {
      const nextTags = new Map<string, ScheduledTag>();
      for (const watched of watchedTags) {
        const tag = tags.get(watched.tag.id) ?? newTag(watched, stored);
        tag.watched = watched;
        nextTags.set(tag.id, tag);
      }
      tags = nextTags;
      const quarantinedTags = [...tags.values()].filter((tag) => tag.quarantinedUntilMs !== null);
      quarantined = new Set(quarantinedTags.map(({ id }) => id));
      writtenState.isCurrent = false;
    },
    watched: (id: string) => tags.get(id)?.watched,
    size: () => tags.size,

    /** Returns the tags that may be read, without quarantined and invisible tags. Valid until the next call. */
    planned(nowMs: number): PlannedTags {
      // A response to one isolated tag changes the isolation of others.
      const anyIsolated = context.anyIsolated() || columns.isolated.size > 0;
      if (!writtenState.isCurrent || anyIsolated || isSiteChanged()) writeColumns(nowMs);
      else
        for (const tag of changedTags)
          if (tag.row >= 0) writeRow(tag, siteStateOf(tag.watched.siteId), nowMs);
          else changedTags.delete(tag);
      return columns;
    },

    nextProbe(nowMs: number): string | undefined {
      return [...quarantined].find((id) => {
        const tag = tags.get(id);
        if (tag === undefined || tag.underWay || tag.retryMs > nowMs || !context.sees(tag.watched.siteId)) return false;
        return tag.quarantinedUntilMs !== null && tag.quarantinedUntilMs <= nowMs;
      });
    },

    /** Returns a tag that was never refused singly, preferably not suspected and of another site than `tried`. */
    control(tried: readonly string[]): string | undefined {
      const triedSites = new Set(tried.map((id) => tags.get(id)?.watched.siteId));
      const { siteOf } = createSiteCache();
      const [bestControl] = [...tags.values()]
        .filter(
          (tag) => !tag.underWay && !tried.includes(tag.id) && countsForFreshness(tag, siteOf(tag.watched.siteId)),
        )
        .flatMap(({ id, watched: { siteId }, lastMs }) => {
          const { isSuspect = false, notBeforeMs } = context.isolationOf(id) ?? {};
          if (lastMs === null || notBeforeMs !== undefined) return [];
          return [{ id, lastMs, rank: (triedSites.has(siteId) ? 2 : 0) + (isSuspect ? 1 : 0) }];
        })
        .sort((a, b) => a.rank - b.rank || b.lastMs - a.lastMs);
      return bestControl?.id;
    },

    sent(ids: readonly string[], nowMs: number): void {
      changeTags(ids, (tag) => {
        tag.underWay = true;
        if (context.isolationOf(tag.id)?.timing === "patient") siteRequestedMs.set(tag.watched.siteId, nowMs);
      });
    },

    answered(id: string, answer: "value" | "null" | "absent", nowMs: number): void {
      changeTags([id], (tag) => {
        const { name } = tag.watched.readClass;
        const site = siteStateOf(tag.watched.siteId);
        if (tag.lastMs !== null && countsForFreshness(tag, site))
          replacedAgesMs.now.set(name, Math.max(replacedAgesMs.now.get(name) ?? 0, nowMs - tag.lastMs));
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

    /** Notes a failure that says nothing about the tags. Only the failure of a single tag delays the retry. */
    failed(ids: readonly string[], nowMs: number): void {
      changeTags(ids, (tag) => {
        const waitMs = ids.length > 1 ? 0 : RETRY_WAIT_MS * 2 ** Math.min(tag.failures, 10);
        tag.failures += 1;
        const intervalMs = intervalMsOf(tag, siteStateOf(tag.watched.siteId));
        tag.retryMs = nowMs + Math.min(waitMs, Math.max(RETRY_WAIT_MS, intervalMs));
      });
    },

    returned(ids: readonly string[]): void {
      changeTags(ids, (tag) => (tag.underWay = false));
    },

    quarantine(id: string, untilMs: number): void {
      changeTags([id], (tag) => {
        tag.quarantinedUntilMs = untilMs;
        quarantined.add(id);
        writtenState.isCurrent = false;
      });
    },
    release(id: string): void {
      changeTags([id], (tag) => {
        tag.quarantinedUntilMs = null;
        quarantined.delete(id);
        writtenState.isCurrent = false;
      });
    },
    quarantined: (): readonly string[] => [...quarantined],

    stretch(slotMs: number, size: number, share: number, replyMs: number): QuotaOverload {
      const counts = new Map<WatchedTag["readClass"], number>();
      const { siteOf } = createSiteCache();
      for (const tag of tags.values()) {
        const site = siteOf(tag.watched.siteId);
        if (tag.quarantinedUntilMs !== null || !site.inSight) continue;
        const { readClass } = tag.watched;
        // A tag that is read less often leaves its slots to the others.
        counts.set(readClass, (counts.get(readClass) ?? 0) + stretchedIntervalMsOf(tag) / intervalMsOf(tag, site));
      }
      const classDemands = [...counts].map(([{ name, every, firm, importance }, count]) => ({
        ...{ name, tags: count, everyMs: every, firm, importance },
      }));
      const overload = computeQuotaOverload(classDemands, slotMs, size, share, replyMs);
      factors = overload.factors;
      writtenState.isCurrent = false;
      return overload;
    },

    freshness(nowMs: number): readonly ClassFreshness[] {
      const classes = new Map<string, { -readonly [key in keyof ClassFreshness]: ClassFreshness[key] }>();
      const { siteOf } = createSiteCache();
      for (const tag of tags.values()) {
        const { name } = tag.watched.readClass;
        const promisedMs = stretchedIntervalMsOf(tag);
        const classFreshness = classes.get(name) ?? { name, tags: 0, promisedMs, achievedMs: null };
        classes.set(name, classFreshness);
        classFreshness.tags += 1;
        classFreshness.promisedMs = promisedMs;
        if (!countsForFreshness(tag, siteOf(tag.watched.siteId))) continue;
        const replacedMs = Math.max(replacedAgesMs.now.get(name) ?? 0, replacedAgesMs.before.get(name) ?? 0);
        const waitedMs = nowMs - tag.sinceMs;
        // A tag without a value of known age counts only once its first value is late.
        const unreadMs = waitedMs > promisedMs ? waitedMs : null;
        const ageMs = tag.lastMs === null ? unreadMs : Math.max(nowMs - tag.lastMs, replacedMs);
        if (ageMs !== null) classFreshness.achievedMs = Math.max(ageMs, classFreshness.achievedMs ?? 0);
      }
      return [...classes.values()];
    },

    startMinute(): void {
      replacedAgesMs = { now: new Map(), before: replacedAgesMs.now };
    },

    known(id: string) {
      const tag = tags.get(id);
      if (tag === undefined) return undefined;
      const { watched, lastMs, nulls, underWay, quarantinedUntilMs } = tag;
      const site = siteStateOf(watched.siteId);
      return {
        ...{ watched, lastMs, nulls, underWay, quarantinedUntilMs, inSight: site.inSight },
        /** Assumed time of the last response if the real time is unknown. */
        countedMs: lastMs === null ? tag.countedMs : null,
        gatewayOffline: site.offline && !tag.answersOffline,
        wishedMs: watched.readClass.every,
        stretchedMs: stretchedIntervalMsOf(tag),
        intervalMs: intervalMsOf(tag, site),
      };
    },
  };
}

function createColumns(rows: number): ScheduleColumns {
  return {
    ...{ count: 0, ids: [], isolated: new Map() },
    intervalMs: new Float64Array(rows),
    lastMs: new Float64Array(rows),
    sinceMs: new Float64Array(rows),
    underWay: new Uint8Array(rows),
  };
}
