import { createWakeup } from "../../core/runtime/waiting.ts";
import { FencedError } from "../../engine/store/fenced-store.ts";
import { createOutbox } from "../../engine/store/outbox.ts";
import { createQuotaStore } from "../../engine/store/quota-store.ts";
import type { SqlDriver } from "../../engine/store/sql-driver.ts";
import type { ClockMark, QuotaStore, Store } from "../../engine/store/store.ts";
import { appendRecords, changeDocuments, createDocuments, type RunQuery } from "./documents.ts";
import { bindStatement, createPostgresDriver, toRowObjects } from "./driver.ts";
import { type AppendRow, createEventLog } from "./event-log.ts";
import { noSuchSourceError } from "./open-state-database.ts";
import { type ShardOptions, type StateDatabase, sourceTopic } from "./state-database.ts";
import { createWriter } from "./transaction-writer.ts";

/** Opens the state of one source. Throws `FencedError` for another epoch, `ConfigError` for an unknown source. */
export async function openShard(database: StateDatabase, options: ShardOptions): Promise<Store> {
  const { source, as, clock } = options;
  const isHolder = typeof as === "object";
  const query: RunQuery = database.query;
  const { rows } = await query(
    "select epoch::text, last_commit, operations::double precision from source where name = $1",
    [source],
  );
  const [epoch, lastCommit = "", operations = 0] = rows[0] ?? [];
  if (isHolder && epoch !== String(as.epoch)) throw new FencedError(source);
  if (rows.length === 0) throw noSuchSourceError(source);
  const writer = createWriter({ ...options, database, lastCommit: String(lastCommit) });
  const documents = createDocuments(source, query);
  const log = createEventLog(source, query, isHolder);
  const wakeup = createWakeup();
  const versionBySet = new Map<string, number>();
  let operationsSeen = Number(operations);
  let isOpen = true;

  async function checkForOperations(): Promise<void> {
    const { rows: found } = await query("select operations::double precision from source where name = $1", [source]);
    const now = Number(found[0]?.[0] ?? 0);
    if (now === operationsSeen) return;
    operationsSeen = now;
    log.forget();
    outbox.forget();
    wakeup.wakeUp();
  }

  // Errors are ignored, because the listener is called again once the database is available.
  const stopListening = isHolder
    ? database.onNotified(sourceTopic(source), () => void checkForOperations().catch(() => undefined))
    : () => undefined;

  function noteChangedSets(sets: Iterable<string>): void {
    for (const set of new Set(sets)) versionBySet.set(set, (versionBySet.get(set) ?? 0) + 1);
  }

  /** Version of the source's state; without the lease, `xmin`, which changes with each update of the source's row. */
  async function readStateVersion(): Promise<number> {
    if (isHolder) return writer.commits() + operationsSeen;
    const { rows: found } = await query("select xmin::text::double precision from source where name = $1", [source]);
    return Number(found[0]?.[0] ?? 0);
  }

  const sql = createPostgresDriver(source, query, writer, noteChangedSets, readStateVersion);
  const outbox = createOutbox({ ...{ sql, log, clock, changes: wakeup, isCached: isHolder } });

  return {
    outbox,
    quotaStore: createQuotaStore(sql, createQuotaClocks(sql)),
    document: documents.document,
    documents: documents.documents,
    records: documents.records,
    lastRecord: documents.lastRecord,
    version: async (set) => (versionBySet.get(set) ?? 0) + (isHolder ? operationsSeen : await readStateVersion()),
    changes: readStateVersion,
    // The PostgreSQL server detects damaged pages itself (`data_checksums`).
    damagedKeys: async () => [],
    async commit({ documents: changedDocuments = [], events = [], records = [] }) {
      const statements = [...changeDocuments(source, changedDocuments), ...appendRecords(source, records)];
      const preparedAppend = log.prepare(events, clock.now());
      const positionBefore = await log.end();
      if (preparedAppend === null && statements.length === 0) return { lastPosition: positionBefore, repeated: [] };
      const results = await writer
        .commit(preparedAppend === null ? statements : [...statements, bindStatement(source, preparedAppend.statement)])
        .finally(() => noteChangedSets(changedDocuments.map(({ set }) => set)));
      if (preparedAppend === null) return { lastPosition: positionBefore, repeated: [] };
      const appendReply = results?.at(-1);
      const appendResult =
        appendReply === undefined
          ? await log.committedWithoutReply(preparedAppend, positionBefore)
          : log.committed(preparedAppend, toRowObjects<AppendRow>(appendReply));
      if (events.length > appendResult.repeated.length) wakeup.wakeUp();
      return appendResult;
    },
    async putDeferred(set, key, value) {
      const [put] = changeDocuments(source, [{ set, put: [[key, value]] }]);
      if (put === undefined) return;
      if (writer.soon.isBehind()) await writer.commit([put]);
      else await writer.soon.write(`document ${set} ${key}`, () => put);
      noteChangedSets([set]);
    },
    async describe() {
      const { bytes, schemaVersion } = await database.describe();
      return { file: `${database.name}, source ${source}`, bytes, schemaVersion, damaged: [] };
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      stopListening();
      await writer.close();
    },
  };
}

function createQuotaClocks(sql: SqlDriver): Pick<QuotaStore, "loadClock" | "saveClock"> {
  return {
    async loadClock(key, boot) {
      const [mark] = await sql.query<ClockMark>(
        `select wall_ms as "wallMs", since_boot_ms as "sinceBootMs" from quota_clock
         where source = $1 and bucket = $2 and boot = $3`,
        key,
        boot,
      );
      return mark;
    },
    async saveClock(key, boot, { wallMs, sinceBootMs }) {
      await sql.commit([
        {
          text: `insert into quota_clock (source, bucket, boot, wall_ms, since_boot_ms) values ($1, $2, $3, $4, $5)
            on conflict (source, bucket) do update set boot = excluded.boot, wall_ms = excluded.wall_ms,
              since_boot_ms = excluded.since_boot_ms`,
          values: [key, boot, wallMs, sinceBootMs],
        },
      ]);
    },
  };
}
