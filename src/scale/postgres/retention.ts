import { eventIn } from "../../core/codec/stored-event.ts";
import { ofWorkerFor } from "../../core/model/event.ts";
import { plainList } from "../../core/postgres/lists.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import {
  gapEvent,
  gapsOf,
  joinGaps,
  LETTER_SHARE,
  type Leaving,
  type Loss,
  lastWithinBytes,
  lossesOf,
  MERGE_MS,
  type Older,
  RETAINED_MS,
  SLICE_BYTES,
  SLICE_ROWS,
  type Sweep,
  sweepsByAge,
  sweepsBySize,
} from "../../engine/store/outbox-rules.ts";
import type { PruneReport, RetentionBounds, StoredGap } from "../../engine/store/store.ts";
import type { RunQuery } from "./documents.ts";
import { type Appending, appendWithin, type EventLog } from "./event-log.ts";
import type { Sinks } from "./sinks.ts";
import type { Query, QueryResult } from "./state-database.ts";
import type { Work, Writer } from "./writer.ts";

const SLOWEST = `(select coalesce(min(sink.position), 9000000000000000) from sink where sink.source = $1 and ended is null)`;

/** SQL condition: every sink in use has settled the event, and none is to get it again. `$1` is the source. */
const SETTLED = `position <= ${SLOWEST}
  and not exists (select 1 from again where again.source = $1 and again.position = event.position)`;
const SQL = { settled: SETTLED, slowest: SLOWEST };

export interface RetentionOptions {
  readonly source: string;
  readonly query: RunQuery;
  readonly writer: Writer;
  readonly log: EventLog;
  readonly sinks: Sinks;
  readonly clock: Pick<Clock, "now">;
}

/**
 * Enforces the bounds of one source's log by the same rules as the embedded store (`engine/store/retention.ts`). A query
 * shows whether there is anything to remove; only then does a transaction begin, slice by slice.
 */
