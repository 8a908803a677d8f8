import { parseEvent } from "../../core/codec/stored-event.ts";
import type { EventKind } from "../../core/model/event.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { StoredEventText } from "./event-log-rows.ts";
import {
  IS_URGENT_EVENT_SQL,
  IS_URGENT_KIND_SQL,
  MAX_BATCH_BYTES,
  offeredBytesSql,
  toLoggedEvent,
} from "./event-log-rows.ts";
import { runSql, type SqlDriver, type SqlStatement, type SqlValue } from "./sql-driver.ts";
import type { DeadLetter, LoggedEvent, RejectedEvent } from "./store.ts";

/** Number of positions that one transaction marks to be sent again: a million would block other commits. */
const POSITIONS_MARKED_AT_ONCE = 5_000;

const IS_EVENT_SETTLED_SQL = `(event.position <= sink.position or event.position <= sink.urgent and ${IS_URGENT_EVENT_SQL})`;

interface SequenceNumberColumns {
  readonly number: number | null;
  readonly epoch: string | null;
}

interface MarkedEventRow extends Omit<StoredEventText, "body">, SequenceNumberColumns {
  /** Body of the event; null if both the event and its dead letter are damaged or removed. */
  readonly body: string | null;
}

export function removeOrphanedMarks({ dialect }: SqlDriver, positions: readonly number[]): SqlStatement {
  return {
    text: `delete from again where source = $1 and ${dialect.isIn("position", "$2::bigint[]")}
      and not exists (select 1 from event where event.source = $1 and event.position = again.position)
      and not exists (select 1 from dead_letter where dead_letter.source = $1 and dead_letter.sink = again.sink
        and dead_letter.position = again.position)`,
    values: [positions],
  };
}

