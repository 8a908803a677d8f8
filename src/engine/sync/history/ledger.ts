import { Points } from "../../../core/codec/points.ts";
import type { Resolution, TagValue } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory, StoredRefusal } from "../snapshot.ts";
import {
  bucketBefore,
  bucketEnd,
  bucketStart,
  localDay,
  type Range,
  subtract,
  timeBefore,
} from "./buckets.ts";
import {
  answeredRanges,
  answeredWithin,
  fetchedIn,
  isFetched,
  isUnreadable,
  type LedgerRange,
  REFUSAL_WAITS_MS,
  rangesIn,
  rangesWithout,
  storedRanges,
  waitMs,
  withRanges,
} from "./ledger-ranges.ts";

/** Emitted values by the bucket's timestamp, milliseconds since 1970. */
export type EmittedValues = Map<number, TagValue>;

/** How one series is followed; from the configuration. */
export interface SeriesRules {
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly everyMs: number;
  readonly backfillMs: number;
  readonly graceMs: number;
  readonly lookBackMs: number;
}

/**
 * The ledger of one series: which range is to be fetched next, and what a fetched range turns into. Pure.
 * The picture is at `StoredHistory`.
 */

const DAY_MS = 86_400_000;

/** Thousands of ledgers share few moments and are looked through several times a second. */
const parsed = new Map<string, number>();
const PARSED_MAX = 10_000;

export function parseTime(time: string): number {
  const known = parsed.get(time);
  if (known !== undefined) return known;
  if (parsed.size >= PARSED_MAX) parsed.clear();
  const value = Date.parse(time);
  parsed.set(time, value);
  return value;
}

export function newLedger(rules: SeriesRules, nowMs: number): StoredHistory {
  const { resolution, timeZone } = rules;
  const since = isoUtc(bucketStart(nowMs - rules.graceMs, resolution, timeZone));
  return {
    version: 2,
    resolution,
    timeZone,
    since,
    watermark: since,
    wished: isoUtc(targetStart(parseTime(since), rules)),
    spans: [],
    days: "",
    rereadFrom: null,
    dailyAt: isoUtc(nowMs),
    weeklyAt: isoUtc(nowMs),
    rememberedFrom: isoUtc(parseTime(since) - rules.lookBackMs),
    state: "unproven",
    refusal: null,
  };
}

/** Counted from when following began: by the clock each look would reach one bucket further or less. */
function targetStart(sinceMs: number, { backfillMs, resolution, timeZone }: SeriesRules): number {
  return bucketStart(sinceMs - backfillMs, resolution, timeZone);
}

/** Adapts a ledger to rules that have changed. Another zone cuts other buckets: they are followed from now on. */
export function adaptLedger(ledger: StoredHistory, rules: SeriesRules, nowMs: number): StoredHistory {
  if (ledger.timeZone !== rules.timeZone) {
    return { ...newLedger(rules, nowMs), state: ledger.state, refusal: ledger.refusal };
  }
  const wished = isoUtc(targetStart(parseTime(ledger.since), rules));
  return parseTime(wished) < parseTime(ledger.wished) - DAY_MS ? { ...ledger, wished } : ledger;
}

/** Buckets that begin before this have closed, and had their time of grace. */
export function closedUntil(rules: SeriesRules, nowMs: number): number {
  return bucketStart(nowMs - rules.graceMs, rules.resolution, rules.timeZone);
}

/** What following fetches next: new closed buckets and, again, the latest ones; null while nothing is due. */
export function followingRange(
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
  toMs = closedUntil(rules, nowMs),
): Range | null {
  const isDue = earlierTime(toMs, Math.max(1, rules.everyMs), rules) >= parseTime(ledger.watermark);
  if (ledger.rereadFrom === null && !isDue) return null;
  const fromMs =
    ledger.rereadFrom === null ? lookBackStart(ledger, rules, nowMs) : parseTime(ledger.rereadFrom);
  return toMs > fromMs ? { fromMs, toMs } : null;
}

/** From when on everything up to the watermark was answered. */
export function fetchedSince(ledger: StoredHistory): number {
  const watermark = parseTime(ledger.watermark);
  return answeredWithin(ledger.spans).find(({ toMs }) => toMs >= watermark)?.fromMs ?? watermark;
}

