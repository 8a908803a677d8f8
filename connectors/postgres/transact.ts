import { Retryable } from "../../src/errors.ts";
import type { Answer, Asked, Session } from "./session.ts";

/** A server that hears nothing more of us in a transaction gives up its locks after this time, in milliseconds. */
const IDLE_MS = 60_000;

/**
 * One transaction: what `work` did is durable when this resolves, and undone when it rejects. The limits are set for
 * the transaction alone, which a pooler such as PgBouncer lets pass. What a commit means is left to the server.
 */
export async function transact<T>(session: Session, timeoutMs: number, work: () => Promise<T>): Promise<T> {
  await session.query(begin(timeoutMs));
  let result: T;
  try {
    result = await work();
  } catch (error) {
    await rollBack(session);
    throw error;
  }
  proveCommitted(await session.query("commit"));
  return result;
}

/**
 * The same where it is known beforehand what is asked, on one way there and back: of 20 values, three ways would be most
 * of the work. After an error the server does nothing more before the end of the transaction, which then is no commit.
 */
export async function transactAtOnce(
  session: Session,
  timeoutMs: number,
  asked: readonly Asked[],
): Promise<void> {
  const answers = await session.queries([{ text: begin(timeoutMs) }, ...asked, { text: "commit" }]);
  proveCommitted(answers.at(-1));
}

function begin(timeoutMs: number): string {
  return `begin; set local statement_timeout = ${timeoutMs}; set local idle_in_transaction_session_timeout = ${IDLE_MS}`;
}

/** Of a transaction that had failed before, the server says so instead of refusing. */
function proveCommitted(answer: Answer | undefined): void {
  if (answer?.command !== "COMMIT") throw new Retryable("The database server took the transaction back.");
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
