import { addAbortListener } from "node:events";
import { readFileSync } from "node:fs";
import { rootCertificates } from "node:tls";
import { Agent, buildConnector, type Dispatcher } from "undici";
import { ConfigError, LocalFailure, Malformed, Retryable } from "../../core/errors/errors.ts";
import { connectionFailure, detectTlsPort, HTTP_SCHEMES, type ServerInfo } from "../../core/http/connection-problem.ts";
import {
  connectThroughProxy,
  type HttpProxy,
  hostAndPortOfUrl,
  openProxy,
  probeTlsThroughProxy,
} from "../../core/http/proxy.ts";
import { VERIFIED_TLS } from "../../core/http/verified-tls.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { USER_AGENT } from "../../core/runtime/version.ts";
import { abortAfter } from "../../core/runtime/waiting.ts";
import type { SourceConfig } from "./config.ts";

export interface TransportRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Called on an open connection right before the first byte is sent; throws to stop the request. */
  readonly checkBeforeSend?: () => void;
}

/** Reply of the service. Header names are in lower case; headers of one name are joined by commas. */
export interface TransportReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
}

/** Returns a complete reply of any status; throws failures of `core/errors`. Retries nothing, follows no redirect. */
export type Transport = (request: TransportRequest, signal: AbortSignal) => Promise<TransportReply>;

export interface HttpTransport {
  readonly send: Transport;
  close(): Promise<void>;
}

/** HTTP connections: 8 for requests within the quota, 4 for lists. */
const HTTP_CONNECTIONS_MAX = 12;
const SOCKET_KEEP_ALIVE_MS = 55_000;
/** Maximum lifetime of a socket, because only a new socket resolves the host name again. */
const SOCKET_LIFETIME_MAX_MS = 300_000;

/** Sends HTTP/1.1 over its own connections, without the global agent and the proxies of the environment. */
export function createHttpTransport(config: SourceConfig, proxy: HttpProxy | null = null): HttpTransport {
  const url = new URL(config.base_url);
  const { origin } = url;
  const serverInfo: ServerInfo = {
    name: origin,
    failureText: "could not be asked",
    addressOption: "base_url",
    caOption: "ca_file",
    ...HTTP_SCHEMES,
  };
  const directConnector = buildConnector({
    ...VERIFIED_TLS,
    allowH2: false,
    timeout: config.deadlines.connect_ms,
    ...(config.ca_file === undefined ? {} : { ca: readCertificates(config.ca_file) }),
  });
  const openSocket = connectThroughProxy(proxy, directConnector, config.deadlines.connect_ms);
  let openedSocketCount = 0;
  const connectionPool = new Agent({
    allowH2: false,
    connections: HTTP_CONNECTIONS_MAX,
    pipelining: 1,
    headersTimeout: config.deadlines.headers_ms,
    bodyTimeout: config.deadlines.total_ms,
    keepAliveTimeout: SOCKET_KEEP_ALIVE_MS,
    keepAliveMaxTimeout: SOCKET_KEEP_ALIVE_MS,
    clientTtl: SOCKET_LIFETIME_MAX_MS,
    connect(options, callback) {
      openedSocketCount++;
      openSocket(options, callback);
    },
  });

  async function exchangeHttpMessages(request: TransportRequest, signal: AbortSignal): Promise<TransportReply> {
    const oldSocketCount = openedSocketCount;
    const replyReceiver = createReplyReceiver(config.max_body_bytes, request.checkBeforeSend);
    using _abortListener = addAbortListener(signal, () => replyReceiver.abort(signal.reason));
    try {
      const { method, path, headers, body } = request;
      connectionPool.dispatch({ origin, method, path, headers, body }, replyReceiver.handler);
      return await replyReceiver.reply;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof LocalFailure) throw error;
      const failure = connectionFailure(error, serverInfo);
      if (replyReceiver.hasReplyBegun()) throw failure;
      // No new socket was opened, so the server had closed this kept-alive one.
      if (openedSocketCount === oldSocketCount && isSocketError(error))
        throw new StaleSocket(failure.message, { cause: error });
      const probeTlsPort = (deadline: AbortSignal) => probeTlsThroughProxy(proxy, hostAndPortOfUrl(url), deadline);
      throw (await detectTlsPort(error, url, serverInfo, probeTlsPort, signal)) ?? failure;
    }
  }

  return {
    async send(request, signal) {
      signal.throwIfAborted();
      const timeoutMs = config.deadlines.total_ms;
      const createTimeoutError = () => new Retryable(`${origin} did not answer completely within ${timeoutMs} ms.`);
      using requestDeadline = abortAfter(signal, timeoutMs, createTimeoutError);
      return await exchangeHttpMessages(request, requestDeadline.signal);
    },
    close: () => connectionPool.destroy(),
  };
}

