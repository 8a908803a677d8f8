import { historyEvent } from "../../../core/codec/history-event.ts";
import { codeOf, Points } from "../../../core/codec/points.ts";
import type { Resolution, TagLog, TagTotal } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import type { EmittedCounts } from "../completeness/days.ts";
import type { DayNotes, FinalizedDays } from "../completeness/finalized-days.ts";
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
 * Settles replies: one transaction changes the ledgers and the emitted points, and emits the events. A large reply takes
 * one transaction for about 8,000 points, at a boundary between series or ranges. After a crash, what is not committed is
 * requested again.
 */
export interface HistorySettle {
  /** Returns the series that the reply lists. */
  logs(ask: HistoryRequest, logs: readonly TagLog[], also: readonly DocumentChange[]): Promise<readonly Series[]>;
  totals(ask: HistoryRequest, totals: readonly TagTotal[]): Promise<readonly Series[]>;
  /** Stores ledgers that changed without points. */
  ledgers(changed: ReadonlyMap<Series, StoredHistory>): Promise<void>;
}

/** Most points of one event. A chunk has at most 400 buckets, but a service that samples may return more points. */
const POINTS_PER_EVENT = 500;
/** Points of one transaction where a range can be cut: half a megabyte of events. */
const POINTS_PER_COMMIT = 8_000;
/** With so many points the next part starts a new transaction. */
const ENOUGH_FOR_COMMIT = POINTS_PER_COMMIT / 2;
/** Points emitted later than this after the end of their bucket are backfill, in milliseconds. */
const LIVE_MS = 24 * 3_600_000;

/** Receives each response of following: ascending points, also those beyond the requested range. */
export type OnLogged = (id: string, resolution: Resolution, points: Points, nowMs: number) => void;

const NOTHING_EMITTED = { fresh: new Points(), revised: new Points(), before: new Map() };

/** Content of one transaction. */
interface Batch {
  readonly ledgers: Map<Series, StoredHistory>;
  readonly putEmitted: (readonly [string, EmittedPoints])[];
  readonly removeEmitted: string[];
  readonly events: Event<"tag-history" | "tag-total">[];
  readonly days: DayNotes;
  points: number;
}

