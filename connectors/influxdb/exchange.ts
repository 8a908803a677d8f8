import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Duplex } from "node:stream";
import { promisify } from "node:util";
import { gzip, type ZlibOptions } from "node:zlib";
import { InfluxDB, setLogger } from "@influxdata/influxdb-client";
import { type HttpProxy, targetOf } from "../../src/core/http/proxy.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import { timeLimit } from "../../src/core/runtime/waiting.ts";

/**
 * Bytes above which a request is compressed. The library makes a compressor for each, which takes more memory than a
 * request has and half a millisecond: worth it for a backfill, not for the 3,000 bytes of 20 values.
 */
const GZIP_ABOVE = 16_384;
/** Of a backfill's lines the first level leaves a twentieth, the usual sixth a tenth less and takes three times as long. */
const LEVEL: ZlibOptions = { level: 1 };
const compressed = promisify<Buffer, ZlibOptions, Buffer>(gzip);

/** 5,000 lines of history have 700 kB. */
const MAX_SPARE_BYTES = 2 ** 20;

/** How much of a successful answer is kept, in bytes; it is nearly always empty. Enough for the retention of a bucket. */
const MAX_RESPONSE_BYTES = 65_536;

export interface DatabaseResponse {
  readonly status: number;
  readonly body: string;
}

/** A text, or bytes in pieces that stand one after the other. */
export type Body = string | readonly Buffer[];

export interface Exchange {
  /**
   * Sends one POST and gives any answer below 300. Rejects with the library's HttpError for all others. Once it has
   * settled the pieces may be used for something else.
   */
  post(path: string, body: Body, signal: AbortSignal): Promise<DatabaseResponse>;
  /** Of the answer so many bytes are kept, 65,536 unless told otherwise. */
  get(path: string, signal: AbortSignal, maxBytes?: number): Promise<DatabaseResponse>;
  close(): void;
}

interface ExchangeOptions {
  readonly url: string;
  /** Value of the Authorization header; null without. */
  readonly authorization: string | null;
  readonly gzip: boolean;
  readonly timeoutMs: number;
  readonly ca: string | undefined;
  readonly proxy: HttpProxy | null;
}

/**
 * One request, one answer, through the transport of the client library.
 *
 * Its WriteApi is not used: a batch is acknowledged by the answer to its very request, and WriteApi neither tells
 * the status, nor takes an abort signal, nor lets go of what it has buffered without being disposed.
 */
export function createExchange(options: ExchangeOptions): Exchange {
  // Otherwise it writes plain lines to standard error; what it has to say comes as an error besides.
  setLogger({ error: () => undefined, warn: () => undefined });
  const agent = options.url.startsWith("https:")
    ? new HttpsAgent({
        ...VERIFIED_TLS,
        keepAlive: true,
        ...(options.ca === undefined ? {} : { ca: options.ca }),
      })
    : new HttpAgent({ keepAlive: true });
  const closing = new AbortController();
  /** Null while it is in use. */
  let spare: Buffer | null = null;
  // Its option `proxyUrl` would hand the proxy every request in clear, token included, also those for https.
  if (options.proxy !== null) tunnelThrough(options.proxy, agent, options, closing.signal);
  const { transport } = new InfluxDB({
    url: options.url,
    timeout: options.timeoutMs,
    transportOptions: { agent },
  });
  const headers: Record<string, string> = {
    "content-type": "text/plain; charset=utf-8",
    "user-agent": USER_AGENT,
    ...(options.authorization === null ? {} : { authorization: options.authorization }),
  };

  async function request(
    method: "GET" | "POST",
    path: string,
    content: Body,
    signal: AbortSignal,
    maxBytes = MAX_RESPONSE_BYTES,
  ): Promise<DatabaseResponse> {
    const limit = timeLimit(signal, options.timeoutMs);
    try {
      return await send(method, path, content, limit.signal, maxBytes);
    } finally {
      limit.end();
    }
  }

  /** Packs the pieces where the last ones were: each second some megabytes would be left to the collector. */
  async function packedPieces(pieces: readonly Buffer[], length: number): Promise<Buffer> {
    const [only] = pieces;
    if (only !== undefined && pieces.length === 1) return compressed(only, LEVEL);
    const joined = spare !== null && spare.length >= length ? spare : Buffer.allocUnsafeSlow(length);
    spare = null;
    let at = 0;
    for (const piece of pieces) at += piece.copy(joined, at);
    const packed = await compressed(joined.subarray(0, length), LEVEL);
    if (joined.length <= MAX_SPARE_BYTES) spare = joined;
    return packed;
  }

  async function send(
    method: "GET" | "POST",
    path: string,
    content: Body,
    limited: AbortSignal,
    maxBytes: number,
  ): Promise<DatabaseResponse> {
    const pieces = typeof content === "string" ? [Buffer.from(content)] : content;
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const isPacked = options.gzip && length > GZIP_ABOVE;
    const packed = isPacked ? await packedPieces(pieces, length) : Buffer.concat(pieces, length);
    // The library says that it wants a text, of which it makes a Buffer by Buffer.from, which takes one as well.
    const body = packed as unknown as string;
    const sent = isPacked ? { ...headers, "content-encoding": "gzip" } : headers;
    limited.throwIfAborted();
    return new Promise((resolve, reject) => {
      let status = 0;
      let text = "";
      transport.send(
        path,
        body,
        { method, headers: sent, signal: limited },
        {
          responseStarted: (_headers, code) => {
            status = code ?? 0;
          },
          next: (chunk) => {
            if (text.length < maxBytes) text += Buffer.from(chunk).toString();
          },
          complete: () => resolve({ status, body: text }),
          error: (error) => reject(limited.aborted ? limited.reason : error),
        },
      );
    });
  }

  return {
    post: (path, body, signal) => request("POST", path, body, signal),
    get: (path, signal, maxBytes) => request("GET", path, "", signal, maxBytes),
    close() {
      closing.abort();
      agent.destroy();
    },
  };
}

/** Has an agent open its connections through a proxy; with TLS to the server itself where its address says so. */
function tunnelThrough(proxy: HttpProxy, agent: HttpAgent, options: ExchangeOptions, closing: AbortSignal) {
  const url = new URL(options.url);
  const isSecure = url.protocol === "https:";
  const open = agent.createConnection.bind(agent);
  const connect = (request: object, done: (error: Error | null, socket?: Duplex) => void): undefined => {
    proxy.tunnel(targetOf(url), AbortSignal.any([closing, AbortSignal.timeout(options.timeoutMs)])).then(
      (socket) => done(null, isSecure ? (open({ ...request, socket } as object) ?? undefined) : socket),
      (error: Error) => done(error),
    );
  };
  agent.createConnection = connect as HttpAgent["createConnection"];
}
