import type { CheckedName } from "./checksum.ts";
import type { DocumentChange } from "./store.ts";

/**
 * The seam between the rules of the outbox and the two databases. The rules are written once, as statements in
 * PostgreSQL's SQL over columns that both databases have. `$1` is the source; the driver adds its value. The driver of
 * SQLite translates the text (`sqlite-driver.ts`).
 */
export interface Statement {
  readonly text: string;
  /** Values of `$2`, `$3`, … */
  readonly values: readonly SqlValue[];
  /** Name of a statement that is prepared once per connection. */
  readonly name?: string;
}

export type SqlValue = string | number | null | readonly number[] | readonly string[];

/**
 * The work of one transaction. It yields statements and receives their rows. SQLite runs it synchronously: otherwise two
 * callers could mix their work in one transaction.
 */
export type Steps<T> = Generator<readonly Statement[], T, readonly (readonly unknown[])[]>;

export type Awaitable<T> = T | Promise<T>;

/** Runs one statement within a transaction; returns its rows. */
export function* step<Row = unknown>(text: string, ...values: readonly SqlValue[]): Steps<readonly Row[]> {
  const [rows = []] = yield [{ text, values }];
  return rows as readonly Row[];
}

export interface SqlDriver {
  readonly dialect: Dialect;
  query<Row>(text: string, ...values: readonly SqlValue[]): Awaitable<readonly Row[]>;
  /** Runs statements and changes of documents in one transaction. */
  commit(statements: readonly Statement[], documents?: readonly DocumentChange[]): Awaitable<void>;
  /** Runs a transaction whose statements depend on earlier results. `work` may run twice; the first has no effect then. */
  transaction<T>(work: () => Steps<T>): Awaitable<T>;
  /** Runs a statement with the next transaction, after 5 s at most; see `deferred-writes.ts`. */
  defer(key: string, statement: () => Statement): Promise<void>;
  /** Whether deferred statements could not be written in time. */
  isBehind(): boolean;
  /** Commits the deferred statements. */
  flush(): Awaitable<unknown>;
  /** Returns a number that changes with every change, also of other processes. */
  changes(): Awaitable<number>;
}

/** Columns and their values as SQL. */
export type Cells = Readonly<Record<string, string>>;

/** Text that differs between the databases. In SQLite each row has a checksum; PostgreSQL checks its pages itself. */
export interface Dialect {
  /** `from` follows the values: tables and conditions. A copy of a damaged row of `copyOf` counts as damaged too. */
  insert(table: CheckedName, cells: Cells, from?: string, copyOf?: CheckedName): string;
  /** Inserts a row, or replaces the one with the same keys. */
  upsert(table: CheckedName, keys: readonly string[], cells: Cells, from?: string): string;
  /** Changes sound rows of this source. */
  update(table: CheckedName, cells: Cells, where: string): string;
  /** Condition: the row is what was written. */
  isSound(table: CheckedName): string;
  /** Condition: a column has one of the values in a list parameter, such as `$3::bigint[]`. */
  isIn(column: string, list: string): string;
  /** The kind of the event in a body. */
  kindIn(body: string): string;
  /** Table of the log's counters `bytes` and `written`, and the condition on its row. */
  readonly counters: { readonly table: string; readonly where: string };
  /** The last position that was ever committed. */
  readonly end: string;
  /** Number of values after `$2`, counted by an index without reading bodies. */
  readonly valuesAfter: string;
}
