import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { isComplete } from "../snapshot.ts";
import { type BackfillRequest, type BackfillRequests, backfillRange, pendingOf } from "./backfills.ts";
import { closedUntil, ms, unfetched, wishedPast } from "./ledger.ts";
import type { Series } from "./ledgers.ts";
import { lengthOfAll } from "./ranges.ts";
import { isWithoutLog } from "./refusals.ts";

/** How far the history of one source is told; for the status page, `plenum plan` and a progress bar. */
export interface HistoryProgress {
  readonly resolutions: readonly ResolutionProgress[];
  /** Tags of which it is not known yet whether they have a log. */
  readonly unproven: number;
  /** Requests until the backfill is done, at the present size of a request. */
  readonly requestsLeft: number;
  /** Whether fetching the past is paused. */
  readonly paused: boolean;
  /** What `plenum backfill` asked for and is not done yet. */
  readonly orders: readonly BackfillProgress[];
  /** Since when following or learning is due and no request for it had its turn, far longer than planned; null when none. */
  readonly starving: { readonly since: string } | null;
}

export interface BackfillProgress {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly tags: number;
  /** Tags of the order of which it is not known yet whether they have a log. */
  readonly unproven: number;
  readonly requestsLeft: number;
  /** Share that is had, 0 to 1. */
  readonly done: number;
}

export interface ResolutionProgress {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  readonly withoutLog: number;
  /** Tags of which something was refused and is asked for again. */
  readonly refused: number;
  /** Tags without a hole from the depth of their backfill up to what has closed lately. */
  readonly complete: number;
  /** The earliest watermark of a tag that is followed, UTC; null when none is. */
  readonly oldestWatermark: string | null;
  /** Ranges of the past that are still to be fetched. */
  readonly pendingRanges: number;
  /** Values expected in them. */
  readonly pendingValues: number;
  /** Requests that they take, at the present size of a request. */
  readonly requestsLeft: number;
  /** Share of the wished past that is had, 0 to 1. */
  readonly done: number;
}

/** What the ledgers say of a series; a series in memory fits. */
export type LedgerOf = Pick<Series, "held" | "rules" | "total" | "placed">;

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

/** As many as the values need, and one for every 20 ranges at least. */
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
  for (const { held, rules, total, placed } of series) {
    if (total || rules.resolution !== order.resolution || !order.matches(placed)) continue;
    tags++;
    if (held.state === "unproven") unproven++;
    if (isWithoutLog(held)) continue;
    const range = backfillRange(order, rules, nowMs);
    const pending = pendingOf(order, held, rules, nowMs);
    wishedMs += Math.max(0, range.toMs - range.fromMs);
    pendingMs += lengthOfAll(pending);
    pendingRanges += pending.length;
  }
  const { from, to } = order.held;
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
  const followed = members.filter(({ held }) => held.state !== "no-log");
  let wishedMs = 0;
  let pendingMs = 0;
  let pendingRanges = 0;
  let complete = 0;
  for (const { held, rules, total } of followed) {
    // Totals come forward from the depth of the backfill, a series goes back from its first sight.
    const left = total
      ? closedUntil(rules, nowMs) - ms(held.watermark)
      : lengthOfAll(unfetched(held, wishedPast(held)));
    wishedMs += Math.max(0, nowMs - ms(held.wished));
    pendingMs += Math.max(0, left);
    if (left > 0) pendingRanges++;
    else if (held.state === "following" && held.refusal === null) complete++;
  }
  const watermarks = followed
    .filter(({ held }) => held.state === "following")
    .map(({ held }) => held.watermark);
  const pendingValues = Math.round(pendingMs / BUCKET_MS[resolution]);
  return {
    resolution,
    total: first.total,
    tags: members.length,
    withoutLog: members.length - followed.length,
    refused: members.filter(({ held }) => isRefused(held)).length,
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

function isRefused({ state, refusal, spans }: LedgerOf["held"]): boolean {
  return (state !== "no-log" && refusal !== null) || spans.some(({ why }) => why === "refused");
}

/** Sets the gauge of how many series are in which state. */
export function showStates(
  { historySeries }: Pick<Metrics, "historySeries">,
  source: string,
  all: readonly LedgerOf[],
): void {
  const counts = { whole: 0, holes: 0, refused: 0, "no-log": 0, unproven: 0 };
  for (const { held } of all) {
    if (held.state !== "no-log" && isRefused(held)) counts.refused++;
    else if (held.state !== "following") counts[held.state]++;
    else if (isComplete(held)) counts.whole++;
    else counts.holes++;
  }
  for (const [state, count] of Object.entries(counts)) historySeries.set({ source, state }, count);
}
