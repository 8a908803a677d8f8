import type { TagPoints } from "../../../core/codec/points.ts";
import type { TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import {
  type BucketRules,
  bucketStart,
  bucketStartFinder,
  DAY_MS,
  memoizeByKey,
  mergeTimeRanges,
  parseTime,
  subtractRanges,
  type TimeRange,
} from "../history/buckets.ts";
import { type SeriesRules, subtractTimeByRules } from "../history/ledger.ts";
import { fetchedRanges, toRanges } from "../history/ledger-ranges.ts";
import { type StoredDayCounts, type StoredLedger, syncSet } from "../stored-documents.ts";

/** Range of UTC days, as days since 1970: 20759 is 2026-11-02. A bucket belongs to the UTC day in which it begins. */
export interface DayRange {
  readonly from: number;
  readonly until: number;
}

export const utcDay = (atMs: number): number => Math.floor(atMs / DAY_MS);
export const dayDate = (day: number): string => isoUtc(day * DAY_MS).slice(0, 10);
export const dateToDay = (date: string): number => utcDay(Date.parse(`${date}T00:00:00Z`));

const lastBucketStartBefore = memoizeByKey((resolution: BucketRules["resolution"]) =>
  memoizeByKey((timeZone: string) => memoizeByKey((atMs: number) => bucketStart(atMs - 1, { resolution, timeZone }))),
);

/** Returns the days whose buckets all begin within a range. The first day may begin at `opensAtMs`. */
function completeDays({ fromMs, toMs }: TimeRange, opensAtMs: number, { resolution, timeZone }: BucketRules): DayRange {
  const from = fromMs <= opensAtMs ? utcDay(fromMs) : utcDay(lastBucketStartBefore(resolution)(timeZone)(fromMs)) + 1;
  return { from, until: utcDay(toMs) };
}

/**
 * Values and nulls that the service returned for a series in one UTC day. Stored as a text: `20750+6:288,20757:280.8` is
 * a week of 288 values a day, and a day with 280 values and 8 nulls.
 */
export interface DayCount {
  readonly had: number;
  readonly null: number;
}

export type CountsByDay = ReadonlyMap<number, DayCount>;

interface EqualDaysCount extends DayCount {
  readonly first: number;
  readonly last: number;
}

function parseDayCounts(text: string): readonly EqualDaysCount[] {
  if (text === "") return [];
  return text.split(",").map((entry) => {
    const [days = "", counts = ""] = entry.split(":");
    const [first, moreDays = 0] = days.split("+").map(Number);
    const [valueCount, nulls = 0] = counts.split(".").map(Number);
    return { first: first ?? 0, last: (first ?? 0) + moreDays, had: valueCount ?? 0, null: nulls };
  });
}

export function countsBetween(text: string, from: number, until: number): CountsByDay {
  const counts = new Map<number, DayCount>();
  for (const { first, last, had, null: nulls } of parseDayCounts(text))
    for (let day = Math.max(first, from); day <= Math.min(last, until - 1); day++)
      counts.set(day, { had, null: nulls });
  return counts;
}

export function countOfDay(text: string, day: number): DayCount | undefined {
  return parseDayCounts(text).find(({ first, last }) => first <= day && day <= last);
}

export function mergeCounts(text: string, moreCounts: CountsByDay): string {
  if (moreCounts.size === 0) return text;
  const counts = new Map(allDayCounts(text));
  for (const [day, { had, null: nulls }] of moreCounts) {
    const previousCount = counts.get(day) ?? { had: 0, null: 0 };
    counts.set(day, { had: Math.max(0, previousCount.had + had), null: Math.max(0, previousCount.null + nulls) });
  }
  return formatDayCounts(counts);
}

export const allDayCounts = (text: string) => countsBetween(text, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);

export function splitDayCounts(text: string, day: number): readonly [before: string, rest: string] {
  return [
    formatDayCounts(countsBetween(text, Number.NEGATIVE_INFINITY, day)),
    formatDayCounts(countsBetween(text, day, Number.POSITIVE_INFINITY)),
  ];
}

function formatDayCounts(counts: CountsByDay): string {
  const equalDaysEntries: { first: number; last: number; counts: string }[] = [];
  for (const [day, { had, null: nulls }] of [...counts].sort(([a], [b]) => a - b)) {
    const dayCountText = nulls === 0 ? `${had}` : `${had}.${nulls}`;
    const previousDaysEntry = equalDaysEntries.at(-1);
    if (previousDaysEntry?.last === day - 1 && previousDaysEntry.counts === dayCountText) previousDaysEntry.last = day;
    else equalDaysEntries.push({ first: day, last: day, counts: dayCountText });
  }
  return equalDaysEntries
    .map(({ first, last, counts: countText }) => `${first}${last > first ? `+${last - first}` : ""}:${countText}`)
    .join();
}

export interface EmittedHistoryPoints {
  readonly newPoints: TagPoints;
  readonly revisedPoints: TagPoints;
  readonly valuesBefore: ReadonlyMap<number, TagValue>;
}

export function countEmittedPoints(
  { newPoints, revisedPoints, valuesBefore }: EmittedHistoryPoints,
  rules: BucketRules,
): ReadonlyMap<number, DayCount & { readonly points: number }> {
  const countsByDay = new Map<number, { had: number; null: number; points: number }>();
  const findBucketStart = bucketStartFinder(rules);
  const addToDay = (startMs: number, had: number, nulls: number) => {
    const day = utcDay(startMs);
    const dayCount = countsByDay.get(day) ?? { had: 0, null: 0, points: 0 };
    countsByDay.set(day, dayCount);
    dayCount.had += had;
    dayCount.null += nulls;
    dayCount.points++;
  };
  let lastBucketStartMs = Number.NaN;
  for (let pointIndex = 0; pointIndex < newPoints.length; pointIndex++) {
    const bucketStartMs = findBucketStart(newPoints.timeMs(pointIndex));
    if (bucketStartMs === lastBucketStartMs) continue;
    lastBucketStartMs = bucketStartMs;
    const isPointNull = Number.isNaN(newPoints.valueCode(pointIndex));
    addToDay(bucketStartMs, Number(!isPointNull), Number(isPointNull));
  }
  for (let pointIndex = 0; pointIndex < revisedPoints.length; pointIndex++) {
    const pointTimeMs = revisedPoints.timeMs(pointIndex);
    const replacedNullCount =
      Number(valuesBefore.get(pointTimeMs) == null) - Number(revisedPoints.value(pointIndex) === null);
    addToDay(findBucketStart(pointTimeMs), replacedNullCount, -replacedNullCount);
  }
  return countsByDay;
}

export interface SeriesState {
  readonly ledger: StoredLedger;
  readonly rules: SeriesRules;
  readonly siteTag: { readonly outOfSight?: "site" | "tag" };
}

export const historyStart = ({ wished, since }: StoredLedger): number => Math.min(parseTime(wished), parseTime(since));

/** False for tags that left the lists, and for series that only `plenum backfill` requested. */
export function isHistoryWanted({ rules, siteTag }: Pick<SeriesState, "rules" | "siteTag">): boolean {
  return siteTag.outOfSight !== "tag" && Number.isFinite(rules.everyMs);
}

/** UTC day numbers between which a series has no gap. Ends are exclusive; infinity means no limit. */
export type GaplessDays = Readonly<typeof ALL_DAYS>;

/** A refusal is final after three refusals in a row, within 70 minutes; before, it may be temporary. */
const REFUSALS_UNTIL_FINAL = 3;
const MIN_DAY = Number.NEGATIVE_INFINITY;
const MAX_DAY = Number.POSITIVE_INFINITY;
const ALL_DAYS = {
  firstWantedDay: MAX_DAY,
  from: MIN_DAY,
  until: MAX_DAY,
  finalizableFrom: MIN_DAY,
  finalizableUntil: MAX_DAY,
};

const gaplessDaysCache = new WeakMap<
  StoredLedger,
  { readonly rules: SeriesRules; readonly gaplessDays: GaplessDays }
>();

export function gaplessDays(series: SeriesState & { readonly total: boolean }): GaplessDays {
  const { ledger, rules } = series;
  if (!isHistoryWanted(series)) return ALL_DAYS;
  const cachedGaplessDays = gaplessDaysCache.get(ledger);
  if (cachedGaplessDays?.rules === rules) return cachedGaplessDays.gaplessDays;
  const computedDays = computeGaplessDays(ledger, rules, series.total);
  gaplessDaysCache.set(ledger, { rules, gaplessDays: computedDays });
  return computedDays;
}

function computeGaplessDays(ledger: StoredLedger, rules: SeriesRules, total: boolean): GaplessDays {
  const startMs = historyStart(ledger);
  const firstWantedDay = utcDay(startMs);
  const countedFromDay = firstCountedDay(ledger);
  if (ledger.state === "no-log") return { ...ALL_DAYS, firstWantedDay, finalizableFrom: countedFromDay };
  const watermarkMs = parseTime(ledger.watermark);
  const completeDaysAtWatermark = (ranges: readonly TimeRange[]) => {
    const foundRange = ranges.find(({ fromMs, toMs }) => fromMs <= watermarkMs && toMs >= watermarkMs);
    const { from, until } = completeDays(foundRange ?? { fromMs: watermarkMs, toMs: watermarkMs }, startMs, ledger);
    return { from: from <= firstWantedDay ? MIN_DAY : from, until };
  };
  const fetchedTimeRanges = fetchedRanges(ledger.spans);
  const fetchedDays = completeDaysAtWatermark(fetchedTimeRanges);
  const isRefusalFinal = ({ times = 0 }) => times >= REFUSALS_UNTIL_FINAL;
  const finalRefusedRanges = toRanges(ledger.spans).filter((span) => span.why === "refused" && isRefusalFinal(span));
  const finalDays = completeDaysAtWatermark(mergeTimeRanges([...fetchedTimeRanges, ...finalRefusedRanges]));
  const isRefused = ledger.refusal !== null && isRefusalFinal(ledger.refusal);
  const lateDataUntilDay = isRefused || total ? MAX_DAY : findLateDataUntilDay(ledger, rules);
  return {
    firstWantedDay,
    ...fetchedDays,
    finalizableFrom: Math.max(
      countedFromDay,
      isRefused && ledger.state === "unproven" ? firstWantedDay : finalDays.from,
    ),
    finalizableUntil: Math.min(isRefused ? MAX_DAY : finalDays.until, lateDataUntilDay),
  };
}

/** Returns the first UTC day that Plenum has not yet read again for late data. */
function findLateDataUntilDay({ dailyAt, weeklyAt, rereadFrom }: StoredLedger, rules: SeriesRules): number {
  const { lookBackMs } = rules;
  const [dailyMs, weeklyMs] = [parseTime(dailyAt), parseTime(weeklyAt)];
  const readMs = subtractTimeByRules(lookBackMs <= DAY_MS ? Math.max(dailyMs, weeklyMs) : weeklyMs, lookBackMs, rules);
  const lateDataUntilMs = rereadFrom === null ? readMs : Math.min(readMs, parseTime(rereadFrom));
  return utcDay(bucketStart(lateDataUntilMs, rules));
}

function firstCountedDay({ countedFrom: from, days, spans }: StoredLedger): number {
  // Ledgers of an earlier version have no counts.
  if (from === undefined) return days === undefined && spans.length > 0 ? MAX_DAY : MIN_DAY;
  return Math.ceil(parseTime(from) / DAY_MS);
}

export const DAY_RETENTION_DAYS = 1_100;

export function isCountedDay(ledger: StoredLedger, day: number, nowMs: number): boolean {
  return day >= firstCountedDay(ledger) && day >= utcDay(nowMs) - DAY_RETENTION_DAYS;
}

export function intersectGaplessDays(a: GaplessDays, b: GaplessDays): GaplessDays {
  return {
    firstWantedDay: Math.min(a.firstWantedDay, b.firstWantedDay),
    from: Math.max(a.from, b.from),
    until: Math.min(a.until, b.until),
    finalizableFrom: Math.max(a.finalizableFrom, b.finalizableFrom),
    finalizableUntil: Math.min(a.finalizableUntil, b.finalizableUntil),
  };
}

export function newCompleteDays(ledgerBefore: StoredLedger, ledgerAfter: StoredLedger): readonly DayRange[] {
  if (ledgerBefore.spans === ledgerAfter.spans) return [];
  const completeRangesBefore = findCompleteDayRanges(ledgerBefore);
  return findCompleteDayRanges(ledgerAfter).flatMap((range) =>
    subtractRanges(range, completeRangesBefore).map(({ fromMs, toMs }) => ({ from: fromMs, until: toMs })),
  );
}

function findCompleteDayRanges(ledger: StoredLedger): readonly TimeRange[] {
  return fetchedRanges(ledger.spans).flatMap((fetchedRange) => {
    const { from, until } = completeDays(fetchedRange, historyStart(ledger), ledger);
    const rangeFromDay = Math.max(from, firstCountedDay(ledger));
    return rangeFromDay < until ? [{ fromMs: rangeFromDay, toMs: until }] : [];
  });
}

export async function getDayCount(
  store: Pick<Store, "document">,
  source: string,
  key: string,
  ledger: StoredLedger,
  day: number,
): Promise<DayCount | undefined> {
  const dayCountsText = ledger.days ?? "";
  const movedDayCounts =
    ledger.daysMoved === true ? await store.document<StoredDayCounts>(syncSet("history-days", source), key) : undefined;
  if (movedDayCounts === undefined || movedDayCounts.timeZone !== ledger.timeZone)
    return countOfDay(dayCountsText, day);
  return countOfDay(mergeCounts(movedDayCounts.days, countsBetween(dayCountsText, day, day + 1)), day);
}
