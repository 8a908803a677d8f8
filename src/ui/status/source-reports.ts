import type { Gateway, Site, Tag } from "../../core/model/building.ts";
import type { QuotaStatus } from "../../engine/source/source.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { FirstInventoryReport, PollTime, SourceCounts, SuddenChange } from "../../engine/sync/live-tag-state.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  isSeriesComplete,
  readingTimeOf,
  type StoredAlarm,
  type StoredJob,
  type StoredLedger,
  type StoredLeftOut,
  type StoredObject,
  type StoredServiceHealth,
  type StoredTagListTimes,
  type StoredTagQuarantine,
  type StoredToken,
  type StoredUnavailability,
  type StoredValue,
  syncSet,
} from "../../engine/sync/stored-documents.ts";
import { minuteSeriesNames, type Plots } from "../plots/plot-storage.ts";
import {
  type CachedDocuments,
  memoizeByObject,
  SLOW_DATA_AGE_MS,
  WATCHED_DATA_AGE_MS,
} from "./cache-of-stored-documents.ts";
import { countReliabilityOf, type JobDueTimes, jobReports, lastKnownCount, reliableCount } from "./job-reports.ts";
import { lastDayColumns } from "./sink-reports.ts";

export interface ConfiguredSource {
  readonly name: string;
  readonly origin: string;
  /** Due times of the polling jobs. If absent, only jobs that ran are reported, and none as late. */
  readonly dueTimes?: JobDueTimes;
}

export interface RunningSource {
  readonly quota: QuotaStatus | null;
  readonly clockSkewMs: number | null;
  plan(): Promise<PlanReport>;
  historyStarvesSince?(): string | null;
  suddenChanges?(): readonly SuddenChange[];
  firstInventory?(): FirstInventoryReport;
  counts?(): SourceCounts | Promise<SourceCounts>;
}

const QUOTA_LANES = ["write", "on-demand", "live", "history", "spare"] as const;

export type SourceResponse = ReturnType<typeof sourceResponse>;

/** GET /api/source?name: requests per minute of the last 24 hours by quota lane, and the latest refused requests. */
export function sourceResponse(
  plots: Pick<Plots, "minutes" | "refused"> | null,
  nowMs: number,
  source: string,
  allowed: number,
) {
  const laneColumns = QUOTA_LANES.map(
    (lane) => [lane, lastDayColumns(plots, nowMs, minuteSeriesNames.requests(source, lane))] as const,
  );
  const laneValues = laneColumns.map(([lane, { value }]) => [lane, value]);
  return {
    source,
    t: laneColumns[0]?.[1].t ?? [],
    lanes: Object.fromEntries(laneValues) as Readonly<Record<(typeof QUOTA_LANES)[number], readonly (number | null)[]>>,
    allowed,
    refused: plots?.refused.refusalsOf(source) ?? [],
  };
}

interface ReportTimes {
  readonly started: PollTime | null;
  readonly now: PollTime;
}

export type SourceHealth = Awaited<ReturnType<typeof sourceHealth>>;

/** Reads only counts and a dozen small documents, because the health is requested every few seconds. */
export async function sourceHealth(
  cache: CachedDocuments,
  source: ConfiguredSource,
  live: RunningSource | null,
  time: ReportTimes,
) {
  const counts = (await live?.counts?.()) ?? null;
  const { jobs, reliabilityOf, token, unavailable } = await readSourcePolls(cache, source, time, counts);
  const alarmCounts = [...(counts?.activeAlarms.values() ?? [])].flatMap((priorities) => [...priorities.values()]);
  const alarmCount = alarmCounts.reduce((sum, count) => sum + count, 0);
  return {
    ...{ name: source.name, unavailable, token, jobs, counts },
    firstInventory: live?.firstInventory?.() ?? null,
    alarms: reliabilityOf("alarms", alarmCount),
  };
}

const SITE_PREFIX = "site/";
const JOB_PREFIX = "feature/";

