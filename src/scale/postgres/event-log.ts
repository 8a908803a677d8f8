import { encodeEvent } from "../../core/codec/stored-event.ts";
import { assignEventToWorker, type Event, type EventKind, isTelemetry, isUrgentKind } from "../../core/model/event.ts";
import type { SqlValues } from "../../core/postgres/session.ts";
import { sqlArray, textArray } from "../../core/postgres/sql-quoting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import {
  IS_URGENT_EVENT_SQL,
  jsonFieldText,
  MAX_BATCH_BYTES,
  MAX_CLOCK_LEAD_MS,
  MAX_RECENT_EVENT_BYTES,
  offeredBytes,
  offeredBytesSql,
  type StoredEventText,
  storedEventBytes,
  subjectSearchTexts,
  toLoggedEvent,
} from "../../engine/store/event-log-rows.ts";
import type { RemovedEvent } from "../../engine/store/event-retention.ts";
import { createEventLogTail } from "../../engine/store/newest-events-cache.ts";
import type { SqlStatement, SqlSteps } from "../../engine/store/sql-driver.ts";
import type { EventQuery, LoggedEvent, RecentEventBounds, StoreCommitResult } from "../../engine/store/store.ts";
import { encodeKeyForPostgres, type RunPostgresQuery } from "./document-store.ts";
import { toRowObjects } from "./driver.ts";

const EVENT_SEARCH_TIMEOUT_MS = 60_000;

