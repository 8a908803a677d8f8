import { asFailure, ConfigError, type Failure, Retryable, type Throttled } from "../../core/errors/errors.ts";
import type { ServiceHealth } from "../../core/model/building.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { type Log, Secret } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { type SecretRef, secretReader } from "../../core/runtime/secret.ts";
import { USER_AGENT } from "../../core/runtime/version.ts";
import type { ClockSkew } from "./clock-skew.ts";
import type { ListLane, ListRateLimit } from "./list-rate-limit.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { type DecodedReply, decodeReply, parseJson, type ReplyContext } from "./reply.ts";
import { createServiceOrderedPauses, type RequestPauseScope } from "./service-ordered-pauses.ts";
import { type CountUnusualField, parseHealth } from "./service-records.ts";
import { type OfferedSlot, QUOTA_ENDPOINTS, type QueueLane, type QuotaEndpoint } from "./source.ts";
import { parseHistoryJson } from "./tag-values.ts";
import { StaleSocket, type Transport, type TransportReply, type TransportRequest } from "./transport.ts";

export type ListEndpoint = "sites" | "alarms" | "tags" | "gateways" | "hosts" | "systems";

interface ServiceRequest {
  readonly endpoint: QuotaEndpoint | ListEndpoint | "me";
  readonly query?: () => string;
  readonly onSlotOffered?: ((offer: OfferedSlot) => number | null) | undefined;
  /** Builds the body of a POST once the rate limiter lets the request leave. If `body` rejects, nothing is sent. */
  readonly body?: () => Promise<unknown>;
  readonly isLoggedSeries?: boolean;
  readonly lane?: ListLane | undefined;
  readonly findCachedReply?: (reply: TransportReply) => DecodedReply | null;
}

type TagRequest = ServiceRequest & { readonly endpoint: QuotaEndpoint };
type ListPageRequest = ServiceRequest & { readonly endpoint: ListEndpoint | "me" };

function defaultListRequestLane(endpoint: ListPageRequest["endpoint"]): ListLane {
  if (endpoint === "tags") return "tags";
  return endpoint === "alarms" || endpoint === "sites" || endpoint === "me" ? "urgent" : "other";
}

export interface ServiceReply {
  readonly reply: DecodedReply;
  readonly latencyMs: number;
  readonly queuedMs: number;
}

/** Called right before a request leaves; throws `LocalFailure` to stop the request. */
export type CheckBeforeRequest = (slotTime: TimeReading) => void;

function endpointPath(endpoint: ServiceRequest["endpoint"] | "healthcheck"): string {
  return QUOTA_ENDPOINTS.some((quotaEndpoint) => quotaEndpoint === endpoint) ? `tags/${endpoint}` : endpoint;
}

/** The service may respond in HTML to a request without the header `Accept` (interface, What the service does). */
const REQUEST_HEADERS = {
  accept: "application/json",
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": USER_AGENT,
};

interface RequestRateLimit {
  readonly scope: () => RequestPauseScope;
  observeHeaders(headers: { readonly limit: number | null; readonly remaining: number | null }, sentMs: number): void;
  noteRefusal(startedMs: number, durationMs: number, demandsZeroWait: boolean): void;
}

/** Time for which all callers share one health check. */
const HEALTH_RESULT_VALID_MS = 59_000;

