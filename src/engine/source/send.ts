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
import { createLongWaits, type PauseScope } from "./long-request-pauses.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { type CountUnusualField, parseHealth } from "./records.ts";
import { type DecodedReply, decodeReply, parseJson, type ReplyContext } from "./reply.ts";
import { type Lane, QUOTA_ENDPOINTS, type QuotaEndpoint, type SlotOffer } from "./source.ts";
import { parseLogged } from "./tag-values.ts";
import { StaleSocket, type Transport, type TransportReply, type TransportRequest } from "./transport.ts";

export type ListEndpoint = "sites" | "alarms" | "tags" | "gateways" | "hosts" | "systems";

interface ServiceCall {
  readonly endpoint: QuotaEndpoint | ListEndpoint | "me";
  readonly query?: () => string;
  readonly choose?: ((offer: SlotOffer) => number | null) | undefined;
  /** Builds the body, which makes the request a POST. Called in the slot. If `body` rejects, nothing is sent. */
  readonly body?: () => Promise<unknown>;
  readonly isLogged?: boolean;
  readonly lane?: ListLane | undefined;
  readonly recall?: (reply: TransportReply) => DecodedReply | null;
}

type TagCall = ServiceCall & { readonly endpoint: QuotaEndpoint };
type ListCall = ServiceCall & { readonly endpoint: ListEndpoint | "me" };

function defaultListLane(endpoint: ListCall["endpoint"]): ListLane {
  if (endpoint === "tags") return "tags";
  return endpoint === "alarms" || endpoint === "sites" || endpoint === "me" ? "urgent" : "other";
}

export interface SentReply {
  readonly answer: DecodedReply;
  readonly latencyMs: number;
  readonly queuedMs: number;
}

interface SendOptions {
  readonly name: string;
  readonly baseUrl: string;
  readonly transport: Transport;
  readonly token: () => Secret;
  readonly limiter: QuotaLimiter;
  readonly lists: ListRateLimit;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly note: CountUnusualField;
  readonly random: () => number;
  readonly skew: ClockSkew;
  readonly leaving: CheckBeforeSend | undefined;
}

/** Called right before a request leaves; throws `LocalFailure` to stop it. The slot stays spent. */
export type CheckBeforeSend = (slotTaken: TimeReading) => void;

function endpointPath(endpoint: ServiceCall["endpoint"] | "healthcheck"): string {
  return QUOTA_ENDPOINTS.some((each) => each === endpoint) ? `tags/${endpoint}` : endpoint;
}

/** Without Accept the service may respond in HTML (interface, What the service does). */
const HEADERS = {
  accept: "application/json",
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": USER_AGENT,
};

interface RequestLimit {
  readonly scope: () => PauseScope;
  observe(headers: { readonly limit: number | null; readonly remaining: number | null }, sentMs: number): void;
  refused(startedMs: number, forMs: number, saysNow: boolean): void;
}

const HEALTH_VALID_MS = 59_000;