/**
 * Whether days are counted by the calendar of the zone: where the buckets are days or longer, or are fetched once a day. A day
 * of 24 hours would pass over a fetch that comes half a second earlier in the day than the one before, or after 23 hours.
 */
function isByCalendar({ resolution, everyMs }: SeriesRules): boolean {
  return (
    (everyMs >= DAY_MS && everyMs < Number.POSITIVE_INFINITY) || (resolution !== "5m" && resolution !== "1h")
  );
}

/** The time so long before another one, as days are counted for this series. */
export function earlierTime(atMs: number, lengthMs: number, rules: SeriesRules): number {
  return isByCalendar(rules) ? timeBefore(atMs, lengthMs, rules.timeZone) : atMs - lengthMs;
}

/** Whether so many days have passed since the last reading that reached back so far. */
function isRereadDue(at: string, days: number, rules: SeriesRules, nowMs: number): boolean {
  const { timeZone } = rules;
  if (!isByCalendar(rules)) return nowMs - parseTime(at) >= days * DAY_MS;
  return localDay(nowMs, timeZone) - localDay(parseTime(at), timeZone) >= days;
}

/**
 * Two buckets each time; the last day (from the last such reading on) once a day, the whole look-back once a week.
 * It reaches back before the last such reading by the full time that data may be late, so that nothing falls between.
 */
function lookBackStart(ledger: StoredHistory, rules: SeriesRules, nowMs: number): number {
  const { resolution, timeZone, lookBackMs } = rules;
  const twoBack = bucketBefore(
    bucketBefore(parseTime(ledger.watermark), resolution, timeZone),
    resolution,
    timeZone,
  );
  const starts = [twoBack];
  if (isRereadDue(ledger.dailyAt, 1, rules, nowMs))
    starts.push(earlierTime(parseTime(ledger.dailyAt), Math.min(lookBackMs, DAY_MS), rules));
  if (isRereadDue(ledger.weeklyAt, 7, rules, nowMs))
    starts.push(earlierTime(parseTime(ledger.weeklyAt), lookBackMs, rules));
  // What is not had yet is the backfill's to tell.
  const floor = Math.max(
    Math.min(fetchedSince(ledger), parseTime(ledger.watermark)),
    parseTime(ledger.rememberedFrom),
  );
  const least = firstBucketFrom(Math.min(floor, parseTime(ledger.watermark)), resolution, timeZone);
  return Math.max(bucketStart(Math.min(...starts), resolution, timeZone), least);
}

/** The start of the first bucket that begins at this time or later. */
function firstBucketFrom(atMs: number, resolution: Resolution, zone: string): number {
  const startMs = bucketStart(atMs, resolution, zone);
  return startMs === atMs ? atMs : bucketEnd(startMs, resolution, zone);
}

export interface Settled {
  readonly ledger: StoredHistory;
  /** Points that were never told; ascending, each time once. */
  readonly fresh: Points;
  /** Points that were told with another value; in the same order. */
  readonly revised: Points;
}

/**
 * A fetched range of following: what is new in it, what has changed, and how far the ledger comes. `learn` changes what
 * the answer says of the range.
 */
