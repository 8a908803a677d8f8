import type { TagPoints } from "../../../core/codec/points.ts";
import type { TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import {
  type BucketRules,
  bucketStart,
  bucketStartFinder,
  DAY_MS,
  memoize,
  mergeRanges,
  parseTime,
  subtractRanges,
  type TimeRange,
} from "../history/buckets.ts";
import { type SeriesRules, subtractTimeByRules } from "../history/ledger.ts";
import { fetchedRanges, toRanges } from "../history/ledger-ranges.ts";
import { type StoredDays, type StoredHistory, syncSet } from "../snapshot.ts";

/** Range of UTC days, as days since 1970: 20759 is 2026-11-02. A bucket belongs to the UTC day in which it begins. */
export interface DayRange {
  readonly from: number;
  readonly until: number;
}

export const utcDay = (atMs: number): number => Math.floor(atMs / DAY_MS);
export const dayDate = (day: number): string => isoUtc(day * DAY_MS).slice(0, 10);
export const dateToDay = (date: string): number => utcDay(Date.parse(`${date}T00:00:00Z`));

const lastStartBefore = memoize((resolution: BucketRules["resolution"]) =>
  memoize((timeZone: string) => memoize((atMs: number) => bucketStart(atMs - 1, { resolution, timeZone }))),
);

/** Returns the days whose buckets all begin within a range; the day of `opensAt` counts from `opensAt` on. */
function completeDays({ fromMs, toMs }: TimeRange, opensAt: number, { resolution, timeZone }: BucketRules): DayRange {
  const from = fromMs <= opensAt ? utcDay(fromMs) : utcDay(lastStartBefore(resolution)(timeZone)(fromMs)) + 1;
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

export type DayCounts = ReadonlyMap<number, DayCount>;

interface CountsEntry extends DayCount {
  readonly first: number;
  readonly last: number;
}

function parseCounts(text: string): readonly CountsEntry[] {
  if (text === "") return [];
  return text.split(",").map((entry) => {
    const [days = "", counts = ""] = entry.split(":");
    const [first, more = 0] = days.split("+").map(Number);
    const [had, nulls = 0] = counts.split(".").map(Number);
    return { first: first ?? 0, last: (first ?? 0) + more, had: had ?? 0, null: nulls };
  });
}

export function countsBetween(text: string, from: number, until: number): DayCounts {
  const counts = new Map<number, DayCount>();
  for (const { first, last, had, null: nulls } of parseCounts(text))
    for (let day = Math.max(first, from); day <= Math.min(last, until - 1); day++)
      counts.set(day, { had, null: nulls });
  return counts;
}

export function countOn(text: string, day: number): DayCount | undefined {
  return parseCounts(text).find(({ first, last }) => first <= day && day <= last);
}

export function addCounts(text: string, more: DayCounts): string {
  if (more.size === 0) return text;
  const counts = new Map(allCounts(text));
  for (const [day, { had, null: nulls }] of more) {
    const previousCount = counts.get(day) ?? { had: 0, null: 0 };
    counts.set(day, { had: Math.max(0, previousCount.had + had), null: Math.max(0, previousCount.null + nulls) });
  }
  return formatCounts(counts);
}

export const allCounts = (text: string) => countsBetween(text, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);

export function splitCounts(text: string, day: number): readonly [before: string, rest: string] {
  return [
    formatCounts(countsBetween(text, Number.NEGATIVE_INFINITY, day)),
    formatCounts(countsBetween(text, day, Number.POSITIVE_INFINITY)),
  ];
}

function formatCounts(counts: DayCounts): string {
  const entries: { first: number; last: number; counts: string }[] = [];
  for (const [day, { had, null: nulls }] of [...counts].sort(([a], [b]) => a - b)) {
    const countText = nulls === 0 ? `${had}` : `${had}.${nulls}`;
    const previousEntry = entries.at(-1);
    if (previousEntry?.last === day - 1 && previousEntry.counts === countText) previousEntry.last = day;
    else entries.push({ first: day, last: day, counts: countText });
  }
  return entries
    .map(({ first, last, counts: own }) => `${first}${last > first ? `+${last - first}` : ""}:${own}`)
    .join();
}

export interface EmittedCounts {
  readonly fresh: TagPoints;
  readonly revised: TagPoints;
  readonly before: ReadonlyMap<number, TagValue>;
}

export function countEmitted(
  { fresh, revised, before }: EmittedCounts,
  rules: BucketRules,
): ReadonlyMap<number, DayCount & { readonly points: number }> {
  const counts = new Map<number, { had: number; null: number; points: number }>();
  const findBucketStart = bucketStartFinder(rules);
  const add = (startMs: number, had: number, nulls: number) => {
    const day = utcDay(startMs);
    const count = counts.get(day) ?? { had: 0, null: 0, points: 0 };
    counts.set(day, count);
    count.had += had;
    count.null += nulls;
    count.points++;
  };
  let bucketMs = Number.NaN;
  for (let at = 0; at < fresh.length; at++) {
    const startMs = findBucketStart(fresh.timeMs(at));
    if (startMs === bucketMs) continue;
    bucketMs = startMs;
    const isNull = Number.isNaN(fresh.code(at));
    add(startMs, Number(!isNull), Number(isNull));
  }
  for (let at = 0; at < revised.length; at++) {
    const atMs = revised.timeMs(at);
    const nullsReplaced = Number(before.get(atMs) == null) - Number(revised.value(at) === null);
    add(findBucketStart(atMs), nullsReplaced, -nullsReplaced);
  }
  return counts;
}

export interface DaySeries {
  readonly ledger: StoredHistory;
  readonly rules: SeriesRules;
  readonly located: { readonly outOfSight?: "site" | "tag" };
}

export const wantedFrom = ({ wished, since }: StoredHistory): number => Math.min(parseTime(wished), parseTime(since));

/** False for tags that left the lists, and for series of backfill requests only: they need no further buckets. */
export function isWanted({ rules, located }: Pick<DaySeries, "rules" | "located">): boolean {
  return located.outOfSight !== "tag" && Number.isFinite(rules.everyMs);
}

/** Days of a series without a gap, as UTC day numbers; ends are exclusive. Infinite if unlimited. */
export interface DayReach {
  readonly begin: number;
  readonly from: number;
  readonly until: number;
  readonly sealFrom: number;
  readonly sealUntil: number;
}

/** Number of refusals in a row, within 70 minutes, that make a refusal final; earlier refusals may be temporary. */
const REFUSALS_TO_ACCEPT = 3;
const MIN_DAY = Number.NEGATIVE_INFINITY;
const MAX_DAY = Number.POSITIVE_INFINITY;
const NO_LIMITS: DayReach = { begin: MAX_DAY, from: MIN_DAY, until: MAX_DAY, sealFrom: MIN_DAY, sealUntil: MAX_DAY };

const reachCache = new WeakMap<StoredHistory, { readonly rules: SeriesRules; readonly reach: DayReach }>();

export function dayReach(series: DaySeries & { readonly total: boolean }): DayReach {
  const { ledger, rules } = series;
  if (!isWanted(series)) return NO_LIMITS;
  const cachedReach = reachCache.get(ledger);
  if (cachedReach?.rules === rules) return cachedReach.reach;
  const reach = computeReach(ledger, rules, series.total);
  reachCache.set(ledger, { rules, reach });
  return reach;
}

function computeReach(ledger: StoredHistory, rules: SeriesRules, total: boolean): DayReach {
  const startMs = wantedFrom(ledger);
  const begin = utcDay(startMs);
  const counted = firstCountedDay(ledger);
  if (ledger.state === "no-log") return { ...NO_LIMITS, begin, sealFrom: counted };
  const watermarkMs = parseTime(ledger.watermark);
  const completeDaysAt = (ranges: readonly TimeRange[]) => {
    const foundRange = ranges.find(({ fromMs, toMs }) => fromMs <= watermarkMs && toMs >= watermarkMs);
    const { from, until } = completeDays(foundRange ?? { fromMs: watermarkMs, toMs: watermarkMs }, startMs, ledger);
    return { from: from <= begin ? MIN_DAY : from, until };
  };
  const fetched = fetchedRanges(ledger.spans);
  const fetchedDays = completeDaysAt(fetched);
  const isFinal = ({ times = 0 }) => times >= REFUSALS_TO_ACCEPT;
  const finalRefusals = toRanges(ledger.spans).filter((span) => span.why === "refused" && isFinal(span));
  const finalDays = completeDaysAt(mergeRanges([...fetched, ...finalRefusals]));
  const isRefused = ledger.refusal !== null && isFinal(ledger.refusal);
  // Refused series are not read again: the clock alone decides when the look-back has passed.
  const lookedBack = isRefused || total ? MAX_DAY : lookedBackUntilDay(ledger, rules);
  return {
    begin,
    ...fetchedDays,
    sealFrom: Math.max(counted, isRefused && ledger.state === "unproven" ? begin : finalDays.from),
    sealUntil: Math.min(isRefused ? MAX_DAY : finalDays.until, lookedBack),
  };
}

/** Returns the day up to which late data were looked for, a complete look-back after the day had closed. */
function lookedBackUntilDay({ dailyAt, weeklyAt, rereadFrom }: StoredHistory, rules: SeriesRules): number {
  const { lookBackMs } = rules;
  const [dailyMs, weeklyMs] = [parseTime(dailyAt), parseTime(weeklyAt)];
  const readMs = subtractTimeByRules(lookBackMs <= DAY_MS ? Math.max(dailyMs, weeklyMs) : weeklyMs, lookBackMs, rules);
  const untilMs = rereadFrom === null ? readMs : Math.min(readMs, parseTime(rereadFrom));
  return utcDay(bucketStart(untilMs, rules));
}

function firstCountedDay({ countedFrom: from, days, spans }: StoredHistory): number {
  // Ledgers of an earlier version have no counts.
  if (from === undefined) return days === undefined && spans.length > 0 ? MAX_DAY : MIN_DAY;
  return Math.ceil(parseTime(from) / DAY_MS);
}

export const DAY_RETENTION_DAYS = 1_100;

export function isCountedDay(ledger: StoredHistory, day: number, nowMs: number): boolean {
  return day >= firstCountedDay(ledger) && day >= utcDay(nowMs) - DAY_RETENTION_DAYS;
}

export function intersectReach(a: DayReach, b: DayReach): DayReach {
  return {
    begin: Math.min(a.begin, b.begin),
    from: Math.max(a.from, b.from),
    until: Math.min(a.until, b.until),
    sealFrom: Math.max(a.sealFrom, b.sealFrom),
    sealUntil: Math.min(a.sealUntil, b.sealUntil),
  };
}

export function completedDays(before: StoredHistory, after: StoredHistory): readonly DayRange[] {
  if (before.spans === after.spans) return [];
  const completeBefore = findCompleteRanges(before);
  return findCompleteRanges(after).flatMap((range) =>
    subtractRanges(range, completeBefore).map(({ fromMs, toMs }) => ({ from: fromMs, until: toMs })),
  );
}

function findCompleteRanges(ledger: StoredHistory): readonly TimeRange[] {
  return fetchedRanges(ledger.spans).flatMap((fetched) => {
    const { from, until } = completeDays(fetched, wantedFrom(ledger), ledger);
    const fromMs = Math.max(from, firstCountedDay(ledger));
    return fromMs < until ? [{ fromMs, toMs: until }] : [];
  });
}

export async function loadCount(
  store: Pick<Store, "document">,
  source: string,
  key: string,
  ledger: StoredHistory,
  day: number,
): Promise<DayCount | undefined> {
  const countsText = ledger.days ?? "";
  const movedCounts =
    ledger.daysMoved === true ? await store.document<StoredDays>(syncSet("history-days", source), key) : undefined;
  if (movedCounts === undefined || movedCounts.timeZone !== ledger.timeZone) return countOn(countsText, day);
  return countOn(addCounts(movedCounts.days, countsBetween(countsText, day, day + 1)), day);
}
