import { BUCKET_MS, type Resolution } from "../../building.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Series } from "./book.ts";
import { closedUntil, ms, unfetched } from "./ledger.ts";
import { type BackfillOrder, type BackfillOrders, orderRange, pendingOf } from "./orders.ts";
import { lengthOfAll } from "./ranges.ts";

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
  readonly orders: readonly OrderProgress[];
}

export interface OrderProgress {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly tags: number;
  /** Tags of the order of which it is not known yet whether they have a log. */
  readonly unproven: number;
  readonly requestsLeft: number;
  /** Share that is fetched or known to be empty, 0 to 1. */
  readonly done: number;
}

export interface ResolutionProgress {
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly tags: number;
  readonly withoutLog: number;
  /** Tags whose backfill is complete. */
  readonly complete: number;
  /** The earliest watermark of a tag that is followed, UTC; null when none is. */
  readonly oldestWatermark: string | null;
  /** Ranges of the past that are still to be fetched. */
  readonly pendingRanges: number;
  /** Values expected in them. */
  readonly pendingValues: number;
  /** Requests that they take, at the present size of a request. */
  readonly requestsLeft: number;
  /** Share of the wished past that is fetched or known to be empty, 0 to 1. */
  readonly done: number;
}

/** What the ledgers say of a series; a series in memory fits. */
export type LedgerOf = Pick<Series, "held" | "rules" | "total" | "placed">;

export function progressOf(
  series: readonly LedgerOf[],
  { open, paused }: BackfillOrders,
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
  return { resolutions, unproven, requestsLeft, paused, orders };
}

/** As many as the values need, and one for every 20 ranges at least. */
function requestsFor(values: number, ranges: number, valuesPerRequest: number): number {
  return Math.max(Math.ceil(values / Math.max(1, valuesPerRequest)), Math.ceil(ranges / TAGS_PER_REQUEST));
}

function progressOfOrder(
  order: BackfillOrder,
  series: readonly LedgerOf[],
  valuesPerRequest: number,
  nowMs: number,
): OrderProgress {
  let wishedMs = 0;
  let pendingMs = 0;
  let pendingRanges = 0;
  let tags = 0;
  let unproven = 0;
  for (const { held, rules, total, placed } of series) {
    if (total || rules.resolution !== order.resolution || !order.matches(placed)) continue;
    tags++;
    if (held.state === "unproven") unproven++;
    if (held.state === "no-log") continue;
    const range = orderRange(order, rules, nowMs);
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
  for (const { held, rules, total } of followed) {
    // Totals come forward from the depth of the backfill, a series goes back from its first sight.
    const left = total
      ? closedUntil(rules, nowMs) - ms(held.watermark)
      : lengthOfAll(unfetched(held, { fromMs: ms(held.target), toMs: ms(held.reached) }));
    wishedMs += Math.max(0, nowMs - ms(held.wished));
    pendingMs += Math.max(0, left);
    if (left > 0) pendingRanges++;
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
    complete: followed.length - pendingRanges,
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
