import { Malformed } from "../../core/errors/errors.ts";
import { openProxy } from "../../core/http/proxy.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockCheck, createClockCheck } from "../../core/runtime/clock-check.ts";
import { createMonotonicClockReader } from "../../core/runtime/elapsed-time.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createClockSkew } from "./clock-skew.ts";
import type { SourceConfig } from "./config.ts";
import { createListRateLimit, type ListLane } from "./list-rate-limit.ts";
import { createListPageCache, createListPaging } from "./pages.ts";
import {
  checkTagIds,
  checkTagWrites,
  historyQuery,
  type ListFilters,
  listFilterQuery,
  resolveRequestContent,
  tagReadQuery,
} from "./queries.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { type CheckBeforeRequest, createRequestSender, createTokenReader, type ListEndpoint } from "./send-request.ts";
import { createRecordParsers, hasUnsafeId, type RecordParser } from "./service-records.ts";
import type { FindRecord, HistoryQuery, ListPage, QueueLane, RequestContent, Source } from "./source.ts";
import { createTagValueReader } from "./tag-values.ts";
import { createHttpTransport, type HttpTransport, type Transport } from "./transport.ts";

export interface SourceOptions {
  readonly name: string;
  readonly config: SourceConfig;
  readonly limiter: QuotaLimiter;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly transport?: Transport;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly random?: () => number;
  readonly clockCheck?: ClockCheck;
  readonly checkBeforeRequest?: CheckBeforeRequest;
}

