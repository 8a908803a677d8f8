import { asFailure, ConfigError, LocalFailure, NoTagLog, Rejected, Retryable } from "../../../core/errors/errors.ts";
import type { TagLog, TagTotal } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { HistoryQuery, OfferedSlot, RequestChooser, Source } from "../../source/source.ts";
import type { StoredLedger } from "../stored-documents.ts";
import { parseTime, type TimeRange, totalLengthMs } from "./buckets.ts";
import { buildSeriesQuery, describeHistoryRequest, type HistoryRequest } from "./choose-request.ts";
import type { HistoryReplySettlement } from "./commit-history-reply.ts";
import type { LogDiscoveryRequest, TagLogDiscovery } from "./find-tags-with-history.ts";
import { addLedgerRanges, recordNoLog, recordPastRefusal, recordRefusal } from "./ledger.ts";
import { fetchedRanges, unreadableMessagesById } from "./ledger-ranges.ts";
import type { LearnedRequestSize, ShortHistoryResponses } from "./request-size.ts";
import type { HistoryScope, HistorySeriesRegistry, Series } from "./series-registry.ts";

export type HistoryTask = { readonly request: HistoryRequest } | { readonly discovery: LogDiscoveryRequest };

const NO_PROGRESS_PAUSE_MS = 300_000;
const UNEXPLAINED_REFUSAL_PAUSE_MS = 60_000;
const HISTORY_REFUSALS_IN_ROW_MAX = 4;
const REFUSAL_MESSAGE_LENGTH_MAX = 300;
const READ_TAGS_ABILITY = "read:tags";
const LAST_TAG_OF_GROUP_MESSAGE =
  "A group with it was refused because a log is missing, and all others of the group have one.";

interface Refusal {
  /** `mistake`: the service calls the request invalid. `out-of-sight`: the token cannot see the site of a tag. */
  readonly reason: "no-log" | "refused" | "mistake" | "out-of-sight";
  readonly message: string;
  /** True after many refusals in a row, so that the rest of the group is not requested. */
  readonly shouldStop: boolean;
  readonly atMs: number;
}

class UnexplainedRefusal extends Retryable {}

interface RefusedSeries {
  readonly member: Series;
  readonly refusal: Refusal;
}

interface RequestedPart {
  readonly members: readonly Series[];
  /** The second half of the same group, which is requested after this part. */
  readonly sibling?: RequestedPart;
  isKnownBad: boolean;
}

type HistoryReply =
  | { readonly logs: readonly TagLog[] }
  | { readonly totals: readonly TagTotal[] }
  | { readonly error: unknown };

/**
 * Performs a history request from the free slot of the quota to the committed reply.
 *     slot free ─ choose ─▶ query ─▶ reply ─┬─ logs, totals ─▶ commit
 *                                           └─ refused ─▶ explain ─▶ divide into halves ─▶ query …
 */
