import type { DayAccount, WaitingSeries } from "../../../core/model/history-facts.ts";
import { bucketStart } from "../history/buckets.ts";
import type { SeriesRules } from "../history/ledger.ts";
import { type LedgerRange, rangesIn } from "../history/ledger-ranges.ts";
import type { Range } from "../history/ranges.ts";
import type { StoredHistory } from "../snapshot.ts";
import type { DayCount } from "./counts.ts";
import { bucketsIn, DAY_MS } from "./days.ts";

/** What the account of a series is made from. */
export interface AccountedSeries {
  readonly held: StoredHistory;
  readonly rules: SeriesRules;
  readonly placed: { readonly outOfSight?: "site" | "tag" };
}

/** The service's words, and when it said them, UTC. */
export interface Word {
  readonly said: string | null;
  readonly at: string | null;
}

export interface SeriesDay extends DayAccount {
  /** Why buckets are pending; null where none is. */
  readonly why: WaitingSeries["why"] | null;
  /** The last word on buckets without a log, and on refused ones; null where there are none. */
  readonly noLog: Word | null;
  readonly refusal: Word | null;
}

export const NOTHING: DayAccount = {
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
export function isWanted({ rules, placed }: Pick<AccountedSeries, "rules" | "placed">): boolean {
  return placed.outOfSight !== "tag" && Number.isFinite(rules.everyMs);
}

/** What became of the buckets of a series that begin in a UTC day; `count` is of the points of that day. Pure. */
export function accountOf(
  series: AccountedSeries,
  day: number,
  count: DayCount | undefined,
  nowMs: number,
): SeriesDay {
  const { held } = series;
  const { resolution, timeZone } = held;
  const buckets = (range?: Range) => bucketsIn(day, resolution, timeZone, range);
  const opensAt = isWanted(series) ? wantedFrom(held) : Number.POSITIVE_INFINITY;
  const opened = (range: Range): Range => ({ ...range, fromMs: Math.max(range.fromMs, opensAt) });
  let [answered, withoutLog, refused, coveredOpened] = [0, 0, 0, 0];
  let noLog: Word | null = null;
  let refusal: Word | null = null;
  for (const span of rangesIn(held.spans)) {
    if (span.toMs <= day * DAY_MS || span.fromMs >= (day + 1) * DAY_MS) continue;
    const covered = buckets(span);
    if (covered === 0) continue;
    coveredOpened += buckets(opened(span));
    if (span.why === "no-log") {
      withoutLog += covered;
      noLog = wordOf(span);
    } else if (span.why === "refused") {
      refused += covered;
      refusal = wordOf(span);
    } else answered += covered;
  }
  const theDay = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS };
  const watermarkMs = Date.parse(held.watermark);
  let pending = buckets(opened(theDay)) - coveredOpened;
  if (pending > 0 && held.state === "no-log") {
    withoutLog += pending;
    noLog = held.refusal === null ? (noLog ?? { said: null, at: null }) : wordOf(held.refusal);
    pending = 0;
  } else if (pending > 0 && held.refusal !== null) {
    // Following was refused, or learning whether there is a log; the past before it may still be fetched.
    const closedMs = Math.min(theDay.toMs, bucketStart(nowMs - series.rules.graceMs, resolution, timeZone));
    const front = held.state === "following" ? Math.max(theDay.fromMs, watermarkMs) : theDay.fromMs;
    const most = buckets(opened({ fromMs: front, toMs: closedMs }));
    const ofFront = Math.min(pending, most);
    refused += ofFront;
    pending -= ofFront;
    if (ofFront > 0) refusal = wordOf(held.refusal);
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

function wordOf({ said, at }: Pick<LedgerRange, "said" | "at">): Word {
  return { said: said ?? null, at: at ?? null };
}

function reasonOf(
  { held, rules, placed }: AccountedSeries,
  day: number,
  watermarkMs: number,
  nowMs: number,
): WaitingSeries["why"] {
  if (placed.outOfSight === "site") return "out-of-scope";
  if (held.state === "unproven") return "unproven";
  const endMs = (day + 1) * DAY_MS;
  if (watermarkMs >= endMs) return "backfill";
  const closedMs = bucketStart(nowMs - rules.graceMs, rules.resolution, rules.timeZone);
  return closedMs > watermarkMs
    ? "behind"
    : watermarkMs < day * DAY_MS || closedMs < endMs
      ? "open"
      : "backfill";
}
