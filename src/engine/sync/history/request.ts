import {
  ConfigError,
  LocalFailure,
  meaningOf,
  NoLog,
  Rejected,
  Retryable,
} from "../../../core/errors/errors.ts";
import type { TagLog, TagTotal } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Choose, HistoryQuery, SlotOffer, Source } from "../../source/source.ts";
import type { TokenScope } from "../scope.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketBefore, rangeTime, totalLength } from "./buckets.ts";
import type { HistoryRequest } from "./choose-request.ts";
import { parseTime, recordEmpty, recordNoLog, recordPastRefusal, recordRefusal } from "./ledger.ts";
import { fetchedIn, unreadableById } from "./ledger-ranges.ts";
import type { DiscoveryRequest, LogDiscovery } from "./log-discovery.ts";
import type { LearnedWindow, ShortResponses } from "./request-size.ts";
import type { HistoryLedgers, Series } from "./series.ts";
import type { HistorySettle } from "./settle.ts";

/** What one request of history is for. */
export type Task = { readonly ask: HistoryRequest } | { readonly probe: DiscoveryRequest };

/** Makes the requests of history and settles what comes of them. Throws what does not concern a single tag. */
export interface HistoryRequests {
  /**
   * One piece of work. `decide` is asked when a slot is free; null lets it pass. Where a tag spoils the request, the
   * others are served in smaller ones.
   */
  perform(
    kind: "series" | "totals",
    decide: (offer: SlotOffer) => Task | null,
    signal: AbortSignal,
  ): Promise<void>;
}

/** How long a series is left alone whose answer brought it no further, in milliseconds. */
const STUCK_MS = 300_000;
/** How long one is left alone that was refused while nobody can say why; `GET me` is asked once a minute then. */
const UNCLEAR_MS = 60_000;

interface Apart {
  readonly refused: readonly RefusedSingly<Series, Refusal>[];
  /** The refusal after which it was of no use to ask on; null when everybody was asked. */
  readonly last: Refusal | null;
}

