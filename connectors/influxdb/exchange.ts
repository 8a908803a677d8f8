import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { InfluxDB, setLogger } from "@influxdata/influxdb-client";
import { VERIFIED_TLS } from "../../src/verified-tls.ts";

/** Bytes above which a request is compressed; the default of the client library. */
const GZIP_ABOVE = 1_000;

/** How much of a successful answer is kept, in bytes; it is nearly always empty. Enough for the retention of a bucket. */
const MAX_ANSWER_BYTES = 65_536;

export interface DatabaseAnswer {
  readonly status: number;
  readonly body: string;
}

export interface Exchange {
  /** Sends one POST and gives any answer below 300. Rejects with the library's HttpError for all others. */
  post(path: string, body: string, signal: AbortSignal): Promise<DatabaseAnswer>;
  /** Of the answer so many bytes are kept, 65,536 unless told otherwise. */
  get(path: string, signal: AbortSignal, maxBytes?: number): Promise<DatabaseAnswer>;
  close(): void;
}

interface ExchangeOptions {
  readonly url: string;
  /** Value of the Authorization header; null without. */
  readonly authorization: string | null;
  readonly gzip: boolean;
  readonly timeoutMs: number;
  readonly ca: string | undefined;
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
  const { transport } = new InfluxDB({
    url: options.url,
    timeout: options.timeoutMs,
    transportOptions: { agent },
  });
  const headers: Record<string, string> = {
    "content-type": "text/plain; charset=utf-8",
    "user-agent": "plenum",
    ...(options.authorization === null ? {} : { authorization: options.authorization }),
  };

  function ask(
    method: "GET" | "POST",
    path: string,
    body: string,
    signal: AbortSignal,
    maxBytes = MAX_ANSWER_BYTES,
  ): Promise<DatabaseAnswer> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(options.timeoutMs)]);
    const gzip = options.gzip ? { gzipThreshold: GZIP_ABOVE } : {};
    return new Promise((resolve, reject) => {
      limited.throwIfAborted();
      let status = 0;
      let text = "";
      transport.send(
        path,
        body,
        { method, headers, signal: limited, ...gzip },
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
    post: (path, body, signal) => ask("POST", path, body, signal),
    get: (path, signal, maxBytes) => ask("GET", path, "", signal, maxBytes),
    close: () => agent.destroy(),
  };
}
