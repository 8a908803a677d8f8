import { sourceName } from "../../core/model/event.ts";
import { newEpoch } from "../../engine/store/damage.ts";
import type { Database } from "../../engine/store/sqlite.ts";
import { storedBody, storedKey, storedText } from "../postgres/documents.ts";
import { assignDocuments, sourceOfSet } from "./document-owners.ts";
import type { MovedRow } from "./rows.ts";

export interface LeftBehind {
  readonly what: string;
  readonly rows: number;
}

export type FolderReader = ReturnType<typeof readFolder>;

export interface FolderReaderOptions {
  readonly sources: readonly string[];
  /** Values to read instead of the stored ones, by set and key; undefined skips a document. */
  readonly replacements: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  /** Opened for reading while the worker's lock is held. */
  readonly database: Database;
  /** Database clock minus this machine's clock: members store spent slots in the database's time. */
  readonly shiftMs: number;
  /** The first record of a source's own part of a log; null when it needs none. */
  readonly closingRecord: (log: string, source: string, last: LastRecord) => unknown;
}

export interface LastRecord {
  readonly sequence: number;
  readonly body: unknown;
}

const PAGE_ROWS = 500;
const EVENT_PAGE_ROWS = 100;

type Values = Readonly<Record<string, string | number | null>>;

/**
 * Reads a folder's state as rows of its sources. Positions do not change; every source continues after the last
 * position.
 *
 *   folder    1 a   2 b   3 b   4 a   5 b │ cursor of a sink: 3
 *   source a  1           ·     4         │ 3, last position 5
 *   source b        2     3           5   │ 3, last position 5
 */
