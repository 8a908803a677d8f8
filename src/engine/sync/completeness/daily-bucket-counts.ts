import type { Site } from "../../../core/model/building.ts";
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
import type { Series, SeriesLedger } from "../history/series-registry.ts";
import {
  type CountsByDay,
  type DayCount,
  type DayRange,
  dayDate,
  historyStart,
  isHistoryWanted,
  type SeriesState,
} from "./complete-days.ts";

export interface ServiceMessage {
  readonly said: string | null;
  readonly at: string | null;
}

const NO_SERVICE_MESSAGE: ServiceMessage = { said: null, at: null };

const toServiceMessage = ({ said, at }: Pick<LedgerRange, "said" | "at">) => ({ said: said ?? null, at: at ?? null });

export type DayBuckets = Readonly<ReturnType<typeof countSeriesDay>>;

const ZERO_BUCKET_COUNTS = {
  expected: 0,
  had: 0,
  null: 0,
  absent: 0,
  withoutLog: 0,
  refused: 0,
  pending: 0,
  notWanted: 0,
};

function sumCounts(a: DayBucketCounts, b: DayBucketCounts): DayBucketCounts {
  const sum: { -readonly [name in keyof DayBucketCounts]: number } = { ...ZERO_BUCKET_COUNTS };
  for (const countName of Object.keys(sum) as (keyof DayBucketCounts)[]) sum[countName] = a[countName] + b[countName];
  return sum;
}

export function countSeriesDay(series: SeriesState, day: number, count: DayCount | undefined, nowMs: number) {
  const { ledger, rules } = series;
  const dayTimeRange: TimeRange = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS };
  const countIn = (range: TimeRange) => countBuckets(day, ledger, range);
  const wantedFromMs = isHistoryWanted(series) ? historyStart(ledger) : Number.POSITIVE_INFINITY;
  const countWantedBuckets = ({ fromMs, toMs }: TimeRange) => countIn({ fromMs: Math.max(fromMs, wantedFromMs), toMs });
  let [answeredBuckets, withoutLog, refused] = [0, 0, 0];
  let pending = countWantedBuckets(dayTimeRange);
  let noLog: ServiceMessage | null = null;
  let refusal: ServiceMessage | null = null;
  for (const ledgerRange of toRanges(ledger.spans)) {
    const coveredBuckets = countIn(ledgerRange);
    if (coveredBuckets === 0) continue;
    pending -= countWantedBuckets(ledgerRange);
    if (ledgerRange.why === "no-log") {
      withoutLog += coveredBuckets;
      noLog = toServiceMessage(ledgerRange);
    } else if (ledgerRange.why === "refused") {
      refused += coveredBuckets;
      refusal = toServiceMessage(ledgerRange);
    } else answeredBuckets += coveredBuckets;
  }
  const watermarkMs = parseTime(ledger.watermark);
  if (pending > 0 && ledger.state === "no-log") {
    withoutLog += pending;
    noLog = ledger.refusal === null ? (noLog ?? NO_SERVICE_MESSAGE) : toServiceMessage(ledger.refusal);
    pending = 0;
  } else if (pending > 0 && ledger.refusal !== null) {
    // In the state `following`, the service refused only buckets after the watermark: older ones may still be fetched.
    const fromMs = ledger.state === "following" ? Math.max(dayTimeRange.fromMs, watermarkMs) : dayTimeRange.fromMs;
    const refusedNewBuckets = Math.min(
      pending,
      countWantedBuckets({ fromMs, toMs: Math.min(dayTimeRange.toMs, closedUntilMs(rules, nowMs)) }),
    );
    refused += refusedNewBuckets;
    pending -= refusedNewBuckets;
    if (refusedNewBuckets > 0) refusal = toServiceMessage(ledger.refusal);
  }
  const had = Math.min(answeredBuckets, count?.had ?? 0);
  const nullBuckets = Math.min(answeredBuckets - had, count?.null ?? 0);
  const expected = answeredBuckets + withoutLog + refused + pending;
  return {
    ...{ expected, had, null: nullBuckets, absent: answeredBuckets - had - nullBuckets, withoutLog, refused, pending },
    notWanted: countIn(dayTimeRange) - expected,
    why: pending === 0 ? null : pendingBucketsReason(series, dayTimeRange, watermarkMs, nowMs),
    ...{ noLog, refusal },
  };
}