function readCertificates(path: string): string[] {
  let certificates: string;
  try {
    certificates = readFileSync(path, "utf8");
  } catch (cause) {
    throw new ConfigError(`The certificates in ca_file ${path} cannot be read.`, { cause });
  }
  if (!certificates.includes("-----BEGIN CERTIFICATE-----"))
    throw new ConfigError(`There is no certificate in ca_file ${path}.`, { hint: "It must be in PEM form." });
  return [...rootCertificates, certificates];
}

function isSocketError(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  return code === "UND_ERR_SOCKET" || code === "ECONNRESET" || code === "EPIPE";
}

/** Statuses whose headers state how long to wait; their body may be incomplete, compressed or too large. */
const HTTP_STATUSES_WITH_WAIT = new Set([429, 503]);
const EMPTY_REPLY_BODY = new Uint8Array();

const INITIAL_REPLY_BODY_BYTES = 65_536;

/** Receives a reply through undici's `dispatch`, which needs no streams and is faster than `request` for small replies. */
function createReplyReceiver(maxBytes: number, checkBeforeSend: (() => void) | undefined) {
  const { promise, resolve, reject } = Promise.withResolvers<TransportReply>();
  let controller: Dispatcher.DispatchController | null = null;
  let abortCause: { readonly reason: unknown } | null = null;
  let status: number | null = null;
  let headers: TransportReply["headers"] = {};
  let body = Buffer.alloc(0);
  let bodyLength = 0;

  function createTooLargeError(): Malformed {
    const hint = "Raise max_body_bytes, or ask for less at a time.";
    return new Malformed(`The response is larger than ${maxBytes} bytes.`, "", { hint });
  }

  function allocateReplyBody(): void {
    const contentLengthBytes = Number(headers["content-length"] ?? 0);
    if (contentLengthBytes > maxBytes) throw createTooLargeError();
    const hasContentLength = Number.isSafeInteger(contentLengthBytes) && contentLengthBytes > 0;
    body = Buffer.allocUnsafeSlow(hasContentLength ? contentLengthBytes : INITIAL_REPLY_BODY_BYTES);
  }

  function appendBodyChunk(chunk: Uint8Array): void {
    const newBodyLength = bodyLength + chunk.byteLength;
    if (newBodyLength > maxBytes) throw createTooLargeError();
    if (newBodyLength > body.length) {
      const largerBodyBuffer = Buffer.allocUnsafeSlow(Math.min(maxBytes, Math.max(newBodyLength, 2 * body.length)));
      largerBodyBuffer.set(body.subarray(0, bodyLength));
      body = largerBodyBuffer;
    }
    body.set(chunk, bodyLength);
    bodyLength = newBodyLength;
  }

  const responseHandler: Dispatcher.DispatchHandler = {
    onRequestStart(startedController) {
      if (abortCause !== null) throw abortCause.reason;
      checkBeforeSend?.();
      controller = startedController;
    },
    onResponseStart(_controller, statusCode, rawHeaders) {
      if (statusCode < 200) return;
      status = statusCode;
      headers = joinHttpHeaders(rawHeaders);
      rejectCompressedBody(headers);
      allocateReplyBody();
    },
    onResponseData: (_controller, chunk) => appendBodyChunk(chunk),
    onResponseEnd() {
      resolve({ status: status ?? 0, headers, body: body.subarray(0, bodyLength) });
    },
    onResponseError(_controller, error) {
      if (abortCause === null && status !== null && HTTP_STATUSES_WITH_WAIT.has(status))
        resolve({ status, headers, body: EMPTY_REPLY_BODY });
      else reject(error);
    },
  };
  return {
    handler: responseHandler,
    reply: promise,
    hasReplyBegun: () => status !== null,
    abort(reason: unknown): void {
      abortCause = { reason };
      controller?.abort(reason as Error);
      reject(reason);
    },
  };
}

