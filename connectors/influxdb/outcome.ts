import { HttpError } from "@influxdata/influxdb-client";
import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { failureOfConnection, indicatesTls, type Server, wantsTls } from "../../src/core/http/connection-problem.ts";
import { isPage } from "../../src/core/http/html-page.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";
import type { InfluxConfig } from "./config.ts";
import type { DatabaseResponse } from "./exchange.ts";
import type { Verdict } from "./store-lines.ts";

/** Longest reason stored with a dead letter, in characters. */
const MAX_REASON = 300;

/**
 * Verdict on a successful response. InfluxDB 3 responds 201 with an error text where it stored only some lines;
 * other responses below 300 mean that every line is stored, unless the body says otherwise.
 */
export function verdictOfResponse(response: DatabaseResponse, config: InfluxConfig, lines: number): Verdict {
  const error = failureOfSuccess(response, config);
  if (error !== null) return { kind: "failed", error };
  const reason = response.status === 201 ? errorTextIn(response.body) : null;
  return reason === null ? STORED : verdictOfRefusal(reason, lines);
}

/**
 * Detects a false success; a real one has no body (204). Causes are a login page of a proxy, a page of the user
 * interface behind a wrong `url`, and an error that InfluxDB 1.x sends with 200. Returns null for a real success.
 * The lines are not at fault and stay in the queue.
 */
export function failureOfSuccess({ status, body }: DatabaseResponse, config: InfluxConfig): Failure | null {
  const said = `${new URL(config.url).origin} answered ${status}`;
  if (isPage(body)) {
    return new Retryable(`${said} with a page, and does not say that it stored anything.`, {
      hint: "If that stays so, check whether url leads to the database itself, and not to a page for signing in.",
    });
  }
  const isObject = status !== 201 && body.trimStart().startsWith("{");
  const serverText = isObject ? errorTextIn(body) : null;
  return serverText === null ? null : new Retryable(`${said}, and refused it all the same: ${serverText}`);
}

const STORED: Verdict = { kind: "stored", tooOld: null };

export function verdictOfError(error: unknown, config: InfluxConfig, lines: number, nowMs: number): Verdict {
  if (error instanceof HttpError) {
    if (error.statusCode === 413) return { kind: "too-large" };
    if (error.statusCode === 400 && indicatesTls(error.body ?? "")) {
      return { kind: "failed", error: wantsTls(serverAt(config)) };
    }
    if (isAboutPath(error)) return { kind: "failed", error: noSuchPath(config) };
    if (error.statusCode === 400 || error.statusCode === 422) {
      return verdictOfRefusal(errorTextIn(error.body ?? "") ?? `The server answered ${error.statusCode}.`, lines);
    }
  }
  return { kind: "failed", error: failureOf(error, config, nowMs) };
}

/** True for VictoriaMetrics's 400 for an unknown path, where others respond 404. */
export function isAboutPath({ statusCode, body }: HttpError): boolean {
  return statusCode === 400 && /unsupported path requested/i.test(body ?? "");
}

/** Error for an unknown path, without the server's text, which repeats the complete request. */
function noSuchPath(config: InfluxConfig): ConfigError {
  return new ConfigError(`${new URL(config.url).origin} answered 400: it takes no points at this path.`, {
    field: "url",
    hint: "Leave the path out of url, or set it to what stands before /api/v2/write or /write there.",
  });
}

/**
 * Maps an error that concerns the complete request to a failure.
 *
 * | Response        | Meaning      | Because                                                            |
 * | --------------- | ------------ | ------------------------------------------------------------------ |
 * | 401, 403        | ConfigError  | a person must correct the token or password                        |
 * | 404             | ConfigError  | no such organisation, bucket, database, or endpoint                |
 * | 429, 503        | Throttled    | the server requests a wait                                         |
 * | 408, 425, 5xx   | Retryable    | may pass                                                           |
 * | other 3xx, 4xx  | ConfigError  | not caused by a line: must not cost a single event                 |
 * | none            | as listed in src/core/http/connection-problem.ts                                                   |
 */
