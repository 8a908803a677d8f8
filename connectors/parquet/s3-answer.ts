import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { indicatesTls, wantsTls } from "../../src/core/http/connection-problem.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";
import type { S3Config } from "./config.ts";

export interface S3Answer {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: Uint8Array;
}

/** Amazon's own where the configuration names none. */
export function endpointOf({ endpoint, region }: Pick<S3Config, "endpoint" | "region">): string {
  return endpoint ?? `https://s3.${region}.amazonaws.com`;
}

/** With the slash that separates it from the rest of a key; empty where there is none. */
export function prefixOf({ prefix }: Pick<S3Config, "prefix">): string {
  return prefix === "" ? "" : `${prefix.replace(/^\/+|\/+$/g, "")}/`;
}

/**
 * What an answer that is no success means. By the storage's own code, because the status alone says little:
 *
 * | code                                          | means                                    |
 * | --------------------------------------------- | ---------------------------------------- |
 * | RequestTimeTooSkewed                          | a person sets a clock                    |
 * | NoSuchBucket, InvalidBucketName               | a person corrects `s3.bucket`            |
 * | InvalidAccessKeyId, SignatureDoesNotMatch …   | a person corrects the keys               |
 * | AccessDenied                                  | a person gives the keys more rights      |
 * | PermanentRedirect, AuthorizationHeader…       | a person corrects region or endpoint     |
 * | SlowDown, 429, 503                            | wait                                     |
 * | QuotaExceeded, XMinioStorageFull, 507         | it is full: it may pass                  |
 * | other 5xx, RequestTimeout                     | it may pass                              |
 */
export function failureOfAnswer(answer: S3Answer, config: S3Config, nowMs: number): Failure {
  const { status } = answer;
  const text = Buffer.from(answer.bytes.subarray(0, 4_096)).toString();
  const code = /<Code>([A-Za-z0-9.]{1,64})<\/Code>/.exec(text)?.[1] ?? "";
  const end = new URL(endpointOf(config)).origin;
  const said = `${end} answered ${status}${code === "" ? "" : ` (${code})`}`;

  if (code === "RequestTimeTooSkewed" || code === "RequestExpired") {
    return new ConfigError(`${said}: its clock and that of this machine differ too much.`, {
      hint: "Set the clock of this machine, by NTP for example; if it is right, look at the storage's.",
    });
  }
  if (code === "NoSuchBucket" || code === "InvalidBucketName") {
    return new ConfigError(`${said}: there is no bucket ${config.bucket}.`, {
      field: "s3.bucket",
      hint: "Create it, or correct s3.bucket; Plenum makes no buckets.",
    });
  }
  if (WRONG_KEYS.has(code) || status === 401) {
    return new ConfigError(`${said}: it does not accept the keys.`, {
      field: "s3.access_key_id",
      reason: "unauthenticated",
      hint: "Check s3.access_key_id and s3.secret_access_key.",
    });
  }
  if (WRONG_PLACE.has(code) || (status >= 300 && status < 400)) {
    return new ConfigError(`${said}: the bucket ${config.bucket} is elsewhere.`, {
      field: "s3.region",
      hint: "Check s3.region and s3.endpoint.",
    });
  }
  if (FULL.has(code) || status === 507) {
    return new Retryable(`${said}: the storage is full.`, { hint: "Make room there; the events wait." });
  }
  if (code === "SlowDown" || status === 429 || status === 503) {
    const { date, "retry-after": retryAfter } = answer.headers;
    const wait = retryAfterMs(retryAfter, nowMs, date);
    return new Throttled(`${said}: it asks us to wait.`, wait, {
      scope: code === "SlowDown" || status === 429 ? "allowance" : "everything",
    });
  }
  if (status === 403) {
    return new ConfigError(`${said}: the keys may not do this in the bucket ${config.bucket}.`, {
      reason: "forbidden",
      hint: "They need s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket there.",
    });
  }
  if (status === 501 || code === "NotImplemented") {
    return new ConfigError(`${said}: the storage cannot do what is needed.`, {
      field: "s3.endpoint",
      hint: "It has to know list-type=2 and, for a Delta log, If-None-Match.",
    });
  }
  if (status >= 500 || code === "RequestTimeout" || code === "OperationAborted")
    return new Retryable(`${said}.`);
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
  return new ConfigError(`${said}: it does not take this.`, {
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
const FULL = new Set([
  "QuotaExceeded",
  "XMinioStorageFull",
  "XMinioAdminBucketQuotaExceeded",
  "InsufficientStorage",
]);
