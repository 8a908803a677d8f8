import type { Site, Tag } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type {
  DayAccount,
  DaySealedFact,
  SeriesAccount,
  SeriesStatement,
  WaitingSeries,
} from "../../../core/model/history-facts.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { bucketStart, bucketsIn, type Range } from "../history/buckets.ts";
import { type LedgerRange, rangesIn } from "../history/ledger-ranges.ts";
import type { Series } from "../history/series.ts";
import {
  type AccountedSeries,
  commonReach,
  DAY_MS,
  type DayCount,
  type DayCounts,
  type Days,
  dateOf,
  isWanted,
  type Reach,
  reachOf,
  wantedFrom,
} from "./days.ts";

/** Message of the service and its time, UTC. */
export interface Statement {
  readonly said: string | null;
  readonly at: string | null;
}

export interface SeriesDay extends DayAccount {
  /** Reason of pending buckets; null without any. */
  readonly why: WaitingSeries["why"] | null;
  /** Last statement about buckets without a log, and about refused ones; null without any. */
  readonly noLog: Statement | null;
  readonly refusal: Statement | null;
}

const EMPTY_ACCOUNT: DayAccount = {
  expected: 0,
  had: 0,
  null: 0,
  absent: 0,
  withoutLog: 0,
  refused: 0,
  pending: 0,
  notWanted: 0,
};

export function addAccounts(a: DayAccount, b: DayAccount): DayAccount {
  return {
    expected: a.expected + b.expected,
    had: a.had + b.had,
    null: a.null + b.null,
    absent: a.absent + b.absent,
    withoutLog: a.withoutLog + b.withoutLog,
    refused: a.refused + b.refused,
    pending: a.pending + b.pending,
    notWanted: a.notWanted + b.notWanted,
  };
}

/**
 * Returns the state of the buckets of a series that begin in a UTC day. `count` is the number of points of that day.
 * Pure.
 */
export function accountOf(series: AccountedSeries, day: number, count: DayCount | undefined, nowMs: number): SeriesDay {
  const { ledger } = series;
  const { resolution, timeZone } = ledger;
  const buckets = (range?: Range) => bucketsIn(day, ledger, range);
  const opensAt = isWanted(series) ? wantedFrom(ledger) : Number.POSITIVE_INFINITY;
  const opened = (range: Range): Range => ({ ...range, fromMs: Math.max(range.fromMs, opensAt) });
  let [answered, withoutLog, refused, coveredOpened] = [0, 0, 0, 0];
  let noLog: Statement | null = null;
  let refusal: Statement | null = null;
  for (const span of rangesIn(ledger.spans)) {
    if (span.toMs <= day * DAY_MS || span.fromMs >= (day + 1) * DAY_MS) continue;
    const covered = buckets(span);
    if (covered === 0) continue;
    coveredOpened += buckets(opened(span));
    if (span.why === "no-log") {
      withoutLog += covered;
      noLog = statementOf(span);
    } else if (span.why === "refused") {
      refused += covered;
      refusal = statementOf(span);
    } else answered += covered;
  }
  const theDay = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS };
  const watermarkMs = Date.parse(ledger.watermark);
  let pending = buckets(opened(theDay)) - coveredOpened;
  if (pending > 0 && ledger.state === "no-log") {
    withoutLog += pending;
    noLog = ledger.refusal === null ? (noLog ?? { said: null, at: null }) : statementOf(ledger.refusal);
    pending = 0;
  } else if (pending > 0 && ledger.refusal !== null) {
    // Following or log discovery was refused; the past before it may still be fetched.
    const closedMs = Math.min(theDay.toMs, bucketStart(nowMs - series.rules.graceMs, { resolution, timeZone }));
    const front = ledger.state === "following" ? Math.max(theDay.fromMs, watermarkMs) : theDay.fromMs;
    const most = buckets(opened({ fromMs: front, toMs: closedMs }));
    const ofFront = Math.min(pending, most);
    refused += ofFront;
    pending -= ofFront;
    if (ofFront > 0) refusal = statementOf(ledger.refusal);
  }
  // A service that samples may have more points than there are buckets.
  const had = Math.min(answered, count?.had ?? 0);
  const nulls = Math.min(answered - had, count?.null ?? 0);
  const expected = answered + withoutLog + refused + pending;
  return {
    expected,
    had,
    null: nulls,
    absent: answered - had - nulls,
    withoutLog,
    refused,
    pending,
    notWanted: buckets() - expected,
    why: pending === 0 ? null : reasonOf(series, day, watermarkMs, nowMs),
    noLog,
    refusal,
  };
}

function statementOf({ said, at }: Pick<LedgerRange, "said" | "at">): Statement {
  return { said: said ?? null, at: at ?? null };
}

function reasonOf(
  { ledger, rules, located }: AccountedSeries,
  day: number,
  watermarkMs: number,
  nowMs: number,
): WaitingSeries["why"] {
  if (located.outOfSight === "site") return "out-of-scope";
  if (ledger.state === "unproven") return "unproven";
  const endMs = (day + 1) * DAY_MS;
  if (watermarkMs >= endMs) return "backfill";
  const closedMs = bucketStart(nowMs - rules.graceMs, rules);
  return closedMs > watermarkMs ? "behind" : watermarkMs < day * DAY_MS || closedMs < endMs ? "open" : "backfill";
}

