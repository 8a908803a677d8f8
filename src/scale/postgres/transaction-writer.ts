import { randomBytes } from "node:crypto";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { CommitUnknown } from "../../core/postgres/transaction.ts";
import { createSerialRunner, endsWithin, retryUntilDone } from "../../core/runtime/waiting.ts";
import { createDeferredWrites } from "../../engine/store/deferred-writes.ts";
import { FencedError } from "../../engine/store/fenced-store.ts";
import type { SourceStateOptions, SqlQuery, SqlResult, StateDatabase, StateSession } from "./state-database.ts";
import { sourceTopic } from "./state-database.ts";

export type SourceStateWriter = ReturnType<typeof createTransactionWriter>;

const CLOSE_FLUSH_TIMEOUT_MS = 3_000;
const COMMIT_OUTCOME_QUERY_BACKOFF = { firstMs: 100, maxMs: 2_000 };

/**
 * Writes a lease holder's transactions. Each first checks that the source's row has the holder's epoch and commit id.
 *
 *   last_commit   3f9a-7 ──fence(3f9a-7 → 3f9a-8)──► 3f9a-8
 *
 * After a lost reply, a query shows whether the id was committed. It also changes the id, so a delayed packet fails.
 */
export function createTransactionWriter(
  options: SourceStateOptions & { readonly database: StateDatabase; readonly lastCommit: string },
) {
  const { database, source, access, clock, log } = options;
  const heldEpoch = typeof access === "object" ? String(access.epoch) : null;
  const runOneAtATime = createSerialRunner();
  const closeController = new AbortController();
  const writerId = randomBytes(4).toString("hex");
  const deferredWrites = createDeferredWrites<() => SqlQuery, Promise<unknown>>(clock, () => commitTransaction([]));
  let lastMark = options.lastCommit;
  let transactionCount = 0;
  let commitCount = 0;
  let fenceError: FencedError | null = null;

  function buildFence(mark: string): SqlQuery {
    if (heldEpoch === null) return { text: "select wait_for($1)", values: [source], name: "wait_for" };
    return { text: "select fence($1, $2::bigint, $3, $4)", values: [source, heldEpoch, lastMark, mark], name: "fence" };
  }

  async function sendFencedTransaction<T>(
    send: (fenceStatements: readonly SqlQuery[]) => Promise<T>,
  ): Promise<T | null> {
    if (access === "reader") throw new ConfigError("This state was opened for reading only.");
    if (fenceError !== null) throw fenceError;
    closeController.signal.throwIfAborted();
    transactionCount += 1;
    const commitMark = `${writerId}-${transactionCount}`;
    const deferredWritesToSend = deferredWrites.takeWaiting();
    let sendResult: T | null = null;
    try {
      sendResult = await send([buildFence(commitMark), ...deferredWritesToSend.writes.map((statement) => statement())]);
      lastMark = commitMark;
    } catch (error) {
      if (error instanceof FencedError) fenceError = error;
      if (!(error instanceof CommitUnknown)) throw error;
      await throwUnlessCommitted(commitMark, error);
    }
    commitCount += 1;
    deferredWritesToSend.resolveWrites();
    return sendResult;
  }

  async function throwUnlessCommitted(commitMark: string, lostCommit: CommitUnknown): Promise<void> {
    if (heldEpoch === null)
      throw new Retryable(lostCommit.message, { hint: "It may have been done or not; look before you repeat it." });
    log.warn({ source, err: lostCommit }, "The reply to a commit was lost; Plenum queries whether it was committed.");
    const { rows } = await retryUntilDone({
      clock,
      signal: closeController.signal,
      backoff: COMMIT_OUTCOME_QUERY_BACKOFF,
      work: () =>
        database.query(
          "update source set last_commit = last_commit || '+' where name = $1 and epoch = $2::bigint returning last_commit",
          [source, heldEpoch],
        ),
      onFault: (error) => log.debug({ source, err: error }, "the query for the outcome of a commit failed"),
    });
    const storedCommitMark = rows[0]?.[0];
    const [stored, last] = [stripCommitMarkSuffix(String(storedCommitMark ?? "")), stripCommitMarkSuffix(lastMark)];
    if (storedCommitMark === undefined || (stored !== commitMark && stored !== last)) {
      fenceError = new FencedError(source);
      throw fenceError;
    }
    lastMark = String(storedCommitMark);
    log.info({ source, committed: stored === commitMark }, "The outcome of the commit is known.");
    if (stored !== commitMark)
      throw new Retryable(lostCommit.message, lostCommit.hint === undefined ? {} : { hint: lostCommit.hint });
  }

  /** Runs a transaction in one packet. Returns null if it committed and the reply was lost. */
  function commitTransaction(statements: readonly SqlQuery[]): Promise<readonly SqlResult[] | null> {
    return runOneAtATime(async () => {
      let fenceCount = 0;
      const statementReplies = await sendFencedTransaction((fenceStatements) => {
        fenceCount = fenceStatements.length;
        return database.transact([...fenceStatements, ...statements, ...buildNotification()]);
      });
      return statementReplies === null ? null : statementReplies.slice(fenceCount, fenceCount + statements.length);
    });
  }

  const buildNotification = (): readonly SqlQuery[] =>
    heldEpoch === null ? [database.notify(sourceTopic(source))] : [];

  return {
    deferredWrites,
    commit: commitTransaction,
    transaction<T>(work: (session: StateSession) => Promise<T>): Promise<T> {
      return runOneAtATime(async () => {
        // Keep the result of `work` here, because the reply to the commit may be lost.
        const result: { value?: T } = {};
        await sendFencedTransaction((fenceStatements) =>
          database.transaction(async (session) => {
            await session.runQueries(fenceStatements);
            result.value = await work(session);
            await session.runQueries(buildNotification());
          }),
        );
        return result.value as T;
      });
    },
    commits: (): number => commitCount,
    async close(): Promise<void> {
      deferredWrites.stop();
      // Deferred writes that fail here are repeated after the next start, as after a crash.
      if (fenceError === null)
        await endsWithin(clock, CLOSE_FLUSH_TIMEOUT_MS, deferredWrites.flush() ?? Promise.resolve());
      closeController.abort(new Retryable(`The state of the source ${source} was closed.`));
    },
  };
}

const stripCommitMarkSuffix = (mark: string): string => mark.replace(/\++$/, "");
