import { Retryable } from "../errors/errors.ts";
import { isServerError, type PostgresSession, type Query, type QueryResult } from "./session.ts";

/** Longest pause within a transaction, in milliseconds; then the server rolls back and releases its locks. */
const MAX_IDLE_MS = 60_000;

export interface TransactionLimits {
  readonly statementMs: number;
  readonly idleMs?: number;
}

/** The connection was lost during the commit, so its result is unknown. `cause` has the error. */
export class CommitUnknown extends Retryable {}

/** Runs one transaction: durable when it resolves, undone when it rejects, unless with `Unanswered`. */
export async function transact<T>(session: PostgresSession, limits: TransactionLimits, work: () => Promise<T>) {
  await session.query(beginSql(limits));
  let result: T;
  try {
    result = await work();
  } catch (error) {
    await rollBack(session);
    throw error;
  }
  refuseLostSession(session);
  verifyCommitted(await session.outcomes(COMMIT_STATEMENTS));
  return result;
}

/** Runs known statements as one transaction in one round trip. After an error the server skips the rest and rolls back. */
export async function transactAtOnce(
  session: PostgresSession,
  limits: TransactionLimits,
  statements: readonly Query[],
): Promise<readonly QueryResult[]> {
  refuseLostSession(session);
  const outcomes = await session.outcomes([{ text: beginSql(limits) }, ...statements, ...COMMIT_STATEMENTS]);
  verifyCommitted(outcomes);
  return outcomes.slice(1, 1 + statements.length).flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
}

function refuseLostSession(session: PostgresSession): void {
  const lostReason = session.lost();
  if (lostReason !== null) throw lostReason;
}

function beginSql({ statementMs, idleMs = MAX_IDLE_MS }: TransactionLimits): string {
  return `begin isolation level read committed; set local statement_timeout = ${statementMs}; set local idle_in_transaction_session_timeout = ${idleMs}`;
}

/** Without a time limit: a commit that waits for a replica would otherwise end as if it had succeeded. */
const COMMIT_STATEMENTS: readonly Query[] = [{ text: "set local statement_timeout = 0" }, { text: "commit" }];

/** Codes with which the server ends a connection while it may be committing. */
const CONNECTION_END_CODE = /^(57P|08|25P03|58|XX)/;

/** Throws unless the commit succeeded. Only an error before the commit proves that nothing was committed. */
function verifyCommitted(outcomes: readonly PromiseSettledResult<QueryResult>[]): void {
  const commit = outcomes.at(-1);
  if (commit?.status === "fulfilled" && commit.value.command === "COMMIT") return;
  const firstFailure = outcomes.find((each) => each.status === "rejected");
  // The server answers the commit of a failed transaction with a rollback.
  if (firstFailure === undefined) throw new Retryable("The database server took the transaction back.");
  const { reason } = firstFailure;
  if (isServerError(reason) && (firstFailure !== commit || !CONNECTION_END_CODE.test(reason.code))) throw reason;
  throw new CommitUnknown("The connection to the database server ended before its answer to a commit.", {
    cause: firstFailure.reason,
  });
}

/** The server itself rolls back when the connection is lost. */
async function rollBack(session: PostgresSession): Promise<void> {
  if (session.lost() !== null) return;
  try {
    await session.query("rollback");
  } catch (error) {
    session.cut(error);
  }
}
