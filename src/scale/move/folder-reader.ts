import { sourceName } from "../../core/model/event.ts";
import { newEpoch } from "../../engine/store/damage.ts";
import type { Database } from "../../engine/store/sqlite.ts";
import { storedBody, storedKey, storedText } from "../postgres/keys.ts";
import { assignDocuments, sourceOfSet } from "./document-owners.ts";
import type { Moving, Row } from "./rows.ts";

/** Rows that stay in the folder. */
export interface LeftBehind {
  readonly what: string;
  readonly rows: number;
}

export interface FolderReader {
  /** Configured sources, then others found in the state. */
  readonly sources: readonly string[];
  /** Yields each row for each source that gets it. Iterate once. */
  rows(): Generator<Moving>;
  /** Last position and bytes by source; complete after `rows`. */
  ends(): { readonly position: number; readonly bytes: ReadonlyMap<string, number> };
  leftBehind(): readonly LeftBehind[];
}

export interface FolderReaderOptions {
  /** As configured. */
  readonly sources: readonly string[];
  /** Values to read instead of the stored ones, by set and key; undefined skips a document. */
  readonly instead: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  /** Opened for reading while the worker's lock is held. */
  readonly database: Database;
  /**
   * Difference of the database's clock to this machine's, in milliseconds: members store spent slots in the database's
   * time.
   */
  readonly shiftMs: number;
  /** The first record of a source's own part of a log; null when it needs none. */
  readonly closing: (log: string, source: string, last: LastRecord) => unknown;
}

export interface LastRecord {
  readonly sequence: number;
  readonly body: unknown;
}

const PAGE = 500;
/** Events can have 100 kB. */
const EVENT_PAGE = 100;

interface DocumentRow {
  readonly key: string;
  readonly body: string;
}

/**
 * Reads a folder's state as rows of its sources. Positions do not change, so cursors, marks, dead letters, incidents
 * and the files of a lake stay valid. A source's positions then have gaps for events of other sources, and every source
 * continues after the last position of all.
 *
 *   folder    1 a   2 b   3 b   4 a   5 b │ cursor of a sink: 3
 *   source a  1           ·     4         │ 3, last position 5
 *   source b        2     3           5   │ 3, last position 5
 * /
 */