export function createHistoryRequests(options: {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly book: Pick<HistoryLedgers, "ofTag">;
  readonly window: LearnedWindow;
  readonly probe: LogDiscovery;
  readonly settle: HistorySettle;
  readonly short: ShortResponses;
  readonly reasons: RefusalReasons;
  /** How long nothing is looked for again after nothing was found, in milliseconds. */
  readonly lookMs: () => number;
}): HistoryRequests {
  const { source, clock, log, book, window, probe, settle, short, reasons } = options;
  /** Series that the last answer left out, by their keys. */
  const leftOut = new Set<string>();

  /** What the service says to a query: an answer, or the error, which the caller throws where it understands it. */
  async function askFor(
    query: HistoryQuery | Choose<HistoryQuery>,
    scalar: boolean,
    signal: AbortSignal,
  ): Promise<Reply> {
    try {
      return scalar
        ? { totals: await source.totals(query, "history", signal) }
        : { logs: await source.history(query, "history", signal) };
    } catch (error) {
      signal.throwIfAborted();
      return { error };
    }
  }

  /** The reply to some of the series of an ask, and its settlement. */
  async function fetchPart(
    ask: HistoryRequest,
    series: readonly Series[],
    replyTo: (query: HistoryQuery, scalar: boolean) => Promise<Reply>,
  ): Promise<void> {
    const query = queryFor(ask, series);
    const part = { ...ask, series, values: Math.round((ask.values * series.length) / ask.series.length) };
    const before = new Map(series.map((each) => [each, each.ledger]));
    const reply = await replyTo(query, ask.kind === "total");
    if ("error" in reply) {
      if (ask.kind !== "total") await learnSize(reply.error, part.values);
      throw reply.error;
    }
    const settled =
      "totals" in reply
        ? await settle.totals(part, reply.totals)
        : await settle.logs(await short.believed(part, reply.logs), reply.logs, window.answered(part.values));
    reasons.answered();
    reasons.unreadable(series, unreadableById("totals" in reply ? reply.totals : reply.logs));
    const moved = new Set(settled.filter((each) => hasMoved(before.get(each), each.ledger)));
    const listed = new Set(("totals" in reply ? reply.totals : reply.logs).map(({ id }) => id));
    for (const each of series) {
      each.suspect = false;
      if (mayGoOn(each, listed.has(each.located.tag.id)) || moved.has(each)) continue;
      each.notBeforeMs = clock.monotonic() + STUCK_MS;
    }
  }

  /**
   * Whether there is a reason to ask for a series again at once though its answer brought it no further. One record that
   * is missing among 20 may be there the next time: whoever exports a month would look at 97 % for five minutes. What is
   * left out twice in a row waits as all do.
   */
  function mayGoOn(series: Series, isListed: boolean): boolean {
    if (isListed) {
      leftOut.delete(series.key);
      return short.has(series);
    }
    if (leftOut.has(series.key)) return false;
    leftOut.add(series.key);
    return true;
  }

  /** Learns from a failure what size may be too large. */
  async function learnSize(error: unknown, values: number): Promise<void> {
    const failure = meaningOf(error);
    if (failure instanceof LocalFailure) return;
    // A service may also call a range too large by calling it wrong.
    const isWrong = failure.kind === "config" && failure.reason === "validation";
    if (failure.kind === "retryable" || failure.kind === "malformed" || isWrong) await window.failed(values);
  }

  /**
   * What was refused of each of these, asked alone; none where the site of one of them went out of sight. `known`: the
   * refusal of all of them together, where they were asked already.
   */
  async function settleApart(
    asked: readonly Series[],
    fetch: (part: readonly Series[]) => Promise<void>,
    whatOf: (part: readonly Series[]) => string,
    signal: AbortSignal,
    known: Refusal | null = null,
  ): Promise<Apart> {
    let last: Refusal | null = null;
    let first = known;
    const ask = async (part: readonly Series[]): Promise<Refusal | null> => {
      try {
        await fetch(part);
        return null;
      } catch (error) {
        return await reasons.of(error, part, whatOf(part), signal, first);
      }
    };
    let given = known;
    const refused = await divide(asked, async (part) => {
      const refusal = given ?? (await ask(part));
      given = null;
      if (refusal === null) return null;
      first ??= refusal;
      if (refusal.isLast) last = refusal;
      return refusal.why === "out-of-sight" ? "stop" : refusal;
    });
    return { refused: refused ?? [], last };
  }

  async function noteRefused(
    ask: HistoryRequest,
    refused: readonly RefusedSingly<Series, Refusal>[],
    signal: AbortSignal,
  ) {
    const noLog = refused.filter(({ refusal }) => refusal.why === "no-log").map(({ member }) => member);
    const seen = new Set(noLog.length === 0 ? [] : await reasons.seen(noLog, signal));
    const changed = new Map<Series, StoredHistory>();
    short.forget(refused.map(({ member }) => member));
    for (const { member: series, refusal } of refused) {
      series.suspect = true;
      // Whoever cannot be seen has no log for us, which says nothing about the log.
      if (refusal.why === "no-log" && !seen.has(series)) continue;
      const range = ask.ranges.get(series.key);
      if (range !== undefined) changed.set(series, noted(ask, series, range, refusal, clock.now()));
    }
    await settle.ledgers(changed);
    const told = [...changed.keys()].map(({ key }) => key);
    const said = refused[0]?.refusal.said;
    if (told.length > 0)
      log.info({ series: told, kind: ask.kind, said }, "history was refused of these, asked alone");
  }

  /** A group was refused for another reason than a log: each part is asked until each tag is known or was refused alone. */
  async function learnApart(tagIds: readonly string[], refusal: Refusal, signal: AbortSignal): Promise<void> {
    probe.forget(tagIds);
    const firsts = tagIds.flatMap((id) => book.ofTag(id).slice(0, 1));
    const idsOf = (part: readonly Series[]) => part.map(({ located }) => located.tag.id);
    const fetch = async (part: readonly Series[]) => {
      const query = probe.about(idsOf(part), clock.now());
      if (query === null) return;
      const logs = await source.history(query, "history", signal);
      reasons.answered();
      await settle.ledgers(probe.proven(query.tagIds, overview(logs), clock.now()));
    };
    const whatOf = (part: readonly Series[]) => `whether ${idsOf(part)} have a log`;
    const { refused, last } = await settleApart(firsts, fetch, whatOf, signal, refusal);
    for (const each of refused) await settleVerdict(idsOf([each.member]), each.refusal, signal);
    if (last !== null) throw hopeless(last);
  }

  /** What may have been cut says who has a log, but not when it begins. */
  function overview(logs: readonly TagLog[]): readonly TagLog[] {
    return short.isWhole(logs) ? logs : [];
  }

  async function settleVerdict(
    tagIds: readonly string[],
    { why, said }: Pick<Refusal, "why" | "said">,
    signal: AbortSignal,
  ) {
    if (tagIds.length === 0) return;
    if (why !== "no-log") {
      await settle.ledgers(probe.refused(tagIds, { why: "refused", said }, clock.now()));
      return;
    }
    const firsts = tagIds.flatMap((id) => book.ofTag(id).slice(0, 1));
    const seen = (await reasons.seen(firsts, signal)).map(({ located }) => located.tag.id);
    probe.forget(tagIds.filter((id) => !seen.includes(id)));
    await settle.ledgers(probe.refused(seen, { why, said }, clock.now()));
  }

  async function serve(ask: HistoryRequest, first: Reply, signal: AbortSignal): Promise<void> {
    // The whole group was asked in the slot that it was decided in; its parts take slots of their own.
    let given: Reply | null = first;
    const replyTo = async (query: HistoryQuery, scalar: boolean): Promise<Reply> => {
      const reply = given ?? (await askFor(query, scalar, signal));
      given = null;
      return reply;
    };
    const fetch = (part: readonly Series[]) => fetchPart(ask, part, replyTo);
    try {
      const apart = await settleApart(ask.series, fetch, (part) => shapeOf(ask, part), signal);
      if (apart.refused.length > 0) await noteRefused(ask, apart.refused, signal);
      if (apart.last !== null) throw hopeless(apart.last);
    } catch (error) {
      // Somebody else has the next turn: if it is about these alone, the others must not wait for them.
      if (error instanceof Unclear) {
        for (const each of ask.series) each.notBeforeMs = clock.monotonic() + UNCLEAR_MS;
      }
      throw error;
    }
  }

  async function learn(toLearn: DiscoveryRequest, reply: Reply, signal: AbortSignal): Promise<void> {
    const { query } = toLearn;
    const logs = "logs" in reply ? reply.logs : null;
    let refusal: Refusal | null = null;
    if ("error" in reply) {
      const asked = query.tagIds.flatMap((id) => book.ofTag(id).slice(0, 1));
      refusal = await reasons.of(reply.error, asked, `whether ${query.tagIds} have a log`, signal);
    } else reasons.answered();
    if (refusal?.why === "out-of-sight") return;
    try {
      if (refusal !== null && refusal.why !== "no-log") {
        await learnApart(query.tagIds, refusal, signal);
        return;
      }
      const bad = probe.settle(toLearn, logs && new Set(logs.map(({ id }) => id)));
      if (logs !== null) await settle.ledgers(probe.proven(query.tagIds, overview(logs), clock.now()));
      const said = refusal?.said ?? LEFT_OVER;
      await settleVerdict(bad, { why: "no-log", said }, signal);
    } catch (error) {
      // What could not be recorded, or is not clear, is to be learned again.
      probe.forget(query.tagIds);
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
      const reply = await askFor(choose, kind === "totals", signal);
      const decided = task as Task | null;
      if (decided === null)
        throw "error" in reply ? reply.error : new Error("Nobody decided what to ask for.");
      if ("ask" in decided) await serve(decided.ask, reply, signal);
      else await learn(decided.probe, reply, signal);
    },
  };
}

