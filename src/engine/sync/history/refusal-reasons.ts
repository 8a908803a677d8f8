import { ConfigError, meaningOf, NoLog, Rejected, Retryable } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { TokenScope } from "../scope.ts";
import type { Series } from "./ledgers.ts";

/**
 * Why the service refused a request for some series. Only its own 404 about a log says something about a log; whether a
 * 403 is about a site or an ability is asked of `GET me`; a request that it calls wrong (422) is our mistake. None of
 * them is an answer.
 */
export interface RefusalReasons {
  /**
   * What a refusal means for a group of series. Throws what is no refusal of them: trouble that passes, an ability that
   * is gone, or a refusal that nobody can explain yet. `first`: the refusal of a group that they are part of; what explained
   * that one explains this one too, because `GET me` is asked once a minute, and to divide a group takes nine requests.
   */
  of(
    error: unknown,
    asked: readonly Series[],
    what: string,
    signal: AbortSignal,
    first?: Refusal | null,
  ): Promise<Refusal>;
  /** Whether the sites of some series can still be seen, now that they seem to have no log. */
  seen(asked: readonly Series[], signal: AbortSignal): Promise<readonly Series[]>;
  /** Something was answered. */
  answered(): void;
  /** Counts and logs what of an answer is unreadable: the sentence of each log or total that has one, by tag id. */
  unreadable(asked: readonly Series[], said: ReadonlyMap<string, string>): void;
}

/**
 * `no-log`: the service says that one of them has no log. `refused`: it refused one of them for another reason.
 * `mistake`: it calls the request wrong. `out-of-sight`: the token does not see the site of one of them (any more).
 */
export interface Refusal {
  readonly why: "no-log" | "refused" | "mistake" | "out-of-sight";
  /** The service's words. */
  readonly said: string;
  /** Nothing at all was answered lately: it is not about these tags, and to ask on is of no use now. */
  readonly isLast: boolean;
  /** On the monotonic clock, milliseconds. */
  readonly atMs: number;
}

/** A refusal that says nothing of the tags that were asked for; it may pass by itself. */
export class Unclear extends Retryable {}

/** What an ask of history needs of the token (interface, GET tags/history). */
const ABILITY = "read:tags";
/** Refusals in a row, with no answer to anybody, after which it is not about single tags. */
const HOPELESS = 4;
const SAID_MAX = 300;

export type HistoryScope = Pick<TokenScope, "sees" | "explain" | "changes"> &
  Partial<Pick<TokenScope, "askedAtMs">>;

export function createRefusalReasons(options: {
  readonly scope: HistoryScope;
  readonly clock: Clock;
  readonly log: Pick<Log, "error" | "info" | "warn">;
  readonly source: string;
  readonly metrics?: Pick<Metrics, "historyRefusals">;
}): RefusalReasons {
  const { scope, clock, log, source, metrics } = options;
  /** Mistakes of ours that were told already. */
  const told = new Set<string>();
  /** Series whose last answer was unreadable, by their keys. */
  const unread = new Set<string>();
  let unanswered = 0;

  const siteIdsOf = (asked: readonly Series[]) => new Set(asked.map(({ placed }) => placed.siteId));

  async function explained(
    error: ConfigError | Rejected,
    asked: readonly Series[],
    atMs: number,
    signal: AbortSignal,
  ): Promise<"site" | "unexplained"> {
    const refusal = { siteIds: siteIdsOf(asked), ability: ABILITY, atMs };
    const why = await scope.explain(refusal, signal);
    if (why === "ability") throw error;
    // Nobody is to blame so far: it is tried again when the service has said what the token may.
    if (why === "unknown") throw new Unclear(`${error.message} Why is not known yet.`, { cause: error });
    return why;
  }

  return {
    async of(error, asked, what, signal, first = null) {
      signal.throwIfAborted();
      const atMs = first?.atMs ?? clock.monotonic();
      const failure = meaningOf(error);
      const said = failure.message.slice(0, SAID_MAX);
      const counted = (why: Refusal["why"]): Refusal => {
        metrics?.historyRefusals.inc({ source, reason: why });
        return { why, said, isLast: unanswered > HOPELESS, atMs };
      };
      if (failure instanceof NoLog) {
        unanswered = 0;
        return counted("no-log");
      }
      const isMistake = failure instanceof ConfigError && failure.reason === "validation";
      const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
      if (isMistake) {
        if (!told.has(said))
          log.error({ err: failure, asked: what }, "the service calls a request for history wrong");
        told.add(said);
      } else if (isForbidden || failure instanceof Rejected) {
        if ((await explained(failure, asked, atMs, signal)) === "site") return counted("out-of-sight");
      } else throw failure;
      unanswered++;
      return counted(isMistake ? "mistake" : "refused");
    },
    async seen(asked, signal) {
      const refusal = { siteIds: siteIdsOf(asked), ability: ABILITY, atMs: clock.monotonic() };
      await scope.explain(refusal, signal);
      return asked.filter(({ placed }) => scope.sees(placed.siteId));
    },
    answered() {
      unanswered = 0;
    },
    unreadable(asked, said) {
      const now = asked.filter(({ placed }) => said.has(placed.tag.id));
      if (now.length > 0) metrics?.historyRefusals.inc({ source, reason: "unreadable" }, now.length);
      const fresh = now.filter(({ key }) => !unread.has(key));
      const readable = asked.filter(({ key, placed }) => !said.has(placed.tag.id) && unread.has(key));
      for (const { key } of fresh) unread.add(key);
      for (const { key } of readable) unread.delete(key);
      if (fresh.length > 0) {
        const series = Object.fromEntries(fresh.map(({ key, placed }) => [key, said.get(placed.tag.id)]));
        log.warn({ series }, "history of these was answered and is unreadable; it is requested again singly");
      }
      if (readable.length > 0)
        log.info({ series: readable.map(({ key }) => key) }, "history of these was answered readably");
    },
  };
}
