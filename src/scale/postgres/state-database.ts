import type { Query, QueryResult, Session, Values } from "../../core/postgres/session.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { PostgresState } from "../../engine/store/config.ts";

export type { Query as Asked, QueryResult as Answer, Values } from "../../core/postgres/session.ts";

/** The tables in which the members of a fleet keep what they share, and the sources' states. */
export interface StateDatabase {
  /** For people: `db.example:5432/plenum, schema plenum_state`; never a password. */
  readonly name: string;
  /** Qualified and quoted: `table("event")` is `"plenum_state"."event"`. The same for a function. */
  table(name: string): string;
  /**
   * One statement, committed by itself. It may take 8 s, or `withinMs` milliseconds where that is said. Throws as
   * `transact`.
   */
  query(text: string, values?: Values, withinMs?: number): Promise<QueryResult>;
  /**
   * One transaction in one packet: all of it or nothing. Answers what each statement answered. Throws `Fenced`,
   * `Conflict`, `Unanswered` (a Retryable: it may have been committed, or not), `Retryable` or `ConfigError`.
   */
  transact(asked: readonly Query[]): Promise<readonly QueryResult[]>;
  /** A transaction whose statements depend on what earlier ones answered. Short: the server ends one that pauses for 3 s. */
  work<T>(work: (session: Pick<Session, "query" | "queries">) => Promise<T>): Promise<T>;
  /**
   * Calls when a topic was notified by anybody (own process included), after the listening connection was away, and
   * every 30 s besides: then to look is all that is known. Answers how to stop.
   */
  onNotified(topic: string, listener: () => void): () => void;
  /** To be put among the statements of a transaction; whoever listens hears of it when it is committed. */
  notify(topic: string): Query;
  describe(): Promise<StateDatabaseDescription>;
  /** Ends all connections; what is under way fails. */
  close(): Promise<void>;
}

export interface StateDatabaseDescription {
  /** Of all tables and indexes of the schema. */
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Which server is spoken to, and its version: `db.example:5432, PostgreSQL 15.6`. */
  readonly server: string;
  /** As the server has it for our connections: `off` and `local` are less than what is promised. */
  readonly synchronousCommit: string;
  /** Whether the server finds pages that its disk has damaged. */
  readonly dataChecksums: boolean;
  readonly isReplica: boolean;
}

export interface StateDatabaseOptions {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
  /** False for looking on: an older schema is refused then, instead of being brought up to date. */
  readonly migrate: boolean;
  /** In place of the configured number, for a command that needs few. */
  readonly connections?: number;
  /** Longest time of a statement and of a transaction in milliseconds, in place of 8 s and 10 s. */
  readonly limitMs?: number;
  /** For a command that makes one large transaction: its limits are minutes instead of seconds. */
  readonly isPatient?: boolean;
}

/** What is notified when an operator has changed something of a source. */
export function sourceTopic(source: string): string {
  return `source ${source}`;
}

/**
 * Who comes to the state of a source: whoever holds it, by the lease's epoch; an operator, who changes something beside
 * the holder and appends no events; or a reader, who changes nothing.
 */
export type ShardAccess = { readonly epoch: number } | "operator" | "reader";

export interface ShardOptions {
  readonly source: string;
  readonly as: ShardAccess;
  readonly clock: Clock;
  readonly log: Log;
}

/** What a person should know of the server that keeps the state, a sentence each; empty when it keeps what it promises. */
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

/** What each setting loses that is less than `on`: https://www.postgresql.org/docs/15/runtime-config-wal.html */
const LOSSES: Readonly<Record<string, string>> = {
  off: "a crash of it loses what it had said to be committed",
  local: "a replica that takes over may lack what it had said to be committed",
};