export function settleFollowing(
  ledger: StoredHistory,
  rules: SeriesRules,
  points: Points,
  range: Range,
  emitted: EmittedValues,
  nowMs: number,
  learn: (answered: readonly LedgerRange[]) => readonly LedgerRange[] = (answered) => answered,
): Settled {
  const { resolution, timeZone } = rules;
  const fresh = new Points();
  const revised = new Points();
  // A range that was asked for by a clock that was ahead, and has been compared since, is had as far as it has closed.
  let toMs = Math.min(range.toMs, Math.max(range.fromMs, closedUntil(rules, nowMs)));
  const all = points.ascending();
  // What was told of a time before that is not remembered.
  const first = Math.max(
    indexByEnd(all, range.fromMs, ledger),
    all.placeOf(parseTime(ledger.rememberedFrom)),
  );
  const inside = all.part(Math.min(first, all.placeOf(range.fromMs)), all.placeOf(range.toMs));
  for (let at = 0; at < inside.length; at++) {
    const atMs = inside.timeMs(at);
    const endMs = bucketEnd(atMs, resolution, timeZone);
    // By its own stamp it was still open, or the range ended within it, and then its value is that of a part: the
    // service cuts its buckets elsewhere than we thought. Such a bucket at the beginning would bring us no further.
    if (endMs + rules.graceMs > nowMs || (endMs > range.toMs && atMs > range.fromMs)) {
      toMs = Math.min(toMs, atMs);
    } else if (!emitted.has(atMs)) {
      fresh.copy(inside, at);
    } else if (emitted.get(atMs) !== inside.value(at)) {
      revised.copy(inside, at);
    }
  }
  const isDone = range.toMs >= parseTime(ledger.watermark);
  const isBegun = ledger.rereadFrom === null;
  // A request that left before a day began and is answered in it did not reach back for that day.
  const reachesBack = isBegun && range.fromMs <= lookBackStart(ledger, rules, nowMs);
  const rereads = (at: string, days: number) =>
    reachesBack && isRereadDue(at, days, rules, nowMs) ? isoUtc(nowMs) : at;
  const next: StoredHistory = {
    ...addRanges(ledger, learn(answeredRanges(points, { fromMs: range.fromMs, toMs }, resolution, timeZone))),
    rereadFrom: isDone ? null : isoUtc(toMs),
    dailyAt: rereads(ledger.dailyAt, 1),
    weeklyAt: rereads(ledger.weeklyAt, 7),
    state: "following",
    refusal: null,
  };
  return { ledger: { ...next, rememberedFrom: isoUtc(retainedFrom(next, rules)) }, fresh, revised };
}

/**
 * A fetched range of the past: new as far as it was not told by another way meanwhile, and is whole. `learned` is what the
 * answer says of it; a part of a longer range is settled with what the whole answer says of that part.
 */
export function settlePast(
  ledger: StoredHistory,
  points: Points,
  range: Range,
  learned = answeredRanges(points, range, ledger.resolution, ledger.timeZone),
): Settled {
  const all = points.ascending();
  const index = (atMs: number) => indexByEnd(all, atMs, ledger);
  const fresh = Points.joined(
    unfetched(ledger, range).map(({ fromMs, toMs }) => all.part(index(fromMs), index(toMs))),
  );
  return { ledger: addRanges(ledger, learned), fresh, revised: new Points() };
}

/**
 * The place of the first point whose bucket ends after a time, by its own stamp. Where a service cuts its buckets as we do,
 * that is the first point from that time on. Where it does not, a bucket that lies across the seam of two ranges belongs
 * to the later one, which asks one bucket further back and has all of it; the earlier one has its first part.
 */
function indexByEnd(all: Points, atMs: number, { resolution, timeZone }: StoredHistory): number {
  let index = all.placeOf(atMs);
  while (index > 0 && bucketEnd(all.timeMs(index - 1), resolution, timeZone) > atMs) index -= 1;
  return index;
}

/** A period whose total was answered. */
export function settleTotal(ledger: StoredHistory, range: Range, total: number | null): StoredHistory {
  const span = { ...range, why: total === null ? ("null" as const) : ("points" as const) };
  return advanceWatermark({ ...ledger, spans: withRanges(ledger.spans, [span], ledger.resolution) });
}

function addRanges(ledger: StoredHistory, learned: readonly LedgerRange[]): StoredHistory {
  return advanceWatermark({ ...ledger, spans: withRanges(ledger.spans, learned, ledger.resolution) });
}

/** The watermark goes as far as everything was answered. */
function advanceWatermark(ledger: StoredHistory): StoredHistory {
  const watermark = parseTime(ledger.watermark);
  const run = answeredWithin(ledger.spans).find(
    ({ fromMs, toMs }) => fromMs <= watermark && toMs > watermark,
  );
  return run === undefined ? ledger : { ...ledger, watermark: isoUtc(run.toMs) };
}

/** A stretch of which something else than an answer for it says that nothing is there. */
export function recordEmpty(
  ledger: StoredHistory,
  range: Range,
  word: { readonly why: "null" | "no-log"; readonly said: string; readonly at: string },
): StoredHistory {
  return advanceWatermark({
    ...ledger,
    spans: withRanges(ledger.spans, [{ ...range, ...word }], ledger.resolution),
  });
}

/** What of a range is not had, ascending. */
export function unfetched(ledger: StoredHistory, range: Range): readonly Range[] {
  return subtract(range, fetchedIn(ledger.spans));
}

