import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import {
  type BackfillRequest,
  type BackfillRequests,
  type EndedBackfill,
  isDone,
  loadBackfills,
  markDone,
  removeOldBackfills,
  sameBackfills,
  withoutLogOf,
} from "./backfills.ts";
import { ms } from "./ledger.ts";
import type { HistoryLedgers, Series } from "./ledgers.ts";

/** The orders of `plenum backfill` that are not done, as the command line left them in the store. */
export interface OpenBackfills {
  now(): BackfillRequests;
  refresh(): Promise<void>;
  /** Whether a person ordered, paused or gave up something since; it is looked up every few seconds at most. */
  haveChanged(): Promise<boolean>;
  /** Says of the orders of which nothing is left that they are done. */
  end(): Promise<void>;
  /** From when on an order wants a series, milliseconds since 1970; infinite when none does. */
  wantedFrom(series: Series): number;
}

/** A little less than the five seconds after which somebody asks, so that no timer which is early puts it off. */
const LOOK_MS = 4_500;

export function createOpenBackfills(options: {
  readonly store: Store;
  readonly source: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly book: Pick<HistoryLedgers, "series">;
}): OpenBackfills {
  const { store, source, clock, log, book } = options;
  let orders: BackfillRequests = { open: [], paused: false };
  let lookedAtMs = Number.NEGATIVE_INFINITY;

  return {
    now: () => orders,
    async refresh() {
      await removeOldBackfills(store, source, clock.now());
      orders = await loadBackfills(store, source);
      lookedAtMs = clock.monotonic();
    },
    async haveChanged() {
      const nowMs = clock.monotonic();
      if (nowMs - lookedAtMs < LOOK_MS) return false;
      lookedAtMs = nowMs;
      return !sameBackfills(await loadBackfills(store, source), orders);
    },
    async end() {
      const nowMs = clock.now();
      const done = orders.open.flatMap((order) => endOf(order, nowMs) ?? []);
      if (done.length === 0) return;
      await markDone(store, source, done, isoUtc(nowMs));
      for (const { order, withoutLog } of done)
        log.info({ order: order.id, withoutLog }, "a backfill is done");
      const ids = new Set(done.map(({ order }) => order.id));
      orders = { ...orders, open: orders.open.filter(({ id }) => !ids.has(id)) };
    },
    wantedFrom: ({ placed }) =>
      Math.min(
        Number.POSITIVE_INFINITY,
        ...orders.open.filter((order) => order.matches(placed)).map((order) => ms(order.held.from)),
      ),
  };

  /** Null while something of it is neither had nor without a log. */
  function endOf(order: BackfillRequest, nowMs: number): EndedBackfill | null {
    const concerned = book
      .series()
      .filter(
        ({ placed, rules, total }) =>
          !total && rules.resolution === order.resolution && order.matches(placed),
      );
    // Without its tags, before the first listing say, nothing is known of an order.
    const isEnded =
      concerned.length > 0 && concerned.every(({ held, rules }) => isDone(order, held, rules, nowMs));
    if (!isEnded) return null;
    const counts = concerned
      .map(({ held, rules }) => withoutLogOf(order, held, rules, nowMs))
      .filter((buckets) => buckets > 0);
    const buckets = counts.reduce((sum, each) => sum + each, 0);
    return { order, withoutLog: { buckets, tags: counts.length } };
  }
}
