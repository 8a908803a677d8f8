import { eventIn } from "../../core/codec/stored-event.ts";
import { plainList, textList } from "../../core/postgres/lists.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { numberOf } from "../../engine/store/dead-letters.ts";
import type { DeadLetter, Refusal } from "../../engine/store/store.ts";
import type { Ask } from "./documents.ts";
import { storedText } from "./keys.ts";
import type { Asked } from "./state-database.ts";
import type { Work } from "./writer.ts";

/**
 * What a sink will never accept, with the reason and a copy of the event, because a letter outlives the log. While a
 * letter is being sent again it is hidden; it disappears when it is settled, or comes back with a new reason.
 */
export function createDeadLetters(source: string, ask: Ask) {
  /** The letters of a sink by their numbers, or all that are not under way. */
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
      const { rows } = await ask(
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
     * Of an event that has left the log in the meantime nothing is kept: pruning has counted it as lost. One that comes
     * back keeps its number.
     */
    add(sink: string, refusals: readonly Refusal[], nowMs: number): readonly Asked[] {
      if (refusals.length === 0) return [];
      const at = [
        source,
        sink,
        String(nowMs),
        plainList(refusals.map(({ position }) => position)),
        textList(refusals.map(({ reason }) => storedText(reason))),
      ];
      // A list knows no null: what has no number has 0 and no epoch.
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

    remove(sink: string, positions: readonly number[]): readonly Asked[] {
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

    /** A mark that only the letter could have been sent for goes with it. */
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