export function createHistoryRequests(options: {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Pick<Log, "error" | "info" | "warn">;
  readonly metrics: Pick<Metrics, "historyRefusals"> | undefined;
  readonly scope: HistoryScope;
  readonly registry: HistorySeriesRegistry;
  readonly learnedSize: LearnedRequestSize;
  readonly discovery: TagLogDiscovery;
  readonly replySettlement: HistoryReplySettlement;
  readonly shortResponses: ShortHistoryResponses;
  readonly lookupIntervalMs: () => number;
}) {
  const { source, clock, log, metrics, scope, registry, learnedSize, discovery, replySettlement, shortResponses } =
    options;
  const omittedSeriesKeys = new Set<string>();
  const unreadableKeys = new Set<string>();
  const loggedInvalidRequests = new Set<string>();
  let refusalsInRow = 0;

  const firstSeriesOfTags = (tagIds: readonly string[]) =>
    tagIds.flatMap((id) => registry.getSeriesOfTag(id).slice(0, 1));

  /** `chooseTask` returns null to leave the slot to other requests. Throws failures that do not concern single tags. */
  async function performTask(
    isTotal: boolean,
    chooseTask: (offer: OfferedSlot) => HistoryTask | null,
    signal: AbortSignal,
  ) {
    const chosenTasks: HistoryTask[] = [];
    const chooseHistoryQuery: RequestChooser<HistoryQuery> = (offer) => {
      const task = chooseTask(offer);
      if (task === null) return { declineForMs: options.lookupIntervalMs() };
      chosenTasks.push(task);
      return {
        content: "request" in task ? buildSeriesQuery(task.request, task.request.series) : task.discovery.query,
      };
    };
    const reply = await sendQuery(chooseHistoryQuery, isTotal, signal);
    const [task] = chosenTasks;
    if (task === undefined)
      throw "error" in reply ? reply.error : new Error("A history request was sent without a task.");
    if ("request" in task) await serveHistoryRequest(task.request, reply, signal);
    else await discoverLogs(task.discovery, reply, signal);
  }

  async function sendQuery(query: HistoryQuery | RequestChooser<HistoryQuery>, isTotal: boolean, signal: AbortSignal) {
    try {
      return isTotal
        ? { totals: await source.totals(query, "history", signal) }
        : { logs: await source.history(query, "history", signal) };
    } catch (error) {
      signal.throwIfAborted();
      return { error };
    }
  }

  async function serveHistoryRequest(request: HistoryRequest, firstReplyOfRequest: HistoryReply, signal: AbortSignal) {
    let firstReply: HistoryReply | null = firstReplyOfRequest;
    const fetchPart = async (seriesPart: readonly Series[]) => {
      const reply =
        firstReply ?? (await sendQuery(buildSeriesQuery(request, seriesPart), request.kind === "total", signal));
      firstReply = null;
      await settleReply(request, seriesPart, reply);
    };
    try {
      const recordRefusals = (refusedSeries: readonly RefusedSeries[]) => storeRefusals(request, refusedSeries, signal);
      await fetchSeriesInParts(request.series, describeHistoryRequest(request), fetchPart, recordRefusals, signal);
    } catch (error) {
      if (error instanceof UnexplainedRefusal)
        for (const refusedSeries of request.series)
          refusedSeries.notBeforeMs = clock.monotonic() + UNEXPLAINED_REFUSAL_PAUSE_MS;
      throw error;
    }
  }

  async function settleReply(request: HistoryRequest, series: readonly Series[], reply: HistoryReply): Promise<void> {
    const values = Math.round((request.valueCount * series.length) / request.series.length);
    const partRequest = { ...request, series };
    const ledgersBefore = new Map(series.map((requestedSeries) => [requestedSeries, requestedSeries.ledger]));
    if ("error" in reply) {
      if (request.kind !== "total") await learnSizeFromFailure(reply.error, values);
      throw reply.error;
    }
    const records = "totals" in reply ? reply.totals : reply.logs;
    const settleLogs = async (logs: readonly TagLog[]) =>
      replySettlement.commitLogs(
        await shortResponses.selectVerifiedRanges(partRequest, logs),
        logs,
        learnedSize.requestSucceeded(values),
      );
    const settledSeries =
      "totals" in reply ? await replySettlement.commitTotals(partRequest, reply.totals) : await settleLogs(reply.logs);
    refusalsInRow = 0;
    reportUnreadableSeries(series, unreadableMessagesById(records));
    const advancedSeries = new Set(
      settledSeries.filter((settledOne) => hasLedgerAdvanced(ledgersBefore.get(settledOne), settledOne.ledger)),
    );
    const listedTagIds = new Set(records.map(({ id }) => id));
    for (const requestedSeries of series) {
      requestedSeries.isSuspect = false;
      const isTagListed = listedTagIds.has(requestedSeries.siteTag.tag.id);
      if (maySeriesRetryAtOnce(requestedSeries, isTagListed) || advancedSeries.has(requestedSeries)) continue;
      requestedSeries.notBeforeMs = clock.monotonic() + NO_PROGRESS_PAUSE_MS;
    }
  }

  function maySeriesRetryAtOnce(series: Series, isListed: boolean): boolean {
    if (isListed) {
      omittedSeriesKeys.delete(series.key);
      return shortResponses.hasUnverifiedEnds(series);
    }
    const isFirstOmission = !omittedSeriesKeys.has(series.key);
    omittedSeriesKeys.add(series.key);
    return isFirstOmission;
  }

  async function learnSizeFromFailure(error: unknown, values: number): Promise<void> {
    const failure = asFailure(error);
    if (failure instanceof LocalFailure) return;
    const isRequestInvalid = failure.kind === "config" && failure.reason === "validation";
    if (failure.kind === "retryable" || failure.kind === "malformed" || isRequestInvalid)
      await learnedSize.requestFailed(values);
  }

  function reportUnreadableSeries(series: readonly Series[], messages: ReadonlyMap<string, string>): void {
    const unreadableSeries = series.filter(({ siteTag }) => messages.has(siteTag.tag.id));
    const { length } = unreadableSeries;
    if (length > 0) metrics?.historyRefusals.inc({ source: source.name, reason: "unreadable" }, length);
    const newlyUnreadable = unreadableSeries.filter(({ key }) => !unreadableKeys.has(key));
    const readableSeries = series.filter(
      (requestedSeries) => !unreadableSeries.includes(requestedSeries) && unreadableKeys.delete(requestedSeries.key),
    );
    for (const { key } of newlyUnreadable) unreadableKeys.add(key);
    if (newlyUnreadable.length > 0) {
      const byKey = Object.fromEntries(newlyUnreadable.map(({ key, siteTag }) => [key, messages.get(siteTag.tag.id)]));
      log.warn({ series: byKey }, "the history of these series is unreadable; Plenum requests each series singly");
    }
    if (readableSeries.length > 0)
      log.info({ series: readableSeries.map(({ key }) => key) }, "the history of these series is readable again");
  }

  /** Finds why a group of series was refused; throws other errors. `firstRefusal`: first refusal of the same group. */
  async function explainRefusal(
    error: unknown,
    series: readonly Series[],
    queryText: string,
    signal: AbortSignal,
    firstRefusal?: Refusal,
  ): Promise<Refusal> {
    signal.throwIfAborted();
    const atMs = firstRefusal?.atMs ?? clock.monotonic();
    const failure = asFailure(error);
    const message = failure.message.slice(0, REFUSAL_MESSAGE_LENGTH_MAX);
    const buildRefusal = (reason: Refusal["reason"]): Refusal => {
      metrics?.historyRefusals.inc({ source: source.name, reason });
      return { reason, message, shouldStop: refusalsInRow > HISTORY_REFUSALS_IN_ROW_MAX, atMs };
    };
    if (failure instanceof NoTagLog) {
      refusalsInRow = 0;
      return buildRefusal("no-log");
    }
    if (failure instanceof ConfigError && failure.reason === "validation") {
      if (!loggedInvalidRequests.has(message))
        log.error({ err: failure, asked: queryText }, "the service rejected a history request as invalid");
      loggedInvalidRequests.add(message);
      refusalsInRow++;
      return buildRefusal("mistake");
    }
    const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
    if (!isForbidden && !(failure instanceof Rejected)) throw failure;
    const refusalCause = await scope.explain({ siteIds: siteIdsOf(series), ability: READ_TAGS_ABILITY, atMs }, signal);
    if (refusalCause === "ability") throw failure;
    if (refusalCause === "unknown")
      throw new UnexplainedRefusal(`${failure.message} The reason is not known yet.`, { cause: failure });
    if (refusalCause === "site") return buildRefusal("out-of-sight");
    refusalsInRow++;
    return buildRefusal("refused");
  }

  async function seriesWithVisibleSite(series: readonly Series[], signal: AbortSignal): Promise<readonly Series[]> {
    if (series.length === 0) return [];
    await scope.explain({ siteIds: siteIdsOf(series), ability: READ_TAGS_ABILITY, atMs: clock.monotonic() }, signal);
    return series.filter(({ siteTag }) => scope.sees(siteTag.siteId));
  }

  /** Fetches series. After a refusal, requests ever smaller halves and records each series that is refused singly. */
  async function fetchSeriesInParts(
    series: readonly Series[],
    queryText: string,
    fetchPart: (seriesPart: readonly Series[]) => Promise<void>,
    recordRefusals: (refusedSeries: readonly RefusedSeries[]) => Promise<void>,
    signal: AbortSignal,
    knownRefusal: Refusal | null = null,
  ): Promise<void> {
    const refusals: Refusal[] = [];
    const requestPart = async (seriesPart: readonly Series[]): Promise<Refusal | null> => {
      try {
        await fetchPart(seriesPart);
        return null;
      } catch (error) {
        return explainRefusal(error, seriesPart, queryText, signal, refusals[0]);
      }
    };
    const refusedSeries: RefusedSeries[] = [];
    const waitingParts: RequestedPart[] = [{ members: series, isKnownBad: false }];
    for (let part = waitingParts.pop(); part !== undefined; part = waitingParts.pop()) {
      const { members, sibling } = part;
      if (!part.isKnownBad) {
        const refusal = (refusals.length === 0 ? knownRefusal : null) ?? (await requestPart(members));
        if (refusal === null) {
          // If the first half succeeds, the second half must fail: divide the second half without requesting all of it.
          if (sibling !== undefined) sibling.isKnownBad = sibling.members.length > 1;
          continue;
        }
        refusals.push(refusal);
        if (members.length === 1) refusedSeries.push(...members.map((member) => ({ member, refusal })));
        if (refusal.shouldStop || refusal.reason === "out-of-sight") break;
      }
      if (members.length <= 1) continue;
      const middleIndex = Math.floor(members.length / 2);
      const secondHalf: RequestedPart = { members: members.slice(middleIndex), isKnownBad: false };
      waitingParts.push(secondHalf, { members: members.slice(0, middleIndex), sibling: secondHalf, isKnownBad: false });
    }
    const lastRefusal = refusals.at(-1);
    await recordRefusals(lastRefusal?.reason === "out-of-sight" ? [] : refusedSeries);
    if (lastRefusal?.shouldStop)
      throw new UnexplainedRefusal(`The service refuses all history requests: ${lastRefusal.message}`);
  }

  async function storeRefusals(request: HistoryRequest, refusedSeries: readonly RefusedSeries[], signal: AbortSignal) {
    if (refusedSeries.length === 0) return;
    const noLogSeries = refusedSeries.filter(({ refusal }) => refusal.reason === "no-log").map(({ member }) => member);
    const visibleNoLogSeries = new Set(await seriesWithVisibleSite(noLogSeries, signal));
    const newLedgers = new Map<Series, StoredLedger>();
    shortResponses.removeSeries(refusedSeries.map(({ member }) => member));
    for (const { member: series, refusal } of refusedSeries) {
      series.isSuspect = true;
      // The service also answers "no log" for tags that the token cannot see.
      if (refusal.reason === "no-log" && !visibleNoLogSeries.has(series)) continue;
      const range = request.rangesBySeriesKey.get(series.key);
      if (range !== undefined) newLedgers.set(series, ledgerAfterRefusal(request, series, range, refusal, clock.now()));
    }
    await replySettlement.commitLedgers(newLedgers);
    if (newLedgers.size === 0) return;
    const seriesKeys = [...newLedgers.keys()].map(({ key }) => key);
    const logFields = { series: seriesKeys, kind: request.kind, said: refusedSeries[0]?.refusal.message };
    log.info(logFields, "the service refused single history requests for these series");
  }

  async function discoverLogs(task: LogDiscoveryRequest, reply: HistoryReply, signal: AbortSignal): Promise<void> {
    const { tagIds } = task.query;
    const logs = "logs" in reply ? reply.logs : null;
    let refusal: Refusal | null = null;
    if ("error" in reply)
      refusal = await explainRefusal(reply.error, firstSeriesOfTags(tagIds), `whether ${tagIds} have a log`, signal);
    else refusalsInRow = 0;
    if (refusal?.reason === "out-of-sight") return;
    try {
      if (refusal !== null && refusal.reason !== "no-log") {
        await discoverLogsSingly(tagIds, refusal, signal);
        return;
      }
      const tagIdsWithoutLog = discovery.settleReply(task, logs && new Set(logs.map(({ id }) => id)));
      if (logs !== null) await settleProvenLogs(tagIds, logs);
      await recordRefusedTags(tagIdsWithoutLog, true, refusal?.message ?? LAST_TAG_OF_GROUP_MESSAGE, signal);
    } catch (error) {
      discovery.removeFromQueue(tagIds);
      throw error;
    }
  }

  async function discoverLogsSingly(tagIds: readonly string[], refusal: Refusal, signal: AbortSignal): Promise<void> {
    discovery.removeFromQueue(tagIds);
    const fetchPart = async (seriesPart: readonly Series[]) => {
      const query = discovery.queryFor(tagIdsOf(seriesPart), clock.now());
      if (query === null) return;
      const logs = await source.history(query, "history", signal);
      refusalsInRow = 0;
      await settleProvenLogs(query.tagIds, logs);
    };
    const recordRefusals = async (refusedSeries: readonly RefusedSeries[]) => {
      for (const { member, refusal: seriesRefusal } of refusedSeries) {
        const { reason, message } = seriesRefusal;
        await recordRefusedTags([member.siteTag.tag.id], reason === "no-log", message, signal);
      }
    };
    const queryText = `whether ${tagIds} have a log`;
    await fetchSeriesInParts(firstSeriesOfTags(tagIds), queryText, fetchPart, recordRefusals, signal, refusal);
  }

  /** A response that may be cut proves that a tag has a log, but not when the log begins. */
  async function settleProvenLogs(tagIds: readonly string[], logs: readonly TagLog[]): Promise<void> {
    await replySettlement.commitLedgers(
      discovery.ledgersOfLoggedTags(tagIds, shortResponses.isComplete(logs) ? logs : [], clock.now()),
    );
  }

  async function recordRefusedTags(tagIds: readonly string[], isNoLog: boolean, message: string, signal: AbortSignal) {
    const recordedTagIds = isNoLog ? tagIdsOf(await seriesWithVisibleSite(firstSeriesOfTags(tagIds), signal)) : tagIds;
    discovery.removeFromQueue(tagIds.filter((id) => !recordedTagIds.includes(id)));
    await replySettlement.commitLedgers(discovery.ledgersOfRefusedTags(recordedTagIds, isNoLog, message, clock.now()));
  }

  return performTask;
}

