import type { EventNumber } from "../../core/model/delivery-sequence.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { createEventRetention, type RetainedLog } from "./event-retention.ts";
import { createDeadLetters, createRedeliveries } from "./redeliveries.ts";
import { createSinkCursors, type SinkCursorRepair } from "./sink-cursors.ts";
import { computeSinkLags } from "./sink-lag.ts";
import type { Awaitable, SqlDriver } from "./sql-driver.ts";
import type { EventLogPressure, LoggedEvent, OfferedEvents, Outbox } from "./store.ts";

/** Largest number of events that a sink gets again after a crash. */
const MAX_REPEATED_EVENTS = 100;

interface UnsavedSinkCursor {
  readonly through: number;
  readonly counted: EventNumber | undefined;
}

export interface OutboxEventLog extends RetainedLog {
  end(): Awaitable<number>;
  after(position: number, limit: number): Awaitable<readonly LoggedEvent[]>;
  urgentAfter(position: number, limit: number): Awaitable<readonly LoggedEvent[]>;
  /** Drops cached events that all sinks have read. */
  dropCachedThrough(position: number): void;
  latest(...search: Parameters<Outbox["latest"]>): Awaitable<readonly LoggedEvent[]>;
  recent(...search: Parameters<Outbox["recent"]>): Awaitable<readonly LoggedEvent[]>;
}

/**
 *   log:     … 4 5 6 7 8 9 10 11 12
 *                  ▲           ▲
 *            cursor of b   cursor of a        settle(a, through 12) moves a; nothing else does
 *
 * `next` returns events after the cursor, or events marked to be sent again; `settle` moves the cursor or unmarks them.
 * A deferred cursor (`mayDefer`) moves in memory at once, and in the database with the next transaction.
 */
