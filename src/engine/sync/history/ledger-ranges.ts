import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagTotal } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory, StoredRange } from "../snapshot.ts";
import { bucketEnd, bucketFinder, mergeRanges, type Range, subtract } from "./buckets.ts";

/**
 * The ranges of one series: fetched or refused, and why. Pure. A fetched range stays fetched, and never grows over a time
 * that was not requested. A gap is a time without a range, or a refused range.
 */
export interface LedgerRange extends Range {
  readonly why: StoredRange["why"];
  readonly said?: string;
  readonly at?: string;
  readonly times?: number;
  readonly againAt?: string;
  readonly reason?: "unreadable";
  readonly emitted?: true;
}

/**
 * A shorter silence between two values counts as part of them, in milliseconds: many devices log every hour, and
 * every second range of a 5-minute series would be a silence.
 */
const SILENCE_MS: Readonly<Record<Resolution, number>> = {
  "5m": 24 * BUCKET_MS["5m"],
  "1h": 24 * BUCKET_MS["1h"],
  "1d": 2 * BUCKET_MS["1d"],
  "1w": 2 * BUCKET_MS["1w"],
  "1mo": 2 * BUCKET_MS["1mo"],
};

/** Most ranges of one ledger, so that the ledgers of thousands of tags fit into memory. */
export const RANGES_MAX = 48;

export function isFetched({ why }: Pick<LedgerRange, "why">): boolean {
  return why !== "refused";
}

/** Returns true for a range with unreadable data. It is requested again as the past; following continues after it. */
export function isUnreadable({ reason }: Pick<LedgerRange, "reason">): boolean {
  return reason === "unreadable";
}

/** Caches by stored ranges: thousands of ledgers are read several times a second, and few of them change. */
const parsedCache = new WeakMap<readonly StoredRange[], readonly LedgerRange[]>();
const fetchedCache = new WeakMap<readonly StoredRange[], readonly Range[]>();
const answeredCache = new WeakMap<readonly StoredRange[], readonly Range[]>();

export function rangesIn(stored: readonly StoredRange[]): readonly LedgerRange[] {
  const known = parsedCache.get(stored);
  if (known !== undefined) return known;
  const ranges = stored.map(({ from, to, ...rest }) => ({
    fromMs: Date.parse(from),
    toMs: Date.parse(to),
    ...rest,
  }));
  parsedCache.set(stored, ranges);
  return ranges;
}

/** Returns the fetched times in as few ranges as possible, ascending. */
export function fetchedIn(stored: readonly StoredRange[]): readonly Range[] {
  const known = fetchedCache.get(stored);
  if (known !== undefined) return known;
  const ranges: { fromMs: number; toMs: number }[] = [];
  for (const range of rangesIn(stored).filter(isFetched)) {
    const last = ranges.at(-1);
    if (last !== undefined && last.toMs === range.fromMs) last.toMs = range.toMs;
    else ranges.push({ fromMs: range.fromMs, toMs: range.toMs });
  }
  fetchedCache.set(stored, ranges);
  return ranges;
}

/** Returns the times with a response, readable or not, in as few ranges as possible, ascending. */
export function answeredWithin(stored: readonly StoredRange[]): readonly Range[] {
  const known = answeredCache.get(stored);
  if (known !== undefined) return known;
  const unreadable = rangesIn(stored).filter(isUnreadable);
  const ranges = unreadable.length === 0 ? fetchedIn(stored) : mergeRanges([...fetchedIn(stored), ...unreadable]);
  answeredCache.set(stored, ranges);
  return ranges;
}

export function storedRanges(ranges: readonly LedgerRange[]): readonly StoredRange[] {
  const stored = ranges.map(({ fromMs, toMs, ...rest }) => ({
    from: isoUtc(fromMs),
    to: isoUtc(toMs),
    ...rest,
  }));
  parsedCache.set(stored, ranges);
  return stored;
}

/**
 * Adds what was learned about some ranges. The stronger statement wins: values, then a response without values, then
 * a statement about times that were not requested, then a refusal.
 */
export function withRanges(
  stored: readonly StoredRange[],
  learned: readonly LedgerRange[],
  resolution: Resolution,
): readonly StoredRange[] {
  let ranges = [...rangesIn(stored)];
  for (const range of learned) {
    if (range.fromMs >= range.toMs) continue;
    const stands = (other: LedgerRange) => other.why !== "refused" && weight(other) >= weight(range);
    const kept = ranges.filter(stands);
    const parts = subtract(range, kept).map((part) => ({ ...range, ...part }));
    const others = ranges.filter((other) => !stands(other)).flatMap((other) => cutOut(other, range));
    ranges = [...kept, ...others, ...parts].sort((a, b) => a.fromMs - b.fromMs);
  }
  return storedRanges(limitRanges(joinRanges(ranges, resolution)));
}