const tagIdsOf = (series: readonly Series[]): readonly string[] => series.map(({ siteTag }) => siteTag.tag.id);
const siteIdsOf = (series: readonly Series[]) => new Set(series.map(({ siteTag }) => siteTag.siteId));

/** Returns the ledger after a refusal. "No log" applies to a backfill's range only, otherwise to the complete tag. */
function ledgerAfterRefusal(
  request: HistoryRequest,
  { ledger }: Series,
  range: TimeRange,
  { reason, message }: Refusal,
  nowMs: number,
): StoredLedger {
  const isBackfillKind = request.kind === "backfill" || request.kind === "ordered";
  if (reason !== "no-log")
    return isBackfillKind ? recordPastRefusal(ledger, range, message, nowMs) : recordRefusal(ledger, message, nowMs);
  const isRequestOfPast = isBackfillKind || (request.kind === "total" && range.toMs <= parseTime(ledger.since));
  if (!isRequestOfPast) return recordNoLog(ledger, message, nowMs);
  return addLedgerRanges(ledger, [{ ...range, why: "no-log", said: message, at: isoUtc(nowMs) }]);
}

function hasLedgerAdvanced(ledgerBefore: StoredLedger | undefined, ledgerAfter: StoredLedger): boolean {
  return (
    ledgerBefore === undefined ||
    parseTime(ledgerAfter.watermark) > parseTime(ledgerBefore.watermark) ||
    totalLengthMs(fetchedRanges(ledgerAfter.spans)) > totalLengthMs(fetchedRanges(ledgerBefore.spans)) ||
    (ledgerAfter.rereadFrom !== null && ledgerAfter.rereadFrom !== ledgerBefore.rereadFrom)
  );
}