/** A part of a hole that may be asked for now; what was refused before is asked for alone. */
export interface OpenPart extends Range {
  readonly alone: boolean;
  /** It was answered and is unreadable. */
  readonly unreadable?: true;
}

/** What of a range may be asked for now, ascending; what was refused lately is left alone for a while. */
export function openParts(ledger: StoredHistory, range: Range, nowMs: number): readonly OpenPart[] {
  const holes = unfetched(ledger, range);
  const refused = rangesIn(ledger.spans).filter((span) => !isFetched(span));
  if (refused.length === 0) return holes.map((hole) => ({ ...hole, alone: false }));
  const due = refused.filter(({ againAt }) => againAt === undefined || parseTime(againAt) <= nowMs);
  return holes
    .flatMap((hole): readonly OpenPart[] => [
      ...subtract(hole, refused).map((part) => ({ ...part, alone: false })),
      ...due.flatMap((span) => {
        const fromMs = Math.max(span.fromMs, hole.fromMs);
        const toMs = Math.min(span.toMs, hole.toMs);
        const part = { fromMs, toMs, alone: true };
        return fromMs >= toMs ? [] : [isUnreadable(span) ? { ...part, unreadable: true as const } : part];
      }),
    ])
    .toSorted((a, b) => a.fromMs - b.fromMs);
}

/** The past that is wished: from the depth of the backfill to the front of following. */
export function targetPast(ledger: StoredHistory): Range {
  return {
    fromMs: Math.min(parseTime(ledger.wished), parseTime(ledger.since)),
    toMs: parseTime(ledger.watermark),
  };
}

/** From where on told points may be met again, and have to be remembered. It never goes back. */
function retainedFrom(ledger: StoredHistory, rules: SeriesRules): number {
  const { resolution, timeZone } = rules;
  let buckets = parseTime(ledger.watermark);
  for (let i = 0; i < 3; i++) buckets = bucketBefore(buckets, resolution, timeZone);
  const deep = earlierTime(
    Math.min(parseTime(ledger.weeklyAt), parseTime(ledger.dailyAt)),
    rules.lookBackMs,
    rules,
  );
  const underWay = ledger.rereadFrom === null ? Number.POSITIVE_INFINITY : parseTime(ledger.rereadFrom);
  return Math.max(parseTime(ledger.rememberedFrom), Math.min(buckets, deep, underWay));
}

/**
 * What a refusal of one series, asked alone, leaves in its ledger. A refusal is no answer: whatever was refused is a
 * hole and is asked for again; only where the service itself says that there is no log of a time, that is its answer.
 * Pure.
 */

/** How long a tag that never had a log is left alone: a day, then twice as long each time, up to 32 days. */
const NEVER_DOUBLINGS = 5;

function noLogWaitMs(times: number, wasAnswered: boolean): number {
  // What had a log until lately may have it again soon: then the long waits begin after the short ones.
  const never = wasAnswered ? times - REFUSAL_WAITS_MS.length : times;
  return never < 1 ? waitMs(times) : DAY_MS * 2 ** Math.min(NEVER_DOUBLINGS, never - 1);
}

function nextRefusal(
  before: StoredRefusal | null,
  said: string,
  nowMs: number,
  wait: (times: number) => number,
) {
  const times = (before?.times ?? 0) + 1;
  return { said, at: isoUtc(nowMs), times, againAt: isoUtc(nowMs + wait(times)) };
}

/** The service says that there is no log of the tag (any more). */
export function recordNoLog(ledger: StoredHistory, said: string, nowMs: number): StoredHistory {
  const before = ledger.state === "no-log" ? ledger.refusal : null;
  const refusal = nextRefusal(before, said, nowMs, (times) => noLogWaitMs(times, wasAnswered(ledger)));
  return { ...ledger, state: "no-log", refusal };
}

/** Following, or learning whether there is a log, was refused for another reason; of a total also that it is unreadable. */
export function recordRefusal(
  ledger: StoredHistory,
  said: string,
  nowMs: number,
  reason?: "unreadable",
): StoredHistory {
  if (ledger.state === "no-log") {
    // What the service said of its log still stands; only the asking again did not work.
    const againAt = isoUtc(nowMs + waitMs(1));
    return ledger.refusal === null ? ledger : { ...ledger, refusal: { ...ledger.refusal, againAt } };
  }
  const refusal = nextRefusal(ledger.refusal, said, nowMs, waitMs);
  return { ...ledger, refusal: reason === undefined ? refusal : { ...refusal, reason } };
}

