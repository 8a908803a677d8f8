import { eventIn } from "../../core/codec/stored-event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumOf } from "./checksum.ts";
import { letterChecksum } from "./damage.ts";
import type { Database } from "./sqlite.ts";
import type { DeadLetter, Refusal } from "./store.ts";

/**
 * What a sink will never accept, with the reason and a copy of the event, because a letter outlives the log.
 * While a letter is being sent again it is hidden; it disappears when it is settled, or comes back with a new
 * reason. One that is damaged is shown with its bytes and never sent. Changes belong inside a transaction.
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
     * Of an event that has left the log in the meantime nothing is kept: pruning has counted it as lost. One that comes
     * back keeps its number.
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

export const LETTER_COLUMNS =
  "id, sink, position, reason, at_ms, committed_ms, number, epoch, body, checksum";

export function numberOf({ number, epoch }: Pick<LetterRow, "number" | "epoch">): {
  readonly sequence?: Sequence;
} {
  return number === null || epoch === null ? {} : { sequence: { epoch, number } };
}

/** What the columns of a letter are when it is made of an event. */
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

/** Whether a letter is what was written. */
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
