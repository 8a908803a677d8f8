import type { StateTable } from "./sqlite.ts";
import type { DocumentChange } from "./store.ts";

/** A statement in PostgreSQL's SQL; `$1` is the source. The driver of SQLite translates the text. */
export interface SqlStatement {
  readonly text: string;
  readonly values: readonly SqlValue[];
  readonly name?: string;
}

export type SqlValue = string | number | null | readonly number[] | readonly string[];

/** The work of one transaction: yields statements, receives their rows. In SQLite it runs without interruption. */
export type SqlSteps<T> = Generator<readonly SqlStatement[], T, readonly (readonly unknown[])[]>;
export type Awaitable<T> = T | Promise<T>;

export function* runSql<Row = unknown>(text: string, ...values: readonly SqlValue[]): SqlSteps<readonly Row[]> {
  const [rows = []] = yield [{ text, values }];
  return rows as readonly Row[];
}

export interface SqlDriver {
  readonly dialect: SqlDialect;
  query<Row>(text: string, ...values: readonly SqlValue[]): Awaitable<readonly Row[]>;
  commit(statements: readonly SqlStatement[], documents?: readonly DocumentChange[]): Awaitable<void>;
  /** Runs a transaction whose statements depend on earlier results. If `work` runs twice, only the second run counts. */
  transaction<T>(work: () => SqlSteps<T>): Awaitable<T>;
  /** Runs a statement with the next transaction, after 5 s at most; see `deferred-writes.ts`. */
  defer(key: string, buildStatement: () => SqlStatement): Promise<void>;
  isBehind(): boolean;
  flush(): Awaitable<unknown>;
  changes(): Awaitable<number>;
}

export type SqlByColumn = Readonly<Record<string, string>>;

/** SQL that differs between the databases. In SQLite each row has a checksum; PostgreSQL checks its pages itself. */
export interface SqlDialect {
  /** `fromSql`: the SQL after the selected columns. `copyOf`: table to copy rows from; damaged rows get no checksum. */
  insert(table: StateTable, cells: SqlByColumn, fromSql?: string, copyOf?: StateTable): string;
  upsert(table: StateTable, keys: readonly string[], cells: SqlByColumn): string;
  /** Builds an update of this source's undamaged rows. */
  update(table: StateTable, cells: SqlByColumn, where: string): string;
  isIntactSql(table: StateTable): string;
  /** Builds the condition that a column has one of the values of a list parameter, such as `$3::bigint[]`. */
  isIn(column: string, valuesSql: string): string;
  kindOfBodySql(body: string): string;
  /** Table of the log's counters `bytes` and `written`, and the condition on its row. */
  readonly counters: { readonly table: string; readonly where: string };
  readonly lastPositionSql: string;
  readonly countValuesAfterSql: string;
}
