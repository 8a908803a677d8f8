import type { Site, Tag } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type {
  DayBucketCounts,
  DaySealedFact,
  SeriesAccount,
  SeriesStatement,
  WaitingSeries,
} from "../../../core/model/history-event-data.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { countBuckets, DAY_MS, parseTime, type TimeRange } from "../history/buckets.ts";
import { closedUntilMs } from "../history/ledger.ts";
import { type LedgerRange, toRanges } from "../history/ledger-ranges.ts";
import type { Series } from "../history/series-registry.ts";
import {
  type DayCount,
  type DayPointCounts,
  type DayRange,
  type DaySeries,
  dayDate,
  isHistoryWanted,
  wantedFrom,
} from "./complete-days.ts";

export interface ServiceStatement {
  readonly said: string | null;
  readonly at: string | null;
}

const EMPTY_SERVICE_STATEMENT: ServiceStatement = { said: null, at: null };

const toServiceStatement = ({ said, at }: Pick<LedgerRange, "said" | "at">) => ({ said: said ?? null, at: at ?? null });

export interface SeriesDay extends DayBucketCounts {
  readonly why: WaitingSeries["why"] | null;
  readonly noLog: ServiceStatement | null;
  readonly refusal: ServiceStatement | null;
}

const EMPTY_DAY_ACCOUNT = {
  expected: 0,
  had: 0,
  null: 0,
  absent: 0,
  withoutLog: 0,
  refused: 0,
  pending: 0,
  notWanted: 0,
};

function addAccounts(a: DayBucketCounts, b: DayBucketCounts): DayBucketCounts {
  const sum: { -readonly [name in keyof DayBucketCounts]: number } = { ...EMPTY_DAY_ACCOUNT };
  for (const countName of Object.keys(sum) as (keyof DayBucketCounts)[]) sum[countName] = a[countName] + b[countName];
  return sum;
}

export function countSeriesDay(series: DaySeries, day: number, count: DayCount | undefined, nowMs: number): SeriesDay {
  const { ledger, rules } = series;
  const dayTimeRange: TimeRange = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS };
  const buckets = (range: TimeRange) => countBuckets(day, ledger, range);
  const wantedFromMs = isHistoryWanted(series) ? wantedFrom(ledger) : Number.POSITIVE_INFINITY;
  const countWantedBuckets = ({ fromMs, toMs }: TimeRange) => buckets({ fromMs: Math.max(fromMs, wantedFromMs), toMs });
  let [answered, withoutLog, refused] = [0, 0, 0];
  let pending = countWantedBuckets(dayTimeRange);
  let noLog: ServiceStatement | null = null;
  let refusal: ServiceStatement | null = null;
  for (const ledgerRange of toRanges(ledger.spans)) {
    const coveredBuckets = buckets(ledgerRange);
    if (coveredBuckets === 0) continue;
    pending -= countWantedBuckets(ledgerRange);
    if (ledgerRange.why === "no-log") {
      withoutLog += coveredBuckets;
      noLog = toServiceStatement(ledgerRange);
    } else if (ledgerRange.why === "refused") {
      refused += coveredBuckets;
      refusal = toServiceStatement(ledgerRange);
    } else answered += coveredBuckets;
  }
  const watermarkMs = parseTime(ledger.watermark);
  if (pending > 0 && ledger.state === "no-log") {
    withoutLog += pending;
    noLog = ledger.refusal === null ? (noLog ?? EMPTY_SERVICE_STATEMENT) : toServiceStatement(ledger.refusal);
    pending = 0;
  } else if (pending > 0 && ledger.refusal !== null) {
    // The service refused new buckets or the log discovery; older buckets may still be fetched.
    const fromMs = ledger.state === "following" ? Math.max(dayTimeRange.fromMs, watermarkMs) : dayTimeRange.fromMs;
    const refusedNewBuckets = Math.min(
      pending,
      countWantedBuckets({ fromMs, toMs: Math.min(dayTimeRange.toMs, closedUntilMs(rules, nowMs)) }),
    );
    refused += refusedNewBuckets;
    pending -= refusedNewBuckets;
    if (refusedNewBuckets > 0) refusal = toServiceStatement(ledger.refusal);
  }
  const had = Math.min(answered, count?.had ?? 0);
  const nullBuckets = Math.min(answered - had, count?.null ?? 0);
  const expected = answered + withoutLog + refused + pending;
  return {
    ...{ expected, had, null: nullBuckets, absent: answered - had - nullBuckets, withoutLog, refused, pending },
    notWanted: buckets(dayTimeRange) - expected,
    why: pending === 0 ? null : pendingBucketsReason(series, dayTimeRange, watermarkMs, nowMs),
    ...{ noLog, refusal },
  };
}