export function createHistorySettle(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
  readonly days: Pick<FinalizedDays, "notes">;
  readonly onLogged?: OnLogged | undefined;
}): HistorySettle {
  const { store, clock, source, onLogged } = options;
  const ledgerSet = documentSet("history", source);
  const emittedSet = syncSet("history-told", source);

  const emptyBatch = (nowMs: number): Batch => ({
    ledgers: new Map(),
    putEmitted: [],
    removeEmitted: [],
    events: [],
    days: options.days.notes(nowMs),
    points: 0,
  });

  async function commit(batch: Batch, also: readonly DocumentChange[] = []): Promise<void> {
    const { ledgers, putEmitted, removeEmitted, events, days } = batch;
    await store.commit({
      documents: [
        { set: ledgerSet, put: [...ledgers].map(([series, ledger]) => [series.key, ledger] as const) },
        { set: emittedSet, put: putEmitted, remove: removeEmitted },
        ...days.documents(),
        ...also,
      ],
      // The events about complete days follow the points that complete them.
      events: [...events, ...days.events],
    });
    for (const [series, ledger] of ledgers) series.ledger = ledger;
    days.committed();
  }

  async function loadEmitted(series: Series, chunks: readonly number[]): Promise<EmittedValues> {
    const emitted: EmittedValues = new Map();
    for (const chunk of chunks) {
      const stored = await store.document<EmittedPoints>(emittedSet, `${series.key} ${chunk}`);
      if (stored !== undefined) unpackEmitted(chunk, series.rules.resolution, stored, emitted);
    }
    return emitted;
  }

  /** Adds the response for a range of a series to a batch. */
  async function add(
    batch: Batch,
    series: Series,
    range: Range,
    nowMs: number,
    settle: (ledger: StoredHistory, emitted: EmittedValues) => Settled,
  ): Promise<void> {
    const { resolution, timeZone } = series.rules;
    const before = batch.ledgers.get(series) ?? series.ledger;
    // A bucket across the start of the range began before it.
    const beganMs = bucketBefore(range.fromMs, resolution, timeZone);
    const fromMs = Math.max(beganMs, parseTime(before.rememberedFrom));
    const emitted = await loadEmitted(series, chunksOf(fromMs, range.toMs, resolution));
    const { ledger: after, fresh, revised } = settle(before, emitted);
    batch.ledgers.set(series, await batch.days.count(series, before, after, { fresh, revised, before: emitted }));
    const retainedMs = parseTime(after.rememberedFrom);
    const touched = new Set<number>();
    for (const points of [fresh, revised]) {
      for (let at = points.placeOf(retainedMs); at < points.length; at++) {
        emitted.set(points.timeMs(at), points.value(at));
        touched.add(chunkOf(points.timeMs(at), resolution));
      }
    }
    for (const chunk of touched)
      batch.putEmitted.push([`${series.key} ${chunk}`, packEmitted(chunk, resolution, emitted)]);
    const oldChunk = chunkOf(parseTime(before.rememberedFrom), resolution);
    for (let chunk = oldChunk; chunk < chunkOf(retainedMs, resolution); chunk++)
      batch.removeEmitted.push(`${series.key} ${chunk}`);
    batch.events.push(...eventsOf(series, fresh, false, nowMs), ...eventsOf(series, revised, true, nowMs));
    batch.points += fresh.length + revised.length;
  }

  return {
    async logs(ask, logs, also) {
      const nowMs = clock.now();
      const byId = new Map(logs.map((log) => [log.id, log]));
      const listed: Series[] = [];
      let batch = emptyBatch(nowMs);
      let more = also;
      const commitBatch = async () => {
        const full = batch;
        batch = emptyBatch(nowMs);
        await commit(full, more);
        more = [];
      };
      const commitIfFull = async () => {
        if (batch.points < ENOUGH_FOR_COMMIT) return;
        await commitBatch();
        await yieldToEventLoop();
      };
      for (const series of ask.series) {
        const log = byId.get(series.located.tag.id);
        const range = ask.ranges.get(series.key);
        if (log === undefined || range === undefined) continue;
        listed.push(series);
        const { ledger: before } = series;
        const isRetry = ask.isSingle && ask.kind !== "following";
        const unreadable = unreadableIn(log, range, before, isRetry);
        const points = readablePoints(Points.of(log.measurements).ascending(), unreadable);
        const learn = (answered: readonly LedgerRange[]) =>
          withUnreadable(before, answered, unreadable, isRetry, nowMs);
        if (ask.kind === "following") {
          if (unreadable === null) onLogged?.(log.id, series.rules.resolution, points, nowMs);
          await add(batch, series, range, nowMs, (ledger, emitted) =>
            settleFollowing(ledger, series.rules, points, range, emitted, nowMs, learn),
          );
          await commitIfFull();
          continue;
        }
        const { resolution, timeZone } = before;
        const read = unreadable === null ? Points.of(log.measurements) : points;
        const learned = learn(answeredRanges(read, range, resolution, timeZone));
        for (const part of partsOf(points, range, series.rules.resolution)) {
          const learnedOfPart = clipRanges(learned, part);
          await add(batch, series, part, nowMs, (ledger) => settlePast(ledger, points, part, learnedOfPart));
          await commitIfFull();
        }
      }
      if (batch.ledgers.size > 0 || more.length > 0) await commitBatch();
      return listed;
    },

    async totals(ask, totals) {
      const byId = new Map(totals.map((total) => [total.id, total]));
      const nowMs = clock.now();
      const batch = emptyBatch(nowMs);
      for (const series of ask.series) {
        const total = byId.get(series.located.tag.id);
        const range = ask.ranges.get(series.key);
        if (total === undefined || range === undefined) continue;
        const { ledger: before } = series;
        let after: StoredHistory;
        let emitted: EmittedCounts = NOTHING_EMITTED;
        if (total.unreadable !== undefined) {
          after = recordRefusal(before, unreadableMessage(total.unreadable), nowMs, "unreadable");
        } else {
          const fresh = new Points();
          fresh.push(range.fromMs, codeOf(total.total));
          emitted = { fresh, revised: new Points(), before: new Map() };
          after = { ...settleTotal(before, range, total.total), state: "following", refusal: null };
          batch.events.push(totalEvent(series, total, range.fromMs, range.toMs));
        }
        batch.ledgers.set(series, await batch.days.count(series, before, after, emitted));
      }
      await commit(batch);
      return [...batch.ledgers.keys()];
    },

    async ledgers(changed) {
      if (changed.size === 0) return;
      const batch = emptyBatch(clock.now());
      for (const [series, ledger] of changed)
        batch.ledgers.set(series, await batch.days.count(series, series.ledger, ledger, NOTHING_EMITTED));
      await commit(batch);
    },
  };

  /** Returns events of one chunk each, with live points and late points in separate events. */
  function eventsOf(series: Series, points: Points, revised: boolean, nowMs: number): readonly Event<"tag-history">[] {
    const { located, rules, ledger } = series;
    const { resolution, timeZone } = rules;
    const liveMs = Math.max(LIVE_MS, 2 * rules.everyMs);
    const sinceMs = parseTime(ledger.since);
    const isLive = (atMs: number) => atMs >= sinceMs && nowMs - bucketEnd(atMs, resolution, timeZone) <= liveMs;
    const events: Event<"tag-history">[] = [];
    for (let from = 0; from < points.length; ) {
      const span = chunkOf(points.timeMs(from), resolution);
      const live = isLive(points.timeMs(from));
      let to = Math.min(from + POINTS_PER_EVENT, points.placeOf(chunkStart(span + 1, resolution)));
      // Points are ascending, so live ones follow late ones, never the reverse.
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
          // Each revision is a fact of its own, because a bucket may change back and forth.
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

function chunksOf(fromMs: number, toMs: number, resolution: Resolution): readonly number[] {
  const [first, last] = [chunkOf(fromMs, resolution), chunkOf(toMs - 1, resolution)];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => first + at);
}

/** Cuts a range into ascending parts of about one transaction each, at boundaries of chunks. */
function partsOf(points: Points, { fromMs, toMs }: Range, resolution: Resolution): readonly Range[] {
  const parts: Range[] = [];
  let beginMs = fromMs;
  let at = points.placeOf(fromMs);
  const end = points.placeOf(toMs);
  while (end - at > POINTS_PER_COMMIT) {
    const cutMs = chunkStart(chunkOf(points.timeMs(at + POINTS_PER_COMMIT), resolution), resolution);
    const next = points.placeOf(cutMs);
    // The points of one chunk stay together.
    if (next <= at) break;
    parts.push({ fromMs: beginMs, toMs: cutMs });
    beginMs = cutMs;
    at = next;
  }
  return [...parts, { fromMs: beginMs, toMs }];
}

/** Returns the parts of ledger ranges inside a range. */
function clipRanges(spans: readonly LedgerRange[], { fromMs, toMs }: Range): readonly LedgerRange[] {
  return spans.flatMap((span) => {
    const part = { ...span, fromMs: Math.max(fromMs, span.fromMs), toMs: Math.min(toMs, span.toMs) };
    return part.fromMs < part.toMs ? [part] : [];
  });
}

/**
 * A series is cut into chunks of fixed UTC length. One document stores the emitted points of a chunk, and an event has
 * points of one chunk: so the same points make the same events even after the state was lost.
 */
const DAY_MS = 86_400_000;
const CHUNK_MS: Readonly<Record<Resolution, number>> = {
  "5m": DAY_MS,
  "1h": 14 * DAY_MS,
  "1d": 400 * DAY_MS,
  "1w": 400 * DAY_MS,
  "1mo": 400 * DAY_MS,
};

function chunkOf(atMs: number, resolution: Resolution): number {
  return Math.floor(atMs / CHUNK_MS[resolution]);
}

function chunkStart(chunk: number, resolution: Resolution): number {
  return chunk * CHUNK_MS[resolution];
}

function unpackEmitted(chunk: number, resolution: Resolution, stored: EmittedPoints, into: EmittedValues): void {
  const start = chunkStart(chunk, resolution);
  for (const [i, at] of stored.at.entries()) into.set(start + at * 1_000, stored.values[i] ?? null);
}

/** Returns the document of one chunk. */
function packEmitted(chunk: number, resolution: Resolution, emitted: EmittedValues): EmittedPoints {
  const start = chunkStart(chunk, resolution);
  const inside = [...emitted].filter(([atMs]) => chunkOf(atMs, resolution) === chunk).sort(([a], [b]) => a - b);
  return { at: inside.map(([atMs]) => (atMs - start) / 1_000), values: inside.map(([, value]) => value) };
}