function weight({ why, said }: LedgerRange): number {
  if (why === "points") return 3;
  if (why === "null" && said === undefined) return 2;
  return isFetched({ why }) ? 1 : 0;
}

/** Removes ranges that are no longer trusted; they become gaps. */
export function rangesWithout(
  stored: readonly StoredRange[],
  isDoubted: (range: LedgerRange) => boolean,
): readonly StoredRange[] {
  const left = rangesIn(stored).filter((range) => !isDoubted(range));
  return left.length === stored.length ? stored : storedRanges(left);
}

/** Returns what the response for a range states: values, and the silences before, between and after them. */
export function answeredRanges(
  points: Points,
  range: Range,
  resolution: Resolution,
  timeZone: string,
): readonly LedgerRange[] {
  const ranges: { fromMs: number; toMs: number; why: "points" | "null" }[] = [];
  let atMs = range.fromMs;
  const until = (toMs: number, why: "points" | "null") => {
    const last = ranges.at(-1);
    if (toMs > atMs && last?.why === why) last.toMs = toMs;
    else if (toMs > atMs) ranges.push({ fromMs: atMs, toMs, why });
    atMs = Math.max(atMs, toMs);
  };
  // If a time has two points and one of them is a value, the value counts.
  const known = points.isAscending() ? points : points.withValue().ascending();
  const inside = known.between(range.fromMs, range.toMs);
  const { length } = inside;
  const steadyMs = 1.2 * BUCKET_MS[resolution];
  const nextValue = (from: number) => {
    let i = from;
    while (i < length && Number.isNaN(inside.code(i))) i++;
    return i;
  };
  for (let i = nextValue(0); i < length; i = nextValue(i + 1)) {
    let time = inside.timeMs(i);
    if (time > atMs) until(time, "null");
    // Zone rules are slow: look up the end of a bucket only if no other value follows at once.
    for (let next = nextValue(i + 1); next < length; next = nextValue(i + 1)) {
      const nextMs = inside.timeMs(next);
      if (nextMs - time >= steadyMs) break;
      time = nextMs;
      i = next;
    }
    until(time, "points");
    until(Math.min(range.toMs, bucketEnd(time, resolution, timeZone)), "points");
  }
  until(range.toMs, "null");
  return joinRanges(ranges, resolution);
}

function cutOut(range: LedgerRange, taken: Range): readonly LedgerRange[] {
  return subtract(range, [taken]).map((part) => ({ ...range, ...part }));
}

/** Joins neighbours with the same statement, and short silences with the values around them. */
function joinRanges(ranges: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  const result: LedgerRange[] = [];
  for (const range of ranges) {
    const last = result.at(-1);
    if (last === undefined || last.toMs !== range.fromMs) {
      result.push(range);
      continue;
    }
    const before = result.at(-2);
    const isShortSilence =
      last.why === "null" && last.toMs - last.fromMs < SILENCE_MS[resolution] && before?.why === "points";
    if (sameReason(last, range)) result[result.length - 1] = joinPair(last, range);
    else if (isShortSilence && range.why === "points" && before.toMs === last.fromMs)
      result.splice(-2, 2, joinPair(before, range));
    else result.push(range);
  }
  return result;
}

function sameReason(a: LedgerRange, b: LedgerRange): boolean {
  // The later statement counts for both, because it may be retracted.
  const isSame = a.why === b.why && a.said === b.said && a.times === b.times && a.emitted === b.emitted;
  return isSame && (isFetched(a) || (a.againAt === b.againAt && a.reason === b.reason));
}

function joinPair(a: LedgerRange, b: LedgerRange): LedgerRange {
  const at = a.at !== undefined && b.at !== undefined && a.at > b.at ? a.at : (b.at ?? a.at);
  return { ...b, fromMs: a.fromMs, toMs: b.toMs, ...(at === undefined ? {} : { at }) };
}

/**
 * Returns at most 48 ranges: the shortest silences join the values next to them, then the shortest refusals are
 * dropped, which makes them gaps. Unreadable ranges are not dropped, because they would be requested at once: the two
 * nearest ones become one.
 */
