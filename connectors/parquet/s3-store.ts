import { createHash } from "node:crypto";
import { AwsV4Signer } from "aws4fetch";
import { Agent, buildConnector, type Dispatcher } from "undici";
import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { failureOfConnection, indicatesTls, wantsTls } from "../../src/core/http/connection-problem.ts";
import { isPage } from "../../src/core/http/html-page.ts";
import { proxyOf, targetOf } from "../../src/core/http/proxy.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret, readCertificates } from "../../src/core/runtime/secret.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import { timeLimit } from "../../src/core/runtime/waiting.ts";
import { endpointOf, prefixOf, type S3Config } from "./config.ts";
import type { ObjectStore, StoredObject } from "./object-store.ts";

/** Time for lookup, connection and handshake, in milliseconds. */
const CONNECT_MS = 10_000;
/** Largest number of connections: a commit uploads this many objects at a time. */
const CONNECTIONS = 8;
/** Attempts of a conditional put that meets a concurrent one (409); afterwards the other one has finished. */
const CONFLICTS = 3;
/** Bytes read of an error or of a put's response: a code and a message, such as `SlowDown`. */
const MAX_WORDS_BYTES = 64 * 1024;
/**
 * Largest page of a list, in bytes: 1,000 keys of 1,024 bytes, percent-encoded, with their metadata take 4 MB.
 */
const MAX_PAGE_BYTES = 8 * 1024 ** 2;
/**
 * Largest object, in bytes: a finalized day of 300,000 rows takes 10 MB, a commit of a million rows 50 MB, a
 * checkpoint with the statistics of 100,000 files as much.
 */
const MAX_OBJECT_BYTES = 256 * 1024 ** 2;

export interface S3Store extends ObjectStore {
  /** Lists one key: checks address, credentials, bucket and the right to list, and writes nothing. */
  probe(signal: AbortSignal): Promise<void>;
  /** When the last request began, on the monotonic clock; minus infinity before the first one. */
  lastStepMs(): number;
  close(): Promise<void>;
}

interface S3Request {
  readonly method: "GET" | "PUT" | "DELETE";
  /** Relative to the prefix; null for the bucket itself. */
  readonly key: string | null;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** Largest body of a successful response; a larger one is an error. Without it, only the start is read. */
  readonly maxBytes?: number;
  /** Statuses other than 2xx that the caller handles. */
  readonly allow?: readonly number[];
}

/**
 * Stores objects in a bucket. It repeats no request, and the storage itself guarantees that an object is complete.
 * Requests are signed with AWS Signature Version 4, their content included.
 */
