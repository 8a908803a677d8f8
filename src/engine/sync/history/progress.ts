import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { isComplete } from "../snapshot.ts";
import { type BackfillRequest, type BackfillRequests, backfillRange, pendingOf } from "./backfills.ts";
import { mergeRanges, type Range, subtract, totalLength } from "./buckets.ts";
import { closedUntil, hasNoLog, parseTime, targetPast, unfetched } from "./ledger.ts";
import { fetchedIn, type LedgerRange, rangesIn } from "./ledger-ranges.ts";
import type { Series } from "./series.ts";

/** Progress of the history of one source, for the status page, `plenum plan` and a progress bar. */
export interface HistoryProgress {
  readonly resolutions: readonly ResolutionProgress[];
  /** Tags of which it is not known yet whether they have a log. */
  readonly unproven: number;
  /** Requests until the backfill is done, at the present request size. */
  readonly requestsLeft: number;
  /** Fetching of the past is paused. */
  readonly paused: boolean;
  /** Unfinished requests of `plenum backfill`. */
  readonly orders: readonly BackfillProgress[];
  /**
   * Start of the time in which following or log discovery is due and gets no request, far beyond the plan; null if it
   * gets them.
   */
  readonly starving: { readonly since: string } | null;
}

export interface BackfillProgress {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly tags: number;
  /** Tags of the request of which it is not known yet whether they have a log. */
  readonly unproven: number;
  readonly requestsLeft: number;
  /** Fetched share, 0 to 1. */
  readonly done: number;
}

export interface ResolutionProgress {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  readonly withoutLog: number;
  /** Tags with a refused range, which is requested again. */
  readonly refused: number;
  /** Tags without a gap from the depth of the backfill to the latest closed bucket. */
  readonly complete: number;
  /** Earliest watermark of a followed tag, UTC; null without followed tags. */
  readonly oldestWatermark: string | null;
  /** Past ranges that are not fetched yet. */
  readonly pendingRanges: number;
  /** Values expected in them. */
  readonly pendingValues: number;
  /** Requests for them, at the present request size. */
  readonly requestsLeft: number;
  /** Fetched share of the past to fetch, 0 to 1. */
  readonly done: number;
}

/** The part of a series that its ledger describes. */
export type LedgerOf = Pick<Series, "ledger" | "rules" | "total" | "located">;

export function progressOf(
  series: readonly LedgerOf[],
  { open, paused }: BackfillRequests,
  valuesPerRequest: number,
  unproven: number,
  nowMs: number,
): HistoryProgress {
  const groups = Map.groupBy(series, ({ rules, total }) => `${rules.resolution} ${total}`);
  const resolutions = [...groups.values()].flatMap(
    (members) => progressOfGroup(members, valuesPerRequest, nowMs) ?? [],
  );
  const orders = open.map((order) => progressOfOrder(order, series, valuesPerRequest, nowMs));
  const requestsLeft = [
    ...resolutions.map((each) => each.requestsLeft),
    ...orders.map((order) => order.requestsLeft),
  ].reduce((sum, each) => sum + each, 0);
  return { resolutions, unproven, requestsLeft, paused, orders, starving: null };
}

/** Returns the requests for so many values, at least one for every 20 ranges. */
function requestsFor(values: number, ranges: number, valuesPerRequest: number): number {
  return Math.max(Math.ceil(values / Math.max(1, valuesPerRequest)), Math.ceil(ranges / TAGS_PER_REQUEST));
}

function progressOfOrder(
  order: BackfillRequest,
  series: readonly LedgerOf[],
  valuesPerRequest: number,
  nowMs: number,
): BackfillProgress {
  let wishedMs = 0;
  let pendingMs = 0;
  let pendingRanges = 0;
  let tags = 0;
  let unproven = 0;
  for (const { ledger, rules, total, located } of series) {
    if (total || rules.resolution !== order.resolution || !order.matches(located)) continue;
    tags++;
    if (ledger.state === "unproven") unproven++;
    if (hasNoLog(ledger)) continue;
    const range = backfillRange(order, rules, nowMs);
    const pending = pendingOf(order, ledger, rules, nowMs);
    wishedMs += Math.max(0, range.toMs - range.fromMs);
    pendingMs += totalLength(pending);
    pendingRanges += pending.length;
  }
  const { from, to } = order.stored;
  return {
    id: order.id,
    from,
    to,
    resolution: order.resolution,
    tags,
    unproven,
    requestsLeft: requestsFor(pendingMs / BUCKET_MS[order.resolution], pendingRanges, valuesPerRequest),
    done: wishedMs === 0 ? 1 : 1 - pendingMs / wishedMs,
  };
}