export function failureOf(error: unknown, config: InfluxConfig, nowMs: number): Failure {
  if (!(error instanceof HttpError)) return failureOfConnection(error, serverAt(config));
  const { statusCode: status } = error;
  const said = `${new URL(config.url).origin} answered ${status}`;
  const serverText = errorTextIn(error.body ?? "");
  if (status === 401 || status === 403) {
    return new ConfigError(`${said}: it does not let us write${serverText === null ? "." : ` (${serverText}).`}`, {
      reason: status === 401 ? "unauthenticated" : "forbidden",
      hint: "Check token, or username and password, and their right to write.",
    });
  }
  if (status === 404) return notFound(said, serverText, config);
  if (status === 429 || status === 503) {
    const { date, "retry-after": retryAfter } = error.headers ?? {};
    const waitMs = retryAfterMs(retryAfter, nowMs, date);
    return new Throttled(`${said}: it asks us to wait.`, waitMs, {
      scope: status === 429 ? "allowance" : "everything",
    });
  }
  if (status === 408 || status === 425 || status >= 500) {
    return new Retryable(serverText === null ? `${said}.` : `${said}: ${serverText}`);
  }
  return new ConfigError(`${said} to a write${serverText === null ? "." : `: ${serverText}`}`, {
    field: "url",
    hint: "Check url and api, and what stands between.",
  });
}

/** Maps 404: the server's text tells what is missing; without it, all candidates are named. */
function notFound(said: string, serverText: string | null, config: InfluxConfig): ConfigError {
  const missing = serverText ?? "";
  if (/organi[sz]ation/i.test(missing)) {
    return new ConfigError(`${said}: ${missing}`, {
      field: "org",
      hint: "Set org to an organisation that influx org list shows.",
    });
  }
  if (/retention policy/i.test(missing)) {
    return new ConfigError(`${said}: ${missing}`, {
      field: "retention_policy",
      hint: "Create it, or leave retention_policy out for the default one.",
    });
  }
  if (config.api === "v1") {
    return new ConfigError(`${said}: ${serverText ?? `there is no database "${config.database}".`}`, {
      field: "database",
      hint: `Create it with CREATE DATABASE "${config.database}", or set create_database: true.`,
    });
  }
  if (/bucket/i.test(missing)) {
    return new ConfigError(`${said}: ${missing}`, {
      field: "bucket",
      hint: `Create it with influx bucket create --name ${config.bucket}.`,
    });
  }
  return new ConfigError(`${said}: there is no bucket "${config.bucket}", or no InfluxDB 2 API.`, {
    field: "bucket",
    hint: `Create it with influx bucket create --name ${config.bucket}; an InfluxDB 1.x needs api: v1.`,
  });
}

/** Description of the server for src/core/http/connection-problem.ts. */
export function serverAt(config: InfluxConfig): Server {
  return {
    name: new URL(config.url).origin,
    failed: "could not be reached",
    addressOption: "url",
    authorityOption: "ca_file",
    secureScheme: "https://",
    plainScheme: "http://",
  };
}

/**
 * Text of InfluxDB 1.x and 2 about points older than the retention. They check it last: everything else in the
 * request is stored.
 */
const TOO_OLD = /points (beyond|outside) retention policy/i;

/** Verdict on a refusal. `dropped=3` is the number of lines that InfluxDB 1.x and 2 did not store. */
function verdictOfRefusal(reason: string, lines: number): Verdict {
  const dropped = /\bdropped=(\d+)/.exec(reason)?.[1];
  if (TOO_OLD.test(reason)) {
    return { kind: "stored", tooOld: { points: dropped === undefined ? 1 : Number(dropped), reason } };
  }
  return { kind: "poison", reason, all: dropped !== undefined && Number(dropped) >= lines };
}

/** Message of an error body: JSON with `message` (v2, v3) or `error` (v1, v3), or plain text. */
export function errorTextIn(body: string): string | null {
  const text = body.trim();
  if (text === "") return null;
  try {
    const { message, error } = JSON.parse(text) as { message?: unknown; error?: unknown };
    const sentence = [message, error].find((part) => typeof part === "string" && part !== "");
    return typeof sentence === "string" ? sentence.slice(0, MAX_REASON) : null;
  } catch {
    return text.slice(0, MAX_REASON);
  }
}
