import type { Kind } from "../event.ts";
import { breath } from "../waiting.ts";
import { type EventRow, lastWithin, OFFER_BYTES, toLoggedEvent } from "./event-log.ts";
import type { Database } from "./sqlite.ts";
import type { LoggedEvent } from "./store.ts";

/** Positions that are looked at in one transaction while marking; a million events must not hold the file. */
const MARK_SLICE = 5_000;

/** Marks on events that are to be sent to one sink once more: a replay, or a dead letter that may try again. */
export function createRedeliveries(database: Database) {
  /** What each sink was offered last: a mark set in the meantime must not be taken off with them. */
  const offered = new Map<string, readonly number[]>();

  return {
    next(sink: string, limit: number): readonly LoggedEvent[] {
      const rows = database
        .prepare(
          `select again.position,
             coalesce(event.committed_ms, dead_letter.committed_ms) as committed_ms,
             coalesce(event.body, dead_letter.body) as body
           from again
           left join event on event.position = again.position
           left join dead_letter on dead_letter.sink = again.sink and dead_letter.position = again.position
           where again.sink = ? and coalesce(event.body, dead_letter.body) is not null
           order by again.position limit ?`,
        )
        .all<EventRow>(sink, limit);
      const last = lastWithin(
        rows.map(({ position, body }) => ({ position, bytes: body.length })),
        OFFER_BYTES,
      );
      const offer = rows.filter(({ position }) => position <= (last ?? 0));
      offered.set(
        sink,
        offer.map(({ position }) => position),
      );
      return offer.map(toLoggedEvent);
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
        `insert into again (sink, position)
         select sink.name, event.position from event join sink on sink.name = ?
         where event.position > ? and event.position <= min(?, sink.position) and committed_ms >= ? ${ofKinds}
         on conflict do nothing`,
      );
      let marked = 0;
      let from = database.number("select coalesce(min(position), 1) - 1 from event");
      for (; from < end; from += MARK_SLICE) {
        const slice = from;
        marked += database.transaction(() =>
          marking.run(sink, slice, Math.min(slice + MARK_SLICE, end), sinceMs, ...(kinds ?? [])),
        );
        await breath();
      }
      return marked;
    },

    /** The same for a stretch of the log. */
    async markBetween(sink: string, after: number, through: number): Promise<number> {
      const marking = database.prepare(
        `insert into again (sink, position)
         select sink.name, event.position from event join sink on sink.name = ?
         where event.position > ? and event.position <= min(?, sink.position)
         on conflict do nothing`,
      );
      const first = database.number("select coalesce(min(position), 1) - 1 from event");
      let marked = 0;
      for (let from = Math.max(after, first); from < through; from += MARK_SLICE) {
        const slice = from;
        marked += database.transaction(() => marking.run(sink, slice, Math.min(slice + MARK_SLICE, through)));
        await breath();
      }
      return marked;
    },

    cancel(sink: string): void {
      database.prepare("delete from again where sink = ?").run(sink);
      database.prepare("update dead_letter set resending = 0 where sink = ?").run(sink);
    },
  };
}
