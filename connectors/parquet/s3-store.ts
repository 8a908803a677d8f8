import { hash } from "node:crypto";
import { AwsV4Signer } from "aws4fetch";
import { Agent, buildConnector, type Dispatcher } from "undici";
import type { Sink } from "../../src/core/connector.ts";
import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import {
  asksForTls,
  connectionFailure,
  needsTlsError,
  type ServerInfo,
} from "../../src/core/http/connection-problem.ts";
import { isHtmlPage } from "../../src/core/http/html-page-detection.ts";
import { describeReceiver } from "../../src/core/http/outbound/request.ts";
import { connectThroughProxy, openProxy } from "../../src/core/http/proxy.ts";
import { parseRetryAfterMs } from "../../src/core/http/retry-after.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import { abortAfter } from "../../src/core/runtime/waiting.ts";
import { normalizeKeyPrefix, resolveS3Endpoint, type S3Config } from "./config.ts";
import type { ObjectStore } from "./object-store.ts";

const CONNECT_TIMEOUT_MS = 10_000;
const MAX_S3_CONNECTIONS = 8;
/** Maximum attempts to write an object while a concurrent write of the same object causes status 409. */
const MAX_S3_CONFLICT_ATTEMPTS = 3;
/** Limit of a response to a put and of an error response, which has a code such as `SlowDown` and a message. */
const MAX_S3_ERROR_BYTES = 64 * 1024;
/** Limit of a list page: 1,000 percent-encoded keys of 1,024 bytes with metadata take 4 MB. */
const MAX_LIST_PAGE_BYTES = 8 * 1024 ** 2;
/** Limit of an object: a day of 300,000 rows takes 10 MB, a commit of a million rows 50 MB. */
const MAX_S3_OBJECT_BYTES = 256 * 1024 ** 2;

export type S3Store = ObjectStore & Required<Pick<Sink, "progressMs" | "probe" | "close">>;

interface S3Request {
  readonly method: "GET" | "PUT" | "DELETE";
  readonly key: string | null;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** Size limit of the response; a larger response is an error. If absent, only the start of a response is read. */
  readonly maxBytes?: number;
  /** Additional accepted statuses, which the caller handles. */
  readonly allow?: readonly number[];
}

