import { existsSync } from "node:fs";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup } from "../../core/runtime/waiting.ts";
import { detectCopy, detectLostWal, LOST_WAL_MESSAGE, readCopy, recordRegularClose } from "./copied-state-detection.ts";
import { createDamagedRowQuarantine, summarizeDamagedRows } from "./damage-quarantine.ts";
import { formatRecovery, recoverIntoNewFile } from "./damaged-state-recovery.ts";
import { createSqliteDeferredWrites } from "./deferred-writes.ts";
import { createDocumentStore } from "./documents.ts";
import { createEventLog } from "./event-log.ts";
import {
  createEventLogCheck,
  createSqliteIndexRepair,
  type EventLogCheck,
  markStateFileUnusable,
  readUnusableFileMark,
  removeUnusableFileMark,
} from "./event-log-repair.ts";
import { createEventLogTail } from "./newest-events-cache.ts";
import { createOutbox } from "./outbox.ts";
import { createQuotaStore } from "./quota-store.ts";
import { findSchemaProblem, prepareSchema, SCHEMA_VERSION } from "./schema.ts";
import { type Database, isSqlError, openDatabase, StateBusy, StateDamaged, shrinkFile } from "./sqlite.ts";
import { createDamagedQuota, createQuotaClockStore, createSqliteDriver } from "./sqlite-driver.ts";
import { findFreePageProblem, hasReadableWal, openSqlitePages, SQLITE_PAGE_BYTES } from "./sqlite-page-format.ts";
import {
  copyAndEmptyFile,
  copyWriteAheadLog,
  fileSize,
  lockFilePath,
  preparePrivateFile,
  prepareStateFolder,
  quarantineState,
  type ReadFileSystemType,
  readFileSystemType,
  refuseMovedFolder,
  removeStateFiles,
  removeWalCopy,
  stateFilePath,
} from "./state-folder.ts";
import type { Store, StoreDescription } from "./store.ts";

export interface OpenStoreOptions {
  readonly folder: string;
  readonly clock: Clock;
  readonly log?: Log;
  readonly readOnly?: boolean;
  /** False lets an operator's command change the existing file while a worker runs. */
  readonly locksFolder?: boolean;
  /** True also opens a folder whose state was moved into a database, for `plenum state move`. */
  readonly allowsMovedFolder?: boolean;
  readonly fileSystemType?: ReadFileSystemType;
  readonly machine?: () => string | null;
}

const MAX_WAL_BYTES = 16 * 1024 ** 2;

/** Size of the write-ahead log at which SQLite copies its pages into the file. */
const WAL_CHECKPOINT_BYTES = 4 * 1024 ** 2;

/** Opens the state; replaces a damaged file. Throws `ConfigError` when the state must not be used. */
export async function openStore(options: OpenStoreOptions): Promise<Store> {
  const { folder, readOnly = false } = options;
  if (!readOnly && options.allowsMovedFolder !== true) refuseMovedFolder(folder);
  if (readOnly || options.locksFolder === false) return openUnlockedStore(options, readOnly);

  prepareStateFolder(folder, options.fileSystemType ?? readFileSystemType);
  const folderLock = lockStateFolder(folder, options);
  try {
    return await openLockedStore(stateFilePath(folder), options, folderLock);
  } catch (error) {
    folderLock.close();
    throw error;
  }
}

function openUnlockedStore(options: OpenStoreOptions, readOnly: boolean): Store {
  const file = stateFilePath(options.folder);
  if (!existsSync(file)) {
    throw new ConfigError(`There is no state in ${options.folder} yet.`, {
      hint: "Start the worker first, or name the folder that it uses.",
    });
  }
  const database = openDatabase(file, { readOnly }, (openedDatabase) => {
    prepareSchema(openedDatabase, false);
    if (!readOnly) openedDatabase.exec("pragma synchronous = full");
  });
  return createStore(database, options.clock, {});
}

async function openLockedStore(file: string, options: OpenStoreOptions, lock: Database): Promise<Store> {
  const { clock } = options;
  const openedFiles: OpenedStateFiles = { ...options, lock };
  let database: Database | null = null;
  try {
    refuseLostStateFile(file);
    if (readUnusableFileMark(file) !== null) throw new StateDamaged(`${file} was found damaged while it was in use.`);
    refuseDamagedFreePages(file);
    copyWriteAheadLog(file);
    const hasWriteAheadLog = hasReadableWal(file);
    database = openDatabaseForWriting(file);
    const store = createStore(database, clock, { ...openedFiles, hasWriteAheadLog });
    removeWalCopy(file);
    return store;
  } catch (error) {
    database?.close();
    // SQLite rejects Plenum's SQL only if the file is damaged.
    if (!(error instanceof StateDamaged) && !isSqlError(error)) throw error;
    return await replaceDamagedFile(file, error, options, openedFiles);
  }
}

