import type { Query, QueryResult, Session, Values } from "../../core/postgres/session.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { PostgresState } from "../../engine/store/config.ts";

export type { Query, QueryResult, Values } from "../../core/postgres/session.ts";

/** The tables that the members of a fleet share, with the states of the sources. */
export interface StateDatabase {
  /** For people: `db.example:5432/plenum, schema plenum_state`; never a password. */
  readonly name: string;
  /** Qualified and quoted name of a table or function: `table("event")` is `"plenum_state"."event"`. */
  table(name: string): string;
  /** Runs one statement in a transaction of its own, for at most 8 s or `withinMs` milliseconds. Throws as `transact`. */
  query(text: string, values?: Values, withinMs?: number): Promise<QueryResult>;
  /**
   * Runs one transaction in one packet and returns each statement's result. Throws `Fenced`, `Conflict`, `Unanswered`
   * (a Retryable: committed or not), `Retryable` or `ConfigError`.
   */
  transact(asked: readonly Query[]): Promise<readonly QueryResult[]>;
  /** Runs a transaction whose statements depend on earlier results. The server ends one that pauses for 3 s. */
  work<T>(work: (session: Pick<Session, "query" | "queries">) => Promise<T>): Promise<T>;
  /**
   * Calls the listener when any process notifies the topic, after the listening connection was lost, and every 30 s:
   * then the listener has to look. Returns a function that stops it.
   */
  onNotified(topic: string, listener: () => void): () => void;
  /** Statement that notifies listeners when its transaction is committed. */
  notify(topic: string): Query;
  describe(): Promise<StateDatabaseDescription>;
  /** Ends all connections; running work fails. */
  close(): Promise<void>;
}

export interface StateDatabaseDescription {
  /** Size of all tables and indexes of the schema. */
  readonly bytes: number;
  readonly schemaVersion: number;
  /** The connected server and its version: `db.example:5432, PostgreSQL 15.6`. */
  readonly server: string;
  /** The setting of this connection: `off` and `local` are weaker than Plenum's promise. */
  readonly synchronousCommit: string;
  /** Whether the server detects pages that its disk has damaged. */
  readonly dataChecksums: boolean;
  readonly isReplica: boolean;
}

export interface StateDatabaseOptions {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
  /** False for reading: an older schema is then refused instead of updated. */
  readonly migrate: boolean;
  /** Replaces the configured number, for a command that needs few. */
  readonly connections?: number;
  /** Longest time of a statement and of a transaction in milliseconds, in place of 8 s and 10 s. */
  readonly limitMs?: number;
  /** For a command with one large transaction: its limits are minutes instead of seconds. */
  readonly isPatient?: boolean;
}

/** Topic of an operator's changes to a source. */
export function sourceTopic(source: string): string {
  return `source ${source}`;
}

/**
 * Access to the state of a source: its holder with the lease's epoch; an operator, who changes something while another
 * process holds it and appends no events; or a reader, who changes nothing.
 */
export type ShardAccess = { readonly epoch: number } | "operator" | "reader";

export interface ShardOptions {
  readonly source: string;
  readonly as: ShardAccess;
  readonly clock: Clock;
  readonly log: Log;
}

/** Warnings about the server's durability, one sentence each; empty when it keeps the promise. */
export function durabilityWarnings({
  dataChecksums,
  synchronousCommit,
}: Pick<StateDatabaseDescription, "dataChecksums" | "synchronousCommit">): readonly string[] {
  const loss = LOSSES[synchronousCommit];
  return [
    ...(loss === undefined
      ? []
      : [
          `The server has synchronous_commit = ${synchronousCommit}, so ${loss}: set it to on for this user or database.`,
        ]),
    ...(dataChecksums
      ? []
      : ["The server has data_checksums off, so it would not notice a page that its disk has damaged."]),
  ];
}

/** Losses of each setting below `on`: https://www.postgresql.org/docs/15/runtime-config-wal.html */
const LOSSES: Readonly<Record<string, string>> = {
  off: "a crash of it loses what it had said to be committed",
  local: "a replica that takes over may lack what it had said to be committed",
};
