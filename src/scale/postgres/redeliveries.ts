import { eventIn } from "../../core/codec/stored-event.ts";
import type { Kind } from "../../core/model/event.ts";
import { plainList, textList } from "../../core/postgres/lists.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { numberOf, OFFER_BYTES, offeredSql, URGENT_KIND } from "../../engine/store/outbox-rules.ts";
import type { DeadLetter, LoggedEvent, Refusal } from "../../engine/store/store.ts";
import type { RunQuery } from "./documents.ts";
import { toLoggedEvent } from "./event-log.ts";
import { storedText } from "./keys.ts";
import type { Query } from "./state-database.ts";
import type { Work, Writer } from "./writer.ts";

/** Positions that one transaction marks; other commits wait for it. */
const MARK_SLICE = 5_000;

const URGENT = `not event.telemetry and event.${URGENT_KIND}`;
/** SQL condition: the sink has settled the event. */
const IS_SETTLED = `(event.position <= sink.position or event.position <= sink.urgent and ${URGENT})`;

/** Marks events to be sent to a sink again: a replay, or a dead letter that is retried. */
export function createRedeliveries(source: string, query: RunQuery, writer: Writer, isHolder: boolean) {
  /** Positions of each sink's last offer: `settle` must not remove marks that were set after it. */
  const offered = new Map<string, readonly number[]>();
  /** Sinks known to have no mark. */
  const unmarked = new Set<string>();
  /** First position at which a sink may have a marked urgent event. */
  const urgentFrom = new Map<string, number>();
  let forgotten = 0;

  function forget(): void {
    forgotten += 1;
    unmarked.clear();
    urgentFrom.clear();
  }

  /** Marks settled events between two positions, slice by slice. */
  async function markSlices(
    sink: string,
    after: number,
    through: number,
    further: string,
    values: readonly (string | Buffer)[],
  ): Promise<number> {
    const { rows } = await query(
      "select coalesce(min(position), 1)::double precision - 1 from event where source = $1",
      [source],
    );
    let marked = 0;
    for (let from = Math.max(after, Number(rows[0]?.[0] ?? 0)); from < through; from += MARK_SLICE) {
      const slice = [String(from), String(Math.min(from + MARK_SLICE, through))];
      const answer = await writer.work((session) =>
        session.query(
          `with marked as (
             insert into again (source, sink, position)
             select $1, sink.name, event.position from event join sink on sink.source = $1 and sink.name = $2
             where event.source = $1 and event.position > $3::bigint
               and event.position <= $4::bigint and ${IS_SETTLED} ${further}
             on conflict do nothing returning 1
           ) select count(*)::integer from marked`,
          [source, sink, ...slice, ...values],
        ),
      );
      marked += Number(answer.rows[0]?.[0] ?? 0);
      await yieldToEventLoop();
    }
    forget();
    return marked;
  }

  /** Reads marked events at the positions that `marks` selects. */
  async function offerOf(sink: string, marks: string, values: readonly string[]): Promise<readonly LoggedEvent[]> {
    // From the log, or the copy in a dead letter. Replayed events have no sequence number.
    const { rows } = await query(
      `select position, committed_ms, body, number, epoch from (
         select again.position::double precision, coalesce(event.committed_ms, letter.committed_ms)::double precision
             as committed_ms,
           coalesce(event.body, letter.body) as body, letter.number::double precision, letter.epoch,
           sum(${offeredSql("octet_length(coalesce(event.body, letter.body))")}) over (order by again.position) as upto,
           row_number() over (order by again.position) as place
         from (${marks}) as again
           left join event on event.source = $1 and event.position = again.position
           left join dead_letter as letter
             on letter.source = $1 and letter.sink = $2 and letter.position = again.position
       ) as marked where body is not null and (upto <= ${OFFER_BYTES} or place = 1) order by position`,
      [source, sink, ...values],
    );
    const offer = rows.map((row): LoggedEvent => {
      const [, , , number, epoch] = row;
      const used = {
        number: number === null ? null : Number(number),
        epoch: epoch === null ? null : String(epoch),
      };
      return { ...toLoggedEvent(row), ...numberOf(used) };
    });
    offered.set(
      sink,
      offer.map(({ position }) => position),
    );
    return offer;
  }

  return {
    forget,

    async next(sink: string, limit: number): Promise<readonly LoggedEvent[]> {
      if (unmarked.has(sink)) return [];
      const asked = forgotten;
      const offer = await offerOf(
        sink,
        "select position from again where source = $1 and sink = $2 order by position limit $3::bigint",
        [String(limit)],
      );
      if (offer.length === 0 && isHolder && asked === forgotten) unmarked.add(sink);
      return offer;
    },

    /**
     * Reads marked urgent events. A replay of a million values has few of them, so the query starts from urgent events
     * and looks for their marks.
     */
    async nextUrgent(sink: string, limit: number): Promise<readonly LoggedEvent[]> {
      const from = urgentFrom.get(sink) ?? 0;
      if (unmarked.has(sink) || from === Number.POSITIVE_INFINITY) return [];
      const asked = forgotten;
      const offer = await offerOf(
        sink,
        `select position from (
           select event.position from event
           where source = $1 and position >= $4::bigint and not telemetry and ${URGENT_KIND} and exists (
             select 1 from again where again.source = $1 and again.sink = $2 and again.position = event.position)
           union all
           select position from dead_letter as letter
           where source = $1 and sink = $2 and resending and position >= $4::bigint
             and not exists (select 1 from event where event.source = $1 and event.position = letter.position)
             and body::json ->> 'type' ${URGENT_KIND.replace("kind ", "")}
         ) as urgent order by position limit $3::bigint`,
        [String(limit), String(from)],
      );
      if (isHolder && asked === forgotten) urgentFrom.set(sink, offer[0]?.position ?? Number.POSITIVE_INFINITY);
      return offer;
    },

    /** Positions of the last offer up to a position. */
    offeredThrough: (sink: string, through: number): readonly number[] =>
      (offered.get(sink) ?? []).filter((position) => position <= through),

    /** Removes marks. */
    settle: (sink: string, positions: readonly number[]): Query => ({
      text: "delete from again where source = $1 and sink = $2 and position = any($3::bigint[])",
      values: [source, sink, plainList(positions)],
    }),

    /** Marks settled events that were committed since a time; the sink gets the later ones anyway. */
    mark: (sink: string, sinceMs: number, kinds: readonly Kind[] | undefined, end: number): Promise<number> =>
      kinds === undefined
        ? markSlices(sink, 0, end, "and committed_ms >= $5::bigint", [String(sinceMs)])
        : markSlices(sink, 0, end, "and committed_ms >= $5::bigint and kind = any($6::text[])", [
            String(sinceMs),
            textList(kinds),
          ]),

    /** Marks settled events of a range of the log; urgent ones only after `urgentAfter`. */
    markBetween: (sink: string, after: number, through: number, urgentAfter: number): Promise<number> =>
      markSlices(sink, after, through, `and (event.position > $5::bigint or not (${URGENT}))`, [String(urgentAfter)]),

    isUnmarked: (sink: string): boolean => unmarked.has(sink),

    /** Marks events of a settled batch that a replay missed; see `engine/store/redeliveries.ts`. */
    markAfterReplay(sink: string, after: number, through: number, isUrgent: boolean): readonly Query[] {
      if (unmarked.has(sink)) return [];
      forget();
      const classes = isUrgent ? [URGENT] : [URGENT, `not (${URGENT})`];
      return classes.map((condition) => ({
        text: `insert into again (source, sink, position)
          select $1, $2, event.position from event
          where event.source = $1 and event.position > $3::bigint and event.position <= $4::bigint and ${condition}
            and exists (
              select 1 from again join event on event.source = again.source and event.position = again.position
              where again.source = $1 and again.sink = $2 and again.position <= $3::bigint and ${condition}
                and not exists (select 1 from dead_letter as letter where letter.source = $1 and letter.sink = $2
                  and letter.position = again.position and letter.resending))
          on conflict do nothing`,
        values: [source, sink, String(after), String(through)],
      }));
    },

    cancel: (sink: string): readonly Query[] => [
      { text: "delete from again where source = $1 and sink = $2", values: [source, sink] },
      {
        text: "update dead_letter set resending = false where source = $1 and sink = $2",
        values: [source, sink],
      },
    ],
  };
}

