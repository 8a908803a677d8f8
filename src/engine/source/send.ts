import { ConfigError, type Failure, meaningOf, Retryable } from "../../core/errors/errors.ts";
import type { Health } from "../../core/model/building.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Log, Secret } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { type Moment, momentOf } from "../../core/runtime/moment.ts";
import { cachedSecret, type SecretRef } from "../../core/runtime/secret.ts";
import { USER_AGENT } from "../../core/runtime/version.ts";
import type { ClockSkew } from "./clock-skew.ts";
import { parseJson } from "./json.ts";
import type { ListLane, ListRateLimit } from "./list-rate-limit.ts";
import { parseLogged } from "./logged-series.ts";
import { createLongWaits, type PauseScope } from "./long-waits.ts";
import type { Limiter } from "./quota/quota.ts";
import { type DecodedReply, decodeReply, type ReplyContext } from "./reply.ts";
import { parseHealth } from "./schema.ts";
import type { Lane, QuotaEndpoint, SlotOffer } from "./source.ts";
import { StaleSocket, type Transport, type TransportReply, type TransportRequest } from "./transport.ts";
import type { Note } from "./wire.ts";

/**
 * The one way of a request: limit, token, headers, transport, decoder, measurement. What the service asks for in
 * its reply (wait, come back with another token) reaches the limits before the request gives up its place in
 * them, so that nothing leaves in between.
 */
interface Send {
  /** One of the three tag endpoints, under the quota. */
  tags(call: TagCall, lane: Lane, signal: AbortSignal): Promise<Sent>;
  /** Everything else that needs the token, at the gentle pace of lists. */
  list(call: ListCall, signal: AbortSignal): Promise<Sent>;
  /** Without token and limit, and without consequences: whatever goes wrong is `unhealthy`. */
  health(signal: AbortSignal): Promise<Health>;
  close(): void;
}

export type ListEndpoint = "sites" | "alarms" | "tags" | "gateways" | "hosts" | "systems";

export interface TagCall {
  readonly endpoint: QuotaEndpoint;
  /** Returns the URL's query; called when the slot is free. */
  readonly query?: () => string;
  /** Asked whenever a slot is free, as `Limiter.run` says; without it the first free slot is taken. */
  readonly choose?: (offer: SlotOffer) => number | null;
  /**
   * Makes it a POST. Called at the last moment, in the request's slot and with a token at hand; when it rejects,
   * nothing is sent, and the error goes to the caller as it is.
   */
  readonly body?: () => Promise<unknown>;
  /** The answer is logged series, which may be long and are read in parts. */
  readonly isLogged?: boolean;
}

interface ListCall {
  readonly endpoint: ListEndpoint | "me";
  /** A lane in place of the usual one of the endpoint. */
  readonly lane?: ListLane;
  /** Query of the URL. */
  readonly query?: string;
  /** Returns a cached response for the same bytes; null for any other. */
  readonly recall?: (reply: TransportReply) => DecodedReply | null;
}

/** The usual lane of each list. */
const LANE_OF: Readonly<Record<ListCall["endpoint"], ListLane>> = {
  ...{ alarms: "urgent", sites: "urgent", me: "urgent" },
  ...{ gateways: "other", hosts: "other", systems: "other", tags: "tags" },
};

export interface Sent {
  readonly answer: DecodedReply;
  /** From the send to the whole reply. */
  readonly latencyMs: number;
  /** Time from the request to its sending. */
  readonly queuedMs: number;
}

interface SendOptions {
  readonly name: string;
  readonly baseUrl: string;
  readonly transport: Transport;
  /** The token as it is now; throws `ConfigError` when there is none. */
  readonly token: () => Secret;
  readonly limiter: Limiter;
  readonly lists: ListRateLimit;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly note: Note;
  readonly random: () => number;
  readonly skew: ClockSkew;
  readonly leaving?: Leaving;
}

/**
 * Asked at the last moment whether a request may leave whose slot was taken since then; throws `LocalFailure` where it must
 * not any more. Its slot stays spent.
 */
