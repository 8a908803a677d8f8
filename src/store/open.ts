import { existsSync, statSync } from "node:fs";
import type { Clock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import type { Log } from "../log.ts";
import { createBell } from "../waiting.ts";
import { noticeCopy, seenCopy } from "./copied.ts";
import { createDamage } from "./damage.ts";
import { createDocuments } from "./documents.ts";
import { createEventLog } from "./event-log.ts";
import {
  dropSpareLog,
  type FileSystemType,
  fileSystemType,
  prepareFolder,
  preparePrivateFile,
  setAside,
  sizeOf,
  spareLog,
  stateFile,
} from "./folder.ts";
import { refuseMoved } from "./moved.ts";
import { createOutbox } from "./outbox.ts";
import { PAGE_BYTES } from "./pages.ts";
import { createQuotaMemory } from "./quota-memory.ts";
import { prepareSchema, SCHEMA_VERSION, schemaTrouble } from "./schema.ts";
import { createSinks } from "./sinks.ts";
import { createSoon } from "./soon.ts";
import { Damaged, type Database, openDatabase } from "./sqlite.ts";
import type { Store } from "./store.ts";
import { createTail } from "./tail.ts";
import { lockFolder, type WorkerLock } from "./worker-lock.ts";

export interface StoreOptions {
  readonly folder: string;
  readonly clock: Clock;
  readonly log?: Log;
  /** For looking on beside a running worker. Nothing is created, and nothing can be changed. */
  readonly readOnly?: boolean;
  /** False for an operator's change beside a running worker; the file has to exist. A worker takes the lock. */
  readonly lock?: boolean;
  /** True for whoever moves the state away; anybody else is refused by a folder whose state is a fleet's now. */
  readonly evenIfMoved?: boolean;
  /** The type number of a folder's file system; tests pass another one in. */
  readonly fileSystemType?: FileSystemType;
  /** The system's own name for the machine; tests pass another one in. */
  readonly machine?: () => string | null;
}

/** The write-ahead log is cut back to this after a checkpoint, in bytes. */
const WAL_BYTES = 16 * 1024 ** 2;

/** When so much is in the write-ahead log its pages are copied into the file, in bytes: as SQLite does by itself with pages of 4 kB. */
const CHECKPOINT_BYTES = 4 * 1024 ** 2;

/**
 * Opens the state. Throws `ConfigError` with one sentence when it must not be used: a network file system,
 * another worker, a foreign file, a newer schema. A damaged file is set aside and a fresh one opened.
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { folder, readOnly = false } = options;
  if (!readOnly && options.evenIfMoved !== true) refuseMoved(folder);
  if (readOnly || options.lock === false) return openBeside(options, readOnly);

  prepareFolder(folder, options.fileSystemType ?? fileSystemType);
  const lock = lockFolder(folder, options);
  try {
    const file = stateFile(folder);
    const { database, aside } = openSound(file, options);
    return createStore(database, options.clock, {
      lock,
      ...(options.machine === undefined ? {} : { machine: options.machine }),
      ...(options.log === undefined ? {} : { log: options.log }),
      ...(aside === null ? {} : { setAside: aside }),
    });
  } catch (error) {
    lock.release();
    throw error;
  }
}

function openBeside(options: StoreOptions, readOnly: boolean): Store {
  const file = stateFile(options.folder);
  if (!existsSync(file)) {
    throw new ConfigError(`There is no state in ${options.folder} yet.`, {
      hint: "Start the worker first, or name the folder that it uses.",
    });
  }
  const database = openDatabase(file, { readOnly });
  try {
    prepareSchema(database, false);
    if (!readOnly) database.exec("pragma synchronous = full");
    return createStore(database, options.clock, {});
  } catch (error) {
    database.close();
    throw error;
  }
}

function openSound(file: string, { clock, log }: StoreOptions): { database: Database; aside: string | null } {
  try {
    refuseLostFile(file);
    spareLog(file);
    const database = openForWriting(file);
    dropSpareLog(file);
    return { database, aside: null };
  } catch (error) {
    if (!(error instanceof Damaged)) throw error;
    const aside = setAside(file, clock.now());
    log?.error(
      { file, aside, err: error },
      "The state file is damaged. It was set aside, and a fresh one begun; `plenum state salvage` takes out of it what was not delivered.",
    );
    return { database: openForWriting(file), aside };
  }
}

/** SQLite takes an empty file beside a write-ahead log for a new one, and deletes the log without a word. */
function refuseLostFile(file: string): void {
  const wal = sizeOf(`${file}-wal`);
  if (sizeOf(file) > 0 || wal === 0) return;
  throw new Damaged(
    `${file} is ${existsSync(file) ? "empty" : "gone"}, and ${wal} bytes of its write-ahead log are left.`,
  );
}

function openForWriting(file: string): Database {
  preparePrivateFile(file);
  const database = openDatabase(file);
  try {
    // Before the first page is written: its size, and that pages which retention frees can be given back.
    if (database.number("pragma page_count") === 0) {
      database.exec(`pragma page_size = ${PAGE_BYTES}; pragma auto_vacuum = incremental`);
    }
    refuseDamage(database);
    prepareSchema(database, true);
    refuseForeignShape(database);
    database.exec(`
      pragma journal_mode = wal;
      pragma synchronous = full;
      pragma journal_size_limit = ${WAL_BYTES};
      pragma wal_autocheckpoint = ${CHECKPOINT_BYTES / PAGE_BYTES};
    `);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function refuseDamage(database: Database): void {
  const answer = database.prepare("pragma quick_check(1)").get<{ readonly quick_check: string }>();
  if (answer !== undefined && answer.quick_check !== "ok") {
    throw new Damaged(`${database.path} is damaged (${answer.quick_check}).`);
  }
}

/** The schema is text too: a damaged byte in it can make another table of it. */
function refuseForeignShape(database: Database): void {
  const trouble = schemaTrouble(database);
  if (trouble !== null) throw new Damaged(`${database.path} is damaged (${trouble}).`);
}

export interface Opened {
  /** Who holds it looks through the state and puts right what is damaged. */
  readonly lock?: WorkerLock;
  readonly log?: Log;
  readonly setAside?: string;
  readonly machine?: () => string | null;
}

export function createStore(database: Database, clock: Clock, opened: Opened): Store {
  const { lock, setAside: aside } = opened;
  const tail = createTail();
  database.watch(tail);
  const soon = createSoon(database, clock);
  const damage = createDamage(database, clock, opened.log);
  const documents = createDocuments(database, damage);
  const log = createEventLog(database, clock, damage, tail);
  const sinks = createSinks(database, log, damage);
  const changes = createBell();
  let open = true;
  if (lock !== undefined) {
    database.transaction(() => {
      sinks.repair();
      damage.inspect();
      noticeCopy(database, documents, clock.now(), opened.machine);
    });
    log.recount();
  }

  return {
    outbox: createOutbox({ database, soon, documents, log, sinks, damage, clock, changes }),
    quotaMemory: createQuotaMemory(database, soon, clock, damage),

    async document<T>(set: string, key: string) {
      return documents.document<T>(set, key);
    },
    async documents<T>(set: string) {
      return documents.documents<T>(set);
    },
    async version(set) {
      return documents.version(set);
    },
    async changes() {
      return database.changes();
    },
    async damagedKeys(set) {
      return damage.keys(set);
    },
    async records<T>(name: string, after: number, limit: number) {
      return documents.records<T>(name, after, limit);
    },
    async lastRecord<T>(name: string) {
      return documents.lastRecord<T>(name);
    },

    async commit({ documents: changed = [], events = [], records = [] }) {
      const now = clock.now();
      const committed = database.transaction(() => {
        for (const change of changed) documents.change(change);
        for (const record of records) documents.append(record.log, record.body);
        const repeated = log.append(events, now);
        return { lastPosition: log.end(), repeated };
      });
      if (events.length > committed.repeated.length) changes.ring();
      return committed;
    },

    async putSoon(set, key, value) {
      const put = () => documents.change({ set, put: [[key, value]] });
      if (soon.isBehind()) database.transaction(put);
      else await soon.write(`document ${set} ${key}`, put);
    },

    async describe() {
      const wal = `${database.path}-wal`;
      const copy = seenCopy(documents);
      return {
        file: database.path,
        bytes: statSync(database.path).size + (existsSync(wal) ? statSync(wal).size : 0),
        schemaVersion: SCHEMA_VERSION,
        damaged: damage.summary(),
        ...(aside === undefined ? {} : { setAside: aside }),
        ...(copy === undefined ? {} : { copy }),
      };
    },

    async close() {
      if (!open) return;
      open = false;
      soon.close();
      database.close();
      lock?.release();
    },
  };
}
