import { ConfigError, Malformed, Rejected } from "../../core/errors/errors.ts";
import { proxyOf } from "../../core/http/proxy.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockCheck, createClockCheck } from "../../core/runtime/clock-check.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { monotonicMark } from "../../core/runtime/moment.ts";
import { zoneComplaint } from "../../core/values/time-zone.ts";
import { createClockSkew, createSkewReporter } from "./clock-skew.ts";
import type { SourceConfig } from "./config.ts";
import { requestTime } from "./iso-time.ts";
import { createListRateLimit, type ListLane } from "./list-rate-limit.ts";
import { createPageCache, createPaging, type ListRequest, sameRecord } from "./pages.ts";
import type { Limiter } from "./quota/quota.ts";
import { type RecordParser, recordParsers } from "./schema.ts";
import { createSend, createToken, type Leaving, type ListEndpoint, type TagCall } from "./send.ts";
import {
  type Choose,
  type HistoryQuery,
  isAskable,
  type Known,
  type Lane,
  type Page,
  type SlotOffer,
  type Source,
  TAGS_PER_REQUEST,
  type TagWrite,
} from "./source.ts";
import { valueReader } from "./tag-values.ts";
import { createHttpTransport, type HttpTransport, type Transport } from "./transport.ts";
import { isBeyondNumbers } from "./wire.ts";

/**
 * The client of the whole interface: one short method per endpoint, eleven endpoints.
 *
 * Every request goes one way: its limit (the quota for tags read, write and history; a gentle pace for the rest),
 * then src/engine/source/send.ts (token, headers, transport, decoder), then src/engine/source/schema.ts into the nouns of
 * src/core/model/building.ts. Nothing is tried again here: jobs and commands know what a second try costs.
 */
export interface SourceOptions {
  readonly name: string;
  readonly config: SourceConfig;
  readonly limiter: Limiter;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Real HTTP unless given; a simulation gives its own. */
  readonly transport?: Transport;
  /** Environment for `token: {env}`; the process's by default. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly random?: () => number;
  /** Checks our clock against the Date of each reply; the client creates its own unless given. */
  readonly clockDoubt?: ClockCheck;
  /** Asked before each request leaves; any may when left out. */
  readonly leaving?: Leaving;
}

