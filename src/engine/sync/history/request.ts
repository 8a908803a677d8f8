import { ConfigError, LocalFailure, meaningOf, NoLog, Rejected, Retryable } from "../../../core/errors/errors.ts";
import type { TagLog, TagTotal } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Choose, HistoryQuery, SlotOffer, Source } from "../../source/source.ts";
import type { StoredHistory } from "../snapshot.ts";
import { type Range, totalLength } from "./buckets.ts";
import { describeQuery, divide, type HistoryRequest, queryFor, type RefusedSingly } from "./choose-request.ts";
import { parseTime, recordEmpty, recordNoLog, recordPastRefusal, recordRefusal } from "./ledger.ts";
import { fetchedIn, unreadableById } from "./ledger-ranges.ts";
import type { DiscoveryRequest, LogDiscovery } from "./log-discovery.ts";
import type { LearnedWindow, ShortResponses } from "./request-size.ts";
import type { HistoryScope, HistorySeries, Series } from "./series.ts";
import type { HistorySettle } from "./settle.ts";

/**
 * One request of history from the free slot to the settled reply.
 *
 *   slot free ─ decide ─▶ query ─▶ reply ─┬─ logs, totals ─▶ settle
 *                                         └─ refused ─▶ explain ─▶ divide into halves ─▶ query …
 *
 * A refusal is no data. The service's 404 about a log (`NoLog`) is the only one that says something about a log. `GET me`
 * explains a 403: the token lost an ability, or does not see the site. A 422 is our mistake.
 */
export type Task = { readonly request: HistoryRequest } | { readonly discovery: DiscoveryRequest };

export interface HistoryRequests {
  /**
   * Waits for a slot, calls `decide` for the task (null passes the slot on), and settles the reply. If one tag spoils a
   * request, the other tags are requested in smaller ones. Throws failures that do not concern single tags.
   */
  perform(kind: "series" | "totals", decide: (offer: SlotOffer) => Task | null, signal: AbortSignal): Promise<void>;
}

/** Pause of a series whose response added nothing, in milliseconds. */
const STUCK_MS = 300_000;
/** Pause of series whose refusal has no explanation yet, in milliseconds. `GET me` is requested once a minute then. */
const UNCLEAR_MS = 60_000;
/** After more refusals in a row without any response, the cause is not a single tag. */
const HOPELESS = 4;
const MESSAGE_MAX = 300;
/** Ability that the token needs (interface, GET tags/history). */
const ABILITY = "read:tags";
const LEFT_OVER = "A group with it was refused because a log is missing, and all others of the group have one.";

interface Refusal {
  /** `mistake`: the service calls the request wrong. `out-of-sight`: the token does not see the site of a tag. */
  readonly reason: "no-log" | "refused" | "mistake" | "out-of-sight";
  /** Message of the service. */
  readonly message: string;
  /** Further requests are useless: many were refused in a row, and none got a response. */
  readonly isLast: boolean;
  /** On the monotonic clock, milliseconds. */
  readonly atMs: number;
}

/** A refusal without an explanation so far. It may pass. */
class Unclear extends Retryable {}

type Reply =
  | { readonly logs: readonly TagLog[] }
  | { readonly totals: readonly TagTotal[] }
  | { readonly error: unknown };

interface Divided {
  readonly refused: readonly RefusedSingly<Series, Refusal>[];
  /** The refusal that ended the division early; null when every series was requested. */
  readonly last: Refusal | null;
}

