import { eventIn } from "../../core/codec/stored-event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumSql } from "./checksum.ts";
import { EVENT_COLUMNS, type EventLog, type EventRow, isSound } from "./event-log.ts";
import type { LogCheck } from "./log-repair.ts";
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
} from "./outbox-rules.ts";
import { isSoundLetter, LETTER_COLUMNS, type LetterRow } from "./redeliveries.ts";
import type { Sinks } from "./sinks.ts";
import type { Database } from "./sqlite.ts";
import type { PruneReport, RetentionBounds, StoredGap } from "./store.ts";

/** Share of free pages from which the file is made smaller; below it SQLite uses them again. */
const FREE_SHARE = 0.25;
const VACUUM_PAGES = 200;

const slowestOr = (otherwise: string) =>
  `(select coalesce(min(sink.position), ${otherwise}) from sink where ended is null)`;
const SLOWEST = slowestOr("9e15");

/** SQL condition: every sink in use has settled the event, and none is to get it again. */
const SETTLED = `position <= ${SLOWEST}
  and not exists (select 1 from again where again.position = event.position)`;
const SQL = { settled: SETTLED, slowest: SLOWEST };

/**
 * Enforces the bounds of the log. A settled event goes when its replay window is over. An event that a sink has not
 * settled goes when it is too old or the log is full; then the sink gets a gap record and everybody a gap event.
 */
export function createRetention(
  database: Database,
  log: EventLog,
  sinks: Sinks,
  clock: Clock,
  check: LogCheck | undefined,
) {
  const gaps = createGaps(database, log, sinks);

  /** The next events of a sweep: at most one slice. */
  function pick({ condition, through, keepBytes }: Sweep): readonly Leaving[] {
    const excess = keepBytes === undefined ? SLICE_BYTES : log.bytes() - keepBytes;
    if (excess <= 0) return [];
    const rows = database
      .prepare(
        `select position, bytes, committed_ms from event where position <= ? and ${condition}
         order by position limit ${SLICE_ROWS}`,
      )
      .all<Leaving>(through);
    const last = lastWithinBytes(rows, Math.min(excess, SLICE_BYTES)) ?? 0;
    return rows.filter(({ position }) => position <= last);
  }

  function remove(rows: readonly Leaving[]): void {
    const event = database.prepare("delete from event where position = ?");
    for (const { position } of rows) event.run(position);
    log.removed(rows.at(-1)?.position ?? 0);
    const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
    database.prepare("update log_size set bytes = bytes - ?").run(bytes);
  }

  /** Returns the losses when these events go. A sink that was never offered one of them starts a new epoch. */
  function losses(
    rows: readonly Leaving[],
    reason: Loss["reason"],
    wanted: RetentionBounds["wanted"],
  ): readonly Loss[] {
    const known = database
      .prepare("select name, position, urgent from sink where ended is null")
      .all<{ readonly name: string; readonly position: number; readonly urgent: number }>();
    const marked = database.prepare("select 1 from again where sink = ? and position = ?");
    const row = database.prepare(`select ${EVENT_COLUMNS} from event where position = ?`);
    const { lost, withoutOffer } = lossesOf(rows, reason, {
      sinks: known,
      isMarked: (sink, position) => marked.get(sink, position) !== undefined,
      eventAt(position) {
        const found = row.get<EventRow>(position);
        return found !== undefined && isSound(found) ? eventIn(found.body) : null;
      },
      wanted,
    });
    for (const name of withoutOffer) sinks.beginEpoch(name);
    return lost;
  }

  /**
   * Notes the end of the log and the slowest cursor, and returns what is older than the bounds.
   *
   * Age is time in which a worker ran and its clock was not in doubt. A clock that is eight days ahead for 20 s makes no
   * event older than those 20 s. After two weeks without power, sinks still have all of `max_age` (7 days).
   */
  function older({ maxAgeMs, ranMs, replayMs }: RetentionBounds): Older {
    return database.transaction(() => {
      const ran = Math.round(database.number("select coalesce(max(ran_ms), 0) from age_mark") + ranMs);
      database
        .prepare(
          `insert into age_mark (ran_ms, newest, settled, checksum)
           select ?1, ?2, settled, row_checksum(?1, ?2, settled)
           from (select ${slowestOr("(select coalesce(max(position), 0) from event)")} as settled) where true
           on conflict do update set newest = excluded.newest, settled = excluded.settled, checksum = excluded.checksum`,
        )
        .run(ran, log.end());
      // The mark of that time; none when no worker has been running for so long.
      const at = (ms: number) =>
        database
          .prepare("select newest, settled from age_mark where ran_ms < ? order by ran_ms desc limit 1")
          .get<{ readonly newest: number; readonly settled: number }>(ran - ms);
      const found = { aged: at(maxAgeMs)?.newest ?? 0, replayed: at(replayMs)?.settled ?? 0 };
      database
        .prepare("delete from age_mark where ran_ms < (select max(ran_ms) from age_mark where ran_ms < ?)")
        .run(ran - Math.max(maxAgeMs, replayMs));
      return found;
    });
  }

  async function prune(bounds: RetentionBounds): Promise<PruneReport & { readonly told: number }> {
    const nowMs = clock.now();
    const recorded: StoredGap[] = [];
    let removed = 0;

    function record(lost: readonly Loss[]): void {
      const found = gapsOf(lost, nowMs);
      for (const gap of found) gaps.record(gap, nowMs);
      recorded.push(...found);
    }

    async function sweep(which: Sweep): Promise<void> {
      for (;;) {
        const slice = database.transaction(() => {
          const rows = pick(which);
          if (rows.length === 0) return rows;
          const lost = which.reason === null ? [] : losses(rows, which.reason, bounds.wanted);
          // Remove first: a transaction whose removal meets a damaged index runs again and must not record twice.
          remove(rows);
          record(lost);
          return rows;
        });
        if (slice.length === 0) return;
        check?.removed(slice);
        removed += slice.length;
        await yieldToEventLoop();
      }
    }

    for (const each of sweepsByAge(SQL, older(bounds))) await sweep(each);
    if (log.bytes() > bounds.maxBytes) for (const each of sweepsBySize(SQL, bounds.maxBytes)) await sweep(each);
    database.transaction(() => record(gaps.dropLetters(bounds.maxBytes * LETTER_SHARE)));
    const told = database.transaction(() => gaps.publish(clock.now()));
    await shrink();
    await check?.step();
    return { removed, gaps: joinGaps(recorded), told };
  }

  async function shrink(): Promise<void> {
    const free = () => database.number("pragma freelist_count");
    const leftFree = () => VACUUM_PAGES + database.number("pragma page_count") * FREE_SHARE;
    let before = Number.POSITIVE_INFINITY;
    // Stop when the file does not shrink any more: a file that was made without auto_vacuum never does.
    for (let now = free(); now < before && now > leftFree(); before = now, now = free()) {
      database.exec(`pragma incremental_vacuum(${VACUUM_PAGES})`);
      await yieldToEventLoop();
    }
  }

  return { prune, gaps: gaps.list };
}

