import { Points } from "../../../core/codec/points.ts";
import { BUCKET_MS, type TagLog, type TagTotal } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { bucketFinder } from "../completeness/days.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketEnd } from "./buckets.ts";
import { isUnreadable, type LedgerRange, rangesIn, SILENCE_MS } from "./ledger-ranges.ts";
import { merged, type Range, subtract } from "./ranges.ts";
import { waitMs } from "./refusals.ts";

/**
 * Buckets that were answered and are unreadable: neither had nor null nor absent. The ledger refuses them, and they are
 * requested again singly after 10 minutes, 1, 6 and 24 hours. Pure.
 */
export interface Unreadable {
  /** Complete buckets, ascending and disjoint. */
  readonly ranges: readonly Range[];
  /** One sentence with the service's own words. */
  readonly said: string;
}

/** How a ledger, a hole and a metric name the sentence of an unreadable answer. */
export function unreadableMessage(said: string): string {
  return `unreadable: ${said}`;
}

/** Returns the sentence of each unreadable log or total of a reply, by tag id. */
export function unreadableById(reply: readonly (TagLog | TagTotal)[]): ReadonlyMap<string, string> {
  return new Map(
    reply.flatMap(({ id, unreadable }) => {
      if (unreadable === undefined) return [];
      return [[id, typeof unreadable === "string" ? unreadable : unreadable.said] as const];
    }),
  );
}

/**
 * Returns the unreadable buckets of a log within a range; null where everything could be read. `isRetry`: refused buckets were
 * requested, and nothing else.
 */
export function unreadableIn(
  { unreadable }: TagLog,
  range: Range,
  held: StoredHistory,
  isRetry: boolean,
): Unreadable | null {
  if (unreadable === undefined) return null;
  const said = unreadableMessage(unreadable.said);
  const buckets = unreadable.timesMs === null ? [range] : bucketsOf(unreadable.timesMs, range, held);
  // The readable points of such a stretch were emitted already: it waits until all of it is readable.
  const waiting = isRetry
    ? rangesIn(held.spans).filter(
        ({ emitted, ...span }) => emitted === true && buckets.some((each) => overlaps(each, span)),
      )
    : [];
  const ranges = merged([...buckets, ...waiting.flatMap((span) => clipped(span, range))]);
  return ranges.length === 0 ? null : { ranges, said };
}

function bucketsOf(timesMs: readonly number[], range: Range, held: StoredHistory): readonly Range[] {
  const { resolution, timeZone } = held;
  const bucketOf = bucketFinder(resolution, timeZone);
  // The rules of a zone are slow: the end of a bucket matters only where another does not follow at once.
  const steadyMs = 1.2 * BUCKET_MS[resolution];
  const starts = timesMs.toSorted((a, b) => a - b).map(bucketOf);
  const buckets = starts.map((startMs, at) => {
    const next = starts[at + 1];
    const endMs =
      next !== undefined && next - startMs < steadyMs ? next : bucketEnd(startMs, resolution, timeZone);
    return { fromMs: startMs, toMs: endMs };
  });
  return merged(buckets.flatMap((bucket) => clipped(bucket, range)));
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
 * Returns the spans that an answer adds to a ledger: refusals in place of the silences of unreadable buckets. Refused
 * buckets that were not requested by themselves keep the time at which they are requested again, and buckets near them
 * share it: a tag with an unreadable bucket every hour is requested again once a day, and not for each of them.
 */
export function withUnreadable(
  held: StoredHistory,
  learned: readonly LedgerRange[],
  unreadable: Unreadable | null,
  isRetry: boolean,
  nowMs: number,
): readonly LedgerRange[] {
  if (unreadable === null) return learned;
  // Buckets that were open still are not settled.
  const untilMs = learned.at(-1)?.toMs ?? Number.NEGATIVE_INFINITY;
  const ranges = unreadable.ranges.flatMap((range) =>
    clipped(range, { fromMs: range.fromMs, toMs: untilMs }),
  );
  const before = rangesIn(held.spans).filter(isUnreadable);
  const nearMs = SILENCE_MS[held.resolution];
  const refusals = ranges.map((range): LedgerRange => {
    const around = { fromMs: range.fromMs - nearMs, toMs: range.toMs + nearMs };
    const same = before.filter((span) => overlaps(span, range));
    const near = same.at(-1) ?? before.findLast((span) => overlaps(span, around));
    if (near !== undefined && !(isRetry && same.length > 0)) return { ...shared(near, same), ...range };
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
function shared(near: LedgerRange, same: readonly LedgerRange[]): LedgerRange {
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
