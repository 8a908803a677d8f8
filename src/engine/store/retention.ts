import { eventIn } from "../../core/codec/stored-event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { checksumSql } from "./checksum.ts";
import { EVENT_COLUMNS, type EventLog, type EventRow, isSound, lastWithin } from "./event-log.ts";
import type { LogCheck } from "./log-repair.ts";
import {
  createGapSums,
  EMPTIED_TO,
  gapEvent,
  LETTER_SHARE,
  type Loss,
  lossesOf,
  MERGE_MS,
  RETAINED_MS,
  SLICE_BYTES,
  SLICE_ROWS,
  summed,
} from "./outbox-rules.ts";
import { isSoundLetter, LETTER_COLUMNS, type LetterRow } from "./redeliveries.ts";
import type { Sinks } from "./sinks.ts";
import type { Database } from "./sqlite.ts";
import type { PruneReport, RetentionBounds, StoredGap } from "./store.ts";

/** Free pages are used again first; only when they are this share of the file is it made smaller. */
const FREE_SHARE = 0.25;
const VACUUM_PAGES = 200;

/** Everything is settled up to the slowest sink in use; what is marked to be sent again is not. */
const SETTLED = `position <= (select coalesce(min(sink.position), 9e15) from sink where ended is null)
  and not exists (select 1 from again where again.position = event.position)`;

interface Candidate {
  readonly position: number;
  readonly bytes: number;
  readonly committed_ms: number;
}

interface Mark {
  readonly newest: number;
  readonly settled: number;
}

/** Positions up to which something is older than its bound; 0 when nothing is. */
interface Older {
  readonly aged: number;
  readonly replayed: number;
}

/**
 * Enforces the bounds of the log. What every sink has settled goes when its replay window is over; what a sink
 * has not settled goes when it is too old or there is no space, and then the sink is told what it lost.
 */
