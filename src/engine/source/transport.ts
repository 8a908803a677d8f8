import { readFileSync } from "node:fs";
import { rootCertificates } from "node:tls";
import { Agent, buildConnector } from "undici";
import { ConfigError, LocalFailure, Retryable } from "../../core/errors/errors.ts";
import { type HttpProxy, targetOf } from "../../core/http/proxy.ts";
import { VERIFIED_TLS } from "../../core/http/verified-tls.ts";
import { timeLimit } from "../../core/runtime/waiting.ts";
import type { SourceConfig } from "./config.ts";
import { connectionFailure, StaleSocket, unanswered } from "./connection-failure.ts";
import { createReception, type TransportReply } from "./reception.ts";

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
        (socket) =>
          isSecure ? connect({ ...options, httpSocket: socket }, callback) : callback(null, socket),
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
      // No socket was opened meanwhile, so this one had been kept alive, and the far end had given it up.
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
