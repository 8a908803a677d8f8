import type { Measurement, TagLog, TagTotal } from "../../building.ts";
import { type Clock, isoUtc } from "../../clock.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../event.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import { type HeldHistory, type HeldTold, syncSet } from "../snapshot.ts";
import type { Ask } from "./ask.ts";
import type { Series } from "./book.ts";
import { bucketEnd, rangeTime } from "./buckets.ts";
import { ms, type Settled, settleFollowing, settlePast, settleTotal } from "./ledger.ts";
import { type Point, packTold, spanOf, type ToldValues, unpackTold } from "./told.ts";

/** Settles replies: ledgers, what was told, and the events, in one transaction per reply. */
export interface HistorySettle {
  logs(ask: Ask, logs: readonly TagLog[], also: readonly DocumentChange[]): Promise<readonly Series[]>;
  totals(ask: Ask, totals: readonly TagTotal[]): Promise<readonly Series[]>;
  /** Ledgers that changed without a reply of their own. */
  ledgers(changed: ReadonlyMap<Series, HeldHistory>): Promise<void>;
}

/** Points that one event tells at most; a span has at most 400 buckets, a service that samples may have more. */
const POINTS_PER_EVENT = 500;
/** A bucket that is told later than this after its end was not followed live, in milliseconds. */
const LIVE_MS = 24 * 3_600_000;