function limitRanges(all: readonly LedgerRange[]): readonly LedgerRange[] {
  let ranges = all;
  while (ranges.length > RANGES_MAX) {
    const touches = (a: LedgerRange | undefined, b: LedgerRange | undefined) =>
      a !== undefined && b !== undefined && a.toMs === b.fromMs;
    const silences = ranges.flatMap((range, i) => {
      const [before, after] = [ranges[i - 1], ranges[i + 1]];
      const isNextToValues =
        (before?.why === "points" && touches(before, range)) || (after?.why === "points" && touches(range, after));
      return range.why === "null" && isNextToValues ? [range] : [];
    });
    const isForgettable = (range: LedgerRange) => range.why === "refused" && !isUnreadable(range);
    const least = shortest(silences) ?? shortest(ranges.filter(isForgettable));
    if (least === undefined) {
      const fewer = withNearestJoined(ranges);
      if (fewer === ranges) return ranges;
      ranges = fewer;
      continue;
    }
    ranges =
      least.why === "refused"
        ? ranges.filter((range) => range !== least)
        : joinNeighbours(ranges.map((range) => (range === least ? { ...pointsOf(range) } : range)));
  }
  return ranges;
}

/** Joins the two nearest unreadable ranges and the emitted points between them. */
function withNearestJoined(ranges: readonly LedgerRange[]): readonly LedgerRange[] {
  const pairs: {
    readonly first: LedgerRange;
    readonly from: number;
    readonly last: LedgerRange;
    readonly to: number;
  }[] = [];
  let before: { readonly range: LedgerRange; readonly at: number } | null = null;
  for (const [at, range] of ranges.entries()) {
    // The points of a gap between them were not emitted.
    if (ranges[at - 1]?.toMs !== range.fromMs) before = null;
    if (!isUnreadable(range)) continue;
    if (before !== null) pairs.push({ first: before.range, from: before.at, last: range, to: at });
    before = { range, at };
  }
  const gapMs = ({ first, last }: (typeof pairs)[number]) => last.fromMs - first.toMs;
  const [nearest] = pairs.sort((a, b) => gapMs(a) - gapMs(b));
  if (nearest === undefined) return ranges;
  const { first, from, last, to } = nearest;
  return [...ranges.slice(0, from), { ...first, toMs: last.toMs, emitted: true }, ...ranges.slice(to + 1)];
}

function pointsOf({ fromMs, toMs }: LedgerRange): LedgerRange {
  return { fromMs, toMs, why: "points" };
}

function joinNeighbours(ranges: readonly LedgerRange[]): readonly LedgerRange[] {
  const result: LedgerRange[] = [];
  for (const range of ranges) {
    const last = result.at(-1);
    if (last?.why === "points" && range.why === "points" && last.toMs === range.fromMs) {
      result[result.length - 1] = joinPair(last, range);
    } else result.push(range);
  }
  return result;
}

function shortest(ranges: readonly LedgerRange[]): LedgerRange | undefined {
  return ranges.reduce<LedgerRange | undefined>(
    (least, range) => (least === undefined || range.toMs - range.fromMs < least.toMs - least.fromMs ? range : least),
    undefined,
  );
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Back-off after the first, second, third and any later refusal in a row, in milliseconds. */
export const REFUSAL_WAITS_MS = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS] as const;
/** Returns the back-off after a number of refusals in a row, in milliseconds. */
export function waitMs(times: number): number {
  return REFUSAL_WAITS_MS[Math.min(times, REFUSAL_WAITS_MS.length) - 1] ?? DAY_MS;
}

/**
 * Buckets of a response that could not be read. The ledger stores them as refused, and they are requested again
 * singly after 10 minutes, 1, 6 and 24 hours.
 */
export interface Unreadable {
  /** Complete buckets, ascending and disjoint. */
  readonly ranges: readonly Range[];
  /** One sentence with the service's own words. */
  readonly said: string;
}

/** Returns the message that ledgers, gaps and metrics show for an unreadable response. */
export function unreadableMessage(said: string): string {
  return `unreadable: ${said}`;
}

/** Returns the message of each unreadable log or total of a reply, by tag id. */
export function unreadableById(reply: readonly (TagLog | TagTotal)[]): ReadonlyMap<string, string> {
  return new Map(
    reply.flatMap(({ id, unreadable }) => {
      if (unreadable === undefined) return [];
      return [[id, typeof unreadable === "string" ? unreadable : unreadable.said] as const];
    }),
  );
}

/**
 * Returns the unreadable buckets of a log within a range; null if everything could be read. `isRetry`: the request
 * was only for refused buckets.
 */
export function unreadableIn(
  { unreadable }: TagLog,
  range: Range,
  ledger: StoredHistory,
  isRetry: boolean,
): Unreadable | null {
  if (unreadable === undefined) return null;
  const said = unreadableMessage(unreadable.said);
  const buckets = unreadable.timesMs === null ? [range] : bucketsOf(unreadable.timesMs, range, ledger);
  // The readable points of such a range are emitted: it waits until all of it is readable.
  const waiting = isRetry
    ? rangesIn(ledger.spans).filter(
        ({ emitted, ...span }) => emitted === true && buckets.some((each) => overlaps(each, span)),
      )
    : [];
  const ranges = mergeRanges([...buckets, ...waiting.flatMap((span) => clipped(span, range))]);
  return ranges.length === 0 ? null : { ranges, said };
}

