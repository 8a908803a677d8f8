import { isoUtc } from "../../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { type StoredBackfill, type StoredHistory, type StoredToken, syncSet } from "../snapshot.ts";
import type { HistoryLedgers, Series } from "./ledgers.ts";
import type { HistoryScope } from "./refusal-reasons.ts";
import { takenBack } from "./refusals.ts";

/**
 * Takes back what was said of the logs of a site's tags since the token was last known to see the site, once it does not
 * see it any more: whoever cannot see a tag is told that it has no log. Orders that ended on that word are open again.
 */
export interface TakeBack {
  /** Looks at the scope as it is now; returns the series that are to be learned again. */
  look(): Promise<readonly Series[]>;
}

export function createTakeBack(options: {
  readonly store: Store;
  readonly source: string;
  readonly book: Pick<HistoryLedgers, "series">;
  readonly scope: HistoryScope;
}): TakeBack {
  const { store, source, book, scope } = options;
  /** When the service last said that the token sees a site. */
  const seenAt = new Map<number, string>();
  const gone = new Set<number>();
  let isLoaded = false;

  /** What was known before a restart. */
  async function load(): Promise<void> {
    const token = await store.document<StoredToken>(documentSet("token", source), "token");
    for (const { id } of token?.info.sites ?? []) seenAt.set(id, token?.checkedAt ?? "");
    isLoaded = true;
  }

  async function reopened(after: string): Promise<(readonly [string, StoredBackfill])[]> {
    const orders = await store.documents<StoredBackfill>(syncSet("backfill", source));
    return [...orders].flatMap(([id, { withoutLog, ...order }]) => {
      const isDoubted = (order.doneAt ?? "") >= after && (withoutLog?.buckets ?? 0) > 0;
      return isDoubted ? [[id, { ...order, doneAt: null }] as const] : [];
    });
  }

  return {
    async look() {
      if (!isLoaded) await load();
      const saidAtMs = scope.askedAtMs?.() ?? null;
      const doubted: Series[] = [];
      const put = new Map<string, StoredHistory>();
      let earliest: string | null = null;
      for (const [siteId, all] of Map.groupBy(book.series(), ({ placed }) => placed.siteId)) {
        if (scope.sees(siteId)) {
          gone.delete(siteId);
          if (saidAtMs !== null) seenAt.set(siteId, isoUtc(saidAtMs));
          continue;
        }
        if (gone.has(siteId)) continue;
        const after = seenAt.get(siteId) ?? "";
        if (earliest === null || after < earliest) earliest = after;
        for (const series of all) {
          const held = takenBack(series.held, after, series.total);
          if (held === series.held) continue;
          // At once, so that a reply that is under way settles on it.
          series.held = held;
          put.set(series.key, held);
          doubted.push(series);
        }
        gone.add(siteId);
      }
      if (earliest === null) return [];
      const documents = [
        { set: documentSet("history", source), put: [...put] },
        { set: syncSet("backfill", source), put: await reopened(earliest) },
      ];
      await store.commit({ documents });
      return doubted;
    },
  };
}