/** Rejects compressed bodies, because `max_body_bytes` limits memory only for uncompressed bodies. */
function rejectCompressedBody(headers: TransportReply["headers"]): void {
  const bodyEncoding = headers["content-encoding"];
  if (bodyEncoding === undefined || /^\s*(identity)?\s*$/i.test(bodyEncoding)) return;
  const message = `The response is compressed (${bodyEncoding.slice(0, 40)}), which the request does not accept.`;
  const hint = "Let the proxy in between pass the header Accept-Encoding: identity unchanged.";
  throw new Malformed(message, "", { hint });
}

function joinHttpHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): TransportReply["headers"] {
  const joinHeader = (value: string | string[] | undefined) => (Array.isArray(value) ? value.join(", ") : value);
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), joinHeader(value)]));
}

/** Thrown when the server closed a kept-alive socket. A GET may be repeated; a POST may have been processed. */
export class StaleSocket extends Retryable {}

const HEALTH_CHECK_TIMEOUT_MS = 5_000;
const SLOW_RESPONSE_MS = 5_000;

export async function canReachService(
  config: SourceConfig,
  clock: Clock,
  environment: Readonly<Record<string, string | undefined>> | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const healthCheckPath = `${new URL(config.base_url).pathname.replace(/\/+$/, "")}/api/v1/healthcheck`;
  const headers = { accept: "application/json", "user-agent": USER_AGENT };
  try {
    const healthTransport = createHttpTransport(config, openProxy(config.proxy, clock, environment));
    try {
      const requestDeadline = AbortSignal.any([signal, AbortSignal.timeout(HEALTH_CHECK_TIMEOUT_MS)]);
      await healthTransport.send({ method: "GET", path: healthCheckPath, headers, body: null }, requestDeadline);
      return true;
    } finally {
      await healthTransport.close();
    }
  } catch {
    signal.throwIfAborted();
    return false;
  }
}

/** Wraps a transport: reports true after a reply, false after a failure, null if a reply takes over 5 s. */
export function reportOutages(
  send: Transport,
  reportReachable: (isReached: boolean | null) => void,
  clock: Clock,
): Transport {
  let lastFailureMs = Number.NEGATIVE_INFINITY;
  return async (request, signal) => {
    const startedMs = clock.monotonic();
    const replyController = new AbortController();
    clock.sleep(SLOW_RESPONSE_MS, replyController.signal).then(
      () => reportReachable(null),
      () => undefined,
    );
    try {
      const reply = await send(request, signal);
      reportReachable(true);
      return reply;
    } catch (error) {
      if (isServiceUnreachable(error) && !signal.aborted && startedMs >= lastFailureMs) {
        lastFailureMs = clock.monotonic();
        reportReachable(false);
      }
      throw error;
    } finally {
      replyController.abort();
    }
  };
}

/** Returns false for stale sockets, which are retried, and for failures of this machine. */
function isServiceUnreachable(error: unknown): boolean {
  if (error instanceof StaleSocket || error instanceof LocalFailure) return false;
  return error instanceof Retryable || error instanceof ConfigError;
}