export function createRetention(
  database: Database,
  log: EventLog,
  sinks: Sinks,
  clock: Clock,
  check: LogCheck | undefined,
) {
  const gaps = createGaps(database, log, sinks);

  function candidates(
    condition: string,
    maxBytes: number,
    ...values: readonly number[]
  ): readonly Candidate[] {
    const rows = database
      .prepare(
        `select position, bytes, committed_ms from event where ${condition} order by position limit ${SLICE_ROWS}`,
      )
      .all<Candidate>(...values);
    const last = lastWithin(rows, Math.min(maxBytes, SLICE_BYTES)) ?? 0;
    return rows.filter(({ position }) => position <= last);
  }

  function remove(rows: readonly Candidate[]): void {
    const event = database.prepare("delete from event where position = ?");
    for (const { position } of rows) event.run(position);
    log.removed(rows.at(-1)?.position ?? 0);
    const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
    database.prepare("update log_size set bytes = bytes - ?").run(bytes);
  }

  /** Who loses what when these events go, as far as they wanted it. Whoever was not offered one yet counts anew. */
  function losses(
    rows: readonly Candidate[],
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
        // Of a damaged event nobody knows who wanted it: it counts as lost to all who had not got it.
        return found !== undefined && isSound(found) ? eventIn(found.body) : null;
      },
      wanted,
    });
    for (const name of withoutOffer) sinks.beginEpoch(name);
    return lost;
  }

  /**
   * Notes how far the log reaches and everybody is, and answers what is older than the bounds: up to which position.
   *
   * Ages are counted in time that workers were running by a clock that was not in doubt, and not by wall time: a clock
   * that is eight days ahead for 20 seconds makes no event older than those 20 seconds, and a machine that was off for
   * two weeks gives its sinks the whole of `max_age` (7 days) when it is back.
   */
  function older({ maxAgeMs, ranMs, replayMs }: RetentionBounds): Older {
    return database.transaction(() => {
      const ran = Math.round(database.number("select coalesce(max(ran_ms), 0) from age_mark") + ranMs);
      database
        .prepare(
          `insert into age_mark (ran_ms, newest, settled, checksum)
           select ?1, ?2, settled, row_checksum(?1, ?2, settled) from (select ${SLOWEST_OR_NEWEST} as settled) where true
           on conflict do update set newest = excluded.newest, settled = excluded.settled, checksum = excluded.checksum`,
        )
        .run(ran, log.end());
      const at = (ms: number) => markAt(ran - ms) ?? { newest: 0, settled: 0 };
      const found = { aged: at(maxAgeMs).newest, replayed: at(replayMs).settled };
      const oldest = ran - Math.max(maxAgeMs, replayMs);
      database
        .prepare("delete from age_mark where ran_ms < (select max(ran_ms) from age_mark where ran_ms < ?)")
        .run(oldest);
      return found;
    });
  }

  /** As it was noted then; undefined when no worker has been running for so long. */
  function markAt(ran: number): Mark | undefined {
    return database
      .prepare("select newest, settled from age_mark where ran_ms < ? order by ran_ms desc limit 1")
      .get<Mark>(ran);
  }

  async function prune(bounds: RetentionBounds): Promise<PruneReport & { readonly told: number }> {
    const run = gaps.gather(clock.now());
    let removed = 0;

    /** Removes in slices what `pick` finds, until it finds nothing. */
    async function sweep(pick: () => readonly Candidate[], reason: Loss["reason"] | null): Promise<void> {
      for (;;) {
        const slice = database.transaction(() => {
          const rows = pick();
          if (rows.length === 0) return rows;
          const lost = reason === null ? [] : losses(rows, reason, bounds.wanted);
          // Before it is summed up: a transaction whose removal meets a damaged index is done once more.
          remove(rows);
          run.add(lost);
          return rows;
        });
        if (slice.length === 0) return;
        check?.removed(slice);
        removed += slice.length;
        await yieldToEventLoop();
      }
    }

    const { aged, replayed } = older(bounds);
    await sweep(() => candidates(`position <= ? and ${SETTLED}`, SLICE_BYTES, replayed), null);
    await sweep(() => candidates(`position > ${SLOWEST} and position <= ?`, SLICE_BYTES, aged), "age");

    if (log.bytes() > bounds.maxBytes) {
      const target = bounds.maxBytes * EMPTIED_TO;
      const whileFull = (condition: string) => () =>
        log.bytes() > target ? candidates(condition, log.bytes() - target) : [];
      await sweep(whileFull(`telemetry = 1 and ${SETTLED}`), null);
      await sweep(whileFull(`telemetry = 0 and ${SETTLED}`), null);
      await sweep(whileFull("telemetry = 1"), "size");
      await sweep(whileFull("telemetry = 0"), "size");
    }

    database.transaction(() => run.add(gaps.dropLetters(bounds.maxBytes * LETTER_SHARE)));
    const told = database.transaction(() => gaps.tell(clock.now()));
    await shrink();
    await check?.step();
    return { removed, gaps: run.report(), told };
  }

  async function shrink(): Promise<void> {
    const free = () => database.number("pragma freelist_count");
    let before = Number.POSITIVE_INFINITY;
    // A file that gives nothing back (made without space for that) must not be asked for ever.
    for (let now = free(); now < before && now > leftFree(); before = now, now = free()) {
      database.exec(`pragma incremental_vacuum(${VACUUM_PAGES})`);
      await yieldToEventLoop();
    }
  }

  function leftFree(): number {
    return VACUUM_PAGES + database.number("pragma page_count") * FREE_SHARE;
  }

  return { prune, gaps: (sink?: string): readonly StoredGap[] => gaps.list(sink) };
}

const SLOWEST = "(select coalesce(min(sink.position), 9e15) from sink where ended is null)";

const SLOWEST_OR_NEWEST = `(select coalesce(min(sink.position), (select coalesce(max(position), 0) from event))
  from sink where ended is null)`;

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
