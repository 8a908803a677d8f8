import { Points } from "../../../core/codec/points.ts";
import type { Resolution } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketBefore, bucketEnd, bucketStart, localDay, timeBefore } from "./buckets.ts";
import type { EmittedValues } from "./emitted-points.ts";
import {
  answeredRanges,
  answeredWithin,
  fetchedIn,
  isFetched,
  isUnreadable,
  type LedgerRange,
  rangesIn,
  withRanges,
} from "./ledger-ranges.ts";
import { type Range, subtract } from "./ranges.ts";

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

export function ms(time: string): number {
  const known = parsed.get(time);
  if (known !== undefined) return known;
  if (parsed.size >= PARSED_MAX) parsed.clear();
  const value = Date.parse(time);
  parsed.set(time, value);
  return value;
}

export function firstSight(rules: SeriesRules, nowMs: number): StoredHistory {
  const { resolution, timeZone } = rules;
  const since = isoUtc(bucketStart(nowMs - rules.graceMs, resolution, timeZone));
  return {
    version: 2,
    resolution,
    timeZone,
    since,
    watermark: since,
    wished: isoUtc(wishedFrom(ms(since), rules)),
    spans: [],
    days: "",
    rereadFrom: null,
    dailyAt: isoUtc(nowMs),
    weeklyAt: isoUtc(nowMs),
    rememberedFrom: isoUtc(ms(since) - rules.lookBackMs),
    state: "unproven",
    refusal: null,
  };
}

/** Counted from when following began: by the clock each look would reach one bucket further or less. */
function wishedFrom(sinceMs: number, { backfillMs, resolution, timeZone }: SeriesRules): number {
  return bucketStart(sinceMs - backfillMs, resolution, timeZone);
}

/** Adapts a ledger to rules that have changed. Another zone cuts other buckets: they are followed from now on. */
export function adapted(held: StoredHistory, rules: SeriesRules, nowMs: number): StoredHistory {
  if (held.timeZone !== rules.timeZone) {
    return { ...firstSight(rules, nowMs), state: held.state, refusal: held.refusal };
  }
  const wished = isoUtc(wishedFrom(ms(held.since), rules));
  return ms(wished) < ms(held.wished) - DAY_MS ? { ...held, wished } : held;
}

/** Buckets that begin before this have closed, and had their time of grace. */
export function closedUntil(rules: SeriesRules, nowMs: number): number {
  return bucketStart(nowMs - rules.graceMs, rules.resolution, rules.timeZone);
}

/** What following fetches next: new closed buckets and, again, the latest ones; null while nothing is due. */
export function followingRange(
  held: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
  toMs = closedUntil(rules, nowMs),
): Range | null {
  const isDue = before(toMs, Math.max(1, rules.everyMs), rules) >= ms(held.watermark);
  if (held.rereadFrom === null && !isDue) return null;
  const fromMs = held.rereadFrom === null ? lookBackStart(held, rules, nowMs) : ms(held.rereadFrom);
  return toMs > fromMs ? { fromMs, toMs } : null;
}