/** Marks settled events that a sink must get again. `quarantineEvent` turns a damaged marked event into a dead letter. */
export function createRedeliveries(
  sql: SqlDriver,
  isCached: boolean,
  quarantineEvent?: (sink: string, position: number) => boolean,
) {
  const { dialect, query } = sql;
  /** Marked events that each sink was offered last: `settle` must not remove marks that were set after this offer. */
  const lastOffers = new Map<string, { readonly positions: readonly number[]; readonly forgetCallsBefore: number }>();
  const unmarkedSinks = new Set<string>();
  /** First position at which an urgent event may be marked to be sent to a sink again. */
  const firstUrgentBySink = new Map<string, number>();
  /** Number of `forget` calls: the result of an earlier query must not restore forgotten values. */
  let forgetCalls = 0;
  /** Number of transactions in progress that mark events. Until they end, queries do not see those marks. */
  let activeMarkings = 0;

  function forgetCachedMarks(): void {
    forgetCalls += 1;
    unmarkedSinks.clear();
    firstUrgentBySink.clear();
  }

  const mayCacheResult = (previousCalls: number) => isCached && activeMarkings === 0 && previousCalls === forgetCalls;

  /** Marks settled events of a position range that fulfil a condition to be sent again, 5,000 positions at a time. */
  async function markEvents(
    sink: string,
    after: number,
    through: number,
    conditionSql: string,
    ...values: readonly SqlValue[]
  ): Promise<number> {
    const [firstEvent] = await query<{ readonly position: number }>(
      "select coalesce(min(position), 1) - 1 as position from event where source = $1",
    );
    const addMarksSql = dialect.insert(
      "again",
      { sink: "sink.name", position: "event.position" },
      `from event join sink on sink.source = $1 and sink.name = $2
       where event.source = $1 and event.position > $3::bigint and event.position <= $4::bigint
         and ${IS_EVENT_SETTLED_SQL} and ${conditionSql}`,
    );
    let markedCount = 0;
    for (let from = Math.max(after, firstEvent?.position ?? 0); from < through; from += POSITIONS_MARKED_AT_ONCE) {
      const positionRange = [from, Math.min(from + POSITIONS_MARKED_AT_ONCE, through)];
      activeMarkings += 1;
      // A settlement during this transaction must not rely on a cached absence of marked events.
      forgetCachedMarks();
      try {
        const rows = await sql.transaction(() =>
          runSql(`${addMarksSql} returning 1`, sink, ...positionRange, ...values),
        );
        markedCount += rows.length;
      } finally {
        activeMarkings -= 1;
        forgetCachedMarks();
      }
      await yieldToEventLoop();
    }
    return markedCount;
  }

  /** Reads events that a sink must get again. Dead letters keep their sequence number; events of the log have none. */
  async function readMarkedEvents(
    sink: string,
    marksSql: string,
    ...values: readonly SqlValue[]
  ): Promise<readonly LoggedEvent[]> {
    const intactEventSql = (column: string) => `case when ${dialect.isIntactSql("event")} then event.${column} end`;
    const intactDeadLetterSql = (column: string) =>
      `case when ${dialect.isIntactSql("dead_letter")} then dead_letter.${column} end`;
    const bodySql = `coalesce(${intactEventSql("body")}, ${intactDeadLetterSql("body")})`;
    const forgetsBefore = forgetCalls;
    const rows = await query<MarkedEventRow>(
      `select position, committed_ms, body, number, epoch from (
         select again.position, coalesce(${intactEventSql("committed_ms")}, ${intactDeadLetterSql("committed_ms")}) as committed_ms,
           ${bodySql} as body, ${intactDeadLetterSql("number")} as number, ${intactDeadLetterSql("epoch")} as epoch,
           sum(${offeredBytesSql(`octet_length(${bodySql})`)}) over (order by again.position) as upto,
           row_number() over (order by again.position) as place
         from (${marksSql}) as again
           left join event on event.source = $1 and event.position = again.position
           left join dead_letter on dead_letter.source = $1 and dead_letter.sink = $2
             and dead_letter.position = again.position
       ) as marked where body is null or upto <= ${MAX_BATCH_BYTES} or place = 1 order by position`,
      sink,
      ...values,
    );
    const offeredEvents: LoggedEvent[] = [];
    let isChanged = false;
    for (const { body: text, ...row } of rows) {
      if (text !== null) offeredEvents.push({ ...toLoggedEvent({ ...row, body: text }), ...toSequenceField(row) });
      else if (quarantineEvent?.(sink, row.position) === true) isChanged = true;
    }
    if (offeredEvents.length === 0 && isChanged) return readMarkedEvents(sink, marksSql, ...values);
    lastOffers.set(sink, {
      positions: offeredEvents.map(({ position }) => position),
      forgetCallsBefore: forgetsBefore,
    });
    return offeredEvents;
  }

  async function hasMarks(sink: string): Promise<boolean> {
    if (unmarkedSinks.has(sink)) return false;
    const forgetsBefore = forgetCalls;
    const isMarked = (await query("select 1 from again where source = $1 and sink = $2 limit 1", sink)).length > 0;
    if (!isMarked && mayCacheResult(forgetsBefore)) unmarkedSinks.add(sink);
    return isMarked;
  }

  return {
    forget: forgetCachedMarks,
    async next(sink: string, limit: number): Promise<readonly LoggedEvent[]> {
      const selectMarksSql = "select position from again where source = $1 and sink = $2 order by position limit $3";
      return (await hasMarks(sink)) ? readMarkedEvents(sink, selectMarksSql, limit) : [];
    },
    /** Returns marked urgent events. The query starts from urgent events: a replay of a million values has few. */
    async nextUrgent(sink: string, limit: number): Promise<readonly LoggedEvent[]> {
      const firstPosition = firstUrgentBySink.get(sink) ?? 0;
      // Without marked events, the query below would read all events but values for nothing: 20 ms for 50,000 tags.
      if (firstPosition === Number.POSITIVE_INFINITY || !(await hasMarks(sink))) return [];
      const forgetsBefore = forgetCalls;
      const offeredEvents = await readMarkedEvents(
        sink,
        `select position from (
           select event.position from event cross join again
           where event.source = $1 and event.position >= $4 and ${IS_URGENT_EVENT_SQL}
             and again.source = $1 and again.sink = $2 and again.position = event.position
           union all
           select position from dead_letter
           where source = $1 and sink = $2 and resending = true and position >= $4
             and not exists (select 1 from event where event.source = $1 and event.position = dead_letter.position)
             and ${dialect.kindOfBodySql("body")} ${IS_URGENT_KIND_SQL.replace("kind ", "")}
         ) as urgent order by position limit $3`,
        limit,
        firstPosition,
      );
      if (mayCacheResult(forgetsBefore))
        firstUrgentBySink.set(sink, offeredEvents[0]?.position ?? Number.POSITIVE_INFINITY);
      return offeredEvents;
    },
    /** Returns the positions, up to `throughPosition`, of the last offered events that are not settled. */
    offeredPositions: (sink: string, throughPosition: number): readonly number[] =>
      (lastOffers.get(sink)?.positions ?? []).filter((position) => position <= throughPosition),
    /** Unmarks the last offered events, unless a replay marked older events since: the newest state must come last. */
    settle(sink: string, positions: readonly number[]): SqlStatement {
      const offer = lastOffers.get(sink);
      const firstOfferedPosition =
        offer !== undefined && offer.forgetCallsBefore !== forgetCalls ? (offer.positions[0] ?? 0) : 0;
      return {
        text: `delete from again where source = $1 and sink = $2 and ${dialect.isIn("position", "$3::bigint[]")}
          and not exists (select 1 from again as older
            where older.source = $1 and older.sink = $2 and older.position < $4::bigint)`,
        values: [sink, positions, firstOfferedPosition],
      };
    },
    /** Removes settled positions from the last offer, after their marks were removed. */
    noteSettled(sink: string, throughPosition: number): void {
      const offer = lastOffers.get(sink);
      if (offer === undefined) return;
      lastOffers.set(sink, { ...offer, positions: offer.positions.filter((position) => position > throughPosition) });
    },
    /** Marks settled events since a commit time to be sent again; the sink gets unsettled events anyway. */
    mark: (sink: string, sinceMs: number, kinds: readonly EventKind[] | undefined, end: number): Promise<number> =>
      kinds === undefined
        ? markEvents(sink, 0, end, "committed_ms >= $5", sinceMs)
        : markEvents(sink, 0, end, `committed_ms >= $5 and ${dialect.isIn("kind", "$6::text[]")}`, sinceMs, kinds),
    /** Marks settled events between two positions to be sent again; urgent events only after `urgentAfter`. */
    markEventsBetween: (sink: string, after: number, through: number, urgentAfter: number): Promise<number> =>
      markEvents(sink, after, through, `(event.position > $5 or not (${IS_URGENT_EVENT_SQL}))`, urgentAfter),
    hasNoMarks: (sink: string): boolean => unmarkedSinks.has(sink),
    /**
     * Marks a settled batch to be sent again if a replay meanwhile marked events of the same class (urgent or not):
     * otherwise the sink would end with an older state, such as an alarm raised after its end. While only values are
     * replayed, an urgent batch skips the search among a million marks.
     */
    markAfterReplay(sink: string, after: number, through: number, isUrgent: boolean): readonly SqlStatement[] {
      if (unmarkedSinks.has(sink)) return [];
      const markConditions = [
        ...(firstUrgentBySink.get(sink) === Number.POSITIVE_INFINITY ? [] : [IS_URGENT_EVENT_SQL]),
        ...(isUrgent ? [] : [`not (${IS_URGENT_EVENT_SQL})`]),
      ];
      if (markConditions.length > 0) forgetCalls += 1;
      return markConditions.map((condition) => ({
        text: dialect.insert(
          "again",
          { sink: "$2::text", position: "event.position" },
          `from event where event.source = $1 and event.position > $3 and event.position <= $4 and ${condition}
           and exists (select 1 from again cross join event where again.source = $1 and again.sink = $2
             and again.position <= $3 and event.source = $1 and event.position = again.position and ${condition}
             and not exists (select 1 from dead_letter as letter where letter.source = $1 and letter.sink = $2
               and letter.position = again.position and letter.resending = true))`,
        ),
        values: [sink, after, through],
      }));
    },
    cancelRedeliveries: (sink: string): readonly SqlStatement[] => [
      { text: "delete from again where source = $1 and sink = $2", values: [sink] },
      { text: "update dead_letter set resending = false where source = $1 and sink = $2", values: [sink] },
    ],
  };
}

