import { lookup as systemLookup } from "node:dns";
import { Client } from "undici";
import { ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../errors/errors.ts";
import type { Clock } from "../../runtime/clock.ts";
import { readCertificateFile } from "../../runtime/secret.ts";
import { USER_AGENT } from "../../runtime/version.ts";
import { abortAfter } from "../../runtime/waiting.ts";
import { valueOr } from "../../values/value-or-fallback.ts";
import {
  asksForTls,
  connectionFailure,
  detectTlsPort,
  HTTP_SCHEMES,
  needsTlsError,
  type ServerInfo,
} from "../connection-problem.ts";
import { isHtmlPage } from "../html-page-detection.ts";
import { openProxy } from "../proxy.ts";
import { parseHeaderSeconds, parseRetryAfterMs } from "../retry-after.ts";
import type { OutboundHttpConfig } from "./config.ts";
import { createGuardedConnector, type DnsLookup, testConnection } from "./guard.ts";

const CONNECT_TIMEOUT_MS = 5_000;
const KEEP_ALIVE_MS = 4_000;

interface HttpRequest {
  readonly method: string;
  /** Path and query; no request can name another origin. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
}

export interface HttpResponse {
  readonly status: number;
  /** Header names are in lower case. Of repeated headers, only the last is kept. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly isTruncated: boolean;
}

export type HttpClient = ReturnType<typeof createHttpClient>;

/** HTTP/1.1 client of one origin. Follows no redirects and sends one request at a time. */
export function createHttpClient(options: {
  readonly url: URL;
  readonly config: OutboundHttpConfig;
  readonly clock: Clock;
  readonly lookup?: DnsLookup;
}) {
  const { url, config, clock } = options;
  const httpProxy = openProxy(config.proxy, clock);
  let client: Client | null = null;
  let lastRequestMs = Number.NEGATIVE_INFINITY;
  function tcpConnector(targetUrl: URL) {
    return createGuardedConnector({
      url: targetUrl,
      allowNetworks: config.allow_networks,
      ca: config.ca_file === undefined ? undefined : readCertificateFile(config.ca_file, "ca_file"),
      timeoutMs: Math.min(CONNECT_TIMEOUT_MS, config.timeout),
      lookup: options.lookup ?? systemLookup,
      proxy: httpProxy,
    });
  }

  async function findFailureWithoutResponse(error: unknown, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) return signal.reason;
    const receiverInfo = describeReceiver(url.origin);
    const httpsUrl = new URL(url.href.replace(/^http:/, "https:"));
    const tlsProbeAddress = { protocol: "https:", hostname: url.hostname, host: url.host, port: url.port || "80" };
    const probeTlsConnection = (limit: AbortSignal) => testConnection(tcpConnector(httpsUrl), tlsProbeAddress, limit);
    const tlsPortError = await detectTlsPort(error, url, receiverInfo, probeTlsConnection, signal);
    return signal.aborted ? signal.reason : (tlsPortError ?? connectionFailure(error, receiverInfo));
  }
  return {
    origin: url.origin,
    progressMs: () => lastRequestMs,

    /** Rejects with a failure of `core/errors` when no response arrives, or with the signal's reason. */
    async sendHttpRequest(
      request: HttpRequest,
      signal: AbortSignal,
      maxBodyBytes: (status: number) => number,
    ): Promise<HttpResponse> {
      signal.throwIfAborted();
      client ??= new Client(url.origin, { connect: tcpConnector(url), pipelining: 1, keepAliveTimeout: KEEP_ALIVE_MS });
      lastRequestMs = clock.monotonic();
      using requestTimeLimit = abortAfter(signal, config.timeout);
      try {
        const response = await client.request({ ...request, signal: requestTimeLimit.signal });
        const { text, isTruncated } = await readResponseBodyStart(response.body, maxBodyBytes(response.statusCode));
        return { status: response.statusCode, headers: flattenHeaders(response.headers), body: text, isTruncated };
      } catch (error) {
        throw await findFailureWithoutResponse(error, signal);
      }
    },

    async probeConnection(signal: AbortSignal): Promise<void> {
      await testConnection(tcpConnector(url), url, signal).catch(async (error: unknown) => {
        throw await findFailureWithoutResponse(error, signal);
      });
    },

    async close(): Promise<void> {
      const clientToClose = client;
      client = null;
      await clientToClose?.destroy();
    },
  };
}

export function describeReceiver(origin: string): ServerInfo {
  return {
    name: origin,
    failureText: "could not be reached",
    addressOption: "url",
    caOption: "ca_file",
    ...HTTP_SCHEMES,
  };
}

async function readResponseBodyStart(body: AsyncIterable<Buffer>, maxBytes: number) {
  const bodyChunks: Buffer[] = [];
  let receivedBytes = 0;
  try {
    for await (const bodyChunk of body) {
      bodyChunks.push(bodyChunk);
      receivedBytes += bodyChunk.length;
      if (receivedBytes > maxBytes) break;
    }
  } catch {
    return { text: Buffer.concat(bodyChunks).subarray(0, maxBytes).toString(), isTruncated: true };
  }
  return { text: Buffer.concat(bodyChunks).subarray(0, maxBytes).toString(), isTruncated: receivedBytes > maxBytes };
}

function flattenHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) => {
      const lastHeaderValue = Array.isArray(value) ? value.at(-1) : value;
      return lastHeaderValue === undefined ? [] : [[name.toLowerCase(), lastHeaderValue]];
    }),
  );
}

