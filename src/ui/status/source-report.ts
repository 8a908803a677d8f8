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
  type StoredQuarantine,
  type StoredTagSeen,
  type StoredValue,
  syncSet,
  type UnverifiedType,
} from "../../engine/sync/snapshot.ts";
import type { FirstInventoryReport, SuddenChange } from "../../engine/sync/work.ts";
import { type CachedDocuments, oncePer, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import type { JobReport, Moment } from "./job-report.ts";
import { knownCount, lastCount, type Reading } from "./reading.ts";
import {
  type LiveSource,
  type LostSite,
  pollsOf,
  type ShownSource,
  type TokenReport,
  type Unavailable,
} from "./source-health.ts";

export type { LiveSource, ShownSource } from "./source-health.ts";

/** State of one source. Times are UTC. */
export interface SourceReport {
  readonly name: string;
  readonly origin: string;
  /** Null when no worker is running. */
  readonly quota: QuotaStatus | null;
  /** Unavailable service or features; empty while all is available. */
  readonly unavailable: readonly Unavailable[];
  /** Sites that the token does not see any more; empty while it sees all that it saw. */
  readonly lostSites: readonly LostSite[];
  /** Information about the token; null before the first request. */
  readonly token: TokenReport | null;
  /** Last result of the service's health check; null before the first. It decides nothing. */
  readonly health: StoredHealth | null;
  readonly jobs: readonly JobReport[];
  readonly sites: readonly SiteReport[];
  /** Null is not known, which is not 0; `readings` says why. */
  readonly counts: {
    readonly sites: number | null;
    readonly tags: number | null;
    readonly values: number;
    /** Number of values that could not be read. */
    readonly bad: number;
    readonly alarms: number | null;
  };
  /** How far the numbers can be believed, and what was known last. */
  readonly readings: {
    readonly sites: Reading;
    readonly tags: Reading;
    readonly gateways: Reading;
    readonly alarms: Reading;
  };
  /** When the value that was read longest ago was read; null before the first. */
  readonly oldestValue: string | null;
  /** Null while no history is followed. */
  readonly history: HistoryReport | null;
  /** Our clock minus the service's, milliseconds; null when no worker is running or no reply said. */
  readonly clockSkewMs: number | null;
  /** Tags that were refused alone twice: each is asked alone again after 10 minutes, then 1, 6 and 24 hours. */
  readonly setAside: readonly TagSetAside[];
  /** Time since which due history has got no slot, UTC; null while it gets its share, and when unknown. */
  readonly historyStarvesSince: string | null;
  /** Tags of which the replies say nothing that is a value, though they were asked for. */
  readonly leftOut: readonly (StoredLeftOut & { readonly id: string })[];
  /** Tags whose last value has a type that is not believed: `changed` until a second reading, `unit` as long as it lasts. */
  readonly typeDoubts: readonly TypeDoubted[];
  /** Values that changed at once and are not settled yet; empty when no worker is running. */
  readonly suddenChanges: readonly SuddenChange[];
  /** How far the first reading of the building's lists is; null when no worker is running. */
  readonly firstInventory: FirstInventoryReport | null;
  /** Plan of the quota, at most 15 s old; null without a running worker. `plenum plan` computes it then. */
  readonly plan: PlanReport | null;
}

export interface TypeDoubted {
  readonly id: string;
  readonly displayName: string;
  readonly unit: string | null;
  readonly doubt: UnverifiedType;
}

export interface TagSetAside {
  readonly id: string;
  readonly displayName: string;
  /** When it is asked again, UTC. */
  readonly until: string;
  readonly reason: string;
}

export interface SiteReport {
  readonly id: number;
  readonly displayName: string;
  /** Null is not known, here and below. */
  readonly tags: number | null;
  readonly gateways: {
    readonly online: number | null;
    readonly all: number | null;
    /** Gateways whose record does not say whether they are online. */
    readonly unclear: number;
  };
  /** Active alarms by priority. */
  readonly alarms: Readonly<Record<string, number>> | null;
}

/** A series is a tag at one resolution. */
export interface HistoryReport {
  readonly series: number;
  /** Series without a hole from the depth of their backfill on. */
  readonly complete: number;
  /** Series for which the service has no log. */
  readonly withoutLog: number;
  /** Time up to which every followed series was emitted; null without one. */
  readonly toldUntil: string | null;
  /** Series of which something was answered and is unreadable. */
  readonly unreadableCount: number;
  /** The first of them. */
  readonly unreadable: readonly UnreadableSeries[];
}

export interface UnreadableSeries {
  /** Tag id and resolution, such as `10001 5m`. */
  readonly series: string;
  /** When the service sent it first, UTC. */
  readonly since: string;
  /** One sentence with the service's own words. */
  readonly said: string;
}

/** Unreadable series that a report names. */
const UNREADABLE_NAMED = 20;

export async function sourceReport(
  remembered: CachedDocuments,
  shown: ShownSource,
  live: LiveSource | null,
  time: { readonly started: Moment | null; readonly now: Moment },
): Promise<SourceReport> {
  const { name, origin } = shown;
  const watched = <T>(set: string) => remembered.documents<T>(set, WATCHED_MS);
  const steady = <T>(set: string) => remembered.documents<T>(set, STEADY_MS);
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
  const read = readValues(values);
  const counts = (await live?.counts?.()) ?? null;
  const { jobs, lostSites, reading, token, unavailable } = await pollsOf(remembered, shown, {
    ...{ counts, ...time },
    ...(counts === null ? { newestValue: read.newest } : {}),
  });
  const active = [...alarms.values()].filter(isActive);
  const present = [...gateways.values()].filter((held) => held.missingSince === null);
  const readings = {
    sites: reading("sites", sites.size),
    tags: reading("tags", tags.size),
    gateways: reading("gateways", present.length),
    alarms: reading("alarms", active.length),
  };
  const tagsOf = tagsBySite(tags);
  const siteReports = [...sites.values()].map(({ value: site }): SiteReport => {
    const own = present.filter((held) => held.siteId === site.id);
    const raised = countBy(
      active.filter((held) => held.alarm.site.id === site.id),
      (held) => held.alarm.trigger.priority,
    );
    const isOnline = (online: boolean | null) => own.filter((held) => held.value.online === online).length;
    const gatewaysKnown = readings.gateways.state === "whole" || readings.gateways.state === "part";
    return {
      id: site.id,
      displayName: site.displayName,
      // While the first lists come, page by page, the number is known of sites whose list was read to its end.
      tags: lastCount(readings.tags) === null && !tagsSeen.has(String(site.id)) ? null : (tagsOf.get(site.id) ?? 0),
      gateways: {
        online: gatewaysKnown ? isOnline(true) : null,
        all: lastCount(readings.gateways) === null ? null : own.length,
        unclear: isOnline(null),
      },
      alarms:
        readings.alarms.state === "whole" || (readings.alarms.state === "part" && raised.size > 0)
          ? Object.fromEntries(raised)
          : null,
    };
  });
  return {
    ...{ name, origin, unavailable, lostSites, token, jobs },
    quota: live?.quota ?? null,
    health: health.get("health") ?? null,
    sites: siteReports.toSorted((a, b) => a.id - b.id),
    counts: {
      sites: lastCount(readings.sites),
      tags: lastCount(readings.tags),
      values: values.size,
      bad: read.bad,
      alarms: knownCount(readings.alarms),
    },
    readings,
    oldestValue: read.oldest,
    history: historyReport(history),
    historyStarvesSince: live?.historyStarvesSince?.() ?? null,
    clockSkewMs: live?.clockSkewMs ?? null,
    setAside: [...setAside].map(([id, { until, reason }]) => ({
      id,
      displayName: tags.get(id)?.value.displayName ?? id,
      until,
      reason,
    })),
    leftOut: [...leftOut].filter(([id]) => tags.has(id)).map(([id, one]) => ({ id, ...one })),
    typeDoubts: read.doubted.flatMap(([id, doubt]) => {
      const tag = tags.get(id)?.value;
      return tag === undefined ? [] : [{ id, displayName: tag.displayName, unit: tag.unit, doubt }];
    }),
    suddenChanges: live?.suddenChanges?.() ?? [],
    firstInventory: live?.firstInventory?.() ?? null,
    plan:
      live === null
        ? null
        : await remembered.madeFrom(documentSet("tag", name), `plan of ${name}`, STEADY_MS, live.plan),
  };
}

const readValues = oncePer((values: ReadonlyMap<string, StoredValue>) => {
  const all = [...values.values()];
  const times = all.map(({ time }) => time);
  return {
    oldest: earliest(times),
    newest: latest(times),
    bad: all.filter(({ quality }) => quality === "bad").length,
    doubted: [...values].flatMap(([id, { typeDoubt }]) => (typeDoubt === undefined ? [] : [[id, typeDoubt] as const])),
  };
});

const tagsBySite = oncePer((tags: ReadonlyMap<string, Listed<Tag>>) => countBy(tags.values(), ({ siteId }) => siteId));

const historyReport = oncePer((ledgers: ReadonlyMap<string, StoredHistory>): HistoryReport | null => {
  const series = [...ledgers.values()];
  if (series.length === 0) return null;
  const followed = series.filter(({ state }) => state === "following");
  const unreadable = [...ledgers].flatMap(([key, held]) => unreadableSeries(key, held) ?? []);
  return {
    series: series.length,
    complete: followed.filter(isComplete).length,
    withoutLog: series.filter(({ state }) => state === "no-log").length,
    toldUntil: earliest(followed.map(({ watermark }) => watermark)),
    unreadableCount: unreadable.length,
    unreadable: unreadable.slice(0, UNREADABLE_NAMED),
  };
});

function unreadableSeries(series: string, { spans, refusal }: StoredHistory): UnreadableSeries | null {
  // A state written before has neither.
  const words = [...(spans ?? []), ...(refusal ? [refusal] : [])].filter(({ reason }) => reason === "unreadable");
  const since = earliest(words.flatMap(({ at }) => at ?? []));
  return since === null ? null : { series, since, said: words.find(({ at }) => at === since)?.said ?? "" };
}

/** Active as far as anybody knows: an alarm that a listing missed is active until there is evidence. */
export function isActive(held: StoredAlarm): boolean {
  return held.state === "active" || held.state === "missing";
}

function countBy<T, K>(items: Iterable<T>, key: (item: T) => K): Map<K, number> {
  const counts = new Map<K, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}

/** The earliest of some times in UTC, all in the same form. */
function earliest(times: readonly string[]): string | null {
  return times.reduce<string | null>((first, time) => (first === null || time < first ? time : first), null);
}

function latest(times: readonly string[]): string | null {
  return times.reduce<string | null>((last, time) => (last === null || time > last ? time : last), null);
}
