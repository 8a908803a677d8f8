import { DatabaseSync, type StatementSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";

/** Only this module imports node:sqlite. Only these types bind the same way in all versions of Node.js. */
export type SqliteValue = string | number | null | Uint8Array;

export interface SqliteStatement {
  run(...values: readonly SqliteValue[]): number;
  insert(...values: readonly SqliteValue[]): number | null;
  get<Row>(...values: readonly SqliteValue[]): Row | undefined;
  all<Row>(...values: readonly SqliteValue[]): readonly Row[];
}

export interface Database extends Disposable {
  readonly path: string;
  readonly readOnly: boolean;
  exec(sql: string): void;
  prepare(sql: string): SqliteStatement;
  number(sql: string): number;
  /** Commits all of `work` or nothing. `work` must be short, because every other access waits. */
  transaction<T>(work: () => T): T;
  addListener(listener: TransactionListener): void;
  /** Sets a repair for damage; after the repair, a failed transaction or a single statement runs once more. */
  setDamageRepair(repair: DatabaseDamageRepair): void;
  /** Returns a number that changes with every change of the file, by this or another process. */
  changes(): number;
  close(): void;
}

/** Listener that is called at the beginning and end of each transaction and after a change by another process. */
interface TransactionListener {
  onBegin?(): void;
  onCommit?(): void;
  onRollback?(): void;
  onExternalChange?(): void;
}

export interface DatabaseDamageRepair {
  /** Repairs the open file; returns false when a repair was tried recently. */
  attemptRepair(error: StateDamaged): boolean;
  /** Reports that the work failed again after the repair, or that no repair was possible. */
  onRepairFailed(error: StateDamaged): void;
}

/** Opens a database file and sets it up with `prepare`; closes the file if this fails. */
export function openDatabase(
  path: string,
  { readOnly = false, lockTimeoutMs = 5_000 }: { readonly readOnly?: boolean; readonly lockTimeoutMs?: number } = {},
  prepareDatabase: (database: Database) => void = () => undefined,
): Database {
  const database = translateSqliteErrors(path, () => new DatabaseSync(path, { readOnly, timeout: lockTimeoutMs }));
  // Use bigint arguments, because damaged integers can be larger than a number holds exactly.
  database.function("row_checksum", { deterministic: true, varargs: true, useBigIntArguments: true }, rowChecksum);
  const statements = new Map<string, SqliteStatement>();
  const listeners: TransactionListener[] = [];
  let transactionCount = 0;
  let lastDataVersion = 0;
  let isOpen = true;
  let damageRepair: DatabaseDamageRepair | null = null;

  const recoverFromDamage: RecoverFromDamage = (error, work) => {
    const activeDamageRepair = damageRepair;
    if (!(error instanceof StateDamaged) || activeDamageRepair === null || database.isTransaction) throw error;
    damageRepair = null;
    try {
      if (activeDamageRepair.attemptRepair(error)) return work();
      throw error;
    } catch (repeatError) {
      if (repeatError instanceof StateDamaged) activeDamageRepair.onRepairFailed(repeatError);
      throw repeatError;
    } finally {
      damageRepair = activeDamageRepair;
    }
  };

  function runTransaction<T>(work: () => T): T {
    databaseWrapper.prepare("begin immediate").run();
    try {
      for (const listener of listeners) listener.onBegin?.();
      const result = work();
      databaseWrapper.prepare("commit").run();
      return result;
    } catch (error) {
      for (const listener of listeners) listener.onRollback?.();
      // A full disk makes SQLite roll back by itself.
      if (database.isTransaction) databaseWrapper.exec("rollback");
      throw error;
    }
  }

  const databaseWrapper: Database = {
    path,
    readOnly,
    exec: (sql) => translateSqliteErrors(path, () => database.exec(sql)),
    prepare(sql) {
      const cachedStatement = statements.get(sql);
      if (cachedStatement !== undefined) return cachedStatement;
      const preparedStatement = translateSqliteErrors(path, () => database.prepare(sql));
      const statement = wrapStatement(path, preparedStatement, recoverFromDamage);
      statements.set(sql, statement);
      return statement;
    },
    number: (sql) => Number(Object.values(databaseWrapper.prepare(sql).get<Record<string, unknown>>() ?? {})[0] ?? 0),
    transaction(work) {
      let result: ReturnType<typeof work>;
      try {
        result = runTransaction(work);
      } catch (error) {
        result = recoverFromDamage(error, () => runTransaction(work));
      }
      transactionCount += 1;
      for (const listener of listeners) listener.onCommit?.();
      return result;
    },
    addListener: (listener) => void listeners.push(listener),
    setDamageRepair: (newRepair) => {
      damageRepair = newRepair;
    },
    changes() {
      // `data_version` counts changes by other processes only.
      const dataVersion = databaseWrapper.number("pragma data_version");
      if (dataVersion !== lastDataVersion) {
        lastDataVersion = dataVersion;
        for (const listener of listeners) listener.onExternalChange?.();
      }
      return transactionCount + dataVersion;
    },
    close() {
      if (!isOpen) return;
      isOpen = false;
      translateSqliteErrors(path, () => database.close());
    },
    [Symbol.dispose]: () => databaseWrapper.close(),
  };
  try {
    lastDataVersion = databaseWrapper.number("pragma data_version");
    prepareDatabase(databaseWrapper);
    return databaseWrapper;
  } catch (error) {
    databaseWrapper.close();
    throw error;
  }
}

const MAX_FREE_PAGE_SHARE = 0.25;
const VACUUM_PAGES_PER_STEP = 200;

export async function shrinkFile(database: Database): Promise<void> {
  const countFreePages = () => database.number("pragma freelist_count");
  const maxFreePages = () => VACUUM_PAGES_PER_STEP + database.number("pragma page_count") * MAX_FREE_PAGE_SHARE;
  let freeBefore = Number.POSITIVE_INFINITY;
  // Stop when the file does not shrink any more: a file that was made without auto_vacuum never does.
  for (let now = countFreePages(); now < freeBefore && now > maxFreePages(); freeBefore = now, now = countFreePages()) {
    database.exec(`pragma incremental_vacuum(${VACUUM_PAGES_PER_STEP})`);
    await yieldToEventLoop();
  }
}

type RecoverFromDamage = <T>(error: unknown, work: () => T) => T;

function wrapStatement(path: string, statement: StatementSync, recover: RecoverFromDamage): SqliteStatement {
  const wrapStatementCall =
    <T>(work: (values: readonly SqliteValue[]) => T) =>
    (...values: readonly SqliteValue[]): T => {
      try {
        return work(values);
      } catch (error) {
        return recover(toSqliteStoreError(path, error), () => translateSqliteErrors(path, () => work(values)));
      }
    };
  return {
    run: wrapStatementCall((values) => Number(statement.run(...values).changes)),
    insert: wrapStatementCall((values) => {
      const { changes, lastInsertRowid } = statement.run(...values);
      return changes === 0 ? null : Number(lastInsertRowid);
    }),
    get: wrapStatementCall((values) => statement.get(...values)) as SqliteStatement["get"],
    all: wrapStatementCall((values) => statement.all(...values)) as SqliteStatement["all"],
  };
}

function translateSqliteErrors<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw toSqliteStoreError(path, error);
  }
}