/** Copies undelivered events into a fresh file. If Plenum crashes meanwhile, the next start repeats the copy. */
async function replaceDamagedFile(
  file: string,
  error: unknown,
  { clock, log }: OpenStoreOptions,
  openedFiles: OpenedStateFiles,
): Promise<Store> {
  const markedFile = readUnusableFileMark(file) ?? "";
  const quarantinedFile = markedFile !== "" && existsSync(markedFile) ? markedFile : quarantineState(file, clock.now());
  if (quarantinedFile === markedFile) removeStateFiles(file);
  markStateFileUnusable(file, quarantinedFile);
  const database = openDatabaseForWriting(file);
  try {
    const recoveryReport = await recoverIntoNewFile(quarantinedFile, database, clock);
    removeUnusableFileMark(file);
    const recoveryMessage = formatRecovery(quarantinedFile, recoveryReport);
    log?.error(
      { file, aside: quarantinedFile, err: error, ...recoveryReport },
      `The state file was damaged. ${recoveryMessage}`,
    );
    return createStore(database, clock, { ...openedFiles, quarantinedFile, recoveryMessage });
  } catch (failure) {
    database.close();
    throw failure;
  }
}

function refuseDamagedFreePages(file: string): void {
  if (fileSize(file) === 0) return;
  using pages = openSqlitePages(file, "valid");
  const problem = findFreePageProblem(pages);
  if (problem !== null) throw new StateDamaged(`${file} is damaged (${problem}).`);
}

/** Refuses an empty state file that has a write-ahead log: SQLite would treat it as new and silently delete the log. */
function refuseLostStateFile(file: string): void {
  const walBytes = fileSize(`${file}-wal`);
  if (fileSize(file) > 0 || walBytes === 0) return;
  throw new StateDamaged(
    `${file} is ${existsSync(file) ? "empty" : "gone"}, and ${walBytes} bytes of its write-ahead log are left.`,
  );
}

function openDatabaseForWriting(file: string): Database {
  preparePrivateFile(file);
  return openDatabase(file, {}, (database) => {
    // Set both pragmas before the first page is written.
    if (database.number("pragma page_count") === 0) {
      database.exec(`pragma page_size = ${SQLITE_PAGE_BYTES}; pragma auto_vacuum = incremental`);
    }
    repairOrRefuseDamage(database);
    prepareSchema(database, true);
    const schemaProblem = findSchemaProblem(database);
    if (schemaProblem !== null) throw new StateDamaged(`${database.path} is damaged (${schemaProblem}).`);
    database.exec(`
      pragma journal_mode = wal;
      pragma synchronous = full;
      pragma journal_size_limit = ${MAX_WAL_BYTES};
      pragma wal_autocheckpoint = ${WAL_CHECKPOINT_BYTES / SQLITE_PAGE_BYTES};
    `);
  });
}

/** Lets SQLite check all but the log of events, which may have gigabytes, and rebuilds damaged indexes. */
function repairOrRefuseDamage(database: Database): void {
  if (findIntegrityProblem(database) === null) return;
  database.exec("reindex");
  const remainingProblem = findIntegrityProblem(database);
  if (remainingProblem !== null) throw new StateDamaged(`${database.path} is damaged (${remainingProblem}).`);
}

function findIntegrityProblem(database: Database): string | null {
  const tables = database
    .prepare("select name from sqlite_master where type = 'table' and name <> 'event'")
    .all<{ readonly name: string }>();
  for (const tableName of ["sqlite_schema", ...tables.map((table) => table.name)]) {
    const integrityCheckRow = database
      .prepare(`pragma integrity_check('${tableName.replaceAll("'", "''")}')`)
      .get<{ readonly integrity_check: string }>();
    if (integrityCheckRow !== undefined && integrityCheckRow.integrity_check !== "ok")
      return integrityCheckRow.integrity_check;
  }
  return null;
}

export interface OpenedStateFiles
  extends Pick<OpenStoreOptions, "log" | "machine">,
    Pick<StoreDescription, "quarantinedFile" | "recoveryMessage"> {
  readonly lock?: Database;
  readonly hasWriteAheadLog?: boolean;
}