function pendingBucketsReason(
  { ledger, rules, siteTag }: SeriesState,
  { fromMs, toMs }: TimeRange,
  watermarkMs: number,
  nowMs: number,
): WaitingSeries["why"] {
  if (siteTag.missing === "site") return "out-of-scope";
  if (ledger.state === "unproven") return "unproven";
  if (watermarkMs >= toMs) return "backfill";
  const bucketsClosedUntilMs = closedUntilMs(rules, nowMs);
  if (bucketsClosedUntilMs > watermarkMs) return "behind";
  return watermarkMs < fromMs || bucketsClosedUntilMs < toMs ? "open" : "backfill";
}

const MAX_LISTED_SERIES_PER_DAY = 200;

export function createDayCounter(day: number) {
  let account: DayBucketCounts = ZERO_BUCKET_COUNTS;
  let seriesCount = 0;
  const groups = new Map<string, SeriesAccount>();
  const withoutLog: SeriesStatement[] = [];
  const refused: SeriesStatement[] = [];
  return {
    add(series: SeriesLedger, dayCount: DayCount | undefined, nowMs: number): DayBuckets {
      const dayBuckets = countSeriesDay(series, day, dayCount, nowMs);
      if (dayBuckets.expected === 0) return dayBuckets;
      const { ledger, total, siteTag } = series;
      const { resolution, timeZone } = ledger;
      account = sumCounts(account, dayBuckets);
      seriesCount++;
      const resolutionKey = seriesResolutionKey(series);
      const group = groups.get(resolutionKey) ?? { ...ZERO_BUCKET_COUNTS, resolution, timeZone, total, series: 0 };
      groups.set(resolutionKey, { ...group, ...sumCounts(group, dayBuckets), series: group.series + 1 });
      const buildSeriesStatement = (buckets: number, statement: ServiceMessage | null): SeriesStatement => ({
        ...{ tagId: siteTag.tag.id, resolution, total, buckets },
        ...(statement ?? NO_SERVICE_MESSAGE),
      });
      if (dayBuckets.withoutLog > 0) withoutLog.push(buildSeriesStatement(dayBuckets.withoutLog, dayBuckets.noLog));
      if (dayBuckets.refused > 0) refused.push(buildSeriesStatement(dayBuckets.refused, dayBuckets.refusal));
      return dayBuckets;
    },
    buildCounts: () => ({ account, series: seriesCount, byResolution: [...groups.values()], withoutLog, refused }),
  };
}

export type SiteDayCounts = ReturnType<ReturnType<typeof createDayCounter>["buildCounts"]>;

export function daySealedFact(
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
  { fromDay, untilDay }: DayRange,
  counts: CountsByDay,
  nowMs: number,
): Event<"history-complete"> | null {
  const { siteTag, ledger, total } = series;
  const { resolution, timeZone } = ledger;
  let sum: DayBucketCounts = ZERO_BUCKET_COUNTS;
  for (let day = fromDay; day < untilDay; day++)
    sum = sumCounts(sum, countSeriesDay(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const dateRange = { firstDate: dayDate(fromDay), lastDate: dayDate(untilDay - 1) };
  // Use the subject of the history events, so that sinks that order by subject deliver this event after them.
  const subject = `${eventSubject("tag", siteTag.siteId, siteTag.tag.id)}/${total ? "total" : "history"}/${resolution}`;
  const data = { tag: siteTag.tag, resolution, timeZone, total, ...dateRange, ...sum };
  const facts = [resolution, timeZone, dateRange.firstDate, dateRange.lastDate, sum.had, sum.null, sum.withoutLog];
  const eventFields = { source: sourceUri(source), subject, siteId: siteTag.siteId, time: isoUtc(nowMs) };
  return makeEvent({ ...eventFields, type: "history-complete", data, facts });
}

export function seriesResolutionKey({ rules, total }: Pick<Series, "rules" | "total">): string {
  return `${rules.resolution} ${rules.timeZone}${total ? " total" : ""}`;
}