export class StateDamaged extends ConfigError {}

export class StateBusy extends Retryable {}

/** True if SQLite rejected Plenum's SQL, which means that the file's header or schema is damaged. */
export function isSqlError(error: unknown): boolean {
  return primaryResultCode(error) === 1;
}

type DescribeSqliteError = (
  path: string,
  detail: string,
) => readonly [kind: typeof ConfigError | typeof Retryable, message: string, hint: string];

const describeBusyFile: DescribeSqliteError = (path) => [
  StateBusy,
  `Another process holds ${path}.`,
  "It is tried again; end long-running queries on the file if this stays.",
];
const describeUnreadableFile: DescribeSqliteError = (path, detail) => [
  Retryable,
  `${path} cannot be read or written (${detail}).`,
  "Check the disk and the rights of the folder.",
];
const describeDamagedFile: DescribeSqliteError = (path, detail) => [
  StateDamaged,
  `${path} is damaged (${detail}).`,
  "A worker that uses it repairs its indexes, or sets it aside and sends what was not delivered from a fresh one.",
];

/** Error messages by SQLite's primary result codes: https://www.sqlite.org/rescode.html */
const SQLITE_ERROR_MEANINGS: Readonly<Record<number, DescribeSqliteError>> = {
  5: describeBusyFile,
  6: describeBusyFile,
  10: describeUnreadableFile,
  11: describeDamagedFile,
  14: describeUnreadableFile,
  26: describeDamagedFile,
  8: (path) => [ConfigError, `${path} may not be written.`, "Run the worker as the owner of the state folder."],
  13: (path) => [
    Retryable,
    `The disk that holds ${path} is full; nothing was half-written.`,
    "Free some space; the work goes on by itself.",
  ],
};