export function createHistoryRequests(options: {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Pick<Log, "error" | "info" | "warn">;
  readonly metrics?: Pick<Metrics, "historyRefusals">;
  readonly scope: HistoryScope;
  readonly book: Pick<HistorySeries, "ofTag">;
  readonly window: LearnedWindow;
  readonly discovery: LogDiscovery;
  readonly settle: HistorySettle;
  readonly short: ShortResponses;
  /** How long a slot stays unused after `decide` returned null, in milliseconds. */
  readonly lookMs: () => number;
}): HistoryRequests {
  const { source, clock, log, metrics, scope, book, window, discovery, settle, short } = options;
  /** Keys of series that the last response left out. */
  const leftOut = new Set<string>();
  /** Keys of series whose last response was unreadable. */
  const unreadable = new Set<string>();
  const loggedMistakes = new Set<string>();
  /** Refusals in a row, without any response in between. */
  let refusalsInRow = 0;

  async function send(
    query: HistoryQuery | Choose<HistoryQuery>,
    isTotal: boolean,
    signal: AbortSignal,
  ): Promise<Reply> {
    try {
      return isTotal
        ? { totals: await source.totals(query, "history", signal) }
        : { logs: await source.history(query, "history", signal) };
    } catch (error) {
      signal.throwIfAborted();
      return { error };
    }
  }

  /** Fetches and settles some of the series of a request. Throws the error of the reply. */
  async function settlePart(
    request: HistoryRequest,
    series: readonly Series[],
    replyTo: (query: HistoryQuery) => Promise<Reply>,
  ): Promise<void> {
    const part = {
      ...request,
      series,
      values: Math.round((request.values * series.length) / request.series.length),
    };
    const before = new Map(series.map((each) => [each, each.ledger]));
    const reply = await replyTo(queryFor(request, series));
    if ("error" in reply) {
      if (request.kind !== "total") await learnSize(reply.error, part.values);
      throw reply.error;
    }
    const records = "totals" in reply ? reply.totals : reply.logs;
    const settled =
      "totals" in reply
        ? await settle.totals(part, reply.totals)
        : await settle.logs(await short.believed(part, reply.logs), reply.logs, window.answered(part.values));
    refusalsInRow = 0;
    reportUnreadable(series, unreadableById(records));
    const moved = new Set(settled.filter((each) => hasMoved(before.get(each), each.ledger)));
    const listed = new Set(records.map(({ id }) => id));
    for (const each of series) {
      each.isSuspect = false;
      if (mayRetryAtOnce(each, listed.has(each.located.tag.id)) || moved.has(each)) continue;
      each.notBeforeMs = clock.monotonic() + STUCK_MS;
    }
  }

  /** A record that is missing once among 20 may be in the next response; after two in a row the series pauses. */
  function mayRetryAtOnce(series: Series, isListed: boolean): boolean {
    if (isListed) {
      leftOut.delete(series.key);
      return short.has(series);
    }
    if (leftOut.has(series.key)) return false;
    leftOut.add(series.key);
    return true;
  }

  /** Shrinks the next request after a failure that its size may have caused, a 422 included. */
  async function learnSize(error: unknown, values: number): Promise<void> {
    const failure = meaningOf(error);
    if (failure instanceof LocalFailure) return;
    const isWrong = failure.kind === "config" && failure.reason === "validation";
    if (failure.kind === "retryable" || failure.kind === "malformed" || isWrong) await window.failed(values);
  }

  /** Counts and logs unreadable logs and totals, each once until it is readable again. */
  function reportUnreadable(series: readonly Series[], messages: ReadonlyMap<string, string>): void {
    const now = series.filter(({ located }) => messages.has(located.tag.id));
    if (now.length > 0) metrics?.historyRefusals.inc({ source: source.name, reason: "unreadable" }, now.length);
    const fresh = now.filter(({ key }) => !unreadable.has(key));
    const readable = series.filter(({ key, located }) => !messages.has(located.tag.id) && unreadable.has(key));
    for (const { key } of fresh) unreadable.add(key);
    for (const { key } of readable) unreadable.delete(key);
    if (fresh.length > 0) {
      const named = Object.fromEntries(fresh.map(({ key, located }) => [key, messages.get(located.tag.id)]));
      log.warn({ series: named }, "history of these was answered and is unreadable; it is requested again singly");
    }
    if (readable.length > 0)
      log.info({ series: readable.map(({ key }) => key) }, "history of these was answered readably");
  }

  /**
   * Explains an error for a group of series. Throws errors that are not about them. `first`: the refusal of a larger group;
   * what explains it explains this one, because `GET me` is requested once a minute and a division takes nine requests.
   */
  async function explain(
    error: unknown,
    series: readonly Series[],
    what: string,
    signal: AbortSignal,
    first: Refusal | null = null,
  ): Promise<Refusal> {
    signal.throwIfAborted();
    const atMs = first?.atMs ?? clock.monotonic();
    const failure = meaningOf(error);
    const message = failure.message.slice(0, MESSAGE_MAX);
    const refusal = (reason: Refusal["reason"]): Refusal => {
      metrics?.historyRefusals.inc({ source: source.name, reason });
      return { reason, message, isLast: refusalsInRow > HOPELESS, atMs };
    };
    if (failure instanceof NoLog) {
      refusalsInRow = 0;
      return refusal("no-log");
    }
    const isMistake = failure instanceof ConfigError && failure.reason === "validation";
    const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
    if (isMistake) {
      if (!loggedMistakes.has(message))
        log.error({ err: failure, asked: what }, "the service calls a request for history wrong");
      loggedMistakes.add(message);
    } else if (isForbidden || failure instanceof Rejected) {
      const why = await scope.explain({ siteIds: siteIdsOf(series), ability: ABILITY, atMs }, signal);
      if (why === "ability") throw failure;
      if (why === "unknown") throw new Unclear(`${failure.message} Why is not known yet.`, { cause: failure });
      if (why === "site") return refusal("out-of-sight");
    } else throw failure;
    refusalsInRow++;
    return refusal(isMistake ? "mistake" : "refused");
  }

  /** Asks the service which of the series without a log have a site that the token still sees. */
  async function visible(series: readonly Series[], signal: AbortSignal): Promise<readonly Series[]> {
    if (series.length === 0) return [];
    await scope.explain({ siteIds: siteIdsOf(series), ability: ABILITY, atMs: clock.monotonic() }, signal);
    return series.filter(({ located }) => scope.sees(located.siteId));
  }

  /** Requests halves of a refused group until each series is settled or was refused singly. */
  async function divideAndSettle(
    series: readonly Series[],
    fetch: (part: readonly Series[]) => Promise<void>,
    describe: (part: readonly Series[]) => string,
    signal: AbortSignal,
    known: Refusal | null = null,
  ): Promise<Divided> {
    let last: Refusal | null = null;
    let first = known;
    let given = known;
    const attempt = async (part: readonly Series[]): Promise<Refusal | null> => {
      try {
        await fetch(part);
        return null;
      } catch (error) {
        return await explain(error, part, describe(part), signal, first);
      }
    };
    const refused = await divide(series, async (part) => {
      const refusal = given ?? (await attempt(part));
      given = null;
      if (refusal === null) return null;
      first ??= refusal;
      if (refusal.isLast) last = refusal;
      return refusal.reason === "out-of-sight" ? "stop" : refusal;
    });
    return { refused: refused ?? [], last };
  }

  /** Writes the refusals of single series into their ledgers. */
  async function recordRefused(
    request: HistoryRequest,
    refused: readonly RefusedSingly<Series, Refusal>[],
    signal: AbortSignal,
  ): Promise<void> {
    const noLog = refused.filter(({ refusal }) => refusal.reason === "no-log").map(({ member }) => member);
    const inSight = new Set(await visible(noLog, signal));
    const changed = new Map<Series, StoredHistory>();
    short.forget(refused.map(({ member }) => member));
    for (const { member: series, refusal } of refused) {
      series.isSuspect = true;
      // The service also answers "no log" for tags that the token does not see.
      if (refusal.reason === "no-log" && !inSight.has(series)) continue;
      const range = request.ranges.get(series.key);
      if (range !== undefined) changed.set(series, afterRefusal(request, series, range, refusal, clock.now()));
    }
    await settle.ledgers(changed);
    const said = refused[0]?.refusal.message;
    if (changed.size > 0) {
      const keys = [...changed.keys()].map(({ key }) => key);
      log.info({ series: keys, kind: request.kind, said }, "history was refused of these, asked alone");
    }
  }

  /** Serves a request whose first reply is here; the parts of a division take slots of their own. */
  async function serve(request: HistoryRequest, first: Reply, signal: AbortSignal): Promise<void> {
    let given: Reply | null = first;
    const replyTo = async (query: HistoryQuery): Promise<Reply> => {
      const reply = given ?? (await send(query, request.kind === "total", signal));
      given = null;
      return reply;
    };
    const fetch = (series: readonly Series[]) => settlePart(request, series, replyTo);
    try {
      const describe = (part: readonly Series[]) => describeQuery(request, part);
      const { refused, last } = await divideAndSettle(request.series, fetch, describe, signal);
      if (refused.length > 0) await recordRefused(request, refused, signal);
      if (last !== null) throw hopeless(last);
    } catch (error) {
      // If only these series are affected, the others must not wait for them.
      if (error instanceof Unclear)
        for (const each of request.series) each.notBeforeMs = clock.monotonic() + UNCLEAR_MS;
      throw error;
    }
  }

  const firstSeriesOf = (tagIds: readonly string[]) => tagIds.flatMap((id) => book.ofTag(id).slice(0, 1));
  const tagIdsOf = (series: readonly Series[]) => series.map(({ located }) => located.tag.id);
  /** Logs whose first month is trustworthy: a response that may be cut proves a log, but not its beginning. */
  const overviewOf = (logs: readonly TagLog[]) => (short.isComplete(logs) ? logs : []);

  /** Divides a discovery group that was refused for another reason than a log. */
  async function discoverSingly(tagIds: readonly string[], refusal: Refusal, signal: AbortSignal): Promise<void> {
    discovery.forget(tagIds);
    const fetch = async (part: readonly Series[]) => {
      const query = discovery.queryFor(tagIdsOf(part), clock.now());
      if (query === null) return;
      const logs = await source.history(query, "history", signal);
      refusalsInRow = 0;
      await settle.ledgers(discovery.proven(query.tagIds, overviewOf(logs), clock.now()));
    };
    const describe = (part: readonly Series[]) => `whether ${tagIdsOf(part)} have a log`;
    const { refused, last } = await divideAndSettle(firstSeriesOf(tagIds), fetch, describe, signal, refusal);
    for (const { member, refusal: own } of refused)
      await recordUndiscovered([member.located.tag.id], own.reason === "no-log", own.message, signal);
    if (last !== null) throw hopeless(last);
  }

  async function recordUndiscovered(
    tagIds: readonly string[],
    isNoLog: boolean,
    message: string,
    signal: AbortSignal,
  ): Promise<void> {
    if (tagIds.length === 0) return;
    let recorded = tagIds;
    if (isNoLog) {
      recorded = tagIdsOf(await visible(firstSeriesOf(tagIds), signal));
      discovery.forget(tagIds.filter((id) => !recorded.includes(id)));
    }
    await settle.ledgers(discovery.refused(recorded, isNoLog, message, clock.now()));
  }

  async function discover(task: DiscoveryRequest, reply: Reply, signal: AbortSignal): Promise<void> {
    const { tagIds } = task.query;
    const logs = "logs" in reply ? reply.logs : null;
    let refusal: Refusal | null = null;
    if ("error" in reply)
      refusal = await explain(reply.error, firstSeriesOf(tagIds), `whether ${tagIds} have a log`, signal);
    else refusalsInRow = 0;
    if (refusal?.reason === "out-of-sight") return;
    try {
      if (refusal !== null && refusal.reason !== "no-log") {
        await discoverSingly(tagIds, refusal, signal);
        return;
      }
      const withoutLog = discovery.settle(task, logs && new Set(logs.map(({ id }) => id)));
      if (logs !== null) await settle.ledgers(discovery.proven(tagIds, overviewOf(logs), clock.now()));
      await recordUndiscovered(withoutLog, true, refusal?.message ?? LEFT_OVER, signal);
    } catch (error) {
      discovery.forget(tagIds);
      throw error;
    }
  }

  return {
    async perform(kind, decide, signal) {
      let task: Task | null = null;
      const choose: Choose<HistoryQuery> = (offer) => {
        task = decide(offer);
        return task === null ? { passMs: options.lookMs() } : { ask: queryOf(task) };
      };
      const reply = await send(choose, kind === "totals", signal);
      const decided = task as Task | null;
      if (decided === null)
        throw "error" in reply ? reply.error : new Error("A history request was sent without a task.");
      if ("request" in decided) await serve(decided.request, reply, signal);
      else await discover(decided.discovery, reply, signal);
    },
  };
}