/** Orders to wait reach the limits before a request frees its slot, so no other request leaves in between. */
export function createSend(options: SendOptions) {
  const { name: source, transport, token, limiter, lists, clock, metrics, log, note, leaving } = options;
  const basePath = new URL(options.baseUrl).pathname.replace(/\/+$/, "");
  const maintenance = createMaintenance(clock, options.random);
  const longWaits = createLongWaits({ clock, log, lists, limiter, health: checkHealth });
  let lastHealth: { readonly atMs: number; readonly health: Promise<ServiceHealth> } | null = null;

  function leaveCheck(slotTaken: TimeReading): Pick<TransportRequest, "mayLeave"> {
    return leaving === undefined ? {} : { mayLeave: () => leaving(slotTaken) };
  }

  async function buildRequest(call: ServiceCall, secret: Secret, slotTaken: TimeReading): Promise<TransportRequest> {
    const query = call.query === undefined ? "" : `?${call.query()}`;
    const body = call.body === undefined ? null : JSON.stringify(await call.body());
    return {
      method: body === null ? "GET" : "POST",
      path: `${basePath}/api/v1/${endpointPath(call.endpoint)}${query}`,
      headers: { ...HEADERS, authorization: `Bearer ${secret.reveal()}` },
      body,
      ...leaveCheck(slotTaken),
    };
  }

  async function sendOnce(call: ServiceCall, limit: RequestLimit, slotTaken: TimeReading, signal: AbortSignal) {
    const { endpoint } = call;
    const secret = token();
    const request = await buildRequest(call, secret, slotTaken);
    const startedMs = clock.monotonic();
    try {
      request.mayLeave?.();
      const reply = await transport(request, signal);
      limit.observe(parseRateLimit(reply), startedMs);
      // A cached response of a proxy has an age and an old Date.
      if (reply.headers.age === undefined) options.skew.observe(reply.headers.date, startedMs);
      const cachedAnswer = call.recall?.(reply);
      const parsed = call.isLogged === true ? await parseLogged(reply.body) : undefined;
      const decodedReply = cachedAnswer ?? decodeReply(reply, buildReplyContext(endpoint, clock), parsed);
      maintenance.over();
      longWaits.answered(limit.scope(), startedMs);
      return { answer: decodedReply, latencyMs: recordRequestLatency(endpoint, "ok", startedMs), startedMs };
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const failure = asFailure(error);
      recordRequestLatency(endpoint, failure.kind, startedMs);
      const endedPause = pauseEndedBy(failure, limit);
      if (endedPause !== null) longWaits.answered(endedPause, startedMs);
      if (failure.kind === "throttled") pauseRequests(failure, endpoint, limit, startedMs);
      if (call.body === undefined && wasTokenReplaced(failure, secret)) throw new ReplacedTokenError(failure.message);
      throw failure;
    }
  }

  function wasTokenReplaced(failure: Failure, sent: Secret): boolean {
    if (!(failure instanceof ConfigError && failure.reason === "unauthenticated")) return false;
    try {
      return token().reveal() !== sent.reveal();
    } catch {
      return false;
    }
  }

  function pauseRequests(failure: Throttled, endpoint: string, limit: RequestLimit, startedMs: number): void {
    let waitMs = failure.retryAfterMs ?? 0;
    if (failure.scope === "everything") {
      waitMs = maintenance.begin(failure.retryAfterMs);
      limiter.pause(waitMs, "everything");
      lists.pause(waitMs);
      longWaits.ordered("everything", waitMs, failure.retryAfterMs !== null);
    } else {
      limit.refused(startedMs, waitMs, failure.saysNow);
      longWaits.ordered(limit.scope(), waitMs);
    }
    log.warn({ endpoint, scope: failure.scope, waitMs }, "the service asks to wait");
  }

  function recordRequestLatency(endpoint: string, outcome: string, startedMs: number): number {
    const latencyMs = clock.monotonic() - startedMs;
    metrics.apiRequests.inc({ source, endpoint, outcome });
    metrics.apiSeconds.observe({ source, endpoint }, latencyMs / 1000);
    return latencyMs;
  }

  /** Sends a request; a GET may be repeated once, in a slot of its own. */
  async function sendInSlot(
    call: ServiceCall,
    limit: RequestLimit,
    inSlot: <T>(task: (slotTaken: TimeReading) => Promise<T>, isFirst: boolean) => Promise<T>,
    signal: AbortSignal,
  ): Promise<SentReply> {
    longWaits.look();
    const requestedMs = clock.monotonic();
    const attemptInSlot = async (isFirst: boolean) => {
      const sentCall = await inSlot((slotTaken) => sendOnce(call, limit, slotTaken, signal), isFirst);
      return { answer: sentCall.answer, latencyMs: sentCall.latencyMs, queuedMs: sentCall.startedMs - requestedMs };
    };
    try {
      return await attemptInSlot(true);
    } catch (error) {
      const mayRepeat = error instanceof StaleSocket || error instanceof ReplacedTokenError;
      if (!mayRepeat || call.body !== undefined) throw error;
      return attemptInSlot(false);
    }
  }

  const listLimit: RequestLimit = { scope: () => "lists", observe: lists.observe, refused: lists.refused };

  /** Checks the health of the service. During a long pause, both callers share one request a minute. */
  async function checkHealth(signal: AbortSignal): Promise<ServiceHealth> {
    if (longWaits.isOn() && lastHealth !== null && clock.monotonic() - lastHealth.atMs < HEALTH_VALID_MS) {
      const knownHealth = await lastHealth.health.catch(() => null);
      signal.throwIfAborted();
      if (knownHealth !== null) return knownHealth;
    }
    lastHealth = { atMs: clock.monotonic(), health: requestHealth(signal) };
    return lastHealth.health;
  }

  async function requestHealth(signal: AbortSignal): Promise<ServiceHealth> {
    const endpoint = "healthcheck";
    const startedMs = clock.monotonic();
    const path = `${basePath}/api/v1/${endpointPath(endpoint)}`;
    try {
      const request = { method: "GET", path, headers: HEADERS, body: null, ...leaveCheck(readClocks(clock)) } as const;
      const reply = await transport(request, signal);
      recordRequestLatency(endpoint, "ok", startedMs);
      const body = parseJson(reply.body);
      const health = parseHealth(body.ok ? body.value : null, note);
      // The interface describes the failure as 500 in one place and as 503 in another.
      return reply.status >= 300 ? { ...health, status: "unhealthy" } : health;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      recordRequestLatency(endpoint, asFailure(error).kind, startedMs);
      return { status: "unhealthy", time: null };
    }
  }

  return {
    tags(call: TagCall, lane: Lane, signal: AbortSignal): Promise<SentReply> {
      const { endpoint } = call;
      const limit: RequestLimit = {
        scope: () => (limiter.status().buckets.length > 1 ? endpoint : "tags"),
        observe: (headers, sentMs) => limiter.observe(endpoint, headers, sentMs),
        refused: (_startedMs, forMs) => limiter.pause(forMs, "allowance", endpoint),
      };
      // A repeated request has the content that was chosen first.
      const inSlot = <T>(task: (slotTaken: TimeReading) => Promise<T>, isFirst: boolean) =>
        limiter.run(lane, endpoint, task, signal, isFirst ? call.choose : undefined);
      return sendInSlot(call, limit, inSlot, signal);
    },
    list(call: ListCall, signal: AbortSignal): Promise<SentReply> {
      const lane = call.lane ?? defaultListLane(call.endpoint);
      return sendInSlot(call, listLimit, (task) => lists.run(task, signal, lane), signal);
    },
    health: checkHealth,
    close: longWaits.close,
  };
}

