import { lookup as systemLookup } from "node:dns";
import { Client } from "undici";
import type { Clock } from "../../runtime/clock.ts";
import { readCertificates } from "../../runtime/secret.ts";
import { timeLimit } from "../../runtime/waiting.ts";
import { failureOfConnection, plainTextAtTlsPort, type Server } from "../connection-problem.ts";
import { proxyOf } from "../proxy.ts";
import type { OutboundConfig } from "./config.ts";
import { guardedConnector, type Lookup, probe } from "./guard.ts";

/** Time for lookup, connection and handshake, in milliseconds. */
const CONNECT_MS = 5_000;
/** How long an unused connection stays open, in milliseconds. */
const KEEP_ALIVE_MS = 4_000;

export interface HttpRequest {
  readonly method: string;
  /** Path and query; no request can name another origin. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
}

export interface HttpResponse {
  readonly status: number;
  /** Names in lower case; the last of several headers of one name. */
  readonly headers: Readonly<Record<string, string>>;
  /** The start of the body, up to the requested size. */
  readonly body: string;
  /** True if the body is incomplete. */
  readonly isCut: boolean;
}

/** Client of one origin, HTTP/1.1 through the guard: no redirect, one request at a time. */
export interface HttpClient {
  readonly origin: string;
  /**
   * Sends one request and reads at most `bodyBytes(status)` of the response's body. Rejects with a failure of
   * `core/errors` without a response, or with the signal's reason.
   */
  exchange(request: HttpRequest, signal: AbortSignal, bodyBytes: (status: number) => number): Promise<HttpResponse>;
  /** Monotonic time of the last request; minus infinity before the first. */
  lastStepMs(): number;
  /** Connects, with the TLS handshake, and closes the connection. */
  knock(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export function createHttpClient(options: {
  readonly url: URL;
  readonly config: OutboundConfig;
  readonly clock: Clock;
  readonly lookup?: Lookup;
}): HttpClient {
  const { url, config, clock } = options;
  const proxy = proxyOf(config.proxy, clock);
  let client: Client | null = null;
  let askedMs = Number.NEGATIVE_INFINITY;

  function connector(to: URL) {
    return guardedConnector({
      url: to,
      allowNetworks: config.allow_networks,
      ca: config.ca_file === undefined ? undefined : readCertificates(config.ca_file, "ca_file"),
      timeoutMs: Math.min(CONNECT_MS, config.timeout),
      lookup: options.lookup ?? systemLookup,
      proxy,
    });
  }

  async function failureWithoutResponse(error: unknown, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) return signal.reason;
    const receiver = receiverAt(url.origin);
    const secure = new URL(url.href.replace(/^http:/, "https:"));
    const address = { protocol: "https:", hostname: url.hostname, host: url.host, port: url.port || "80" };
    const connectTls = (limit: AbortSignal) => probe(connector(secure), address, limit);
    const mismatch = await plainTextAtTlsPort(error, url, receiver, connectTls, signal);
    return signal.aborted ? signal.reason : (mismatch ?? failureOfConnection(error, receiver));
  }

  return {
    origin: url.origin,
    lastStepMs: () => askedMs,

    async exchange(request, signal, bodyBytes) {
      signal.throwIfAborted();
      client ??= new Client(url.origin, {
        connect: connector(url),
        pipelining: 1,
        keepAliveTimeout: KEEP_ALIVE_MS,
      });
      askedMs = clock.monotonic();
      const limit = timeLimit(signal, config.timeout);
      try {
        const response = await client.request({ ...request, signal: limit.signal });
        const { text, isCut } = await beginningOf(response.body, bodyBytes(response.statusCode));
        return { status: response.statusCode, headers: flat(response.headers), body: text, isCut };
      } catch (error) {
        throw await failureWithoutResponse(error, signal);
      } finally {
        limit.end();
      }
    },

    async knock(signal) {
      await probe(connector(url), url, signal).catch(async (error: unknown) => {
        throw await failureWithoutResponse(error, signal);
      });
    },

    async close() {
      const open = client;
      client = null;
      await open?.destroy();
    },
  };
}

/** Description of the receiver for failures. */
export function receiverAt(origin: string): Server {
  return {
    name: origin,
    failed: "could not be reached",
    addressOption: "url",
    authorityOption: "ca_file",
    secureScheme: "https://",
    plainScheme: "http://",
  };
}

/** Reads the start of a body up to the limit; a longer body closes the connection. */
async function beginningOf(
  body: AsyncIterable<Buffer>,
  maxBytes: number,
): Promise<{ readonly text: string; readonly isCut: boolean }> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of body) {
      parts.push(part);
      bytes += part.length;
      if (bytes > maxBytes) break;
    }
  } catch {
    return { text: Buffer.concat(parts).subarray(0, maxBytes).toString(), isCut: true };
  }
  return { text: Buffer.concat(parts).subarray(0, maxBytes).toString(), isCut: bytes > maxBytes };
}

function flat(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) => {
      const last = Array.isArray(value) ? value.at(-1) : value;
      return last === undefined ? [] : [[name.toLowerCase(), last]];
    }),
  );
}