export function createRetention({ source, query, writer, log, sinks, clock }: RetentionOptions) {
  const gaps = createGaps(source, query, log, sinks);

  /** The next events of a sweep behind a position: at most one slice. */
  async function pick(query: RunQuery, { condition, through, keepBytes }: Sweep, after: number) {
    const { rows } = await query(
      `select position::double precision, bytes, committed_ms::double precision,
         (select source.bytes from source where name = $1)::double precision
       from event where source = $1 and position > $2::bigint and position <= $3::bigint and ${condition}
       order by position limit ${SLICE_ROWS}`,
      [source, String(after), String(through)],
    );
    const excess = keepBytes === undefined ? SLICE_BYTES : Number(rows[0]?.[3] ?? 0) - keepBytes;
    if (excess <= 0) return [];
    const found = rows.map(
      ([position, bytes, committedMs]): Leaving => ({
        position: Number(position),
        bytes: Number(bytes),
        committed_ms: Number(committedMs),
      }),
    );
    const last = lastWithinBytes(found, Math.min(excess, SLICE_BYTES)) ?? 0;
    return found.filter(({ position }) => position <= last);
  }

  /** Returns the losses when these events go. A sink that was never offered one of them starts a new epoch. */
  async function losses(
    session: Work,
    leaving: readonly Leaving[],
    reason: Loss["reason"],
    wanted: RetentionBounds["wanted"],
  ): Promise<readonly Loss[]> {
    const at = [source, plainList(leaving.map(({ position }) => position))];
    const [known, marks, bodies] = await session.queries([
      {
        text: "select name, position::double precision, urgent::double precision from sink where source = $1 and ended is null",
        values: [source],
      },
      {
        text: "select sink, position::double precision from again where source = $1 and position = any($2::bigint[])",
        values: at,
      },
      {
        text: "select position::double precision, body from event where source = $1 and position = any($2::bigint[])",
        values: at,
      },
    ]);
    const marked = new Set(marks?.rows.map(([sink, position]) => `${position} ${sink}`));
    const events = new Map(bodies?.rows.map(([position, body]) => [Number(position), String(body)]));
    const { lost, withoutOffer } = lossesOf(leaving, reason, {
      sinks: (known?.rows ?? []).map(([name, position, urgent]) => ({
        name: String(name),
        position: Number(position),
        urgent: Number(urgent),
      })),
      isMarked: (sink, position) => marked.has(`${position} ${sink}`),
      eventAt(position) {
        const body = events.get(position);
        return body === undefined ? null : eventIn(body);
      },
      wanted,
    });
    await session.queries([...withoutOffer].map((sink) => sinks.beginEpoch(sink)));
    return lost;
  }

  async function remove(session: Work, leaving: readonly Leaving[]): Promise<void> {
    const bytes = leaving.reduce((sum, each) => sum + each.bytes, 0);
    const at = [source, plainList(leaving.map(({ position }) => position))];
    await session.queries([
      { text: "delete from event where source = $1 and position = any($2::bigint[])", values: at },
      // A mark goes with the last of its event and its letter.
      {
        text: `delete from again where source = $1 and position = any($2::bigint[]) and not exists (
          select 1 from dead_letter as letter
          where letter.source = $1 and letter.sink = again.sink and letter.position = again.position)`,
        values: at,
      },
      {
        text: "update source set bytes = bytes - $2::bigint where name = $1",
        values: [source, String(bytes)],
      },
    ]);
  }

  /** Notes the end of the log and the slowest cursor, and returns what is older than the bounds. */
  async function older({ maxAgeMs, ranMs, replayMs }: RetentionBounds): Promise<Older> {
    return writer.work(async (session) => {
      const { rows } = await session.query(
        `insert into age_mark (source, ran_ms, newest, settled)
         select $1, (select coalesce(max(ran_ms), 0) from age_mark where source = $1) + $2::bigint, last_position,
           (select coalesce(min(sink.position),
              (select coalesce(max(event.position), 0) from event where event.source = $1))
            from sink where sink.source = $1 and ended is null)
         from source where name = $1
         on conflict (source, ran_ms) do update set newest = excluded.newest, settled = excluded.settled
         returning ran_ms::double precision`,
        [source, String(Math.round(ranMs))],
      );
      const ran = Number(rows[0]?.[0] ?? 0);
      const [aged, replayed] = await session.queries([
        {
          text: `select newest::double precision ${BEFORE}`,
          values: [source, String(Math.round(ran - maxAgeMs))],
        },
        {
          text: `select settled::double precision ${BEFORE}`,
          values: [source, String(Math.round(ran - replayMs))],
        },
        {
          text: `delete from age_mark where source = $1
            and ran_ms < (select max(ran_ms) from age_mark where source = $1 and ran_ms < $2::bigint)`,
          values: [source, String(Math.round(ran - Math.max(maxAgeMs, replayMs)))],
        },
      ]);
      return { aged: Number(aged?.rows[0]?.[0] ?? 0), replayed: Number(replayed?.rows[0]?.[0] ?? 0) };
    });
  }

  function record(session: Work, lost: readonly Loss[], nowMs: number) {
    const found = gapsOf(lost, nowMs);
    return session.queries(gaps.record(found, nowMs)).then(() => found);
  }

  async function prune(bounds: RetentionBounds): Promise<PruneReport & { readonly told: number }> {
    const nowMs = clock.now();
    const recorded: StoredGap[] = [];
    let removed = 0;

    async function sweep(which: Sweep): Promise<void> {
      const { reason } = which;
      let through = 0;
      while ((await pick(query, which, through)).length > 0) {
        const slice = await writer.work(async (session) => {
          const leaving = await pick((text, values) => session.query(text, values), which, through);
          const lost = reason === null ? [] : await losses(session, leaving, reason, bounds.wanted);
          const found = await record(session, lost, nowMs);
          if (leaving.length > 0) await remove(session, leaving);
          return { leaving, found };
        });
        recorded.push(...slice.found);
        if (slice.found.length > 0) sinks.forget();
        removed += slice.leaving.length;
        through = slice.leaving.at(-1)?.position ?? through;
        log.removed(through);
        if (slice.leaving.length === 0) return;
        await yieldToEventLoop();
      }
    }

    for (const each of sweepsByAge(SQL, await older(bounds))) await sweep(each);
    if ((await bytes()) > bounds.maxBytes) for (const each of sweepsBySize(SQL, bounds.maxBytes)) await sweep(each);
    const letterBytes = bounds.maxBytes * LETTER_SHARE;
    if (await gaps.isCrowded(letterBytes)) {
      const found = await writer.work(async (session) =>
        record(session, await gaps.dropLetters(session, letterBytes), nowMs),
      );
      recorded.push(...found);
    }
    return { removed, gaps: joinGaps(recorded), told: await publish() };
  }

  /** Appends an event for every gap that is due; returns how many. */
  async function publish(): Promise<number> {
    const nowMs = clock.now();
    if (!(await gaps.isDue(nowMs))) return 0;
    const published = await writer.work((session) => gaps.publish(session, nowMs));
    if (published === null) return 0;
    log.committed(published.appending, published.answer);
    return published.appending.rows.length;
  }

  async function bytes(): Promise<number> {
    const { rows } = await query("select bytes::double precision from source where name = $1", [source]);
    return Number(rows[0]?.[0] ?? 0);
  }

  return { prune, gaps: gaps.list };
}