/** A series of a site, as input of its account. */
export interface SiteSeries extends AccountedSeries {
  readonly total: boolean;
  readonly located: AccountedSeries["located"] & { readonly tag: Tag; readonly siteId: number };
}

/** Account of one UTC day of a site. */
export interface SiteDay {
  readonly account: DayAccount;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  readonly withoutLog: readonly SeriesStatement[];
  readonly refused: readonly SeriesStatement[];
}

/** Most series that are named, of each kind. */
const NAMED_MAX = 200;

/** Adds up the accounts of the series of a site. */
export interface SiteDayLedger {
  add(series: SiteSeries, count: DayCount | undefined, nowMs: number): SeriesDay;
  done(): SiteDay;
}

export function createSiteDay(day: number): SiteDayLedger {
  let account = EMPTY_ACCOUNT;
  let all = 0;
  const groups = new Map<string, SeriesAccount>();
  const withoutLog: SeriesStatement[] = [];
  const refused: SeriesStatement[] = [];
  return {
    add(series, count, nowMs) {
      const own = accountOf(series, day, count, nowMs);
      const { ledger, total, located } = series;
      if (own.expected === 0) return own;
      account = addAccounts(account, own);
      all++;
      const { resolution, timeZone } = ledger;
      const key = `${resolution} ${timeZone} ${total}`;
      const group = groups.get(key) ?? { ...EMPTY_ACCOUNT, resolution, timeZone, total, series: 0 };
      groups.set(key, { ...group, ...addAccounts(group, own), series: group.series + 1 });
      const named = (buckets: number, word: Statement | null): SeriesStatement => ({
        ...{ tagId: located.tag.id, resolution, total, buckets },
        ...{ said: word?.said ?? null, at: word?.at ?? null },
      });
      if (own.withoutLog > 0) withoutLog.push(named(own.withoutLog, own.noLog));
      if (own.refused > 0) refused.push(named(own.refused, own.refusal));
      return own;
    },
    done: () => ({ account, series: all, byResolution: [...groups.values()], withoutLog, refused }),
  };
}

export function dayFinalized(
  site: Site,
  day: number,
  { account, series, byResolution, withoutLog, refused }: SiteDay,
  revision: number,
  revised: number,
): DaySealedFact {
  return {
    site,
    date: dateOf(day),
    timeZones: [...new Set(byResolution.map(({ timeZone }) => timeZone))],
    revision,
    revised,
    series,
    ...account,
    byResolution,
    seriesWithoutLog: withoutLog.slice(0, NAMED_MAX),
    seriesWithoutLogCount: withoutLog.length,
    seriesRefused: refused.slice(0, NAMED_MAX),
    seriesRefusedCount: refused.length,
  };
}
/** Returns null if no bucket begins in these days, as on six of seven days of a weekly series. */
export function seriesCompleteEvent(
  series: Series,
  source: string,
  { from, until }: Days,
  counts: DayCounts,
  nowMs: number,
): Event<"history-complete"> | null {
  const { located, ledger, total } = series;
  const { resolution, timeZone } = ledger;
  let sum = EMPTY_ACCOUNT;
  for (let day = from; day < until; day++) sum = addAccounts(sum, accountOf(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const days = { firstDate: dateOf(from), lastDate: dateOf(until - 1) };
  return makeEvent({
    type: "history-complete",
    source: sourceUri(source),
    // The subject of the history itself, so that sinks which order by subject deliver it after the history.
    subject: `${subjectOf("tag", located.siteId, located.tag.id)}/${total ? "total" : "history"}/${resolution}`,
    time: isoUtc(nowMs),
    siteId: located.siteId,
    data: { tag: located.tag, resolution, timeZone, total, ...days, ...sum },
    facts: [resolution, timeZone, days.firstDate, days.lastDate, sum.had, sum.null, sum.withoutLog],
  });
}

/** Common reach of the series of a site, and of each group with the same resolution, zone and kind. */
export interface SiteReach {
  reach: Reach;
  lookBackMs: number;
  readonly groups: Map<string, Group>;
}

export interface Group {
  readonly first: Series;
  reach: Reach;
  size: number;
}

export function groupName({ rules, total }: Series): string {
  return total ? `${rules.resolution} ${rules.timeZone} total` : `${rules.resolution} ${rules.timeZone}`;
}

/** Returns the reach of each site whose tags are all known. */
export function reachOfSites(
  all: readonly Series[],
  knowsTagsOf: (siteId: number) => boolean,
): ReadonlyMap<number, SiteReach> {
  const sites = new Map<number, SiteReach>();
  for (const series of all) {
    const { siteId } = series.located;
    const reach = reachOf(series);
    const site = sites.get(siteId) ?? { reach, lookBackMs: 0, groups: new Map<string, Group>() };
    const name = groupName(series);
    const group = site.groups.get(name) ?? { first: series, reach, size: 0 };
    site.reach = commonReach(site.reach, reach);
    site.lookBackMs = Math.max(site.lookBackMs, series.rules.lookBackMs);
    group.reach = commonReach(group.reach, reach);
    group.size++;
    if (group.size === 1) site.groups.set(name, group);
    if (!sites.has(siteId)) sites.set(siteId, site);
  }
  for (const siteId of sites.keys()) if (!knowsTagsOf(siteId)) sites.delete(siteId);
  return sites;
}