export function createS3Store(config: S3Config, clock: Clock): S3Store {
  const endpoint = new URL(endpointOf(config));
  const prefix = prefixOf(config);
  const base = config.path_style
    ? `${endpoint.origin}/${config.bucket}`
    : `${endpoint.protocol}//${config.bucket}.${endpoint.host}`;
  const accessKeyId = cachedSecret(config.access_key_id, clock);
  const secretAccessKey = cachedSecret(config.secret_access_key, clock);
  const sessionToken = config.session_token === undefined ? null : cachedSecret(config.session_token, clock);
  const proxy = proxyOf(config.proxy, clock);
  let agent: Agent | null = null;
  let requestedMs = Number.NEGATIVE_INFINITY;

  function connected(): Agent {
    agent ??= new Agent({ connect: connector(), connections: CONNECTIONS, pipelining: 1 });
    return agent;
  }

  function connector(): buildConnector.connector {
    const connect = buildConnector({
      ...VERIFIED_TLS,
      timeout: CONNECT_MS,
      allowH2: false,
      ...(config.ca_file === undefined ? {} : { ca: readCertificates(config.ca_file, "s3.ca_file") }),
    });
    if (proxy === null) return connect;
    return (target, done) => {
      proxy.tunnel(targetOf(target), AbortSignal.timeout(CONNECT_MS)).then(
        // Without TLS the tunnel is the connection; undici accepts a socket only to add TLS to it.
        (socket) =>
          target.protocol === "https:" ? connect({ ...target, httpSocket: socket }, done) : done(null, socket),
        (error: Error) => done(error, null),
      );
    };
  }

  /** Signs a request. Reads the secrets again each time, so a replaced key needs no restart. */
  async function signed({ method, key, query = {}, headers = {}, body }: S3Request) {
    const url = new URL(key === null ? `${base}/` : `${base}/${escaped(prefix + key)}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const content = createHash("sha256")
      .update(body ?? "")
      .digest("hex");
    const signer = new AwsV4Signer({
      method,
      url: url.href,
      headers: { ...headers, "x-amz-content-sha256": content },
      accessKeyId: accessKeyId().reveal(),
      secretAccessKey: secretAccessKey().reveal(),
      ...(sessionToken === null ? {} : { sessionToken: sessionToken().reveal() }),
      service: "s3",
      region: config.region,
      datetime: new Date(clock.now()).toISOString().replace(/[:-]|\.\d{3}/g, ""),
    });
    const { headers: all } = await signer.sign();
    // Use the signed form: the library encodes characters that URLSearchParams does not, such as `*`.
    const search = signer.encodedSearch === "" ? "" : `?${signer.encodedSearch}`;
    return { origin: url.origin, path: `${url.pathname}${search}`, headers: Object.fromEntries(all) };
  }

  async function request(request: S3Request, signal: AbortSignal): Promise<S3Response> {
    signal.throwIfAborted();
    const { method, body } = request;
    const { headers, origin, path } = await signed(request);
    requestedMs = clock.monotonic();
    const limit = timeLimit(signal, config.timeout);
    let raw: Dispatcher.ResponseData;
    let start: ResponseStart;
    try {
      raw = await connected().request({
        origin,
        path,
        method,
        headers: { ...headers, "user-agent": USER_AGENT },
        body: body ?? null,
        signal: limit.signal,
      });
      const isWanted = raw.statusCode >= 200 && raw.statusCode < 300;
      const maxBytes = (isWanted ? request.maxBytes : undefined) ?? MAX_WORDS_BYTES;
      start = await readStart(raw, maxBytes);
    } catch (error) {
      throw signal.aborted ? signal.reason : failureOfConnection(error, server);
    } finally {
      limit.end();
    }
    const response = { status: raw.statusCode, headers: raw.headers, bytes: start.bytes };
    const isFine = response.status >= 200 && response.status < 300;
    if (isFine && start.isCut && request.maxBytes !== undefined) throw tooLarge(request.key, request.maxBytes);
    if (isFine && method === "PUT") throwIfNotStored(response);
    if (isFine || request.allow?.includes(response.status) === true) return response;
    throw failureOfResponse(response, config, clock.now());
  }

  /** Throws for a login page or another HTML page in place of the storage's empty response. */
  function throwIfNotStored({ status, bytes }: S3Response): void {
    if (!isPage(Buffer.from(bytes.subarray(0, 64)).toString())) return;
    throw new Retryable(`${endpoint.origin} answered ${status}, but not as a storage that has stored something.`, {
      hint: "If that stays so, check whether s3.endpoint leads to the storage itself.",
    });
  }

  function tooLarge(key: string | null, maxBytes: number): ConfigError {
    const most = `more than ${maxBytes / 1024 ** 2} MiB`;
    if (key === null) {
      return new ConfigError(`${endpoint.origin} answered ${most} to a list, where a storage has half of it.`, {
        field: "s3.endpoint",
        hint: "Check that s3.endpoint is that of an S3-compatible storage.",
      });
    }
    return new ConfigError(`${prefix}${key} in the bucket ${config.bucket} has ${most}, too many to be read.`, {
      hint: "Nothing that Plenum writes comes near: see who has put it there, or choose another prefix.",
    });
  }

  const server = {
    name: endpoint.origin,
    failed: "could not be reached",
    addressOption: "s3.endpoint",
    authorityOption: "s3.ca_file",
    secureScheme: "https://",
    plainScheme: "http://",
  } as const;

  async function page(
    start: string,
    after: string | undefined,
    token: string | null,
    signal: AbortSignal,
    { most = 1_000, delimiter = null as string | null } = {},
  ) {
    const query = {
      "list-type": "2",
      // A key with a control character would otherwise make invalid XML.
      "encoding-type": "url",
      "max-keys": String(most),
      prefix: prefix + start,
      ...(delimiter === null ? {} : { delimiter }),
      ...(after === undefined ? {} : { "start-after": prefix + after }),
      ...(token === null ? {} : { "continuation-token": token }),
    };
    const { bytes } = await request({ method: "GET", key: null, query, maxBytes: MAX_PAGE_BYTES }, signal);
    return parsedList(Buffer.from(bytes).toString(), prefix.length);
  }

  return {
    where: `s3://${config.bucket}/${prefix}`.replace(/\/$/, ""),
    lastStepMs: () => requestedMs,

    async put(key, body, signal) {
      await request({ method: "PUT", key, body }, signal);
    },

    async putIfAbsent(key, body, signal) {
      const headers = { "if-none-match": "*" };
      for (let tried = 0; tried < CONFLICTS; tried++) {
        const { status } = await request({ method: "PUT", key, body, headers, allow: [409, 412] }, signal);
        if (status !== 409) return status !== 412;
      }
      throw new Retryable(`Somebody else keeps writing ${key} in the bucket ${config.bucket}.`);
    },

    async get(key, signal) {
      const response = await request({ method: "GET", key, allow: [404], maxBytes: MAX_OBJECT_BYTES }, signal);
      if (response.status !== 404) return response.bytes;
      if (Buffer.from(response.bytes).includes("<Code>NoSuchBucket</Code>")) {
        throw failureOfResponse(response, config, clock.now());
      }
      return null;
    },

    async list(start, signal, after) {
      const all: StoredObject[] = [];
      let token: string | null = null;
      do {
        const { objects, next } = await page(start, after, token, signal);
        all.push(...objects);
        token = next;
      } while (token !== null);
      return all;
    },

    async folders(start, signal) {
      const all: string[] = [];
      let token: string | null = null;
      do {
        const { folders, next } = await page(start, undefined, token, signal, { delimiter: "/" });
        all.push(...folders.map((folder) => folder.slice(start.length, -1)));
        token = next;
      } while (token !== null);
      return all;
    },

    async remove(key, signal) {
      await request({ method: "DELETE", key, allow: [404] }, signal);
    },

    async probe(signal) {
      await page("", undefined, null, signal, { most: 1 });
    },

    async close() {
      const open = agent;
      agent = null;
      await open?.destroy();
    },
  };
}

interface ResponseStart {
  readonly bytes: Uint8Array;
  readonly isCut: boolean;
}

/** Reads the start of a response body; stops at once where Content-Length exceeds the limit. */
async function readStart(
  { body, headers }: Pick<Dispatcher.ResponseData, "body" | "headers">,
  maxBytes: number,
): Promise<ResponseStart> {
  const isLonger = Number(headers["content-length"] ?? 0) > maxBytes;
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of body as AsyncIterable<Buffer>) {
    parts.push(part);
    bytes += part.length;
    if (isLonger || bytes > maxBytes) break;
  }
  return { bytes: Buffer.concat(parts).subarray(0, maxBytes), isCut: isLonger || bytes > maxBytes };
}