export function createSource(options: SourceOptions): Source {
  const { name, config, limiter, clock, metrics, log } = options;
  const note = (field: string, times = 1) => metrics.unknownWords.inc({ source: name, field }, times);
  const pageCache = createPageCache(note);
  const records = recordParsers(pageCache.note);
  const values = valueReader(records.tag, note, (tags) =>
    log.warn({ tags }, "the service writes numbers of these tags as text; they are read as numbers"),
  );
  const http: HttpTransport =
    options.transport === undefined
      ? createHttpTransport(config, proxyOf(config.proxy, clock, options.environment))
      : { send: options.transport, close: async () => {} };
  const reportSkew = createSkewReporter((skewMs, differs) => {
    const seconds = Math.round(skewMs / 1_000);
    if (differs) log.warn({ seconds }, "our clock and the service's differ: set this machine's time");
    else log.info({ seconds }, "our clock and the service's agree again");
  });
  const doubt = options.clockDoubt ?? createClockCheck({ clock, log });
  const compared = (aheadMs: number) => doubt.compared(name, aheadMs);
  const skew = createClockSkew(clock, { look: doubt.look, steps: doubt.steps, compared }, (skewMs) => {
    metrics.clockSkewSeconds.set({ source: name }, skewMs / 1_000);
    reportSkew(skewMs);
  });
  const lists = createListRateLimit({
    perMinute: config.quota.list_requests_per_minute,
    clock,
    ...(options.leaving === undefined ? { mark: monotonicMark(clock) } : {}),
  });
  const send = createSend({
    name,
    baseUrl: config.base_url,
    transport: http.send,
    token: createToken(config.token, clock, options.environment),
    limiter,
    lists,
    clock,
    metrics,
    log,
    note,
    random: options.random ?? Math.random,
    skew,
    ...(options.leaving === undefined ? {} : { leaving: options.leaving }),
  });
  const paging = createPaging({ clock, note, origin: new URL(config.base_url).origin });

  function list<T extends { readonly id: string | number }>(
    endpoint: ListEndpoint,
    read: RecordParser<T>,
    filters: Filters,
    signal: AbortSignal,
    held: Known<T> | undefined,
    { leavesOut = () => false, lane }: ListOptions = {},
  ): AsyncIterable<Page<T>> {
    const listing: ListRequest<T> = {
      name: endpoint,
      leavesOut,
      filters: filterQuery(filters),
      pageSize: endpoint === "alarms" ? config.page_size.alarms : config.page_size.others,
      read: held === undefined ? read : (record) => asStored(read(record), held),
      leavesOutUnreadable: endpoint === "alarms",
      async ask(query) {
        const call = { endpoint, query, ...(lane === undefined ? {} : { lane }) };
        if (held === undefined) return send.list(call, signal);
        const { recall, records } = pageCache.request(`${endpoint} ${query}`);
        return { ...(await send.list({ ...call, recall }, signal)), records };
      },
    };
    return paging.pages(listing);
  }

  const leftOutSites = new Set<string>();
  function isLeftOutSite(record: unknown): boolean {
    if (!isBeyondNumbers(record)) return false;
    pageCache.note("site.id");
    const id = String((record as { readonly id: unknown }).id).slice(0, LONGEST_ID);
    if (!leftOutSites.has(id))
      log.warn({ id }, "a site whose id is beyond 2^53 is left out; the other sites are followed");
    leftOutSites.add(id);
    return true;
  }

  async function logged(
    requested: HistoryQuery | Choose<HistoryQuery>,
    scalar: boolean,
    lane: Lane,
    signal: AbortSignal,
  ) {
    const { chosen, ...choosing } = decide(requested, (query) => {
      const ids = checkedGroup(query.tagIds);
      return { ids, query: historyQuery(query, ids, scalar) };
    });
    const call: TagCall = {
      endpoint: "history",
      query: () => chosen().query,
      isLogged: !scalar,
      ...choosing,
    };
    const { answer } = await send.tags(call, lane, signal);
    return { ids: chosen().ids, answer };
  }

  return {
    name,

    sites: (filter, signal, held) =>
      list("sites", records.site, { search: filter.search }, signal, held, { leavesOut: isLeftOutSite }),

    alarms: (filter, signal, held) =>
      list(
        "alarms",
        records.alarm(filter.siteId),
        {
          site_id: filter.siteId,
          status: filter.status,
          priority: filter.priority,
          acknowledged: filter.acknowledged,
          search: filter.search,
        },
        signal,
        held,
        filter.status === "active" ? { lane: "alarms" } : {},
      ),

    tags: (filter, signal, held) =>
      list(
        "tags",
        records.tag,
        { site_id: filter.siteId, search: filter.search, system_id: filter.systemId },
        signal,
        held,
      ),

    gateways: (filter, signal, held) =>
      list(
        "gateways",
        records.gateway,
        { site_id: filter.siteId, search: filter.search },
        signal,
        held,
        filter.isUrgent === true ? { lane: "urgent" } : {},
      ),

    hosts: (filter, signal, held) =>
      list(
        "hosts",
        records.host,
        { site_id: filter.siteId, gateway_id: filter.gatewayId, search: filter.search },
        signal,
        held,
      ),

    systems: (filter, signal, held) =>
      list("systems", records.system, { site_id: filter.siteId, search: filter.search }, signal, held),

    async read(tagIds, lane, signal) {
      const { chosen, ...choosing } = decide(tagIds, checkedGroup);
      const query = () => readQuery(chosen());
      const call: TagCall = { endpoint: "read", query, ...choosing };
      const { answer, latencyMs } = await send.tags(call, lane, signal);
      return { ...values.readings(answer, chosen()), receivedAtMs: clock.now(), latencyMs };
    },

    async write(prepare, signal) {
      let ids: string[] = [];
      const body = async () => {
        const writes = await prepare();
        if (writes.length === 0) throw new NothingToWrite();
        const tags = checkedWrites(writes).map(({ tagId, value }) => ({ tag_id: tagId, value }));
        ids = tags.map((tag) => tag.tag_id);
        return { tags };
      };
      try {
        const { answer } = await send.tags({ endpoint: "write", body }, "write", signal);
        return { written: values.readings(answer, ids).readings, receivedAtMs: clock.now() };
      } catch (error) {
        if (!(error instanceof NothingToWrite)) throw error;
        return { written: [], receivedAtMs: clock.now() };
      }
    },

    async history(query, lane, signal) {
      const { answer, ids } = await logged(query, false, lane, signal);
      return values.logs(answer, ids);
    },

    async totals(query, lane, signal) {
      const { answer, ids } = await logged(query, true, lane, signal);
      return values.totals(answer, ids);
    },

    async me(signal) {
      const { answer } = await send.list({ endpoint: "me" }, signal);
      const info = records.tokenInfo(answer.envelope.data);
      if (info !== null) return info;
      throw new Malformed("The token information lacks the abilities or the sites.", answer.sample);
    },

    health: (signal) => send.health(signal),
    quota: () => limiter.status(),
    clockSkewMs: () => skew.ms(),
    listRate: lists.rate,
    async close() {
      send.close();
      await http.close();
    },
  };
}

interface ListOptions {
  readonly leavesOut?: (record: unknown) => boolean;
  readonly lane?: ListLane;
}

/** Characters of an id that the log shows. */
const LONGEST_ID = 40;

function asStored<T extends { readonly id: string | number }>(item: T | null, held: Known<T>): T | null {
  const known = item === null ? undefined : held(String(item.id));
  return known !== undefined && sameRecord(item, known) ? known : item;
}

/** The slot came, and by then there was nothing left to write. */
class NothingToWrite extends Error {}

