import { DatabaseSync, type StatementSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import type { StateTable } from "./sql-driver.ts";

/** The only importer of node:sqlite. Only these types bind the same way in all versions of Node.js. */
export type Bindable = string | number | null | Uint8Array;

export interface Statement {
  run(...values: readonly Bindable[]): number;
  /** Returns the rowid of the inserted row; null when none was inserted. */
  insert(...values: readonly Bindable[]): number | null;
  get<Row>(...values: readonly Bindable[]): Row | undefined;
  all<Row>(...values: readonly Bindable[]): readonly Row[];
}

export interface Database {
  readonly path: string;
  readonly readOnly: boolean;
  exec(sql: string): void;
  prepare(sql: string): Statement;
  number(sql: string): number;
  /** All of `work` or nothing; `work` must be short, because everything else waits. */
  transaction<T>(work: () => T): T;
  addListener(listener: TransactionListener): void;
  /** Repairs damage, then runs the failed work once more. A statement inside a transaction fails with it. */
  repairWith(repair: DamageRepair): void;
  /** Returns a number that changes with every change of the file, by this or another process. */
  changes(): number;
  close(): void;
}

/** Is called in each transaction before its work, when it ends, and when `changes` finds a change of another process. */
interface TransactionListener {
  begun?(): void;
  committed?(): void;
  rolledBack?(): void;
  othersChanged?(): void;
}

export interface DamageRepair {
  /** Repairs the open file; returns false when that was tried recently. */
  attempt(error: StateDamaged): boolean;
  /** Reports that the work failed again, or that there was no repair. */
  failed(error: StateDamaged): void;
}

interface DatabaseOptions {
  readonly readOnly?: boolean;
  readonly lockTimeoutMs?: number;
}

/** `prepare` sets the database up; a failure closes the file. */
export function openDatabase(
  path: string,
  { readOnly = false, lockTimeoutMs = 5_000 }: DatabaseOptions = {},
  prepare: (database: Database) => void = () => undefined,
): Database {
  const database = translateErrors(path, () => new DatabaseSync(path, { readOnly, timeout: lockTimeoutMs }));
  // Damaged integers can be larger than a number holds exactly, so they come as bigint.
  database.function("row_checksum", { deterministic: true, varargs: true, useBigIntArguments: true }, rowChecksum);
  const statements = new Map<string, Statement>();
  const listeners: TransactionListener[] = [];
  let transactions = 0;
  let lastOtherChanges = 0;
  let isOpen = true;
  let repair: DamageRepair | null = null;

  /** Repairs and runs the work again, or throws what went wrong. */
  const runRecovery: RunRecovery = (error, work) => {
    const activeRepair = repair;
    if (!(error instanceof StateDamaged) || activeRepair === null || database.isTransaction) throw error;
    repair = null;
    try {
      if (activeRepair.attempt(error)) return work();
      throw error;
    } catch (again) {
      if (again instanceof StateDamaged) activeRepair.failed(again);
      throw again;
    } finally {
      repair = activeRepair;
    }
  };

  function transact<T>(work: () => T): T {
    wrapper.prepare("begin immediate").run();
    try {
      for (const listener of listeners) listener.begun?.();
      const result = work();
      wrapper.prepare("commit").run();
      return result;
    } catch (error) {
      for (const listener of listeners) listener.rolledBack?.();
      // A full disk makes SQLite roll back by itself.
      if (database.isTransaction) wrapper.exec("rollback");
      throw error;
    }
  }

  const wrapper: Database = {
    path,
    readOnly,
    exec: (sql) => translateErrors(path, () => database.exec(sql)),
    prepare(sql) {
      const cachedStatement = statements.get(sql);
      if (cachedStatement !== undefined) return cachedStatement;
      const prepared = translateErrors(path, () => database.prepare(sql));
      const statement = wrapStatement(path, prepared, runRecovery);
      statements.set(sql, statement);
      return statement;
    },
    number(sql) {
      const row = wrapper.prepare(sql).get<Record<string, unknown>>() ?? {};
      return Number(Object.values(row)[0] ?? 0);
    },
    transaction(work) {
      let result: ReturnType<typeof work>;
      try {
        result = transact(work);
      } catch (error) {
        result = runRecovery(error, () => transact(work));
      }
      transactions += 1;
      for (const listener of listeners) listener.committed?.();
      return result;
    },
    addListener: (listener) => void listeners.push(listener),
    repairWith: (newRepair) => {
      repair = newRepair;
    },
    changes() {
      // `data_version` counts changes by other processes only.
      const otherChanges = wrapper.number("pragma data_version");
      if (otherChanges !== lastOtherChanges) {
        lastOtherChanges = otherChanges;
        for (const listener of listeners) listener.othersChanged?.();
      }
      return transactions + otherChanges;
    },
    close() {
      if (!isOpen) return;
      isOpen = false;
      translateErrors(path, () => database.close());
    },
  };
  try {
    lastOtherChanges = wrapper.number("pragma data_version");
    prepare(wrapper);
    return wrapper;
  } catch (error) {
    wrapper.close();
    throw error;
  }
}

const MAX_FREE_SHARE = 0.25;
const VACUUM_PAGES = 200;

export async function shrinkFile(database: Database): Promise<void> {
  const countFreePages = () => database.number("pragma freelist_count");
  const maxFree = () => VACUUM_PAGES + database.number("pragma page_count") * MAX_FREE_SHARE;
  let before = Number.POSITIVE_INFINITY;
  // Stop when the file does not shrink any more: a file that was made without auto_vacuum never does.
  for (let now = countFreePages(); now < before && now > maxFree(); before = now, now = countFreePages()) {
    database.exec(`pragma incremental_vacuum(${VACUUM_PAGES})`);
    await yieldToEventLoop();
  }
}

type RunRecovery = <T>(error: unknown, work: () => T) => T;

function wrapStatement(path: string, statement: StatementSync, recover: RunRecovery): Statement {
  const wrapCall =
    <T>(work: (values: readonly Bindable[]) => T) =>
    (...values: readonly Bindable[]): T => {
      try {
        return work(values);
      } catch (error) {
        return recover(toStoreError(path, error), () => translateErrors(path, () => work(values)));
      }
    };
  return {
    run: wrapCall((values) => Number(statement.run(...values).changes)),
    insert: wrapCall((values) => {
      const { changes, lastInsertRowid } = statement.run(...values);
      return changes === 0 ? null : Number(lastInsertRowid);
    }),
    get: wrapCall((values) => statement.get(...values)) as Statement["get"],
    all: wrapCall((values) => statement.all(...values)) as Statement["all"],
  };
}

function translateErrors<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw toStoreError(path, error);
  }
}

