import { eventIn } from "../../core/codec/stored-event.ts";
import { ofWorkerFor } from "../../core/model/event.ts";
import { plainList } from "../../core/postgres/lists.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { gapEvent, type Loss, MERGE_MS, RETAINED_MS } from "../../engine/store/gap-sums.ts";
import type { StoredGap } from "../../engine/store/store.ts";
import type { Ask } from "./documents.ts";
import { type Appending, appendWithin, type EventLog } from "./event-log.ts";
import type { Sinks } from "./sinks.ts";
import type { Answer, Asked } from "./state-database.ts";
import type { Work } from "./writer.ts";

const COLUMNS =
  "id::double precision, sink, reason, first_time, last_time, count::double precision, at_ms::double precision";

/** Of letters that are removed, one transaction takes so many at most. */
const LETTERS = 500;

/** What one source's sinks have lost: counted, recorded, and told as an event. */
export function createGaps(source: string, ask: Ask, log: EventLog, sinks: Sinks) {
  return {
    async list(sink: string | undefined): Promise<readonly StoredGap[]> {
      const { rows } = await ask(
        `select ${COLUMNS} from gap where source = $1 and ($2::text is null or sink = $2) order by id desc limit 1000`,
        [source, sink ?? null],
      );
      return rows.map(toGap);
    },

    /** A loss joins the gap that is not told yet. */
    record: (gaps: readonly StoredGap[], nowMs: number): readonly Asked[] =>
      gaps.flatMap((gap) => {
        const values = [
          source,
          gap.sink,
          gap.reason,
          gap.firstTime,
          gap.lastTime,
          String(gap.count),
          String(nowMs),
        ];
        return [
          sinks.addDropped(gap.sink, gap.count),
          {
            text: `with gathered as (
                update gap set first_time = least(first_time, $4), last_time = greatest(last_time, $5),
                  count = count + $6::bigint
                where source = $1 and sink = $2 and reason = $3 and told_ms is null returning 1
              ) insert into gap (source, sink, reason, first_time, last_time, count, at_ms)
              select $1, $2, $3, $4, $5, $6::bigint, $7::bigint where not exists (select 1 from gathered)`,
            values,
          },
        ];
      }),

    /** Whether there is one whose event has to be told. */
    async isDue(nowMs: number): Promise<boolean> {
      const { rows } = await ask(`select exists (${DUE})`, [source, ...momentsOf(nowMs)]);
      return rows[0]?.[0] === true;
    },

    /** Appends an event for every gap that is due. */
    async tell(session: Work, nowMs: number): Promise<Told> {
      await session.query("delete from gap where source = $1 and told_ms < $2::bigint", [
        source,
        String(nowMs - RETAINED_MS),
      ]);
      const { rows } = await session.query(DUE, [source, ...momentsOf(nowMs)]);
      const appending = log.appending(
        rows.map((row) => ofWorkerFor(source, gapEvent(toGap(row), nowMs))),
        nowMs,
      );
      if (appending === null) return null;
      const answer = await appendWithin(session, appending);
      await session.query(
        "update gap set told_ms = $2::bigint where source = $1 and id = any($3::bigint[])",
        [source, String(nowMs), plainList(rows.map(([id]) => Number(id)))],
      );
      return { appending, answer };
    },

    /** Removes the oldest dead letters beyond a number of bytes; they are lost to their sinks. */
    async dropLetters(session: Work, maxBytes: number): Promise<readonly Loss[]> {
      const { rows } = await session.query(
        `with summed as (
           select id, sink, position, body, sum(octet_length(body)) over (order by id) - octet_length(body) as before,
             (select sum(octet_length(body)) from dead_letter where source = $1) - $2::bigint as excess
           from (select * from dead_letter where source = $1 order by id limit ${LETTERS}) as oldest
         ), gone as (
           delete from dead_letter using summed where dead_letter.id = summed.id and summed.before < summed.excess
           returning summed.*
         ), unmarked as (
           delete from again using gone where again.source = $1 and again.sink = gone.sink
             and again.position = gone.position
             and not exists (select 1 from event where event.source = $1 and event.position = gone.position)
         ) select sink, body from gone order by id`,
        [source, String(Math.floor(maxBytes))],
      );
      return rows.map(([sink, body]) => ({
        sink: String(sink),
        reason: "size",
        time: eventIn(String(body)).time,
      }));
    },

    /** Whether dead letters take more than a number of bytes. */
    async isCrowded(maxBytes: number): Promise<boolean> {
      const { rows } = await ask(
        "select coalesce(sum(octet_length(body)), 0) > $2::bigint from dead_letter where source = $1",
        [source, String(Math.floor(maxBytes))],
      );
      return rows[0]?.[0] === true;
    },
  };
}

/** Events of gaps that were appended; null where there were none. */
export type Told = { readonly appending: Appending; readonly answer: Answer } | null;

const DUE = `select ${COLUMNS} from gap where source = $1 and told_ms is null and not exists
  (select 1 from gap as told where told.source = $1 and told.sink = gap.sink and told.reason = gap.reason
   and told.told_ms > $2::bigint and told.told_ms <= $3::bigint)`;

function momentsOf(nowMs: number): readonly [string, string] {
  return [String(nowMs - MERGE_MS), String(nowMs)];
}

function toGap([, sink, reason, firstTime, lastTime, count, atMs]: Answer["rows"][number]): StoredGap {
  return {
    sink: String(sink),
    reason: reason === "age" ? "age" : "size",
    firstTime: String(firstTime),
    lastTime: String(lastTime),
    count: Number(count),
    at: isoUtc(Number(atMs)),
  };
}