interface GapRow extends Omit<StoredGap, "at"> {
  readonly id: number;
  readonly at_ms: number;
}

/** Columns of a gap that is not published yet when a loss joins it. */
const JOINED = {
  first_time: "min(gap.first_time, ?1)",
  last_time: "max(gap.last_time, ?2)",
  count: "gap.count + ?3",
};

const COLUMNS = "id, sink, reason, first_time as firstTime, last_time as lastTime, count, at_ms";

/** Records what sinks have lost and publishes it as events. Changes belong inside a transaction. */
function createGaps(database: Database, log: EventLog, sinks: Sinks) {
  return {
    list(sink: string | undefined): readonly StoredGap[] {
      return database
        .prepare(`select ${COLUMNS} from gap where ?1 is null or sink = ?1 order by id desc limit 1000`)
        .all<GapRow>(sink ?? null)
        .map(({ id: _id, at_ms, ...gap }) => ({ ...gap, at: isoUtc(at_ms) }));
    },

    /** Counts a loss; it joins the gap that is not published yet. */
    record({ sink, reason, firstTime, lastTime, count }: StoredGap, nowMs: number): void {
      sinks.addDropped(sink, count);
      const joined = database
        .prepare(
          `update gap set first_time = ${JOINED.first_time}, last_time = ${JOINED.last_time},
             count = ${JOINED.count}, checksum = ${checksumSql("gap", JOINED)}
           where sink = ?4 and reason = ?5 and told_ms is null and checksum is ${checksumSql("gap")}`,
        )
        .run(firstTime, lastTime, count, sink, reason);
      if (joined > 0) return;
      database
        .prepare(
          `insert into gap (sink, reason, first_time, last_time, count, at_ms, checksum)
           values (?1, ?2, ?3, ?4, ?5, ?6, row_checksum(?1, ?2, ?3, ?4, ?5, ?6, null))`,
        )
        .run(sink, reason, firstTime, lastTime, count, nowMs);
    },

    /** Appends an event for every gap that is due; returns how many. */
    publish(nowMs: number): number {
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
          .prepare(`update gap set told_ms = ?1, checksum = ${checksumSql("gap", { told_ms: "?1" })} where id = ?2`)
          .run(nowMs, id);
      }
      return due.length;
    },

    /** Removes the oldest dead letters beyond a number of bytes; returns what their sinks lose by it. */
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
