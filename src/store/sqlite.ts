import { DatabaseSync, type StatementSync } from "node:sqlite";
import { ConfigError, Retryable } from "../errors.ts";
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
      );
      statements.set(sql, statement);
      return statement;
    },
    number(sql) {
      const row = self.prepare(sql).get<Record<string, unknown>>() ?? {};
      return Number(Object.values(row)[0] ?? 0);
    },
    transaction(work) {
      self.prepare("begin immediate").run();
      let result: ReturnType<typeof work>;
      try {
        for (const witness of witnesses) witness.begun?.();
        result = work();
        self.prepare("commit").run();
      } catch (error) {
        for (const witness of witnesses) witness.rolledBack?.();
        // A full disk makes SQLite roll back by itself.
        if (database.isTransaction) self.exec("rollback");
        throw error;
      }
      transactions += 1;
      for (const witness of witnesses) witness.committed?.();
      return result;
    },
    watch: (witness) => void witnesses.push(witness),
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

function wrap(path: string, statement: StatementSync): Statement {
  return {
    // Called for each row: without a function to be guarded, which would be made anew each time.
    run(...values) {
      try {
        return Number(statement.run(...values).changes);
      } catch (error) {
        throw meaning(path, error);
      }
    },
    insert(...values) {
      try {
        const { changes, lastInsertRowid } = statement.run(...values);
        return changes === 0 ? null : Number(lastInsertRowid);
      } catch (error) {
        throw meaning(path, error);
      }
    },
    get: <Row>(...values: readonly Bindable[]) =>
      guarded(path, () => statement.get(...values)) as Row | undefined,
    all: <Row>(...values: readonly Bindable[]) => guarded(path, () => statement.all(...values)) as Row[],
  };
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
        hint: "Restart the worker: it sets the file aside and begins with a fresh one.",
      });
    default:
      return error;
  }
}

function primaryCode(error: unknown): number | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  return error.errcode & 0xff;
}
