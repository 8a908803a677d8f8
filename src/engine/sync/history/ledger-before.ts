import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { StoredHistory } from "../snapshot.ts";
import { ms } from "./ledger.ts";
import { storedRanges } from "./ledger-ranges.ts";

/** A ledger as it was written before a span said why. */
export interface LedgerBefore extends Omit<StoredHistory, "version" | "spans" | "refusal"> {
  readonly version?: undefined;
  readonly reached: string;
}

/**
 * Reads what was written before with suspicion: until then a refusal could pass for an answer. What was followed stays;
 * the past before the first sight is asked for again, and so is whether a tag has a log at all. What had been told of
 * that past comes again, as backfill.
 */
export function believed(stored: StoredHistory | LedgerBefore, total: boolean): StoredHistory {
  if (stored.version !== undefined) return stored;
  const { reached, ...kept } = stored;
  const { since, watermark, rememberedFrom, dailyAt, weeklyAt, wished, resolution, timeZone } = kept;
  // Totals are told from the depth of the backfill on, and only answers ever brought them further.
  const from = total ? ms(reached) : ms(since);
  const spans = [{ fromMs: Math.min(from, ms(watermark)), toMs: ms(watermark), why: "points" as const }];
  const wasFollowed = kept.state === "following" && ms(watermark) > from;
  return {
    version: 2,
    resolution,
    timeZone,
    since,
    watermark: wasFollowed ? watermark : isoUtc(Math.min(from, ms(watermark))),
    wished,
    spans: wasFollowed ? storedRanges(spans) : [],
    rereadFrom: wasFollowed ? kept.rereadFrom : null,
    dailyAt,
    weeklyAt,
    rememberedFrom,
    state: kept.state === "no-log" ? "unproven" : kept.state,
    refusal: null,
  };
}
