import type { Site, Tag } from "../../../core/model/building.ts";
import type {
  DayAccount,
  DaySealedFact,
  SeriesAccount,
  SeriesStatement,
  WaitingSeries,
} from "../../../core/model/history-facts.ts";
import { bucketStart, bucketsIn, mergeRanges, type Range, subtract } from "../history/buckets.ts";
import { earlierTime, type SeriesRules } from "../history/ledger.ts";
import { fetchedIn, type LedgerRange, rangesIn } from "../history/ledger-ranges.ts";
import type { StoredHistory } from "../snapshot.ts";
import { completeDays, DAY_MS, type DayCount, dateOf, dayOf } from "./days.ts";

/** What the account of a series is made from. */
export interface AccountedSeries {
  readonly ledger: StoredHistory;
  readonly rules: SeriesRules;
  readonly located: { readonly outOfSight?: "site" | "tag" };
}

/** The service's words, and when it said them, UTC. */
export interface Statement {
  readonly said: string | null;
  readonly at: string | null;
}

export interface SeriesDay extends DayAccount {
  /** Why buckets are pending; null where none is. */
  readonly why: WaitingSeries["why"] | null;
  /** The last word on buckets without a log, and on refused ones; null where there are none. */
  readonly noLog: Statement | null;
  readonly refusal: Statement | null;
}

export const EMPTY_ACCOUNT: DayAccount = {
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

/** What became of the buckets of a series that begin in a UTC day; `count` is of the points of that day. Pure. */
export function accountOf(
  series: AccountedSeries,
  day: number,
  count: DayCount | undefined,
  nowMs: number,
): SeriesDay {
  const { ledger } = series;
  const { resolution, timeZone } = ledger;
  const buckets = (range?: Range) => bucketsIn(day, resolution, timeZone, range);
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
    // Following was refused, or learning whether there is a log; the past before it may still be fetched.
    const closedMs = Math.min(theDay.toMs, bucketStart(nowMs - series.rules.graceMs, resolution, timeZone));
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
  const closedMs = bucketStart(nowMs - rules.graceMs, rules.resolution, rules.timeZone);
  return closedMs > watermarkMs
    ? "behind"
    : watermarkMs < day * DAY_MS || closedMs < endMs
      ? "open"
      : "backfill";
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

/** A series of a site, as its account needs it. */
export interface SiteSeries extends AccountedSeries {
  readonly total: boolean;
  readonly located: AccountedSeries["located"] & { readonly tag: Tag; readonly siteId: number };
}

/** What is known of one UTC day of a site. */
export interface SiteDay {
  readonly account: DayAccount;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  readonly withoutLog: readonly SeriesStatement[];
  readonly refused: readonly SeriesStatement[];
}

/** Series that are named at most, of each kind. */
const NAMED_MAX = 200;

/** Gathers the accounts of the series of a site, one after the other. */
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
