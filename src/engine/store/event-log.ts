import { encodeEvent } from "../../core/codec/stored-event.ts";
import { type Event, type EventKind, isTelemetry, isUrgentKind } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { beginSequenceEpoch, type DamagedRowQuarantine } from "./damage-quarantine.ts";
import {
  IS_URGENT_EVENT_SQL,
  jsonFieldText,
  lastPositionWithinBytes,
  MAX_BATCH_BYTES,
  MAX_CLOCK_LEAD_MS,
  MAX_RECENT_EVENT_BYTES,
  offeredBytes,
  offeredBytesSql,
  type StoredEventText,
  storedEventBytes,
  subjectSearchTexts,
  toLoggedEvent,
} from "./event-log-rows.ts";
import type { RemovedEvent } from "./event-retention.ts";
import type { EventLogTail } from "./newest-events-cache.ts";
import type { SqlSteps } from "./sql-driver.ts";
import { type Database, eventChecksum, isDamagedSql, rowChecksum, StateDamaged } from "./sqlite.ts";
import type { EventQuery, LoggedEvent, RecentEventBounds } from "./store.ts";

interface ChecksummedEventRow extends StoredEventText {
  readonly id: string;
  readonly kind: string;
  readonly telemetry: number;
  readonly bytes: number;
  readonly checksum: number | null;
}

const EVENTS_PER_SEARCH_STEP = 5_000;
const EVENT_COLUMN_NAMES = "position, id, kind, telemetry, committed_ms, bytes, body, checksum";

function isIntactEventRow({ id, kind, telemetry, committed_ms, bytes, body, checksum }: ChecksummedEventRow): boolean {
  return rowChecksum(id, kind, telemetry, committed_ms, bytes, body) === checksum;
}

export const DAMAGED_EVENT_REASON = "damaged: it was not what had been committed when it was read from the disk";

