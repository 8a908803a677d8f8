import { Retryable } from "../errors/errors.ts";
import { isServerError, type Query, type QueryResult, type Session } from "./session.ts";

/** Longest pause within a transaction, in milliseconds; then the server rolls back and releases its locks. */
const IDLE_MS = 60_000;

export interface Limits {
  readonly statementMs: number;
  readonly idleMs?: number;
}

/** The connection was lost during the commit, so its result is unknown. `cause` has the error. */
export class Unanswered extends Retryable {}

/** Runs one transaction: durable when it resolves, undone when it rejects, unless with `Unanswered`. */
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

/** Runs known statements as one transaction in one round trip. After an error the server skips the rest and rolls back. */
export async function transactAtOnce(
  session: Session,
  limits: Limits,
  asked: readonly Query[],
): Promise<readonly QueryResult[]> {
  refuseLost(session);
  const outcomes = await session.outcomes([{ text: begin(limits) }, ...asked, ...COMMIT]);
  proveCommitted(outcomes);
  return outcomes.slice(1, 1 + asked.length).flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
}

function refuseLost(session: Session): void {
  const lost = session.lost();
  if (lost !== null) throw lost;
}

function begin({ statementMs, idleMs = IDLE_MS }: Limits): string {
  return `begin isolation level read committed; set local statement_timeout = ${statementMs}; set local idle_in_transaction_session_timeout = ${idleMs}`;
}

/** Without a time limit: a commit that waits for a replica would otherwise end as if it had succeeded. */
const COMMIT: readonly Query[] = [{ text: "set local statement_timeout = 0" }, { text: "commit" }];

/** Codes with which the server ends a connection while it may be committing. */
const ENDS_CONNECTION = /^(57P|08|25P03|58|XX)/;

/** Throws unless the commit succeeded. Only an error before the commit proves that nothing was committed. */
function proveCommitted(outcomes: readonly PromiseSettledResult<QueryResult>[]): void {
  const commit = outcomes.at(-1);
  if (commit?.status === "fulfilled" && commit.value.command === "COMMIT") return;
  const first = outcomes.find((each) => each.status === "rejected");
  // The server answers the commit of a failed transaction with a rollback.
  if (first === undefined) throw new Retryable("The database server took the transaction back.");
  const isAnswer = isServerError(first.reason);
  if (isAnswer && (first !== commit || !ENDS_CONNECTION.test(first.reason.code))) throw first.reason;
  throw new Unanswered("The connection to the database server ended before its answer to a commit.", {
    cause: first.reason,
  });
}

/** The server itself rolls back when the connection is lost. */
async function rollBack(session: Session): Promise<void> {
  if (session.lost() !== null) return;
  try {
    await session.query("rollback");
  } catch (error) {
    session.cut(error);
  }
}
