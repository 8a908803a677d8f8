import { makeHistoryEvent } from "../../../core/codec/history-event.ts";
import { encodeTagValue, TagPoints } from "../../../core/codec/points.ts";
import type { Resolution, TagLog, TagTotal } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import type { EmittedHistoryPoints } from "../completeness/complete-days.ts";
import type { FinalizedDays } from "../completeness/finalized-days.ts";
import { type EmittedPoints, type StoredLedger, syncSet } from "../stored-documents.ts";
import { bucketBefore, bucketEnd, clipRange, DAY_MS, formatUtc, parseTime, type TimeRange } from "./buckets.ts";
import type { HistoryRequest } from "./choose-request.ts";
import {
  addLedgerRanges,
  closedUntilMs,
  type EmittedValuesByTime,
  recordRefusal,
  type SettledHistoryPoints,
  settleNewRange,
  settlePastRange,
} from "./ledger.ts";
import {
  addUnreadableRanges,
  findUnreadableRanges,
  formatUnreadableMessage,
  type LedgerRange,
  rangesFromPoints,
  selectReadablePoints,
} from "./ledger-ranges.ts";
import type { Series } from "./series-registry.ts";

const POINTS_PER_EVENT = 500;
const POINTS_PER_COMMIT = 8_000;
const POINTS_BEFORE_COMMIT = POINTS_PER_COMMIT / 2;
const LIVE_POINT_AGE_MAX_MS = DAY_MS;

const NO_EMITTED_POINTS: EmittedHistoryPoints = {
  newPoints: new TagPoints(),
  revisedPoints: new TagPoints(),
  valuesBefore: new Map(),
};

export type HistoryReplySettlement = ReturnType<typeof createHistoryReplySettlement>;