export function createStore(database: Database, clock: Clock, openedFiles: OpenedStateFiles): Store {
  const { lock, quarantinedFile, recoveryMessage } = openedFiles;
  const logTail = createEventLogTail();
  database.addListener(logTail);
  const deferredWrites = createSqliteDeferredWrites(database, clock);
  const damageQuarantine = createDamagedRowQuarantine(database, clock, openedFiles.log);
  const documentStore = createDocumentStore(database, damageQuarantine);
  const log = createEventLog(database, clock, damageQuarantine, { tail: logTail, epochBegun: () => outbox.forget() });
  const storeWakeup = createWakeup();
  let isOpen = true;
  let logCheck: EventLogCheck | undefined;
  let damagedSignal: AbortSignal | undefined;
  let walLostAt: string | undefined;
  const sql = createSqliteDriver(database, deferredWrites, documentStore, () => {
    outbox.forget();
    return damageQuarantine.repairCursors();
  });
  const outbox = createOutbox({
    sql,
    log: {
      ...log,
      noteRemovedEvents(events) {
        log.noteRemovedEvents(events);
        logCheck?.noteRemovedRows(events);
      },
    },
    ...{ clock, commitWakeup: storeWakeup, isCached: true },
    lookForChanges: () => void database.changes(),
    damage: {
      ...damageQuarantine,
      repairCursors: () => !database.readOnly && database.transaction(damageQuarantine.repairCursors),
      quarantineMarkedEvent: log.quarantineMarkedEvent,
    },
  });
  database.addListener({
    onExternalChange() {
      outbox.forget();
      log.forgetCachedEvents();
    },
  });
  if (lock !== undefined) {
    const indexRepair = createSqliteIndexRepair(database, clock, openedFiles.log);
    database.setDamageRepair({
      ...indexRepair,
      attemptRepair(error) {
        outbox.forget();
        return indexRepair.attemptRepair(error);
      },
    });
    damagedSignal = indexRepair.damaged;
    logCheck = createEventLogCheck(database, log, clock);
    walLostAt = database.transaction(() => {
      damageQuarantine.checkTablesAtStart();
      detectCopy(database, documentStore, clock.now(), openedFiles.machine);
      return detectLostWal(database, documentStore, clock.now(), openedFiles.hasWriteAheadLog ?? true);
    });
    // Write the note that the file is open into the file itself, because the write-ahead log may be lost later.
    database.exec("pragma wal_checkpoint(full)");
    log.repairCounters();
    if (walLostAt !== undefined) openedFiles.log?.error({ file: database.path }, LOST_WAL_MESSAGE);
  }

  return {
    ...(damagedSignal && { damaged: damagedSignal }),
    outbox: {
      ...outbox,
      async prune(bounds) {
        const pruneReport = await outbox.prune(bounds);
        await shrinkFile(database);
        await logCheck?.checkNextRows();
        return pruneReport;
      },
    },
    quotaStore: createQuotaStore(sql, createQuotaClockStore(database), createDamagedQuota(damageQuarantine, clock)),
    document: toAsyncFunction(documentStore.document) as Store["document"],
    documents: toAsyncFunction(documentStore.documents) as Store["documents"],
    version: toAsyncFunction(documentStore.version),
    changes: toAsyncFunction(database.changes),
    damagedKeys: toAsyncFunction(damageQuarantine.damagedDocumentKeys),
    records: toAsyncFunction(documentStore.records) as Store["records"],
    lastRecord: toAsyncFunction(documentStore.lastRecord) as Store["lastRecord"],
    async commit({ documents: documentChanges = [], events = [], records = [] }) {
      const now = clock.now();
      const commitResult = database.transaction(() => {
        for (const change of documentChanges) documentStore.change(change);
        for (const record of records) documentStore.appendRecord(record.log, record.body);
        const repeatedIds = log.appendEvents(events, now);
        return { lastPosition: log.end(), repeated: repeatedIds };
      });
      if (events.length > commitResult.repeated.length) storeWakeup.wakeUp();
      return commitResult;
    },
    async putDeferred(set, key, value) {
      const putDocument = () => documentStore.change({ set, put: [[key, value]] });
      if (deferredWrites.isBehind()) database.transaction(putDocument);
      else await deferredWrites.write(`document ${set} ${key}`, putDocument);
    },
    async describe() {
      const stateCopy = readCopy(documentStore);
      return {
        file: database.path,
        bytes: fileSize(database.path) + fileSize(`${database.path}-wal`),
        schemaVersion: SCHEMA_VERSION,
        damaged: summarizeDamagedRows(database),
        ...(quarantinedFile !== undefined && { quarantinedFile }),
        ...(recoveryMessage !== undefined && { recoveryMessage }),
        ...(walLostAt !== undefined && { lostLogMessage: `${LOST_WAL_MESSAGE} This was found at ${walLostAt}.` }),
        ...(stateCopy === undefined ? {} : { copy: stateCopy }),
      };
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      deferredWrites.stop();
      try {
        deferredWrites.flush();
      } catch {}
      if (lock !== undefined) recordRegularClose(database, documentStore);
      database.close();
      lock?.close();
    },
  };
}

function toAsyncFunction<Values extends readonly unknown[], T>(work: (...values: Values) => T) {
  return async (...values: Values): Promise<T> => work(...values);
}

/** Allows one worker per folder by an exclusive SQLite transaction, which the kernel ends with the process. */
function lockStateFolder(folder: string, { clock, log }: OpenStoreOptions): Database {
  const path = lockFilePath(folder);
  preparePrivateFile(path);
  const openLockFile = () => openDatabase(path, { lockTimeoutMs: 0 }, (database) => database.exec("begin exclusive"));
  try {
    try {
      return openLockFile();
    } catch (error) {
      if (!(error instanceof StateDamaged)) throw error;
      // SQLite reports the unknown content only when no worker holds the lock, so the file may be emptied.
      const quarantinedFile = copyAndEmptyFile(path, clock.now());
      log?.warn(
        { file: path, aside: quarantinedFile },
        "The lock file had unknown content. Plenum copied it to another file and emptied it; no data is lost.",
      );
      return openLockFile();
    }
  } catch (error) {
    if (!(error instanceof StateBusy)) throw error;
    throw new ConfigError(`Another worker uses the state folder ${folder}.`, {
      cause: error,
      hint: "Stop it, or set state.folder to another folder for this one.",
    });
  }
}