/** What came of one request. */
type Reply =
  | { readonly logs: readonly TagLog[] }
  | { readonly totals: readonly TagTotal[] }
  | { readonly error: unknown };

function queryOf(task: Task): HistoryQuery {
  return "ask" in task ? queryFor(task.ask, task.ask.series) : task.probe.query;
}

/** What is said of the one that is left over of a group, once the others were answered. */
const LEFT_OVER =
  "A group with it was refused because a log is missing, and all others of the group have one.";

function hopeless({ said }: Refusal): Unclear {
  return new Unclear(`Nothing of the history is answered: ${said}`);
}

/** For a person who has to find our mistake. */
function shapeOf(ask: HistoryRequest, part: readonly Series[]): string {
  const query = queryFor(ask, part);
  const { tagIds, from, to, resolution, timeZone } = query;
  return `${ask.kind}: ${tagIds.length} tags (${tagIds[0]} …), ${from} to ${to}, ${resolution}, ${timeZone}`;
}

/** The range reaches one bucket further back than needed, because the interface does not say what ends include. */
function queryFor(ask: HistoryRequest, series: readonly Series[]): HistoryQuery {
  const [first] = series;
  if (first === undefined) throw new Error("A history request is for at least one series.");
  const { resolution, timeZone } = first.rules;
  const { fromMs, toMs } = ask.range;
  const from = ask.kind === "total" ? fromMs : bucketBefore(fromMs, resolution, timeZone);
  const tagIds = series.map(({ located }) => located.tag.id);
  return { tagIds, from: rangeTime(from), to: rangeTime(toMs), resolution, timeZone };
}

