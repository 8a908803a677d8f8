import { historyEvent } from "../../../core/codec/history-event.ts";
import { codeOf, Points } from "../../../core/codec/points.ts";
import type { Resolution, TagLog, TagTotal } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import {
  createDayNotes,
  type DayNotes,
  type FinalizedDays,
  NO_FINALIZED_DAYS,
} from "../completeness/finalized-days.ts";
import { type EmittedPoints, type StoredHistory, syncSet } from "../snapshot.ts";
import { bucketBefore, bucketEnd, type Range, rangeTime } from "./buckets.ts";
import type { HistoryRequest } from "./choose-request.ts";
import {
  type EmittedValues,
  parseTime,
  recordRefusal,
  type Settled,
  settleFollowing,
  settlePast,
  settleTotal,
} from "./ledger.ts";
import {
  answeredRanges,
  type LedgerRange,
  readablePoints,
  unreadableIn,
  unreadableMessage,
  withUnreadable,
} from "./ledger-ranges.ts";
import type { Series } from "./series.ts";

/**
 * Settles replies: ledgers, what was told, and the events. Of each series, and of a long series of each stretch of the
 * past, they are in one transaction: what a crash leaves out of a large reply is asked for again. One transaction for
 * the whole would stop everything else for as long as 13 MB take to the disk.
 */
export interface HistorySettle {
  logs(
    ask: HistoryRequest,
    logs: readonly TagLog[],
    also: readonly DocumentChange[],
  ): Promise<readonly Series[]>;
  totals(ask: HistoryRequest, totals: readonly TagTotal[]): Promise<readonly Series[]>;
  /** Ledgers that changed without a reply of their own. */
  ledgers(changed: ReadonlyMap<Series, StoredHistory>): Promise<void>;
}

/** Points that one event tells at most; a span has at most 400 buckets, a service that samples may have more. */
const POINTS_PER_EVENT = 500;
/** Points of one transaction, where it can be cut: half a megabyte of events. */
const POINTS_PER_COMMIT = 8_000;
/** From so many on the next part gets a transaction of its own. */
const ENOUGH_FOR_COMMIT = POINTS_PER_COMMIT / 2;
/** A bucket that is told later than this after its end was not followed live, in milliseconds. */
const LIVE_MS = 24 * 3_600_000;

/** Is told of each answer of what is followed: ascending, and as it came, so beyond what was asked for too. */
export type OnLogged = (id: string, resolution: Resolution, points: Points, nowMs: number) => void;
/** What a ledger is told that changed without an answer of points. */
const NOTHING_TOLD = { fresh: new Points(), revised: new Points(), before: new Map() };

/** What one transaction takes. */
interface Portion {
  readonly put: Map<Series, StoredHistory>;
  readonly putTold: (readonly [string, EmittedPoints])[];
  readonly removeTold: string[];
  readonly events: Event<"tag-history">[];
  /** What it means for the days. */
  readonly days: DayNotes;
  points: number;
}