/** The mark of a time; none when no worker has been running for so long. */
const BEFORE = `from age_mark where source = $1 and ran_ms < $2::bigint order by ran_ms desc limit 1`;

const COLUMNS =
  "id::double precision, sink, reason, first_time, last_time, count::double precision, at_ms::double precision";

/** Most letters that one transaction removes. */
const LETTERS = 500;

/** Records what one source's sinks have lost and publishes it as events. */
function createGaps(source: string, query: RunQuery, log: EventLog, sinks: Sinks) {
  return {
    async list(sink: string | undefined): Promise<readonly StoredGap[]> {
      const { rows } = await query(
        `select ${COLUMNS} from gap where source = $1 and ($2::text is null or sink = $2) order by id desc limit 1000`,
        [source, sink ?? null],
      );
      return rows.map(toGap);
    },

    /** Counts losses; each joins the gap that is not published yet. */
    record: (gaps: readonly StoredGap[], nowMs: number): readonly Query[] =>
      gaps.flatMap((gap) => {
        const values = [source, gap.sink, gap.reason, gap.firstTime, gap.lastTime, String(gap.count), String(nowMs)];
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

    /** Whether a gap has to be published. */
    async isDue(nowMs: number): Promise<boolean> {
      const { rows } = await query(`select exists (${DUE})`, [source, ...momentsOf(nowMs)]);
      return rows[0]?.[0] === true;
    },

    /** Appends an event for every gap that is due. */
    async publish(session: Work, nowMs: number): Promise<Published> {
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
      await session.query("update gap set told_ms = $2::bigint where source = $1 and id = any($3::bigint[])", [
        source,
        String(nowMs),
        plainList(rows.map(([id]) => Number(id))),
      ]);
      return { appending, answer };
    },

    /** Removes the oldest dead letters beyond a number of bytes; returns what their sinks lose by it. */
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
      const { rows } = await query(
        "select coalesce(sum(octet_length(body)), 0) > $2::bigint from dead_letter where source = $1",
        [source, String(Math.floor(maxBytes))],
      );
      return rows[0]?.[0] === true;
    },
  };
}

/** Appended events of gaps; null where there were none. */
type Published = { readonly appending: Appending; readonly answer: QueryResult } | null;

const DUE = `select ${COLUMNS} from gap where source = $1 and told_ms is null and not exists
  (select 1 from gap as told where told.source = $1 and told.sink = gap.sink and told.reason = gap.reason
   and told.told_ms > $2::bigint and told.told_ms <= $3::bigint)`;

function momentsOf(nowMs: number): readonly [string, string] {
  return [String(nowMs - MERGE_MS), String(nowMs)];
}

function toGap([, sink, reason, firstTime, lastTime, count, atMs]: QueryResult["rows"][number]): StoredGap {
  return {
    sink: String(sink),
    reason: reason === "age" ? "age" : "size",
    firstTime: String(firstTime),
    lastTime: String(lastTime),
    count: Number(count),
    at: isoUtc(Number(atMs)),
  };
}