export type Leaving = (since: Moment) => void;

const PATHS = {
  sites: "/api/v1/sites",
  alarms: "/api/v1/alarms",
  tags: "/api/v1/tags",
  read: "/api/v1/tags/read",
  write: "/api/v1/tags/write",
  history: "/api/v1/tags/history",
  me: "/api/v1/me",
  gateways: "/api/v1/gateways",
  hosts: "/api/v1/hosts",
  systems: "/api/v1/systems",
  healthcheck: "/api/v1/healthcheck",
} as const;

/** Both media types on every request (interface, What the service does); without Accept it may answer in HTML. */
const HEADERS = {
  accept: "application/json",
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": USER_AGENT,
};

/** Reports a reply to the limit of its endpoint. */
interface Limit {
  /** Requests that a refusal of this limit pauses. */
  readonly scope: () => PauseScope;
  observe(headers: { readonly limit: number | null; readonly remaining: number | null }, sentMs: number): void;
  refused(startedMs: number, forMs: number, saysNow: boolean): void;
}

/** A result of the health check is returned again for so long while a long pause is watched, in milliseconds. */
const HEALTH_VALID_MS = 59_000;

export function createSend(options: SendOptions): Send {
  const { name: source, transport, token, limiter, lists, clock, metrics, log, note, leaving } = options;
  const prefix = new URL(options.baseUrl).pathname.replace(/\/+$/, "");
  const maintenance = createMaintenance({ clock, random: options.random });
  const longWaits = createLongWaits({ clock, log, lists, limiter, health });
  let lastHealth: { readonly atMs: number; readonly health: Promise<Health> } | null = null;

  /** Returns the check that runs before a request is sent; `since` is the time of its slot. */
  function asking(since: Moment): Pick<TransportRequest, "mayLeave"> {
    return leaving === undefined ? {} : { mayLeave: () => leaving(since) };
  }

  async function requestFor(call: TagCall | ListCall, secret: Secret, since: Moment): Promise<TransportRequest> {
    const told = typeof call.query === "function" ? call.query() : call.query;
    const query = told === undefined ? "" : `?${told}`;
    const body = isPost(call) ? JSON.stringify(await call.body()) : null;
    return {
      method: body === null ? "GET" : "POST",
      path: `${prefix}${PATHS[call.endpoint]}${query}`,
      headers: { ...HEADERS, authorization: `Bearer ${secret.reveal()}` },
      body,
      ...asking(since),
    };
  }

  async function attempt(call: TagCall | ListCall, limit: Limit, since: Moment, signal: AbortSignal) {
    const { endpoint } = call;
    const secret = token();
    const request = await requestFor(call, secret, since);
    const startedMs = clock.monotonic();
    try {
      request.mayLeave?.();
      const reply = await transport(request, signal);
      limit.observe(rateLimitIn(reply), startedMs);
      // A cached response of a proxy has an age and an old Date.
      if (reply.headers.age === undefined) options.skew.observe(reply.headers.date, startedMs);
      const recalled = "recall" in call ? call.recall?.(reply) : null;
      const parsed = isLogged(call) ? await parseLogged(reply.body) : undefined;
      const answer = recalled ?? decodeReply(reply, contextOf(endpoint, clock), parsed);
      maintenance.over();
      longWaits.answered(limit.scope(), startedMs);
      const latencyMs = measure(endpoint, "ok", startedMs);
      return { answer, latencyMs, startedMs };
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const failure = meaningOf(error);
      measure(endpoint, failure.kind, startedMs);
      const answered = answeredBy(failure, limit.scope);
      if (answered !== null) longWaits.answered(answered, startedMs);
      obey(failure, endpoint, limit, startedMs);
      if (!isPost(call) && wasExchanged(failure, secret)) throw new OldToken(failure.message);
      throw failure;
    }
  }

  /** Whether a refusal is of a token that has been exchanged since its request left. */
  function wasExchanged(failure: Failure, sent: Secret): boolean {
    if (!(failure instanceof ConfigError && failure.reason === "unauthenticated")) return false;
    try {
      return token().reveal() !== sent.reveal();
    } catch {
      return false;
    }
  }

  function obey(failure: Failure, endpoint: string, limit: Limit, startedMs: number) {
    if (failure.kind !== "throttled") return;
    let waitMs = failure.retryAfterMs ?? 0;
    if (failure.scope === "everything") {
      waitMs = maintenance.seen(failure.retryAfterMs);
      limiter.pause(waitMs, "everything");
      lists.pause(waitMs);
      longWaits.ordered("everything", waitMs, failure.retryAfterMs !== null);
    } else {
      limit.refused(startedMs, waitMs, failure.saysNow);
      longWaits.ordered(limit.scope(), waitMs);
    }
    log.warn({ endpoint, scope: failure.scope, waitMs }, "the service asks to wait");
  }

  function measure(endpoint: string, outcome: string, startedMs: number): number {
    const latencyMs = clock.monotonic() - startedMs;
    metrics.apiRequests.inc({ source, endpoint, outcome });
    metrics.apiSeconds.observe({ source, endpoint }, latencyMs / 1000);
    return latencyMs;
  }

  /** `turn` runs a task when the limit allows it. Each try takes a place of its own, as the service counts it. */
  async function sent(
    call: TagCall | ListCall,
    limit: Limit,
    turn: <T>(task: (since: Moment) => Promise<T>, isFirst: boolean) => Promise<T>,
    signal: AbortSignal,
  ): Promise<Sent> {
    const wishedMs = clock.monotonic();
    const once = async (isFirst: boolean) => {
      const { answer, latencyMs, startedMs } = await turn((since) => attempt(call, limit, since, signal), isFirst);
      return { answer, latencyMs, queuedMs: startedMs - wishedMs };
    };
    try {
      return await once(true);
    } catch (error) {
      const mayGoAgain = error instanceof StaleSocket || error instanceof OldToken;
      if (!mayGoAgain || isPost(call)) throw error;
      return once(false);
    }
  }

  const listLimit: Limit = {
    scope: () => "lists",
    observe: (headers) => lists.observe(headers),
    refused: lists.refused,
  };

  /** During a long pause two ask: what watches the pause, and what notes the health for the status. */
  async function health(signal: AbortSignal): Promise<Health> {
    if (longWaits.isOn() && lastHealth !== null && clock.monotonic() - lastHealth.atMs < HEALTH_VALID_MS) {
      const known = await lastHealth.health.catch(() => null);
      signal.throwIfAborted();
      if (known !== null) return known;
    }
    lastHealth = { atMs: clock.monotonic(), health: askHealth(signal) };
    return lastHealth.health;
  }

  async function askHealth(signal: AbortSignal): Promise<Health> {
    const endpoint = "healthcheck";
    const startedMs = clock.monotonic();
    const path = `${prefix}${PATHS[endpoint]}`;
    try {
      const asked = { method: "GET" as const, path, headers: HEADERS, body: null };
      const reply = await transport({ ...asked, ...asking(momentOf(clock)) }, signal);
      const body = parseJson(reply.body);
      measure(endpoint, "ok", startedMs);
      const told = parseHealth(body.ok ? body.value : null, note);
      // The interface gives the failure as 500 in one place and as 503 in another; both are one thing.
      return reply.status >= 300 ? { ...told, status: "unhealthy" } : told;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      measure(endpoint, meaningOf(error).kind, startedMs);
      return { status: "unhealthy", time: null };
    }
  }

  return {
    tags(call, lane, signal) {
      const { endpoint } = call;
      longWaits.look();
      const limit: Limit = {
        scope: () => (limiter.status().buckets.length > 1 ? endpoint : "tags"),
        observe: (headers, sentMs) => limiter.observe(endpoint, headers, sentMs),
        refused: (_startedMs, forMs) => limiter.pause(forMs, "allowance", endpoint),
      };
      // Repeat a retried request with the content that was chosen first.
      const turn = <T>(task: (since: Moment) => Promise<T>, isFirst: boolean) =>
        limiter.run(lane, endpoint, task, signal, isFirst ? call.choose : undefined);
      return sent(call, limit, turn, signal);
    },

    list(call, signal) {
      longWaits.look();
      const lane = call.lane ?? LANE_OF[call.endpoint];
      return sent(call, listLimit, (task) => lists.run(task, signal, lane), signal);
    },

    health,
    close: longWaits.close,
  };
}