export type Redeliveries = ReturnType<typeof createRedeliveries>;

/**
 * Stores events that a sink rejected, with the reason and a copy of the event, because a dead letter outlives the log.
 * While it is sent again, the letter is hidden; it is removed when it is settled, or returns with a new reason.
 */
export function createDeadLetters(source: string, query: RunQuery) {
  /** SQL condition for letters of a sink: by id, or all that are not being sent again. */
  const chosen = (ids: readonly number[] | "all") =>
    ids === "all" ? "not resending" : "not resending and id = any($3::bigint[])";
  const valuesOf = (sink: string, ids: readonly number[] | "all") =>
    ids === "all" ? [source, sink] : [source, sink, plainList(ids)];

  async function count(session: Work, text: string, values: readonly string[]): Promise<number> {
    const { rows } = await session.query(text, values);
    return Number(rows[0]?.[0] ?? 0);
  }

  return {
    async list(sink: string | undefined, limit: number): Promise<readonly DeadLetter[]> {
      const { rows } = await query(
        `select id::double precision, sink, reason, at_ms::double precision, number::double precision, epoch, body
         from dead_letter where source = $1 and not resending and ($2::text is null or sink = $2)
         order by id desc limit $3::bigint`,
        [source, sink ?? null, String(limit)],
      );
      return rows.map(([id, name, reason, atMs, number, epoch, body]) => ({
        id: Number(id),
        sink: String(name),
        reason: String(reason),
        at: isoUtc(Number(atMs)),
        ...numberOf({
          number: number === null ? null : Number(number),
          epoch: epoch === null ? null : String(epoch),
        }),
        event: eventIn(String(body)),
      }));
    },

    /**
     * Adds rejected events. If one has left the log, nothing is stored, because retention has counted it as lost. A
     * letter that returns keeps its number.
     */
    add(sink: string, refusals: readonly Refusal[], nowMs: number): readonly Query[] {
      if (refusals.length === 0) return [];
      const at = [
        source,
        sink,
        String(nowMs),
        plainList(refusals.map(({ position }) => position)),
        textList(refusals.map(({ reason }) => storedText(reason))),
      ];
      // Lists have no null: an event without a number has 0 and no epoch.
      const numbers = [
        plainList(refusals.map(({ sequence }) => sequence?.number ?? 0)),
        textList(refusals.map(({ sequence }) => sequence?.epoch ?? "")),
      ];
      return [
        {
          text: `update dead_letter set reason = told.reason, at_ms = $3::bigint, resending = false
            from unnest($4::bigint[], $5::text[]) as told (position, reason)
            where source = $1 and sink = $2 and dead_letter.position = told.position`,
          values: at,
        },
        {
          text: `insert into dead_letter (source, sink, position, reason, at_ms, committed_ms, number, epoch, body)
            select $1, $2, event.position, told.reason, $3::bigint, committed_ms,
              case when told.epoch <> '' then told.number end, nullif(told.epoch, ''), body
            from unnest($4::bigint[], $5::text[], $6::bigint[], $7::text[]) as told (position, reason, number, epoch)
              join event on event.source = $1 and event.position = told.position
            order by told.position on conflict (source, sink, position) do nothing`,
          values: [...at, ...numbers],
        },
      ];
    },

    remove(sink: string, positions: readonly number[]): readonly Query[] {
      if (positions.length === 0) return [];
      return [
        {
          text: "delete from dead_letter where source = $1 and sink = $2 and position = any($3::bigint[])",
          values: [source, sink, plainList(positions)],
        },
      ];
    },

    resend: (session: Work, sink: string, ids: readonly number[] | "all"): Promise<number> =>
      count(
        session,
        `with hidden as (
           update dead_letter set resending = true where source = $1 and sink = $2 and ${chosen(ids)} returning position
         ), marked as (
           insert into again (source, sink, position) select $1, $2, position from hidden on conflict do nothing
         ) select count(*)::integer from hidden`,
        valuesOf(sink, ids),
      ),

    /** A mark without an event and without a letter is removed. */
    discard: (session: Work, sink: string, ids: readonly number[] | "all"): Promise<number> =>
      count(
        session,
        `with gone as (
           delete from dead_letter where source = $1 and sink = $2 and ${chosen(ids)} returning position
         ), unmarked as (
           delete from again using gone where again.source = $1 and again.sink = $2 and again.position = gone.position
             and not exists (select 1 from event where event.source = $1 and event.position = gone.position)
         ) select count(*)::integer from gone`,
        valuesOf(sink, ids),
      ),
  };
}

export type DeadLetters = ReturnType<typeof createDeadLetters>;
