import type { Gateway, Site, Tag } from "../../core/model/building.ts";
import type { QuotaStatus } from "../../engine/source/source.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  isComplete,
  type Listed,
  type StoredAlarm,
  type StoredHealth,
  type StoredHistory,
  type StoredLeftOut,
  type StoredPoll,
  type StoredQuarantine,
  type StoredTagSeen,
  type StoredToken,
  type StoredUnavailability,
  type StoredValue,
  syncSet,
  type UnverifiedType,
} from "../../engine/sync/snapshot.ts";
import type { FirstInventoryReport, SourceCounts, SuddenChange } from "../../engine/sync/work.ts";
import { minuteNames, type Plots } from "../plots/plots.ts";
import { type CachedDocuments, oncePer, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import {
  type JobReport,
  jobReports,
  knownCount,
  lastCount,
  type Moment,
  type Paces,
  type Reading,
  readingOf,
} from "./jobs.ts";
import { lastDay } from "./sinks.ts";

export interface ShownSource {
  readonly name: string;
  readonly origin: string;
  /** When its jobs are late. Absent: only jobs that ran are reported, and none is late. */
  readonly paces?: Paces;
}

export interface LiveSource {
  readonly quota: QuotaStatus | null;
  readonly clockSkewMs: number | null;
  plan(): Promise<PlanReport>;
  /** Time since which due history gets no slot, UTC; null while it gets its share. */
  historyStarvesSince?(): string | null;
  suddenChanges?(): readonly SuddenChange[];
  firstInventory?(): FirstInventoryReport;
  counts?(): SourceCounts | Promise<SourceCounts>;
}

/**
 * Health of a source for `/readyz` and `/metrics`. These are requested every few seconds, so it is computed from counts and a dozen
 * small documents, without reading tags, values or alarms.
 */
export interface SourceHealth {
  readonly name: string;
  readonly unavailable: readonly {
    /** Job of the feature; null for the whole service. */
    readonly job: string | null;
    readonly since: string;
    readonly reason: string;
  }[];
  readonly token: { readonly name: string; readonly expiresAt: string | null; readonly checkedAt: string } | null;
  readonly jobs: readonly JobReport[];
  /** Reliability of the number of alarms. */
  readonly alarms: Reading;
  readonly counts: SourceCounts | null;
  /** Progress of the first reading of the lists; null without a running worker. */
  readonly firstInventory: FirstInventoryReport | null;
}

/** State of one source. Times are UTC. Without a running worker, what only it knows is null or empty. */
export interface SourceReport extends Pick<SourceHealth, "name" | "unavailable" | "token" | "jobs" | "firstInventory"> {
  readonly origin: string;
  readonly quota: QuotaStatus | null;
  /** Sites that the token does not see any more. */
  readonly lostSites: readonly { readonly siteId: number; readonly since: string; readonly reason: string }[];
  /** Last result of the service's health check, for information; null before the first. */
  readonly health: StoredHealth | null;
  readonly sites: readonly SiteReport[];
  /** Null is unknown, which is not 0; `readings` gives the reason. */
  readonly counts: {
    readonly sites: number | null;
    readonly tags: number | null;
    readonly values: number;
    readonly bad: number;
    readonly alarms: number | null;
  };
  readonly readings: Readonly<Record<"sites" | "tags" | "gateways" | "alarms", Reading>>;
  readonly oldestValue: string | null;
  readonly history: HistoryReport | null;
  /** Our clock minus the clock of the service, milliseconds; null when unknown. */
  readonly clockSkewMs: number | null;
  /** Tags that were rejected singly twice, with the time of the next attempt: after 10 minutes, then 1, 6 and 24 hours. */
  readonly setAside: readonly {
    readonly id: string;
    readonly displayName: string;
    readonly until: string;
    readonly reason: string;
  }[];
  readonly historyStarvesSince: string | null;
  /** Requested tags without a usable value in the replies. */
  readonly leftOut: readonly (StoredLeftOut & { readonly id: string })[];
  /** Tags whose last value has an unverified type: `changed` until a second reading, `unit` as long as it lasts. */
  readonly typeDoubts: readonly {
    readonly id: string;
    readonly displayName: string;
    readonly unit: string | null;
    readonly doubt: UnverifiedType;
  }[];
  /** Unconfirmed changes of many values at once. */
  readonly suddenChanges: readonly SuddenChange[];
  /** Plan of the quota, at most 15 s old. */
  readonly plan: PlanReport | null;
}

export interface SiteReport {
  readonly id: number;
  readonly displayName: string;
  /** Null is unknown, here and below. */
  readonly tags: number | null;
  readonly gateways: {
    readonly online: number | null;
    readonly all: number | null;
    /** Gateways whose record does not say whether they are online. */
    readonly unclear: number;
  };
  readonly alarms: Readonly<Record<string, number>> | null;
}

/** A series is a tag at one resolution. */
export interface HistoryReport {
  readonly series: number;
  /** Series without a gap since the begin of their backfill. */
  readonly complete: number;
  /** Series for which the service has no log. */
  readonly withoutLog: number;
  /** Time up to which every followed series was emitted; null without one. */
  readonly toldUntil: string | null;
  readonly unreadableCount: number;
  readonly unreadable: readonly {
    /** Tag id and resolution, such as `10001 5m`. */
    readonly series: string;
    readonly since: string;
    /** One sentence with the words of the service. */
    readonly said: string;
  }[];
}

/** GET /api/source?name */
export interface SourceResponse {
  readonly source: string;
  /** Requests per minute of the last 24 hours by lane, to be stacked; all have the same `t`. */
  readonly t: readonly number[];
  readonly lanes: Readonly<Record<(typeof LANES)[number], readonly (number | null)[]>>;
  readonly allowed: number;
  /** Rejections and failures of the service, newest first, at most 50. */
  readonly refused: readonly { readonly at: string; readonly what: string; readonly words: string }[];
}

const LANES = ["write", "on-demand", "live", "history", "spare"] as const;

export function sourceResponse(
  plots: Pick<Plots, "minutes" | "refused"> | null,
  nowMs: number,
  source: string,
  allowed: number,
): SourceResponse {
  const columns = LANES.map((lane) => [lane, lastDay(plots, nowMs, minuteNames.requests(source, lane))] as const);
  return {
    source,
    t: columns[0]?.[1].t ?? [],
    lanes: Object.fromEntries(columns.map(([lane, { value }]) => [lane, value])) as SourceResponse["lanes"],
    allowed,
    refused: plots?.refused.of(source) ?? [],
  };
}

interface ReportTime {
  readonly started: Moment | null;
  readonly now: Moment;
}

export async function sourceHealth(
  cache: CachedDocuments,
  source: ShownSource,
  live: LiveSource | null,
  time: ReportTime,
): Promise<SourceHealth> {
  const counts = (await live?.counts?.()) ?? null;
  const { jobs, reading, token, unavailable } = await pollsOf(cache, source, time, counts);
  const alarms = [...(counts?.activeAlarms.values() ?? [])].flatMap((priorities) => [...priorities.values()]);
  return {
    ...{ name: source.name, unavailable, token, jobs, counts },
    firstInventory: live?.firstInventory?.() ?? null,
    alarms: reading(
      "alarms",
      alarms.reduce((sum, count) => sum + count, 0),
    ),
  };
}

/** Prefixes of the keys in the set of availability: `site/7`, `feature/alarms`. */
const SITE = "site/";
const FEATURE = "feature/";

/** State of the polls of a source, and the unavailable parts of the service. */
async function pollsOf(
  cache: CachedDocuments,
  { name, paces = new Map() }: ShownSource,
  { started, now }: ReportTime,
  counts: SourceCounts | null,
  newestValue?: string | null,
) {
  const [polls, availability, tokens] = await Promise.all([
    cache.documents<StoredPoll>(documentSet("poll", name), WATCHED_MS),
    cache.documents<StoredUnavailability>(syncSet("availability", name), WATCHED_MS),
    cache.documents<StoredToken>(documentSet("token", name), WATCHED_MS),
  ]);
  const jobs = jobReports({
    ...{ polls, paces, started, now },
    lastPolls: counts?.lastPolls ?? new Map(),
    inventoryMs: counts?.inventoryPageMs ?? null,
    ...(newestValue === undefined ? {} : { newestValue }),
  });
  const entries = [...availability].map(([key, { since, reason }]) => ({ key, since, reason }));
  const lostSites = entries.flatMap(({ key, ...entry }) =>
    key.startsWith(SITE) ? [{ siteId: Number(key.slice(SITE.length)), ...entry }] : [],
  );
  const unavailable = entries.flatMap(({ key, ...entry }) =>
    key.startsWith(SITE) ? [] : [{ job: key.startsWith(FEATURE) ? key.slice(FEATURE.length) : null, ...entry }],
  );
  const stored = tokens.get("token");
  const token = stored
    ? { name: stored.info.name, expiresAt: stored.info.expiresAt, checkedAt: stored.checkedAt }
    : null;
  const reading = (job: string, held: number) => {
    const isAvailable = !unavailable.some((each) => each.job === null || each.job === job);
    const report = jobs.find((each) => each.name === job);
    return readingOf(report, held, paces.get(job) === "off", isAvailable);
  };
  return { jobs, lostSites, reading, token, unavailable };
}

export async function sourceReport(
  cache: CachedDocuments,
  source: ShownSource,
  live: LiveSource | null,
  time: ReportTime,
): Promise<SourceReport> {
  const { name, origin } = source;
  const watched = <T>(set: string) => cache.documents<T>(set, WATCHED_MS);
  const steady = <T>(set: string) => cache.documents<T>(set, STEADY_MS);
  const [sites, tags, tagsSeen, gateways, alarms, values, health, history, setAside, leftOut] = await Promise.all([
    watched<Listed<Site>>(documentSet("site", name)),
    steady<Listed<Tag>>(documentSet("tag", name)),
    watched<StoredTagSeen>(syncSet("tag-seen", name)),
    watched<Listed<Gateway>>(documentSet("gateway", name)),
    watched<StoredAlarm>(documentSet("alarm", name)),
    watched<StoredValue>(documentSet("value", name)),
    watched<StoredHealth>(syncSet("health", name)),
    steady<StoredHistory>(documentSet("history", name)),
    watched<StoredQuarantine>(syncSet("quarantine", name)),
    watched<StoredLeftOut>(syncSet("left-out", name)),
  ]);
  const { newest, oldest, bad, doubted } = summarizeValues(values);
  const counts = (await live?.counts?.()) ?? null;
  const newestValue = counts === null ? newest : undefined;
  const { jobs, lostSites, reading, token, unavailable } = await pollsOf(cache, source, time, counts, newestValue);
  const active = [...alarms.values()].filter(({ state }) => state === "active" || state === "missing");
  const present = [...gateways.values()].filter(({ missingSince }) => missingSince === null);
  const readings = {
    sites: reading("sites", sites.size),
    tags: reading("tags", tags.size),
    gateways: reading("gateways", present.length),
    alarms: reading("alarms", active.length),
  };
  const tagCounts = countTagsBySite(tags);
  const siteReports = [...sites.values()].map(({ value: { id, displayName } }): SiteReport => {
    const own = present.filter(({ siteId }) => siteId === id);
    const byPriority = countBy(
      active.filter(({ alarm }) => alarm.site.id === id),
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
        unclear: countOnline(null),
      },
      alarms: alarmsKnown ? Object.fromEntries(byPriority) : null,
    };
  });
  return {
    ...{ name, origin, unavailable, lostSites, token, jobs, readings },
    quota: live?.quota ?? null,
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
    clockSkewMs: live?.clockSkewMs ?? null,
    setAside: [...setAside].map(([id, { until, reason }]) => ({
      id,
      displayName: tags.get(id)?.value.displayName ?? id,
      until,
      reason,
    })),
    leftOut: [...leftOut].filter(([id]) => tags.has(id)).map(([id, entry]) => ({ id, ...entry })),
    typeDoubts: doubted.flatMap(([id, doubt]) => {
      const tag = tags.get(id)?.value;
      return tag === undefined ? [] : [{ id, displayName: tag.displayName, unit: tag.unit, doubt }];
    }),
    suddenChanges: live?.suddenChanges?.() ?? [],
    firstInventory: live?.firstInventory?.() ?? null,
    plan: live && (await cache.computedFrom(documentSet("tag", name), `plan of ${name}`, STEADY_MS, live.plan)),
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

const countTagsBySite = oncePer((tags: ReadonlyMap<string, Listed<Tag>>) =>
  countBy(tags.values(), ({ siteId }) => siteId),
);

const MOST_UNREADABLE = 20;

const historyReport = oncePer((ledgers: ReadonlyMap<string, StoredHistory>): HistoryReport | null => {
  const series = [...ledgers.values()];
  if (series.length === 0) return null;
  const followed = series.filter(({ state }) => state === "following");
  const unreadable = [...ledgers].flatMap(([key, ledger]) => unreadableSeries(key, ledger) ?? []);
  return {
    series: series.length,
    complete: followed.filter(isComplete).length,
    withoutLog: series.filter(({ state }) => state === "no-log").length,
    toldUntil: earliest(followed.map(({ watermark }) => watermark)),
    unreadableCount: unreadable.length,
    unreadable: unreadable.slice(0, MOST_UNREADABLE),
  };
});

function unreadableSeries(
  series: string,
  { spans = [], refusal }: StoredHistory,
): HistoryReport["unreadable"][number] | null {
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