/** Append-only log of events; changes need a transaction. `epochBegun` is called if damage makes sinks start epochs. */
export function createEventLog(
  database: Database,
  clock: Pick<Clock, "now">,
  quarantine: DamagedRowQuarantine,
  { tail, epochBegun: onEpochBegin }: { readonly tail?: EventLogTail; readonly epochBegun?: () => void } = {},
) {
  /** Turns damaged events into dead letters of every sink that has not settled them, whatever the sink's filter. */
  function quarantineDamagedEvents(whereSql: string, ...values: readonly number[]): number {
    const nowMs = clock.now();
    tail?.clear();
    onEpochBegin?.();
    return database.transaction(() => {
      beginSequenceEpoch(
        database,
        `sink.ended is null and exists (select 1 from event
           where (${whereSql}) and ${isDamagedSql("event")} and event.position > sink.position)`,
        ...values,
      );
      database
        .prepare(
          `insert into dead_letter (sink, position, reason, at_ms, committed_ms, body)
           select sink.name, event.position, ?, ?, ?, coalesce(cast(event.body as text), '') from event join sink on sink.ended is null
             and (event.position > sink.position or exists (select 1 from again
               where again.sink = sink.name and again.position = event.position))
           where (${whereSql}) and ${isDamagedSql("event")} on conflict do nothing`,
        )
        .run(DAMAGED_EVENT_REASON, nowMs, nowMs, ...values);
      const removedCount = quarantine.quarantineRows("event", whereSql, ...values);
      if (removedCount > 0) database.exec(RECOUNT_EVENT_LOG_SQL);
      return removedCount;
    });
  }

  /** Position of the last urgent event; infinite while unknown. Sinks past it need no query for urgent events. */
  let lastUrgentPosition = Number.POSITIVE_INFINITY;

  function readEventsBetween(after: number, through: number, extraConditionSql = "true") {
    const positionRangeSql = `event.position > ? and event.position <= ? and ${extraConditionSql}`;
    const selectRows = () =>
      database
        .prepare(`select ${EVENT_COLUMN_NAMES} from event where ${positionRangeSql} order by position`)
        .all<ChecksummedEventRow>(after, through);
    try {
      const eventRows = selectRows();
      if (eventRows.every(isIntactEventRow)) return eventRows;
    } catch (error) {
      // A damaged number can exceed the range of JavaScript.
      if (!(error instanceof Error && "code" in error && error.code === "ERR_OUT_OF_RANGE")) throw error;
    }
    if (database.readOnly) return selectRows().filter(isIntactEventRow);
    if (quarantineDamagedEvents(positionRangeSql, after, through) > 0) return selectRows().filter(isIntactEventRow);
    return readEventsOrThrow(after, () => {
      const eventRows = selectRows();
      return eventRows.every(isIntactEventRow) ? eventRows : null;
    });
  }

  /** Throws if an index finds rows that cannot be read: then pages of the file are damaged, not single rows. */
  function readEventsOrThrow<T>(afterPosition: number, read: () => T | null): T {
    return database.transaction(() => {
      const foundEvents = read();
      if (foundEvents !== null) return foundEvents;
      throw new StateDamaged(`${database.path} is damaged (events behind ${afterPosition} cannot be read or removed).`);
    });
  }

  function eventsAfter(position: number, limit: number, where = "true", removedPosition = 0): readonly LoggedEvent[] {
    const readEventSizes = () =>
      database
        .prepare(
          `select position, ${offeredBytesSql("bytes")} as bytes from event where position > ? and ${where}
           order by position limit ?`,
        )
        .all<{ readonly position: number; readonly bytes: number }>(position, limit);
    const eventSizes =
      removedPosition === 0
        ? readEventSizes()
        : readEventsOrThrow(position, () => {
            const remainingEventSizes = readEventSizes();
            return remainingEventSizes[0]?.position === removedPosition ? null : remainingEventSizes;
          });
    const lastPosition = lastPositionWithinBytes(eventSizes, MAX_BATCH_BYTES);
    if (lastPosition === undefined) return [];
    const events = readEventsBetween(position, lastPosition, where).map(toLoggedEvent);
    // All events of this range were damaged and removed: read the next ones.
    return events.length > 0 || database.readOnly
      ? events
      : eventsAfter(position, limit, where, eventSizes[0]?.position);
  }

  const eventLog = {
    quarantine: quarantineDamagedEvents,
    noteRemovedEvents: (events: readonly RemovedEvent[]): void => tail?.noteRemoved(events.at(-1)?.position ?? 0),
    *appendWorkerEvents(events: readonly Event[], clockMs: number): SqlSteps<() => void> {
      eventLog.appendEvents(events, clockMs);
      return () => undefined;
    },
    quarantineMarkedEvent(sink: string, position: number): boolean {
      if (database.readOnly) return false;
      quarantineDamagedEvents("event.position = ?", position);
      database.transaction(() => {
        const deadLetterRowSql = "sink = ? and position = ?";
        quarantine.copyToQuarantine("dead_letter", `${deadLetterRowSql} and checksum is not null`, sink, position);
        database
          .prepare(`update dead_letter set resending = 0, checksum = null where ${deadLetterRowSql}`)
          .run(sink, position);
        database.prepare(`delete from again where ${deadLetterRowSql}`).run(sink, position);
      });
      return true;
    },
    forgetCachedEvents(): void {
      tail?.clear();
      lastUrgentPosition = Number.POSITIVE_INFINITY;
    },
    dropCachedThrough: (position: number): void => tail?.dropThrough(position),
    readRange: (afterPosition: number, throughPosition: number) => readEventsBetween(afterPosition, throughPosition),
    /** Corrects impossible counters at a start. `event-log-repair` later compares the counters with every row. */
    repairCounters(): void {
      const usedPageCount = database.number("pragma page_count") - database.number("pragma freelist_count");
      const bytes = eventLog.bytes();
      const areCountersIntegers = database.number(
        "select typeof(bytes) = 'integer' and typeof(written) = 'integer' from log_size",
      );
      if (areCountersIntegers === 0 || bytes < 0 || bytes > usedPageCount * database.number("pragma page_size"))
        database.exec(RECOUNT_EVENT_LOG_SQL);
      else database.exec(RAISE_WRITTEN_BYTES_SQL);
    },
    /** Appends events within a transaction. Returns the ids that were in the log already. */
    appendEvents(events: readonly Event[], clockMs: number): readonly string[] {
      if (events.length === 0) return [];
      // Commit times ascend even if the clock is set back.
      const laterEventTime = database
        .prepare(
          `select committed_ms from event where position = (select max(position) from event)
             and committed_ms > ? and committed_ms <= ?`,
        )
        .get<{ readonly committed_ms: number }>(clockMs, clockMs + MAX_CLOCK_LEAD_MS);
      const nowMs = laterEventTime === undefined ? clockMs : laterEventTime.committed_ms + 1;
      const insertEvent = database.prepare(
        `insert into event (id, kind, telemetry, committed_ms, bytes, body, checksum, written)
         values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing`,
      );
      const committedAt = isoUtc(nowMs);
      const writtenBytesBefore = database.number("select written from log_size");
      let written = writtenBytesBefore;
      const repeatedEventIds: string[] = [];
      for (const event of events) {
        const body = encodeEvent(event);
        const bytes = storedEventBytes(event, body);
        const { id, type } = event;
        const telemetryFlag = isTelemetry(type) ? 1 : 0;
        const checksum = eventChecksum(id, type, telemetryFlag, nowMs, bytes, body);
        const position = insertEvent.insert(id, type, telemetryFlag, nowMs, bytes, body, checksum, written + bytes);
        if (position === null) {
          repeatedEventIds.push(event.id);
          continue;
        }
        written += bytes;
        if (isUrgentKind(type)) lastUrgentPosition = Math.max(lastUrgentPosition, position);
        // Cache a value event itself: parsing its stored text would give an equal event.
        const row = { position, committedAt, body, characters: offeredBytes(type, body.length) };
        tail?.add(type === "tag-value" ? { ...row, event } : row);
      }
      const addedBytes = written - writtenBytesBefore;
      database.prepare("update log_size set bytes = bytes + ?, written = written + ?").run(addedBytes, addedBytes);
      return repeatedEventIds;
    },
    bytes: (): number => database.number("select bytes from log_size"),
    /** The position of the last event that was ever committed; 0 before the first. */
    end: (): number => database.number("select coalesce(max(seq), 0) from sqlite_sequence where name = 'event'"),
    after(position: number, limit: number): readonly LoggedEvent[] {
      return tail?.eventsAfter(position, limit, MAX_BATCH_BYTES) ?? eventsAfter(position, limit);
    },
    urgentAfter(position: number, limit: number): readonly LoggedEvent[] {
      if (position >= lastUrgentPosition) return [];
      const events = eventsAfter(position, limit, IS_URGENT_EVENT_SQL);
      if (events.length === 0) lastUrgentPosition = position;
      return events;
    },
    latest(limit: number, kinds: readonly EventKind[] | undefined, eventQuery: EventQuery | undefined) {
      // Events other than telemetry are rare; an index finds them without reading the telemetry between them.
      const isWithoutTelemetry = kinds?.every((kind) => !isTelemetry(kind)) ?? false;
      const searchTexts =
        eventQuery === undefined
          ? []
          : [eventQuery.subjects.flatMap(subjectSearchTexts), [jsonFieldText("source", eventQuery.source)]];
      const conditions = [
        ...(isWithoutTelemetry ? ["telemetry = 0"] : []),
        ...(kinds === undefined ? [] : [`kind ${inListSql(kinds)}`]),
        // An index on the subject would cost every commit a tenth; looking through a full log takes about a second.
        ...searchTexts.map((texts) => `(${texts.map(() => "instr(body, ?) > 0").join(" or ") || "false"})`),
      ];
      const isInSteps = eventQuery !== undefined;
      return searchNewestFirst(conditions, [...(kinds ?? []), ...searchTexts.flat()], { limit, isInSteps });
    },
    recent(
      { source, subjects }: EventQuery,
      kinds: readonly EventKind[],
      { sinceMs, maxSearched, limit }: RecentEventBounds,
    ): Promise<readonly LoggedEvent[]> {
      const conditions = [
        `committed_ms >= ? and kind ${inListSql(kinds)} and ${offeredBytesSql("bytes")} <= ${MAX_RECENT_EVENT_BYTES}`,
        // Reading JSON fields is 20 times as fast as searching texts. A damaged row may hold invalid JSON.
        `case when json_valid(body) then body ->> '$.source' = ? and body ->> '$.subject' ${inListSql(subjects)} end`,
      ];
      return searchNewestFirst(conditions, [sinceMs, ...kinds, source, ...subjects], { limit, maxSearched });
    },
  };

  /** Searches one part of the log at a time and then yields, because 75,000 events take a tenth of a second. */
  async function searchNewestFirst(
    conditions: readonly string[],
    values: readonly (string | number)[],
    options: { readonly limit: number; readonly maxSearched?: number; readonly isInSteps?: boolean },
  ): Promise<readonly LoggedEvent[]> {
    const { limit, maxSearched = Number.POSITIVE_INFINITY, isInSteps = true } = options;
    const statement = database.prepare(
      `select ${EVENT_COLUMN_NAMES} from event
       where ${["position > ? and position <= ?", ...conditions].join(" and ")} order by position desc limit ?`,
    );
    const nextStepStatement = database.prepare(
      "select position from event where position <= ? order by position desc limit 1 offset ?",
    );
    const [foundEvents, end]: [LoggedEvent[], number] = [[], eventLog.end()];
    for (let lastPosition: number | undefined = end; lastPosition !== undefined && foundEvents.length < limit; ) {
      if (lastPosition < end) await yieldToEventLoop();
      const nextPosition: number | undefined = isInSteps
        ? nextStepStatement.get<{ position: number }>(lastPosition, EVENTS_PER_SEARCH_STEP)?.position
        : undefined;
      const minPosition = Math.max(nextPosition ?? Number.MIN_SAFE_INTEGER, end - maxSearched);
      const rows = statement.all<ChecksummedEventRow>(minPosition, lastPosition, ...values, limit - foundEvents.length);
      foundEvents.push(...rows.filter(isIntactEventRow).map(toLoggedEvent));
      lastPosition = minPosition === nextPosition ? nextPosition : undefined;
    }
    return foundEvents;
  }

  return eventLog;
}

const inListSql = (values: readonly unknown[]): string => `in (${values.map(() => "?").join(", ")})`;

const RECOUNT_EVENT_LOG_SQL = `update log_size set bytes = counted.bytes,
    written = max(iif(typeof(log_size.written) = 'integer', log_size.written, 0), counted.written)
  from (select coalesce(sum(bytes), 0) as bytes,
    coalesce(max(written) filter (where typeof(written) = 'integer'), 0) as written from event) as counted`;

const RAISE_WRITTEN_BYTES_SQL = `update log_size set written = newest.written
  from (select written from event order by position desc limit 1) as newest
  where log_size.written < newest.written and typeof(newest.written) = 'integer'`;

export type EventLog = ReturnType<typeof createEventLog>;