/** Sends requests. A pause that the service orders takes effect before the next request can leave. */
export function createRequestSender(options: {
  readonly name: string;
  readonly baseUrl: string;
  readonly transport: Transport;
  readonly token: () => Secret;
  readonly limiter: QuotaLimiter;
  readonly listRateLimit: ListRateLimit;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly countUnusualField: CountUnusualField;
  readonly random: () => number;
  readonly clockSkew: ClockSkew;
  readonly checkBeforeRequest: CheckBeforeRequest | undefined;
}) {
  const {
    name: source,
    transport,
    token,
    limiter,
    listRateLimit,
    clock,
    metrics,
    log,
    countUnusualField,
    checkBeforeRequest,
  } = options;
  const serviceBasePath = new URL(options.baseUrl).pathname.replace(/\/+$/, "");
  const maintenance = createMaintenanceWait(clock, options.random);
  const longRequestPauses = createServiceOrderedPauses({
    clock,
    log,
    listRateLimit,
    quotaLimiter: limiter,
    checkHealth: checkServiceHealth,
  });
  let lastHealth: { readonly checkedAtMs: number; readonly health: Promise<ServiceHealth> } | null = null;

  function buildBeforeSendCheck(slotTime: TimeReading): Pick<TransportRequest, "checkBeforeSend"> {
    return checkBeforeRequest === undefined ? {} : { checkBeforeSend: () => checkBeforeRequest(slotTime) };
  }

  async function buildRequest(call: ServiceRequest, secret: Secret, slotTime: TimeReading): Promise<TransportRequest> {
    const query = call.query === undefined ? "" : `?${call.query()}`;
    const body = call.body === undefined ? null : JSON.stringify(await call.body());
    return {
      method: body === null ? "GET" : "POST",
      path: `${serviceBasePath}/api/v1/${endpointPath(call.endpoint)}${query}`,
      headers: { ...REQUEST_HEADERS, authorization: `Bearer ${secret.reveal()}` },
      body,
      ...buildBeforeSendCheck(slotTime),
    };
  }

  async function sendRequest(
    call: ServiceRequest,
    limit: RequestRateLimit,
    slotTime: TimeReading,
    signal: AbortSignal,
  ) {
    const { endpoint } = call;
    const rawToken = token();
    const request = await buildRequest(call, rawToken, slotTime);
    const startedMs = clock.monotonic();
    try {
      request.checkBeforeSend?.();
      const reply = await transport(request, signal);
      limit.observeHeaders(parseRateLimit(reply), startedMs);
      // Ignore the date of a response with the header `Age`, because a proxy cached it earlier.
      if (reply.headers.age === undefined) options.clockSkew.observeDate(reply.headers.date, startedMs);
      const cachedReply = call.findCachedReply?.(reply);
      const parsedHistory = call.isLoggedSeries === true ? await parseHistoryJson(reply.body) : undefined;
      const decodedReply = cachedReply ?? decodeReply(reply, buildReplyContext(endpoint, clock), parsedHistory);
      maintenance.endWait();
      longRequestPauses.noteReply(limit.scope(), startedMs);
      return { reply: decodedReply, latencyMs: recordRequestLatency(endpoint, "ok", startedMs), startedMs };
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const failure = asFailure(error);
      recordRequestLatency(endpoint, failure.kind, startedMs);
      const endedPauseScope = pauseScopeEndedBy(failure, limit);
      if (endedPauseScope !== null) longRequestPauses.noteReply(endedPauseScope, startedMs);
      if (failure.kind === "throttled") pauseRequests(failure, endpoint, limit, startedMs);
      if (call.body === undefined && wasTokenReplaced(failure, rawToken)) throw new ReplacedTokenError(failure.message);
      throw failure;
    }
  }

  function wasTokenReplaced(failure: Failure, sentToken: Secret): boolean {
    if (!(failure instanceof ConfigError && failure.reason === "unauthenticated")) return false;
    try {
      return token().reveal() !== sentToken.reveal();
    } catch {
      return false;
    }
  }

  function pauseRequests(failure: Throttled, endpoint: string, limit: RequestRateLimit, startedMs: number): void {
    let waitMs = failure.retryAfterMs ?? 0;
    if (failure.scope === "everything") {
      waitMs = maintenance.startWait(failure.retryAfterMs);
      limiter.pauseRequests(waitMs, "everything");
      listRateLimit.pause(waitMs);
      longRequestPauses.noteOrderedPause("everything", waitMs, failure.retryAfterMs !== null);
    } else {
      limit.noteRefusal(startedMs, waitMs, failure.demandsZeroWait);
      longRequestPauses.noteOrderedPause(limit.scope(), waitMs);
    }
    log.warn({ endpoint, scope: failure.scope, waitMs }, "the service asks to wait");
  }

  function recordRequestLatency(endpoint: string, outcome: string, startedMs: number): number {
    const latencyMs = clock.monotonic() - startedMs;
    metrics.apiRequests.inc({ source, endpoint, outcome });
    metrics.apiSeconds.observe({ source, endpoint }, latencyMs / 1000);
    return latencyMs;
  }

  async function sendInRequestSlot(
    call: ServiceRequest,
    limit: RequestRateLimit,
    runInRequestSlot: <T>(task: (slotTime: TimeReading) => Promise<T>, isFirstAttempt: boolean) => Promise<T>,
    signal: AbortSignal,
  ): Promise<ServiceReply> {
    longRequestPauses.adoptLimiterPauses();
    const requestedMs = clock.monotonic();
    const attemptRequestInSlot = async (isFirstAttempt: boolean) => {
      const httpReply = await runInRequestSlot(
        (slotTime) => sendRequest(call, limit, slotTime, signal),
        isFirstAttempt,
      );
      return { reply: httpReply.reply, latencyMs: httpReply.latencyMs, queuedMs: httpReply.startedMs - requestedMs };
    };
    try {
      return await attemptRequestInSlot(true);
    } catch (error) {
      const mayRepeatRequest = error instanceof StaleSocket || error instanceof ReplacedTokenError;
      if (!mayRepeatRequest || call.body !== undefined) throw error;
      return attemptRequestInSlot(false);
    }
  }

  const listRequestLimit: RequestRateLimit = {
    scope: () => "lists",
    observeHeaders: listRateLimit.observeRateLimit,
    noteRefusal: listRateLimit.noteRefusal,
  };

  /** Checks the health of the service; all callers share one request a minute. */
  async function checkServiceHealth(signal: AbortSignal): Promise<ServiceHealth> {
    if (
      longRequestPauses.isPauseActive() &&
      lastHealth !== null &&
      clock.monotonic() - lastHealth.checkedAtMs < HEALTH_RESULT_VALID_MS
    ) {
      const knownServiceHealth = await lastHealth.health.catch(() => null);
      signal.throwIfAborted();
      if (knownServiceHealth !== null) return knownServiceHealth;
    }
    lastHealth = { checkedAtMs: clock.monotonic(), health: requestServiceHealth(signal) };
    return lastHealth.health;
  }

  async function requestServiceHealth(signal: AbortSignal): Promise<ServiceHealth> {
    const endpoint = "healthcheck";
    const startedMs = clock.monotonic();
    const path = `${serviceBasePath}/api/v1/${endpointPath(endpoint)}`;
    try {
      const request = {
        method: "GET",
        path,
        headers: REQUEST_HEADERS,
        body: null,
        ...buildBeforeSendCheck(readClocks(clock)),
      } as const;
      const reply = await transport(request, signal);
      recordRequestLatency(endpoint, "ok", startedMs);
      const body = parseJson(reply.body);
      const serviceHealth = parseHealth(body.ok ? body.value : null, countUnusualField);
      // The interface documents two statuses for an unhealthy service: 500 and 503.
      return reply.status >= 300 ? { ...serviceHealth, status: "unhealthy" } : serviceHealth;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      recordRequestLatency(endpoint, asFailure(error).kind, startedMs);
      return { status: "unhealthy", time: null };
    }
  }

  return {
    tags(call: TagRequest, lane: QueueLane, signal: AbortSignal): Promise<ServiceReply> {
      const { endpoint } = call;
      const limit: RequestRateLimit = {
        scope: () => (limiter.status().buckets.length > 1 ? endpoint : "tags"),
        observeHeaders: (headers, sentMs) => limiter.observeHeaders(endpoint, headers, sentMs),
        noteRefusal: (_startedMs, durationMs) => limiter.pauseRequests(durationMs, endpoint),
      };
      const runInRequestSlot = <T>(task: (slotTime: TimeReading) => Promise<T>, isFirstAttempt: boolean) =>
        limiter.run(lane, endpoint, task, signal, isFirstAttempt ? call.onSlotOffered : undefined);
      return sendInRequestSlot(call, limit, runInRequestSlot, signal);
    },
    requestList(call: ListPageRequest, signal: AbortSignal): Promise<ServiceReply> {
      const listLane = call.lane ?? defaultListRequestLane(call.endpoint);
      return sendInRequestSlot(call, listRequestLimit, (task) => listRateLimit.run(task, signal, listLane), signal);
    },
    health: checkServiceHealth,
    close: longRequestPauses.close,
  };
}

