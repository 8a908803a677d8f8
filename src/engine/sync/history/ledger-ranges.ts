import type { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredRange } from "../snapshot.ts";
import { bucketEnd } from "./buckets.ts";
import { merged, type Range, subtract } from "./ranges.ts";

/**
 * The spans of one series: what is had and why, or why not. Pure. What is had stays had, and is never lengthened over
 * a time that was not; a hole is whatever no span covers, and whatever was refused.
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
 * A silence shorter than this between two values counts as part of them, in milliseconds: many devices are logged
 * every hour, and asked for every five minutes such a series would be nothing but silences.
 */
export const SILENCE_MS: Readonly<Record<Resolution, number>> = {
  "5m": 24 * BUCKET_MS["5m"],
  "1h": 24 * BUCKET_MS["1h"],
  "1d": 2 * BUCKET_MS["1d"],
  "1w": 2 * BUCKET_MS["1w"],
  "1mo": 2 * BUCKET_MS["1mo"],
};

/** Spans of one series that are kept apart, so that the ledgers of thousands of tags fit into memory. */
export const RANGES_MAX = 48;

export function isFetched({ why }: Pick<LedgerRange, "why">): boolean {
  return why !== "refused";
}

/** True for a range that was answered with unreadable data. It is requested again as the past; following continues after it. */
export function isUnreadable({ reason }: Pick<LedgerRange, "reason">): boolean {
  return reason === "unreadable";
}

/** Thousands of ledgers are looked through several times a second, and few of them change in between. */
const read = new WeakMap<readonly StoredRange[], readonly LedgerRange[]>();
const had = new WeakMap<readonly StoredRange[], readonly Range[]>();
const answered = new WeakMap<readonly StoredRange[], readonly Range[]>();

export function rangesIn(held: readonly StoredRange[]): readonly LedgerRange[] {
  const known = read.get(held);
  if (known !== undefined) return known;
  const spans = held.map(({ from, to, ...rest }) => ({
    fromMs: Date.parse(from),
    toMs: Date.parse(to),
    ...rest,
  }));
  read.set(held, spans);
  return spans;
}

/** What is had, in as few ranges as possible, ascending. */
export function fetchedIn(held: readonly StoredRange[]): readonly Range[] {
  const known = had.get(held);
  if (known !== undefined) return known;
  const ranges: { fromMs: number; toMs: number }[] = [];
  for (const span of rangesIn(held).filter(isFetched)) {
    const last = ranges.at(-1);
    if (last !== undefined && last.toMs === span.fromMs) last.toMs = span.toMs;
    else ranges.push({ fromMs: span.fromMs, toMs: span.toMs });
  }
  had.set(held, ranges);
  return ranges;
}

/** Answered times, readable or not, in as few ranges as possible, ascending. */
export function answeredWithin(held: readonly StoredRange[]): readonly Range[] {
  const known = answered.get(held);
  if (known !== undefined) return known;
  const unreadable = rangesIn(held).filter(isUnreadable);
  const ranges = unreadable.length === 0 ? fetchedIn(held) : merged([...fetchedIn(held), ...unreadable]);
  answered.set(held, ranges);
  return ranges;
}

export function storedRanges(spans: readonly LedgerRange[]): readonly StoredRange[] {
  const held = spans.map(({ fromMs, toMs, ...rest }) => ({
    from: isoUtc(fromMs),
    to: isoUtc(toMs),
    ...rest,
  }));
  read.set(held, spans);
  return held;
}

/**
 * With what was learned of some times. What weighs more stands: values before a silence that was answered, that before a
 * word about a time that was not answered itself, and a refusal says something of what is not had alone.
 */
export function withRanges(
  held: readonly StoredRange[],
  learned: readonly LedgerRange[],
  resolution: Resolution,
): readonly StoredRange[] {
  let spans = [...rangesIn(held)];
  for (const span of learned) {
    if (span.fromMs >= span.toMs) continue;
    const stands = (other: LedgerRange) => other.why !== "refused" && weight(other) >= weight(span);
    const kept = spans.filter(stands);
    const parts = subtract(span, kept).map((part) => ({ ...span, ...part }));
    const others = spans.filter((other) => !stands(other)).flatMap((other) => without(other, span));
    spans = [...kept, ...others, ...parts].sort((a, b) => a.fromMs - b.fromMs);
  }
  return storedRanges(bounded(joined(spans, resolution)));
}

function weight({ why, said }: LedgerRange): number {
  if (why === "points") return 3;
  if (why === "null" && said === undefined) return 2;
  return isFetched({ why }) ? 1 : 0;
}

/** Spans without those that are not believed any more: holes from now on. */
export function rangesWithout(
  held: readonly StoredRange[],
  isDoubted: (span: LedgerRange) => boolean,
): readonly StoredRange[] {
  const left = rangesIn(held).filter((span) => !isDoubted(span));
  return left.length === held.length ? held : storedRanges(left);
}

/** What the answer for a range says: values, and the silences before, between and after them. */
export function answeredRanges(
  points: Points,
  range: Range,
  resolution: Resolution,
  timeZone: string,
): readonly LedgerRange[] {
  const spans: { fromMs: number; toMs: number; why: "points" | "null" }[] = [];
  let atMs = range.fromMs;
  const until = (toMs: number, why: "points" | "null") => {
    const last = spans.at(-1);
    if (toMs > atMs && last?.why === why) last.toMs = toMs;
    else if (toMs > atMs) spans.push({ fromMs: atMs, toMs, why });
    atMs = Math.max(atMs, toMs);
  };
  // Of two answers for one time, one of them a value, it is a value that was had.
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
    // The rules of a zone are slow: only where another value does not follow at once does the end of a bucket matter.
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
  return joined(spans, resolution);
}

