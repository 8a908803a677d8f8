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
  readonly fromDay: number;
  readonly untilDay: number;
}

export const utcDay = (atMs: number): number => Math.floor(atMs / DAY_MS);
export const dayDate = (day: number): string => isoUtc(day * DAY_MS).slice(0, 10);
export const dateToDay = (date: string): number => utcDay(Date.parse(`${date}T00:00:00Z`));

const lastBucketStartBefore = memoizeByKey((resolution: BucketRules["resolution"]) =>
  memoizeByKey((timeZone: string) => memoizeByKey((atMs: number) => bucketStart(atMs - 1, { resolution, timeZone }))),
);

/** Returns the UTC days whose buckets all begin within a range. The history's first day may begin at `opensAtMs`. */
function completeDays({ fromMs, toMs }: TimeRange, opensAtMs: number, { resolution, timeZone }: BucketRules): DayRange {
  const from = fromMs <= opensAtMs ? utcDay(fromMs) : utcDay(lastBucketStartBefore(resolution)(timeZone)(fromMs)) + 1;
  return { fromDay: from, untilDay: utcDay(toMs) };
}

/**
 * Values and nulls that the service returned for a series in one UTC day. Stored as a text: `20750+6:288,20757:280.8`
 * is a week of 288 values a day, and a day with 280 values and 8 nulls.
 */
export interface DayCount {
  readonly had: number;
  readonly null: number;
}

export type CountsByDay = ReadonlyMap<number, DayCount>;

interface DayRangeCount extends DayCount {
  readonly firstDay: number;
  readonly lastDay: number;
}

function parseDayCounts(text: string): readonly DayRangeCount[] {
  if (text === "") return [];
  return text.split(",").map((entry) => {
    const [days = "", counts = ""] = entry.split(":");
    const [firstDay = 0, moreDays = 0] = days.split("+").map(Number);
    const [valueCount, nullCount = 0] = counts.split(".").map(Number);
    return { firstDay, lastDay: firstDay + moreDays, had: valueCount ?? 0, null: nullCount };
  });
}

export function countsBetween(text: string, fromDay: number, untilDay: number): CountsByDay {
  const counts = new Map<number, DayCount>();
  for (const { firstDay, lastDay, had, null: nulls } of parseDayCounts(text))
    for (let day = Math.max(firstDay, fromDay); day <= Math.min(lastDay, untilDay - 1); day++)
      counts.set(day, { had, null: nulls });
  return counts;
}

export function countOfDay(text: string, day: number): DayCount | undefined {
  return parseDayCounts(text).find(({ firstDay, lastDay }) => firstDay <= day && day <= lastDay);
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
  const addToDay = (startMs: number, valueCount: number, nullCount: number) => {
    const day = utcDay(startMs);
    const dayCount = countsByDay.get(day) ?? { had: 0, null: 0, points: 0 };
    countsByDay.set(day, dayCount);
    dayCount.had += valueCount;
    dayCount.null += nullCount;
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
  readonly siteTag: { readonly missing?: "site" | "tag" };
}

export const historyStart = ({ wished, since }: StoredLedger): number => Math.min(parseTime(wished), parseTime(since));

/** False for tags that the service no longer lists, and for series that only `plenum backfill` requested. */
export function isHistoryWanted({ rules, siteTag }: Pick<SeriesState, "rules" | "siteTag">): boolean {
  return siteTag.missing !== "tag" && Number.isFinite(rules.everyMs);
}

/** UTC day numbers between which a series has no gap. Ends are exclusive; infinity means no limit. */
export type GaplessDays = Readonly<typeof ALL_DAYS>;

/** Number of refusals of a history request in a row, within 70 minutes, after which the refusal counts as final. */
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

function computeGaplessDays(ledger: StoredLedger, rules: SeriesRules, isTotal: boolean): GaplessDays {
  const startMs = historyStart(ledger);
  const firstWantedDay = utcDay(startMs);
  const countedFromDay = firstCountedDay(ledger);
  if (ledger.state === "no-log") return { ...ALL_DAYS, firstWantedDay, finalizableFrom: countedFromDay };
  const watermarkMs = parseTime(ledger.watermark);
  const completeDaysAtWatermark = (ranges: readonly TimeRange[]) => {
    const range = ranges.find(({ fromMs, toMs }) => fromMs <= watermarkMs && toMs >= watermarkMs);
    const { fromDay, untilDay } = completeDays(range ?? { fromMs: watermarkMs, toMs: watermarkMs }, startMs, ledger);
    return { from: fromDay <= firstWantedDay ? MIN_DAY : fromDay, until: untilDay };
  };
  const fetchedTimeRanges = fetchedRanges(ledger.spans);
  const fetchedDays = completeDaysAtWatermark(fetchedTimeRanges);
  const isRefusalFinal = ({ times = 0 }) => times >= REFUSALS_UNTIL_FINAL;
  const finalRefusedRanges = toRanges(ledger.spans).filter(
    (ledgerRange) => ledgerRange.why === "refused" && isRefusalFinal(ledgerRange),
  );
  const finalDays = completeDaysAtWatermark(mergeTimeRanges([...fetchedTimeRanges, ...finalRefusedRanges]));
  const isRefused = ledger.refusal !== null && isRefusalFinal(ledger.refusal);
  const lateDataUntilDay = isRefused || isTotal ? MAX_DAY : findLateDataUntilDay(ledger, rules);
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

function firstCountedDay({ countedFrom: countedFromTime, days, spans }: StoredLedger): number {
  // Ledgers that an earlier version of Plenum wrote have no counts per day.
  if (countedFromTime === undefined) return days === undefined && spans.length > 0 ? MAX_DAY : MIN_DAY;
  return Math.ceil(parseTime(countedFromTime) / DAY_MS);
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
    subtractRanges(range, completeRangesBefore).map(({ fromMs, toMs }) => ({ fromDay: fromMs, untilDay: toMs })),
  );
}

function findCompleteDayRanges(ledger: StoredLedger): readonly TimeRange[] {
  return fetchedRanges(ledger.spans).flatMap((fetchedRange) => {
    const { fromDay, untilDay } = completeDays(fetchedRange, historyStart(ledger), ledger);
    const rangeFromDay = Math.max(fromDay, firstCountedDay(ledger));
    return rangeFromDay < untilDay ? [{ fromMs: rangeFromDay, toMs: untilDay }] : [];
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
