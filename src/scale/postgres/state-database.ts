import type { PostgresSession, SqlQuery, SqlResult, SqlValues } from "../../core/postgres/session.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { PostgresState } from "../../engine/store/state-config.ts";

export type { SqlQuery, SqlResult, SqlValues } from "../../core/postgres/session.ts";

export interface StateDatabase {
  /** Database name to show, without a password: `db.example:5432/plenum, schema plenum_state`. */
  readonly name: string;
  /** Qualified and quoted name of a table or function: `table("event")` is `"plenum_state"."event"`. */
  table(name: string): string;
  /** Runs one statement as a transaction, for at most 8 s or `timeoutMs` milliseconds. Throws like `transact`. */
  query(text: string, values?: SqlValues, timeoutMs?: number): Promise<SqlResult>;
  /** Runs a transaction in one packet. Throws `CommitUnknown` if it may be committed although the reply was lost. */
  transact(queries: readonly SqlQuery[]): Promise<readonly SqlResult[]>;
  /** Runs a transaction whose statements depend on earlier results. The server aborts it after a pause of 3 s. */
  transaction<T>(work: (session: StateSession) => Promise<T>): Promise<T>;
  /** Calls the listener on notifications, after a lost connection and every 30 s; returns a function to unsubscribe. */
  onNotified(topic: string, listener: () => void): () => void;
  notify(topic: string): SqlQuery;
  describe(): Promise<StateDatabaseDescription>;
  close(): Promise<void>;
}

export type StateSession = Pick<PostgresSession, "query" | "runQueries">;

export interface StateDatabaseDescription {
  readonly bytes: number;
  readonly schemaVersion: number;
  /** The connected server and its version: `db.example:5432, PostgreSQL 15.6`. */
  readonly server: string;
  /** PostgreSQL's setting `synchronous_commit`; with `off` or `local`, committed events can be lost. */
  readonly synchronousCommit: string;
  readonly dataChecksums: boolean;
  readonly isReplica: boolean;
}

export interface StateDatabaseOptions {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
  readonly migrate: boolean;
  readonly connections?: number;
  readonly statementTimeoutMs?: number;
  readonly allowsLongTransaction?: boolean;
}

export const sourceTopic = (source: string): string => `source ${source}`;

/** Access to a source's state: a lease holder with its epoch, an operator's command without a lease, or read-only. */
export type SourceStateAccess = { readonly epoch: number } | "operator" | "reader";

export interface SourceStateOptions {
  readonly source: string;
  readonly access: SourceStateAccess;
  readonly clock: Clock;
  readonly log: Log;
}

/** Returns one sentence for each server setting with which committed events can be lost. */
export function durabilityWarnings({
  dataChecksums,
  synchronousCommit,
}: Pick<StateDatabaseDescription, "dataChecksums" | "synchronousCommit">): readonly string[] {
  const possibleLoss = LOSS_BY_SYNCHRONOUS_COMMIT[synchronousCommit];
  const possibleWarnings = [
    possibleLoss &&
      `The server has synchronous_commit = ${synchronousCommit}, so ${possibleLoss}: set it to on for this user or database.`,
    !dataChecksums && "The server has data_checksums off, so it would not notice a page that its disk has damaged.",
  ];
  return possibleWarnings.filter((warning) => typeof warning === "string");
}

/** Describes what can be lost with each value of PostgreSQL's setting `synchronous_commit`. */
const LOSS_BY_SYNCHRONOUS_COMMIT: Readonly<Record<string, string>> = {
  off: "a crash of it loses what it had said to be committed",
  local: "a replica that takes over may lack what it had said to be committed",
};
