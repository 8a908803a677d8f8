import { eventSourceName } from "../../core/model/event.ts";
import { quoteSqlText } from "../../core/postgres/sql-quoting.ts";
import { createEpoch } from "../../engine/store/damage-quarantine.ts";
import { toJson } from "../../engine/store/documents.ts";
import type { Database } from "../../engine/store/sqlite.ts";
import { encodeDocumentBody, encodeKeyForPostgres, encodePostgresText } from "../postgres/document-store.ts";
import { assignDocuments, sourceInSetName } from "./assign-documents-to-sources.ts";
import type { MovedRow } from "./moved-rows.ts";

export interface UnmovedRows {
  readonly what: string;
  readonly rows: number;
}

export type FolderReader = ReturnType<typeof readStateRows>;

export interface FolderReaderOptions {
  readonly sources: readonly string[];
  /** By set and key: contents that replace the stored documents; undefined leaves a document out. */
  readonly replacements: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  /** The folder's database, opened for reading while the worker's lock is held. */
  readonly database: Database;
  /** Milliseconds by which the database's clock is ahead, because a fleet stores quota slots in the database's time. */
  readonly clockShiftMs: number;
  /** Returns the last record to add to a source's copy of a log, e.g. the audit log; null if the log needs none. */
  readonly closingRecord: (log: string, source: string, lastRecord: LastLogRecord) => unknown;
}

export interface LastLogRecord {
  readonly sequence: number;
  readonly body: unknown;
}

const ROWS_PER_READ = 500;
const EVENTS_PER_READ = 100;

type SqliteRowValues = Readonly<Record<string, string | number | null>>;

/**
 * Reads a folder's state as rows of its sources. Event positions do not change; every source continues after the last.
 *
 *   folder    1 a   2 b   3 b   4 a   5 b │ cursor of a sink: 3
 *   source a  1           ·     4         │ 3, last position 5
 *   source b        2     3           5   │ 3, last position 5
 */
