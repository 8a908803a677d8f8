import type { Gateway, Site, Tag } from "../building.ts";
import type { QuotaStatus } from "../source/source.ts";
import { documentSet } from "../store/store.ts";
import type { PlanReport } from "../sync/plan/report.ts";
import {
  type Held,
  type HeldAlarm,
  type HeldHistory,
  type HeldLeftOut,
  type HeldPoll,
  type HeldQuarantine,
  type HeldToken,
  type HeldUnavailability,
  type HeldValue,
  syncSet,
} from "../sync/snapshot.ts";
import { type Remembered, STEADY_MS, WATCHED_MS } from "./remembered.ts";

/** What is known of one source. Times are UTC. */
export interface SourceReport {
  readonly name: string;
  readonly origin: string;
  /** Null when no worker is running. */
  readonly quota: QuotaStatus | null;
  /** The service as a whole, or features of it, that are not to be had; empty while all is well. */
  readonly unavailable: readonly Unavailable[];
  /** What the service says about the token; null before it was asked. */
  readonly token: TokenReport | null;
  readonly jobs: readonly (HeldPoll & { readonly name: string })[];
  readonly sites: readonly SiteReport[];
  readonly counts: {
    readonly sites: number;
    readonly tags: number;
    readonly values: number;
    /** Of the values, how many could not be read. */
    readonly bad: number;
    readonly alarms: number;
  };
  /** When the value that was read longest ago was read; null before the first. */
  readonly oldestValue: string | null;
  /** Null while no history is followed. */
  readonly history: HistoryReport | null;
  /** Our clock minus the service's, milliseconds; null when no worker is running or no reply said. */
  readonly clockSkewMs: number | null;
  /** Tags that made every request with them fail: each is asked alone once a day. */
  readonly setAside: readonly TagSetAside[];
  /** Tags of which the replies say nothing that is a value, though they were asked for. */
  readonly leftOut: readonly { readonly id: string; readonly since: string; readonly reason: string }[];
  /** What the quota buys, at most 15 s old; null when no worker is running. `plenum plan` knows it without one. */
  readonly plan: PlanReport | null;
}

export interface TagSetAside {
  readonly id: string;
  readonly displayName: string;
  /** When it is asked again, UTC. */
  readonly until: string;
  readonly reason: string;
}

/** What only a running worker knows of a source. */
export interface LiveSource {
  readonly quota: QuotaStatus | null;
  readonly clockSkewMs: number | null;
  plan(): Promise<PlanReport>;
}

export interface Unavailable {
  /** The job whose feature it is; null for the service as a whole. */
  readonly job: string | null;
  readonly since: string;
  readonly reason: string;
}

export interface TokenReport {
  readonly name: string;
  readonly expiresAt: string | null;
  readonly checkedAt: string;
}

export interface SiteReport {
  readonly id: number;
  readonly displayName: string;
  readonly tags: number;
  readonly gateways: { readonly online: number; readonly all: number };
  /** Active alarms by priority. */
  readonly alarms: Readonly<Record<string, number>>;
}

/** A series is a tag at one resolution. */
export interface HistoryReport {
  readonly series: number;
  /** Series whose backfill has reached its end. */
  readonly complete: number;
  /** Series for which the service has no log. */
  readonly withoutLog: number;
  /** Up to when every followed series is told; null while none is followed. */
  readonly toldUntil: string | null;
}

export async function sourceReport(
  remembered: Remembered,
  { name, origin }: { readonly name: string; readonly origin: string },
  live: LiveSource | null,
): Promise<SourceReport> {
  const watched = <T>(set: string) => remembered.documents<T>(set, WATCHED_MS);
  const steady = <T>(set: string) => remembered.documents<T>(set, STEADY_MS);
  const [sites, tags, gateways, alarms, values, polls, unavailable, tokens, history, setAside, leftOut] =
    await Promise.all([
      watched<Held<Site>>(documentSet("site", name)),
      steady<Held<Tag>>(documentSet("tag", name)),
      watched<Held<Gateway>>(documentSet("gateway", name)),
      watched<HeldAlarm>(documentSet("alarm", name)),
      watched<HeldValue>(documentSet("value", name)),
      watched<HeldPoll>(documentSet("poll", name)),
      watched<HeldUnavailability>(syncSet("availability", name)),
      watched<HeldToken>(documentSet("token", name)),
      steady<HeldHistory>(documentSet("history", name)),
      watched<HeldQuarantine>(syncSet("quarantine", name)),
      watched<HeldLeftOut>(syncSet("left-out", name)),
    ]);
  const tagsOf = countBy(tags.values(), (held) => held.siteId);
  const active = [...alarms.values()].filter(isActive);
  const siteReports = [...sites.values()].map(({ value: site }): SiteReport => {
    const own = [...gateways.values()].filter(
      (held) => held.siteId === site.id && held.missingSince === null,
    );
    return {
      id: site.id,
      displayName: site.displayName,
      tags: tagsOf.get(site.id) ?? 0,
      gateways: { online: own.filter((held) => held.value.online === true).length, all: own.length },
      alarms: Object.fromEntries(
        countBy(
          active.filter((held) => held.alarm.site.id === site.id),
          (held) => held.alarm.trigger.priority,
        ),
      ),
    };
  });
  const token = tokens.get("token");
  return {
    name,
    origin,
    quota: live?.quota ?? null,
    unavailable: [...unavailable].map(([subject, { since, reason }]) => ({
      job: subject.startsWith("feature/") ? subject.slice("feature/".length) : null,
      since,
      reason,
    })),
    token:
      token === undefined
        ? null
        : { name: token.info.name, expiresAt: token.info.expiresAt, checkedAt: token.checkedAt },
    jobs: [...polls].map(([job, poll]) => ({ name: job, ...poll })),
    sites: siteReports.toSorted((a, b) => a.id - b.id),
    counts: {
      sites: sites.size,
      tags: tags.size,
      values: values.size,
      bad: countBy(values.values(), (value) => value.quality).get("bad") ?? 0,
      alarms: active.length,
    },
    oldestValue: earliest([...values.values()].map(({ time }) => time)),
    history: historyReport([...history.values()]),
    clockSkewMs: live?.clockSkewMs ?? null,
    setAside: [...setAside].map(([id, { until, reason }]) => ({
      id,
      displayName: tags.get(id)?.value.displayName ?? id,
      until,
      reason,
    })),
    leftOut: [...leftOut].filter(([id]) => tags.has(id)).map(([id, one]) => ({ id, ...one })),
    plan: live === null ? null : await remembered.made(`plan of ${name}`, STEADY_MS, live.plan),
  };
}

function historyReport(series: readonly HeldHistory[]): HistoryReport | null {
  if (series.length === 0) return null;
  const followed = series.filter(({ state }) => state === "following");
  return {
    series: series.length,
    complete: followed.filter(({ reached, target }) => reached <= target).length,
    withoutLog: series.filter(({ state }) => state === "no-log").length,
    toldUntil: earliest(followed.map(({ watermark }) => watermark)),
  };
}

/** Active as far as anybody knows: an alarm that a listing missed is active until there is evidence. */
export function isActive(held: HeldAlarm): boolean {
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