/** Stores objects in S3-compatible storage, with AWS Signature Version 4. Does not retry. */
export function createS3Store(config: S3Config, clock: Clock): S3Store {
  const endpoint = new URL(resolveS3Endpoint(config));
  const prefix = normalizeKeyPrefix(config);
  const bucketUrl = config.path_style
    ? `${endpoint.origin}/${config.bucket}`
    : `${endpoint.protocol}//${config.bucket}.${endpoint.host}`;
  const readAccessKeyId = secretReader(config.access_key_id, clock);
  const readSecretAccessKey = secretReader(config.secret_access_key, clock);
  const readSessionToken = config.session_token === undefined ? null : secretReader(config.session_token, clock);
  const proxy = openProxy(config.proxy, clock);
  let agent: Agent | null = null;
  let lastRequestMs = Number.NEGATIVE_INFINITY;

  function createS3Connector(): buildConnector.connector {
    const connectWithTls = buildConnector({
      ...VERIFIED_TLS,
      timeout: CONNECT_TIMEOUT_MS,
      allowH2: false,
      ...(config.ca_file === undefined ? {} : { ca: readCertificateFile(config.ca_file, "s3.ca_file") }),
    });
    return connectThroughProxy(proxy, connectWithTls, CONNECT_TIMEOUT_MS);
  }

  /** Reads the secrets for each request, so a replaced key needs no restart. */
  async function signS3Request({ method, key, query = {}, headers = {}, body }: S3Request) {
    const url = new URL(key === null ? `${bucketUrl}/` : `${bucketUrl}/${encodeS3Key(prefix + key)}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const requestSigner = new AwsV4Signer({
      method,
      url: url.href,
      headers: { ...headers, "x-amz-content-sha256": hash("sha256", body ?? "") },
      accessKeyId: readAccessKeyId().reveal(),
      secretAccessKey: readSecretAccessKey().reveal(),
      ...(readSessionToken === null ? {} : { sessionToken: readSessionToken().reveal() }),
      service: "s3",
      region: config.region,
      datetime: new Date(clock.now()).toISOString().replace(/[:-]|\.\d{3}/g, ""),
    });
    const { headers: signedHeaders } = await requestSigner.sign();
    // Use the query string as the signer encoded it: URLSearchParams leaves characters such as `*` unencoded.
    const queryString = requestSigner.encodedSearch === "" ? "" : `?${requestSigner.encodedSearch}`;
    return { origin: url.origin, path: `${url.pathname}${queryString}`, headers: Object.fromEntries(signedHeaders) };
  }

  async function sendS3Request(request: S3Request, signal: AbortSignal): Promise<S3Response> {
    signal.throwIfAborted();
    const { method, body, maxBytes } = request;
    const { headers, origin, path } = await signS3Request(request);
    lastRequestMs = clock.monotonic();
    using requestTimeout = abortAfter(signal, config.timeout);
    let response: S3Response & { readonly isCutOff: boolean };
    try {
      agent ??= new Agent({ connect: createS3Connector(), connections: MAX_S3_CONNECTIONS, pipelining: 1 });
      const rawResponse = await agent.request({
        origin,
        path,
        method,
        headers: { ...headers, "user-agent": USER_AGENT },
        body: body ?? null,
        signal: requestTimeout.signal,
      });
      const maxBodyBytes = (isSuccessStatus(rawResponse.statusCode) ? maxBytes : undefined) ?? MAX_S3_ERROR_BYTES;
      response = {
        status: rawResponse.statusCode,
        headers: rawResponse.headers,
        ...(await readResponseStart(rawResponse, maxBodyBytes)),
      };
    } catch (error) {
      throw signal.aborted ? signal.reason : connectionFailure(error, describeS3Server(endpoint.origin));
    }
    const { isCutOff, status } = response;
    if (isSuccessStatus(status) && isCutOff && maxBytes !== undefined) throw createTooLargeError(request.key, maxBytes);
    if (isSuccessStatus(status) && method === "PUT") throwIfPutNotStored(response);
    if (isSuccessStatus(status) || request.allow?.includes(status) === true) return response;
    throw toS3Failure(response, config, clock.now());
  }

  /** Throws if a put returns a page, such as a login page, in place of the storage's empty response. */
  function throwIfPutNotStored({ status, bytes }: S3Response): void {
    if (!isHtmlPage(Buffer.from(bytes.subarray(0, 64)).toString())) return;
    throw new Retryable(`${endpoint.origin} answered ${status}, but not as a storage that has stored something.`, {
      hint: "If that stays so, check whether s3.endpoint leads to the storage itself.",
    });
  }

  function createTooLargeError(key: string | null, maxBytes: number): ConfigError {
    const limitText = `more than ${maxBytes / 1024 ** 2} MiB`;
    if (key === null)
      return new ConfigError(`${endpoint.origin} answered ${limitText} to a list, where a storage has half of it.`, {
        field: "s3.endpoint",
        hint: "Check that s3.endpoint is that of an S3-compatible storage.",
      });
    return new ConfigError(`${prefix}${key} in the bucket ${config.bucket} has ${limitText}, too many to be read.`, {
      hint: "Nothing that Plenum writes comes near: see who has put it there, or choose another prefix.",
    });
  }

  async function* listPages(prefixInLake: string, options: Readonly<Record<string, string>>, signal: AbortSignal) {
    let continuationToken: string | null = null;
    do {
      const query: Record<string, string> = {
        "list-type": "2",
        // A key with a control character would otherwise make invalid XML.
        "encoding-type": "url",
        "max-keys": "1000",
        prefix: prefix + prefixInLake,
        ...options,
        ...(continuationToken === null ? {} : { "continuation-token": continuationToken }),
      };
      const { bytes } = await sendS3Request({ method: "GET", key: null, query, maxBytes: MAX_LIST_PAGE_BYTES }, signal);
      const listPage = parseS3Listing(Buffer.from(bytes).toString(), prefix.length);
      yield listPage;
      continuationToken = listPage.nextPageToken;
    } while (continuationToken !== null);
  }

  return {
    location: `s3://${config.bucket}/${prefix}`.replace(/\/$/, ""),
    async put(key, body, signal) {
      await sendS3Request({ method: "PUT", key, body }, signal);
    },
    async putIfAbsent(key, body, signal) {
      const headers = { "if-none-match": "*" };
      for (let attempt = 0; attempt < MAX_S3_CONFLICT_ATTEMPTS; attempt++) {
        const { status } = await sendS3Request({ method: "PUT", key, body, headers, allow: [409, 412] }, signal);
        if (status !== 409) return status !== 412;
      }
      throw new Retryable(`Somebody else keeps writing ${key} in the bucket ${config.bucket}.`);
    },
    async get(key, signal) {
      const response = await sendS3Request({ method: "GET", key, allow: [404], maxBytes: MAX_S3_OBJECT_BYTES }, signal);
      if (response.status !== 404) return response.bytes;
      if (Buffer.from(response.bytes).includes("<Code>NoSuchBucket</Code>"))
        throw toS3Failure(response, config, clock.now());
      return null;
    },
    async list(prefixInLake, signal, afterKey) {
      const options: Record<string, string> = afterKey === undefined ? {} : { "start-after": prefix + afterKey };
      const pages = await Array.fromAsync(listPages(prefixInLake, options, signal));
      return pages.flatMap(({ objects }) => objects);
    },
    async listFolders(prefixInLake, signal) {
      const pages = await Array.fromAsync(listPages(prefixInLake, { delimiter: "/" }, signal));
      return pages.flatMap(({ folders }) => folders).map((folder) => folder.slice(prefixInLake.length, -1));
    },
    async remove(key, signal) {
      await sendS3Request({ method: "DELETE", key, allow: [404] }, signal);
    },
    /** Monotonic time at which the last request began. */
    progressMs: () => lastRequestMs,
    /** Checks address, credentials, bucket and the right to list, by listing one key. */
    async probe(signal) {
      await listPages("", { "max-keys": "1" }, signal).next();
    },
    async close() {
      const closingAgent = agent;
      agent = null;
      await closingAgent?.destroy();
    },
  };
}

const isSuccessStatus = (status: number): boolean => status >= 200 && status < 300;

/** Reads the start of a response body; stops at once where Content-Length exceeds the limit. */
async function readResponseStart({ body, headers }: Dispatcher.ResponseData, maxBytes: number) {
  const isBodyTooLong = Number(headers["content-length"] ?? 0) > maxBytes;
  const responseChunks: Buffer[] = [];
  let bodySize = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    responseChunks.push(chunk);
    bodySize += chunk.length;
    if (isBodyTooLong || bodySize > maxBytes) break;
  }
  return { bytes: Buffer.concat(responseChunks).subarray(0, maxBytes), isCutOff: isBodyTooLong || bodySize > maxBytes };
}