function toSequenceField({ number, epoch }: SequenceNumberColumns): Pick<LoggedEvent, "sequence"> {
  return number === null || epoch === null ? {} : { sequence: { epoch, number } };
}

interface DeadLetterRow extends SequenceNumberColumns {
  readonly id: number;
  readonly sink: string;
  readonly reason: string;
  readonly at_ms: number;
  readonly body: string;
  readonly sound: number | boolean;
}

/** Stores rejected events with reason and copy, because dead letters outlive the log; hides them while they are resent. */
export function createDeadLetters(sql: SqlDriver) {
  const { dialect, query } = sql;

  const deadLetterSelectionSql = (ids: readonly number[] | "all") =>
    `source = $1 and sink = $2 and resending = false and ${ids === "all" ? "true" : dialect.isIn("id", "$3::bigint[]")}`;
  const deadLetterValues = (sink: string, ids: readonly number[] | "all") => (ids === "all" ? [sink] : [sink, ids]);

  return {
    async listDeadLetters(sink: string | undefined, limit: number): Promise<readonly DeadLetter[]> {
      const rows = await query<DeadLetterRow>(
        `select id, sink, reason, at_ms, number, epoch, body, ${dialect.isIntactSql("dead_letter")} as sound
         from dead_letter where source = $1 and resending = false and ($2::text is null or sink = $2)
         order by id desc limit $3`,
        sink ?? null,
        limit,
      );
      return rows.map(({ id, sink: name, reason, at_ms, body, sound, ...sequenceColumns }) => ({
        ...{ id, sink: name, reason, at: isoUtc(at_ms) },
        ...(sound ? { ...toSequenceField(sequenceColumns), event: parseEvent(body) } : { event: null, bytes: body }),
      }));
    },
    /** Stores a dead letter, except for an event that has left the log: retention has counted it as lost. */
    add: (sink: string, { position, reason, sequence }: RejectedEvent, nowMs: number): readonly SqlStatement[] => [
      {
        text: dialect.update(
          "dead_letter",
          { reason: "$4", at_ms: "$5", resending: "false" },
          "sink = $2 and position = $3",
        ),
        values: [sink, position, reason, nowMs],
      },
      {
        text: dialect.insert(
          "dead_letter",
          {
            ...{ sink: "$2::text", position: "event.position", reason: "$4::text", at_ms: "$5::bigint" },
            ...{ committed_ms: "event.committed_ms", number: "$6::bigint", epoch: "$7::text", body: "event.body" },
          },
          "from event where event.source = $1 and event.position = $3",
          "event",
        ),
        values: [sink, position, reason, nowMs, sequence?.number ?? null, sequence?.epoch ?? null],
      },
    ],
    removeDeadLetters: (sink: string, positions: readonly number[]): SqlStatement => ({
      text: `delete from dead_letter where source = $1 and sink = $2 and ${dialect.isIn("position", "$3::bigint[]")}`,
      values: [sink, positions],
    }),
    resendDeadLetters: (sink: string, ids: readonly number[] | "all"): Promise<number> | number =>
      sql.transaction(function* () {
        const resentDeadLetters = yield* runSql<{ readonly position: number }>(
          `update dead_letter set resending = true where ${deadLetterSelectionSql(ids)} and ${dialect.isIntactSql("dead_letter")} returning position`,
          ...deadLetterValues(sink, ids),
        );
        yield* runSql(
          dialect.insert(
            "again",
            { sink: "sink", position: "position" },
            `from dead_letter where source = $1 and sink = $2 and ${dialect.isIn("position", "$3::bigint[]")}`,
          ),
          sink,
          resentDeadLetters.map(({ position }) => position),
        );
        return resentDeadLetters.length;
      }),
    discardDeadLetters: (sink: string, ids: readonly number[] | "all"): Promise<number> | number =>
      sql.transaction(function* () {
        const removedDeadLetters = yield* runSql<{ readonly position: number }>(
          `delete from dead_letter where ${deadLetterSelectionSql(ids)} returning position`,
          ...deadLetterValues(sink, ids),
        );
        const removedPositions = removedDeadLetters.map(({ position }) => position);
        yield [removeOrphanedMarks(sql, removedPositions)];
        return removedDeadLetters.length;
      }),
  };
}