function progressOfGroup(
  members: readonly LedgerOf[],
  valuesPerRequest: number,
  nowMs: number,
): ResolutionProgress | null {
  const [first] = members;
  if (first === undefined) return null;
  const { resolution } = first.rules;
  const followed = members.filter(({ ledger }) => ledger.state !== "no-log");
  let wishedMs = 0;
  let pendingMs = 0;
  let pendingRanges = 0;
  let complete = 0;
  for (const { ledger, rules, total } of followed) {
    // Totals go forward from the depth of the backfill, other series go back from the start of following.
    const left = total
      ? closedUntil(rules, nowMs) - parseTime(ledger.watermark)
      : totalLength(unfetched(ledger, targetPast(ledger)));
    wishedMs += Math.max(0, nowMs - parseTime(ledger.wished));
    pendingMs += Math.max(0, left);
    if (left > 0) pendingRanges++;
    else if (ledger.state === "following" && ledger.refusal === null) complete++;
  }
  const watermarks = followed
    .filter(({ ledger }) => ledger.state === "following")
    .map(({ ledger }) => ledger.watermark);
  const pendingValues = Math.round(pendingMs / BUCKET_MS[resolution]);
  return {
    resolution,
    total: first.total,
    tags: members.length,
    withoutLog: members.length - followed.length,
    refused: members.filter(({ ledger }) => isRefused(ledger)).length,
    complete,
    oldestWatermark: watermarks.toSorted()[0] ?? null,
    pendingRanges,
    pendingValues,
    // A total is one value per tag and request.
    requestsLeft: first.total
      ? Math.ceil(pendingValues / TAGS_PER_REQUEST)
      : requestsFor(pendingValues, pendingRanges, valuesPerRequest),
    done: wishedMs === 0 ? 1 : 1 - pendingMs / wishedMs,
  };
}

function isRefused({ state, refusal, spans }: LedgerOf["ledger"]): boolean {
  return (state !== "no-log" && refusal !== null) || spans.some(({ why }) => why === "refused");
}

/** Sets the gauge of how many series are in which state. */
export function setSeriesGauge(
  { historySeries }: Pick<Metrics, "historySeries">,
  source: string,
  all: readonly LedgerOf[],
): void {
  const counts = { whole: 0, holes: 0, refused: 0, "no-log": 0, unproven: 0 };
  for (const { ledger } of all) {
    if (ledger.state !== "no-log" && isRefused(ledger)) counts.refused++;
    else if (ledger.state !== "following") counts[ledger.state]++;
    else if (isComplete(ledger)) counts.whole++;
    else counts.holes++;
  }
  for (const [state, count] of Object.entries(counts)) historySeries.set({ source, state }, count);
}

/** A range of a series without emitted values, and the reason. Times are UTC; the end is not included. */
export interface HistoryGap {
  readonly tagId: string;
  readonly tagName: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  /** Null if no bucket of an unfollowed series has closed yet. */
  readonly from: string | null;
  readonly to: string | null;
  readonly why: HistoryGapReason;
  /** Message of the service, its time, and the time of the next request; null without a message. */
  readonly said: string | null;
  readonly at: string | null;
  readonly againAt: string | null;
}

/**
 * Not fetched: `ordered`, part of a `plenum backfill`. `backfill`, part of the configured past. `behind`, closed
 * recently and overdue. `between`, before other emitted values, and not requested. `refused`, refused by the service.
 * `unreadable`, its response could not be read. `out-of-scope`, the token does not see the site. `not-listed`, recent
 * tag lists do not contain the tag. `unproven`, it is not known yet whether there is a log. Fetched: `no-log`, the
 * service has no log. `null`, a response without a value.
 */
export type HistoryGapReason =
  | "ordered"
  | "backfill"
  | "behind"
  | "between"
  | "refused"
  | "unreadable"
  | "out-of-scope"
  | "not-listed"
  | "unproven"
  | "no-log"
  | "null";

type Words = Pick<LedgerRange, "said" | "at" | "againAt">;