/** Percent-encodes every character of a key except letters, digits, `-._~` and slashes. */
function encodeS3Key(key: string): string {
  const encodeSegment = (text: string) =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return key.split("/").map(encodeSegment).join("/");
}

function parseS3Listing(xml: string, prefixLength: number) {
  const decodeKey = (encodedKey: string) => decodeURIComponent(encodedKey.replaceAll("+", " ")).slice(prefixLength);
  const [, ...contents] = xml.split("<Contents>");
  const [, ...prefixes] = xml.split("<CommonPrefixes>");
  return {
    objects: contents
      .filter((content) => content.includes("</Contents>"))
      .map((content) => ({ key: decodeKey(readXmlText(content, "Key")), bytes: Number(readXmlText(content, "Size")) })),
    folders: prefixes.map((content) => decodeKey(readXmlText(content, "Prefix"))),
    nextPageToken: readXmlText(xml, "IsTruncated") === "true" ? readXmlText(xml, "NextContinuationToken") : null,
  };
}

function readXmlText(xml: string, tagName: string): string {
  const [, text = ""] = new RegExp(`<${tagName}>([^<]*)</${tagName}>`).exec(xml) ?? [];
  return text.replace(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => XML_ENTITIES[name] ?? "");
}

const XML_ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

interface S3Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Uint8Array;
}

