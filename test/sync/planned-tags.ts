import {
  type LiveReadPlan,
  NEVER_READ_MS,
  type PlannedTags,
  planNextLiveRead,
  type ReadPlanRules,
  type RequestIsolation,
} from "#src/engine/sync/plan/next-read-group.ts";
import type { ReadClassDemand } from "#src/engine/sync/plan/overload.ts";

/** A tag as an object; the planner takes columns. */
export interface PlannedTag {
  readonly id: string;
  readonly intervalMs: number;
  readonly lastMs: number | null;
  readonly sinceMs?: number;
  readonly label: string | null;
  readonly timing?: RequestIsolation["timing"];
  readonly siteRequestedMs?: number | undefined;
  readonly underWay?: boolean;
  /** 0 by default: may be read at any time. */
  readonly earliestAge?: number;
}

export function columnsOf(tags: readonly PlannedTag[], nowMs: number): PlannedTags {
  return {
    count: tags.length,
    ids: tags.map(({ id }) => id),
    intervalMs: Float64Array.from(tags, ({ intervalMs }) => intervalMs),
    ageStartMs: Float64Array.from(tags, ({ lastMs }) => lastMs ?? NEVER_READ_MS),
    scheduledSinceMs: Float64Array.from(tags, ({ sinceMs }) => sinceMs ?? nowMs),
    isUnderWay: Uint8Array.from(tags, ({ underWay }) => (underWay === true ? 1 : 0)),
    earliestReadAge: Float64Array.from(tags, ({ earliestAge = 0 }) => earliestAge),
    isolated: new Map(
      tags.flatMap(({ label, timing = null, siteRequestedMs = NEVER_READ_MS }, row) =>
        label === null ? [] : [[row, { label, timing, siteRequestedMs }] as const],
      ),
    ),
  };
}

export function planGroup(tags: readonly PlannedTag[], nowMs: number, rules: ReadPlanRules): LiveReadPlan {
  return planNextLiveRead(columnsOf(tags, nowMs), nowMs, rules);
}

export const demandOf = (
  name: string,
  tags: number,
  seconds: number,
  more: Partial<ReadClassDemand> = {},
): ReadClassDemand => ({
  ...{ name, tags, everyMs: seconds * 1_000, firm: false, importance: 1, fresher: true },
  ...more,
});
