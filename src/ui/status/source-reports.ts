import type { Gateway, Site, Tag } from "../../core/model/building.ts";
import type { QuotaStatus } from "../../engine/source/source.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { FirstInventoryReport, PollTime, SourceCounts, SuddenChange } from "../../engine/sync/live-tag-state.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  isSeriesComplete,
  type StoredAlarm,
  type StoredLedger,
  type StoredLeftOut,
  type StoredObject,
  type StoredPoll,
  type StoredServiceHealth,
  type StoredTagListTimes,
  type StoredTagQuarantine,
  type StoredToken,
  type StoredUnavailability,
  type StoredValue,
  syncSet,
} from "../../engine/sync/snapshot.ts";
import { minuteSeriesNames, type Plots } from "../plots/plot-storage.ts";
import { type CachedDocuments, oncePer, SLOW_DATA_MS, WATCHED_DATA_AGE_MS } from "./cached-documents.ts";
import { type DueTimes, jobReports, knownCount, lastCount, reliabilityOf } from "./job-reports.ts";
import { lastDay } from "./sink-reports.ts";

export interface ConfiguredSource {
  readonly name: string;
  readonly origin: string;
  /** Absent: only jobs that ran are reported, and none is late. */
  readonly dueTimes?: DueTimes;
}

export interface LiveSource {
  readonly quota: QuotaStatus | null;
  readonly clockSkewMs: number | null;
  plan(): Promise<PlanReport>;
  historyStarvesSince?(): string | null;
  suddenChanges?(): readonly SuddenChange[];
  firstInventory?(): FirstInventoryReport;
  counts?(): SourceCounts | Promise<SourceCounts>;
}

const LANES = ["write", "on-demand", "live", "history", "spare"] as const;

export type SourceResponse = ReturnType<typeof sourceResponse>;

/** GET /api/source?name: requests per minute of the last 24 hours by lane, and the latest refusals. */
export function sourceResponse(
  plots: Pick<Plots, "minutes" | "refused"> | null,
  nowMs: number,
  source: string,
  allowed: number,
) {
  const columns = LANES.map((lane) => [lane, lastDay(plots, nowMs, minuteSeriesNames.requests(source, lane))] as const);
  const lanes = columns.map(([lane, { value }]) => [lane, value]);
  return {
    source,
    t: columns[0]?.[1].t ?? [],
    lanes: Object.fromEntries(lanes) as Readonly<Record<(typeof LANES)[number], readonly (number | null)[]>>,
    allowed,
    refused: plots?.refused.of(source) ?? [],
  };
}

interface ReportTime {
  readonly started: PollTime | null;
  readonly now: PollTime;
}

export type SourceHealth = Awaited<ReturnType<typeof sourceHealth>>;

/** Reads only counts and a dozen small documents, because probes request the health every few seconds. */
export async function sourceHealth(
  cache: CachedDocuments,
  source: ConfiguredSource,
  live: LiveSource | null,
  time: ReportTime,
) {
  const counts = (await live?.counts?.()) ?? null;
  const { jobs, readingWith, token, unavailable } = await sourcePolls(cache, source, time, counts);
  const alarmCounts = [...(counts?.activeAlarms.values() ?? [])].flatMap((priorities) => [...priorities.values()]);
  const alarmCount = alarmCounts.reduce((sum, count) => sum + count, 0);
  return {
    ...{ name: source.name, unavailable, token, jobs, counts },
    firstInventory: live?.firstInventory?.() ?? null,
    alarms: readingWith("alarms", alarmCount),
  };
}

const SITE_PREFIX = "site/";
const FEATURE_PREFIX = "feature/";

