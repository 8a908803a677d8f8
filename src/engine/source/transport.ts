import { readFileSync } from "node:fs";
import { rootCertificates } from "node:tls";
import { Agent, buildConnector, type Dispatcher } from "undici";
import { ConfigError, type Failure, LocalFailure, Malformed, Retryable } from "../../core/errors/errors.ts";
import {
  endedUnanswered,
  failureOfConnection,
  type Server,
  speaksTls,
  wantsTls,
} from "../../core/http/connection-problem.ts";
import { type HttpProxy, probeThroughProxy, proxyOf, targetOf } from "../../core/http/proxy.ts";
import { VERIFIED_TLS } from "../../core/http/verified-tls.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { USER_AGENT } from "../../core/runtime/version.ts";
import { timeLimit } from "../../core/runtime/waiting.ts";
import type { SourceConfig } from "./config.ts";

/** One request to the service. The origin is the transport's own: no request can name another. */
export interface TransportRequest {
  readonly method: "GET" | "POST";
  /** Path and query from the root of the origin, beginning with a slash. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Asked when a connection is there, right before the first byte goes; throws why nothing may be sent any more. */
  readonly mayLeave?: () => void;
}

/**
 * Brings one request to the service and its whole reply back; what the reply means is decided elsewhere.
 * Throws the failures of src/core/errors/errors.ts, or the signal's reason. Never repeats a request, never follows a redirect.
 * A simulation gives its own.
 */
export type Transport = (request: TransportRequest, signal: AbortSignal) => Promise<TransportReply>;

export interface HttpTransport {
  readonly send: Transport;
  close(): Promise<void>;
}

/**
 * As many as may be under way at once: 8 under the quota (a slow gateway takes its time) and 4 lists. With fewer,
 * a request would wait here after its slot of the quota has begun.
 */
const CONNECTIONS = 12;
/** Idle sockets are given up before most proxies and firewalls forget them. */
const KEEP_ALIVE_MS = 55_000;
/** A new socket looks the name up again, so a service that moved is found. */
const LONGEST_SOCKET_LIFE_MS = 300_000;

/** HTTP/1.1 over connections of its own; no global agent, no proxy of the environment, no interceptor. */
export function createHttpTransport(config: SourceConfig, proxy: HttpProxy | null = null): HttpTransport {
  const { origin } = new URL(config.base_url);
  const connect = buildConnector({
    ...VERIFIED_TLS,
    allowH2: false,
    timeout: config.deadlines.connect_ms,
    ...(config.ca_file === undefined ? {} : { ca: authorities(config.ca_file) }),
  });
  let opened = 0;
  const connections = new Agent({
    allowH2: false,
    connections: CONNECTIONS,
    pipelining: 1,
    headersTimeout: config.deadlines.headers_ms,
    bodyTimeout: config.deadlines.total_ms,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    clientTtl: LONGEST_SOCKET_LIFE_MS,
    connect(options, callback) {
      opened++;
      if (proxy === null) {
        connect(options, callback);
        return;
      }
      const isSecure = options.protocol === "https:";
      proxy.tunnel(targetOf(options), AbortSignal.timeout(config.deadlines.connect_ms)).then(
        (socket) => (isSecure ? connect({ ...options, httpSocket: socket }, callback) : callback(null, socket)),
        (error: Error) => callback(error, null),
      );
    },
  });

  async function exchange(request: TransportRequest, signal: AbortSignal): Promise<TransportReply> {
    const openedBefore = opened;
    const reception = createReception(config.max_body_bytes, request.mayLeave);
    const cut = () => reception.cut(signal.reason);
    signal.addEventListener("abort", cut, { once: true });
    try {
      const { method, path, headers, body } = request;
      connections.dispatch({ origin, method, path, headers, body }, reception.handler);
      return await reception.reply;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof LocalFailure) throw error;
      if (reception.hasBegun()) throw connectionFailure(error, origin);
      // No new socket was opened, so the server had closed this kept-alive one.
      const stale = opened === openedBefore && isBrokenSocket(error);
      if (!stale) throw await unanswered(error, origin, proxy, signal);
      throw new StaleSocket(connectionFailure(error, origin).message, { cause: error });
    } finally {
      signal.removeEventListener("abort", cut);
    }
  }

  return {
    async send(request, signal) {
      signal.throwIfAborted();
      const totalMs = config.deadlines.total_ms;
      const late = () => new Retryable(`${origin} did not answer completely within ${totalMs} ms.`);
      const limit = timeLimit(signal, totalMs, late);
      try {
        return await exchange(request, limit.signal);
      } finally {
        limit.end();
      }
    },
    close: () => connections.destroy(),
  };
}