/**
 * The service refused a token that has been replaced since. A token that is revoked first and exchanged a second later
 * is retried at once; otherwise all requests would pause for a minute.
 */
class OldToken extends Retryable {}

/** Which pause a failure shows to be over, because the service itself answered; null for none. */
function answeredBy(failure: Failure, own: () => PauseScope): PauseScope | null {
  if (failure.kind === "throttled") return failure.scope === "everything" ? null : "everything";
  return failure.kind === "retryable" || failure.kind === "malformed" ? null : own();
}

function isPost(call: TagCall | ListCall): call is TagCall & { body: () => Promise<unknown> } {
  return "body" in call && call.body !== undefined;
}

function isLogged(call: TagCall | ListCall): boolean {
  return "isLogged" in call && call.isLogged === true;
}

function contextOf(endpoint: keyof typeof PATHS, clock: Clock): ReplyContext {
  const missing =
    endpoint === "history" ? "no-log" : endpoint === "read" || endpoint === "write" ? "rejected" : "settings";
  return {
    endpoint: PATHS[endpoint].replace("/api/v1/", ""),
    missing,
    nowMs: clock.now(),
  };
}

function rateLimitIn(reply: TransportReply) {
  return {
    limit: wholeNumber(reply.headers["x-ratelimit-limit"]),
    remaining: wholeNumber(reply.headers["x-ratelimit-remaining"]),
  };
}

