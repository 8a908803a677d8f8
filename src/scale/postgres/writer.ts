import { randomBytes } from "node:crypto";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { Session } from "../../core/postgres/session.ts";
import { Unanswered } from "../../core/postgres/transact.ts";
import { oneAtATime, persist, within } from "../../core/runtime/waiting.ts";
import { createDeferredWrites, type DeferredWrites } from "../../engine/store/deferred-writes.ts";
import { Fenced } from "../../engine/store/fenced-store.ts";
import {
  type Answer,
  type Asked,
  type ShardOptions,
  type StateDatabase,
  sourceTopic,
} from "./state-database.ts";

/** Everything that is written to the state of one source, one transaction after the other. */
export interface Writer {
  readonly soon: DeferredWrites<() => Asked, Promise<unknown>>;
  /**
   * One transaction in one packet. Null when it was committed and its answers were lost: then whoever needs them looks.
   * Throws `Fenced` when another member holds the source.
   */
  commit(asked: readonly Asked[]): Promise<readonly Answer[] | null>;
  /** A transaction whose statements depend on what earlier ones answered; short. */
  work<T>(work: (session: Work) => Promise<T>): Promise<T>;
  /** How many transactions there were. */
  commits(): number;
  close(): Promise<void>;
}

export type Work = Pick<Session, "query" | "queries">;

/** Longest time of the last deferred writes, in milliseconds. */
const CLOSE_MS = 3_000;

const BACKOFF = { firstMs: 100, maxMs: 2_000 };

export interface WriterOptions extends ShardOptions {
  readonly database: StateDatabase;
  /** What the source's row said of its last commit when the holder began. */
  readonly lastCommit: string;
}

/**
 * Each transaction of a holder begins with the fence, which finds in the source's row the epoch and the mark of the
 * holder's commit before, and leaves a mark of its own:
 *
 *   last_commit   3f9a-7 ──fence(3f9a-7 → 3f9a-8)──► 3f9a-8
 *
 * When the connection ends before the answer to a commit, the mark says what became of it. To ask makes the mark another
 * one (`3f9a-7+`), so that a packet which is still on its way finds a mark that it does not expect, and comes to nothing.
 * Until that is known nothing else is written.
 */
export function createWriter(options: WriterOptions): Writer {
  const { database, source, as, clock, log } = options;
  const epoch = typeof as === "object" ? String(as.epoch) : null;
  const turn = oneAtATime();
  const closing = new AbortController();
  const self = randomBytes(4).toString("hex");
  const soon = createDeferredWrites<() => Asked, Promise<unknown>>(clock, () => commit([]));
  let last = options.lastCommit;
  let begun = 0;
  let commits = 0;
  let fenced: Fenced | null = null;

  function fence(mark: string): Asked {
    if (epoch === null) return { text: "select wait_for($1)", values: [source], name: "wait_for" };
    return {
      text: "select fence($1, $2::bigint, $3, $4)",
      values: [source, epoch, last, mark],
      name: "fence",
    };
  }

  /** Answers null when there was a commit whose answer was lost. */
  async function once<T>(send: (first: readonly Asked[]) => Promise<T>): Promise<T | null> {
    if (as === "reader") throw new ConfigError("This state was opened for reading only.");
    if (fenced !== null) throw fenced;
    closing.signal.throwIfAborted();
    begun += 1;
    const mark = `${self}-${begun}`;
    const taken = soon.take();
    let answer: T | null = null;
    try {
      answer = await send([fence(mark), ...taken.writes.map((statement) => statement())]);
      last = mark;
    } catch (error) {
      if (error instanceof Fenced) fenced = error;
      if (!(error instanceof Unanswered)) throw error;
      await refuseUncommitted(mark, error);
    }
    commits += 1;
    taken.committed();
    return answer;
  }

  /** Throws unless the transaction with this mark was committed. */
  async function refuseUncommitted(mark: string, lost: Unanswered): Promise<void> {
    if (epoch === null) {
      throw new Retryable(lost.message, { hint: "It may have been done or not; look before you repeat it." });
    }
    log.warn(
      { source, err: lost },
      "The answer to a commit was lost; the database is asked what became of it.",
    );
    const { rows } = await persist({
      clock,
      signal: closing.signal,
      backoff: BACKOFF,
      work: () =>
        database.query(
          "update source set last_commit = last_commit || '+' where name = $1 and epoch = $2::bigint returning last_commit",
          [source, epoch],
        ),
      fault: (error) =>
        log.debug({ source, err: error }, "the database does not say yet what became of a commit"),
    });
    const found = rows[0]?.[0];
    const [at, before] = [unasked(String(found ?? "")), unasked(last)];
    if (found === undefined || (at !== mark && at !== before)) {
      fenced = new Fenced(source);
      throw fenced;
    }
    last = String(found);
    log.info({ source, committed: at === mark }, "It is known what became of the commit.");
    if (at !== mark) throw new Retryable(lost.message, lost.hint === undefined ? {} : { hint: lost.hint });
  }

  function commit(asked: readonly Asked[]): Promise<readonly Answer[] | null> {
    return turn(async () => {
      let before = 0;
      const answers = await once((first) => {
        before = first.length;
        return database.transact([...first, ...asked, ...told()]);
      });
      return answers === null ? null : answers.slice(before, before + asked.length);
    });
  }

  /** The holder notices what an operator has changed; what the holder changes nobody has to. */
  const told = (): readonly Asked[] => (epoch === null ? [database.notify(sourceTopic(source))] : []);

  return {
    soon,
    commit,
    work<T>(work: (session: Work) => Promise<T>): Promise<T> {
      return turn(async () => {
        // What was worked out is there before the commit, whose answer may be lost.
        const result: { value?: T } = {};
        await once((first) =>
          database.work(async (session) => {
            await session.queries(first);
            result.value = await work(session);
            await session.queries(told());
          }),
        );
        return result.value as T;
      });
    },
    commits: () => commits,
    async close() {
      soon.stop();
      // Deferred writes that fail now are repeated, as after a crash.
      if (fenced === null) await within(clock, CLOSE_MS, soon.flush() ?? Promise.resolve());
      closing.abort(new Retryable(`The state of the source ${source} was closed.`));
    },
  };
}

/** A mark without what asking for it has added. */
function unasked(mark: string): string {
  return mark.replace(/\++$/, "");
}
