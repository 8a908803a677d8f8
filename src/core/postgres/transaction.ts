import { Retryable } from "../errors/errors.ts";
import { isPostgresError, type PostgresSession, type SqlQuery, type SqlResult } from "./session.ts";

/** Longest pause within a transaction, in milliseconds; then the server rolls back and releases its locks. */
const MAX_TRANSACTION_IDLE_MS = 60_000;

export interface TransactionLimits {
  readonly statementMs: number;
  readonly idleMs?: number;
}

/** Error if the connection was lost during a commit, whose result is then unknown. `cause` is the original error. */
export class CommitUnknown extends Retryable {}

/** Runs `work` in a transaction. Commits if it resolves, rolls back if it rejects. May throw `CommitUnknown`. */
export async function runTransaction<T>(session: PostgresSession, limits: TransactionLimits, work: () => Promise<T>) {
  await session.query(beginTransactionSql(limits));
  let result: T;
  try {
    result = await work();
  } catch (error) {
    if (session.lostReason() === null) await session.query("rollback").catch(session.cut);
    throw error;
  }
  throwIfSessionLost(session);
  verifyTransactionCommitted(await session.runBatch(COMMIT_STATEMENTS));
  return result;
}

/** Runs statements as one transaction in one round trip. After an error the server skips the rest and rolls back. */
export async function runStatementsInTransaction(
  session: PostgresSession,
  limits: TransactionLimits,
  statements: readonly SqlQuery[],
): Promise<readonly SqlResult[]> {
  throwIfSessionLost(session);
  const outcomes = await session.runBatch([{ text: beginTransactionSql(limits) }, ...statements, ...COMMIT_STATEMENTS]);
  verifyTransactionCommitted(outcomes);
  return outcomes
    .slice(1, 1 + statements.length)
    .flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
}

function throwIfSessionLost(session: PostgresSession): void {
  const connectionError = session.lostReason();
  if (connectionError !== null) throw connectionError;
}

function beginTransactionSql({ statementMs, idleMs = MAX_TRANSACTION_IDLE_MS }: TransactionLimits): string {
  return `begin isolation level read committed; set local statement_timeout = ${statementMs}; set local idle_in_transaction_session_timeout = ${idleMs}`;
}

/** The commit has no time limit, because a commit that waits for a replica would seem successful after a timeout. */
const COMMIT_STATEMENTS: readonly SqlQuery[] = [{ text: "set local statement_timeout = 0" }, { text: "commit" }];

/** Error codes of a server that closes the connection, possibly during a commit. */
const CONNECTION_END_CODE = /^(57P|08|25P03|58|XX)/;

/** Throws unless the commit succeeded. Only an error before the commit proves that nothing was committed. */
function verifyTransactionCommitted(outcomes: readonly PromiseSettledResult<SqlResult>[]): void {
  const commit = outcomes.at(-1);
  if (commit?.status === "fulfilled" && commit.value.command === "COMMIT") return;
  const failedOutcome = outcomes.find((each) => each.status === "rejected");
  // After a failed statement, the server answers `commit` with a rollback and without an error.
  if (failedOutcome === undefined) throw new Retryable("The database server took the transaction back.");
  const { reason } = failedOutcome;
  if (isPostgresError(reason) && (failedOutcome !== commit || !CONNECTION_END_CODE.test(reason.code))) throw reason;
  throw new CommitUnknown("The connection to the database server ended before its answer to a commit.", {
    cause: failedOutcome.reason,
  });
}
