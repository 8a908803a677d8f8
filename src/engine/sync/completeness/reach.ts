import { bucketStart } from "../history/buckets.ts";
import { before, type SeriesRules } from "../history/ledger.ts";
import { fetchedIn, rangesIn } from "../history/ledger-ranges.ts";
import { merged, type Range, subtract } from "../history/ranges.ts";
import type { StoredHistory } from "../snapshot.ts";
import { type AccountedSeries, isWanted, wantedFrom } from "./account.ts";
import { completeDays, DAY_MS, dayOf } from "./days.ts";

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
const known = new WeakMap<StoredHistory, { readonly rules: SeriesRules; readonly reach: Reach }>();

export function reachOf(series: AccountedSeries & { readonly total: boolean }): Reach {
  const { held, rules } = series;
  if (!isWanted(series)) return { begin: Number.POSITIVE_INFINITY, ...EVERYTHING, ...ALL_SEALABLE };
  const before = known.get(held);
  if (before?.rules === rules) return before.reach;
  const reach = reached(held, rules, series.total);
  known.set(held, { rules, reach });
  return reach;
}

function reached(held: StoredHistory, rules: SeriesRules, total: boolean): Reach {
  const { resolution, timeZone } = held;
  const opensAt = wantedFrom(held);
  const begin = dayOf(opensAt);
  const counted = countedFrom(held);
  if (held.state === "no-log") {
    return { begin, ...EVERYTHING, ...ALL_SEALABLE, sealFrom: counted };
  }
  const watermark = Date.parse(held.watermark);
  const days = (known: readonly Range[]) =>
    completeDays(around(known, watermark), opensAt, resolution, timeZone);
  const opened = (from: number) => (from <= begin ? Number.NEGATIVE_INFINITY : from);
  const had = fetchedIn(held.spans);
  const strict = days(had);
  const believed = rangesIn(held.spans).filter(isBelieved);
  const seal = believed.length === 0 ? strict : days(merged([...had, ...believed]));
  const isRefused = held.refusal !== null && held.refusal.times >= REFUSALS_TO_BELIEVE;
  // Nothing is read again of what is refused: then the clock alone says when the look-back has passed.
  const looked = isRefused || total ? Number.POSITIVE_INFINITY : lookedBackUntil(held, rules);
  return {
    begin,
    from: opened(strict.from),
    until: strict.until,
    sealFrom: Math.max(counted, isRefused && held.state === "unproven" ? begin : opened(seal.from)),
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
  const read = before(lookBackMs <= DAY_MS ? Math.max(daily, weekly) : weekly, lookBackMs, rules);
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
export function isCountedOn(held: StoredHistory, day: number, nowMs: number): boolean {
  return day >= countedFrom(held) && day >= dayOf(nowMs) - RETAINED_DAYS;
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
  const had = stretchesOf(before);
  return stretchesOf(after).flatMap((range) =>
    subtract(range, had).map(({ fromMs, toMs }) => ({ from: fromMs, until: toMs })),
  );
}

/** Day numbers, the end not included. */
export interface Days {
  readonly from: number;
  readonly until: number;
}

/** The stretches of whole days, in days. */
function stretchesOf(held: StoredHistory): readonly Range[] {
  const first = countedFrom(held);
  const opensAt = wantedFrom(held);
  return fetchedIn(held.spans).flatMap((run) => {
    const { from, until } = completeDays(run, opensAt, held.resolution, held.timeZone);
    return Math.max(from, first) < until ? [{ fromMs: Math.max(from, first), toMs: until }] : [];
  });
}
