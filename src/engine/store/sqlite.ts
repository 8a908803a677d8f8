import { DatabaseSync, type StatementResultingChanges, type StatementSync } from "node:sqlite";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { checksumOf } from "./checksum.ts";

/**
 * The only importer of node:sqlite, and the only place that knows its moods: which values bind differs between
 * minor versions of Node (booleans, `undefined`), so nothing but these four gets through.
 */
export type Bindable = string | number | null | Uint8Array;

export interface Statement {
  /** Answers how many rows changed. */
  run(...values: readonly Bindable[]): number;
  /** Answers the number of the row that was inserted; null when none was. */
  insert(...values: readonly Bindable[]): number | null;
  get<Row>(...values: readonly Bindable[]): Row | undefined;
  all<Row>(...values: readonly Bindable[]): readonly Row[];
}

export interface Database {
  readonly path: string;
  readonly readOnly: boolean;
  exec(sql: string): void;
  /** Statements are prepared once per text and kept. */
  prepare(sql: string): Statement;
  /** The single number that a pragma or query answers. */
  number(sql: string): number;
  /** All of `work` or nothing; `work` must be short, because everything else waits. */
  transaction<T>(work: () => T): T;
  /** From now on the witness is told of every transaction. */
  watch(witness: Witness): void;
  /** Repairs damage that a statement or transaction meets, and does it once more. One inside a transaction fails with it. */
  repairWith(repair: Repair): void;
  /** Another number whenever anybody has changed the file, in a transaction of ours or elsewhere. */
  changes(): number;
  close(): void;
}

/** Told of each transaction: inside it, before its work, and how it ended; and of what others did, by who asks for it. */
export interface Witness {
  begun?(): void;
  committed?(): void;
  rolledBack?(): void;
  /** `changes` has noticed that another process changed the file. */
  othersChanged?(): void;
}

export interface Repair {
  /** Repairs what can be repaired while the file is open; false when that was tried lately. */
  attempt(error: Damaged): boolean;
  /** The same work has failed again after the repair, or there was none. */
  failed(error: Damaged): void;
}

export interface DatabaseOptions {
  readonly readOnly?: boolean;
  /** How long to wait for another process that is writing, in milliseconds. */
  readonly busyMs?: number;
}

export function openDatabase(path: string, options: DatabaseOptions = {}): Database {
  const { readOnly = false, busyMs = 5_000 } = options;
  const database = guarded(path, () => new DatabaseSync(path, { readOnly, timeout: busyMs }));
  // Damaged integers can be larger than a number holds exactly, so they come as bigint.
  database.function(
    "row_checksum",
    { deterministic: true, varargs: true, useBigIntArguments: true },
    checksumOf,
  );
  const statements = new Map<string, Statement>();
  const witnesses: Witness[] = [];
  let transactions = 0;
  let othersSeen = 0;
  let open = true;
  let repair: Repair | null = null;

  /** The result of the same work after a repair, or throws what went wrong with it. */
  const recover: Recover = (error, work) => {
    const active = repair;
    if (!(error instanceof Damaged) || active === null || database.isTransaction) throw error;
    // What the repair itself meets is its own failure.
    repair = null;
    try {
      if (active.attempt(error)) return work();
      throw error;
    } catch (again) {
      if (again instanceof Damaged) active.failed(again);
      throw again;
    } finally {
      repair = active;
    }
  };

  function transact<T>(work: () => T): T {
    self.prepare("begin immediate").run();
    try {
      for (const witness of witnesses) witness.begun?.();
      const result = work();
      self.prepare("commit").run();
      return result;
    } catch (error) {
      for (const witness of witnesses) witness.rolledBack?.();
      // A full disk makes SQLite roll back by itself.
      if (database.isTransaction) self.exec("rollback");
      throw error;
    }
  }

  const self: Database = {
    path,
    readOnly,
    exec: (sql) => guarded(path, () => database.exec(sql)),
    prepare(sql) {
      const known = statements.get(sql);
      if (known !== undefined) return known;
      const statement = wrap(
        path,
        guarded(path, () => database.prepare(sql)),
        recover,
      );
      statements.set(sql, statement);
      return statement;
    },
    number(sql) {
      const row = self.prepare(sql).get<Record<string, unknown>>() ?? {};
      return Number(Object.values(row)[0] ?? 0);
    },
    transaction(work) {
      let result: ReturnType<typeof work>;
      try {
        result = transact(work);
      } catch (error) {
        result = recover(error, () => transact(work));
      }
      transactions += 1;
      for (const witness of witnesses) witness.committed?.();
      return result;
    },
    watch: (witness) => void witnesses.push(witness),
    repairWith: (means) => {
      repair = means;
    },
    changes() {
      // SQLite counts what others do, and leaves out what we do.
      const others = self.number("pragma data_version");
      if (others !== othersSeen) {
        othersSeen = others;
        for (const witness of witnesses) witness.othersChanged?.();
      }
      return transactions + others;
    },
    close() {
      if (!open) return;
      open = false;
      guarded(path, () => database.close());
    },
  };
  othersSeen = self.number("pragma data_version");
  return self;
}

