import {
  type Isolation,
  NEVER_MS,
  type Plan,
  type PlannedTags,
  type PlanRules,
  planGroup as planColumns,
} from "#src/engine/sync/plan/group.ts";

/** A tag of a plan as tests write it: one object for each, in place of columns. */
export interface PlannedTag {
  readonly id: string;
  readonly intervalMs: number;
  /** Null when it was never answered. */
  readonly lastMs: number | null;
  /** Since now when it is left out. */
  readonly sinceMs?: number;
  /** Label of the isolation; null for an ordinary tag. */
  readonly label: string | null;
  readonly timing?: Isolation["timing"];
  readonly siteRequestedMs?: number | undefined;
  readonly underWay?: boolean;
}

export function columnsOf(tags: readonly PlannedTag[], nowMs: number): PlannedTags {
  return {
    count: tags.length,
    ids: tags.map(({ id }) => id),
    intervalMs: Float64Array.from(tags, ({ intervalMs }) => intervalMs),
    lastMs: Float64Array.from(tags, ({ lastMs }) => lastMs ?? NEVER_MS),
    sinceMs: Float64Array.from(tags, ({ sinceMs }) => sinceMs ?? nowMs),
    underWay: Uint8Array.from(tags, ({ underWay }) => (underWay === true ? 1 : 0)),
    isolated: new Map(
      tags.flatMap(({ label, timing = null, siteRequestedMs = NEVER_MS }, row) =>
        label === null ? [] : [[row, { label, timing, siteRequestedMs }] as const],
      ),
    ),
  };
}

export function planGroup(tags: readonly PlannedTag[], nowMs: number, rules: PlanRules): Plan {
  return planColumns(columnsOf(tags, nowMs), nowMs, rules);
}