export function createEventLog(source: string, query: RunPostgresQuery, isLeaseHolder: boolean) {
  const logTail = createEventLogTail();
  let cachedLastPosition: number | null = null;
  /** Number of cache resets, so that a query that began before a reset does not fill the cache after the reset. */
  let cacheResetCount = 0;
  /** Highest known position of an urgent event, to save queries: every sink reads urgent events before each batch. */
  let lastUrgentPosition = Number.POSITIVE_INFINITY;
  /** Counts changes of `lastUrgentPosition`, so that the result of an earlier query does not hide an urgent event. */
  let lastUrgentChangeCount = 0;

  function forgetCachedEvents(): void {
    cacheResetCount += 1;
    cachedLastPosition = null;
    lastUrgentChangeCount += 1;
    lastUrgentPosition = Number.POSITIVE_INFINITY;
    logTail.clear();
  }

  const readRows = async <Row>(text: string, values: SqlValues = [], timeoutMs?: number) =>
    toRowObjects<Row>(await query(text, [source, ...values], timeoutMs));

  async function readLastPosition(): Promise<number> {
    if (cachedLastPosition !== null) return cachedLastPosition;
    const cacheResetsBeforeQuery = cacheResetCount;
    const [row] = await readRows<{ readonly last: number }>("select last_position as last from source where name = $1");
    const lastPosition = row?.last ?? 0;
    if (isLeaseHolder && cacheResetsBeforeQuery === cacheResetCount)
      cachedLastPosition = Math.max(lastPosition, cachedLastPosition ?? 0);
    return lastPosition;
  }

  function noteCommitted(prepared: PreparedEventAppend, [reply]: readonly EventAppendReplyRow[]): StoreCommitResult {
    const { before = 0, newEvents = 0, new_ordinals = null, committed_ms = 0 } = reply ?? {};
    const knownEventIds = listKnownEventIds(prepared, new_ordinals);
    // Another process has appended events that the cache of the latest events lacks.
    if (cachedLastPosition !== null && cachedLastPosition !== before) forgetCachedEvents();
    if (isLeaseHolder) {
      let position = before;
      const committedAt = isoUtc(committed_ms);
      for (const { event, body } of prepared.rows) {
        if (knownEventIds.has(event.id)) continue;
        position += 1;
        logTail.add({ position, committedAt, body, characters: offeredBytes(event.type, body.length) });
        if (!isUrgentKind(event.type)) continue;
        lastUrgentChangeCount += 1;
        lastUrgentPosition = Math.max(lastUrgentPosition, position);
      }
      logTail.onCommit();
      cachedLastPosition = before + newEvents;
    }
    return { lastPosition: before + newEvents, repeated: listRepeatedIds(prepared, knownEventIds) };
  }

  async function readEventsAfter(position: number, limit: number, conditionSql = "true") {
    const rows = await readRows<StoredEventText>(
      `select position, committed_ms, body from (
         select position, committed_ms, body, bytes, sum(bytes) over (order by position) as upto from (
           select position, committed_ms, body, ${offeredBytesSql("bytes")} as bytes from event
           where source = $1 and position > $2 and ${conditionSql} order by position limit $3) as next) as summed
       where upto <= ${MAX_BATCH_BYTES} or upto = bytes order by position`,
      [String(position), String(limit)],
    );
    return rows.map(toLoggedEvent);
  }

  function prepareEventAppend(events: readonly Event[], nowMs: number): PreparedEventAppend | null {
    if (events.length === 0) return null;
    const firstEventById = new Map(events.toReversed().map((event) => [event.id, event]));
    const rows = events
      .filter((event) => firstEventById.get(event.id) === event)
      .map((event) => ({ event, body: encodeEvent(event) }));
    const values = [
      nowMs,
      rows.map(({ event }) => encodeKeyForPostgres(event.id)),
      rows.map(({ event }) => event.type),
      sqlArray(rows.map(({ event }) => isTelemetry(event.type))),
      rows.map(({ event, body }) => storedEventBytes(event, body)),
      rows.map(({ body }) => body),
    ];
    return { events, rows, statement: { text: APPEND_EVENTS_SQL, values, name: "append" } };
  }

  return {
    forget: forgetCachedEvents,
    end: readLastPosition,
    prepare: prepareEventAppend,
    noteCommitted,
    *appendWorkerEvents(events: readonly Event[], nowMs: number): SqlSteps<() => void> {
      const preparedAppend = prepareEventAppend(
        events.map((event) => assignEventToWorker(source, event)),
        nowMs,
      );
      if (preparedAppend === null) return () => undefined;
      const [rows] = yield [preparedAppend.statement];
      return () => void noteCommitted(preparedAppend, rows as readonly EventAppendReplyRow[]);
    },
    /** Finds committed events after a lost reply. Events at or before the previous end were stored earlier. */
    async noteCommitAfterLostReply(prepared: PreparedEventAppend, before: number): Promise<StoreCommitResult> {
      forgetCachedEvents();
      const storedEvents = await readRows<{ readonly id: string; readonly position: number }>(
        "select id, position from event where source = $1 and id = any($2::text[])",
        [textArray(prepared.rows.map(({ event }) => encodeKeyForPostgres(event.id)))],
      );
      const positionByEventId = new Map(storedEvents.map(({ id, position }) => [id, position]));
      const repeatedRows = prepared.rows.filter(
        ({ event }) => (positionByEventId.get(encodeKeyForPostgres(event.id)) ?? before) <= before,
      );
      const knownEventIds = new Set(repeatedRows.map(({ event }) => event.id));
      return { lastPosition: await readLastPosition(), repeated: listRepeatedIds(prepared, knownEventIds) };
    },
    noteRemovedEvents: (events: readonly RemovedEvent[]): void => logTail.noteRemoved(events.at(-1)?.position ?? 0),
    dropCachedThrough: logTail.dropThrough,
    async after(position: number, limit: number): Promise<readonly LoggedEvent[]> {
      if (isLeaseHolder && position >= (await readLastPosition())) return [];
      const cachedEvents = isLeaseHolder ? logTail.eventsAfter(position, limit, MAX_BATCH_BYTES) : null;
      return cachedEvents ?? readEventsAfter(position, limit);
    },
    async urgentAfter(position: number, limit: number): Promise<readonly LoggedEvent[]> {
      if (isLeaseHolder && position >= lastUrgentPosition) return [];
      const lastUrgentChangesBefore = lastUrgentChangeCount;
      const events = await readEventsAfter(position, limit, IS_URGENT_EVENT_SQL);
      if (events.length === 0 && lastUrgentChangesBefore === lastUrgentChangeCount) lastUrgentPosition = position;
      return events;
    },
    async latest(limit: number, kinds: readonly EventKind[] | undefined, eventQuery: EventQuery | undefined) {
      const values: (string | Buffer)[] = [String(limit)];
      const searchConditions = ["source = $1"];
      const addSqlParameter = (value: string | Buffer) => `$${values.push(value) + 1}`;
      if (kinds !== undefined) {
        // Events other than tag values are rare and have an index.
        if (kinds.every((kind) => !isTelemetry(kind))) searchConditions.push("not telemetry");
        searchConditions.push(`kind = any(${addSqlParameter(textArray(kinds))}::text[])`);
      }
      if (eventQuery !== undefined) {
        const subjectTexts = eventQuery.subjects
          .flatMap(subjectSearchTexts)
          .map((text) => `strpos(body, ${addSqlParameter(text)}) > 0`);
        searchConditions.push(`(${subjectTexts.join(" or ") || "false"})`);
        searchConditions.push(`strpos(body, ${addSqlParameter(jsonFieldText("source", eventQuery.source))}) > 0`);
      }
      const rows = await readRows<StoredEventText>(
        `select position, committed_ms, body from event
         where ${searchConditions.join(" and ")} order by position desc limit $2`,
        values,
        eventQuery === undefined ? undefined : EVENT_SEARCH_TIMEOUT_MS,
      );
      return rows.map(toLoggedEvent);
    },
    async recent(
      { source: sourceUri, subjects }: EventQuery,
      kinds: readonly EventKind[],
      { sinceMs, maxSearched, limit }: RecentEventBounds,
    ): Promise<readonly LoggedEvent[]> {
      const subjectSet = new Set(subjects);
      // Compare the first `"subject"` in the text, which is the event's; parsing the JSON would take ten times as long.
      const rows = await readRows<StoredEventText>(
        `select position, committed_ms, body from event
         where source = $1 and position > $2 and committed_ms >= $3 and kind = any($4::text[])
           and ${offeredBytesSql("bytes")} <= ${MAX_RECENT_EVENT_BYTES}
           and split_part(split_part(body, '"subject":"', 2), '"', 1) = any($5::text[])
         order by position desc limit $6`,
        [
          String((await readLastPosition()) - maxSearched),
          String(sinceMs),
          textArray(kinds),
          textArray(subjects.map((subject) => JSON.stringify(subject).slice(1).split('"')[0] ?? "")),
          String(limit),
        ],
      );
      return rows.map(toLoggedEvent).filter(({ event }) => event.source === sourceUri && subjectSet.has(event.subject));
    },
  };
}