/** Creates the client of the service, one method per endpoint. It retries nothing: callers decide about retries. */
export function createSource(options: SourceOptions): Source {
  const { name, config, limiter, clock, metrics, log, environment, checkBeforeRequest } = options;
  const countUnusualField = (field: string, times = 1) => metrics.unknownWords.inc({ source: name, field }, times);
  const listPageCache = createListPageCache(countUnusualField);
  const parsers = createRecordParsers(listPageCache.noteUnusualField);
  const tagValueReader = createTagValueReader(parsers.tag, countUnusualField, (tags) =>
    log.warn({ tags }, "the service writes numbers of these tags as text; they are read as numbers"),
  );
  const httpTransport: HttpTransport =
    options.transport === undefined
      ? createHttpTransport(config, openProxy(config.proxy, clock, environment))
      : { send: options.transport, close: async () => {} };
  const clockCheck = options.clockCheck ?? createClockCheck({ clock, log });
  const clockSkew = createClockSkew({ clock, clockCheck, source: name, metrics, log });
  const readMonotonicClock = checkBeforeRequest === undefined ? createMonotonicClockReader(clock) : undefined;
  const listRateLimit = createListRateLimit(config.quota.list_requests_per_minute, clock, readMonotonicClock);
  const requestSender = createRequestSender({
    name,
    limiter,
    listRateLimit,
    clock,
    metrics,
    log,
    countUnusualField,
    clockSkew,
    checkBeforeRequest,
    baseUrl: config.base_url,
    transport: httpTransport.send,
    token: createTokenReader(config.token, clock, environment),
    random: options.random ?? Math.random,
  });
  const listPaging = createListPaging(clock, countUnusualField, new URL(config.base_url).origin);

  function readList<T extends { readonly id: string | number }>(
    endpoint: ListEndpoint,
    parse: RecordParser<T>,
    filters: ListFilters,
    signal: AbortSignal,
    findStored: FindRecord<T> | undefined,
    lane?: ListLane,
  ): AsyncIterable<ListPage<T>> {
    return listPaging.fetchPages({
      name: endpoint,
      filters: listFilterQuery(filters),
      pageSize: endpoint === "alarms" ? config.page_size.alarms : config.page_size.others,
      parseRecord: findStored === undefined ? parse : (record) => listPageCache.reuseStored(parse(record), findStored),
      ...(endpoint === "sites" ? { isOmitted: isSiteWithUnsafeId } : {}),
      allowsMissingRecords: endpoint === "alarms",
      async requestPage(query) {
        const listRequest = { endpoint, query: () => query, lane };
        if (findStored === undefined) return requestSender.requestList(listRequest, signal);
        const { findCachedReply, reuseOrParse } = listPageCache.forRequest(`${endpoint} ${query}`);
        return { ...(await requestSender.requestList({ ...listRequest, findCachedReply }, signal)), reuseOrParse };
      },
    });
  }

  const sitesWithUnsafeId = new Set<string>();
  function isSiteWithUnsafeId(record: unknown): boolean {
    if (!hasUnsafeId(record)) return false;
    listPageCache.noteUnusualField("site.id");
    const id = String((record as { readonly id: unknown }).id).slice(0, SITE_ID_LENGTH_MAX);
    if (!sitesWithUnsafeId.has(id))
      log.warn({ id }, "a site whose id is beyond 2^53 is left out; the other sites are followed");
    sitesWithUnsafeId.add(id);
    return true;
  }

  async function requestHistory(
    requestContent: RequestContent<HistoryQuery>,
    isTotal: boolean,
    lane: QueueLane,
    signal: AbortSignal,
  ) {
    const { chosenContent, onSlotOffered } = resolveRequestContent(requestContent, (query) => {
      const ids = checkTagIds(query.tagIds);
      return { ids, query: historyQuery(query, ids, isTotal) };
    });
    const historyRequest = {
      endpoint: "history",
      query: () => chosenContent().query,
      isLoggedSeries: !isTotal,
      onSlotOffered,
    } as const;
    const { reply } = await requestSender.tags(historyRequest, lane, signal);
    return { ids: chosenContent().ids, reply };
  }

  return {
    name,
    sites: ({ search }, signal, findStored) => readList("sites", parsers.site, { search }, signal, findStored),
    alarms({ siteId: site_id, status, priority, acknowledged, search }, signal, findStored) {
      const alarmFilters = { site_id, status, priority, acknowledged, search };
      const listLane = status === "active" ? "alarms" : undefined;
      return readList("alarms", parsers.alarm(site_id), alarmFilters, signal, findStored, listLane);
    },
    tags: ({ siteId: site_id, search, systemId: system_id }, signal, findStored) =>
      readList("tags", parsers.tag, { site_id, search, system_id }, signal, findStored),
    gateways: ({ siteId: site_id, search, isUrgent }, signal, findStored) =>
      readList(
        "gateways",
        parsers.gateway,
        { site_id, search },
        signal,
        findStored,
        isUrgent === true ? "urgent" : undefined,
      ),
    hosts: ({ siteId: site_id, search }, signal, findStored) =>
      readList("hosts", parsers.host, { site_id, search }, signal, findStored),
    systems: ({ siteId: site_id, search }, signal, findStored) =>
      readList("systems", parsers.system, { site_id, search }, signal, findStored),
    async read(tagIds, lane, signal) {
      const { chosenContent, onSlotOffered } = resolveRequestContent(tagIds, checkTagIds);
      const readTagsRequest = { endpoint: "read", query: () => tagReadQuery(chosenContent()), onSlotOffered } as const;
      const { reply, latencyMs } = await requestSender.tags(readTagsRequest, lane, signal);
      return { ...tagValueReader.parseReadings(reply, chosenContent()), receivedAtMs: clock.now(), latencyMs };
    },
    async write(prepareWrites, signal) {
      let ids: string[] = [];
      const buildWriteBody = async () => {
        const writes = await prepareWrites();
        if (writes.length === 0) throw new NothingToWriteError();
        checkTagWrites(writes);
        ids = writes.map(({ tagId }) => tagId);
        return { tags: writes.map(({ tagId, value }) => ({ tag_id: tagId, value })) };
      };
      try {
        const { reply } = await requestSender.tags({ endpoint: "write", body: buildWriteBody }, "write", signal);
        return tagValueReader.parseReadings(reply, ids).readings;
      } catch (error) {
        if (!(error instanceof NothingToWriteError)) throw error;
        return [];
      }
    },
    async history(query, lane, signal) {
      const { reply, ids } = await requestHistory(query, false, lane, signal);
      return tagValueReader.parseLogs(reply, ids);
    },
    async totals(query, lane, signal) {
      const { reply, ids } = await requestHistory(query, true, lane, signal);
      return tagValueReader.parseTotals(reply, ids);
    },
    async me(signal) {
      const { reply } = await requestSender.requestList({ endpoint: "me" }, signal);
      const tokenInfo = parsers.tokenInfo(reply.envelope.data);
      if (tokenInfo !== null) return tokenInfo;
      throw new Malformed("The token information lacks the abilities or the sites.", reply.sample);
    },
    health: requestSender.health,
    quota: () => limiter.status(),
    clockSkewMs: () => clockSkew.skewMs(),
    listRate: listRateLimit.rate,
    async close() {
      requestSender.close();
      await httpTransport.close();
    },
  };
}

const SITE_ID_LENGTH_MAX = 40;

class NothingToWriteError extends Error {}