export function readFolder(options: FolderReaderOptions) {
  const { database, sources, shiftMs } = options;
  const [first = ""] = sources;
  const configured = new Set(sources);
  const ownerOf = (source: string | null) => (source !== null && configured.has(source) ? source : first);
  const ownerOfOrigin = (origin: string | null) => (origin === null ? null : ownerOf(sourceName({ source: origin })));
  const read = <Row = Values>(sql: string, ...values: readonly (string | number)[]) =>
    database.prepare(sql).all<Row>(...values);
  const setNames = read<{ name: string }>("select distinct set_name as name from document order by set_name");
  const end = database.number("select coalesce(max(seq), 0) from sqlite_sequence where name = 'event'");
  const bytesBySource = new Map<string, number>();
  const leftBehindRows: LeftBehind[] = [];

  function foundSources(): readonly string[] {
    const buckets = read<{ bucket: string }>(
      "select bucket from quota union select bucket from quota_hold where bucket not like 'clock %'",
    );
    const names = [
      ...setNames.map(({ name }) => sourceOfSet(name)),
      ...buckets.map(({ bucket }) => sourceOfBucket(bucket)),
    ];
    return [...new Set(names.filter((name) => name !== null))].toSorted();
  }

  /** Yields all rows of a query, page by page. The query ends with a condition on the key, its order and a limit. */
  function* paged<Row extends object>(sql: string, key: keyof Row, before: string | number, page = PAGE_ROWS) {
    let after = before;
    for (;;) {
      const rows = read<Row>(sql, after, page);
      yield* rows;
      const last = rows.at(-1);
      if (last === undefined || rows.length < page) return;
      after = last[key] as string | number;
    }
  }

  function* documents(): Generator<MovedRow> {
    for (const set of new Set([...setNames.map(({ name }) => name), ...options.replacements.keys()])) {
      const source = sourceOfSet(set);
      yield* source === null ? workerDocuments(set) : sourceDocuments(set, source);
    }
  }

  const documentRow = (source: string, set: string, key: string, body: string): MovedRow => [
    "document",
    source,
    { set_name: set, key: storedKey(key), body: storedBody(key, body) },
  ];

  function* sourceDocuments(set: string, source: string): Generator<MovedRow> {
    const sql = `select key, body from document where set_name = ${quotedText(set)} and key > ? order by key limit ?`;
    for (const { key, body } of paged<{ key: string; body: string }>(sql, "key", "")) {
      yield documentRow(source, set, key, body);
    }
  }

  function* workerDocuments(set: string): Generator<MovedRow> {
    const rows = read<{ key: string; body: string }>(
      "select key, body from document where set_name = ? order by key",
      set,
    );
    const values = new Map<string, unknown>(rows.map(({ key, body }) => [key, JSON.parse(body)]));
    for (const [key, value] of options.replacements.get(set) ?? []) values.set(key, value);
    const stored = [...values].flatMap(([key, value]) => (value === undefined ? [] : [{ key, value }]));
    const assigned = assignDocuments(set, stored, sources);
    if (assigned === null)
      leftBehindRows.push({ what: `documents ${set}, which this version does not know`, rows: rows.length });
    for (const { source, key, value } of assigned ?? []) {
      yield documentRow(source, set, key, JSON.stringify(value) ?? "null");
    }
  }

  /** Every source gets each complete log, so that its hash chain stays verifiable, and continues it. */
  function* records(): Generator<MovedRow> {
    for (const { log } of read<{ log: string }>("select distinct log from record order by log")) {
      const sql = `select sequence, iif(checksum is null, '{}', body) as body from record
        where log = ${quotedText(log)} and sequence > ? order by sequence limit ?`;
      let last = { sequence: 0, body: "{}" };
      for (last of paged<typeof last>(sql, "sequence", 0)) {
        for (const source of sources) yield ["record", source, { log, ...last }];
      }
      for (const source of sources) {
        const { sequence, body } = last;
        const closingRecord = options.closingRecord(log, source, { sequence, body: JSON.parse(body) });
        if (closingRecord === null) continue;
        yield ["record", source, { log, sequence: sequence + 1, body: JSON.stringify(closingRecord) }];
      }
    }
  }

  function* events(): Generator<MovedRow> {
    const sql = `select position, id, kind, telemetry, committed_ms, bytes, body, body ->> '$.source' as origin
      from event where position > ? order by position limit ?`;
    type EventRow = Values & { position: number; id: string; bytes: number; origin: string };
    for (const row of paged<EventRow>(sql, "position", 0, EVENT_PAGE_ROWS)) {
      const source = ownerOf(sourceName({ source: row.origin }));
      const total = (bytesBySource.get(source) ?? 0) + row.bytes;
      bytesBySource.set(source, total);
      yield ["event", source, { ...row, id: storedKey(row.id), telemetry: row.telemetry !== 0, written: total }];
    }
  }

  /** Each source gets every sink with its cursor. With several sources, offers are counted from 1 in new epochs. */
  function* sinks(): Generator<MovedRow> {
    for (const row of read("select name, position, dropped, ended, counted, epoch, urgent from sink order by name")) {
      for (const source of sources) {
        const count = sources.length === 1 ? {} : { counted: 0, epoch: newEpoch() };
        yield ["sink", source, { ...row, ...count, dropped: source === first ? row.dropped : 0 }];
      }
    }
  }

  /** The event or letter of a mark names its source. */
  function* marks(): Generator<MovedRow> {
    const rows = read<{ sink: string; position: number; origin: string | null }>(
      `select again.sink, again.position, coalesce(
         (select body ->> '$.source' from event where event.position = again.position),
         (select body ->> '$.source' from dead_letter as letter
           where letter.sink = again.sink and letter.position = again.position and letter.checksum is not null)
       ) as origin from again order by again.sink, again.position`,
    );
    for (const row of rows) {
      const source = ownerOfOrigin(row.origin);
      if (source !== null) yield ["again", source, { ...row }];
    }
  }

  function* letters(): Generator<MovedRow> {
    const damaged = database.number("select count(*) from dead_letter where checksum is null");
    if (damaged > 0) leftBehindRows.push({ what: "dead letters, which are damaged", rows: damaged });
    const sql = `select id, sink, position, reason, at_ms, committed_ms, resending, number, epoch, body,
        body ->> '$.source' as origin
      from dead_letter where checksum is not null and id > ? order by id limit ?`;
    type LetterRow = Values & { id: number; reason: string; origin: string };
    for (const row of paged<LetterRow>(sql, "id", 0, EVENT_PAGE_ROWS)) {
      const source = ownerOf(sourceName({ source: row.origin }));
      yield ["dead_letter", source, { ...row, reason: storedText(row.reason), resending: row.resending !== 0 }];
    }
  }

  function* gapsAndAges(): Generator<MovedRow> {
    // Gaps have no source, so they go to the first one.
    const gaps = read("select sink, reason, first_time, last_time, count, at_ms, told_ms from gap order by id");
    for (const gap of gaps) yield ["gap", first, { ...gap }];
    for (const age of read("select ran_ms, newest, settled from age_mark order by ran_ms")) {
      for (const source of sources) yield ["age_mark", source, { ...age }];
    }
  }

  function* quota(): Generator<MovedRow> {
    const slots = read(
      "select bucket, id, sent_ms + ?1 as sent_ms, counted_ms + ?1 as counted_ms from quota order by bucket, id",
      shiftMs,
    );
    for (const slot of slots) yield ["quota", sourceOfBucket(String(slot.bucket)), { ...slot }];
    const pauses = read(
      `select bucket, said_ms + ?1 as said_ms, until_ms + ?1 as until_ms from quota_hold
       where bucket not like 'clock %' order by bucket`,
      shiftMs,
    );
    for (const pause of pauses) yield ["quota_hold", sourceOfBucket(String(pause.bucket)), { ...pause }];
    const clocks = read(
      `select bucket as key, said_ms as wall_ms, until_ms as since_boot_ms from quota_hold
       where bucket like 'clock %' order by bucket`,
    );
    for (const clock of clocks) {
      // `clock <bucket> <boot>`; no bucket has a blank in it.
      const [, bucket = "", boot = ""] = String(clock.key).split(" ");
      yield ["quota_clock", sourceOfBucket(bucket), { ...clock, bucket, boot }];
    }
  }

  return {
    sources: [...sources, ...foundSources().filter((source) => !configured.has(source))] as readonly string[],
    /** Yields each row for each source that gets it. Iterate once. */
    *rows(): Generator<MovedRow> {
      for (const part of [documents, records, events, sinks, marks, letters, gapsAndAges, quota]) yield* part();
    },
    /** Last position and bytes by source; complete after `rows`. */
    ends: () => ({ position: end, bytes: bytesBySource as ReadonlyMap<string, number> }),
    leftBehind: (): readonly LeftBehind[] => leftBehindRows,
  };
}

/** Source of a bucket, which is a source or one of its endpoints: `main`, `main/values`. */
function sourceOfBucket(bucket: string): string {
  const slash = bucket.indexOf("/");
  return slash < 0 ? bucket : bucket.slice(0, slash);
}

function quotedText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