export class StateDamaged extends ConfigError {}

export class StateBusy extends Retryable {}

/** Whether SQLite rejected Plenum's SQL, which means that the file's header or schema is damaged. */
export function isSqlError(error: unknown): boolean {
  return primaryCode(error) === 1;
}

type ErrorMeaning = (
  path: string,
  detail: string,
) => readonly [kind: typeof ConfigError | typeof Retryable, message: string, hint: string];

const describeBusy: ErrorMeaning = (path) => [
  StateBusy,
  `Another process holds ${path}.`,
  "It is tried again; end long-running queries on the file if this stays.",
];
const describeUnreadable: ErrorMeaning = (path, detail) => [
  Retryable,
  `${path} cannot be read or written (${detail}).`,
  "Check the disk and the rights of the folder.",
];
const describeDamaged: ErrorMeaning = (path, detail) => [
  StateDamaged,
  `${path} is damaged (${detail}).`,
  "A worker that uses it repairs its indexes, or sets it aside and sends what was not delivered from a fresh one.",
];

/** By SQLite's primary result codes: https://www.sqlite.org/rescode.html */
const ERROR_MEANINGS: Readonly<Record<number, ErrorMeaning>> = {
  5: describeBusy,
  6: describeBusy,
  10: describeUnreadable,
  11: describeDamaged,
  14: describeUnreadable,
  26: describeDamaged,
  8: (path) => [ConfigError, `${path} may not be written.`, "Run the worker as the owner of the state folder."],
  13: (path) => [
    Retryable,
    `The disk that holds ${path} is full; nothing was half-written.`,
    "Free some space; the work goes on by itself.",
  ],
};

function toStoreError(path: string, error: unknown): unknown {
  const errorMeaning = ERROR_MEANINGS[primaryCode(error) ?? 0];
  if (errorMeaning === undefined) return error;
  const [Kind, message, hint] = errorMeaning(path, error instanceof Error ? error.message : String(error));
  return new Kind(message, { cause: error, hint });
}

function primaryCode(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}

type Value = string | number | bigint | null | Uint8Array;

/** CRC-32 over the columns of a row; the last column may be long. 1, 1n and 1.0 give the same checksum, as in SQL. */
export function rowChecksum(...values: readonly Value[]): number {
  const lastValue = values.at(-1) ?? "";
  // An array would cost too much here: this runs for each value read. Null becomes an empty text.
  let prefixText = "";
  for (let n = 0; n < values.length - 1; n++) prefixText += `${n === 0 ? "" : "\u0000"}${values[n] ?? ""}`;
  return crc32(lastValue instanceof Uint8Array ? lastValue : String(lastValue), crc32(prefixText));
}

/** Computes `rowChecksum` for the columns of an event, without an array for each value. */
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

interface CheckedTable {
  readonly columns: readonly string[];
  /** The set, log, sink or bucket of a row, as SQL. */
  readonly part: string;
  readonly key: string;
}

/** Not covered: values that a start computes again (`event.written`, `log_size`, `dead_letter.resending`). */
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
} as const satisfies Readonly<Record<StateTable, CheckedTable>>;

export const CHECKED_TABLE_NAMES = Object.keys(CHECKED_TABLES) as readonly StateTable[];

/** SQL for the checksum of a row; `changed` maps columns to their new values. */
export function checksumSql(table: StateTable, changed: Readonly<Record<string, string>> = {}): string {
  const columns: readonly string[] = CHECKED_TABLES[table].columns;
  return `row_checksum(${columns.map((column) => changed[column] ?? `${table}.${column}`).join(", ")})`;
}

/** SQL condition for rows that differ from what was written. A row that is known to be damaged has no checksum. */
export function isDamagedSql(table: StateTable): string {
  return `${checksumSql(table)} is not ${table}.checksum`;
}