/** Commits ledgers, points and events of a history reply in one transaction per 8,000 points. */
export function createHistoryReplySettlement(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
  readonly days: Pick<FinalizedDays, "collectDayChanges">;
}) {
  const { store, clock, source } = options;
  const ledgerDocumentSet = documentSet("history", source);
  const emittedPointsSet = syncSet("history-told", source);

  function createCommitBatch(nowMs: number, extraDocuments: readonly DocumentChange[] = []) {
    return {
      ledgersBySeries: new Map<Series, StoredLedger>(),
      emittedPointsToPut: [] as (readonly [string, EmittedPoints])[],
      emittedKeysToRemove: [] as string[],
      events: [] as Event<"tag-history" | "tag-total">[],
      dayChanges: options.days.collectDayChanges(nowMs),
      ...{ extraDocuments, pointCount: 0 },
    };
  }
  type CommitBatch = ReturnType<typeof createCommitBatch>;

  async function commitBatch(batch: CommitBatch): Promise<void> {
    const { ledgersBySeries, dayChanges } = batch;
    await store.commit({
      documents: [
        { set: ledgerDocumentSet, put: [...ledgersBySeries].map(([series, ledger]) => [series.key, ledger] as const) },
        { set: emittedPointsSet, put: batch.emittedPointsToPut, remove: batch.emittedKeysToRemove },
        ...dayChanges.documents(),
        ...batch.extraDocuments,
      ],
      events: [...batch.events, ...dayChanges.events],
    });
    for (const [series, ledger] of ledgersBySeries) series.ledger = ledger;
    dayChanges.afterCommit();
  }

  async function changeLedgerInBatch(
    batch: CommitBatch,
    series: Series,
    ledger: StoredLedger,
    emitted: EmittedHistoryPoints,
  ) {
    const previousLedger = batch.ledgersBySeries.get(series) ?? series.ledger;
    batch.ledgersBySeries.set(series, await batch.dayChanges.countReplyPoints(series, previousLedger, ledger, emitted));
  }

  async function addPointsToBatch(
    batch: CommitBatch,
    series: Series,
    range: TimeRange,
    nowMs: number,
    settlePoints: (ledger: StoredLedger, emitted: EmittedValuesByTime) => SettledHistoryPoints,
  ): Promise<void> {
    const { key, rules } = series;
    const { resolution } = rules;
    const previousLedger = batch.ledgersBySeries.get(series) ?? series.ledger;
    const oldestMs = parseTime(previousLedger.rememberedFrom);
    const emittedValuesByTime: EmittedValuesByTime = new Map();
    for (const chunk of listChunks(Math.max(bucketBefore(range.fromMs, rules), oldestMs), range.toMs, resolution)) {
      const storedChunk = await store.document<EmittedPoints>(emittedPointsSet, `${key} ${chunk}`);
      for (const [i, offsetS] of (storedChunk?.at ?? []).entries())
        emittedValuesByTime.set(chunkStartMs(chunk, resolution) + offsetS * 1_000, storedChunk?.values[i] ?? null);
    }
    const { ledger, newPoints, revisedPoints } = settlePoints(previousLedger, emittedValuesByTime);
    await changeLedgerInBatch(batch, series, ledger, { newPoints, revisedPoints, valuesBefore: emittedValuesByTime });
    const retainedSinceMs = parseTime(ledger.rememberedFrom);
    const changedChunks = new Set<number>();
    for (const points of [newPoints, revisedPoints]) {
      for (let pointIndex = points.firstIndexFrom(retainedSinceMs); pointIndex < points.length; pointIndex++) {
        emittedValuesByTime.set(points.timeMs(pointIndex), points.value(pointIndex));
        changedChunks.add(chunkNumberAt(points.timeMs(pointIndex), resolution));
      }
    }
    for (const chunk of changedChunks)
      batch.emittedPointsToPut.push([`${key} ${chunk}`, packEmittedPoints(chunk, resolution, emittedValuesByTime)]);
    for (let chunk = chunkNumberAt(oldestMs, resolution); chunk < chunkNumberAt(retainedSinceMs, resolution); chunk++)
      batch.emittedKeysToRemove.push(`${key} ${chunk}`);
    batch.events.push(
      ...buildEvents(series, newPoints, false, nowMs),
      ...buildEvents(series, revisedPoints, true, nowMs),
    );
    batch.pointCount += newPoints.length + revisedPoints.length;
  }

  function buildEvents(series: Series, points: TagPoints, isRevised: boolean, nowMs: number) {
    const { rules } = series;
    const { tag, siteId } = series.siteTag;
    const { resolution, timeZone } = rules;
    const livePointAgeMaxMs = Math.max(LIVE_POINT_AGE_MAX_MS, 2 * rules.everyMs);
    const seriesSinceMs = parseTime(series.ledger.since);
    const isLivePoint = (atMs: number) => atMs >= seriesSinceMs && nowMs - bucketEnd(atMs, rules) <= livePointAgeMaxMs;
    const events: Event<"tag-history">[] = [];
    for (let eventStartIndex = 0; eventStartIndex < points.length; ) {
      const isLiveEvent = isLivePoint(points.timeMs(eventStartIndex));
      const nextChunkStartMs = chunkStartMs(chunkNumberAt(points.timeMs(eventStartIndex), resolution) + 1, resolution);
      let eventEndIndex = Math.min(eventStartIndex + POINTS_PER_EVENT, points.firstIndexFrom(nextChunkStartMs));
      while (isLivePoint(points.timeMs(eventEndIndex - 1)) !== isLiveEvent) eventEndIndex--;
      events.push(
        makeHistoryEvent({
          ...{ source: sourceUri(source), siteId, tag, resolution, timeZone },
          subject: `${eventSubject("tag", siteId, tag.id)}/history/${resolution}`,
          time: isoUtc(points.timeMs(eventEndIndex - 1)),
          points: points.sliceByIndex(eventStartIndex, eventEndIndex),
          origin: isLiveEvent ? "live" : "backfill",
          // The time keeps the ids of two revisions distinct if a value changes back and forth.
          revisedAt: isRevised ? isoUtc(nowMs) : null,
        }),
      );
      eventStartIndex = eventEndIndex;
    }
    return events;
  }

  function buildTotalEvent({ siteTag, rules }: Series, total: TagTotal["total"], { fromMs, toMs }: TimeRange) {
    const { tag, siteId } = siteTag;
    const { resolution, timeZone } = rules;
    const totalRange = { from: formatUtc(fromMs), to: formatUtc(toMs) };
    return makeEvent({
      type: "tag-total",
      ...{ source: sourceUri(source), siteId, time: isoUtc(toMs) },
      subject: `${eventSubject("tag", siteId, tag.id)}/total/${resolution}`,
      data: { tag, resolution, timeZone, ...totalRange, total, reset: total !== null && total < 0 },
      facts: [resolution, timeZone, totalRange.from, totalRange.to],
    });
  }

  return {
    async commitLogs(request: HistoryRequest, commitLogs: readonly TagLog[], extra: readonly DocumentChange[]) {
      const nowMs = clock.now();
      const isFollowing = request.kind === "following";
      const isRetryOfRefusedRange = request.isSingle && !isFollowing;
      const listedSeries: Series[] = [];
      let batch = createCommitBatch(nowMs, extra);
      for (const { series, record, range: requestedRange } of matchRecordsToSeries(request, commitLogs)) {
        listedSeries.push(series);
        const { ledger: previousLedger, rules } = series;
        // The reply may show that Plenum's clock was ahead when it chose the range: skip buckets that are still open.
        const toMs = isFollowing ? requestedRange.toMs : Math.min(requestedRange.toMs, closedUntilMs(rules, nowMs));
        const range = { fromMs: requestedRange.fromMs, toMs };
        if (toMs <= range.fromMs) continue;
        const unreadableRanges = findUnreadableRanges(record, range, previousLedger, isRetryOfRefusedRange);
        const allLogPoints = TagPoints.fromMeasurements(record.measurements);
        const points = selectReadablePoints(allLogPoints.sortedByTime(), unreadableRanges);
        const learnRanges = (fetchedRanges: readonly LedgerRange[]) =>
          addUnreadableRanges(previousLedger, fetchedRanges, unreadableRanges, isRetryOfRefusedRange, nowMs);
        const responsePoints = unreadableRanges === null ? allLogPoints : points;
        const learnedRanges = isFollowing ? [] : learnRanges(rangesFromPoints(responsePoints, range, previousLedger));
        for (const rangePart of isFollowing ? [range] : splitRangeByPoints(points, range, rules.resolution)) {
          await addPointsToBatch(batch, series, rangePart, nowMs, (ledger, emitted) =>
            isFollowing
              ? settleNewRange(ledger, rules, points, range, emitted, nowMs, learnRanges)
              : settlePastRange(ledger, points, rangePart, clipLedgerRanges(learnedRanges, rangePart)),
          );
          if (batch.pointCount < POINTS_BEFORE_COMMIT) continue;
          await commitBatch(batch);
          batch = createCommitBatch(nowMs);
          await yieldToEventLoop();
        }
      }
      if (batch.ledgersBySeries.size > 0 || batch.extraDocuments.length > 0) await commitBatch(batch);
      return listedSeries;
    },

    async commitTotals(request: HistoryRequest, commitTotals: readonly TagTotal[]): Promise<readonly Series[]> {
      const nowMs = clock.now();
      const batch = createCommitBatch(nowMs);
      for (const { series, record, range } of matchRecordsToSeries(request, commitTotals)) {
        const { total, unreadable } = record;
        const { ledger } = series;
        if (unreadable !== undefined) {
          const refusedLedger = recordRefusal(ledger, formatUnreadableMessage(unreadable), nowMs, "unreadable");
          await changeLedgerInBatch(batch, series, refusedLedger, NO_EMITTED_POINTS);
          continue;
        }
        const extendedLedger = addLedgerRanges(ledger, [{ ...range, why: total === null ? "null" : "points" }]);
        const newPoints = new TagPoints();
        newPoints.push(range.fromMs, encodeTagValue(total));
        const settledLedger: StoredLedger = { ...extendedLedger, state: "following", refusal: null };
        await changeLedgerInBatch(batch, series, settledLedger, { ...NO_EMITTED_POINTS, newPoints });
        batch.events.push(buildTotalEvent(series, total, range));
      }
      await commitBatch(batch);
      return [...batch.ledgersBySeries.keys()];
    },

    async commitLedgers(changedLedgers: ReadonlyMap<Series, StoredLedger>): Promise<void> {
      if (changedLedgers.size === 0) return;
      const batch = createCommitBatch(clock.now());
      for (const [series, ledger] of changedLedgers)
        await changeLedgerInBatch(batch, series, ledger, NO_EMITTED_POINTS);
      await commitBatch(batch);
    },
  };
}

