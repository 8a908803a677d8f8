import { eventIn } from "../../core/codec/stored-event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumSql } from "./checksum.ts";
import { isSoundLetter, LETTER_COLUMNS, type LetterRow } from "./dead-letters.ts";
import type { EventLog } from "./event-log.ts";
import { createGapSums, gapEvent, type Loss, MERGE_MS, RETAINED_MS, summed } from "./gap-sums.ts";
import type { Sinks } from "./sinks.ts";
import type { Database } from "./sqlite.ts";
import type { StoredGap } from "./store.ts";

interface GapRow extends Omit<StoredGap, "at"> {
  readonly id: number;
  readonly at_ms: number;
}

/** A loss joins the gap that is not told yet. */
const GATHERED = {
  first_time: "min(gap.first_time, ?1)",
  last_time: "max(gap.last_time, ?2)",
  count: "gap.count + ?3",
};

const COLUMNS = "id, sink, reason, first_time as firstTime, last_time as lastTime, count, at_ms";

/** What sinks have lost: counted, recorded, and told as an event. Changes belong inside a transaction. */
export function createGaps(database: Database, log: EventLog, sinks: Sinks) {
  function record(gap: StoredGap, nowMs: number): void {
    sinks.addDropped(gap.sink, gap.count);
    const gathered = database
      .prepare(
        `update gap set first_time = ${GATHERED.first_time}, last_time = ${GATHERED.last_time},
           count = ${GATHERED.count}, checksum = ${checksumSql("gap", GATHERED)}
         where sink = ?4 and reason = ?5 and told_ms is null and checksum is ${checksumSql("gap")}`,
      )
      .run(gap.firstTime, gap.lastTime, gap.count, gap.sink, gap.reason);
    if (gathered > 0) return;
    database
      .prepare(
        `insert into gap (sink, reason, first_time, last_time, count, at_ms, checksum)
         values (?1, ?2, ?3, ?4, ?5, ?6, row_checksum(?1, ?2, ?3, ?4, ?5, ?6, null))`,
      )
      .run(gap.sink, gap.reason, gap.firstTime, gap.lastTime, gap.count, nowMs);
  }

  return {
    list(sink: string | undefined): readonly StoredGap[] {
      return database
        .prepare(`select ${COLUMNS} from gap where ?1 is null or sink = ?1 order by id desc limit 1000`)
        .all<GapRow>(sink ?? null)
        .map(({ id: _id, at_ms, ...gap }) => ({ ...gap, at: isoUtc(at_ms) }));
    },

    /** Records losses as they happen, and sums up what one run of pruning lost. */
    gather(nowMs: number) {
      const sums = createGapSums();
      return {
        add(losses: readonly Loss[]): void {
          const gaps = summed(losses, nowMs);
          for (const gap of gaps) record(gap, nowMs);
          sums.add(gaps);
        },
        report: sums.report,
      };
    },

    /** Commits an event for every gap that is due; answers how many. */
    tell(nowMs: number): number {
      database.prepare("delete from gap where told_ms < ?").run(nowMs - RETAINED_MS);
      const due = database
        .prepare(
          `select ${COLUMNS} from gap where told_ms is null and not exists
             (select 1 from gap as told where told.sink = gap.sink and told.reason = gap.reason
              and told.told_ms > ? and told.told_ms <= ?)`,
        )
        .all<GapRow>(nowMs - MERGE_MS, nowMs);
      for (const { id, ...gap } of due) {
        log.append([gapEvent(gap, nowMs)], nowMs);
        database
          .prepare(
            `update gap set told_ms = ?1, checksum = ${checksumSql("gap", { told_ms: "?1" })} where id = ?2`,
          )
          .run(nowMs, id);
      }
      return due.length;
    },

    /** Removes the oldest dead letters beyond a number of bytes; they are lost to their sinks. */
    dropLetters(maxBytes: number): readonly Loss[] {
      const letters = database
        .prepare(
          `select ${LETTER_COLUMNS}, (select sum(octet_length(body)) from dead_letter) - ? as excess,
             sum(octet_length(body)) over (order by id) - octet_length(body) as before
           from dead_letter order by id limit 500`,
        )
        .all<LetterRow & { readonly excess: number; readonly before: number }>(maxBytes);
      const removal = database.prepare("delete from dead_letter where id = ?");
      return letters
        .filter(({ before, excess }) => before < excess)
        .map((row) => {
          const { id, sink, body, at_ms } = row;
          removal.run(id);
          const time = isSoundLetter(row) ? eventIn(body).time : isoUtc(at_ms);
          return { sink, reason: "size", time };
        });
    },
  };
}
