import { Retryable } from "../errors/errors.ts";
import type { Query, QueryResult, Session } from "./session.ts";

/**
 * A server that hears nothing more of us in a transaction gives up its locks after this time, unless told otherwise, in
 * milliseconds.
 */
const IDLE_MS = 60_000;

/** Limits of one transaction, in milliseconds. */
export interface Limits {
  /** Time limit of each statement except the commit. */
  readonly statementMs: number;
  /** Until the next statement. */
  readonly idleMs?: number;
}

/** The connection was lost during the commit, so its result is unknown. `cause` has the error. */
export class Unanswered extends Retryable {}

/**
 * One transaction: what `work` did is durable when this resolves, and undone when it rejects, unless with `Unanswered`.
 * The limits are set for the transaction alone, which a pooler such as PgBouncer lets pass. What a commit means is left to
 * the server.
 */
export async function transact<T>(session: Session, limits: Limits, work: () => Promise<T>): Promise<T> {
  await session.query(begin(limits));
  let result: T;
  try {
    result = await work();
  } catch (error) {
    await rollBack(session);
    throw error;
  }
  refuseLost(session);
  proveCommitted(await session.outcomes(COMMIT));
  return result;
}

/**
 * The same where it is known beforehand what is asked, on one way there and back: of 20 values, three ways would be most
 * of the work. After an error the server does nothing more before the end of the transaction, which then is no commit.
 */
export async function transactAtOnce(
  session: Session,
  limits: Limits,
  asked: readonly Query[],
): Promise<readonly QueryResult[]> {
  refuseLost(session);
  const became = await session.outcomes([{ text: begin(limits) }, ...asked, ...COMMIT]);
  proveCommitted(became);
  return became.slice(1, 1 + asked.length).flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
}

/** Throws before the commit is sent when the connection is lost: an unsent commit has no effect. */
function refuseLost(session: Session): void {
  const lost = session.lost();
  if (lost !== null) throw lost;
}

function begin({ statementMs, idleMs = IDLE_MS }: Limits): string {
  return `begin isolation level read committed; set local statement_timeout = ${statementMs}; set local idle_in_transaction_session_timeout = ${idleMs}`;
}

/**
 * A statement that takes too long is stopped; a commit must not be. Where it waits for a replica, the server would take
 * the end of the wait for a good answer: https://www.postgresql.org/docs/15/warm-standby.html#SYNCHRONOUS-REPLICATION
 */
const COMMIT: readonly Query[] = [{ text: "set local statement_timeout = 0" }, { text: "commit" }];

/** Ways for the server to end a connection while it may be committing. */
const ENDS_CONNECTION = /^(57P|08|25P03|58|XX)/;

/**
 * Answers come in the order of what was asked. So an error before the commit, whatever became of the connection behind
 * it, is proof that there was none; an error of the commit itself is one only where the connection goes on.
 */
function proveCommitted(became: readonly PromiseSettledResult<QueryResult>[]): void {
  const commit = became.at(-1);
  if (commit?.status === "fulfilled" && commit.value.command === "COMMIT") return;
  const first = became.find((each) => each.status === "rejected");
  // The server answers the commit of a failed transaction with a rollback instead of an error.
  if (first === undefined) throw new Retryable("The database server took the transaction back.");
  const code = (first.reason as { readonly code?: unknown } | null)?.code;
  const isAnswer = typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && hasSeverity(first.reason);
  if (isAnswer && (first !== commit || !ENDS_CONNECTION.test(code))) throw first.reason;
  throw new Unanswered("The connection to the database server ended before its answer to a commit.", {
    cause: first.reason,
  });
}

function hasSeverity(error: unknown): boolean {
  return error instanceof Error && "severity" in error;
}

/** A connection that is of no use any more is taken back by the server itself. */
async function rollBack(session: Session): Promise<void> {
  if (session.lost() !== null) return;
  try {
    await session.query("rollback");
  } catch (error) {
    session.cut(error);
  }
}