export function createHistorySettle(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
  readonly onLogged?: OnLogged;
  /** The days of each site that were sealed; none by default. */
  readonly sealed?: FinalizedDays;
}): HistorySettle {
  const { store, clock, source, onLogged, sealed = NO_FINALIZED_DAYS } = options;
  const notesAt = (nowMs: number) => createDayNotes({ store, source, nowMs, sealed });
  const ledgerSet = documentSet("history", source);
  const toldSet = syncSet("history-told", source);

  async function loadTold(series: Series, spans: ReadonlySet<number>): Promise<EmittedValues> {
    const emitted: EmittedValues = new Map();
    for (const span of spans) {
      const ledger = await store.document<EmittedPoints>(toldSet, `${series.key} ${span}`);
      if (ledger !== undefined) unpackEmitted(span, series.rules.resolution, ledger, emitted);
    }
    return emitted;
  }

  /** Adds what a series, or a part of its range, was answered. */
  async function add(
    portion: Portion,
    series: Series,
    range: Range,
    nowMs: number,
    settle: (ledger: StoredHistory, emitted: EmittedValues) => Settled,
  ): Promise<void> {
    const { resolution, timeZone } = series.rules;
    const ledger = portion.put.get(series) ?? series.ledger;
    // A bucket that lies across the beginning of the range began before it.
    const beganMs = bucketBefore(range.fromMs, resolution, timeZone);
    const spans = spansOf(Math.max(beganMs, parseTime(ledger.rememberedFrom)), range.toMs, resolution);
    const emitted = await loadTold(series, spans);
    const settled = settle(ledger, emitted);
    const { fresh, revised } = settled;
    portion.put.set(
      series,
      await portion.days.count(series, ledger, settled.ledger, { fresh, revised, before: emitted }),
    );
    const rememberedMs = parseTime(settled.ledger.rememberedFrom);
    const touched = new Set<number>();
    for (const points of [settled.fresh, settled.revised]) {
      for (let at = points.placeOf(rememberedMs); at < points.length; at++) {
        emitted.set(points.timeMs(at), points.value(at));
        touched.add(chunkOf(points.timeMs(at), resolution));
      }
    }
    for (const span of touched)
      portion.putTold.push([`${series.key} ${span}`, packEmitted(span, resolution, emitted)]);
    const oldSpan = chunkOf(parseTime(ledger.rememberedFrom), resolution);
    const keptSpan = chunkOf(rememberedMs, resolution);
    for (let span = oldSpan; span < keptSpan; span++) portion.removeTold.push(`${series.key} ${span}`);
    portion.events.push(
      ...eventsOf(series, settled.fresh, false, nowMs),
      ...eventsOf(series, settled.revised, true, nowMs),
    );
    portion.points += settled.fresh.length + settled.revised.length;
  }

  return {
    async logs(ask, logs, also) {
      const nowMs = clock.now();
      const byId = new Map(logs.map((log) => [log.id, log]));
      const answered: Series[] = [];
      let portion = emptyPortion(notesAt(nowMs));
      let more = also;
      const commit = async () => {
        const { put, putTold, removeTold, events, days } = portion;
        const ledgers = [...put].map(([series, ledger]) => [series.key, ledger] as const);
        const toldChange = { set: toldSet, put: putTold, remove: removeTold };
        portion = emptyPortion(notesAt(nowMs));
        await store.commit({
          documents: [{ set: ledgerSet, put: ledgers }, toldChange, ...days.documents(), ...more],
          // What is complete is told after what it is complete with.
          events: [...events, ...days.events],
        });
        more = [];
        for (const [series, ledger] of put) series.ledger = ledger;
        days.committed();
      };
      const commitIfFull = async () => {
        if (portion.points < ENOUGH_FOR_COMMIT) return;
        await commit();
        await yieldToEventLoop();
      };
      for (const series of ask.series) {
        const log = byId.get(series.located.tag.id);
        const range = ask.ranges.get(series.key);
        if (log === undefined || range === undefined) continue;
        answered.push(series);
        const isRetry = ask.alone && ask.kind !== "following";
        const unreadable = unreadableIn(log, range, series.ledger, isRetry);
        const points = readablePoints(Points.of(log.measurements).ascending(), unreadable);
        const { ledger: before } = series;
        const learn = (answered: readonly LedgerRange[]) =>
          withUnreadable(before, answered, unreadable, isRetry, nowMs);
        if (ask.kind === "following") {
          // An unreadable measurement is no silence.
          if (unreadable === null) onLogged?.(log.id, series.rules.resolution, points, nowMs);
          const settle = (ledger: StoredHistory, emitted: EmittedValues) =>
            settleFollowing(ledger, series.rules, points, range, emitted, nowMs, learn);
          await add(portion, series, range, nowMs, settle);
          await commitIfFull();
          continue;
        }
        const { resolution, timeZone } = series.ledger;
        const read = unreadable === null ? Points.of(log.measurements) : points;
        const learned = learn(answeredRanges(read, range, resolution, timeZone));
        for (const part of partsOf(points, range, series.rules.resolution)) {
          const ofPart = within(learned, part);
          await add(portion, series, part, nowMs, (ledger) => settlePast(ledger, points, part, ofPart));
          await commitIfFull();
        }
      }
      if (portion.put.size > 0 || more.length > 0) await commit();
      return answered;
    },

    async totals(ask, totals) {
      const byId = new Map(totals.map((total) => [total.id, total]));
      const nowMs = clock.now();
      const days = notesAt(nowMs);
      const settled: { series: Series; ledger: StoredHistory; events: readonly Event<"tag-total">[] }[] = [];
      for (const series of ask.series) {
        const total = byId.get(series.located.tag.id);
        const range = ask.ranges.get(series.key);
        if (total === undefined || range === undefined) continue;
        if (total.unreadable !== undefined) {
          const refused = recordRefusal(
            series.ledger,
            unreadableMessage(total.unreadable),
            nowMs,
            "unreadable",
          );
          settled.push({
            series,
            ledger: await days.count(series, series.ledger, refused, NOTHING_TOLD),
            events: [],
          });
          continue;
        }
        const had = settleTotal(series.ledger, range, total.total);
        const fresh = new Points();
        fresh.push(range.fromMs, codeOf(total.total));
        const emitted = { fresh, revised: new Points(), before: new Map() };
        const answered: StoredHistory = { ...had, state: "following", refusal: null };
        const ledger = await days.count(series, series.ledger, answered, emitted);
        settled.push({ series, ledger, events: [totalEvent(series, total, range.fromMs, range.toMs)] });
      }
      await store.commit({
        documents: [
          { set: ledgerSet, put: settled.map(({ series, ledger }) => [series.key, ledger] as const) },
          ...days.documents(),
        ],
        events: [...settled.flatMap(({ events }) => events), ...days.events],
      });
      for (const { series, ledger } of settled) series.ledger = ledger;
      days.committed();
      return settled.map(({ series }) => series);
    },

    async ledgers(changed) {
      if (changed.size === 0) return;
      const days = notesAt(clock.now());
      const put: (readonly [Series, StoredHistory])[] = [];
      for (const [series, ledger] of changed)
        put.push([series, await days.count(series, series.ledger, ledger, NOTHING_TOLD)]);
      await store.commit({
        documents: [
          { set: ledgerSet, put: put.map(([series, ledger]) => [series.key, ledger] as const) },
          ...days.documents(),
        ],
        events: days.events,
      });
      for (const [series, ledger] of put) series.ledger = ledger;
      days.committed();
    },
  };

  /** Events of one span each; points that were followed live apart from those that come late. */
  function eventsOf(
    series: Series,
    points: Points,
    revised: boolean,
    nowMs: number,
  ): readonly Event<"tag-history">[] {
    const { located, rules, ledger } = series;
    const { resolution, timeZone } = rules;
    const liveMs = Math.max(LIVE_MS, 2 * rules.everyMs);
    const sinceMs = parseTime(ledger.since);
    const isLive = (atMs: number) =>
      atMs >= sinceMs && nowMs - bucketEnd(atMs, resolution, timeZone) <= liveMs;
    const events: Event<"tag-history">[] = [];
    for (let from = 0; from < points.length; ) {
      const span = chunkOf(points.timeMs(from), resolution);
      const live = isLive(points.timeMs(from));
      let to = Math.min(from + POINTS_PER_EVENT, points.placeOf(chunkStart(span + 1, resolution)));
      // Later ones are live where earlier ones are not, never the reverse.
      while (isLive(points.timeMs(to - 1)) !== live) to--;
      events.push(
        historyEvent({
          source: sourceUri(source),
          subject: `${subjectOf("tag", located.siteId, located.tag.id)}/history/${resolution}`,
          time: isoUtc(points.timeMs(to - 1)),
          siteId: located.siteId,
          tag: located.tag,
          resolution,
          timeZone,
          points: points.part(from, to),
          origin: live ? "live" : "backfill",
          // A bucket may change back and forth: each revision is a fact of its own.
          revisedAt: revised ? isoUtc(nowMs) : null,
        }),
      );
      from = to;
    }
    return events;
  }

  function totalEvent({ located, rules }: Series, { total }: TagTotal, fromMs: number, toMs: number) {
    const { resolution, timeZone } = rules;
    const range = { from: rangeTime(fromMs), to: rangeTime(toMs) };
    return makeEvent({
      type: "tag-total",
      source: sourceUri(source),
      subject: `${subjectOf("tag", located.siteId, located.tag.id)}/total/${resolution}`,
      time: isoUtc(toMs),
      siteId: located.siteId,
      data: { tag: located.tag, resolution, timeZone, ...range, total, reset: total !== null && total < 0 },
      facts: [resolution, timeZone, range.from, range.to],
    });
  }
}

