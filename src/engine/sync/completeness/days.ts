import type { Points } from "../../../core/codec/points.ts";
import type { Resolution, TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import { bucketBefore, bucketFinder, bucketStart, mergeRanges, type Range, subtract } from "../history/buckets.ts";
import { earlierTime, type SeriesRules } from "../history/ledger.ts";
import { fetchedIn, rangesIn } from "../history/ledger-ranges.ts";
import { type StoredDays, type StoredHistory, syncSet } from "../snapshot.ts";

/**
 * UTC days, as numbers since 1970-01-01 (20759 is 2026-11-02), and the buckets that begin in them. A bucket belongs to
 * the day in which it begins, whatever its zone: the day of Stockholm of 2026-11-02 begins at 2026-11-01T23:00Z. Pure.
 */

export const DAY_MS = 86_400_000;

export function dayOf(atMs: number): number {
  return Math.floor(atMs / DAY_MS);
}

/** 20759 is `2026-11-02`. */
export function dateOf(day: number): string {
  return isoUtc(day * DAY_MS).slice(0, 10);
}

export function dayOfDate(date: string): number {
  return dayOf(Date.parse(`${date}T00:00:00Z`));
}

/**
 * Returns the days of which every bucket begins within a range. The day of `opensAt`, where the needed time begins,
 * counts from there.
 */
function completeDays(
  { fromMs, toMs }: Range,
  opensAt: number,
  resolution: Resolution,
  zone: string,
): { readonly from: number; readonly until: number } {
  const from = fromMs <= opensAt ? dayOf(fromMs) : dayOf(lastBefore(fromMs, resolution, zone)) + 1;
  return { from, until: dayOf(toMs) };
}

/** The rules of a zone are slow, and thousands of series ask the same. */
const lastCache = new Map<string, number>();
const KNOWN_MAX = 5_000;

function lastBefore(atMs: number, resolution: Resolution, zone: string): number {
  if (resolution === "5m") return atMs - 1;
  const key = `${atMs} ${resolution} ${zone}`;
  const cached = lastCache.get(key);
  if (cached !== undefined) return cached;
  if (lastCache.size >= KNOWN_MAX) lastCache.clear();
  // A time within a bucket: that one is the last.
  const start = bucketStart(atMs, { resolution, timeZone: zone });
  const last = start < atMs ? start : bucketBefore(atMs, { resolution, timeZone: zone });
  lastCache.set(key, last);
  return last;
}

/**
 * How many points of a series were answered in each UTC day: a span of the ledger says that a time was answered, and not
 * how many buckets the answer had. It is a text, because there is one in every ledger, and days in a row that are alike
 * share an entry, because most are:
 *
 * ```
 * 20750+6:288,20757:280.8,20758:288     a week of 288 values a day, a day with 8 nulls, another full one
 * ```
 *
 * Pure.
 */
export interface DayCount {
  readonly had: number;
  readonly null: number;
}

/** By day; of what is to be added, the numbers may be negative. */
export type DayCounts = ReadonlyMap<number, DayCount>;

interface Entry extends DayCount {
  readonly first: number;
  readonly last: number;
}

/** Returns the counts of the days in a range; the end is not included. */
export function countsIn(text: string, from: number, until: number): DayCounts {
  const counts = new Map<number, DayCount>();
  for (const { first, last, ...count } of entriesOf(text)) {
    for (let day = Math.max(first, from); day <= Math.min(last, until - 1); day++) counts.set(day, count);
  }
  return counts;
}

export function countOn(text: string, day: number): DayCount | undefined {
  return entriesOf(text).find(({ first, last }) => first <= day && day <= last);
}

/** Returns the text with counts added to it. */
export function addCounts(text: string, more: DayCounts): string {
  if (more.size === 0) return text;
  const entries: Entry[] = [];
  const left = new Map(more);
  for (const entry of entriesOf(text)) {
    let { first } = entry;
    // Split an entry of many days only at days with an addition.
    const within = [...more.keys()].filter((day) => day >= entry.first && day <= entry.last);
    for (const day of within.sort((a, b) => a - b)) {
      if (first < day) entries.push({ ...entry, first, last: day - 1 });
      entries.push({ ...sum(entry, more.get(day)), first: day, last: day });
      left.delete(day);
      first = day + 1;
    }
    if (first <= entry.last) entries.push({ ...entry, first });
  }
  for (const [day, count] of left) entries.push({ ...sum(undefined, count), first: day, last: day });
  return textOf(entries.sort((a, b) => a.first - b.first));
}

/** Splits the text at a day. */
export function splitCounts(text: string, day: number): readonly [before: string, rest: string] {
  const entries = entriesOf(text);
  const before = entries.flatMap((entry) =>
    entry.first < day ? [{ ...entry, last: Math.min(entry.last, day - 1) }] : [],
  );
  const rest = entries.flatMap((entry) => (entry.last >= day ? [{ ...entry, first: Math.max(entry.first, day) }] : []));
  return [textOf(before), textOf(rest)];
}

/** Emitted points of a series. */
export interface EmittedCounts {
  /** Ascending; emitted for the first time. */
  readonly fresh: Points;
  /** Ascending; emitted before with another value. */
  readonly revised: Points;
  /** Values emitted before, by timestamp in milliseconds. */
  readonly before: ReadonlyMap<number, TagValue>;
}

/** Returns the change of the counts by emitted points, and the number of points, by day. */
export function countEmitted(
  { fresh, revised, before }: EmittedCounts,
  resolution: Resolution,
  zone: string,
): ReadonlyMap<number, DayCount & { readonly points: number }> {
  const counts = new Map<number, DayCount & { readonly points: number }>();
  const bucketOf = bucketFinder({ resolution, timeZone: zone });
  let bucketMs = Number.NaN;
  let day = Number.NaN;
  let [had, nulls, points] = [0, 0, 0];
  const put = (more: number) => {
    const known = counts.get(day);
    if (more > 0)
      counts.set(day, {
        had: (known?.had ?? 0) + had,
        null: (known?.null ?? 0) + nulls,
        points: (known?.points ?? 0) + more,
      });
    [had, nulls, points] = [0, 0, 0];
  };
  for (let at = 0; at < fresh.length; at++) {
    const startMs = bucketOf(fresh.timeMs(at));
    // A service that samples may have several points in one bucket.
    if (startMs === bucketMs) continue;
    bucketMs = startMs;
    const ofDay = dayOf(startMs);
    if (ofDay !== day) put(points);
    day = ofDay;
    points++;
    if (Number.isNaN(fresh.code(at))) nulls++;
    else had++;
  }
  put(points);
  for (let at = 0; at < revised.length; at++) {
    const atMs = revised.timeMs(at);
    day = dayOf(bucketOf(atMs));
    const wasNull = before.get(atMs) == null;
    const isNull = revised.value(at) === null;
    had = Number(wasNull) - Number(isNull);
    nulls = -had;
    put(1);
  }
  return counts;
}

function sum(a: DayCount | undefined, b: DayCount | undefined): DayCount {
  return {
    had: Math.max(0, (a?.had ?? 0) + (b?.had ?? 0)),
    null: Math.max(0, (a?.null ?? 0) + (b?.null ?? 0)),
  };
}

function entriesOf(text: string): readonly Entry[] {
  if (text === "") return [];
  return text.split(",").map((entry) => {
    const colon = entry.indexOf(":");
    const plus = entry.indexOf("+");
    const dot = entry.indexOf(".");
    const first = Number.parseInt(entry, 10);
    return {
      first,
      last: plus < 0 ? first : first + Number.parseInt(entry.slice(plus + 1), 10),
      had: Number.parseInt(entry.slice(colon + 1), 10),
      null: dot < 0 ? 0 : Number.parseInt(entry.slice(dot + 1), 10),
    };
  });
}

/** Ascending; neighbours that are alike become one. */
function textOf(entries: readonly Entry[]): string {
  const parts: string[] = [];
  for (let at = 0; at < entries.length; ) {
    const { first, last, had, null: nulls } = entries[at] as Entry;
    let end = last;
    for (at++; at < entries.length; at++) {
      const next = entries[at] as Entry;
      if (next.first !== end + 1 || next.had !== had || next.null !== nulls) break;
      end = next.last;
    }
    parts.push(`${first}${end > first ? `+${end - first}` : ""}:${had}${nulls === 0 ? "" : `.${nulls}`}`);
  }
  return parts.join();
}

/** A series as input of its account. */
export interface AccountedSeries {
  readonly ledger: StoredHistory;
  readonly rules: SeriesRules;
  readonly located: { readonly outOfSight?: "site" | "tag" };
}

/** Returns the start of the needed time of a series, milliseconds since 1970. */
export function wantedFrom({ wished, since }: StoredHistory): number {
  return Math.min(Date.parse(wished), Date.parse(since));
}

/**
 * Returns true if everything from `wantedFrom` on is needed. Tags that left the lists, and series of backfill
 * requests only, need no more than they have.
 */
export function isWanted({ rules, located }: Pick<AccountedSeries, "rules" | "located">): boolean {
  return located.outOfSight !== "tag" && Number.isFinite(rules.everyMs);
}

/**
 * First and last UTC day without a gap of a series, as day numbers; the end is not included. If a series holds
 * nothing back, the ends are infinite. Pure.
 */
export interface Reach {
  /** The first day that is needed. */
  readonly begin: number;
  /** Every bucket has a response, or has no log. */
  readonly from: number;
  readonly until: number;
  /** The same range for finalized days: repeated refusals count as known, and late data have been looked for. */
  readonly sealFrom: number;
  readonly sealUntil: number;
}

/** Refusals in a row, within 70 minutes, that count as known. The first one may be temporary. */
const REFUSALS_TO_BELIEVE = 3;

const EVERYTHING = { from: Number.NEGATIVE_INFINITY, until: Number.POSITIVE_INFINITY };
const ALL_SEALABLE = { sealFrom: Number.NEGATIVE_INFINITY, sealUntil: Number.POSITIVE_INFINITY };

/** Most ledgers are unchanged since the last comparison. */
const reachCache = new WeakMap<StoredHistory, { readonly rules: SeriesRules; readonly reach: Reach }>();

export function reachOf(series: AccountedSeries & { readonly total: boolean }): Reach {
  const { ledger, rules } = series;
  if (!isWanted(series)) return { begin: Number.POSITIVE_INFINITY, ...EVERYTHING, ...ALL_SEALABLE };
  const before = reachCache.get(ledger);
  if (before?.rules === rules) return before.reach;
  const reach = reached(ledger, rules, series.total);
  reachCache.set(ledger, { rules, reach });
  return reach;
}

function reached(ledger: StoredHistory, rules: SeriesRules, total: boolean): Reach {
  const { resolution, timeZone } = ledger;
  const opensAt = wantedFrom(ledger);
  const begin = dayOf(opensAt);
  const counted = countedFrom(ledger);
  if (ledger.state === "no-log") {
    return { begin, ...EVERYTHING, ...ALL_SEALABLE, sealFrom: counted };
  }
  const watermark = Date.parse(ledger.watermark);
  const days = (reachCache: readonly Range[]) =>
    completeDays(around(reachCache, watermark), opensAt, resolution, timeZone);
  const opened = (from: number) => (from <= begin ? Number.NEGATIVE_INFINITY : from);
  const fetched = fetchedIn(ledger.spans);
  const strict = days(fetched);
  const believed = rangesIn(ledger.spans).filter(isBelieved);
  const seal = believed.length === 0 ? strict : days(mergeRanges([...fetched, ...believed]));
  const isRefused = ledger.refusal !== null && ledger.refusal.times >= REFUSALS_TO_BELIEVE;
  // Refused series are not read again: the clock alone decides when the look-back has passed.
  const looked = isRefused || total ? Number.POSITIVE_INFINITY : lookedBackUntil(ledger, rules);
  return {
    begin,
    from: opened(strict.from),
    until: strict.until,
    sealFrom: Math.max(counted, isRefused && ledger.state === "unproven" ? begin : opened(seal.from)),
    sealUntil: Math.min(isRefused ? Number.POSITIVE_INFINITY : seal.until, looked),
  };
}

function isBelieved({ why, times = 0 }: { readonly why: string; readonly times?: number }): boolean {
  return why === "refused" && times >= REFUSALS_TO_BELIEVE;
}

/** Returns the range that contains a time or ends there; an empty one otherwise. */
function around(ranges: readonly Range[], atMs: number): Range {
  const found = ranges.find(({ fromMs, toMs }) => fromMs <= atMs && toMs >= atMs);
  return found ?? { fromMs: atMs, toMs: atMs };
}

/**
 * Returns the day up to which late data have been looked for: the last reread that deep was a complete look-back
 * after the last bucket of the day had closed.
 */
function lookedBackUntil({ dailyAt, weeklyAt, rereadFrom }: StoredHistory, rules: SeriesRules): number {
  const { lookBackMs, resolution, timeZone } = rules;
  const [daily, weekly] = [Date.parse(dailyAt), Date.parse(weeklyAt)];
  const read = earlierTime(lookBackMs <= DAY_MS ? Math.max(daily, weekly) : weekly, lookBackMs, rules);
  const until = rereadFrom === null ? read : Math.min(read, Date.parse(rereadFrom));
  return dayOf(bucketStart(until, { resolution, timeZone }));
}

/** Returns the first day with counted points. */
function countedFrom({ countedFrom: from, days, spans }: StoredHistory): number {
  // As an earlier version left it: nothing was counted so far.
  if (from === undefined && days === undefined && spans.length > 0) return Number.POSITIVE_INFINITY;
  return from === undefined ? Number.NEGATIVE_INFINITY : Math.ceil(Date.parse(from) / DAY_MS);
}

/** Days with stored counts: three years. */
export const RETAINED_DAYS = 1_100;

/** Returns true if the points of a day are counted and the counts are stored. */
export function isCountedOn(ledger: StoredHistory, day: number, nowMs: number): boolean {
  return day >= countedFrom(ledger) && day >= dayOf(nowMs) - RETAINED_DAYS;
}

/** Returns the common reach of two series, and the first day that either needs. */
export function commonReach(a: Reach, b: Reach): Reach {
  const isWithin =
    a.begin <= b.begin &&
    a.from >= b.from &&
    a.until <= b.until &&
    a.sealFrom >= b.sealFrom &&
    a.sealUntil <= b.sealUntil;
  if (isWithin) return a;
  return {
    begin: Math.min(a.begin, b.begin),
    from: Math.max(a.from, b.from),
    until: Math.min(a.until, b.until),
    sealFrom: Math.max(a.sealFrom, b.sealFrom),
    sealUntil: Math.min(a.sealUntil, b.sealUntil),
  };
}

/** Returns the days that a change of a ledger completed, in as few ranges as possible; the end is not included. */
export function newlyComplete(before: StoredHistory, after: StoredHistory): readonly Days[] {
  if (before.spans === after.spans) return [];
  const fetched = stretchesOf(before);
  return stretchesOf(after).flatMap((range) =>
    subtract(range, fetched).map(({ fromMs, toMs }) => ({ from: fromMs, until: toMs })),
  );
}

/** Day numbers, the end not included. */
export interface Days {
  readonly from: number;
  readonly until: number;
}

/** The stretches of whole days, in days. */
function stretchesOf(ledger: StoredHistory): readonly Range[] {
  const first = countedFrom(ledger);
  const opensAt = wantedFrom(ledger);
  return fetchedIn(ledger.spans).flatMap((run) => {
    const { from, until } = completeDays(run, opensAt, ledger.resolution, ledger.timeZone);
    return Math.max(from, first) < until ? [{ fromMs: Math.max(from, first), toMs: until }] : [];
  });
}

/** Returns the count of a series on one day, from its ledger or the document of its older days. */
export async function countFor(
  store: Pick<Store, "document">,
  source: string,
  key: string,
  ledger: StoredHistory,
  day: number,
): Promise<DayCount | undefined> {
  const text = ledger.days ?? "";
  const older =
    ledger.daysMoved === true ? await store.document<StoredDays>(syncSet("history-days", source), key) : undefined;
  if (older === undefined || older.timeZone !== ledger.timeZone) return countOn(text, day);
  return countOn(addCounts(older.days, countsIn(text, day, day + 1)), day);
}