function toSqliteStoreError(path: string, error: unknown): unknown {
  const describeError = SQLITE_ERROR_MEANINGS[primaryResultCode(error) ?? 0];
  if (describeError === undefined) return error;
  const [Kind, message, hint] = describeError(path, error instanceof Error ? error.message : String(error));
  return new Kind(message, { cause: error, hint });
}

function primaryResultCode(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}

type ChecksumInput = string | number | bigint | null | Uint8Array;

/** CRC-32 over the columns of a row; the last column may be long. 1, 1n and 1.0 give the same checksum, as in SQL. */
export function rowChecksum(...values: readonly ChecksumInput[]): number {
  const lastColumnValue = values.at(-1) ?? "";
  // An array would cost too much here: this runs for each value read. Null becomes an empty text.
  let prefixText = "";
  for (let n = 0; n < values.length - 1; n++) prefixText += `${n === 0 ? "" : "\u0000"}${values[n] ?? ""}`;
  return crc32(lastColumnValue instanceof Uint8Array ? lastColumnValue : String(lastColumnValue), crc32(prefixText));
}

export function eventChecksum(
  id: string,
  kind: string,
  telemetry: number,
  committedMs: number,
  bytes: number,
  body: string,
): number {
  return crc32(body, crc32(`${id}\u0000${kind}\u0000${telemetry}\u0000${committedMs}\u0000${bytes}`));
}

/**
 * Columns that a row's checksum covers; each start computes `event.written`, `dead_letter.resending` and `log_size`.
 * `part`: SQL for the document set, log, sink or quota bucket that a row belongs to.
 */
export const CHECKED_TABLES = {
  document: { columns: ["set_name", "key", "body"], part: "set_name", key: "key" },
  record: { columns: ["log", "sequence", "body"], part: "log", key: "sequence" },
  event: { columns: ["id", "kind", "telemetry", "committed_ms", "bytes", "body"], part: "kind", key: "id" },
  dead_letter: {
    columns: ["sink", "position", "at_ms", "committed_ms", "reason", "number", "epoch", "body"],
    part: "sink",
    key: "position",
  },
  sink: { columns: ["name", "position", "dropped", "ended", "counted", "epoch", "urgent"], part: "name", key: "''" },
  again: { columns: ["sink", "position"], part: "sink", key: "position" },
  gap: {
    columns: ["sink", "reason", "first_time", "last_time", "count", "at_ms", "told_ms"],
    part: "sink",
    key: "at_ms",
  },
  age_mark: { columns: ["ran_ms", "newest", "settled"], part: "''", key: "ran_ms" },
  quota: { columns: ["bucket", "id", "sent_ms", "counted_ms"], part: "bucket", key: "id" },
  quota_hold: { columns: ["bucket", "said_ms", "until_ms"], part: "bucket", key: "''" },
} as const;

export type StateTable = keyof typeof CHECKED_TABLES;

export const CHECKED_TABLE_NAMES = Object.keys(CHECKED_TABLES) as readonly StateTable[];

/** SQL for the checksum of a row; `newValues` maps columns to their new values. */
export function checksumSql(table: StateTable, newValues: Readonly<Record<string, string>> = {}): string {
  const checksumColumns: readonly string[] = CHECKED_TABLES[table].columns;
  return `row_checksum(${checksumColumns.map((column) => newValues[column] ?? `${table}.${column}`).join(", ")})`;
}

/** SQL condition for rows that differ from what was written. A row that is known to be damaged has no checksum. */
export function isDamagedSql(table: StateTable): string {
  return `${checksumSql(table)} is not ${table}.checksum`;
}