function bucketsOf(timesMs: readonly number[], range: Range, ledger: StoredHistory): readonly Range[] {
  const { resolution, timeZone } = ledger;
  const bucketOf = bucketFinder(resolution, timeZone);
  // Zone rules are slow: look up the end of a bucket only if no other bucket follows at once.
  const steadyMs = 1.2 * BUCKET_MS[resolution];
  const starts = timesMs.toSorted((a, b) => a - b).map(bucketOf);
  const buckets = starts.map((startMs, at) => {
    const next = starts[at + 1];
    const endMs = next !== undefined && next - startMs < steadyMs ? next : bucketEnd(startMs, resolution, timeZone);
    return { fromMs: startMs, toMs: endMs };
  });
  return mergeRanges(buckets.flatMap((bucket) => clipped(bucket, range)));
}

/** Returns ascending points without those of unreadable buckets, which are emitted when the complete bucket is readable. */
export function readablePoints(points: Points, unreadable: Unreadable | null): Points {
  if (unreadable === null) return points;
  const parts: Points[] = [];
  let from = 0;
  for (const { fromMs, toMs } of unreadable.ranges) {
    parts.push(points.part(from, points.placeOf(fromMs)));
    from = points.placeOf(toMs);
  }
  return Points.joined([...parts, points.part(from, points.length)]);
}

/** Returns every answered point of a log, unreadable ones as null, to be counted; null for a completely unreadable log. */
export function answeredPoints({ measurements, unreadable }: TagLog): Points | null {
  const points = Points.of(measurements);
  if (unreadable === undefined) return points;
  if (unreadable.timesMs === null) return null;
  const all = Points.joined([points, new Points()]);
  for (const timeMs of unreadable.timesMs) all.push(timeMs, Number.NaN);
  return all;
}

/**
 * Returns the ranges that a response adds to a ledger: refusals instead of the silences of unreadable buckets.
 * Refused buckets that were not requested singly keep their retry time, and nearby buckets share it: a tag with an
 * unreadable bucket every hour is requested again once a day.
 */
export function withUnreadable(
  ledger: StoredHistory,
  learned: readonly LedgerRange[],
  unreadable: Unreadable | null,
  isRetry: boolean,
  nowMs: number,
): readonly LedgerRange[] {
  if (unreadable === null) return learned;
  // Open buckets are not settled.
  const untilMs = learned.at(-1)?.toMs ?? Number.NEGATIVE_INFINITY;
  const ranges = unreadable.ranges.flatMap((range) => clipped(range, { fromMs: range.fromMs, toMs: untilMs }));
  const before = rangesIn(ledger.spans).filter(isUnreadable);
  const nearMs = SILENCE_MS[ledger.resolution];
  const refusals = ranges.map((range): LedgerRange => {
    const around = { fromMs: range.fromMs - nearMs, toMs: range.toMs + nearMs };
    const same = before.filter((span) => overlaps(span, range));
    const near = same.at(-1) ?? before.findLast((span) => overlaps(span, around));
    if (near !== undefined && !(isRetry && same.length > 0)) return { ...sharedRefusal(near, same), ...range };
    const times = same.reduce((most, span) => Math.max(most, span.times ?? 0), 0) + 1;
    return {
      ...range,
      ...{ why: "refused", reason: "unreadable", said: unreadable.said, at: isoUtc(nowMs), times },
      againAt: isoUtc(nowMs + waitMs(times)),
      ...(same.some(({ emitted }) => emitted === true) ? { emitted: true } : {}),
    };
  });
  const answered = learned.flatMap((span) => subtract(span, ranges).map((part) => ({ ...span, ...part })));
  return [...answered, ...refusals];
}

/** Returns the refusal to share: only a range that overlaps the stretch had its points emitted with it. */
function sharedRefusal(near: LedgerRange, same: readonly LedgerRange[]): LedgerRange {
  const { emitted, ...refusal } = near;
  return emitted === true && same.includes(near) ? near : refusal;
}

function clipped(range: Range, within: Range): readonly Range[] {
  const fromMs = Math.max(range.fromMs, within.fromMs);
  const toMs = Math.min(range.toMs, within.toMs);
  return fromMs < toMs ? [{ fromMs, toMs }] : [];
}

function overlaps(a: Range, b: Range): boolean {
  return a.fromMs < b.toMs && a.toMs > b.fromMs;
}
