import { existsSync } from "node:fs";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup } from "../../core/runtime/waiting.ts";
import { detectCopy, detectLostLog, LOST_LOG_MESSAGE, readCopy, recordRegularClose } from "./copied-state-detection.ts";
import { createDamageQuarantine } from "./damage-quarantine.ts";
import { formatRecovery, recoverIntoNewFile, type SalvageReport } from "./damaged-state-recovery.ts";
import { createSqliteDeferredWrites } from "./deferred-writes.ts";
import { createDocuments } from "./documents.ts";
import { createEventLog } from "./event-log.ts";
import {
  createIndexRepair,
  createLogCheck,
  type LogCheck,
  markCondemned,
  readCondemnedMark,
  removeCondemnedMark,
} from "./event-log-repair.ts";
import { createLogTail } from "./event-log-tail.ts";
import { createOutbox } from "./outbox.ts";
import { createQuotaStore } from "./quota-store.ts";
import { findSchemaProblem, prepareSchema, SCHEMA_VERSION } from "./schema.ts";
import { type Database, isSqlError, openDatabase, StateBusy, StateDamaged, shrinkFile } from "./sqlite.ts";
import { createQuotaClocks, createQuotaDamage, createSqliteDriver } from "./sqlite-driver.ts";
import { freePagesProblem, hasReadableWal, openPages, PAGE_BYTES } from "./sqlite-pages.ts";
import {
  copyAndEmptyFile,
  copyWriteAheadLog,
  type FileSystemType,
  fileBytes,
  fileSystemType,
  lockFile,
  preparePrivateFile,
  prepareStateFolder,
  quarantineState,
  refuseMovedFolder,
  removeLogCopy,
  removeStateFiles,
  stateFile,
} from "./state-folder.ts";
import type { Store } from "./store.ts";

export interface StoreOptions {
  readonly folder: string;
  readonly clock: Clock;
  readonly log?: Log;
  readonly readOnly?: boolean;
  /** False for an operator's change while a worker runs; the file must exist. */
  readonly lock?: boolean;
  /** True for `plenum state move`; otherwise a moved folder is refused. */
  readonly allowMoved?: boolean;
  readonly fileSystemType?: FileSystemType;
  readonly machine?: () => string | null;
}

const MAX_WAL_BYTES = 16 * 1024 ** 2;

/** Size of the write-ahead log at which SQLite copies its pages into the file. */
const WAL_CHECKPOINT_BYTES = 4 * 1024 ** 2;

/** Opens the state; replaces a damaged file. Throws `ConfigError` when the state must not be used. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { folder, readOnly = false } = options;
  if (!readOnly && options.allowMoved !== true) refuseMovedFolder(folder);
  if (readOnly || options.lock === false) return openUnlocked(options, readOnly);

  prepareStateFolder(folder, options.fileSystemType ?? fileSystemType);
  const lock = lockFolder(folder, options);
  try {
    return await openLocked(stateFile(folder), options, lock);
  } catch (error) {
    lock.close();
    throw error;
  }
}

function openUnlocked(options: StoreOptions, readOnly: boolean): Store {
  const file = stateFile(options.folder);
  if (!existsSync(file)) {
    throw new ConfigError(`There is no state in ${options.folder} yet.`, {
      hint: "Start the worker first, or name the folder that it uses.",
    });
  }
  const database = openDatabase(file, { readOnly }, (opened) => {
    prepareSchema(opened, false);
    if (!readOnly) opened.exec("pragma synchronous = full");
  });
  return createStore(database, options.clock, {});
}

async function openLocked(file: string, options: StoreOptions, lock: Database): Promise<Store> {
  const { clock, log, machine } = options;
  const openedFiles: OpenedFiles = { lock, ...(log && { log }), ...(machine && { machine }) };
  let database: Database | null = null;
  try {
    refuseLostFile(file);
    if (readCondemnedMark(file) !== null) throw new StateDamaged(`${file} was found damaged while it was in use.`);
    refuseDamagedFreePages(file);
    copyWriteAheadLog(file);
    const hasWriteAheadLog = hasReadableWal(file);
    database = openForWriting(file);
    const store = createStore(database, clock, { ...openedFiles, hasLog: hasWriteAheadLog });
    removeLogCopy(file);
    return store;
  } catch (error) {
    database?.close();
    // SQLite understands Plenum's SQL in every sound file.
    if (!(error instanceof StateDamaged) && !isSqlError(error)) throw error;
    return await replaceDamagedFile(file, error, options, openedFiles);
  }
}

/** Copies undelivered events into a fresh file. The condemned mark lets a start after a crash begin again. */
async function replaceDamagedFile(
  file: string,
  error: unknown,
  { clock, log }: StoreOptions,
  opened: OpenedFiles,
): Promise<Store> {
  const resumed = readCondemnedMark(file) ?? "";
  const quarantined = resumed !== "" && existsSync(resumed) ? resumed : quarantineState(file, clock.now());
  if (quarantined === resumed) removeStateFiles(file);
  markCondemned(file, quarantined);
  const database = openForWriting(file);
  try {
    const salvaged = await recoverIntoNewFile(quarantined, database, clock);
    removeCondemnedMark(file);
    log?.error(
      { file, aside: quarantined, err: error, ...salvaged },
      `The state file was damaged. ${formatRecovery(quarantined, salvaged)}`,
    );
    return createStore(database, clock, { ...opened, hasLog: true, setAside: { file: quarantined, salvaged } });
  } catch (failure) {
    database.close();
    throw failure;
  }
}

