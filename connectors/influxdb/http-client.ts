import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Duplex } from "node:stream";
import { promisify } from "node:util";
import { gzip, type ZlibOptions } from "node:zlib";
import { InfluxDB, setLogger } from "@influxdata/influxdb-client";
import { type HttpProxy, hostAndPortOfUrl } from "../../src/core/http/proxy.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import { abortAfter } from "../../src/core/runtime/waiting.ts";

/** Request size above which compression pays. Compressing takes 0.5 ms, even for a small request. */
const GZIP_THRESHOLD_BYTES = 16_384;
/** Compression level 1 shrinks a backfill to 5 %. Level 6 saves another 10 % but takes three times as long. */
const GZIP_OPTIONS: ZlibOptions = { level: 1 };
const compressGzip = promisify<Buffer, ZlibOptions, Buffer>(gzip);

const MAX_REUSED_BUFFER_BYTES = 2 ** 20;
const EMPTY_BUFFER = Buffer.alloc(0);

const MAX_RESPONSE_BYTES = 65_536;

export interface InfluxHttpResponse {
  readonly status: number;
  readonly body: string;
}

export type RequestBody = string | readonly Buffer[];

export type InfluxClient = ReturnType<typeof createInfluxClient>;

interface HttpClientOptions {
  readonly url: string;
  readonly authorization: string | null;
  readonly gzip: boolean;
  readonly timeoutMs: number;
  readonly ca: string | undefined;
  readonly proxy: HttpProxy | null;
}

/** Sends requests through the library's transport, because its WriteApi returns no status and takes no abort signal. */
export function createInfluxClient(options: HttpClientOptions) {
  setLogger({ error: () => undefined, warn: () => undefined });
  const agent = options.url.startsWith("https:")
    ? new HttpsAgent({ ...VERIFIED_TLS, keepAlive: true, ca: options.ca })
    : new HttpAgent({ keepAlive: true });
  const closeController = new AbortController();
  let reusableBuffer: Buffer = EMPTY_BUFFER;
  // The library's `proxyUrl` would send every request to the proxy in plain text, token included, also for https.
  if (options.proxy !== null) tunnelThroughProxy(options.proxy, agent, options, closeController.signal);
  const { transport } = new InfluxDB({ url: options.url, timeout: options.timeoutMs, transportOptions: { agent } });
  const headers: Record<string, string> = {
    "content-type": "text/plain; charset=utf-8",
    "user-agent": USER_AGENT,
    ...(options.authorization === null ? {} : { authorization: options.authorization }),
  };

  async function compressBodyChunks(chunks: readonly Buffer[], totalBytes: number): Promise<Buffer> {
    const [onlyChunk] = chunks;
    if (onlyChunk !== undefined && chunks.length === 1) return compressGzip(onlyChunk, GZIP_OPTIONS);
    const joinedBodyBuffer = reusableBuffer.length >= totalBytes ? reusableBuffer : Buffer.allocUnsafeSlow(totalBytes);
    reusableBuffer = EMPTY_BUFFER;
    let offset = 0;
    for (const chunkBytes of chunks) offset += chunkBytes.copy(joinedBodyBuffer, offset);
    const compressedBody = await compressGzip(joinedBodyBuffer.subarray(0, totalBytes), GZIP_OPTIONS);
    if (joinedBodyBuffer.length <= MAX_REUSED_BUFFER_BYTES) reusableBuffer = joinedBodyBuffer;
    return compressedBody;
  }

  async function send(method: "GET" | "POST", path: string, data: RequestBody, signal: AbortSignal, maxBytes: number) {
    using timeLimit = abortAfter(signal, options.timeoutMs);
    const limitSignal = timeLimit.signal;
    const bodyChunks = typeof data === "string" ? [Buffer.from(data)] : data;
    const byteCount = bodyChunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const isGzipped = options.gzip && byteCount > GZIP_THRESHOLD_BYTES;
    const bodyBuffer = isGzipped
      ? await compressBodyChunks(bodyChunks, byteCount)
      : Buffer.concat(bodyChunks, byteCount);
    // The library declares a string but passes it to Buffer.from, which also accepts a Buffer.
    const body = bodyBuffer as unknown as string;
    const requestHeaders = isGzipped ? { ...headers, "content-encoding": "gzip" } : headers;
    limitSignal.throwIfAborted();
    return await new Promise<InfluxHttpResponse>((resolve, reject) => {
      let status = 0;
      let responseText = "";
      const responseCallbacks = {
        responseStarted(_headers: unknown, statusCode = 0) {
          status = statusCode;
        },
        next(chunk: Uint8Array) {
          if (responseText.length < maxBytes) responseText += Buffer.from(chunk).toString();
        },
        complete: () => resolve({ status, body: responseText }),
        error: (error: Error) => reject(limitSignal.aborted ? limitSignal.reason : error),
      };
      transport.send(path, body, { method, headers: requestHeaders, signal: limitSignal }, responseCallbacks);
    });
  }

  return {
    /** Sends a POST. Rejects with the library's HttpError for status 300 and above. */
    post: (path: string, body: RequestBody, signal: AbortSignal) =>
      send("POST", path, body, signal, MAX_RESPONSE_BYTES),
    get: (path: string, signal: AbortSignal, maxBytes = MAX_RESPONSE_BYTES) => send("GET", path, "", signal, maxBytes),
    close() {
      closeController.abort();
      agent.destroy();
    },
  };
}

function tunnelThroughProxy(proxy: HttpProxy, agent: HttpAgent, options: HttpClientOptions, closeSignal: AbortSignal) {
  const url = new URL(options.url);
  const isHttps = url.protocol === "https:";
  const createAgentConnection = agent.createConnection.bind(agent);
  const connectThroughProxy = (request: object, done: (error: Error | null, socket?: Duplex) => void): undefined => {
    proxy.connectTo(hostAndPortOfUrl(url), AbortSignal.any([closeSignal, AbortSignal.timeout(options.timeoutMs)])).then(
      (socket) => done(null, isHttps ? (createAgentConnection({ ...request, socket } as object) ?? undefined) : socket),
      (error: Error) => done(error),
    );
  };
  agent.createConnection = connectThroughProxy as HttpAgent["createConnection"];
}