async function sourcePolls(
  cache: CachedDocuments,
  { name, dueTimes = new Map() }: ConfiguredSource,
  { started, now }: ReportTime,
  counts: SourceCounts | null,
  newestValue?: string | null,
) {
  const [polls, availability, tokens] = await Promise.all([
    cache.documents<StoredPoll>(documentSet("poll", name), WATCHED_DATA_AGE_MS),
    cache.documents<StoredUnavailability>(syncSet("availability", name), WATCHED_DATA_AGE_MS),
    cache.documents<StoredToken>(documentSet("token", name), WATCHED_DATA_AGE_MS),
  ]);
  const jobs = jobReports({
    ...{ polls, dueTimes, started, now },
    lastPolls: counts?.lastPolls ?? new Map(),
    inventoryMs: counts?.inventoryPageMs ?? null,
    ...(newestValue === undefined ? {} : { newestValue }),
  });
  const lostSites: (StoredUnavailability & { readonly siteId: number })[] = [];
  /** `job` is null for the whole service. */
  const unavailable: (StoredUnavailability & { readonly job: string | null })[] = [];
  for (const [key, { since, reason }] of availability) {
    const job = key.startsWith(FEATURE_PREFIX) ? key.slice(FEATURE_PREFIX.length) : null;
    if (key.startsWith(SITE_PREFIX)) lostSites.push({ siteId: Number(key.slice(SITE_PREFIX.length)), since, reason });
    else unavailable.push({ job, since, reason });
  }
  const stored = tokens.get("token");
  const token = stored && { name: stored.info.name, expiresAt: stored.info.expiresAt, checkedAt: stored.checkedAt };
  const readingWith = (job: string, held: number) =>
    reliabilityOf(
      jobs.find((each) => each.name === job),
      held,
      dueTimes.get(job) === "off",
      !unavailable.some((each) => each.job === null || each.job === job),
    );
  return { jobs, lostSites, readingWith, token: token ?? null, unavailable };
}

/** State of one source. Times are UTC; null is unknown, which is not 0. Without a running worker, only stored state is known. */
export type SourceReport = Awaited<ReturnType<typeof sourceReport>>;

export async function sourceReport(
  cache: CachedDocuments,
  source: ConfiguredSource,
  live: LiveSource | null,
  time: ReportTime,
) {
  const { name, origin } = source;
  const readWatched = <T>(set: string) => cache.documents<T>(set, WATCHED_DATA_AGE_MS);
  const readSteady = <T>(set: string) => cache.documents<T>(set, SLOW_DATA_MS);
  const [sites, tags, tagsSeen, gateways, alarms, values, health, history, setAside, leftOut] = await Promise.all([
    readWatched<StoredObject<Site>>(documentSet("site", name)),
    readSteady<StoredObject<Tag>>(documentSet("tag", name)),
    readWatched<StoredTagListTimes>(syncSet("tag-seen", name)),
    readWatched<StoredObject<Gateway>>(documentSet("gateway", name)),
    readWatched<StoredAlarm>(documentSet("alarm", name)),
    readWatched<StoredValue>(documentSet("value", name)),
    readWatched<StoredServiceHealth>(syncSet("health", name)),
    readSteady<StoredLedger>(documentSet("history", name)),
    readWatched<StoredTagQuarantine>(syncSet("quarantine", name)),
    readWatched<StoredLeftOut>(syncSet("left-out", name)),
  ]);
  const { newest, oldest, bad, doubted } = summarizeValues(values);
  const counts = (await live?.counts?.()) ?? null;
  const newestValue = counts === null ? newest : undefined;
  const polls = await sourcePolls(cache, source, time, counts, newestValue);
  const { jobs, lostSites, readingWith, token, unavailable } = polls;
  const activeAlarms = [...alarms.values()].filter(({ state }) => state === "active" || state === "missing");
  const presentGateways = [...gateways.values()].filter(({ missingSince }) => missingSince === null);
  const readings = {
    sites: readingWith("sites", sites.size),
    tags: readingWith("tags", tags.size),
    gateways: readingWith("gateways", presentGateways.length),
    alarms: readingWith("alarms", activeAlarms.length),
  };
  const tagCounts = countTags(tags);
  const siteReports = [...sites.values()].map(({ value: { id, displayName } }) => {
    const own = presentGateways.filter(({ siteId }) => siteId === id);
    const byPriority = countBy(
      activeAlarms.filter(({ alarm }) => alarm.site.id === id),
      ({ alarm }) => alarm.trigger.priority,
    );
    const countOnline = (online: boolean | null) => own.filter(({ value }) => value.online === online).length;
    const alarmsKnown = readings.alarms.state === "whole" || (readings.alarms.state === "part" && byPriority.size > 0);
    return {
      id,
      displayName,
      // During the first inventory, the number is known for sites whose list was read to its end.
      tags: lastCount(readings.tags) === null && !tagsSeen.has(String(id)) ? null : (tagCounts.get(id) ?? 0),
      gateways: {
        online: ["whole", "part"].includes(readings.gateways.state) ? countOnline(true) : null,
        all: lastCount(readings.gateways) === null ? null : own.length,
        /** Gateways whose record does not say whether they are online. */
        unclear: countOnline(null),
      },
      alarms: alarmsKnown ? Object.fromEntries(byPriority) : null,
    };
  });
  return {
    ...{ name, origin, unavailable, lostSites, token, jobs, readings },
    quota: live?.quota ?? null,
    /** Last result of the service's health check; null before the first. */
    health: health.get("health") ?? null,
    sites: siteReports.toSorted((a, b) => a.id - b.id),
    counts: {
      sites: lastCount(readings.sites),
      tags: lastCount(readings.tags),
      values: values.size,
      bad,
      alarms: knownCount(readings.alarms),
    },
    oldestValue: oldest,
    history: historyReport(history),
    historyStarvesSince: live?.historyStarvesSince?.() ?? null,
    /** Our clock minus the clock of the service. */
    clockSkewMs: live?.clockSkewMs ?? null,
    setAside: [...setAside].map(([id, { until, reason }]) => {
      const displayName = tags.get(id)?.value.displayName ?? id;
      return { id, displayName, until, reason };
    }),
    leftOut: [...leftOut].filter(([id]) => tags.has(id)).map(([id, entry]) => ({ id, ...entry })),
    typeDoubts: doubted.flatMap(([id, doubt]) => {
      const tag = tags.get(id)?.value;
      return tag ? [{ id, displayName: tag.displayName, unit: tag.unit, doubt }] : [];
    }),
    suddenChanges: live?.suddenChanges?.() ?? [],
    firstInventory: live?.firstInventory?.() ?? null,
    plan: live && (await cache.computedFrom(documentSet("tag", name), `plan of ${name}`, SLOW_DATA_MS, live.plan)),
  };
}