const MAX_RESPONSE_BYTES = 256 * 1024;

/** A larger number in a rate-limit header is seconds since 1970; a smaller one is seconds from now. */
const MIN_UNIX_TIME_SECONDS = 1e9;
const MAX_RATE_LIMIT_WAIT_MS = 3_600_000;

export interface ReceiverRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly json?: unknown;
  /** Body that is sent unchanged, in place of `json`. */
  readonly text?: { readonly body: string; readonly contentType: string };
  readonly headers?: Readonly<Record<string, string>>;
  readonly allow?: readonly number[];
}

export interface ReceiverResponse extends Omit<HttpResponse, "isTruncated"> {
  /** The parsed body; undefined when the body is not JSON or too long. */
  readonly json: unknown;
}

/** Sends one request. Throws the failure of `httpStatusToFailure` if the receiver refuses the request. */
export async function sendRequest(client: HttpClient, request: ReceiverRequest, clock: Clock, signal: AbortSignal) {
  const { json, method, path, text } = request;
  const requestBody = text?.body ?? (json === undefined ? null : JSON.stringify(json));
  const requestContentType = text?.contentType ?? "application/json; charset=utf-8";
  const response = await client.sendHttpRequest(
    {
      method,
      path,
      headers: {
        "user-agent": USER_AGENT,
        accept: "application/json",
        "accept-encoding": "identity",
        ...request.headers,
        ...(requestBody === null ? {} : { "content-type": requestContentType }),
      },
      body: requestBody === null ? null : Buffer.from(requestBody),
    },
    signal,
    () => MAX_RESPONSE_BYTES,
  );
  const isAllowedStatus = request.allow?.includes(response.status) === true;
  const failure = isAllowedStatus ? null : httpStatusToFailure(response, client.origin, clock.now());
  if (failure !== null) throw failure;
  const { status, headers } = response;
  return { status, headers, body: response.body, json: response.isTruncated ? undefined : parseJson(response.body) };
}

/** Default failure for a receiver's status; null for 2xx. After 408, 425 and 5xx the request may have been executed. */
export function httpStatusToFailure(response: HttpResponse, origin: string, nowMs: number): Failure | null {
  const { status } = response;
  const responseSummary = `${origin} answered ${status}`;
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400) {
    return new ConfigError(`${responseSummary}: a redirect, which is never followed.`, {
      field: "url",
      hint: "Set the address to the one that finally answers.",
    });
  }
  if (status === 401 || status === 403) {
    return new ConfigError(`${responseSummary}: it does not accept who we are.${quoteResponseBody(response.body)}`, {
      reason: status === 401 ? "unauthenticated" : "forbidden",
      hint: "Check the credentials and what they may do.",
    });
  }
  if (status === 404) {
    return new ConfigError(`${responseSummary}: there is no such address.${quoteResponseBody(response.body)}`, {
      field: "url",
      hint: "Check the address.",
    });
  }
  if (status === 410) {
    return new ConfigError(`${responseSummary}: it wants no more.`, {
      reason: "gone",
      field: "url",
      hint: "Set another address, or remove the sink. `plenum outbox revive` with its name tries the same one again.",
    });
  }
  if (status === 429 || status === 502 || status === 503 || status === 504) {
    const { date, "retry-after": retryAfter } = response.headers;
    const throttleWaitMs = parseRetryAfterMs(retryAfter, nowMs, date) ?? rateLimitResetMs(response.headers, nowMs);
    return new Throttled(`${responseSummary}: it asks us to wait.`, throttleWaitMs, {
      scope: status === 429 ? "allowance" : "everything",
    });
  }
  const summaryWithBody = `${responseSummary}.${quoteResponseBody(response.body)}`;
  if (status >= 500 || status === 408 || status === 425) return new Retryable(summaryWithBody);
  if (status === 400 && asksForTls(response.body)) return needsTlsError(describeReceiver(origin));
  return new Rejected(summaryWithBody);
}

/** Rate-limit headers contain seconds from now (Discord), seconds since 1970 (Mattermost, Zulip) or a date (Jira). */
function rateLimitResetMs(headers: HttpResponse["headers"], nowMs: number): number | null {
  const { "x-ratelimit-reset": resetText, "x-ratelimit-reset-after": resetAfter } = headers;
  const secondsUntilReset = parseHeaderSeconds(resetAfter);
  if (secondsUntilReset !== null) return secondsUntilReset * 1_000;
  const resetSeconds = parseHeaderSeconds(resetText);
  const resetTimeMs = resetSeconds === null ? Date.parse(resetText ?? "") : resetSeconds * 1_000;
  const resetWaitMs = resetSeconds !== null && resetSeconds < MIN_UNIX_TIME_SECONDS ? resetTimeMs : resetTimeMs - nowMs;
  return resetWaitMs > 0 && resetWaitMs <= MAX_RATE_LIMIT_WAIT_MS ? resetWaitMs : null;
}

function quoteResponseBody(body: string): string {
  const responseBodyText = body.replaceAll(/[\p{Cc}\s]+/gu, " ").trim();
  return responseBodyText === "" || isHtmlPage(responseBodyText) ? "" : ` It said: ${responseBodyText.slice(0, 300)}`;
}

const parseJson = (body: string): unknown => valueOr(() => JSON.parse(body), undefined);
