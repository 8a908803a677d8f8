import type { Query, QueryResult, Session, Values } from "../../core/postgres/session.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { PostgresState } from "../../engine/store/config.ts";

export type { Query, QueryResult, Values } from "../../core/postgres/session.ts";

export interface StateDatabase {
  /** For people: `db.example:5432/plenum, schema plenum_state`; never a password. */
  readonly name: string;
  /** Qualified and quoted name of a table or function: `table("event")` is `"plenum_state"."event"`. */
  table(name: string): string;
  /** Runs one statement in a transaction of its own, for at most 8 s or `withinMs` milliseconds. Throws as `transact`. */
  query(text: string, values?: Values, withinMs?: number): Promise<QueryResult>;
  /** One transaction in one packet. Throws `Fenced`, `Conflict`, `Unanswered` (committed or not) or `Retryable`. */
  transact(asked: readonly Query[]): Promise<readonly QueryResult[]>;
  /** Runs a transaction whose statements depend on earlier results. The server ends one that pauses for 3 s. */
  work<T>(work: (session: Pick<Session, "query" | "queries">) => Promise<T>): Promise<T>;
  /** Calls the listener on notifications, after a lost connection and every 30 s; returns a function that stops it. */
  onNotified(topic: string, listener: () => void): () => void;
  notify(topic: string): Query;
  describe(): Promise<StateDatabaseDescription>;
  close(): Promise<void>;
}

export interface StateDatabaseDescription {
  readonly bytes: number;
  readonly schemaVersion: number;
  /** The connected server and its version: `db.example:5432, PostgreSQL 15.6`. */
  readonly server: string;
  /** The setting of this connection: `off` and `local` are weaker than Plenum's promise. */
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
  readonly limitMs?: number;
  readonly isPatient?: boolean;
}

export function sourceTopic(source: string): string {
  return `source ${source}`;
}

/** A holder by the epoch of its lease; an operator, who appends no events; or a reader, who changes nothing. */
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
  const warnings = [
    loss &&
      `The server has synchronous_commit = ${synchronousCommit}, so ${loss}: set it to on for this user or database.`,
    !dataChecksums && "The server has data_checksums off, so it would not notice a page that its disk has damaged.",
  ];
  return warnings.filter((warning) => typeof warning === "string");
}

/** Losses of each setting below `on`: https://www.postgresql.org/docs/15/runtime-config-wal.html */
const LOSSES: Readonly<Record<string, string>> = {
  off: "a crash of it loses what it had said to be committed",
  local: "a replica that takes over may lack what it had said to be committed",
};
