import type { Points } from "../../../core/codec/points.ts";
import type { Resolution, TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import {
  bucketBefore,
  bucketFinder,
  bucketStart,
  mergeRanges,
  type Range,
  subtract,
} from "../history/buckets.ts";
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
 * The days that are had whole where a time is had: those of which no bucket begins outside of it. `opensAt` is where
 * what is wanted begins: of the day in which it does, only what follows counts.
 */
export function completeDays(
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
  const start = bucketStart(atMs, resolution, zone);
  const last = start < atMs ? start : bucketBefore(atMs, resolution, zone);
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

/** The counts of the days from one up to another, which is not included. */
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

/** The text with counts added to it. */
export function addCounts(text: string, more: DayCounts): string {
  if (more.size === 0) return text;
  const entries: Entry[] = [];
  const left = new Map(more);
  for (const entry of entriesOf(text)) {
    let { first } = entry;
    // An entry of many days is only taken apart where something is added.
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

/** What lies before a day, and the rest. */
export function splitCounts(text: string, day: number): readonly [before: string, rest: string] {
  const entries = entriesOf(text);
  const before = entries.flatMap((entry) =>
    entry.first < day ? [{ ...entry, last: Math.min(entry.last, day - 1) }] : [],
  );
  const rest = entries.flatMap((entry) =>
    entry.last >= day ? [{ ...entry, first: Math.max(entry.first, day) }] : [],
  );
  return [textOf(before), textOf(rest)];
}

/** What was told of a series. */
export interface EmittedCounts {
  /** Ascending; told for the first time. */
  readonly fresh: Points;
  /** Ascending; told with another value before. */
  readonly revised: Points;
  /** What was told before, by the stamp in milliseconds. */
  readonly before: ReadonlyMap<number, TagValue>;
}

/** What points that are told add to the counts, and how many of each day there were. */
export function countEmitted(
  { fresh, revised, before }: EmittedCounts,
  resolution: Resolution,
  zone: string,
): ReadonlyMap<number, DayCount & { readonly points: number }> {
  const counts = new Map<number, DayCount & { readonly points: number }>();
  const bucketOf = bucketFinder(resolution, zone);
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
    // Of a service that samples, several points may lie in one bucket.
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

/** What the account of a series is made from. */
export interface AccountedSeries {
  readonly ledger: StoredHistory;
  readonly rules: SeriesRules;
  readonly located: { readonly outOfSight?: "site" | "tag" };
}

/** Where what is wanted of a series begins, milliseconds since 1970. */
export function wantedFrom({ wished, since }: StoredHistory): number {
  return Math.min(Date.parse(wished), Date.parse(since));
}

/**
 * Whether everything from `wantedFrom` on is wanted. Of a tag that the listings show no more, and of a series that only
 * an order asks for, it is what there is of it.
 */
export function isWanted({ rules, located }: Pick<AccountedSeries, "rules" | "located">): boolean {
  return located.outOfSight !== "tag" && Number.isFinite(rules.everyMs);
}

/**
 * From which UTC day on, and up to which, a series is known without a hole, as day numbers, the end not included. Where
 * it holds nothing back, the ends are infinite. Pure.
 */
export interface Reach {
  /** The first day of which something is wanted. */
  readonly begin: number;
  /** Every bucket is answered, or has no log by the service's word. */
  readonly from: number;
  readonly until: number;
  /** The same where a refusal that was repeated counts as known, and late data have been looked for. */
  readonly sealFrom: number;
  readonly sealUntil: number;
}

/** A refusal counts as known when it was given so often, which takes 70 minutes: the first may pass by itself. */
const REFUSALS_TO_BELIEVE = 3;

const EVERYTHING = { from: Number.NEGATIVE_INFINITY, until: Number.POSITIVE_INFINITY };
const ALL_SEALABLE = { sealFrom: Number.NEGATIVE_INFINITY, sealUntil: Number.POSITIVE_INFINITY };

/** Most ledgers are the same as when somebody asked last. */
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
  // Nothing is read again of what is refused: then the clock alone says when the look-back has passed.
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

/** The stretch that holds a time or ends there; where there is none, nothing. */
function around(ranges: readonly Range[], atMs: number): Range {
  const found = ranges.find(({ fromMs, toMs }) => fromMs <= atMs && toMs >= atMs);
  return found ?? { fromMs: atMs, toMs: atMs };
}

/**
 * Up to which day late data have been looked for as long as they may come: the last reading that goes back so far was
 * made a whole look-back after the day's last bucket had closed.
 */
function lookedBackUntil({ dailyAt, weeklyAt, rereadFrom }: StoredHistory, rules: SeriesRules): number {
  const { lookBackMs, resolution, timeZone } = rules;
  const [daily, weekly] = [Date.parse(dailyAt), Date.parse(weeklyAt)];
  const read = earlierTime(lookBackMs <= DAY_MS ? Math.max(daily, weekly) : weekly, lookBackMs, rules);
  const until = rereadFrom === null ? read : Math.min(read, Date.parse(rereadFrom));
  return dayOf(bucketStart(until, resolution, timeZone));
}

/** The first day of which every point was counted. */
function countedFrom({ countedFrom: from, days, spans }: StoredHistory): number {
  // As an earlier version left it: nothing was counted so far.
  if (from === undefined && days === undefined && spans.length > 0) return Number.POSITIVE_INFINITY;
  return from === undefined ? Number.NEGATIVE_INFINITY : Math.ceil(Date.parse(from) / DAY_MS);
}

/** Days whose counts are remembered: three years. */
export const RETAINED_DAYS = 1_100;

/** Whether the points of a day were counted, and are remembered. */
export function isCountedOn(ledger: StoredHistory, day: number, nowMs: number): boolean {
  return day >= countedFrom(ledger) && day >= dayOf(nowMs) - RETAINED_DAYS;
}

/** What two of several series both reach, and the first day of which one of them wants something. */
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

/** Days that became whole by what a ledger learned, in as few stretches as possible; the end is not included. */
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
    ledger.daysMoved === true
      ? await store.document<StoredDays>(syncSet("history-days", source), key)
      : undefined;
  if (older === undefined || older.timeZone !== ledger.timeZone) return countOn(text, day);
  return countOn(addCounts(older.days, countsIn(text, day, day + 1)), day);
}