export function createOutbox(options: {
  readonly sql: SqlDriver;
  readonly log: OutboxEventLog;
  readonly clock: Pick<Clock, "now">;
  readonly commitWakeup: Wakeup;
  /** True if cursors, and the fact that a sink has no events to send again, may be cached until `forget`. */
  readonly isCached: boolean;
  /** Checks for changes by other processes and then calls `forget`. */
  readonly lookForChanges?: () => void;
  readonly damage?: SinkCursorRepair & { readonly quarantineMarkedEvent: (sink: string, position: number) => boolean };
}): Outbox & { forget(): void } {
  const { sql, log, clock, commitWakeup, damage } = options;
  const { counters } = sql.dialect;
  const sinkCursors = createSinkCursors(sql, options.isCached, damage);
  const deadLetters = createDeadLetters(sql);
  const redeliveries = createRedeliveries(sql, options.isCached, damage?.quarantineMarkedEvent);
  const retention = createEventRetention(sql, log, sinkCursors, clock);
  const unsavedCursors = new Map<string, UnsavedSinkCursor>();
  const lastReadPositionBySink = new Map<string, number>();
  let cachedPressure: { readonly changes: number; readonly pressure: EventLogPressure } | null = null;

  function forgetCachedState(): void {
    sinkCursors.forget();
    redeliveries.forget();
  }

  async function readSinkCursors(sink: string) {
    const stored = await sinkCursors.findCursor(sink);
    const unsavedCursor = unsavedCursors.get(sink);
    const position = stored === undefined ? await log.end() : Math.max(stored.position, unsavedCursor?.through ?? 0);
    return { position, urgent: stored?.urgent ?? 0, durable: stored?.position ?? 0 };
  }

  /** Reads the sequence number at a sink's cursor; ignores unsaved numbers of an old epoch. */
  async function readSequenceNumber(sink: string): Promise<EventNumber | undefined> {
    const stored = (await sinkCursors.findCursor(sink))?.counted;
    const unsaved = unsavedCursors.get(sink)?.counted;
    return stored !== undefined && unsaved?.epoch === stored.epoch && unsaved.number > stored.number ? unsaved : stored;
  }

  function moveCursorDeferred(sink: string, throughPosition: number, counted: EventNumber | undefined): void {
    const previousCursor = unsavedCursors.get(sink) ?? { through: 0, counted: undefined };
    const movesForward = previousCursor.through <= throughPosition;
    let movedCursor: UnsavedSinkCursor = {
      through: Math.max(previousCursor.through, throughPosition),
      counted: movesForward ? (counted ?? previousCursor.counted) : (previousCursor.counted ?? counted),
    };
    unsavedCursors.set(sink, movedCursor);
    const buildCursorMove = () => {
      movedCursor = unsavedCursors.get(sink) ?? movedCursor;
      return sinkCursors.moveCursor(sink, movedCursor.through, movedCursor.counted, "position");
    };
    const confirmCursorMove = () => {
      sinkCursors.applyMove(sink, movedCursor.through, movedCursor.counted, "position");
      if (movedCursor.through >= (unsavedCursors.get(sink)?.through ?? 0)) unsavedCursors.delete(sink);
    };
    // On failure the cursor in memory stays ahead; the next settlement stores it at once and reports the failure.
    sql.defer(`cursor ${sink}`, buildCursorMove).then(confirmCursorMove, () => undefined);
  }

  async function offerEvents(sink: string, events: readonly LoggedEvent[]): Promise<OfferedEvents> {
    const lastEvent = events.at(-1);
    if (lastEvent === undefined) return { isRepeat: false, events, counted: undefined };
    if (unsavedCursors.has(sink) && lastEvent.position - (await readSinkCursors(sink)).durable > MAX_REPEATED_EVENTS)
      await sql.flush();
    // Read the sequence number after the events, because a damaged event found by that read starts a new epoch.
    return { isRepeat: false, events, counted: await readSequenceNumber(sink) };
  }

  async function readLogPressure(): Promise<EventLogPressure> {
    const [row] = await sql.query<{ bytes: number; pendingBytes: number; oldestMs: number | null }>(
      `select bytes,
         coalesce((select ${counters.table}.written - event.written + event.bytes from event
           where event.source = $1 and event.position >
             (select min(sink.position) from sink where sink.source = $1 and ended is null)
           order by event.position limit 1), 0) as "pendingBytes",
         (select committed_ms from event where event.source = $1 and telemetry = true order by position limit 1)
           as "oldestMs"
       from ${counters.table} where ${counters.where}`,
    );
    const { bytes = 0, pendingBytes = 0, oldestMs = null } = row ?? {};
    return { bytes, pendingBytes, oldestTelemetry: oldestMs === null ? null : isoUtc(oldestMs) };
  }

  return {
    forget: forgetCachedState,
    async register(sink, from) {
      forgetCachedState();
      if ((await sinkCursors.findCursor(sink)) === undefined) {
        const startsAtLogEnd = from === "now" && damage?.isCursorLost() !== true;
        await sql.commit([sinkCursors.register(sink, startsAtLogEnd ? await log.end() : 0)]);
        sinkCursors.forget();
      }
      damage?.claimCursor(sink);
      const { position = 0, urgent = 0, ended = null } = (await sinkCursors.findCursor(sink)) ?? {};
      return { sink, position, urgent, ended };
    },
    async next(sink, limit, afterPosition = 0) {
      options.lookForChanges?.();
      const markedEvents = await redeliveries.next(sink, limit);
      if (markedEvents.length > 0) return { isRepeat: true, events: markedEvents, counted: undefined };
      const currentCursors = await readSinkCursors(sink);
      const position = Math.max(currentCursors.position, afterPosition);
      if (lastReadPositionBySink.get(sink) !== position) {
        lastReadPositionBySink.set(sink, position);
        log.dropCachedThrough(Math.min(...lastReadPositionBySink.values()));
      }
      return { ...(await offerEvents(sink, await log.after(position, limit))), urgentThrough: currentCursors.urgent };
    },
    async nextUrgent(sink, limit, { after, seenThrough } = { after: 0, seenThrough: 0 }) {
      options.lookForChanges?.();
      const markedEvents = await redeliveries.nextUrgent(sink, limit);
      if (markedEvents.length > 0) return { isRepeat: true, events: markedEvents, counted: undefined };
      const currentCursors = await readSinkCursors(sink);
      const position = Math.max(currentCursors.position, after);
      const events = await log.urgentAfter(Math.max(position, currentCursors.urgent, seenThrough), limit);
      // Urgent events directly after the cursor move the cursor when they are settled, as other events do.
      if ((events.at(-1)?.position ?? 0) === position + events.length) return offerEvents(sink, events);
      return { isRepeat: false, urgent: true, events, counted: await readSequenceNumber(sink) };
    },
    async settle(sink, { isRepeat, urgent = false, through, rejected, counted, documents = [], mayDefer = false }) {
      const cursorColumn = urgent ? "urgent" : "position";
      const movesOnlyCursor = !isRepeat && !urgent && rejected.length === 0 && documents.length === 0;
      // An operator's replay may have marked older events to be sent again while the sink received this batch.
      options.lookForChanges?.();
      const currentCursors = await readSinkCursors(sink);
      const isWithinRepeatLimit = through - currentCursors.durable <= MAX_REPEATED_EVENTS;
      if (mayDefer && movesOnlyCursor && isWithinRepeatLimit && redeliveries.hasNoMarks(sink) && !sql.isBehind()) {
        moveCursorDeferred(sink, through, counted);
        return;
      }
      const settledPositions = isRepeat ? redeliveries.offeredPositions(sink, through) : [];
      const rejectedPositions = new Set(rejected.map(({ position }) => position));
      const acceptedPositions = settledPositions.filter((position) => !rejectedPositions.has(position));
      const previousPosition = Math.max(currentCursors.position, urgent ? currentCursors.urgent : 0);
      const nowMs = clock.now();
      const statements = isRepeat
        ? [redeliveries.settle(sink, settledPositions), deadLetters.removeDeadLetters(sink, acceptedPositions)]
        : [
            sinkCursors.moveCursor(sink, through, counted, cursorColumn),
            ...redeliveries.markAfterReplay(sink, previousPosition, through, urgent),
          ];
      await sql.commit([...statements, ...rejected.flatMap((each) => deadLetters.add(sink, each, nowMs))], documents);
      if (isRepeat) redeliveries.noteSettled(sink, through);
      else sinkCursors.applyMove(sink, through, counted, cursorColumn);
    },
    async setEnded(sink, reason) {
      // Start a new epoch for a sink that continues, because events may have left the log while the sink was ended.
      const extraStatements = reason === null ? [sinkCursors.beginEpoch(sink)] : redeliveries.cancelRedeliveries(sink);
      await sql.commit([sinkCursors.setEnded(sink, reason), ...extraStatements]);
      if (reason !== null) damage?.claimCursor(sink);
      forgetCachedState();
      commitWakeup.wakeUp();
    },
    deadLetters: (sink, limit = 100) => deadLetters.listDeadLetters(sink, limit),
    async resendDeadLetters(sink, ids) {
      const markedEventCount = await deadLetters.resendDeadLetters(sink, ids);
      forgetCachedState();
      commitWakeup.wakeUp();
      return markedEventCount;
    },
    discardDeadLetters: async (sink, ids) => deadLetters.discardDeadLetters(sink, ids),
    async replay(sink, since, kinds) {
      const sinceMs = Date.parse(since);
      if (Number.isNaN(sinceMs)) throw new RangeError(`${since} is not a time; write it as 2026-11-02T06:00:00Z.`);
      const markedEventCount = await redeliveries.mark(sink, sinceMs, kinds, await log.end());
      commitWakeup.wakeUp();
      return markedEventCount;
    },
    async replayBetween(sink, afterPosition, throughPosition, urgentAfter = afterPosition) {
      const lastPosition = Math.min(throughPosition, await log.end());
      const markedEventCount = await redeliveries.markEventsBetween(sink, afterPosition, lastPosition, urgentAfter);
      if (markedEventCount > 0) commitWakeup.wakeUp();
      return markedEventCount;
    },
    lag: (lagFilters) => computeSinkLags(sql, lagFilters, unsavedCursors),
    async pressure() {
      const changeCount = await sql.changes();
      if (cachedPressure?.changes !== changeCount)
        cachedPressure = { changes: changeCount, pressure: await readLogPressure() };
      return cachedPressure.pressure;
    },
    async prune(bounds) {
      const { published, ...pruneReport } = await retention.prune(bounds);
      if (published > 0) commitWakeup.wakeUp();
      return pruneReport;
    },
    latest: async (...search) => log.latest(...search),
    after: async (position, limit) => log.after(position, limit),
    recent: async (...search) => log.recent(...search),
    waitForChange: (signal) => commitWakeup.nextWakeup(signal),
  };
}
