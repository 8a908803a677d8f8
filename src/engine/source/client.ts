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
import { createPageCache, createPaging } from "./pages.ts";
import { checkIds, checkWrites, chooseContent, type Filters, filterQuery, historyQuery, readQuery } from "./queries.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { createRecordParsers, hasUnsafeId, type RecordParser } from "./records.ts";
import { type CheckBeforeSend, createSend, createToken, type ListEndpoint } from "./send.ts";
import type { Chooser, FindStored, HistoryQuery, Lane, Page, Source } from "./source.ts";
import { createValueReader } from "./tag-values.ts";
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
  readonly clockDoubt?: ClockCheck;
  readonly leaving?: CheckBeforeSend;
}

/** Creates the client of the service, one method per endpoint. It retries nothing: callers decide about retries. */
export function createSource(options: SourceOptions): Source {
  const { name, config, limiter, clock, metrics, log, environment, leaving } = options;
  const countUnusual = (field: string, times = 1) => metrics.unknownWords.inc({ source: name, field }, times);
  const pageCache = createPageCache(countUnusual);
  const parsers = createRecordParsers(pageCache.note);
  const valueReader = createValueReader(parsers.tag, countUnusual, (tags) =>
    log.warn({ tags }, "the service writes numbers of these tags as text; they are read as numbers"),
  );
  const httpTransport: HttpTransport =
    options.transport === undefined
      ? createHttpTransport(config, openProxy(config.proxy, clock, environment))
      : { send: options.transport, close: async () => {} };
  const clockCheck = options.clockDoubt ?? createClockCheck({ clock, log });
  const clockSkew = createClockSkew({ clock, clockCheck, source: name, metrics, log });
  const readClock = leaving === undefined ? createMonotonicClockReader(clock) : undefined;
  const listRateLimit = createListRateLimit(config.quota.list_requests_per_minute, clock, readClock);
  const send = createSend({
    ...{ name, limiter, lists: listRateLimit, clock, metrics, log, note: countUnusual, skew: clockSkew, leaving },
    baseUrl: config.base_url,
    transport: httpTransport.send,
    token: createToken(config.token, clock, environment),
    random: options.random ?? Math.random,
  });
  const paging = createPaging(clock, countUnusual, new URL(config.base_url).origin);

  function list<T extends { readonly id: string | number }>(
    endpoint: ListEndpoint,
    parse: RecordParser<T>,
    filters: Filters,
    signal: AbortSignal,
    stored: FindStored<T> | undefined,
    lane?: ListLane,
  ): AsyncIterable<Page<T>> {
    return paging.pages({
      name: endpoint,
      filters: filterQuery(filters),
      pageSize: endpoint === "alarms" ? config.page_size.alarms : config.page_size.others,
      read: stored === undefined ? parse : (record) => pageCache.asStored(parse(record), stored),
      ...(endpoint === "sites" ? { leavesOut: isLeftOutSite } : {}),
      leavesOutUnreadable: endpoint === "alarms",
      async ask(query) {
        const listCall = { endpoint, query: () => query, lane };
        if (stored === undefined) return send.list(listCall, signal);
        const { recall, records } = pageCache.request(`${endpoint} ${query}`);
        return { ...(await send.list({ ...listCall, recall }, signal)), records };
      },
    });
  }

  const leftOutSites = new Set<string>();
  function isLeftOutSite(record: unknown): boolean {
    if (!hasUnsafeId(record)) return false;
    pageCache.note("site.id");
    const id = String((record as { readonly id: unknown }).id).slice(0, SITE_ID_LENGTH_MAX);
    if (!leftOutSites.has(id))
      log.warn({ id }, "a site whose id is beyond 2^53 is left out; the other sites are followed");
    leftOutSites.add(id);
    return true;
  }

  async function requestHistory(
    requested: HistoryQuery | Chooser<HistoryQuery>,
    isTotal: boolean,
    lane: Lane,
    signal: AbortSignal,
  ) {
    const { chosen, choose } = chooseContent(requested, (query) => {
      const ids = checkIds(query.tagIds);
      return { ids, query: historyQuery(query, ids, isTotal) };
    });
    const historyCall = { endpoint: "history", query: () => chosen().query, isLogged: !isTotal, choose } as const;
    const { answer } = await send.tags(historyCall, lane, signal);
    return { ids: chosen().ids, answer };
  }

  return {
    name,
    sites: ({ search }, signal, stored) => list("sites", parsers.site, { search }, signal, stored),
    alarms({ siteId: site_id, status, priority, acknowledged, search }, signal, stored) {
      const filters = { site_id, status, priority, acknowledged, search };
      const lane = status === "active" ? "alarms" : undefined;
      return list("alarms", parsers.alarm(site_id), filters, signal, stored, lane);
    },
    tags: ({ siteId: site_id, search, systemId: system_id }, signal, stored) =>
      list("tags", parsers.tag, { site_id, search, system_id }, signal, stored),
    gateways: ({ siteId: site_id, search, isUrgent }, signal, stored) =>
      list("gateways", parsers.gateway, { site_id, search }, signal, stored, isUrgent === true ? "urgent" : undefined),
    hosts: ({ siteId: site_id, gatewayId: gateway_id, search }, signal, stored) =>
      list("hosts", parsers.host, { site_id, gateway_id, search }, signal, stored),
    systems: ({ siteId: site_id, search }, signal, stored) =>
      list("systems", parsers.system, { site_id, search }, signal, stored),
    async read(tagIds, lane, signal) {
      const { chosen, choose } = chooseContent(tagIds, checkIds);
      const readTagsCall = { endpoint: "read", query: () => readQuery(chosen()), choose } as const;
      const { answer, latencyMs } = await send.tags(readTagsCall, lane, signal);
      return { ...valueReader.readings(answer, chosen()), receivedAtMs: clock.now(), latencyMs };
    },
    async write(prepare, signal) {
      let ids: string[] = [];
      const body = async () => {
        const writes = await prepare();
        if (writes.length === 0) throw new NothingToWriteError();
        checkWrites(writes);
        ids = writes.map(({ tagId }) => tagId);
        return { tags: writes.map(({ tagId, value }) => ({ tag_id: tagId, value })) };
      };
      try {
        const { answer } = await send.tags({ endpoint: "write", body }, "write", signal);
        return valueReader.readings(answer, ids).readings;
      } catch (error) {
        if (!(error instanceof NothingToWriteError)) throw error;
        return [];
      }
    },
    async history(query, lane, signal) {
      const { answer, ids } = await requestHistory(query, false, lane, signal);
      return valueReader.logs(answer, ids);
    },
    async totals(query, lane, signal) {
      const { answer, ids } = await requestHistory(query, true, lane, signal);
      return valueReader.totals(answer, ids);
    },
    async me(signal) {
      const { answer } = await send.list({ endpoint: "me" }, signal);
      const info = parsers.tokenInfo(answer.envelope.data);
      if (info !== null) return info;
      throw new Malformed("The token information lacks the abilities or the sites.", answer.sample);
    },
    health: send.health,
    quota: () => limiter.status(),
    clockSkewMs: () => clockSkew.ms(),
    listRate: listRateLimit.rate,
    async close() {
      send.close();
      await httpTransport.close();
    },
  };
}

const SITE_ID_LENGTH_MAX = 40;

class NothingToWriteError extends Error {}