export type EventLog = ReturnType<typeof createEventLog>;

export interface PreparedEventAppend {
  readonly statement: SqlStatement;
  readonly events: readonly Event[];
  /** Events to insert: of several events with the same id, only the first. */
  readonly rows: readonly { readonly event: Event; readonly body: string }[];
}

/** SQL that appends events. The fence has locked the source's row, so positions and commit times ascend with commits. */
const APPEND_EVENTS_SQL = `with told as materialized (
    select t.*, row_number() over (order by n) as place, sum(bytes) over (order by n) as upto
    from unnest($3::text[], $4::text[], $5::boolean[], $6::integer[], $7::text[]) with ordinality
      as t (id, kind, telemetry, bytes, body, n)
    where not exists (select 1 from event where event.source = $1 and event.id = t.id)
  ), base as materialized (
    select last_position, written, coalesce((select committed_ms + 1 from event where event.source = $1
      and position = last_position and committed_ms > $2::bigint
      and committed_ms <= $2::bigint + ${MAX_CLOCK_LEAD_MS}), $2::bigint) as committed_ms
    from source where name = $1
  ), put as (
    insert into event (source, position, id, kind, telemetry, committed_ms, bytes, written, body)
    select $1, last_position + place, id, kind, telemetry, committed_ms, bytes, written + upto, body from told, base
  ), sums as materialized (
    select count(*) as events, coalesce(sum(bytes), 0)::bigint as bytes from told
  ), moved as (
    update source set last_position = last_position + sums.events, bytes = source.bytes + sums.bytes,
      written = written + sums.bytes
    from sums where name = $1 and sums.events > 0
  )
  select base.last_position as before, sums.events as "newEvents",
    case when sums.events < cardinality($3::text[]) then (select coalesce(string_agg(n::text, ','), '') from told) end
      as new_ordinals,
    base.committed_ms
  from base, sums`;

export interface EventAppendReplyRow {
  readonly before: number;
  readonly newEvents: number;
  readonly new_ordinals: string | null;
  readonly committed_ms: number;
}

/** Lists the ids of events that were in the log already, or that occur twice among the events. */
function listRepeatedIds({ events, rows }: PreparedEventAppend, knownEventIds: ReadonlySet<string>): readonly string[] {
  const firstEventsOfIds = new Set(rows.map(({ event }) => event));
  return events.filter((event) => !firstEventsOfIds.has(event) || knownEventIds.has(event.id)).map(({ id }) => id);
}

/** Lists the ids that were in the log already; `newOrdinals` null means that all events are new. */
function listKnownEventIds({ rows }: PreparedEventAppend, newOrdinals: string | null): ReadonlySet<string> {
  if (newOrdinals === null) return new Set();
  const newEventOrdinals = new Set(newOrdinals.split(","));
  return new Set(rows.filter((_, n) => !newEventOrdinals.has(String(n + 1))).map(({ event }) => event.id));
}
