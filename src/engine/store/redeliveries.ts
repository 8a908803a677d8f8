import type { Kind } from "../../core/model/event.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import type { Damage } from "./damage.ts";
import { isSoundLetter, LETTER_COLUMNS, type LetterRow, numberOf } from "./dead-letters.ts";
import {
  EVENT_COLUMNS,
  type EventLog,
  type EventRow,
  isSound,
  OFFER_BYTES,
  offeredSize,
  toLoggedEvent,
  URGENT,
  URGENT_KIND,
} from "./event-log.ts";
import type { Database } from "./sqlite.ts";
import type { LoggedEvent } from "./store.ts";

/** Positions that are looked at in one transaction while marking; a million events must not hold the file. */
const MARK_SLICE = 5_000;

/** SQL condition: the sink has settled the event. */
const IS_SETTLED = `(event.position <= sink.position or event.position <= sink.urgent and ${URGENT})`;

interface Mark {
  readonly position: number;
}

/** Marks on events that are to be sent to one sink once more: a replay, or a dead letter that may try again. */
export function createRedeliveries(database: Database, log: EventLog, damage: Damage) {
  /** What each sink was offered last: a mark set in the meantime must not be taken off with them. */
  const offered = new Map<string, readonly number[]>();
  /** Sinks without a mark, as far as nobody has set one since. */
  const unmarked = new Set<string>();
  /** Position from which on a sink may have marks of urgent events, as far as nobody has set one since. */
  const urgentFrom = new Map<string, number>();

  function forgetKnown(): void {
    unmarked.clear();
    urgentFrom.clear();
  }

  /** What a mark stands for: the event while the log has it, then the copy in its letter. */
  function behind(sink: string, position: number): EventRow | LetterRow | null {
    const event = database
      .prepare(`select ${EVENT_COLUMNS} from event where position = ?`)
      .get<EventRow>(position);
    if (event !== undefined && isSound(event)) return event;
    const letter = database
      .prepare(`select ${LETTER_COLUMNS} from dead_letter where sink = ? and position = ?`)
      .get<LetterRow>(sink, position);
    return letter !== undefined && isSoundLetter(letter) ? letter : null;
  }

  /** The number that a dead letter used up. Of what is replayed nobody knows the number any more. */
  function numberBehind(sink: string, position: number): Pick<LoggedEvent, "sequence"> {
    const letter = database
      .prepare(`select ${LETTER_COLUMNS} from dead_letter where sink = ? and position = ?`)
      .get<LetterRow>(sink, position);
    return letter !== undefined && isSoundLetter(letter) ? numberOf(letter) : {};
  }

  /** What was marked and is damaged now becomes a dead letter, or stays one, that says so. */
  function giveUp(sink: string, position: number): void {
    if (database.readOnly) return;
    log.quarantine("event.position = ?", position);
    database.transaction(() => {
      const letter = "sink = ? and position = ?";
      damage.keep("dead_letter", `${letter} and checksum is not null`, sink, position);
      database
        .prepare(`update dead_letter set resending = 0, checksum = null where ${letter}`)
        .run(sink, position);
      database.prepare(`delete from again where ${letter}`).run(sink, position);
    });
  }

  /** Reads what is marked; what is damaged is given up, and left out. */
  function offerOf(sink: string, marks: readonly Mark[]): readonly LoggedEvent[] {
    const offer: LoggedEvent[] = [];
    let bytes = 0;
    for (const { position } of marks) {
      const row = behind(sink, position);
      if (row === null) {
        giveUp(sink, position);
        continue;
      }
      const logged = toLoggedEvent(row);
      bytes += offeredSize(logged.event.type, row.body.length);
      if (offer.length > 0 && bytes > OFFER_BYTES) break;
      offer.push({ ...logged, ...numberBehind(sink, position) });
    }
    offered.set(
      sink,
      offer.map(({ position }) => position),
    );
    return offer;
  }

  const self = {
    /** Marks may have been set by others. */
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

    /** The urgent ones among them. A replay of a million values has few, so the log's are looked through for marks. */
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
      return offer.length > 0 || marks.length === 0 || database.readOnly
        ? offer
        : self.nextUrgent(sink, limit);
    },

    /** Takes the marks off what was offered, up to a position; answers those positions. */
    settle(sink: string, through: number): readonly number[] {
      const settled = (offered.get(sink) ?? []).filter((position) => position <= through);
      const removal = database.prepare("delete from again where sink = ? and position = ?");
      for (const position of settled) removal.run(sink, position);
      return settled;
    },

    /** Marks what the sink is past already and was committed since; the rest of the log reaches it anyway. */
    async mark(
      sink: string,
      sinceMs: number,
      kinds: readonly Kind[] | undefined,
      end: number,
    ): Promise<number> {
      const ofKinds = kinds === undefined ? "" : `and kind in (${kinds.map(() => "?").join(", ")})`;
      const marking = database.prepare(
        `insert into again (sink, position, checksum)
         select sink.name, event.position, row_checksum(sink.name, event.position) from event join sink on sink.name = ?
         where event.position > ? and event.position <= ? and ${IS_SETTLED} and committed_ms >= ? ${ofKinds}
         on conflict do nothing`,
      );
      let marked = 0;
      let from = database.number("select coalesce(min(position), 1) - 1 from event");
      for (; from < end; from += MARK_SLICE) {
        const slice = from;
        marked += database.transaction(() =>
          marking.run(sink, slice, Math.min(slice + MARK_SLICE, end), sinceMs, ...(kinds ?? [])),
        );
        forgetKnown();
        await yieldToEventLoop();
      }
      return marked;
    },

    /** The same for a stretch of the log. */
    async markBetween(sink: string, after: number, through: number, urgentAfter: number): Promise<number> {
      const marking = database.prepare(
        `insert into again (sink, position, checksum)
         select sink.name, event.position, row_checksum(sink.name, event.position) from event join sink on sink.name = ?
         where event.position > ? and event.position <= ? and ${IS_SETTLED}
           and (event.position > ? or not (${URGENT}))
         on conflict do nothing`,
      );
      const first = database.number("select coalesce(min(position), 1) - 1 from event");
      let marked = 0;
      for (let from = Math.max(after, first); from < through; from += MARK_SLICE) {
        const slice = from;
        marked += database.transaction(() =>
          marking.run(sink, slice, Math.min(slice + MARK_SLICE, through), urgentAfter),
        );
        forgetKnown();
        await yieldToEventLoop();
      }
      return marked;
    },

    cancel(sink: string): void {
      database.prepare("delete from again where sink = ?").run(sink);
      database.prepare("update dead_letter set resending = 0 where sink = ?").run(sink);
    },
  };
  return self;
}