const S3_WRONG_CREDENTIAL_CODES = [
  "InvalidAccessKeyId",
  "SignatureDoesNotMatch",
  "InvalidToken",
  "ExpiredToken",
  "InvalidClientTokenId",
  "Unauthorized",
];
const S3_OTHER_REGION_CODES = [
  "PermanentRedirect",
  "TemporaryRedirect",
  "AuthorizationHeaderMalformed",
  "IllegalLocationConstraintException",
];
const S3_STORAGE_FULL_CODES = [
  "QuotaExceeded",
  "XMinioStorageFull",
  "XMinioAdminBucketQuotaExceeded",
  "InsufficientStorage",
];

/** Maps an S3 error to a failure, by the storage's error code first: the status alone is ambiguous. */
export function toS3Failure(response: S3Response, { bucket, ...endpointConfig }: S3Config, nowMs: number): Failure {
  const { status } = response;
  const responseBodyText = Buffer.from(response.bytes.subarray(0, 4_096)).toString();
  const errorCode = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(responseBodyText)?.[1] ?? "";
  const { origin } = new URL(resolveS3Endpoint(endpointConfig));
  const errorPrefix = `${origin} answered ${status}${errorCode === "" ? "" : ` (${errorCode})`}`;

  if (["RequestTimeTooSkewed", "RequestExpired"].includes(errorCode))
    return new ConfigError(`${errorPrefix}: its clock and that of this machine differ too much.`, {
      hint: "Set the clock of this machine, by NTP for example; if it is right, look at the storage's.",
    });
  if (["NoSuchBucket", "InvalidBucketName"].includes(errorCode))
    return new ConfigError(`${errorPrefix}: there is no bucket ${bucket}.`, {
      field: "s3.bucket",
      hint: "Create it, or correct s3.bucket; Plenum makes no buckets.",
    });
  if (S3_WRONG_CREDENTIAL_CODES.includes(errorCode) || status === 401)
    return new ConfigError(`${errorPrefix}: it does not accept the keys.`, {
      field: "s3.access_key_id",
      reason: "unauthenticated",
      hint: "Check s3.access_key_id and s3.secret_access_key.",
    });
  if (S3_OTHER_REGION_CODES.includes(errorCode) || (status >= 300 && status < 400))
    return new ConfigError(`${errorPrefix}: the bucket ${bucket} is elsewhere.`, {
      field: "s3.region",
      hint: "Check s3.region and s3.endpoint.",
    });
  if (S3_STORAGE_FULL_CODES.includes(errorCode) || status === 507)
    return new Retryable(`${errorPrefix}: the storage is full.`, { hint: "Make room there; the events wait." });
  if (errorCode === "SlowDown" || status === 429 || status === 503) {
    const { date, "retry-after": retryAfter } = response.headers;
    return new Throttled(`${errorPrefix}: it asks us to wait.`, parseRetryAfterMs(retryAfter, nowMs, date), {
      scope: errorCode === "SlowDown" || status === 429 ? "allowance" : "everything",
    });
  }
  if (status === 403)
    return new ConfigError(`${errorPrefix}: the keys may not do this in the bucket ${bucket}.`, {
      reason: "forbidden",
      hint: "They need s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket there.",
    });
  if (status === 501 || errorCode === "NotImplemented")
    return new ConfigError(`${errorPrefix}: the storage cannot do what is needed.`, {
      field: "s3.endpoint",
      hint: "It has to know list-type=2 and, for a Delta log, If-None-Match.",
    });
  if (status >= 500 || errorCode === "RequestTimeout" || errorCode === "OperationAborted")
    return new Retryable(`${errorPrefix}.`);
  if (status === 400 && asksForTls(responseBodyText)) return needsTlsError(describeS3Server(origin));
  return new ConfigError(`${errorPrefix}: it does not take this.`, {
    field: "s3",
    hint: "Check that s3.endpoint is that of an S3-compatible storage.",
  });
}

const describeS3Server = (origin: string): ServerInfo => ({
  ...describeReceiver(origin),
  addressOption: "s3.endpoint",
  caOption: "s3.ca_file",
});