/** The refused token has been replaced: the request is repeated at once, without a pause of all requests. */
class ReplacedTokenError extends Retryable {}

function pauseEndedBy(failure: Failure, limit: RequestLimit): PauseScope | null {
  if (failure.kind === "throttled") return failure.scope === "everything" ? null : "everything";
  return failure.kind === "retryable" || failure.kind === "malformed" ? null : limit.scope();
}

function buildReplyContext(endpoint: ServiceCall["endpoint"], clock: Clock): ReplyContext {
  const isTagCall = endpoint === "read" || endpoint === "write";
  const missingKind = endpoint === "history" ? "no-log" : isTagCall ? "rejected" : "settings";
  return { endpoint: endpointPath(endpoint), missing: missingKind, nowMs: clock.now() };
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

/** Waits after a 503 without a time: 30 s for a short restart, at most 15 min to notice the end. */
const MAINTENANCE_WAIT = { firstMs: 30_000, maxMs: 900_000 };

function createMaintenance(clock: Clock, random: () => number) {
  let outages = 0;
  let untilMs = Number.NEGATIVE_INFINITY;
  return {
    /** Returns the milliseconds to wait: the stated time, or a growing one with jitter. */
    begin(statedMs: number | null): number {
      const nowMs = clock.monotonic();
      // Requests that were under way together report the same maintenance.
      if (nowMs >= untilMs) outages++;
      const waitMs = statedMs ?? Math.max(backoffMs(MAINTENANCE_WAIT, Math.max(1, outages), random), untilMs - nowMs);
      untilMs = Math.max(untilMs, nowMs + waitMs);
      return waitMs;
    },
    over(): void {
      outages = 0;
    },
  };
}

/**
 * Reads the token for every request. Throws `ConfigError` for an unusable token, `LocalFailure` while it is replaced.
 */
export function createToken(
  from: SecretRef,
  clock: Pick<Clock, "monotonic">,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): () => Secret {
  const secret = secretReader(from, clock, environment);
  const tokenLocation = "file" in from ? `the file ${from.file}` : `the environment variable ${from.env}`;
  return () => {
    const token = secret()
      .reveal()
      .replace(/^\uFEFF/, "")
      .trim();
    if (token === "") throw new ConfigError(`There is no access token in ${tokenLocation}.`, { hint: "Put it there." });
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new ConfigError(`What is in ${tokenLocation} is not an access token.`, {
        hint: "Put the token there and nothing else: one line, no spaces, no quotes.",
      });
    }
    return new Secret(token);
  };
}