/** The public authorities and those of the file. Throws `ConfigError` when the file cannot be used. */
function authorities(path: string): string[] {
  let own: string;
  try {
    own = readFileSync(path, "utf8");
  } catch (cause) {
    throw new ConfigError(`The certificates in ca_file ${path} cannot be read.`, { cause });
  }
  if (!own.includes("-----BEGIN CERTIFICATE-----")) {
    throw new ConfigError(`There is no certificate in ca_file ${path}.`, { hint: "It must be in PEM form." });
  }
  return [...rootCertificates, own];
}

function isBrokenSocket(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "UND_ERR_SOCKET" || code === "ECONNRESET" || code === "EPIPE";
}

/** A reply that arrived whole. Names of headers in lower case; several of one name joined by a comma. */
export interface TransportReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
}

/**
 * Takes one reply from undici as it comes. `request` makes a stream, its iterator and the events of both for each, which is
 * more work than all else where a reply is 4 kB and wanted whole.
 */
interface Reception {
  /** For undici's `dispatch`; what it throws ends this request only. */
  readonly handler: Dispatcher.DispatchHandler;
  readonly reply: Promise<TransportReply>;
  /** Whether the head of the reply came. */
  hasBegun(): boolean;
  /** Ends it for this reason; where it has not left yet it never does. */
  cut(reason: unknown): void;
}

/**
 * Statuses whose head says all that counts: how long to wait (interface, Errors, the two with a status of their own). What
 * comes with it may be cut off, compressed or too large, and we wait all the same: a 429 with `Retry-After: 40` whose page
 * broke off would else be asked again 4 s later.
 */
const ORDERS_TO_WAIT = new Set([429, 503]);
const NO_BODY = new Uint8Array();

/** Room for an answer whose length is not announced, in bytes; it grows. */
const UNANNOUNCED_BYTES = 65_536;

/** `mayLeave` is asked when a connection is there, right before the first byte goes. */
function createReception(maxBytes: number, mayLeave: (() => void) | undefined): Reception {
  const { promise, resolve, reject } = Promise.withResolvers<TransportReply>();
  let controller: Dispatcher.DispatchController | null = null;
  let ended: { readonly reason: unknown } | null = null;
  let status: number | null = null;
  let headers: TransportReply["headers"] = {};
  let body = Buffer.alloc(0);
  let length = 0;

  /** True when the reply counts although the rest of it does not come; then it is over, without a body. */
  function waitsAllTheSame(): boolean {
    if (ended !== null || status === null || !ORDERS_TO_WAIT.has(status)) return false;
    resolve({ status, headers, body: NO_BODY });
    return true;
  }

  function tooLarge(): Malformed {
    return new Malformed(`The answer is larger than ${maxBytes} bytes.`, "", {
      hint: "Raise max_body_bytes, or ask for less at a time.",
    });
  }

  /**
   * Copy chunks of an announced length into one buffer as they arrive; otherwise a large reply would be in memory
   * twice.
   */
  function makeRoom(): void {
    const announced = Number(headers["content-length"] ?? 0);
    if (announced > maxBytes) throw tooLarge();
    const isAnnounced = Number.isSafeInteger(announced) && announced > 0;
    body = Buffer.allocUnsafeSlow(isAnnounced ? announced : UNANNOUNCED_BYTES);
  }

  function take(chunk: Uint8Array): void {
    const end = length + chunk.byteLength;
    if (end > maxBytes) throw tooLarge();
    if (end > body.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(maxBytes, Math.max(end, 2 * body.length)));
      larger.set(body.subarray(0, length));
      body = larger;
    }
    body.set(chunk, length);
    length = end;
  }

  return {
    handler: {
      onRequestStart(started) {
        if (ended !== null) throw ended.reason;
        mayLeave?.();
        controller = started;
      },
      onResponseStart(_controller, statusCode, told) {
        // An interim answer, as 103 is: the one that counts follows.
        if (statusCode < 200) return;
        status = statusCode;
        headers = flat(told);
        refuseEncoding(headers);
        makeRoom();
      },
      onResponseData: (_controller, chunk) => take(chunk),
      onResponseEnd() {
        resolve({ status: status ?? 0, headers, body: body.subarray(0, length) });
      },
      onResponseError(_controller, error) {
        if (!waitsAllTheSame()) reject(error);
      },
    },
    reply: promise,
    hasBegun: () => status !== null,
    cut(reason) {
      ended = { reason };
      controller?.abort(reason as Error);
      reject(reason);
    },
  };
}

