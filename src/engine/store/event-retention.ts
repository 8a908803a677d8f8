import { parseEvent } from "../../core/codec/stored-event.ts";
import { type DeliveryGap, type Event, isUrgentKind, makeEvent } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { lastPositionWithinBytes, type StoredEventText } from "./event-log-rows.ts";
import { removeOrphanedMarks } from "./redeliveries.ts";
import type { SinkCursors } from "./sink-cursors.ts";
import { runSql, type SqlDriver, type SqlSteps } from "./sql-driver.ts";
import type { EventLogPruneReport, RetentionBounds, SinkPosition } from "./store.ts";

/** Each sink gets one gap event per reason in this time; later losses are reported in the next gap event. */
const GAP_EVENT_INTERVAL_MS = 60 * 60_000;
/** Limits of a transaction that removes events, so that other writers wait a few milliseconds only. */
const MAX_REMOVED_ROWS = 250;
const MAX_REMOVED_BYTES = 4 * 1024 ** 2;
/** Fraction of its size limit to which a full log is reduced, so that few large removals are enough. */
const PRUNED_LOG_SHARE = 0.95;
const DEAD_LETTER_LOG_SHARE = 0.1;
const MAX_REMOVED_DEAD_LETTERS = 500;

const slowestSinkCursorSql = (defaultSql: string) =>
  `(select coalesce(min(sink.position), ${defaultSql}) from sink where sink.source = $1 and ended is null)`;
const SLOWEST_SINK_CURSOR_SQL = slowestSinkCursorSql("9000000000000000");

const IS_SETTLED_SQL = `position <= ${SLOWEST_SINK_CURSOR_SQL}
  and not exists (select 1 from again where again.source = $1 and again.position = event.position)`;

interface RemovableEventSelection {
  readonly condition: string;
  readonly through: number;
  readonly reason: DeliveryGap["reason"] | null;
  readonly keepBytes?: number;
}

export interface RemovedEvent {
  readonly position: number;
  readonly bytes: number;
  readonly committed_ms: number;
}

export interface RetainedLog {
  noteRemovedEvents(events: readonly RemovedEvent[]): void;
  /** Appends the worker's own events; the caller calls the returned function after the commit. */
  appendWorkerEvents(events: readonly Event[], nowMs: number): SqlSteps<() => void>;
}

