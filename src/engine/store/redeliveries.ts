import { eventIn } from "../../core/codec/stored-event.ts";
import type { Kind } from "../../core/model/event.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumOf } from "./checksum.ts";
import { type Damage, letterChecksum } from "./damage.ts";
import { EVENT_COLUMNS, type EventLog, type EventRow, isSound, toLoggedEvent, URGENT } from "./event-log.ts";
import { numberOf, OFFER_BYTES, offeredSize, URGENT_KIND } from "./outbox-rules.ts";
import type { Database } from "./sqlite.ts";
import type { DeadLetter, LoggedEvent, Refusal } from "./store.ts";

/** Positions that one transaction marks, so that a million events do not block the file. */
const MARK_SLICE = 5_000;

/** SQL condition: the sink has settled the event. */
const IS_SETTLED = `(event.position <= sink.position or event.position <= sink.urgent and ${URGENT})`;

interface Mark {
  readonly position: number;
}

/** Marks events to be sent to a sink again: a replay, or a dead letter that is retried. */
export function createRedeliveries(database: Database, log: EventLog, damage: Damage) {
  /** Positions of each sink's last offer: `settle` must not remove marks that were set after it. */
  const offered = new Map<string, readonly number[]>();
  /** Sinks known to have no mark. */
  const unmarked = new Set<string>();
  /** First position at which a sink may have a marked urgent event. */
  const urgentFrom = new Map<string, number>();

  function forgetKnown(): void {
    unmarked.clear();
    urgentFrom.clear();
  }

  /** Reads the event of a mark: from the log, or its copy in a dead letter. */
  function eventOrLetter(sink: string, position: number): EventRow | LetterRow | null {
    const event = database.prepare(`select ${EVENT_COLUMNS} from event where position = ?`).get<EventRow>(position);
    if (event !== undefined && isSound(event)) return event;
    const letter = database
      .prepare(`select ${LETTER_COLUMNS} from dead_letter where sink = ? and position = ?`)
      .get<LetterRow>(sink, position);
    return letter !== undefined && isSoundLetter(letter) ? letter : null;
  }

  /** Reads the sequence number of a dead letter; replayed events have none. */
  function sequenceOf(sink: string, position: number): Pick<LoggedEvent, "sequence"> {
    const letter = database
      .prepare(`select ${LETTER_COLUMNS} from dead_letter where sink = ? and position = ?`)
      .get<LetterRow>(sink, position);
    return letter !== undefined && isSoundLetter(letter) ? numberOf(letter) : {};
  }

  /** Turns a marked event that is damaged into a dead letter. */
  function toDeadLetter(sink: string, position: number): void {
    if (database.readOnly) return;
    log.quarantine("event.position = ?", position);
    database.transaction(() => {
      const letter = "sink = ? and position = ?";
      damage.keep("dead_letter", `${letter} and checksum is not null`, sink, position);
      database.prepare(`update dead_letter set resending = 0, checksum = null where ${letter}`).run(sink, position);
      database.prepare(`delete from again where ${letter}`).run(sink, position);
    });
  }

  /** Reads marked events; damaged ones become dead letters and are left out. */
  function offerOf(sink: string, marks: readonly Mark[]): readonly LoggedEvent[] {
    const offer: LoggedEvent[] = [];
    let bytes = 0;
    for (const { position } of marks) {
      const row = eventOrLetter(sink, position);
      if (row === null) {
        toDeadLetter(sink, position);
        continue;
      }
      const logged = toLoggedEvent(row);
      bytes += offeredSize(logged.event.type, row.body.length);
      if (offer.length > 0 && bytes > OFFER_BYTES) break;
      offer.push({ ...logged, ...sequenceOf(sink, position) });
    }
    offered.set(
      sink,
      offer.map(({ position }) => position),
    );
    return offer;
  }

  /** Marks settled events between two positions that a condition selects, slice by slice. */
  async function markSlices(
    sink: string,
    after: number,
    through: number,
    condition: string,
    ...values: readonly (string | number)[]
  ): Promise<number> {
    const marking = database.prepare(
      `insert into again (sink, position, checksum)
       select sink.name, event.position, row_checksum(sink.name, event.position) from event join sink on sink.name = ?
       where event.position > ? and event.position <= ? and ${IS_SETTLED} and ${condition}
       on conflict do nothing`,
    );
    const first = database.number("select coalesce(min(position), 1) - 1 from event");
    let marked = 0;
    for (let from = Math.max(after, first); from < through; from += MARK_SLICE) {
      const to = Math.min(from + MARK_SLICE, through);
      const start = from;
      marked += database.transaction(() => marking.run(sink, start, to, ...values));
      forgetKnown();
      await yieldToEventLoop();
    }
    return marked;
  }

  const self = {
    /** Forgets what another process may have marked. */
    forgetKnown,

    next(sink: string, limit: number): readonly LoggedEvent[] {
      if (unmarked.has(sink)) return [];
      const marks = database
        .prepare("select position from again where sink = ? order by position limit ?")
        .all<Mark>(sink, limit);
      if (marks.length === 0) unmarked.add(sink);
      const offer = offerOf(sink, marks);
      return offer.length > 0 || marks.length === 0 || database.readOnly ? offer : self.next(sink, limit);
    },

    /**
     * Reads marked urgent events. A replay of a million values has few of them, so the query starts from urgent events
     * and looks for their marks.
     */
    nextUrgent(sink: string, limit: number): readonly LoggedEvent[] {
      const from = urgentFrom.get(sink) ?? 0;
      if (unmarked.has(sink) || from === Number.POSITIVE_INFINITY) return [];
      const marks = database
        .prepare(
          `select position from (
             select event.position from event cross join again
               on again.sink = ?1 and again.position = event.position
             where event.telemetry = 0 and event.position >= ?2 and event.${URGENT_KIND}
             union all
             select position from dead_letter where sink = ?1 and resending = 1 and position >= ?2
               and not exists (select 1 from event where event.position = dead_letter.position)
               and case when json_valid(body) then body ->> '$.type' end ${URGENT_KIND.replace("kind ", "")}
           ) order by position limit ?3`,
        )
        .all<Mark>(sink, from, limit);
      urgentFrom.set(sink, marks[0]?.position ?? Number.POSITIVE_INFINITY);
      const offer = offerOf(sink, marks);
      return offer.length > 0 || marks.length === 0 || database.readOnly ? offer : self.nextUrgent(sink, limit);
    },

    /** Removes the marks of the last offer up to a position; returns those positions. */
    settle(sink: string, through: number): readonly number[] {
      const settled = (offered.get(sink) ?? []).filter((position) => position <= through);
      const removal = database.prepare("delete from again where sink = ? and position = ?");
      for (const position of settled) removal.run(sink, position);
      return settled;
    },

    /** Marks settled events that were committed since a time; the sink gets the later ones anyway. */
    mark: (sink: string, sinceMs: number, kinds: readonly Kind[] | undefined, end: number): Promise<number> =>
      kinds === undefined
        ? markSlices(sink, 0, end, "committed_ms >= ?", sinceMs)
        : markSlices(
            sink,
            0,
            end,
            `committed_ms >= ? and kind in (${kinds.map(() => "?").join(", ")})`,
            ...[sinceMs, ...kinds],
          ),

    /** Marks settled events of a range of the log; urgent ones only after `urgentAfter`. */
    markBetween: (sink: string, after: number, through: number, urgentAfter: number): Promise<number> =>
      markSlices(sink, after, through, `(event.position > ? or not (${URGENT}))`, urgentAfter),

    isUnmarked: (sink: string): boolean => unmarked.has(sink),

    /**
     * Marks the events of a batch that has just been settled, if a replay marked events of the same class (urgent or
     * not) while the batch was in flight. Otherwise the replay would end with an older state than the batch: alarm
     * raised, resolved (in flight), raised again. Call it inside the transaction of the settlement.
     */
    markAfterReplay(sink: string, after: number, through: number, isUrgent: boolean): void {
      if (unmarked.has(sink)) return;
      const replayed = (condition: string) =>
        `exists (select 1 from again cross join event on event.position = again.position
           where again.sink = ?1 and again.position <= ?2 and ${condition} and not exists (
             select 1 from dead_letter as letter
             where letter.sink = ?1 and letter.position = again.position and letter.resending = 1))`;
      const markWhere = (condition: string) =>
        database
          .prepare(
            `insert into again (sink, position, checksum)
             select ?1, event.position, row_checksum(?1, event.position) from event
             where event.position > ?2 and event.position <= ?3 and ${condition} and ${replayed(condition)}
             on conflict do nothing`,
          )
          .run(sink, after, through);
      let marked = markWhere(URGENT);
      if (!isUrgent) marked += markWhere(`not (${URGENT})`);
      if (marked > 0) forgetKnown();
    },

    cancel(sink: string): void {
      database.prepare("delete from again where sink = ?").run(sink);
      database.prepare("update dead_letter set resending = 0 where sink = ?").run(sink);
    },
  };
  return self;
}

