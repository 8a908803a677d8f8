import { lookup as systemLookup } from "node:dns";
import { Client } from "undici";
import type { Clock } from "../../runtime/clock.ts";
import { readCertificates } from "../../runtime/secret.ts";
import { timeLimit } from "../../runtime/waiting.ts";
import { endedUnanswered, failureOfConnection, type Server, speaksTls, wantsTls } from "../connection-problem.ts";
import { proxyOf } from "../proxy.ts";
import type { OutboundConfig } from "./config.ts";
import { guardedConnector, type Lookup, probe } from "./guard.ts";

/** Time for lookup, connection and handshake, in milliseconds. */
const CONNECT_MS = 5_000;
/** How long an unused connection is kept, in milliseconds. */
const KEEP_ALIVE_MS = 4_000;

export interface HttpRequest {
  readonly method: string;
  /** Path and query; the origin is the end's own, no request can name another. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
}

export interface HttpResponse {
  readonly status: number;
  /** Lower-case names; of a header that came twice the last. */
  readonly headers: Readonly<Record<string, string>>;
  /** As far as it was wanted and came. */
  readonly body: string;
  /** There was more, or it did not come: what there is may end in the middle. */
  readonly isCut: boolean;
}

/** One origin that we speak HTTP/1.1 to, through the guard: no redirect, one request at a time. */
export interface HttpClient {
  readonly origin: string;
  /**
   * One request, one answer, at most `bodyBytes(status)` of its body read. Rejects with a failure that has a meaning
   * where no answer came, and with the signal's reason where it aborted.
   */
  exchange(request: HttpRequest, signal: AbortSignal, bodyBytes: (status: number) => number): Promise<HttpResponse>;
  /** When the last request began, on the monotonic clock; before the first one never, minus infinity. */
  lastStepMs(): number;
  /** Connects, with the handshake, and hangs up without a word. */
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

  /** A port for https hangs up on plain http without a word; a handshake through the same guard tells. */
  async function meaningOfNoAnswer(error: unknown, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) return signal.reason;
    const receiver = receiverAt(url.origin);
    if (url.protocol === "http:" && endedUnanswered(error)) {
      const secure = new URL(url.href.replace(/^http:/, "https:"));
      const address = { protocol: "https:", hostname: url.hostname, host: url.host, port: url.port || "80" };
      const ask = (limit: AbortSignal) => probe(connector(secure), address, AbortSignal.any([limit, signal]));
      if (await speaksTls(ask)) return wantsTls(receiver);
    }
    return signal.aborted ? signal.reason : failureOfConnection(error, receiver);
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
        throw await meaningOfNoAnswer(error, signal);
      } finally {
        limit.end();
      }
    },

    async knock(signal) {
      await probe(connector(url), url, signal).catch(async (error: unknown) => {
        throw await meaningOfNoAnswer(error, signal);
      });
    },

    async close() {
      const open = client;
      client = null;
      await open?.destroy();
    },
  };
}

/** The receiver in the words of src/core/http/connection-problem.ts, which knows what it means that there was no answer. */
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