function spansOf(
  fromMs: number,
  toMs: number,
  resolution: Series["rules"]["resolution"],
): ReadonlySet<number> {
  const spans = new Set<number>();
  for (let span = chunkOf(fromMs, resolution); span <= chunkOf(toMs - 1, resolution); span++) spans.add(span);
  return spans;
}

function emptyPortion(days: DayNotes): Portion {
  return { put: new Map(), putTold: [], removeTold: [], events: [], days, points: 0 };
}

/** A range in parts of about so many points as one transaction takes, ascending; never within what one event tells. */
function partsOf(
  points: Points,
  { fromMs, toMs }: Range,
  resolution: Series["rules"]["resolution"],
): readonly Range[] {
  const parts: Range[] = [];
  let beginMs = fromMs;
  let at = points.placeOf(fromMs);
  const end = points.placeOf(toMs);
  while (end - at > POINTS_PER_COMMIT) {
    const cutMs = chunkStart(chunkOf(points.timeMs(at + POINTS_PER_COMMIT), resolution), resolution);
    const next = points.placeOf(cutMs);
    // So many points in one span: they stay together.
    if (next <= at) break;
    parts.push({ fromMs: beginMs, toMs: cutMs });
    beginMs = cutMs;
    at = next;
  }
  return [...parts, { fromMs: beginMs, toMs }];
}