export function createHistorySettle(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
}): HistorySettle {
  const { store, clock, source } = options;
  const ledgerSet = documentSet("history", source);
  const toldSet = syncSet("history-told", source);

  async function loadTold(series: Series, spans: ReadonlySet<number>): Promise<ToldValues> {
    const told: ToldValues = new Map();
    for (const span of spans) {
      const held = await store.document<HeldTold>(toldSet, `${series.key} ${span}`);
      if (held !== undefined) unpackTold(span, series.rules.resolution, held, told);
    }
    return told;
  }

  return {
    async logs(ask, logs, also) {
      const nowMs = clock.now();
      const byId = new Map(logs.map((log) => [log.id, log]));
      const put: (readonly [string, HeldHistory])[] = [];
      const putTold: (readonly [string, HeldTold])[] = [];
      const removeTold: string[] = [];
      const events: Event<"tag-history">[] = [];
      const settledSeries: (readonly [Series, HeldHistory])[] = [];
      for (const series of ask.series) {
        const log = byId.get(series.placed.tag.id);
        const range = ask.ranges.get(series.key);
        if (log === undefined || range === undefined) continue;
        const { rules } = series;
        const points = log.measurements.map(pointOf);
        const spans = spansOf(
          Math.max(range.fromMs, ms(series.held.rememberedFrom)),
          range.toMs,
          rules.resolution,
        );
        const told = await loadTold(series, spans);
        const settled: Settled =
          ask.kind === "following"
            ? settleFollowing(series.held, rules, points, range, told, nowMs)
            : settlePast(series.held, points, range);
        put.push([series.key, settled.held]);
        settledSeries.push([series, settled.held]);
        const rememberedMs = ms(settled.held.rememberedFrom);
        const touched = new Set<number>();
        for (const point of [...settled.fresh, ...settled.revised]) {
          if (point.atMs < rememberedMs) continue;
          told.set(point.atMs, point.value);
          touched.add(spanOf(point.atMs, rules.resolution));
        }
        for (const span of touched)
          putTold.push([`${series.key} ${span}`, packTold(span, rules.resolution, told)]);
        const oldSpan = spanOf(ms(series.held.rememberedFrom), rules.resolution);
        const keptSpan = spanOf(rememberedMs, rules.resolution);
        for (let span = oldSpan; span < keptSpan; span++) removeTold.push(`${series.key} ${span}`);
        events.push(
          ...eventsOf(series, settled.fresh, false, nowMs),
          ...eventsOf(series, settled.revised, true, nowMs),
        );
      }
      await store.commit({
        documents: [{ set: ledgerSet, put }, { set: toldSet, put: putTold, remove: removeTold }, ...also],
        events,
      });
      for (const [series, held] of settledSeries) series.held = held;
      return settledSeries.map(([series]) => series);
    },

    async totals(ask, totals) {
      const byId = new Map(totals.map((total) => [total.id, total]));
      const settled = ask.series.flatMap((series) => {
        const total = byId.get(series.placed.tag.id);
        const range = ask.ranges.get(series.key);
        if (total === undefined || range === undefined) return [];
        const had = settleTotal(series.held, range, total.total);
        const held: HeldHistory = { ...had, state: "following", refusal: null };
        return [{ series, held, event: totalEvent(series, total, range.fromMs, range.toMs) }];
      });
      await store.commit({
        documents: [{ set: ledgerSet, put: settled.map(({ series, held }) => [series.key, held] as const) }],
        events: settled.map(({ event }) => event),
      });
      for (const { series, held } of settled) series.held = held;
      return settled.map(({ series }) => series);
    },

    async ledgers(changed) {
      if (changed.size === 0) return;
      await store.commit({
        documents: [
          { set: ledgerSet, put: [...changed].map(([series, held]) => [series.key, held] as const) },
        ],
      });
      for (const [series, held] of changed) series.held = held;
    },
  };

  /** Events of one span each; points that were followed live apart from those that come late. */
  function eventsOf(
    series: Series,
    points: readonly Point[],
    revised: boolean,
    nowMs: number,
  ): Event<"tag-history">[] {
    const { placed, rules, held } = series;
    const { resolution, timeZone } = rules;
    const liveMs = Math.max(LIVE_MS, 2 * rules.everyMs);
    const originOf = (point: Point) =>
      point.atMs >= ms(held.since) && nowMs - bucketEnd(point.atMs, resolution, timeZone) <= liveMs
        ? "live"
        : "backfill";
    const groups = Map.groupBy(points, (point) => `${spanOf(point.atMs, resolution)} ${originOf(point)}`);
    return [...groups.values()].flatMap(chunks).flatMap((chunk) => {
      const first = chunk[0];
      const last = chunk.at(-1);
      if (first === undefined || last === undefined) return [];
      const told: readonly Measurement[] = chunk.map(({ time, value }) => ({ time, value }));
      return makeEvent({
        type: "tag-history",
        source: sourceUri(source),
        subject: `${subjectOf("tag", placed.siteId, placed.tag.id)}/history/${resolution}`,
        time: isoUtc(last.atMs),
        siteId: placed.siteId,
        data: { tag: placed.tag, resolution, timeZone, points: told, origin: originOf(first), revised },
        // A bucket may change back and forth: each revision is a fact of its own.
        facts: [resolution, timeZone, JSON.stringify(told), revised ? isoUtc(nowMs) : null],
      });
    });
  }

  function totalEvent({ placed, rules }: Series, { total }: TagTotal, fromMs: number, toMs: number) {
    const { resolution, timeZone } = rules;
    const range = { from: rangeTime(fromMs), to: rangeTime(toMs) };
    return makeEvent({
      type: "tag-total",
      source: sourceUri(source),
      subject: `${subjectOf("tag", placed.siteId, placed.tag.id)}/total/${resolution}`,
      time: isoUtc(toMs),
      siteId: placed.siteId,
      data: { tag: placed.tag, resolution, timeZone, ...range, total, reset: total !== null && total < 0 },
      facts: [resolution, timeZone, range.from, range.to],
    });
  }
}

function pointOf({ time, value }: Measurement): Point {
  return { atMs: Date.parse(time), time, value };
}

function spansOf(
  fromMs: number,
  toMs: number,
  resolution: Series["rules"]["resolution"],
): ReadonlySet<number> {
  const spans = new Set<number>();
  for (let span = spanOf(fromMs, resolution); span <= spanOf(toMs - 1, resolution); span++) spans.add(span);
  return spans;
}

function chunks(points: readonly Point[]): Point[][] {
  const parts: Point[][] = [];
  for (let i = 0; i < points.length; i += POINTS_PER_EVENT) parts.push(points.slice(i, i + POINTS_PER_EVENT));
  return parts;
}