function matchRecordsToSeries<R extends { readonly id: string }>(
  { series, rangesBySeriesKey }: HistoryRequest,
  reply: readonly R[],
) {
  const recordsByTagId = new Map(reply.map((record) => [record.id, record]));
  return series.flatMap((requestedSeries) => {
    const record = recordsByTagId.get(requestedSeries.siteTag.tag.id);
    const seriesRange = rangesBySeriesKey.get(requestedSeries.key);
    return record === undefined || seriesRange === undefined
      ? []
      : [{ series: requestedSeries, record, range: seriesRange }];
  });
}

function splitRangeByPoints(points: TagPoints, { fromMs, toMs }: TimeRange, resolution: Resolution) {
  const rangeParts: TimeRange[] = [];
  let beginMs = fromMs;
  let pointIndex = points.firstIndexFrom(fromMs);
  const endIndex = points.firstIndexFrom(toMs);
  while (endIndex - pointIndex > POINTS_PER_COMMIT) {
    const lastChunk = chunkNumberAt(points.timeMs(pointIndex + POINTS_PER_COMMIT), resolution);
    const partEndMs = chunkStartMs(lastChunk, resolution);
    const nextIndex = points.firstIndexFrom(partEndMs);
    if (nextIndex <= pointIndex) break;
    rangeParts.push({ fromMs: beginMs, toMs: partEndMs });
    beginMs = partEndMs;
    pointIndex = nextIndex;
  }
  return [...rangeParts, { fromMs: beginMs, toMs }];
}