/** What is said of a part of the time. */
function within(spans: readonly LedgerRange[], { fromMs, toMs }: Range): readonly LedgerRange[] {
  return spans.flatMap((span) => {
    const part = { ...span, fromMs: Math.max(fromMs, span.fromMs), toMs: Math.min(toMs, span.toMs) };
    return part.fromMs < part.toMs ? [part] : [];
  });
}

/**
 * The series is cut into spans of fixed UTC length. A span is what one document remembers and what one event tells
 * at most, so the same points make the same events even after the state was lost.
 */
const DAY_MS = 86_400_000;
const SPAN_MS: Readonly<Record<Resolution, number>> = {
  "5m": DAY_MS,
  "1h": 14 * DAY_MS,
  "1d": 400 * DAY_MS,
  "1w": 400 * DAY_MS,
  "1mo": 400 * DAY_MS,
};

export function chunkOf(atMs: number, resolution: Resolution): number {
  return Math.floor(atMs / SPAN_MS[resolution]);
}

export function chunkStart(chunk: number, resolution: Resolution): number {
  return chunk * SPAN_MS[resolution];
}

export function unpackEmitted(
  chunk: number,
  resolution: Resolution,
  stored: EmittedPoints,
  into: EmittedValues,
): void {
  const start = chunkStart(chunk, resolution);
  for (const [i, at] of stored.at.entries()) into.set(start + at * 1_000, stored.values[i] ?? null);
}

/** The document of one span, from all that is told in it. */
export function packEmitted(chunk: number, resolution: Resolution, emitted: EmittedValues): EmittedPoints {
  const start = chunkStart(chunk, resolution);
  const inside = [...emitted]
    .filter(([atMs]) => chunkOf(atMs, resolution) === chunk)
    .sort(([a], [b]) => a - b);
  return { at: inside.map(([atMs]) => (atMs - start) / 1_000), values: inside.map(([, value]) => value) };
}