function refuseDamagedFreePages(file: string): void {
  if (fileBytes(file) === 0) return;
  const pages = openPages(file, "valid");
  try {
    const problem = freePagesProblem(pages);
    if (problem !== null) throw new StateDamaged(`${file} is damaged (${problem}).`);
  } finally {
    pages.close();
  }
}

/** SQLite treats an empty file with a write-ahead log as new and deletes the log silently. */
function refuseLostFile(file: string): void {
  const wal = fileBytes(`${file}-wal`);
  if (fileBytes(file) > 0 || wal === 0) return;
  throw new StateDamaged(
    `${file} is ${existsSync(file) ? "empty" : "gone"}, and ${wal} bytes of its write-ahead log are left.`,
  );
}

function openForWriting(file: string): Database {
  preparePrivateFile(file);
  return openDatabase(file, {}, (database) => {
    // Both must be set before the first page is written.
    if (database.number("pragma page_count") === 0) {
      database.exec(`pragma page_size = ${PAGE_BYTES}; pragma auto_vacuum = incremental`);
    }
    repairOrRefuseDamage(database);
    prepareSchema(database, true);
    refuseChangedSchema(database);
    database.exec(`
      pragma journal_mode = wal;
      pragma synchronous = full;
      pragma journal_size_limit = ${MAX_WAL_BYTES};
      pragma wal_autocheckpoint = ${WAL_CHECKPOINT_BYTES / PAGE_BYTES};
    `);
  });
}

/** Lets SQLite check all but the log of events, which may have gigabytes, and rebuilds damaged indexes. */
function repairOrRefuseDamage(database: Database): void {
  if (integrityProblem(database) === null) return;
  database.exec("reindex");
  const remainingProblem = integrityProblem(database);
  if (remainingProblem !== null) throw new StateDamaged(`${database.path} is damaged (${remainingProblem}).`);
}

function integrityProblem(database: Database): string | null {
  const tables = database
    .prepare("select name from sqlite_master where type = 'table' and name <> 'event'")
    .all<{ readonly name: string }>();
  for (const tableName of ["sqlite_schema", ...tables.map((table) => table.name)]) {
    const checkRow = database
      .prepare(`pragma integrity_check('${tableName.replaceAll("'", "''")}')`)
      .get<{ readonly integrity_check: string }>();
    if (checkRow !== undefined && checkRow.integrity_check !== "ok") return checkRow.integrity_check;
  }
  return null;
}

function refuseChangedSchema(database: Database): void {
  const problem = findSchemaProblem(database);
  if (problem !== null) throw new StateDamaged(`${database.path} is damaged (${problem}).`);
}

export interface OpenedFiles {
  readonly lock?: Database;
  readonly log?: Log;
  readonly setAside?: { readonly file: string; readonly salvaged: SalvageReport };
  readonly machine?: () => string | null;
  readonly hasLog?: boolean;
}