type Recover = <T>(error: unknown, work: () => T) => T;

function wrap(path: string, statement: StatementSync, recover: Recover): Statement {
  // Called for each row: without a function to be guarded, which would be made anew each time.
  function after<T>(error: unknown, work: () => T): T {
    return recover(meaning(path, error), () => guarded(path, work));
  }
  return {
    run(...values) {
      try {
        return Number(statement.run(...values).changes);
      } catch (error) {
        return after(error, () => Number(statement.run(...values).changes));
      }
    },
    insert(...values) {
      try {
        return rowOf(statement.run(...values));
      } catch (error) {
        return after(error, () => rowOf(statement.run(...values)));
      }
    },
    get<Row>(...values: readonly Bindable[]) {
      try {
        return statement.get(...values) as Row | undefined;
      } catch (error) {
        return after(error, () => statement.get(...values) as Row | undefined);
      }
    },
    all<Row>(...values: readonly Bindable[]) {
      try {
        return statement.all(...values) as Row[];
      } catch (error) {
        return after(error, () => statement.all(...values) as Row[]);
      }
    },
  };
}

function rowOf({ changes, lastInsertRowid }: StatementResultingChanges): number | null {
  return changes === 0 ? null : Number(lastInsertRowid);
}

function guarded<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw meaning(path, error);
  }
}

/** SQLite's primary result codes: https://www.sqlite.org/rescode.html */
const CODE = {
  busy: 5,
  locked: 6,
  readOnly: 8,
  io: 10,
  corrupt: 11,
  full: 13,
  cannotOpen: 14,
  notADatabase: 26,
} as const;

/** The file is not a database, or is one no longer. */
export class Damaged extends ConfigError {}

/** SQLite did not understand our SQL. With a file of ours that means that its header or its schema is damaged. */
export function isSqlError(error: unknown): boolean {
  return primaryCode(error) === 1;
}

/** Another process holds the file. */
export class Busy extends Retryable {}

function meaning(path: string, error: unknown): unknown {
  const code = primaryCode(error);
  if (code === null) return error;
  const detail = error instanceof Error ? error.message : String(error);
  const cause = { cause: error };
  switch (code) {
    case CODE.full:
      return new Retryable(`The disk that holds ${path} is full; nothing was half-written.`, {
        ...cause,
        hint: "Free some space; the work goes on by itself.",
      });
    case CODE.io:
    case CODE.cannotOpen:
      return new Retryable(`${path} cannot be read or written (${detail}).`, {
        ...cause,
        hint: "Check the disk and the rights of the folder.",
      });
    case CODE.busy:
    case CODE.locked:
      return new Busy(`Another process holds ${path}.`, {
        ...cause,
        hint: "It is tried again; end long-running queries on the file if this stays.",
      });
    case CODE.readOnly:
      return new ConfigError(`${path} may not be written.`, {
        ...cause,
        hint: "Run the worker as the owner of the state folder.",
      });
    case CODE.corrupt:
    case CODE.notADatabase:
      return new Damaged(`${path} is damaged (${detail}).`, {
        ...cause,
        hint: "A worker that uses it repairs its indexes, or sets it aside and sends what was not delivered from a fresh one.",
      });
    default:
      return error;
  }
}

function primaryCode(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}