async function readSourcePolls(
  cache: CachedDocuments,
  { name, dueTimes = new Map() }: ConfiguredSource,
  { started, now }: ReportTimes,
  counts: SourceCounts | null,
  newestValueTime?: string | null,
) {
  const [storedPolls, availability, storedTokens] = await Promise.all([
    cache.documents<StoredJob>(documentSet("poll", name), WATCHED_DATA_AGE_MS),
    cache.documents<StoredUnavailability>(syncSet("availability", name), WATCHED_DATA_AGE_MS),
    cache.documents<StoredToken>(documentSet("token", name), WATCHED_DATA_AGE_MS),
  ]);
  const jobs = jobReports({
    ...{ polls: storedPolls, dueTimes, started, now },
    lastPolls: counts?.lastPolls ?? new Map(),
    inventoryPageMs: counts?.inventoryPageMs ?? null,
    ...(newestValueTime === undefined ? {} : { newestValue: newestValueTime }),
  });
  const lostSites: (StoredUnavailability & { readonly siteId: number })[] = [];
  /** Lists that cannot be read. `job` is null if the whole service is unavailable. */
  const unavailable: (StoredUnavailability & { readonly job: string | null })[] = [];
  for (const [key, { since, reason }] of availability) {
    const job = key.startsWith(JOB_PREFIX) ? key.slice(JOB_PREFIX.length) : null;
    if (key.startsWith(SITE_PREFIX)) lostSites.push({ siteId: Number(key.slice(SITE_PREFIX.length)), since, reason });
    else unavailable.push({ job, since, reason });
  }
  const stored = storedTokens.get("token");
  const token = stored && { name: stored.info.name, expiresAt: stored.info.expiresAt, checkedAt: stored.checkedAt };
  const computeReliability = (job: string, listedCount: number) =>
    countReliabilityOf(
      jobs.find((jobReport) => jobReport.name === job),
      listedCount,
      dueTimes.get(job) === "off",
      !unavailable.some((unavailability) => unavailability.job === null || unavailability.job === job),
    );
  return { jobs, lostSites, reliabilityOf: computeReliability, token: token ?? null, unavailable };
}

/** State of a source for the status page. Null means unknown, not 0. */
export type SourceReport = Awaited<ReturnType<typeof sourceReport>>;

export async function sourceReport(
  cache: CachedDocuments,
  source: ConfiguredSource,
  live: RunningSource | null,
  time: ReportTimes,
) {
  const { name, origin } = source;
  const readWatchedSet = <T>(set: string) => cache.documents<T>(set, WATCHED_DATA_AGE_MS);
  const readSlowSet = <T>(set: string) => cache.documents<T>(set, SLOW_DATA_AGE_MS);
  const [sites, tags, listTimes, gateways, alarms, values, health, history, quarantinedTags, leftOut] =
    await Promise.all([
      readWatchedSet<StoredObject<Site>>(documentSet("site", name)),
      readSlowSet<StoredObject<Tag>>(documentSet("tag", name)),
      readWatchedSet<StoredTagListTimes>(syncSet("tag-seen", name)),
      readWatchedSet<StoredObject<Gateway>>(documentSet("gateway", name)),
      readWatchedSet<StoredAlarm>(documentSet("alarm", name)),
      readWatchedSet<StoredValue>(documentSet("value", name)),
      readWatchedSet<StoredServiceHealth>(syncSet("health", name)),
      readSlowSet<StoredLedger>(documentSet("history", name)),
      readWatchedSet<StoredTagQuarantine>(syncSet("quarantine", name)),
      readWatchedSet<StoredLeftOut>(syncSet("left-out", name)),
    ]);
  const { newest, oldest, bad, doubted: uncertainTags } = summarizeValues(values);
  const sourceCounts = (await live?.counts?.()) ?? null;
  const newestValueTime = sourceCounts === null ? newest : undefined;
  const sourcePolls = await readSourcePolls(cache, source, time, sourceCounts, newestValueTime);
  const { jobs, lostSites, reliabilityOf, token, unavailable } = sourcePolls;
  const activeAlarms = [...alarms.values()].filter(({ state }) => state === "active" || state === "missing");
  const presentGateways = [...gateways.values()].filter(({ missingSince }) => missingSince === null);
  const readings = {
    sites: reliabilityOf("sites", sites.size),
    tags: reliabilityOf("tags", tags.size),
    gateways: reliabilityOf("gateways", presentGateways.length),
    alarms: reliabilityOf("alarms", activeAlarms.length),
  };
  const tagCountBySite = countTagsBySite(tags);
  const siteReports = [...sites.values()].map(({ value: { id, displayName } }) => {
    const siteGateways = presentGateways.filter(({ siteId }) => siteId === id);
    const alarmCountByPriority = countBy(
      activeAlarms.filter(({ alarm }) => alarm.site.id === id),
      ({ alarm }) => alarm.trigger.priority,
    );
    const countOnlineGateways = (online: boolean | null) =>
      siteGateways.filter(({ value }) => value.online === online).length;
    const areAlarmsKnown =
      readings.alarms.state === "whole" || (readings.alarms.state === "part" && alarmCountByPriority.size > 0);
    return {
      id,
      displayName,
      // Until all lists were read once, the number is known only for sites whose tag list was read completely.
      tags: lastKnownCount(readings.tags) === null && !listTimes.has(String(id)) ? null : (tagCountBySite.get(id) ?? 0),
      gateways: {
        online: ["whole", "part"].includes(readings.gateways.state) ? countOnlineGateways(true) : null,
        all: lastKnownCount(readings.gateways) === null ? null : siteGateways.length,
        unclear: countOnlineGateways(null),
      },
      alarms: areAlarmsKnown ? Object.fromEntries(alarmCountByPriority) : null,
    };
  });
  return {
    ...{ name, origin, unavailable, lostSites, token, jobs, readings },
    quota: live?.quota ?? null,
    health: health.get("health") ?? null,
    sites: siteReports.toSorted((a, b) => a.id - b.id),
    counts: {
      sites: lastKnownCount(readings.sites),
      tags: lastKnownCount(readings.tags),
      values: values.size,
      bad,
      alarms: reliableCount(readings.alarms),
    },
    oldestValue: oldest,
    history: historyReport(history),
    historyStarvesSince: live?.historyStarvesSince?.() ?? null,
    /** Milliseconds by which this machine's clock is ahead of the service's clock. */
    clockSkewMs: live?.clockSkewMs ?? null,
    setAside: [...quarantinedTags].map(([id, { until, reason }]) => {
      const displayName = tags.get(id)?.value.displayName ?? id;
      return { id, displayName, until, reason };
    }),
    leftOut: [...leftOut].filter(([id]) => tags.has(id)).map(([id, entry]) => ({ id, ...entry })),
    typeDoubts: uncertainTags.flatMap(([id, doubt]) => {
      const tag = tags.get(id)?.value;
      return tag ? [{ id, displayName: tag.displayName, unit: tag.unit, doubt }] : [];
    }),
    suddenChanges: live?.suddenChanges?.() ?? [],
    firstInventory: live?.firstInventory?.() ?? null,
    plan: live && (await cache.memoizeFrom(documentSet("tag", name), `plan of ${name}`, SLOW_DATA_AGE_MS, live.plan)),
  };
}