/** Thrown when the token was replaced while the service refused the old one: the request is repeated at once. */
class ReplacedTokenError extends Retryable {}

function pauseScopeEndedBy(failure: Failure, limit: RequestRateLimit): RequestPauseScope | null {
  if (failure.kind === "throttled") return failure.scope === "everything" ? null : "everything";
  return failure.kind === "retryable" || failure.kind === "malformed" ? null : limit.scope();
}

function buildReplyContext(endpoint: ServiceRequest["endpoint"], clock: Clock): ReplyContext {
  const isTagRequest = endpoint === "read" || endpoint === "write";
  const meaningOf404 = endpoint === "history" ? "no-log" : isTagRequest ? "rejected" : "settings";
  return { endpoint: endpointPath(endpoint), meaningOf404, nowMs: clock.now() };
}

function parseRateLimit(reply: TransportReply) {
  return {
    limit: parseWholeNumber(reply.headers["x-ratelimit-limit"]),
    remaining: parseWholeNumber(reply.headers["x-ratelimit-remaining"]),
  };
}

function parseWholeNumber(text: string | undefined): number | null {
  return text !== undefined && /^\s*\d{1,9}\s*$/.test(text) ? Number(text) : null;
}

/** Waits after a 503 without a stated time: 30 s at first, at most 15 min. */
const MAINTENANCE_WAIT = { firstMs: 30_000, maxMs: 900_000 };

function createMaintenanceWait(clock: Clock, random: () => number) {
  let outages = 0;
  let untilMs = Number.NEGATIVE_INFINITY;
  return {
    startWait(statedMs: number | null): number {
      const nowMs = clock.monotonic();
      if (nowMs >= untilMs) outages++;
      const waitMs = statedMs ?? Math.max(backoffMs(MAINTENANCE_WAIT, Math.max(1, outages), random), untilMs - nowMs);
      untilMs = Math.max(untilMs, nowMs + waitMs);
      return waitMs;
    },
    endWait(): void {
      outages = 0;
    },
  };
}

/** Reads the token for every request. Throws `ConfigError` for an unusable token. */
export function createTokenReader(
  tokenRef: SecretRef,
  clock: Pick<Clock, "monotonic">,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): () => Secret {
  const readToken = secretReader(tokenRef, clock, environment);
  const tokenLocation = "file" in tokenRef ? `the file ${tokenRef.file}` : `the environment variable ${tokenRef.env}`;
  return () => {
    const token = readToken()
      .reveal()
      .replace(/^\uFEFF/, "")
      .trim();
    if (token === "")
      throw new ConfigError(`There is no access token in ${tokenLocation}.`, { hint: "Put the token there." });
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new ConfigError(`The content of ${tokenLocation} is not an access token.`, {
        hint: "Put the token there and nothing else: one line, no spaces, no quotes.",
      });
    }
    return new Secret(token);
  };
}