function clipLedgerRanges(ranges: readonly LedgerRange[], within: TimeRange): readonly LedgerRange[] {
  return ranges.flatMap((range) => clipRange(range, within).map((part) => ({ ...range, ...part })));
}

/** Fixed lengths of chunks, the time ranges of events. The same points give the same events after a loss of state. */
const CHUNK_LENGTH_MS: Readonly<Record<Resolution, number>> = {
  "5m": DAY_MS,
  "1h": 14 * DAY_MS,
  "1d": 400 * DAY_MS,
  "1w": 400 * DAY_MS,
  "1mo": 400 * DAY_MS,
};

const chunkNumberAt = (atMs: number, resolution: Resolution): number => Math.floor(atMs / CHUNK_LENGTH_MS[resolution]);
const chunkStartMs = (chunk: number, resolution: Resolution): number => chunk * CHUNK_LENGTH_MS[resolution];

function listChunks(fromMs: number, toMs: number, resolution: Resolution): readonly number[] {
  const [firstChunk, lastChunk] = [chunkNumberAt(fromMs, resolution), chunkNumberAt(toMs - 1, resolution)];
  return Array.from({ length: Math.max(0, lastChunk - firstChunk + 1) }, (_, i) => firstChunk + i);
}

function packEmittedPoints(chunk: number, resolution: Resolution, emitted: EmittedValuesByTime): EmittedPoints {
  const chunkStart = chunkStartMs(chunk, resolution);
  const points = [...emitted].filter(([atMs]) => chunkNumberAt(atMs, resolution) === chunk).sort(([a], [b]) => a - b);
  return { at: points.map(([atMs]) => (atMs - chunkStart) / 1_000), values: points.map(([, value]) => value) };
}