export function readStateRows(options: FolderReaderOptions) {
  const { database, sources, clockShiftMs } = options;
  const [first = ""] = sources;
  const configuredSources = new Set(sources);
  const ownerSourceOf = (source: string | null) => (source !== null && configuredSources.has(source) ? source : first);
  const ownerOfEvent = (origin: string) => ownerSourceOf(eventSourceName({ source: origin }));
  const query = <Row = SqliteRowValues>(sql: string, ...values: readonly (string | number)[]) =>
    database.prepare(sql).all<Row>(...values);
  const namesOfSets = query<{ name: string }>("select distinct set_name as name from document order by set_name");
  const lastPosition = database.number("select coalesce(max(seq), 0) from sqlite_sequence where name = 'event'");
  const eventBytesBySource = new Map<string, number>();
  const unmovedRows: UnmovedRows[] = [];

  function findStoredSources(): readonly string[] {
    const quotaBuckets = query<{ bucket: string }>(
      "select bucket from quota union select bucket from quota_hold where bucket not like 'clock %'",
    );
    const storedSourceNames = [
      ...namesOfSets.map(({ name }) => sourceInSetName(name)),
      ...quotaBuckets.map(({ bucket }) => sourceInBucketName(bucket)),
    ];
    return [...new Set(storedSourceNames.filter((name) => name !== null))].toSorted();
  }

  /** Yields all rows of a query, page by page. The query ends with `key > ? order by key limit ?`. */
  function* readPages<Row extends object>(sql: string, key: keyof Row, after: string | number, limit = ROWS_PER_READ) {
    let lastKey = after;
    for (;;) {
      const rows = query<Row>(sql, lastKey, limit);
      yield* rows;
      const lastRowOfPage = rows.at(-1);
      if (lastRowOfPage === undefined || rows.length < limit) return;
      lastKey = lastRowOfPage[key] as string | number;
    }
  }

  function* documents(): Generator<MovedRow> {
    for (const setName of new Set([...namesOfSets.map(({ name }) => name), ...options.replacements.keys()])) {
      const source = sourceInSetName(setName);
      yield* source === null ? workerDocuments(setName) : sourceDocuments(setName, source);
    }
  }

  const buildDocumentRow = (source: string, setName: string, key: string, body: string): MovedRow => [
    "document",
    source,
    { set_name: setName, key: encodeKeyForPostgres(key), body: encodeDocumentBody(key, body) },
  ];

  function* sourceDocuments(setName: string, source: string): Generator<MovedRow> {
    const sql = `select key, body from document where set_name = ${quoteSqlText(setName)} and key > ? order by key limit ?`;
    for (const { key, body } of readPages<{ key: string; body: string }>(sql, "key", ""))
      yield buildDocumentRow(source, setName, key, body);
  }

  function* workerDocuments(setName: string): Generator<MovedRow> {
    const rows = query<{ key: string; body: string }>(
      "select key, body from document where set_name = ? order by key",
      setName,
    );
    const values = new Map<string, unknown>(rows.map(({ key, body }) => [key, JSON.parse(body)]));
    for (const [key, value] of options.replacements.get(setName) ?? []) values.set(key, value);
    const storedDocuments = [...values].flatMap(([key, value]) => (value === undefined ? [] : [{ key, value }]));
    const assignedDocuments = assignDocuments(setName, storedDocuments, sources);
    if (assignedDocuments === null)
      unmovedRows.push({ what: `documents ${setName}, which this version does not know`, rows: rows.length });
    for (const { source, key, value } of assignedDocuments ?? [])
      yield buildDocumentRow(source, setName, key, toJson(value));
  }

  /** Yields all records of each log once per source, so that the source can verify and continue the hash chain. */
  function* records(): Generator<MovedRow> {
    for (const { log } of query<{ log: string }>("select distinct log from record order by log")) {
      const sql = `select sequence, iif(checksum is null, '{}', body) as body from record
        where log = ${quoteSqlText(log)} and sequence > ? order by sequence limit ?`;
      let lastRecord = { sequence: 0, body: "{}" };
      for (lastRecord of readPages<typeof lastRecord>(sql, "sequence", 0)) {
        for (const source of sources) yield ["record", source, { log, ...lastRecord }];
      }
      for (const source of sources) {
        const { sequence, body } = lastRecord;
        const closingLogRecord = options.closingRecord(log, source, { sequence, body: JSON.parse(body) });
        if (closingLogRecord === null) continue;
        yield ["record", source, { log, sequence: sequence + 1, body: JSON.stringify(closingLogRecord) }];
      }
    }
  }

  function* events(): Generator<MovedRow> {
    const sql = `select position, id, kind, telemetry, committed_ms, bytes, body, body ->> '$.source' as origin
      from event where position > ? order by position limit ?`;
    type EventRow = SqliteRowValues & { position: number; id: string; bytes: number; origin: string };
    for (const row of readPages<EventRow>(sql, "position", 0, EVENTS_PER_READ)) {
      const source = ownerOfEvent(row.origin);
      const totalEventBytes = (eventBytesBySource.get(source) ?? 0) + row.bytes;
      eventBytesBySource.set(source, totalEventBytes);
      const id = encodeKeyForPostgres(row.id);
      yield ["event", source, { ...row, id, telemetry: row.telemetry !== 0, written: totalEventBytes }];
    }
  }

  /** Yields every sink with its cursor for each source. With several sources, sequence numbers start in new epochs. */
  function* sinks(): Generator<MovedRow> {
    for (const row of query("select name, position, dropped, ended, counted, epoch, urgent from sink order by name")) {
      for (const source of sources) {
        const newSequenceColumns = sources.length === 1 ? {} : { counted: 0, epoch: createEpoch() };
        yield ["sink", source, { ...row, ...newSequenceColumns, dropped: source === first ? row.dropped : 0 }];
      }
    }
  }

  /** Yields the positions of events that a sink has to receive again. */
  function* resends(): Generator<MovedRow> {
    const rows = query<{ sink: string; position: number; origin: string | null }>(
      `select again.sink, again.position, coalesce(
         (select body ->> '$.source' from event where event.position = again.position),
         (select body ->> '$.source' from dead_letter as letter
           where letter.sink = again.sink and letter.position = again.position and letter.checksum is not null)
       ) as origin from again order by again.sink, again.position`,
    );
    for (const row of rows) {
      if (row.origin !== null) yield ["again", ownerOfEvent(row.origin), { ...row }];
    }
  }

  function* deadLetters(): Generator<MovedRow> {
    const damagedCount = database.number("select count(*) from dead_letter where checksum is null");
    if (damagedCount > 0) unmovedRows.push({ what: "dead letters, which are damaged", rows: damagedCount });
    const sql = `select id, sink, position, reason, at_ms, committed_ms, resending, number, epoch, body,
        body ->> '$.source' as origin
      from dead_letter where checksum is not null and id > ? order by id limit ?`;
    type DeadLetterRow = SqliteRowValues & { id: number; reason: string; origin: string };
    for (const row of readPages<DeadLetterRow>(sql, "id", 0, EVENTS_PER_READ)) {
      const source = ownerOfEvent(row.origin);
      yield ["dead_letter", source, { ...row, reason: encodePostgresText(row.reason), resending: row.resending !== 0 }];
    }
  }

  function* gapsAndAges(): Generator<MovedRow> {
    // A recorded gap in delivery belongs to no source, so the first source gets all gaps.
    for (const gap of query("select sink, reason, first_time, last_time, count, at_ms, told_ms from gap order by id"))
      yield ["gap", first, { ...gap }];
    for (const age of query("select ran_ms, newest, settled from age_mark order by ran_ms")) {
      for (const source of sources) yield ["age_mark", source, { ...age }];
    }
  }

  function* quota(): Generator<MovedRow> {
    const quotaSlots = query(
      "select bucket, id, sent_ms + ?1 as sent_ms, counted_ms + ?1 as counted_ms from quota order by bucket, id",
      clockShiftMs,
    );
    for (const slot of quotaSlots) yield ["quota", sourceInBucketName(String(slot.bucket)), { ...slot }];
    const quotaPauses = query(
      `select bucket, said_ms + ?1 as said_ms, until_ms + ?1 as until_ms from quota_hold
       where bucket not like 'clock %' order by bucket`,
      clockShiftMs,
    );
    for (const pause of quotaPauses) yield ["quota_hold", sourceInBucketName(String(pause.bucket)), { ...pause }];
    const quotaClocks = query(
      `select bucket as key, said_ms as wall_ms, until_ms as since_boot_ms from quota_hold
       where bucket like 'clock %' order by bucket`,
    );
    for (const clock of quotaClocks) {
      // The key is `clock <bucket> <boot>`; a bucket contains no blank.
      const [, bucket = "", boot = ""] = String(clock.key).split(" ");
      yield ["quota_clock", sourceInBucketName(bucket), { ...clock, bucket, boot }];
    }
  }

  return {
    sources: [...new Set([...sources, ...findStoredSources()])] as readonly string[],
    /** Yields each row for each source that gets it. Must be iterated only once. */
    *rows(): Generator<MovedRow> {
      for (const rows of [documents, records, events, sinks, resends, deadLetters, gapsAndAges, quota]) yield* rows();
    },
    /** Returns the last event position and the bytes of events by source, after `rows` has ended. */
    endPositions: () => ({ position: lastPosition, bytes: eventBytesBySource as ReadonlyMap<string, number> }),
    leftBehind: (): readonly UnmovedRows[] => unmovedRows,
  };
}

/** Returns the source of a quota bucket: `main` for `main` and for its endpoint `main/values`. */
function sourceInBucketName(bucket: string): string {
  const slashIndex = bucket.indexOf("/");
  return slashIndex < 0 ? bucket : bucket.slice(0, slashIndex);
}