export function readFolder(options: FolderReaderOptions): FolderReader {
  const { database, sources } = options;
  const [first = ""] = sources;
  const configured = new Set(sources);
  const home = (source: string | null) => (source !== null && configured.has(source) ? source : first);
  const all = [...sources, ...foundSources().filter((source) => !configured.has(source))];
  const end = database.number("select coalesce(max(seq), 0) from sqlite_sequence where name = 'event'");
  const written = new Map<string, number>();
  const left: LeftBehind[] = [];

  function setNames(): readonly string[] {
    return database
      .prepare("select distinct set_name as name from document order by set_name")
      .all<{ readonly name: string }>()
      .map(({ name }) => name);
  }

  function foundSources(): readonly string[] {
    const buckets = database
      .prepare("select bucket from quota union select bucket from quota_hold where bucket not like 'clock %'")
      .all<{ readonly bucket: string }>();
    const names = [...setNames().map(sourceOfSet), ...buckets.map(({ bucket }) => sourceOfBucket(bucket))];
    return [...new Set(names.filter((name) => name !== null))].toSorted();
  }

  /** Yields all rows of a query with the parameters last key and limit, page by page. */
  function* paged<T>(sql: string, keyOf: (row: T) => string | number, before: string | number, page = PAGE) {
    let after = before;
    for (;;) {
      const rows = database.prepare(sql).all<T>(after, page);
      yield* rows;
      const last = rows.at(-1);
      if (last === undefined || rows.length < page) return;
      after = keyOf(last);
    }
  }

  function* documents(): Generator<Moving> {
    for (const set of new Set([...setNames(), ...options.instead.keys()])) {
      const source = sourceOfSet(set);
      yield* source === null ? ownDocuments(set) : sourceDocuments(set, source);
    }
  }

  function* sourceDocuments(set: string, source: string): Generator<Moving> {
    const sql = `select key, body from document where set_name = '${set.replaceAll("'", "''")}' and key > ?
      order by key limit ?`;
    for (const { key, body } of paged<DocumentRow>(sql, (row) => row.key, "")) {
      yield ["document", { source, cells: [set, storedKey(key), storedBody(key, body)] }];
    }
  }

  function* ownDocuments(set: string): Generator<Moving> {
    const rows = database
      .prepare("select key, body from document where set_name = ? order by key")
      .all<DocumentRow>(set);
    const stored = new Map<string, unknown>(rows.map(({ key, body }) => [key, JSON.parse(body)]));
    for (const [key, value] of options.instead.get(set) ?? []) stored.set(key, value);
    const documents = [...stored].filter(([, value]) => value !== undefined);
    const shares = assignDocuments(
      set,
      documents.map(([key, value]) => ({ key, value })),
      sources,
    );
    if (shares === null) left.push({ what: `documents ${set}, which this version does not know`, rows: rows.length });
    for (const { source, key, value } of shares ?? []) {
      yield ["document", { source, cells: [set, storedKey(key), storedBody(key, JSON.stringify(value) ?? "null")] }];
    }
  }

  /**
   * Every source gets each complete log, so that its hash chain stays verifiable, and continues it by itself. A damaged
   * record keeps its sequence number with an empty body, and the chain stays broken there.
   */
  function* records(): Generator<Moving> {
    const logs = database.prepare("select distinct log from record order by log").all<{ readonly log: string }>();
    for (const { log } of logs) {
      const sql = `select sequence, iif(checksum is null, '{}', body) as body from record
        where log = '${log.replaceAll("'", "''")}' and sequence > ? order by sequence limit ?`;
      let last: { readonly sequence: number; readonly body: string } = { sequence: 0, body: "{}" };
      for (last of paged<typeof last>(sql, (row) => row.sequence, 0)) {
        for (const source of sources) yield record(source, log, last.sequence, last.body);
      }
      for (const source of sources) {
        const closing = options.closing(log, source, {
          sequence: last.sequence,
          body: JSON.parse(last.body),
        });
        if (closing !== null) yield record(source, log, last.sequence + 1, JSON.stringify(closing));
      }
    }
  }

  function record(source: string, log: string, sequence: number, body: string): Moving {
    return ["record", { source, cells: [log, String(sequence), body] }];
  }

  function* events(): Generator<Moving> {
    const sql = `select position, id, kind, telemetry, committed_ms, bytes, body, body ->> '$.source' as origin
      from event where position > ? order by position limit ?`;
    for (const row of paged<StoredEvent>(sql, ({ position }) => position, 0, EVENT_PAGE)) {
      const source = home(sourceName({ source: row.origin }));
      const upTo = (written.get(source) ?? 0) + row.bytes;
      written.set(source, upTo);
      const { body, bytes, committed_ms, id, kind, position, telemetry } = row;
      const cells = [...texts(position, storedKey(id), kind, telemetry !== 0, committed_ms, bytes, upTo), body];
      yield ["event", { source, cells }];
    }
  }

  /**
   * Each source gets every sink with its cursor. Each source counts offers by itself: with several sources the count
   * starts again in new epochs.
   */
  function* sinks(): Generator<Moving> {
    const rows = database
      .prepare("select name, position, dropped, ended, counted, epoch, urgent from sink order by name")
      .all<StoredSink>();
    const isOne = sources.length === 1;
    for (const { name, position, dropped, ended, counted, epoch, urgent } of rows) {
      for (const source of sources) {
        const lost = source === first ? dropped : 0;
        const count = isOne ? texts(counted, epoch) : texts(0, newEpoch());
        yield ["sink", { source, cells: [...texts(name, position, lost, ended), ...count, String(urgent)] }];
      }
    }
  }

  /** The event or letter of a mark names its source. */
  function* marks(): Generator<Moving> {
    const rows = database
      .prepare(
        `select again.sink, again.position, coalesce(
           (select body ->> '$.source' from event where event.position = again.position),
           (select body ->> '$.source' from dead_letter as letter
             where letter.sink = again.sink and letter.position = again.position and letter.checksum is not null)
         ) as origin from again order by again.sink, again.position`,
      )
      .all<{ readonly sink: string; readonly position: number; readonly origin: string | null }>();
    for (const { sink, position, origin } of rows) {
      if (origin === null) continue;
      yield ["again", { source: home(sourceName({ source: origin })), cells: texts(sink, position) }];
    }
  }

  function* letters(): Generator<Moving> {
    const damaged = database.number("select count(*) from dead_letter where checksum is null");
    if (damaged > 0) left.push({ what: "dead letters, which are damaged", rows: damaged });
    const sql = `select id, sink, position, reason, at_ms, committed_ms, resending, number, epoch, body,
        body ->> '$.source' as origin
      from dead_letter where checksum is not null and id > ? order by id limit ?`;
    for (const row of paged<StoredLetter>(sql, ({ id }) => id, 0, EVENT_PAGE)) {
      const { sink, position, reason, at_ms, committed_ms, resending, number, epoch, body } = row;
      const times = texts(at_ms, committed_ms, resending !== 0, number, epoch);
      const cells = [...texts(sink, position, storedText(reason)), ...times, body];
      yield ["dead_letter", { source: home(sourceName({ source: row.origin })), cells }];
    }
  }

  /** Gaps have no source, so they go to the first one. */
  function* gaps(): Generator<Moving> {
    const rows = database
      .prepare("select sink, reason, first_time, last_time, count, at_ms, told_ms from gap order by id")
      .all<Readonly<Record<string, string | number | null>>>();
    for (const row of rows) yield ["gap", { source: first, cells: texts(...Object.values(row)) }];
  }

  function* ages(): Generator<Moving> {
    const rows = database
      .prepare("select ran_ms, newest, settled from age_mark order by ran_ms")
      .all<Readonly<Record<string, number>>>();
    for (const row of rows) {
      for (const source of sources) yield ["age_mark", { source, cells: texts(...Object.values(row)) }];
    }
  }

  function* quota(): Generator<Moving> {
    const slots = database
      .prepare(
        "select bucket, id, sent_ms + ?1 as sent_ms, counted_ms + ?1 as counted_ms from quota order by bucket, id",
      )
      .all<{ readonly bucket: string }>(options.shiftMs);
    for (const slot of slots) yield ["quota", ofBucket(slot)];
    const holds = database
      .prepare(
        `select bucket, said_ms + ?1 as said_ms, until_ms + ?1 as until_ms from quota_hold
         where bucket not like 'clock %' order by bucket`,
      )
      .all<{ readonly bucket: string }>(options.shiftMs);
    for (const hold of holds) yield ["quota_hold", ofBucket(hold)];
    const clocks = database
      .prepare("select bucket, said_ms, until_ms from quota_hold where bucket like 'clock %' order by bucket")
      .all<{ readonly bucket: string; readonly said_ms: number; readonly until_ms: number }>();
    for (const { bucket: stored, said_ms, until_ms } of clocks) {
      // `clock <bucket> <boot>`; no bucket has a blank in it.
      const [, bucket = "", boot = ""] = stored.split(" ");
      yield ["quota_clock", ofBucket({ bucket, boot, said_ms, until_ms })];
    }
  }

  function ofBucket<T extends { readonly bucket: string }>(row: T): Row {
    return { source: sourceOfBucket(row.bucket), cells: texts(...Object.values(row)) };
  }

  return {
    sources: all,
    *rows() {
      yield* documents();
      yield* records();
      yield* events();
      yield* sinks();
      yield* marks();
      yield* letters();
      yield* gaps();
      yield* ages();
      yield* quota();
    },
    ends: () => ({ position: end, bytes: written }),
    leftBehind: () => left,
  };
}

interface StoredEvent {
  readonly position: number;
  readonly id: string;
  readonly kind: string;
  readonly telemetry: number;
  readonly committed_ms: number;
  readonly bytes: number;
  readonly body: string;
  readonly origin: string;
}

interface StoredSink {
  readonly name: string;
  readonly position: number;
  readonly dropped: number;
  readonly ended: string | null;
  readonly counted: number;
  readonly epoch: string;
  readonly urgent: number;
}

interface StoredLetter {
  readonly id: number;
  readonly sink: string;
  readonly position: number;
  readonly reason: string;
  readonly at_ms: number;
  readonly committed_ms: number;
  readonly resending: number;
  readonly number: number | null;
  readonly epoch: string | null;
  readonly body: string;
  readonly origin: string;
}

/** Source of a bucket, which is a source or one of its endpoints: `main`, `main/values`. */
function sourceOfBucket(bucket: string): string {
  const slash = bucket.indexOf("/");
  return slash < 0 ? bucket : bucket.slice(0, slash);
}

function texts(...values: readonly unknown[]): readonly (string | null)[] {
  return values.map((value) => (value === null ? null : String(value)));
}