function siteIdsOf(series: readonly Series[]): ReadonlySet<number> {
  return new Set(series.map(({ located }) => located.siteId));
}

function queryOf(task: Task): HistoryQuery {
  return "request" in task ? queryFor(task.request, task.request.series) : task.discovery.query;
}

function hopeless({ message }: Refusal): Unclear {
  return new Unclear(`Nothing of the history is answered: ${message}`);
}

/** A 404 about a log means no log of this range in the past, and no log of the tag at the front of following. */
function afterRefusal(
  request: HistoryRequest,
  { ledger }: Series,
  range: Range,
  { reason, message }: Refusal,
  nowMs: number,
): StoredHistory {
  const isPastKind = request.kind === "backfill" || request.kind === "ordered";
  // Totals start at the depth of the backfill and go forward.
  const isPast = isPastKind || (request.kind === "total" && range.toMs <= parseTime(ledger.since));
  if (reason !== "no-log")
    return isPastKind ? recordPastRefusal(ledger, range, message, nowMs) : recordRefusal(ledger, message, nowMs);
  return isPast
    ? recordEmpty(ledger, range, { why: "no-log", said: message, at: isoUtc(nowMs) })
    : recordNoLog(ledger, message, nowMs);
}

/** Returns true if a response added something to a ledger, so that the next request can follow at once. */
function hasMoved(before: StoredHistory | undefined, after: StoredHistory): boolean {
  return (
    before === undefined ||
    parseTime(after.watermark) > parseTime(before.watermark) ||
    totalLength(fetchedIn(after.spans)) > totalLength(fetchedIn(before.spans)) ||
    (after.rereadFrom !== null && after.rereadFrom !== before.rereadFrom)
  );
}