/** A request whose content is known, or is decided when a slot is free. */
interface Decided<C> {
  /** For the limiter; absent where there is nothing to decide. */
  readonly choose?: (offer: SlotOffer) => number | null;
  /** Returns the chosen content. */
  readonly chosen: () => C;
}

/** Wraps a given or a deferred choice; `check` validates the content before the request is sent. */
export function decide<T extends object, C>(requested: T | Choose<T>, check: (requested: T) => C): Decided<C> {
  if (!isChoose(requested)) {
    const checked = check(requested);
    return { chosen: () => checked };
  }
  let checked: { readonly content: C } | undefined;
  return {
    choose(offer) {
      const choice = requested(offer);
      if ("passMs" in choice) return choice.passMs;
      checked = { content: check(choice.ask) };
      return null;
    },
    chosen() {
      if (checked === undefined) throw new Error("A request left before it was decided what it asks for.");
      return checked.content;
    },
  };
}

/** The same request, seen by `look` at the moment it is decided. */
export function observed<T extends object>(requested: T | Choose<T>, look: (requested: T) => void): T | Choose<T> {
  if (!isChoose(requested)) {
    look(requested);
    return requested;
  }
  return (offer) => {
    const choice = requested(offer);
    if ("ask" in choice) look(choice.ask);
    return choice;
  };
}

function isChoose<T extends object>(requested: T | Choose<T>): requested is Choose<T> {
  return typeof requested === "function";
}

/** A request that our code must not make. It is no refusal by the service, so no tag is suspected. */
export class Misuse extends Error {}

/**
 * Returns the distinct ids of one request. Throws `Misuse` for a group that cannot be requested. Only a comma is
 * impossible in an id, because it separates ids.
 */
function checkedGroup(ids: readonly string[]): string[] {
  const distinct = [...new Set(ids)];
  if (distinct.length === 0) throw new Misuse("A request needs at least one tag.");
  if (distinct.length > TAGS_PER_REQUEST) {
    throw new Misuse(`A request takes at most ${TAGS_PER_REQUEST} tags, not ${distinct.length} (interface, Limits).`);
  }
  const bad = distinct.find((id) => !isAskable(id));
  if (bad !== undefined) throw new Misuse(`\`${bad.slice(0, 60)}\` cannot be the id of a tag.`);
  return distinct;
}

/** Writes that may leave in one request: 1 to 20 tags, each once, each a finite number or a boolean. */
function checkedWrites(writes: readonly TagWrite[]): readonly TagWrite[] {
  if (idsOf(writes).length < writes.length) {
    throw new Rejected("One request must not write the same tag twice.");
  }
  for (const { tagId, value } of writes) {
    if (typeof value !== "boolean" && !(typeof value === "number" && Number.isFinite(value))) {
      throw new Rejected(`Tag ${tagId}: only a finite number or a boolean can be written.`);
    }
  }
  return writes;
}

/** A write that cannot be asked for is refused, not tried again. */
function idsOf(writes: readonly TagWrite[]): string[] {
  try {
    return checkedGroup(writes.map((write) => write.tagId));
  } catch (error) {
    throw error instanceof Misuse ? new Rejected(error.message) : error;
  }
}

/** Longest `search` text (interface, Limits). */
const LONGEST_SEARCH = 255;

type Filters = Readonly<Record<string, string | number | boolean | undefined>>;

/** The filters that are set, as the interface spells them. Throws `ConfigError` for a search that is too long. */
function filterQuery(filters: Filters): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined || value === "") continue;
    // Both true/false and 1/0 are accepted (interface, GET alarms); the framework's own check knows 1/0 only.
    query[name] = typeof value === "boolean" ? String(Number(value)) : String(value);
  }
  if ((query.search ?? "").length > LONGEST_SEARCH) {
    throw new ConfigError(`A search text has at most ${LONGEST_SEARCH} characters.`, {
      reason: "validation",
      field: "search",
    });
  }
  return query;
}

/** The query of tags/read. */
export function readQuery(ids: readonly string[]): string {
  return `tags=${ids.map(encodeURIComponent).join("%2C")}`;
}

/** The query of tags/history. Throws `Rejected` for a range, `ConfigError` for a zone, that would be refused. */
function historyQuery(query: HistoryQuery, ids: readonly string[], scalar: boolean): string {
  const from = requestTime(query.from);
  const to = requestTime(query.to);
  if (from === null || to === null || from >= to) {
    throw new Rejected(
      `History from ${query.from} to ${query.to} cannot be asked for: two times in UTC with a trailing Z are needed, the earlier first.`,
    );
  }
  const complaint = zoneComplaint(query.timeZone);
  if (complaint !== null) throw new ConfigError(complaint, { field: "tz" });
  const requested = new URLSearchParams({
    tags: ids.join(","),
    from,
    to,
    resolution: query.resolution,
    tz: query.timeZone,
    ...(scalar ? { scalar: "1" } : {}),
  });
  return requested.toString();
}