/** Encodes a key for the signature: every character except letters, digits, `-._~` and slashes. */
function escaped(key: string): string {
  const one = (text: string) =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return key.split("/").map(one).join("/");
}

/** Parses a page of a list; keys without the prefix. `next` is null on the last page. */
function parsedList(xml: string, prefixLength: number) {
  const keyOf = (text: string) => decodeURIComponent(text.replaceAll("+", " ")).slice(prefixLength);
  const objects = xml
    .split("<Contents>")
    .slice(1)
    .filter((content) => content.includes("</Contents>"))
    .map(
      (content): StoredObject => ({
        key: keyOf(textOf(content, "Key")),
        bytes: Number(textOf(content, "Size")),
      }),
    );
  const folders = xml
    .split("<CommonPrefixes>")
    .slice(1)
    .map((content) => keyOf(textOf(content, "Prefix")));
  const isCut = textOf(xml, "IsTruncated") === "true";
  return { objects, folders, next: isCut ? textOf(xml, "NextContinuationToken") : null };
}

function textOf(xml: string, tag: string): string {
  const [, text = ""] = new RegExp(`<${tag}>([^<]*)</${tag}>`).exec(xml) ?? [];
  return text.replace(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => ENTITIES[name] ?? "");
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

interface S3Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Uint8Array;
}

