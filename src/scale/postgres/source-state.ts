import { createWakeup } from "../../core/runtime/waiting.ts";
import { FencedError } from "../../engine/store/fenced-store.ts";
import { createOutbox } from "../../engine/store/outbox.ts";
import { createQuotaStore } from "../../engine/store/quota-store.ts";
import type { SqlDriver } from "../../engine/store/sql-driver.ts";
import type { BootClockMark, QuotaStore, Store } from "../../engine/store/store.ts";
import { appendRecords, buildDocumentChanges, createDocumentStore, type RunPostgresQuery } from "./document-store.ts";
import { bindStatement, createPostgresDriver, toRowObjects } from "./driver.ts";
import { createEventLog, type EventAppendReplyRow } from "./event-log.ts";
import { unknownSourceError } from "./open-state-database.ts";
import { type SourceStateOptions, type StateDatabase, sourceTopic } from "./state-database.ts";
import { createTransactionWriter } from "./transaction-writer.ts";

/** Opens a source's state. Throws `FencedError` if the lease is over (other epoch), `ConfigError` if unknown. */
export async function openSourceState(database: StateDatabase, options: SourceStateOptions): Promise<Store> {
  const { source, access, clock } = options;
  const isLeaseHolder = typeof access === "object";
  const query: RunPostgresQuery = database.query;
  const { rows } = await query(
    "select epoch::text, last_commit, operations::double precision from source where name = $1",
    [source],
  );
  const [epoch, lastCommit = "", operations = 0] = rows[0] ?? [];
  if (isLeaseHolder && epoch !== String(access.epoch)) throw new FencedError(source);
  if (rows.length === 0) throw unknownSourceError(source);
  const transactionWriter = createTransactionWriter({ ...options, database, lastCommit: String(lastCommit) });
  const documentStore = createDocumentStore(source, query);
  const log = createEventLog(source, query, isLeaseHolder);
  const changesWakeup = createWakeup();
  const versionBySet = new Map<string, number>();
  let operatorChanges = Number(operations);
  let isOpen = true;

  async function checkForOperatorChanges(): Promise<void> {
    const { rows: operationRows } = await query("select operations::double precision from source where name = $1", [
      source,
    ]);
    const operationCount = Number(operationRows[0]?.[0] ?? 0);
    if (operationCount === operatorChanges) return;
    operatorChanges = operationCount;
    log.forget();
    outbox.forget();
    changesWakeup.wakeUp();
  }

  // Errors are ignored, because the listener is called again once the database is available.
  const stopListening = isLeaseHolder
    ? database.onNotified(sourceTopic(source), () => void checkForOperatorChanges().catch(() => undefined))
    : () => undefined;

  function noteChangedDocumentSets(sets: Iterable<string>): void {
    for (const setName of new Set(sets)) versionBySet.set(setName, (versionBySet.get(setName) ?? 0) + 1);
  }

  /** Returns a number that changes with each commit of the source's state. */
  async function readStateVersion(): Promise<number> {
    if (isLeaseHolder) return transactionWriter.commits() + operatorChanges;
    const { rows: versionRows } = await query("select xmin::text::double precision from source where name = $1", [
      source,
    ]);
    return Number(versionRows[0]?.[0] ?? 0);
  }

  const sql = createPostgresDriver(source, query, transactionWriter, noteChangedDocumentSets, readStateVersion);
  const outbox = createOutbox({ sql, log, clock, commitWakeup: changesWakeup, isCached: isLeaseHolder });

  return {
    outbox,
    quotaStore: createQuotaStore(sql, createQuotaClockStore(sql)),
    ...documentStore,
    version: async (set) => (versionBySet.get(set) ?? 0) + (isLeaseHolder ? operatorChanges : await readStateVersion()),
    changes: readStateVersion,
    // The PostgreSQL server detects damaged pages itself (`data_checksums`).
    damagedKeys: async () => [],
    async commit({ documents: changedDocuments = [], events = [], records = [] }) {
      const statements = [...buildDocumentChanges(source, changedDocuments), ...appendRecords(source, records)];
      const preparedAppend = log.prepare(events, clock.now());
      const lastPositionBefore = await log.end();
      if (preparedAppend === null && statements.length === 0) return { lastPosition: lastPositionBefore, repeated: [] };
      const results = await transactionWriter
        .commit(preparedAppend === null ? statements : [...statements, bindStatement(source, preparedAppend.statement)])
        .finally(() => noteChangedDocumentSets(changedDocuments.map(({ set }) => set)));
      if (preparedAppend === null) return { lastPosition: lastPositionBefore, repeated: [] };
      const appendReply = results?.at(-1);
      const appendResult =
        appendReply === undefined
          ? await log.noteCommitAfterLostReply(preparedAppend, lastPositionBefore)
          : log.noteCommitted(preparedAppend, toRowObjects<EventAppendReplyRow>(appendReply));
      if (events.length > appendResult.repeated.length) changesWakeup.wakeUp();
      return appendResult;
    },
    async putDeferred(set, key, value) {
      const [putStatement] = buildDocumentChanges(source, [{ set, put: [[key, value]] }]);
      if (putStatement === undefined) return;
      if (transactionWriter.deferredWrites.isBehind()) await transactionWriter.commit([putStatement]);
      else await transactionWriter.deferredWrites.write(`document ${set} ${key}`, () => putStatement);
      noteChangedDocumentSets([set]);
    },
    async describe() {
      const { bytes, schemaVersion } = await database.describe();
      return { file: `${database.name}, source ${source}`, bytes, schemaVersion, damaged: [] };
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      stopListening();
      await transactionWriter.close();
    },
  };
}

function createQuotaClockStore(sql: SqlDriver): Pick<QuotaStore, "loadClock" | "saveClock"> {
  return {
    async loadClock(key, boot) {
      const [mark] = await sql.query<BootClockMark>(
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
