import { type Event, makeEvent, sourceUri, subjectOf } from "../../core/model/event.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { createSiteDay, dayFinalized } from "../../engine/sync/completeness/account.ts";
import { countFor, DAY_MS, dayOf, isCountedOn } from "../../engine/sync/completeness/days.ts";
import { type BackfillRequest, backfillRange } from "../../engine/sync/history/backfills.ts";
import type { LedgerOf } from "../../engine/sync/history/progress.ts";
import { historyKey } from "../../engine/sync/history/series.ts";
import type { Listed } from "../../engine/sync/snapshot.ts";

/** Later data than this are not waited for: what a `history` class looks back by default, in milliseconds. */
const LATE_MS = DAY_MS;

export interface ExportedDays {
  /** Buckets with a value, and without one. */
  readonly had: number;
  readonly null: number;
  /** `day-sealed`, for each site and each whole UTC day of which all is known, when it had been over for a day. */
  readonly seals: readonly Event<"day-sealed">[];
}

/** What the ledgers of an order say of its days, as a worker says it of what it follows. */
export async function exportedDays(options: {
  readonly store: Store;
  readonly source: string;
  readonly order: BackfillRequest;
  readonly ledgers: readonly LedgerOf[];
  readonly nowMs: number;
}): Promise<ExportedDays> {
  const { ledgers, nowMs, order, source, store } = options;
  const sites = Map.groupBy(ledgers, ({ located: placed }) => placed.siteId);
  const seals: Event<"day-sealed">[] = [];
  let [had, nulls] = [0, 0];
  for (const [siteId, series] of sites) {
    const wanted = series.map((each) => wholeOrder(each, order, nowMs));
    const range = {
      fromMs: Math.min(...wanted.map(({ range: { fromMs } }) => fromMs)),
      toMs: Math.max(...wanted.map(({ range: { toMs } }) => toMs)),
    };
    const held = await store.document<Listed<{ readonly id: number; readonly displayName: string }>>(
      documentSet("site", source),
      String(siteId),
    );
    const site = held?.value ?? { id: siteId, displayName: String(siteId) };
    for (let day = dayOf(range.fromMs); day * DAY_MS < range.toMs; day++) {
      const book = createSiteDay(day);
      for (const { asWanted } of wanted) {
        const key = historyKey(asWanted.located.tag.id, { resolution: order.resolution, total: false });
        book.add(asWanted, await countFor(store, source, key, asWanted.ledger, day), nowMs);
      }
      await yieldToEventLoop();
      const siteDay = book.done();
      had += siteDay.account.had;
      nulls += siteDay.account.null;
      const isWhole = day * DAY_MS >= range.fromMs && (day + 1) * DAY_MS <= range.toMs;
      const isLate = (day + 1) * DAY_MS + LATE_MS > nowMs;
      const isCounted = series.every((each) => isCountedOn(each.ledger, day, nowMs));
      const { expected, pending, refused } = siteDay.account;
      if (!isWhole || isLate || !isCounted || expected === 0 || pending + refused > 0) continue;
      const data = dayFinalized(site, day, siteDay, 1, 0);
      seals.push(
        makeEvent({
          type: "day-sealed",
          source: sourceUri(source),
          subject: subjectOf("site", null, String(siteId)),
          time: isoUtc(nowMs),
          siteId,
          data,
          facts: [data.date, 1],
        }),
      );
    }
  }
  return { had, null: nulls, seals };
}

/**
 * The ledger as if the order were what the configuration follows: wanted is what it asks for, from its first bucket to
 * its last, and nothing before or after.
 */
function wholeOrder(series: LedgerOf, order: BackfillRequest, nowMs: number) {
  const range = backfillRange(order, series.rules, nowMs);
  const from = isoUtc(range.fromMs);
  const ledger = { ...series.ledger, wished: from, since: from, watermark: isoUtc(range.toMs) };
  const rules = { ...series.rules, everyMs: 0 };
  return { range, asWanted: { ...series, ledger, rules } };
}
