import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory, StoredRefusal } from "../snapshot.ts";
import { ms } from "./ledger.ts";
import { type LedgerRange, rangesIn, rangesWithout, withRanges } from "./ledger-ranges.ts";
import type { Range } from "./ranges.ts";

/**
 * What a refusal of one series, asked alone, leaves in its ledger. A refusal is no answer: whatever was refused is a
 * hole and is asked for again; only where the service itself says that there is no log of a time, that is its answer.
 * Pure.
 */

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** How long something is left alone after its first, second, third and any later refusal in a row, milliseconds. */
const WAITS_MS = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS] as const;
/** How long a tag that never had a log is left alone: a day, then twice as long each time, up to 32 days. */
const NEVER_DOUBLINGS = 5;

export function waitMs(times: number): number {
  return WAITS_MS[Math.min(times, WAITS_MS.length) - 1] ?? DAY_MS;
}

function noLogWaitMs(times: number, wasAnswered: boolean): number {
  // What had a log until lately may have it again soon: then the long waits begin after the short ones.
  const never = wasAnswered ? times - WAITS_MS.length : times;
  return never < 1 ? waitMs(times) : DAY_MS * 2 ** Math.min(NEVER_DOUBLINGS, never - 1);
}

function next(before: StoredRefusal | null, said: string, nowMs: number, wait: (times: number) => number) {
  const times = (before?.times ?? 0) + 1;
  return { said, at: isoUtc(nowMs), times, againAt: isoUtc(nowMs + wait(times)) };
}

/** The service says that there is no log of the tag (any more). */
export function withoutLog(held: StoredHistory, said: string, nowMs: number): StoredHistory {
  const before = held.state === "no-log" ? held.refusal : null;
  const refusal = next(before, said, nowMs, (times) => noLogWaitMs(times, wasAnswered(held)));
  return { ...held, state: "no-log", refusal };
}

/** Following, or learning whether there is a log, was refused for another reason; of a total also that it is unreadable. */
export function refusedNow(
  held: StoredHistory,
  said: string,
  nowMs: number,
  reason?: "unreadable",
): StoredHistory {
  if (held.state === "no-log") {
    // What the service said of its log still stands; only the asking again did not work.
    const againAt = isoUtc(nowMs + waitMs(1));
    return held.refusal === null ? held : { ...held, refusal: { ...held.refusal, againAt } };
  }
  const refusal = next(held.refusal, said, nowMs, waitMs);
  return { ...held, refusal: reason === undefined ? refusal : { ...refusal, reason } };
}

/** A stretch of the past was refused for another reason than a missing log. */
export function refusedPast(held: StoredHistory, range: Range, said: string, nowMs: number): StoredHistory {
  const before = rangesIn(held.spans)
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
  return { ...held, spans: withRanges(held.spans, [refusal], held.resolution) };
}

/** It is left alone because of a refusal. */
export function isResting({ refusal }: StoredHistory, nowMs: number): boolean {
  return refusal !== null && ms(refusal.againAt) > nowMs;
}

/**
 * Whether an order may count on the word that there is no log: of a tag that had one, only once it was said twice, ten
 * minutes apart.
 */
export function isWithoutLog(held: StoredHistory): boolean {
  return held.state === "no-log" && (!wasAnswered(held) || (held.refusal?.times ?? 0) > 1);
}

function wasAnswered({ spans }: StoredHistory): boolean {
  return spans.some(({ why, said }) => why === "points" || (why === "null" && said === undefined));
}

/**
 * Takes back what was said of its log after a time: the site may have been out of the token's scope then, and
 * a tag that cannot be seen has no log for whoever asks.
 */
export function takenBack(held: StoredHistory, after: string, total: boolean): StoredHistory {
  const isDoubted = ({ why, at = "" }: LedgerRange) => why === "no-log" && at >= after;
  const first = rangesIn(held.spans).find(isDoubted);
  let back = held;
  if (first !== undefined) {
    // Totals only go forward, so they begin again there.
    const watermark = total ? isoUtc(Math.min(ms(held.watermark), first.fromMs)) : held.watermark;
    back = { ...held, watermark, spans: rangesWithout(held.spans, isDoubted) };
  }
  if (back.refusal === null || back.refusal.at < after) return back;
  return { ...back, refusal: null, state: back.state === "no-log" ? "unproven" : back.state };
}