/**
 * Stores events that a sink rejected, with the reason and a copy of the event, because a dead letter outlives the log.
 * While it is sent again, the letter is hidden; it is removed when it is settled, or returns with a new reason. A
 * damaged letter is listed with its bytes and never sent. Call changes inside a transaction.
 */
export function createDeadLetters(database: Database) {
  function idsOf(sink: string, ids: readonly number[] | "all"): readonly number[] {
    if (ids !== "all") return ids;
    return database
      .prepare("select id from dead_letter where sink = ? and resending = 0 order by id")
      .all<{ readonly id: number }>(sink)
      .map(({ id }) => id);
  }

  return {
    list(sink: string | undefined, limit: number): readonly DeadLetter[] {
      const rows = database
        .prepare(
          `select ${LETTER_COLUMNS} from dead_letter
           where resending = 0 and (?1 is null or sink = ?1) order by id desc limit ?2`,
        )
        .all<LetterRow>(sink ?? null, limit);
      return rows.map((row) => {
        const { id, sink: name, reason, at_ms, body } = row;
        const letter = { id, sink: name, reason, at: isoUtc(at_ms) };
        return isSoundLetter(row)
          ? { ...letter, ...numberOf(row), event: eventIn(body) }
          : { ...letter, event: null, bytes: body };
      });
    },

    /**
     * Adds a rejected event. If it has left the log, nothing is stored, because retention has counted it as lost. A
     * letter that returns keeps its number.
     */
    add(sink: string, { position, reason, sequence }: Refusal, nowMs: number): void {
      const back = database
        .prepare(
          `update dead_letter set reason = ?1, at_ms = ?2, resending = 0,
             checksum = ${letterChecksum("dead_letter", { reason: "?1", at_ms: "?2" })}
           where sink = ?3 and position = ?4`,
        )
        .run(reason, nowMs, sink, position);
      if (back > 0) return;
      database
        .prepare(
          `insert into dead_letter (sink, position, reason, at_ms, committed_ms, number, epoch, body, checksum)
           select ?1, position, ?2, ?3, committed_ms, ?5, ?6, body, ${letterChecksum("event", OF_EVENT)}
           from event where position = ?4`,
        )
        .run(sink, reason, nowMs, position, sequence?.number ?? null, sequence?.epoch ?? null);
    },

    remove(sink: string, positions: readonly number[], except: ReadonlySet<number>): void {
      const removal = database.prepare("delete from dead_letter where sink = ? and position = ?");
      for (const position of positions) if (!except.has(position)) removal.run(sink, position);
    },

    resend(sink: string, ids: readonly number[] | "all"): number {
      const hide = database.prepare(
        "update dead_letter set resending = 1 where sink = ? and id = ? and resending = 0 and checksum is not null",
      );
      const mark = database.prepare(
        `insert into again (sink, position, checksum)
         select sink, position, row_checksum(sink, position) from dead_letter where sink = ? and id = ?
         on conflict do nothing`,
      );
      let marked = 0;
      for (const id of idsOf(sink, ids)) {
        if (hide.run(sink, id) === 0) continue;
        mark.run(sink, id);
        marked += 1;
      }
      return marked;
    },

    discard(sink: string, ids: readonly number[] | "all"): number {
      const removal = database.prepare("delete from dead_letter where sink = ? and id = ? and resending = 0");
      let removed = 0;
      for (const id of idsOf(sink, ids)) removed += removal.run(sink, id);
      return removed;
    },
  };
}

export interface LetterRow {
  readonly id: number;
  readonly sink: string;
  readonly position: number;
  readonly reason: string;
  readonly at_ms: number;
  readonly committed_ms: number;
  readonly number: number | null;
  readonly epoch: string | null;
  readonly body: string;
  readonly checksum: number | null;
}

export const LETTER_COLUMNS = "id, sink, position, reason, at_ms, committed_ms, number, epoch, body, checksum";

/** SQL of a letter's columns when it is created from an event. */
const OF_EVENT = {
  sink: "?1",
  position: "event.position",
  at_ms: "?3",
  committed_ms: "event.committed_ms",
  reason: "?2",
  number: "?5",
  epoch: "?6",
  body: "event.body",
};

/** Whether a letter is the one that was written. */
export function isSoundLetter({
  sink,
  position,
  at_ms,
  committed_ms,
  reason,
  number,
  epoch,
  body,
  checksum,
}: LetterRow): boolean {
  return checksumOf(sink, position, at_ms, committed_ms, reason, number, epoch, body) === checksum;
}