function pendingBucketsReason(
  { ledger, rules, located }: DaySeries,
  { fromMs, toMs }: TimeRange,
  watermarkMs: number,
  nowMs: number,
): WaitingSeries["why"] {
  if (located.outOfSight === "site") return "out-of-scope";
  if (ledger.state === "unproven") return "unproven";
  if (watermarkMs >= toMs) return "backfill";
  const bucketsClosedUntilMs = closedUntilMs(rules, nowMs);
  if (bucketsClosedUntilMs > watermarkMs) return "behind";
  return watermarkMs < fromMs || bucketsClosedUntilMs < toMs ? "open" : "backfill";
}

export interface SiteSeries extends DaySeries {
  readonly total: boolean;
  readonly located: DaySeries["located"] & { readonly tag: Tag; readonly siteId: number };
}

export interface SiteDayCounts {
  readonly account: DayBucketCounts;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  readonly withoutLog: readonly SeriesStatement[];
  readonly refused: readonly SeriesStatement[];
}

const MAX_LISTED_SERIES_PER_DAY = 200;

export function createSiteDay(day: number) {
  let account: DayBucketCounts = EMPTY_DAY_ACCOUNT;
  let count = 0;
  const groups = new Map<string, SeriesAccount>();
  const withoutLog: SeriesStatement[] = [];
  const refused: SeriesStatement[] = [];
  return {
    add(series: SiteSeries, counted: DayCount | undefined, nowMs: number): SeriesDay {
      const seriesDay = countSeriesDay(series, day, counted, nowMs);
      if (seriesDay.expected === 0) return seriesDay;
      const { ledger, total, located } = series;
      const { resolution, timeZone } = ledger;
      account = addAccounts(account, seriesDay);
      count++;
      const resolutionKey = seriesResolutionKey(series);
      const group = groups.get(resolutionKey) ?? { ...EMPTY_DAY_ACCOUNT, resolution, timeZone, total, series: 0 };
      groups.set(resolutionKey, { ...group, ...addAccounts(group, seriesDay), series: group.series + 1 });
      const buildSeriesStatement = (buckets: number, statement: ServiceStatement | null): SeriesStatement => ({
        ...{ tagId: located.tag.id, resolution, total, buckets },
        ...(statement ?? EMPTY_SERVICE_STATEMENT),
      });
      if (seriesDay.withoutLog > 0) withoutLog.push(buildSeriesStatement(seriesDay.withoutLog, seriesDay.noLog));
      if (seriesDay.refused > 0) refused.push(buildSeriesStatement(seriesDay.refused, seriesDay.refusal));
      return seriesDay;
    },
    done: (): SiteDayCounts => ({ account, series: count, byResolution: [...groups.values()], withoutLog, refused }),
  };
}

export function buildDayFact(
  site: Site,
  day: number,
  { account, series, byResolution, withoutLog, refused }: SiteDayCounts,
  revision: number,
  revised: number,
): DaySealedFact {
  return {
    site,
    date: dayDate(day),
    timeZones: [...new Set(byResolution.map(({ timeZone }) => timeZone))],
    ...{ revision, revised, series },
    ...account,
    byResolution,
    seriesWithoutLog: withoutLog.slice(0, MAX_LISTED_SERIES_PER_DAY),
    seriesWithoutLogCount: withoutLog.length,
    seriesRefused: refused.slice(0, MAX_LISTED_SERIES_PER_DAY),
    seriesRefusedCount: refused.length,
  };
}

/** Builds the `history-complete` event of a series; null if no bucket begins in these days. */
export function buildHistoryCompleteEvent(
  series: Series,
  source: string,
  { from, until }: DayRange,
  counts: DayPointCounts,
  nowMs: number,
): Event<"history-complete"> | null {
  const { located, ledger, total } = series;
  const { resolution, timeZone } = ledger;
  let sum: DayBucketCounts = EMPTY_DAY_ACCOUNT;
  for (let day = from; day < until; day++) sum = addAccounts(sum, countSeriesDay(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const dateRange = { firstDate: dayDate(from), lastDate: dayDate(until - 1) };
  // Use the subject of the history events, so that sinks that order by subject deliver this event after them.
  const subject = `${eventSubject("tag", located.siteId, located.tag.id)}/${total ? "total" : "history"}/${resolution}`;
  const data = { tag: located.tag, resolution, timeZone, total, ...dateRange, ...sum };
  const facts = [resolution, timeZone, dateRange.firstDate, dateRange.lastDate, sum.had, sum.null, sum.withoutLog];
  const eventFields = { source: sourceUri(source), subject, siteId: located.siteId, time: isoUtc(nowMs) };
  return makeEvent({ ...eventFields, type: "history-complete", data, facts });
}

export function seriesResolutionKey({ rules, total }: Pick<Series, "rules" | "total">): string {
  return `${rules.resolution} ${rules.timeZone}${total ? " total" : ""}`;
}