/** In the past a 404 of a log says that this range has none; at the front of following that the tag has none (any more). */
function noted(
  ask: HistoryRequest,
  { ledger }: Series,
  range: { readonly fromMs: number; readonly toMs: number },
  { why, said }: Refusal,
  nowMs: number,
): StoredHistory {
  const isBefore = ask.kind === "backfill" || ask.kind === "ordered";
  // Totals come forward from the depth of the backfill.
  const isPast = isBefore || (ask.kind === "total" && range.toMs <= parseTime(ledger.since));
  if (why === "no-log") {
    const word = { why: "no-log" as const, said, at: isoUtc(nowMs) };
    return isPast ? recordEmpty(ledger, range, word) : recordNoLog(ledger, said, nowMs);
  }
  return isBefore ? recordPastRefusal(ledger, range, said, nowMs) : recordRefusal(ledger, said, nowMs);
}

/** Whether an answer brought a series further, so that asking again at once makes sense. */
function hasMoved(before: StoredHistory | undefined, after: StoredHistory): boolean {
  return (
    before === undefined ||
    parseTime(after.watermark) > parseTime(before.watermark) ||
    totalLength(fetchedIn(after.spans)) > totalLength(fetchedIn(before.spans)) ||
    (after.rereadFrom !== null && after.rereadFrom !== before.rereadFrom)
  );
}

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

  const siteIdsOf = (asked: readonly Series[]) => new Set(asked.map(({ located }) => located.siteId));

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
      return asked.filter(({ located }) => scope.sees(located.siteId));
    },
    answered() {
      unanswered = 0;
    },
    unreadable(asked, said) {
      const now = asked.filter(({ located }) => said.has(located.tag.id));
      if (now.length > 0) metrics?.historyRefusals.inc({ source, reason: "unreadable" }, now.length);
      const fresh = now.filter(({ key }) => !unread.has(key));
      const readable = asked.filter(({ key, located }) => !said.has(located.tag.id) && unread.has(key));
      for (const { key } of fresh) unread.add(key);
      for (const { key } of readable) unread.delete(key);
      if (fresh.length > 0) {
        const series = Object.fromEntries(fresh.map(({ key, located }) => [key, said.get(located.tag.id)]));
        log.warn({ series }, "history of these was answered and is unreadable; it is requested again singly");
      }
      if (readable.length > 0)
        log.info({ series: readable.map(({ key }) => key) }, "history of these was answered readably");
    },
  };
}

/**
 * Serves the members of a group that is refused because of some of them: halves are asked, and halves of what is
 * refused, until what is left was refused alone. Nobody is found guilty because others went well: whoever is left over
 * is asked alone as well. One bad member of 20 costs at most nine requests, and each good one is served once.
 */
export interface RefusedSingly<T, R> {
  readonly member: T;
  readonly refusal: R;
}

/**
 * `ask` returns null when a part was served, the refusal of it, or `stop` when nothing can be said of the group, which
 * is then null. After a refusal that is the last, what is known so far is the result.
 */
export async function divide<T, R extends { readonly isLast: boolean }>(
  group: readonly T[],
  ask: (part: readonly T[]) => Promise<R | "stop" | null>,
): Promise<readonly RefusedSingly<T, R>[] | null> {
  const refused: RefusedSingly<T, R>[] = [];
  let isOver = false;

  /** True when it was served; null when the others are not asked any more. */
  const attempt = async (part: readonly T[]): Promise<boolean | null> => {
    const refusal = await ask(part);
    if (refusal === null) return true;
    if (refusal === "stop") return null;
    const [member] = part;
    if (part.length === 1 && member !== undefined) refused.push({ member, refusal });
    isOver = refusal.isLast;
    return isOver ? null : false;
  };

  /** The halves of what was refused. False after a stop. */
  const search = async (part: readonly T[]): Promise<boolean> => {
    if (part.length <= 1) return true;
    const middle = Math.floor(part.length / 2);
    const [first, second] = [part.slice(0, middle), part.slice(middle)];
    const isServed = await attempt(first);
    if (isServed === null || (!isServed && !(await search(first)))) return false;
    // It is in the other half then, which is divided without being asked whole.
    if (isServed && second.length > 1) return search(second);
    const isOtherServed = await attempt(second);
    return isOtherServed !== null && (isOtherServed || search(second));
  };

  const isServed = await attempt(group);
  if (isServed === true) return [];
  const isDone = isServed !== null && (await search(group));
  return isDone || isOver ? refused : null;
}