/** A stretch of the past was refused for another reason than a missing log. */
export function recordPastRefusal(
  ledger: StoredHistory,
  range: Range,
  said: string,
  nowMs: number,
): StoredHistory {
  const before = rangesIn(ledger.spans)
    .filter(({ why, fromMs, toMs }) => why === "refused" && fromMs < range.toMs && toMs > range.fromMs)
    .reduce((most, { times = 0 }) => Math.max(most, times), 0);
  const times = before + 1;
  const refusal: LedgerRange = {
    ...range,
    why: "refused",
    said,
    at: isoUtc(nowMs),
    times,
    againAt: isoUtc(nowMs + waitMs(times)),
  };
  return { ...ledger, spans: withRanges(ledger.spans, [refusal], ledger.resolution) };
}

/** It is left alone because of a refusal. */
export function isBackingOff({ refusal }: StoredHistory, nowMs: number): boolean {
  return refusal !== null && parseTime(refusal.againAt) > nowMs;
}

/**
 * Whether an order may count on the word that there is no log: of a tag that had one, only once it was said twice, ten
 * minutes apart.
 */
export function hasNoLog(ledger: StoredHistory): boolean {
  return ledger.state === "no-log" && (!wasAnswered(ledger) || (ledger.refusal?.times ?? 0) > 1);
}

function wasAnswered({ spans }: StoredHistory): boolean {
  return spans.some(({ why, said }) => why === "points" || (why === "null" && said === undefined));
}

/**
 * Takes back what was said of its log after a time: the site may have been out of the token's scope then, and
 * a tag that cannot be seen has no log for whoever asks.
 */
export function retractNoLog(ledger: StoredHistory, after: string, total: boolean): StoredHistory {
  const isDoubted = ({ why, at = "" }: LedgerRange) => why === "no-log" && at >= after;
  const first = rangesIn(ledger.spans).find(isDoubted);
  let back = ledger;
  if (first !== undefined) {
    // Totals only go forward, so they begin again there.
    const watermark = total ? isoUtc(Math.min(parseTime(ledger.watermark), first.fromMs)) : ledger.watermark;
    back = { ...ledger, watermark, spans: rangesWithout(ledger.spans, isDoubted) };
  }
  if (back.refusal === null || back.refusal.at < after) return back;
  return { ...back, refusal: null, state: back.state === "no-log" ? "unproven" : back.state };
}

/** A ledger as it was written before a span said why. */
export interface LegacyLedger extends Omit<StoredHistory, "version" | "spans" | "refusal"> {
  readonly version?: undefined;
  readonly reached: string;
}

/**
 * Reads what was written before with suspicion: until then a refusal could pass for an answer. What was followed stays;
 * the past before the first sight is asked for again, and so is whether a tag has a log at all. What had been told of
 * that past comes again, as backfill.
 */
export function upgradeLedger(stored: StoredHistory | LegacyLedger, total: boolean): StoredHistory {
  if (stored.version !== undefined) return stored;
  const { reached, ...kept } = stored;
  const { since, watermark, rememberedFrom, dailyAt, weeklyAt, wished, resolution, timeZone } = kept;
  // Totals are told from the depth of the backfill on, and only answers ever brought them further.
  const from = total ? parseTime(reached) : parseTime(since);
  const spans = [
    { fromMs: Math.min(from, parseTime(watermark)), toMs: parseTime(watermark), why: "points" as const },
  ];
  const wasFollowed = kept.state === "following" && parseTime(watermark) > from;
  return {
    version: 2,
    resolution,
    timeZone,
    since,
    watermark: wasFollowed ? watermark : isoUtc(Math.min(from, parseTime(watermark))),
    wished,
    spans: wasFollowed ? storedRanges(spans) : [],
    rereadFrom: wasFollowed ? kept.rereadFrom : null,
    dailyAt,
    weeklyAt,
    rememberedFrom,
    state: kept.state === "no-log" ? "unproven" : kept.state,
    refusal: null,
  };
}