export function createStore(database: Database, clock: Clock, opened: OpenedFiles): Store {
  const { lock, setAside: quarantined } = opened;
  const logTail = createLogTail();
  database.addListener(logTail);
  const deferredWrites = createSqliteDeferredWrites(database, clock);
  const damage = createDamageQuarantine(database, clock, opened.log);
  const documents = createDocuments(database, damage);
  const log = createEventLog(database, clock, damage, { tail: logTail, epochBegun: () => outbox.forget() });
  const changes = createWakeup();
  let isOpen = true;
  let logCheck: LogCheck | undefined;
  let damagedSignal: AbortSignal | undefined;
  let lostLogAt: string | undefined;
  const sql = createSqliteDriver(database, deferredWrites, documents, () => {
    outbox.forget();
    return damage.repairCursors();
  });
  const outbox = createOutbox({
    sql,
    log: {
      ...log,
      removed(events) {
        log.removed(events);
        logCheck?.removed(events);
      },
    },
    ...{ clock, changes, isCached: true },
    lookForChanges: () => void database.changes(),
    damage: {
      ...damage,
      repairCursors: () => !database.readOnly && database.transaction(damage.repairCursors),
      quarantineMarked: log.quarantineMarked,
    },
  });
  database.addListener({
    othersChanged() {
      outbox.forget();
      log.forgetCached();
    },
  });
  if (lock !== undefined) {
    const repair = createIndexRepair(database, clock, opened.log);
    database.repairWith({
      ...repair,
      attempt(error) {
        outbox.forget();
        return repair.attempt(error);
      },
    });
    damagedSignal = repair.damaged;
    logCheck = createLogCheck(database, log, clock);
    lostLogAt = database.transaction(() => {
      damage.checkAtStart();
      detectCopy(database, documents, clock.now(), opened.machine);
      return detectLostLog(database, documents, clock.now(), opened.hasLog ?? true);
    });
    // The note that the file is open must be in the file itself: later commits may be in the write-ahead log only.
    database.exec("pragma wal_checkpoint(full)");
    log.repairCounters();
    if (lostLogAt !== undefined) opened.log?.error({ file: database.path }, LOST_LOG_MESSAGE);
  }

  return {
    ...(damagedSignal && { damaged: damagedSignal }),
    outbox: {
      ...outbox,
      async prune(bounds) {
        const pruneReport = await outbox.prune(bounds);
        await shrinkFile(database);
        await logCheck?.step();
        return pruneReport;
      },
    },
    quotaStore: createQuotaStore(sql, createQuotaClocks(database), createQuotaDamage(damage, clock)),
    document: toAsync(documents.document) as Store["document"],
    documents: toAsync(documents.documents) as Store["documents"],
    version: toAsync(documents.version),
    changes: toAsync(database.changes),
    damagedKeys: toAsync(damage.keys),
    records: toAsync(documents.records) as Store["records"],
    lastRecord: toAsync(documents.lastRecord) as Store["lastRecord"],
    async commit({ documents: changed = [], events = [], records = [] }) {
      const now = clock.now();
      const committed = database.transaction(() => {
        for (const change of changed) documents.change(change);
        for (const record of records) documents.append(record.log, record.body);
        const repeatedIds = log.appendEvents(events, now);
        return { lastPosition: log.end(), repeated: repeatedIds };
      });
      if (events.length > committed.repeated.length) changes.wakeUp();
      return committed;
    },
    async putDeferred(set, key, value) {
      const put = () => documents.change({ set, put: [[key, value]] });
      if (deferredWrites.isBehind()) database.transaction(put);
      else await deferredWrites.write(`document ${set} ${key}`, put);
    },
    async describe() {
      const copy = readCopy(documents);
      return {
        file: database.path,
        bytes: fileBytes(database.path) + fileBytes(`${database.path}-wal`),
        schemaVersion: SCHEMA_VERSION,
        damaged: damage.summary(),
        ...(quarantined && {
          quarantinedFile: quarantined.file,
          recoveryMessage: formatRecovery(quarantined.file, quarantined.salvaged),
        }),
        ...(lostLogAt !== undefined && { lostLogMessage: `${LOST_LOG_MESSAGE} This was found at ${lostLogAt}.` }),
        ...(copy === undefined ? {} : { copy }),
      };
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      deferredWrites.stop();
      try {
        deferredWrites.flush();
      } catch {}
      if (lock !== undefined) recordRegularClose(database, documents);
      database.close();
      lock?.close();
    },
  };
}

function toAsync<Values extends readonly unknown[], T>(work: (...values: Values) => T) {
  return async (...values: Values): Promise<T> => work(...values);
}

/** Allows one worker per folder by an exclusive SQLite transaction, which the kernel ends with the process. */
function lockFolder(folder: string, { clock, log }: StoreOptions): Database {
  const path = lockFile(folder);
  preparePrivateFile(path);
  const openLock = () => openDatabase(path, { lockTimeoutMs: 0 }, (database) => database.exec("begin exclusive"));
  try {
    try {
      return openLock();
    } catch (error) {
      if (!(error instanceof StateDamaged)) throw error;
      // SQLite rejects foreign content only when no worker holds the file.
      const quarantined = copyAndEmptyFile(path, clock.now());
      log?.warn(
        { file: path, aside: quarantined },
        "The lock file held something that is not ours. It was copied aside and emptied; nothing is lost by it.",
      );
      return openLock();
    }
  } catch (error) {
    if (!(error instanceof StateBusy)) throw error;
    throw new ConfigError(`Another worker uses the state folder ${folder}.`, {
      cause: error,
      hint: "Stop it, or set state.folder to another folder for this one.",
    });
  }
}
