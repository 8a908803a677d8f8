import type { Resolution } from "../building.ts";
import type { Series } from "./history-book.ts";
import { BUCKET_MS } from "./history-buckets.ts";
import { closedUntil, ms } from "./history-ledger.ts";

/** How far the history of one source is told; for the status page, `plenum plan` and a progress bar. */
export interface HistoryProgress {
  readonly resolutions: readonly ResolutionProgress[];
  /** Tags of which it is not known yet whether they have a log. */
  readonly unproven: number;
  /** Requests until the backfill is done, at the present size of a request. */
  readonly requestsLeft: number;
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
  /** Share of the wished past that is fetched or known to be empty, 0 to 1. */
  readonly done: number;
}

export function progressOf(
  series: readonly Series[],
  valuesPerRequest: number,
  unproven: number,
  nowMs: number,
): HistoryProgress {
  const groups = Map.groupBy(series, ({ rules, total }) => `${rules.resolution} ${total}`);
  const resolutions = [...groups.values()].flatMap((members) => progressOfGroup(members, nowMs) ?? []);
  const values = resolutions.reduce((sum, each) => sum + each.pendingValues, 0);
  return { resolutions, unproven, requestsLeft: Math.ceil(values / Math.max(1, valuesPerRequest)) };
}

function progressOfGroup(members: readonly Series[], nowMs: number): ResolutionProgress | null {
  const [first] = members;
  if (first === undefined) return null;
  const { resolution } = first.rules;
  const followed = members.filter(({ held }) => held.state !== "no-log");
  let wishedMs = 0;
  let pendingMs = 0;
  let pendingRanges = 0;
  for (const { held, rules, total } of followed) {
    // Totals come forward from the depth of the backfill, a series goes back from its first sight.
    const left = total ? closedUntil(rules, nowMs) - ms(held.watermark) : ms(held.reached) - ms(held.target);
    wishedMs += Math.max(0, nowMs - ms(held.wished));
    pendingMs += Math.max(0, left);
    if (left > 0) pendingRanges++;
  }
  const watermarks = followed
    .filter(({ held }) => held.state === "following")
    .map(({ held }) => held.watermark);
  return {
    resolution,
    total: first.total,
    tags: members.length,
    withoutLog: members.length - followed.length,
    complete: followed.length - pendingRanges,
    oldestWatermark: watermarks.toSorted()[0] ?? null,
    pendingRanges,
    pendingValues: Math.round(pendingMs / BUCKET_MS[resolution]),
    done: wishedMs === 0 ? 1 : 1 - pendingMs / wishedMs,
  };
}