/** Removes settled events after their replay window. Removes unsettled events beyond the limits and records a gap. */
export function createEventRetention(sql: SqlDriver, log: RetainedLog, sinks: SinkCursors, clock: Pick<Clock, "now">) {
  const { dialect, query } = sql;
  const { table: counters, where: isCounterSql } = dialect.counters;
  const deliveryGaps = createDeliveryGapStore(sql, sinks);

  async function removeEvents(
    selection: RemovableEventSelection,
    { wanted }: RetentionBounds,
    nowMs: number,
    recordedGaps: DeliveryGap[],
  ): Promise<number> {
    const { condition, through, reason, keepBytes } = selection;
    const nextRemovableEventsSql = `select position, bytes, committed_ms, (select ${counters}.bytes from ${counters} where ${isCounterSql}) as total
      from event where source = $1 and position > $2 and position <= $3 and ${condition}
      order by position limit ${MAX_REMOVED_ROWS}`;
    let removedCount = 0;
    let afterPosition = 0;
    const limitEvents = (rows: readonly (RemovedEvent & { readonly total: number })[]): readonly RemovedEvent[] => {
      const excessBytes = keepBytes === undefined ? MAX_REMOVED_BYTES : (rows[0]?.total ?? 0) - keepBytes;
      const lastPosition =
        excessBytes <= 0 ? 0 : (lastPositionWithinBytes(rows, Math.min(excessBytes, MAX_REMOVED_BYTES)) ?? 0);
      return rows.filter(({ position }) => position <= lastPosition);
    };
    while (limitEvents(await query(nextRemovableEventsSql, afterPosition, through)).length > 0) {
      const sliceStart = afterPosition;
      const removedSlice = await sql.transaction(function* () {
        const events = limitEvents(yield* runSql(nextRemovableEventsSql, sliceStart, through));
        const mergedLossGaps = reason === null ? [] : mergeGaps(yield* findLossGaps(events, reason, wanted));
        yield* deliveryGaps.record(mergedLossGaps, nowMs);
        if (events.length > 0) yield* removeFromLog(events);
        return { events, lossGaps: mergedLossGaps };
      });
      if (removedSlice.lossGaps.length > 0) sinks.forget();
      recordedGaps.push(...removedSlice.lossGaps);
      removedCount += removedSlice.events.length;
      log.noteRemovedEvents(removedSlice.events);
      afterPosition = removedSlice.events.at(-1)?.position ?? through;
      await yieldToEventLoop();
    }
    return removedCount;
  }

  /** Returns the events that each sink loses by a removal. A sink that was never offered one starts a new epoch. */
  function* findLossGaps(
    events: readonly RemovedEvent[],
    reason: DeliveryGap["reason"],
    wanted: RetentionBounds["wanted"],
  ): SqlSteps<readonly DeliveryGap[]> {
    const removedPositions = events.map(({ position }) => position);
    const sinksInUse = yield* runSql<Pick<SinkPosition, "sink" | "position" | "urgent">>(
      "select name as sink, position, urgent from sink where source = $1 and ended is null",
    );
    const redeliveryMarkRows = yield* runSql<{ readonly sink: string; readonly position: number }>(
      `select sink, position from again where source = $1 and ${dialect.isIn("position", "$2::bigint[]")}`,
      removedPositions,
    );
    const eventRows = yield* runSql<Pick<StoredEventText, "position" | "body">>(
      `select position, body from event
       where source = $1 and ${dialect.isIn("position", "$2::bigint[]")} and ${dialect.isIntactSql("event")}`,
      removedPositions,
    );
    const markedEventKeys = new Set(redeliveryMarkRows.map(({ sink, position }) => `${position} ${sink}`));
    const eventBodyByPosition = new Map(eventRows.map(({ position, body }) => [position, body]));
    const lostEventGaps: DeliveryGap[] = [];
    const neverOfferedSinks = new Set<string>();
    for (const { position, committed_ms } of events) {
      const isMarkedForSink = (sink: string) => markedEventKeys.has(`${position} ${sink}`);
      const sinksWithoutEvent = sinksInUse.filter((sink) => position > sink.position || isMarkedForSink(sink.sink));
      if (sinksWithoutEvent.length === 0) continue;
      const body = eventBodyByPosition.get(position);
      // Count a damaged event as lost for each sink that has not received it, because no filter can be applied.
      const event = body === undefined ? null : parseEvent(body);
      const time = event?.time ?? isoUtc(committed_ms);
      for (const { sink, position: cursor, urgent } of sinksWithoutEvent) {
        const isUrgentDelivered = event !== null && isUrgentKind(event.type) && position <= urgent;
        if (isUrgentDelivered && !isMarkedForSink(sink)) continue;
        if (event !== null && wanted?.(sink, event) === false) continue;
        lostEventGaps.push({ sink, reason, firstTime: time, lastTime: time, count: 1 });
        if (position > cursor && !isUrgentDelivered) neverOfferedSinks.add(sink);
      }
    }
    yield [...neverOfferedSinks].map(sinks.beginEpoch);
    return lostEventGaps;
  }

  function* removeFromLog(events: readonly RemovedEvent[]): SqlSteps<void> {
    const removedPositions = events.map(({ position }) => position);
    const removedBytes = events.reduce((sum, event) => sum + event.bytes, 0);
    yield [
      {
        text: `delete from event where source = $1 and ${dialect.isIn("position", "$2::bigint[]")}`,
        values: [removedPositions],
      },
      removeOrphanedMarks(sql, removedPositions),
      { text: `update ${counters} set bytes = bytes - $2::bigint where ${isCounterSql}`, values: [removedBytes] },
    ];
  }

  /** Stores the log's end and the slowest cursor by running time. Returns the positions up to which events are old. */
  function* recordAgeMark({
    maxAgeMs,
    ranMs,
    replayMs,
  }: RetentionBounds): SqlSteps<{ agedPosition: number; replayedPosition: number }> {
    const [lastAgeMark] = yield* runSql<{ readonly ran: number }>(
      "select coalesce(max(ran_ms), 0) as ran from age_mark where source = $1",
    );
    const ran = Math.round((lastAgeMark?.ran ?? 0) + ranMs);
    const endSql = `(select coalesce(max(event.position), 0) from event where event.source = $1)`;
    yield* runSql(
      dialect.upsert("age_mark", ["ran_ms"], {
        ran_ms: "$2::bigint",
        newest: dialect.lastPositionSql,
        settled: slowestSinkCursorSql(endSql),
      }),
      ran,
    );
    const ageSql = "from age_mark where source = $1 and ran_ms < $2 order by ran_ms desc limit 1";
    const [aged] = yield* runSql<{ readonly newest: number }>(`select newest ${ageSql}`, Math.round(ran - maxAgeMs));
    const [replayed] = yield* runSql<{ readonly settled: number }>(
      `select settled ${ageSql}`,
      Math.round(ran - replayMs),
    );
    yield* runSql(
      `delete from age_mark where source = $1
         and ran_ms < (select max(ran_ms) from age_mark where source = $1 and ran_ms < $2)`,
      Math.round(ran - Math.max(maxAgeMs, replayMs)),
    );
    yield* runSql("delete from gap where source = $1 and told_ms < $2", clock.now() - GAP_EVENT_INTERVAL_MS);
    return { agedPosition: aged?.newest ?? 0, replayedPosition: replayed?.settled ?? 0 };
  }

  async function publishUnpublishedGaps(): Promise<number> {
    const nowMs = clock.now();
    if ((await query(SELECT_UNPUBLISHED_GAPS_SQL, ...publishedGapWindow(nowMs))).length === 0) return 0;
    const { count, afterCommit } = await sql.transaction(() => deliveryGaps.publish(log, nowMs));
    afterCommit();
    return count;
  }

  return {
    async prune(bounds: RetentionBounds): Promise<EventLogPruneReport & { readonly published: number }> {
      const nowMs = clock.now();
      const recordedGaps: DeliveryGap[] = [];
      let removedCount = 0;
      const { agedPosition: aged, replayedPosition: replayed } = await sql.transaction(() => recordAgeMark(bounds));
      const ageSelections: readonly RemovableEventSelection[] = [
        { condition: IS_SETTLED_SQL, through: replayed, reason: null },
        { condition: `position > ${SLOWEST_SINK_CURSOR_SQL}`, through: aged, reason: "age" },
      ];
      for (const selection of ageSelections) removedCount += await removeEvents(selection, bounds, nowMs, recordedGaps);
      const [counter] = await query<{ readonly bytes: number }>(`select bytes from ${counters} where ${isCounterSql}`);
      if (counter !== undefined && counter.bytes > bounds.maxBytes) {
        const fullLogSelection = { through: Number.MAX_SAFE_INTEGER, keepBytes: bounds.maxBytes * PRUNED_LOG_SHARE };
        for (const reason of [null, "size"] as const) {
          for (const selectsTelemetry of [true, false]) {
            const condition = `telemetry = ${selectsTelemetry}${reason === null ? ` and ${IS_SETTLED_SQL}` : ""}`;
            removedCount += await removeEvents({ ...fullLogSelection, condition, reason }, bounds, nowMs, recordedGaps);
          }
        }
      }
      recordedGaps.push(
        ...(await deliveryGaps.dropOldDeadLetters(Math.floor(bounds.maxBytes * DEAD_LETTER_LOG_SHARE), nowMs)),
      );
      return { removed: removedCount, gaps: mergeGaps(recordedGaps), published: await publishUnpublishedGaps() };
    },
  };
}