/** From when on everything up to the watermark was answered. */
export function fetchedSince(held: StoredHistory): number {
  const watermark = ms(held.watermark);
  return answeredWithin(held.spans).find(({ toMs }) => toMs >= watermark)?.fromMs ?? watermark;
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
export function before(atMs: number, lengthMs: number, rules: SeriesRules): number {
  return isByCalendar(rules) ? timeBefore(atMs, lengthMs, rules.timeZone) : atMs - lengthMs;
}

/** Whether so many days have passed since the last reading that reached back so far. */
function isRereadDue(at: string, days: number, rules: SeriesRules, nowMs: number): boolean {
  const { timeZone } = rules;
  if (!isByCalendar(rules)) return nowMs - ms(at) >= days * DAY_MS;
  return localDay(nowMs, timeZone) - localDay(ms(at), timeZone) >= days;
}

/**
 * Two buckets each time; the last day (from the last such reading on) once a day, the whole look-back once a week.
 * It reaches back before the last such reading by the full time that data may be late, so that nothing falls between.
 */
function lookBackStart(held: StoredHistory, rules: SeriesRules, nowMs: number): number {
  const { resolution, timeZone, lookBackMs } = rules;
  const twoBack = bucketBefore(bucketBefore(ms(held.watermark), resolution, timeZone), resolution, timeZone);
  const starts = [twoBack];
  if (isRereadDue(held.dailyAt, 1, rules, nowMs))
    starts.push(before(ms(held.dailyAt), Math.min(lookBackMs, DAY_MS), rules));
  if (isRereadDue(held.weeklyAt, 7, rules, nowMs)) starts.push(before(ms(held.weeklyAt), lookBackMs, rules));
  // What is not had yet is the backfill's to tell.
  const floor = Math.max(Math.min(fetchedSince(held), ms(held.watermark)), ms(held.rememberedFrom));
  const least = firstBucketFrom(Math.min(floor, ms(held.watermark)), resolution, timeZone);
  return Math.max(bucketStart(Math.min(...starts), resolution, timeZone), least);
}

/** The start of the first bucket that begins at this time or later. */
function firstBucketFrom(atMs: number, resolution: Resolution, zone: string): number {
  const startMs = bucketStart(atMs, resolution, zone);
  return startMs === atMs ? atMs : bucketEnd(startMs, resolution, zone);
}

export interface Settled {
  readonly held: StoredHistory;
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
  held: StoredHistory,
  rules: SeriesRules,
  points: Points,
  range: Range,
  told: EmittedValues,
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
  const first = Math.max(placeByEnd(all, range.fromMs, held), all.placeOf(ms(held.rememberedFrom)));
  const inside = all.part(Math.min(first, all.placeOf(range.fromMs)), all.placeOf(range.toMs));
  for (let at = 0; at < inside.length; at++) {
    const atMs = inside.timeMs(at);
    const endMs = bucketEnd(atMs, resolution, timeZone);
    // By its own stamp it was still open, or the range ended within it, and then its value is that of a part: the
    // service cuts its buckets elsewhere than we thought. Such a bucket at the beginning would bring us no further.
    if (endMs + rules.graceMs > nowMs || (endMs > range.toMs && atMs > range.fromMs)) {
      toMs = Math.min(toMs, atMs);
    } else if (!told.has(atMs)) {
      fresh.copy(inside, at);
    } else if (told.get(atMs) !== inside.value(at)) {
      revised.copy(inside, at);
    }
  }
  const isDone = range.toMs >= ms(held.watermark);
  const isBegun = held.rereadFrom === null;
  // A request that left before a day began and is answered in it did not reach back for that day.
  const reachesBack = isBegun && range.fromMs <= lookBackStart(held, rules, nowMs);
  const rereads = (at: string, days: number) =>
    reachesBack && isRereadDue(at, days, rules, nowMs) ? isoUtc(nowMs) : at;
  const next: StoredHistory = {
    ...had(held, learn(answeredRanges(points, { fromMs: range.fromMs, toMs }, resolution, timeZone))),
    rereadFrom: isDone ? null : isoUtc(toMs),
    dailyAt: rereads(held.dailyAt, 1),
    weeklyAt: rereads(held.weeklyAt, 7),
    state: "following",
    refusal: null,
  };
  return { held: { ...next, rememberedFrom: isoUtc(rememberFrom(next, rules)) }, fresh, revised };
}

/**
 * A fetched range of the past: new as far as it was not told by another way meanwhile, and is whole. `learned` is what the
 * answer says of it; a part of a longer range is settled with what the whole answer says of that part.
 */
export function settlePast(
  held: StoredHistory,
  points: Points,
  range: Range,
  learned = answeredRanges(points, range, held.resolution, held.timeZone),
): Settled {
  const all = points.ascending();
  const place = (atMs: number) => placeByEnd(all, atMs, held);
  const fresh = Points.joined(
    unfetched(held, range).map(({ fromMs, toMs }) => all.part(place(fromMs), place(toMs))),
  );
  return { held: had(held, learned), fresh, revised: new Points() };
}

/**
 * The place of the first point whose bucket ends after a time, by its own stamp. Where a service cuts its buckets as we do,
 * that is the first point from that time on. Where it does not, a bucket that lies across the seam of two ranges belongs
 * to the later one, which asks one bucket further back and has all of it; the earlier one has its first part.
 */
function placeByEnd(all: Points, atMs: number, { resolution, timeZone }: StoredHistory): number {
  let place = all.placeOf(atMs);
  while (place > 0 && bucketEnd(all.timeMs(place - 1), resolution, timeZone) > atMs) place -= 1;
  return place;
}

/** A period whose total was answered. */
export function settleTotal(held: StoredHistory, range: Range, total: number | null): StoredHistory {
  const span = { ...range, why: total === null ? ("null" as const) : ("points" as const) };
  return upToDate({ ...held, spans: withRanges(held.spans, [span], held.resolution) });
}

function had(held: StoredHistory, learned: readonly LedgerRange[]): StoredHistory {
  return upToDate({ ...held, spans: withRanges(held.spans, learned, held.resolution) });
}

/** The watermark goes as far as everything was answered. */
function upToDate(held: StoredHistory): StoredHistory {
  const watermark = ms(held.watermark);
  const run = answeredWithin(held.spans).find(({ fromMs, toMs }) => fromMs <= watermark && toMs > watermark);
  return run === undefined ? held : { ...held, watermark: isoUtc(run.toMs) };
}

/** A stretch of which something else than an answer for it says that nothing is there. */
export function settleEmpty(
  held: StoredHistory,
  range: Range,
  word: { readonly why: "null" | "no-log"; readonly said: string; readonly at: string },
): StoredHistory {
  return upToDate({ ...held, spans: withRanges(held.spans, [{ ...range, ...word }], held.resolution) });
}

/** What of a range is not had, ascending. */
export function unfetched(held: StoredHistory, range: Range): readonly Range[] {
  return subtract(range, fetchedIn(held.spans));
}

/** A part of a hole that may be asked for now; what was refused before is asked for alone. */
export interface OpenPart extends Range {
  readonly alone: boolean;
  /** It was answered and is unreadable. */
  readonly unreadable?: true;
}

/** What of a range may be asked for now, ascending; what was refused lately is left alone for a while. */
export function openParts(held: StoredHistory, range: Range, nowMs: number): readonly OpenPart[] {
  const holes = unfetched(held, range);
  const refused = rangesIn(held.spans).filter((span) => !isFetched(span));
  if (refused.length === 0) return holes.map((hole) => ({ ...hole, alone: false }));
  const due = refused.filter(({ againAt }) => againAt === undefined || ms(againAt) <= nowMs);
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
export function wishedPast(held: StoredHistory): Range {
  return { fromMs: Math.min(ms(held.wished), ms(held.since)), toMs: ms(held.watermark) };
}

/** From where on told points may be met again, and have to be remembered. It never goes back. */
function rememberFrom(held: StoredHistory, rules: SeriesRules): number {
  const { resolution, timeZone } = rules;
  let buckets = ms(held.watermark);
  for (let i = 0; i < 3; i++) buckets = bucketBefore(buckets, resolution, timeZone);
  const deep = before(Math.min(ms(held.weeklyAt), ms(held.dailyAt)), rules.lookBackMs, rules);
  const underWay = held.rereadFrom === null ? Number.POSITIVE_INFINITY : ms(held.rereadFrom);
  return Math.max(ms(held.rememberedFrom), Math.min(buckets, deep, underWay));
}