/** We ask for no encoding, so that the cap on the body is a cap on what is held in memory. */
function refuseEncoding(headers: TransportReply["headers"]): void {
  const encoding = headers["content-encoding"];
  if (encoding === undefined || /^\s*(identity)?\s*$/i.test(encoding)) return;
  throw new Malformed(`The answer is compressed (${encoding.slice(0, 40)}) although that was not asked for.`, "", {
    hint: "A proxy in between has to leave Accept-Encoding: identity alone.",
  });
}

function flat(headers: Readonly<Record<string, string | string[] | undefined>>): TransportReply["headers"] {
  const entries = Object.entries(headers).map(([name, value]) => [
    name.toLowerCase(),
    Array.isArray(value) ? value.join(", ") : value,
  ]);
  return Object.fromEntries(entries);
}

/**
 * The server closed a kept-alive socket while a request was sent on it. A GET may be repeated at once on a new
 * connection. A POST may not: the server may have processed it.
 */
export class StaleSocket extends Retryable {}

/** Gives what a socket, TLS or HTTP library threw its meaning; the list is in src/core/http/connection-problem.ts. */
export function connectionFailure(error: unknown, origin: string): Failure {
  return failureOfConnection(error, serviceAt(origin));
}

/**
 * The same for a request that was never answered. A port for https hangs up on plain http without a word, as a
 * restart does; whether it speaks TLS tells the two apart.
 */
async function unanswered(
  error: unknown,
  origin: string,
  proxy: HttpProxy | null,
  signal: AbortSignal,
): Promise<Failure> {
  const url = new URL(origin);
  const plain = url.protocol === "http:" && endedUnanswered(error);
  const address = { host: url.hostname, port: Number(url.port || 80) };
  const knock = (limit: AbortSignal) => probeThroughProxy(proxy, address, AbortSignal.any([limit, signal]));
  if (plain && (await speaksTls(knock))) return wantsTls(serviceAt(origin));
  return connectionFailure(error, origin);
}

function serviceAt(origin: string): Server {
  return {
    name: origin,
    failed: "could not be asked",
    addressOption: "base_url",
    authorityOption: "ca_file",
    secureScheme: "https://",
    plainScheme: "http://",
  };
}

const CHECK_MS = 5_000;
/** A request without an answer for so long may be lost on its way, in milliseconds. */
const SLOW_MS = 5_000;

/** One health check over a connection of its own, without token and quota: whether any answer comes within 5 s. */
export async function reachesService(
  config: SourceConfig,
  clock: Clock,
  environment: Readonly<Record<string, string | undefined>> | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const path = `${new URL(config.base_url).pathname.replace(/\/+$/, "")}/api/v1/healthcheck`;
  const headers = { accept: "application/json", "user-agent": USER_AGENT };
  try {
    const http = createHttpTransport(config, proxyOf(config.proxy, clock, environment));
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(CHECK_MS)]);
      await http.send({ method: "GET", path, headers, body: null }, limit);
      return true;
    } finally {
      await http.close();
    }
  } catch {
    signal.throwIfAborted();
    return false;
  }
}

/**
 * The same transport, which reports whether the service answers. Any answer counts, whatever its status. Of requests that
 * fail together only the first one counts. `null`: no answer yet after 5 s.
 */
export function reporting(send: Transport, reached: (isReached: boolean | null) => void, clock: Clock): Transport {
  let failedAtMs = Number.NEGATIVE_INFINITY;
  return async (request, signal) => {
    const startedMs = clock.monotonic();
    const answered = new AbortController();
    clock.sleep(SLOW_MS, answered.signal).then(
      () => reached(null),
      () => undefined,
    );
    try {
      const reply = await send(request, signal);
      reached(true);
      return reply;
    } catch (error) {
      const isCounted = isOfTheWay(error) && !signal.aborted && startedMs >= failedAtMs;
      if (isCounted) {
        failedAtMs = clock.monotonic();
        reached(false);
      }
      throw error;
    } finally {
      answered.abort();
    }
  };
}

/** A kept connection that was given up is tried again at once, and what this machine itself has stopped proves nothing. */
function isOfTheWay(error: unknown): boolean {
  if (error instanceof StaleSocket || error instanceof LocalFailure) return false;
  return error instanceof Retryable || error instanceof ConfigError;
}
