import { encodeEvent } from "../../core/codec/stored-event.ts";
import { type Event, type EventKind, isTelemetry, isUrgentKind } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { beginEpoch, type DamageQuarantine } from "./damage-quarantine.ts";
import type { LogTail } from "./event-log-tail.ts";
import {
  type EventText,
  IS_URGENT,
  jsonFieldText,
  lastWithinBytes,
  MAX_CLOCK_LEAD_MS,
  MAX_OFFER_BYTES,
  MAX_RECENT_EVENT_BYTES,
  offeredSize,
  offeredSql,
  storedBytes,
  subjectSearchTexts,
  toLoggedEvent,
} from "./outbox-rules.ts";
import type { RemovedEvent } from "./retention.ts";
import type { SqlSteps } from "./sql-driver.ts";
import { type Database, eventChecksum, isDamagedSql, rowChecksum, StateDamaged } from "./sqlite.ts";
import type { EventsAbout, LoggedEvent, RecentBounds } from "./store.ts";

interface EventRow extends EventText {
  readonly id: string;
  readonly kind: string;
  readonly telemetry: number;
  readonly bytes: number;
  readonly checksum: number | null;
}

const EVENT_COLUMNS = "position, id, kind, telemetry, committed_ms, bytes, body, checksum";

function isSound({ id, kind, telemetry, committed_ms, bytes, body, checksum }: EventRow): boolean {
  return rowChecksum(id, kind, telemetry, committed_ms, bytes, body) === checksum;
}

export const DAMAGED_EVENT_REASON = "damaged: it was not what had been committed when it was read from the disk";