function wholeNumber(text: string | undefined): number | null {
  return text !== undefined && /^\s*\d{1,9}\s*$/.test(text) ? Number(text) : null;
}

/** How long the whole service is left alone after a 503. */
interface Maintenance {
  /** Records a 503 and returns the milliseconds to wait: as stated, or a growing, jittered time. */
  seen(toldMs: number | null): number;
  /** The service answered again. */
  over(): void;
}

/** 30 s at first, so that a short restart is hardly noticed; at most 15 min, so that the end of a long one is. */
const BACKOFF = { firstMs: 30_000, maxMs: 900_000 };

function createMaintenance(options: { readonly clock: Clock; readonly random: () => number }): Maintenance {
  const { clock, random } = options;
  let attempts = 0;
  let untilMs = Number.NEGATIVE_INFINITY;

  return {
    seen(toldMs) {
      const nowMs = clock.monotonic();
      // Requests that were under way together bring one maintenance several times.
      if (nowMs >= untilMs) attempts++;
      const waitMs = toldMs ?? Math.max(backoffMs(BACKOFF, Math.max(1, attempts), random), untilMs - nowMs);
      untilMs = Math.max(untilMs, nowMs + waitMs);
      return waitMs;
    },
    over() {
      attempts = 0;
    },
  };
}

/**
 * The access token as it is now. It is read again for every request, which is seldom and cheap, so a new token in
 * the file works at once, without a restart. Throws `ConfigError` with what to do when there is none that may be
 * used, and `LocalFailure` while it is exchanged (`cachedSecret`); no message repeats what was found.
 */
export function createToken(
  from: SecretRef,
  clock: Pick<Clock, "monotonic">,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): () => Secret {
  const secret = cachedSecret(from, clock, environment);
  const place = "file" in from ? `the file ${from.file}` : `the environment variable ${from.env}`;
  return () => {
    const token = secret()
      .reveal()
      .replace(/^\uFEFF/, "")
      .trim();
    if (token === "") throw new ConfigError(`There is no access token in ${place}.`, { hint: "Put it there." });
    // It becomes part of a header, so it may hold visible ASCII only.
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new ConfigError(`What is in ${place} is not an access token.`, {
        hint: "Put the token there and nothing else: one line, no spaces, no quotes.",
      });
    }
    return new Secret(token);
  };
}