const summarizeValues = memoizeByObject((values: ReadonlyMap<string, StoredValue>) => {
  const storedValues = [...values.values()];
  const readingTimes = storedValues.map(readingTimeOf);
  return {
    oldest: earliestTime(readingTimes),
    newest: readingTimes.reduce<string | null>((last, time) => (last === null || time > last ? time : last), null),
    bad: storedValues.filter(({ quality }) => quality === "bad").length,
    doubted: [...values].flatMap(([id, { typeDoubt }]) => (typeDoubt === undefined ? [] : [[id, typeDoubt] as const])),
  };
});

const countTagsBySite = memoizeByObject((tags: ReadonlyMap<string, StoredObject<Tag>>) =>
  countBy(tags.values(), ({ siteId }) => siteId),
);

const MAX_UNREADABLE_SERIES = 20;

/** Summarizes the history of a source by series; a series is a tag at one resolution, such as `10001 5m`. */
const historyReport = memoizeByObject((ledgers: ReadonlyMap<string, StoredLedger>) => {
  const storedLedgers = [...ledgers.values()];
  if (storedLedgers.length === 0) return null;
  const followedSeries = storedLedgers.filter(({ state }) => state === "following");
  const unreadableReports = [...ledgers].flatMap(([key, ledger]) => unreadableSeriesReport(key, ledger) ?? []);
  return {
    series: storedLedgers.length,
    complete: followedSeries.filter(isSeriesComplete).length,
    withoutLog: storedLedgers.filter(({ state }) => state === "no-log").length,
    /** Time up to which the history of every series with a log was emitted. */
    toldUntil: earliestTime(followedSeries.map(({ watermark }) => watermark)),
    unreadableCount: unreadableReports.length,
    unreadable: unreadableReports.slice(0, MAX_UNREADABLE_SERIES),
  };
});

function unreadableSeriesReport(series: string, { spans = [], refusal }: StoredLedger) {
  // State that an earlier version of Plenum stored has no field `refusal`.
  const unreadableEntries = [...spans, ...(refusal ? [refusal] : [])].filter(({ reason }) => reason === "unreadable");
  const since = earliestTime(unreadableEntries.flatMap(({ at }) => at ?? []));
  return since === null ? null : { series, since, said: unreadableEntries.find(({ at }) => at === since)?.said ?? "" };
}

export function countBy<T, K>(items: Iterable<T>, keyOf: (item: T) => K): Map<K, number> {
  const counts = new Map<K, number>();
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1);
  return counts;
}

function earliestTime(times: readonly string[]): string | null {
  return times.reduce<string | null>((first, time) => (first === null || time < first ? time : first), null);
}