const summarizeValues = oncePer((values: ReadonlyMap<string, StoredValue>) => {
  const all = [...values.values()];
  const times = all.map(({ time }) => time);
  return {
    oldest: earliest(times),
    newest: times.reduce<string | null>((last, time) => (last === null || time > last ? time : last), null),
    bad: all.filter(({ quality }) => quality === "bad").length,
    doubted: [...values].flatMap(([id, { typeDoubt }]) => (typeDoubt === undefined ? [] : [[id, typeDoubt] as const])),
  };
});

const countTags = oncePer((tags: ReadonlyMap<string, StoredObject<Tag>>) =>
  countBy(tags.values(), ({ siteId }) => siteId),
);

const MAX_UNREADABLE_SERIES = 20;

/** State of the logged history. A series is a tag at one resolution, such as `10001 5m`. */

const historyReport = oncePer((ledgers: ReadonlyMap<string, StoredLedger>) => {
  const series = [...ledgers.values()];
  if (series.length === 0) return null;
  const followed = series.filter(({ state }) => state === "following");
  const unreadable = [...ledgers].flatMap(([key, ledger]) => unreadableSeries(key, ledger) ?? []);
  return {
    series: series.length,
    complete: followed.filter(isSeriesComplete).length,
    withoutLog: series.filter(({ state }) => state === "no-log").length,
    /** Time up to which every followed series was emitted. */
    toldUntil: earliest(followed.map(({ watermark }) => watermark)),
    unreadableCount: unreadable.length,
    unreadable: unreadable.slice(0, MAX_UNREADABLE_SERIES),
  };
});

function unreadableSeries(series: string, { spans = [], refusal }: StoredLedger) {
  // State of an earlier version has no refusal.
  const entries = [...spans, ...(refusal ? [refusal] : [])].filter(({ reason }) => reason === "unreadable");
  const since = earliest(entries.flatMap(({ at }) => at ?? []));
  return since === null ? null : { series, since, said: entries.find(({ at }) => at === since)?.said ?? "" };
}

function countBy<T, K>(items: Iterable<T>, key: (item: T) => K): Map<K, number> {
  const counts = new Map<K, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}

function earliest(times: readonly string[]): string | null {
  return times.reduce<string | null>((first, time) => (first === null || time < first ? time : first), null);
}
