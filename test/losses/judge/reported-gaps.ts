import { buildPlanSettings } from "#src/app/build-sync.ts";
import { type HistoryGapReason, listHistoryGaps } from "#src/engine/sync/history/history-progress.ts";
import { historyProgressFromStore } from "#src/engine/sync/quota-plan-inputs.ts";
import type { Harness } from "../loss-harness.ts";
import { seriesKey } from "../received-events.ts";

/** Missing history as the worker reports it. Only this file of the judge knows the ledger. */
export interface ReportedGap {
  readonly fromMs: number;
  readonly toMs: number;
  /** `to come`: will be requested. `no log`: the service has none. `not had`: was requested in vain. */
  readonly kind: "to come" | "no log" | "not had";
  readonly why: string;
}

export type ReportedGaps = ReadonlyMap<string, readonly ReportedGap[]>;

const KINDS: Readonly<Record<HistoryGapReason, ReportedGap["kind"]>> = {
  ordered: "to come",
  backfill: "to come",
  behind: "to come",
  between: "to come",
  unproven: "to come",
  refused: "not had",
  unreadable: "not had",
  "out-of-scope": "not had",
  "not-listed": "not had",
  "no-log": "no log",
  null: "not had",
};

export async function reportedGaps({ virtual, now }: Harness): Promise<ReportedGaps> {
  const entry = virtual.config.sources.main;
  if (entry === undefined) throw new Error("The configuration names no source.");
  const nowMs = now();
  const settings = buildPlanSettings("main", entry, virtual.config.state);
  const { ledgers, backfill: backfills } = await historyProgressFromStore(virtual.worker.store, settings, nowMs);
  const gapsBySeries = new Map<string, ReportedGap[]>();
  for (const { siteTag: placed, rules, total } of ledgers)
    if (!total) gapsBySeries.set(seriesKey(placed.tag.id, rules.resolution), []);
  for (const { tagId, resolution, total, from, to, why } of listHistoryGaps(ledgers, backfills, nowMs)) {
    if (total) continue;
    gapsBySeries.get(seriesKey(tagId, resolution))?.push({
      fromMs: from === null ? Number.NEGATIVE_INFINITY : Date.parse(from),
      toMs: to === null ? Number.POSITIVE_INFINITY : Date.parse(to),
      kind: KINDS[why] ?? "not had",
      why,
    });
  }
  return gapsBySeries;
}