function mergeGaps(gaps: readonly DeliveryGap[]): readonly DeliveryGap[] {
  const gapsByKey = new Map<string, DeliveryGap>();
  for (const gap of gaps) {
    const key = `${gap.reason} ${gap.sink}`;
    const earlierGap = gapsByKey.get(key);
    const mergedGap = earlierGap && {
      ...earlierGap,
      firstTime: earlierGap.firstTime < gap.firstTime ? earlierGap.firstTime : gap.firstTime,
      lastTime: earlierGap.lastTime > gap.lastTime ? earlierGap.lastTime : gap.lastTime,
      count: earlierGap.count + gap.count,
    };
    gapsByKey.set(key, mergedGap ?? gap);
  }
  return [...gapsByKey.values()];
}

/** Selects unpublished gaps, unless a gap of the same sink and reason was published in the last hour. */
const SELECT_UNPUBLISHED_GAPS_SQL = `select id, sink, reason, first_time as "firstTime", last_time as "lastTime", count
  from gap where source = $1 and told_ms is null and not exists
  (select 1 from gap as told where told.source = $1 and told.sink = gap.sink and told.reason = gap.reason
   and told.told_ms > $2 and told.told_ms <= $3)`;
const publishedGapWindow = (nowMs: number) => [nowMs - GAP_EVENT_INTERVAL_MS, nowMs] as const;