function without(span: LedgerRange, range: Range): readonly LedgerRange[] {
  return subtract(span, [range]).map((part) => ({ ...span, ...part }));
}

/** As few spans as say the same; a short silence between two stretches of values becomes part of them. */
function joined(spans: readonly LedgerRange[], resolution: Resolution): readonly LedgerRange[] {
  const result: LedgerRange[] = [];
  for (const span of spans) {
    const last = result.at(-1);
    if (last === undefined || last.toMs !== span.fromMs) {
      result.push(span);
      continue;
    }
    const before = result.at(-2);
    const isShortSilence =
      last.why === "null" && last.toMs - last.fromMs < SILENCE_MS[resolution] && before?.why === "points";
    if (sameReason(last, span)) result[result.length - 1] = joint(last, span);
    else if (isShortSilence && span.why === "points" && before.toMs === last.fromMs)
      result.splice(-2, 2, joint(before, span));
    else result.push(span);
  }
  return result;
}

function sameReason(a: LedgerRange, b: LedgerRange): boolean {
  // What was said of it last counts for both: it may have to be taken back.
  const isSame = a.why === b.why && a.said === b.said && a.times === b.times && a.emitted === b.emitted;
  return isSame && (isFetched(a) || (a.againAt === b.againAt && a.reason === b.reason));
}

function joint(a: LedgerRange, b: LedgerRange): LedgerRange {
  const at = a.at !== undefined && b.at !== undefined && a.at > b.at ? a.at : (b.at ?? a.at);
  return { ...b, fromMs: a.fromMs, toMs: b.toMs, ...(at === undefined ? {} : { at }) };
}

/**
 * At most so many: the shortest silences become part of the values next to them, then the shortest refusals are
 * forgotten, which makes them a hole that nobody asked for. Unreadable stretches are not forgotten, or they would be
 * requested again at once: the two that are nearest to each other become one. What is had apart from everything else
 * stays.
 */
function bounded(all: readonly LedgerRange[]): readonly LedgerRange[] {
  let spans = all;
  while (spans.length > RANGES_MAX) {
    const touches = (a: LedgerRange | undefined, b: LedgerRange | undefined) =>
      a !== undefined && b !== undefined && a.toMs === b.fromMs;
    const silences = spans.flatMap((span, i) => {
      const [before, after] = [spans[i - 1], spans[i + 1]];
      const isBeside =
        (before?.why === "points" && touches(before, span)) ||
        (after?.why === "points" && touches(span, after));
      return span.why === "null" && isBeside ? [span] : [];
    });
    const isForgettable = (span: LedgerRange) => span.why === "refused" && !isUnreadable(span);
    const least = shortest(silences) ?? shortest(spans.filter(isForgettable));
    if (least === undefined) {
      const fewer = withNearestJoined(spans);
      if (fewer === spans) return spans;
      spans = fewer;
      continue;
    }
    spans =
      least.why === "refused"
        ? spans.filter((span) => span !== least)
        : neighbours(spans.map((span) => (span === least ? { ...pointsOf(span) } : span)));
  }
  return spans;
}

/** Joins the two unreadable stretches that are nearest to each other, and the points between them, which were emitted. */
function withNearestJoined(spans: readonly LedgerRange[]): readonly LedgerRange[] {
  const pairs: {
    readonly first: LedgerRange;
    readonly from: number;
    readonly last: LedgerRange;
    readonly to: number;
  }[] = [];
  let before: { readonly span: LedgerRange; readonly at: number } | null = null;
  for (const [at, span] of spans.entries()) {
    // The points of a hole between them were not emitted.
    if (spans[at - 1]?.toMs !== span.fromMs) before = null;
    if (!isUnreadable(span)) continue;
    if (before !== null) pairs.push({ first: before.span, from: before.at, last: span, to: at });
    before = { span, at };
  }
  const gapMs = ({ first, last }: (typeof pairs)[number]) => last.fromMs - first.toMs;
  const [nearest] = pairs.sort((a, b) => gapMs(a) - gapMs(b));
  if (nearest === undefined) return spans;
  const { first, from, last, to } = nearest;
  return [...spans.slice(0, from), { ...first, toMs: last.toMs, emitted: true }, ...spans.slice(to + 1)];
}

function pointsOf({ fromMs, toMs }: LedgerRange): LedgerRange {
  return { fromMs, toMs, why: "points" };
}

function neighbours(spans: readonly LedgerRange[]): readonly LedgerRange[] {
  const result: LedgerRange[] = [];
  for (const span of spans) {
    const last = result.at(-1);
    if (last?.why === "points" && span.why === "points" && last.toMs === span.fromMs) {
      result[result.length - 1] = joint(last, span);
    } else result.push(span);
  }
  return result;
}

function shortest(spans: readonly LedgerRange[]): LedgerRange | undefined {
  return spans.reduce<LedgerRange | undefined>(
    (least, span) =>
      least === undefined || span.toMs - span.fromMs < least.toMs - least.fromMs ? span : least,
    undefined,
  );
}