/** The append-only log of events. Call changes inside a transaction. `epochBegun`: sinks may have a new epoch. */
export function createEventLog(
  database: Database,
  clock: Pick<Clock, "now">,
  damage: DamageQuarantine,
  { tail, epochBegun }: { readonly tail?: LogTail; readonly epochBegun?: () => void } = {},
) {
  /** Turns damaged events into dead letters of every sink that has not settled them, whatever the sink's filter. */
  function quarantine(where: string, ...values: readonly number[]): number {
    const nowMs = clock.now();
    tail?.clear();
    epochBegun?.();
    return database.transaction(() => {
      beginEpoch(
        database,
        `sink.ended is null and exists (select 1 from event
           where (${where}) and ${isDamagedSql("event")} and event.position > sink.position)`,
        ...values,
      );
      database
        .prepare(
          `insert into dead_letter (sink, position, reason, at_ms, committed_ms, body)
           select sink.name, event.position, ?, ?, ?, coalesce(cast(event.body as text), '') from event join sink on sink.ended is null
             and (event.position > sink.position or exists (select 1 from again
               where again.sink = sink.name and again.position = event.position))
           where (${where}) and ${isDamagedSql("event")} on conflict do nothing`,
        )
        .run(DAMAGED_EVENT_REASON, nowMs, nowMs, ...values);
      const removed = damage.quarantineDocuments("event", where, ...values);
      if (removed > 0) database.exec(RECOUNT_LOG_SQL);
      return removed;
    });
  }

  /** Position of the last urgent event, as far as is known: every sink queries urgent events before each batch. */
  let lastUrgent = Number.POSITIVE_INFINITY;

  function readBetween(after: number, through: number, which = "true"): readonly EventRow[] {
    const rangeSql = `event.position > ? and event.position <= ? and ${which}`;
    const rows = () =>
      database
        .prepare(`select ${EVENT_COLUMNS} from event where ${rangeSql} order by position`)
        .all<EventRow>(after, through);
    try {
      const foundRows = rows();
      if (foundRows.every(isSound)) return foundRows;
    } catch (error) {
      // A damaged number can exceed the range of JavaScript.
      if (!isIntegerOutOfRange(error)) throw error;
    }
    if (database.readOnly) return rows().filter(isSound);
    if (quarantine(rangeSql, after, through) > 0) return rows().filter(isSound);
    return readEventsOrThrow(after, () => {
      const foundRows = rows();
      return foundRows.every(isSound) ? foundRows : null;
    });
  }

  /** Throws when rows that an index finds cannot be read: pages are damaged, and no row is. */
  function readEventsOrThrow<T>(after: number, read: () => T | null): T {
    return database.transaction(() => {
      const readResult = read();
      if (readResult !== null) return readResult;
      throw new StateDamaged(`${database.path} is damaged (events behind ${after} cannot be read or removed).`);
    });
  }

  /** `removedPosition` is the position of an event that was just removed. */
  function readAfter(position: number, limit: number, which = "true", removedPosition = 0): readonly LoggedEvent[] {
    const readSizes = () =>
      database
        .prepare(
          `select position, ${offeredSql("bytes")} as bytes from event where position > ? and ${which}
           order by position limit ?`,
        )
        .all<{ readonly position: number; readonly bytes: number }>(position, limit);
    const eventSizes =
      removedPosition === 0
        ? readSizes()
        : readEventsOrThrow(position, () => {
            const remainingSizes = readSizes();
            return remainingSizes[0]?.position === removedPosition ? null : remainingSizes;
          });
    const lastPosition = lastWithinBytes(eventSizes, MAX_OFFER_BYTES);
    if (lastPosition === undefined) return [];
    const events = readBetween(position, lastPosition, which).map(toLoggedEvent);
    // All of them were damaged and removed: read the next ones.
    return events.length > 0 || database.readOnly ? events : readAfter(position, limit, which, eventSizes[0]?.position);
  }

  const eventLog = {
    quarantine,
    removed: (events: readonly RemovedEvent[]): void => tail?.noteRemoved(events.at(-1)?.position ?? 0),
    /** Appends within the running transaction, without a statement of its own. */
    *appendWorkerEvents(events: readonly Event[], clockMs: number): SqlSteps<() => void> {
      eventLog.appendEvents(events, clockMs);
      return () => undefined;
    },
    quarantineMarked(sink: string, position: number): boolean {
      if (database.readOnly) return false;
      quarantine("event.position = ?", position);
      database.transaction(() => {
        const rowSql = "sink = ? and position = ?";
        damage.keep("dead_letter", `${rowSql} and checksum is not null`, sink, position);
        database.prepare(`update dead_letter set resending = 0, checksum = null where ${rowSql}`).run(sink, position);
        database.prepare(`delete from again where ${rowSql}`).run(sink, position);
      });
      return true;
    },
    forgetCached(): void {
      tail?.clear();
      lastUrgent = Number.POSITIVE_INFINITY;
    },
    passed: (position: number): void => tail?.dropThrough(position),
    readThrough: (after: number, through: number) => readBetween(after, through),
    /** Corrects impossible counters at a start. `event-log-repair` later compares the counters with every row. */
    repairCounters(): void {
      const pages = database.number("pragma page_count") - database.number("pragma freelist_count");
      const bytes = eventLog.bytes();
      const areNumbers = database.number(
        "select typeof(bytes) = 'integer' and typeof(written) = 'integer' from log_size",
      );
      if (areNumbers === 0 || bytes < 0 || bytes > pages * database.number("pragma page_size"))
        database.exec(RECOUNT_LOG_SQL);
      else database.exec(RAISE_WRITTEN_SQL);
    },
    /** Appends events within a transaction. Returns the ids that were in the log already. */
    appendEvents(events: readonly Event[], clockMs: number): readonly string[] {
      if (events.length === 0) return [];
      // Times of the log ascend although the clock may be set back.
      const laterEvent = database
        .prepare(
          `select committed_ms from event where position = (select max(position) from event)
             and committed_ms > ? and committed_ms <= ?`,
        )
        .get<{ readonly committed_ms: number }>(clockMs, clockMs + MAX_CLOCK_LEAD_MS);
      const nowMs = laterEvent === undefined ? clockMs : laterEvent.committed_ms + 1;
      const insertion = database.prepare(
        `insert into event (id, kind, telemetry, committed_ms, bytes, body, checksum, written)
         values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing`,
      );
      const committedAt = isoUtc(nowMs);
      const writtenBefore = database.number("select written from log_size");
      let written = writtenBefore;
      const repeatedIds: string[] = [];
      for (const event of events) {
        const body = encodeEvent(event);
        const bytes = storedBytes(event, body);
        const { id, type } = event;
        const telemetry = isTelemetry(type) ? 1 : 0;
        const checksum = eventChecksum(id, type, telemetry, nowMs, bytes, body);
        const position = insertion.insert(id, type, telemetry, nowMs, bytes, body, checksum, written + bytes);
        if (position === null) {
          repeatedIds.push(event.id);
          continue;
        }
        written += bytes;
        if (isUrgentKind(type)) lastUrgent = Math.max(lastUrgent, position);
        // Parsing the text of a value again would give an equal event, so the tail takes the event itself.
        const row = { position, committedAt, body, characters: offeredSize(type, body.length) };
        tail?.add(type === "tag-value" ? { ...row, event } : row);
      }
      const added = written - writtenBefore;
      database.prepare("update log_size set bytes = bytes + ?, written = written + ?").run(added, added);
      return repeatedIds;
    },
    bytes: (): number => database.number("select bytes from log_size"),
    /** The position of the last event that was ever committed; 0 before the first. */
    end: (): number => database.number("select coalesce(max(seq), 0) from sqlite_sequence where name = 'event'"),
    after(position: number, limit: number): readonly LoggedEvent[] {
      return tail?.after(position, limit, MAX_OFFER_BYTES) ?? readAfter(position, limit);
    },
    urgentAfter(position: number, limit: number): readonly LoggedEvent[] {
      if (position >= lastUrgent) return [];
      const events = readAfter(position, limit, IS_URGENT);
      if (events.length === 0) lastUrgent = position;
      return events;
    },
    latest(
      limit: number,
      kinds: readonly EventKind[] | undefined,
      about: EventsAbout | undefined,
    ): readonly LoggedEvent[] {
      // Facts are rare among telemetry: the index on the class finds them without reading the values between.
      const isWithoutTelemetry = kinds?.every((kind) => !isTelemetry(kind)) ?? false;
      const textsToFind =
        about === undefined
          ? []
          : [about.subjects.flatMap(subjectSearchTexts), [jsonFieldText("source", about.source)]];
      const conditions = [
        ...(isWithoutTelemetry ? ["telemetry = 0"] : []),
        ...(kinds === undefined ? [] : [`kind in (${kinds.map(() => "?").join(", ")})`]),
        // An index on the subject would cost every commit a tenth; looking through a full log takes about a second.
        ...textsToFind.map((texts) => `(${texts.map(() => "instr(body, ?) > 0").join(" or ") || "false"})`),
      ];
      const whereSql = conditions.length === 0 ? "" : `where ${conditions.join(" and ")}`;
      return database
        .prepare(`select ${EVENT_COLUMNS} from event ${whereSql} order by position desc limit ?`)
        .all<EventRow>(...(kinds ?? []), ...textsToFind.flat(), limit)
        .filter(isSound)
        .map(toLoggedEvent);
    },
    recent(
      { source, subjects }: EventsAbout,
      kinds: readonly EventKind[],
      { sinceMs, maxSearched: within, limit }: RecentBounds,
    ): readonly LoggedEvent[] {
      const inListSql = (values: readonly unknown[]) => `in (${values.map(() => "?").join(", ")})`;
      // JSON is 20 times as fast as searching the text for 20 subjects. `json_valid` comes first, as a row may be
      // damaged.
      return database
        .prepare(
          `select ${EVENT_COLUMNS} from event
           where position > ? and committed_ms >= ? and kind ${inListSql(kinds)} and ${offeredSql("bytes")} <= ${MAX_RECENT_EVENT_BYTES}
             and case when json_valid(body) then
               body ->> '$.source' = ? and body ->> '$.subject' ${inListSql(subjects)} end
           order by position desc limit ?`,
        )
        .all<EventRow>(eventLog.end() - within, sinceMs, ...kinds, source, ...subjects, limit)
        .filter(isSound)
        .map(toLoggedEvent);
    },
  };
  return eventLog;
}

const RECOUNT_LOG_SQL = `update log_size set bytes = counted.bytes,
    written = max(iif(typeof(log_size.written) = 'integer', log_size.written, 0), counted.written)
  from (select coalesce(sum(bytes), 0) as bytes,
    coalesce(max(written) filter (where typeof(written) = 'integer'), 0) as written from event) as counted`;

const RAISE_WRITTEN_SQL = `update log_size set written = newest.written
  from (select written from event order by position desc limit 1) as newest
  where log_size.written < newest.written and typeof(newest.written) = 'integer'`;

function isIntegerOutOfRange(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_OUT_OF_RANGE";
}

export type EventLog = ReturnType<typeof createEventLog>;