function createDeliveryGapStore(sql: SqlDriver, sinks: SinkCursors) {
  const { dialect, query } = sql;

  /** Adds lost events to a sink's gap with the same reason, if no event has reported that gap yet. */
  function* recordGaps(gaps: readonly DeliveryGap[], nowMs: number): SqlSteps<void> {
    const mergeGapSql = dialect.update(
      "gap",
      { first_time: "least(first_time, $4)", last_time: "greatest(last_time, $5)", count: "count + $6::bigint" },
      "sink = $2 and reason = $3 and told_ms is null",
    );
    for (const { sink, reason, firstTime, lastTime, count } of gaps) {
      yield [sinks.addDroppedEvents(sink, count)];
      const mergedGapRows = yield* runSql(`${mergeGapSql} returning 1`, sink, reason, firstTime, lastTime, count);
      if (mergedGapRows.length > 0) continue;
      const gapColumnValues = {
        ...{ sink: "$2::text", reason: "$3::text", first_time: "$4::text", last_time: "$5::text" },
        ...{ count: "$6::bigint", at_ms: "$7::bigint", told_ms: "null::bigint" },
      };
      yield* runSql(dialect.insert("gap", gapColumnValues), sink, reason, firstTime, lastTime, count, nowMs);
    }
  }

  return {
    record: recordGaps,
    *publish(log: RetainedLog, nowMs: number): SqlSteps<{ readonly count: number; readonly afterCommit: () => void }> {
      const dueGaps = yield* runSql<DeliveryGap & { readonly id: number }>(
        SELECT_UNPUBLISHED_GAPS_SQL,
        ...publishedGapWindow(nowMs),
      );
      const events = dueGaps.map(({ sink, reason, firstTime, lastTime, count }) =>
        makeEvent({
          type: "delivery-gap",
          source: "/plenum",
          subject: `sink/${sink}`,
          time: isoUtc(nowMs),
          facts: [reason, firstTime, lastTime, count, nowMs],
          data: { sink, reason, firstTime, lastTime, count },
        }),
      );
      const afterCommit = yield* log.appendWorkerEvents(events, nowMs);
      const ids = dueGaps.map(({ id }) => id);
      yield* runSql(dialect.update("gap", { told_ms: "$2::bigint" }, dialect.isIn("id", "$3::bigint[]")), nowMs, ids);
      return { count: dueGaps.length, afterCommit };
    },
    /** Removes the oldest dead letters beyond a number of bytes; returns the delivery gaps of their sinks. */
    async dropOldDeadLetters(maxBytes: number, nowMs: number): Promise<readonly DeliveryGap[]> {
      const deadLetterBytesSql = "(select coalesce(sum(octet_length(body)), 0) from dead_letter where source = $1)";
      if ((await query(`select 1 where ${deadLetterBytesSql} > $2`, maxBytes)).length === 0) return [];
      return sql.transaction(function* () {
        const oldDeadLetters = yield* runSql<
          StoredEventText & { id: number; sink: string; at_ms: number; sound: number | boolean }
        >(
          `select * from (
             select id, sink, position, at_ms, body, ${dialect.isIntactSql("dead_letter")} as sound,
               sum(octet_length(body)) over (order by id) - octet_length(body) as before
             from dead_letter where source = $1 order by id limit ${MAX_REMOVED_DEAD_LETTERS}
           ) as oldest where before < ${deadLetterBytesSql} - $2 order by id`,
          maxBytes,
        );
        const ids = oldDeadLetters.map(({ id }) => id);
        yield* runSql(`delete from dead_letter where source = $1 and ${dialect.isIn("id", "$2::bigint[]")}`, ids);
        const removedPositions = oldDeadLetters.map(({ position }) => position);
        yield [removeOrphanedMarks(sql, removedPositions)];
        const deadLetterGaps = oldDeadLetters.map(({ sink, body, at_ms, sound }) => {
          const time = sound ? parseEvent(body).time : isoUtc(at_ms);
          return { sink, reason: "size", firstTime: time, lastTime: time, count: 1 } as const;
        });
        const mergedDeadLetterGaps = mergeGaps(deadLetterGaps);
        yield* recordGaps(mergedDeadLetterGaps, nowMs);
        return mergedDeadLetterGaps;
      });
    },
  };
}