/**
 * Returns every gap that the ledgers know, by tag, oldest first; with `silences`, also responses without a value.
 * Emitted values, gaps and silences together cover the complete target time. Pure.
 */
export function gapsIn(
  ledgers: readonly LedgerOf[],
  orders: BackfillRequests,
  nowMs: number,
  { silences = false }: { readonly silences?: boolean } = {},
): readonly HistoryGap[] {
  return ledgers.flatMap((series) => {
    const { located, rules, total, ledger } = series;
    const found: HistoryGap[] = [];
    const add = (why: HistoryGapReason, range: Range | null, { said, at, againAt }: Words = {}) =>
      found.push({
        tagId: located.tag.id,
        tagName: located.tag.displayName,
        resolution: rules.resolution,
        total,
        from: range === null ? null : isoUtc(range.fromMs),
        to: range === null ? null : isoUtc(range.toMs),
        why,
        said: said ?? null,
        at: at ?? null,
        againAt: againAt ?? null,
      });

    const ordered = orderedOf(series, orders, nowMs);
    const front = frontOf(series, nowMs);
    let left = missing(series, [...ordered, front]);
    /** Assigns a reason to the parts of some ranges that have none yet. */
    const give = (why: HistoryGapReason, ranges: readonly Range[], words?: Words) => {
      for (const range of ranges) {
        for (const part of left.flatMap((hole) => intersection(hole, range))) add(why, part, words);
        left = left.flatMap((hole) => subtract(hole, [range]));
      }
    };
    for (const span of rangesIn(ledger.spans)) if (span.why === "refused") give(span.reason ?? "refused", [span], span);
    if (located.outOfSight !== undefined) give(located.outOfSight === "site" ? "out-of-scope" : "not-listed", left);
    const words = ledger.refusal ?? {};
    if (ledger.state !== "following") {
      const why = ledger.state === "unproven" && ledger.refusal !== null ? "refused" : ledger.state;
      if (left.length === 0 && found.length === 0) add(why, null, words);
      give(why, left, words);
    }
    give(ledger.refusal === null ? "behind" : (ledger.refusal.reason ?? "refused"), [front], words);
    give("ordered", ordered);
    give("backfill", total ? [] : [targetPast(ledger)]);
    give("between", left);
    for (const span of rangesIn(ledger.spans)) {
      if (span.why === "no-log" || (silences && span.why === "null")) add(span.why, span, span);
    }
    return found.toSorted((a, b) => ((a.from ?? "") < (b.from ?? "") ? -1 : 1));
  });
}

/**
 * Returns the closed range that following should have fetched by now: overdue by more than one fetch, or not followed
 * at all.
 */
function frontOf({ ledger, rules, total }: LedgerOf, nowMs: number): Range {
  const range = { fromMs: parseTime(ledger.watermark), toMs: closedUntil(rules, nowMs) };
  const everyMs = total ? 0 : rules.everyMs;
  // A series that only backfill requests need has no front.
  if (!Number.isFinite(everyMs)) return { ...range, toMs: range.fromMs };
  const isOverdue = range.toMs - range.fromMs > 2 * Math.max(everyMs, 60_000);
  return isOverdue || ledger.state !== "following" ? range : { ...range, toMs: range.fromMs };
}

function orderedOf({ ledger, rules, total, located }: LedgerOf, orders: BackfillRequests, nowMs: number) {
  if (total) return [];
  return mergeRanges(
    orders.open
      .filter((order) => order.resolution === rules.resolution && order.matches(located))
      .flatMap((order) => pendingOf(order, ledger, rules, nowMs)),
  );
}

/** Returns the parts that are not fetched between the first and the last emitted or needed time. */
function missing({ ledger, total }: LedgerOf, wanted: readonly Range[]): readonly Range[] {
  const past = total ? [] : [targetPast(ledger)];
  const all = mergeRanges([...fetchedIn(ledger.spans), ...wanted, ...past]);
  const [first] = all;
  const last = all.at(-1);
  return first === undefined || last === undefined ? [] : unfetched(ledger, { fromMs: first.fromMs, toMs: last.toMs });
}

function intersection(a: Range, b: Range): readonly Range[] {
  const both = { fromMs: Math.max(a.fromMs, b.fromMs), toMs: Math.min(a.toMs, b.toMs) };
  return both.fromMs < both.toMs ? [both] : [];
}