/**
 * Maps an error response to a failure, by the storage's own code, because the status alone is ambiguous:
 *
 * | code                                         | meaning                                    |
 * | --------------------------------------------- | ------------------------------------------ |
 * | RequestTimeTooSkewed                          | a person must set a clock                  |
 * | NoSuchBucket, InvalidBucketName               | a person must correct `s3.bucket`          |
 * | InvalidAccessKeyId, SignatureDoesNotMatch …   | a person must correct the keys             |
 * | AccessDenied                                  | a person must grant more rights            |
 * | PermanentRedirect, AuthorizationHeader…       | a person must correct region or endpoint   |
 * | SlowDown, 429, 503                            | wait                                       |
 * | QuotaExceeded, XMinioStorageFull, 507         | storage full: may pass                     |
 * | other 5xx, RequestTimeout                     | may pass                                   |
 */
export function failureOfResponse(response: S3Response, config: S3Config, nowMs: number): Failure {
  const { status } = response;
  const text = Buffer.from(response.bytes.subarray(0, 4_096)).toString();
  const code = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(text)?.[1] ?? "";
  const end = new URL(endpointOf(config)).origin;
  const start = `${end} answered ${status}${code === "" ? "" : ` (${code})`}`;

  if (code === "RequestTimeTooSkewed" || code === "RequestExpired") {
    return new ConfigError(`${start}: its clock and that of this machine differ too much.`, {
      hint: "Set the clock of this machine, by NTP for example; if it is right, look at the storage's.",
    });
  }
  if (code === "NoSuchBucket" || code === "InvalidBucketName") {
    return new ConfigError(`${start}: there is no bucket ${config.bucket}.`, {
      field: "s3.bucket",
      hint: "Create it, or correct s3.bucket; Plenum makes no buckets.",
    });
  }
  if (WRONG_KEYS.has(code) || status === 401) {
    return new ConfigError(`${start}: it does not accept the keys.`, {
      field: "s3.access_key_id",
      reason: "unauthenticated",
      hint: "Check s3.access_key_id and s3.secret_access_key.",
    });
  }
  if (WRONG_PLACE.has(code) || (status >= 300 && status < 400)) {
    return new ConfigError(`${start}: the bucket ${config.bucket} is elsewhere.`, {
      field: "s3.region",
      hint: "Check s3.region and s3.endpoint.",
    });
  }
  if (FULL.has(code) || status === 507) {
    return new Retryable(`${start}: the storage is full.`, { hint: "Make room there; the events wait." });
  }
  if (code === "SlowDown" || status === 429 || status === 503) {
    const { date, "retry-after": retryAfter } = response.headers;
    const wait = retryAfterMs(retryAfter, nowMs, date);
    return new Throttled(`${start}: it asks us to wait.`, wait, {
      scope: code === "SlowDown" || status === 429 ? "allowance" : "everything",
    });
  }
  if (status === 403) {
    return new ConfigError(`${start}: the keys may not do this in the bucket ${config.bucket}.`, {
      reason: "forbidden",
      hint: "They need s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket there.",
    });
  }
  if (status === 501 || code === "NotImplemented") {
    return new ConfigError(`${start}: the storage cannot do what is needed.`, {
      field: "s3.endpoint",
      hint: "It has to know list-type=2 and, for a Delta log, If-None-Match.",
    });
  }
  if (status >= 500 || code === "RequestTimeout" || code === "OperationAborted") return new Retryable(`${start}.`);
  if (status === 400 && indicatesTls(text)) {
    return wantsTls({
      name: end,
      failed: "could not be reached",
      addressOption: "s3.endpoint",
      authorityOption: "s3.ca_file",
      secureScheme: "https://",
      plainScheme: "http://",
    });
  }
  return new ConfigError(`${start}: it does not take this.`, {
    field: "s3",
    hint: "Check that s3.endpoint is that of an S3-compatible storage.",
  });
}

const WRONG_KEYS = new Set([
  "InvalidAccessKeyId",
  "SignatureDoesNotMatch",
  "InvalidToken",
  "ExpiredToken",
  "InvalidClientTokenId",
  "Unauthorized",
]);
const WRONG_PLACE = new Set([
  "PermanentRedirect",
  "TemporaryRedirect",
  "AuthorizationHeaderMalformed",
  "IllegalLocationConstraintException",
]);
const FULL = new Set(["QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage"]);
