import { HttpError } from "@influxdata/influxdb-client";
import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import {
  failureOfConnection,
  indicatesTls,
  type Server,
  wantsTls,
} from "../../src/core/http/connection-problem.ts";
import { isPage } from "../../src/core/http/html-page.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";
import type { InfluxConfig } from "./config.ts";
import type { DatabaseResponse } from "./exchange.ts";
import type { Verdict } from "./store-lines.ts";

/** Longest reason that is kept with a dead letter, in characters. */
const MAX_REASON = 300;

/**
 * InfluxDB 3 answers 201 to a request of which it stored only a part, and says so in the body; any other answer
 * below 300 means that every line is stored, unless it says otherwise.
 */
export function verdictOfResponse(response: DatabaseResponse, config: InfluxConfig, lines: number): Verdict {
  const error = failureOfSuccess(response, config);
  if (error !== null) return { kind: "failed", error };
  const reason = response.status === 201 ? errorTextIn(response.body) : null;
  return reason === null ? STORED : verdictOfRefusal(reason, lines);
}

/**
 * A success that is none, because a database that has stored everything says nothing (204): a page, of somebody on the way
 * who wants us to sign in, or of the user interface that a wrong `url` leads to; or an error, which InfluxDB 1.x may send
 * with 200. Null for a real one. No line is to blame, so none is given up for it.
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

/** What a request that was not answered with success says about its lines. */
export function verdictOfError(error: unknown, config: InfluxConfig, lines: number, nowMs: number): Verdict {
  if (error instanceof HttpError) {
    if (error.statusCode === 413) return { kind: "too-large" };
    if (error.statusCode === 400 && indicatesTls(error.body ?? "")) {
      return { kind: "failed", error: wantsTls(serverAt(config)) };
    }
    if (isAboutPath(error)) return { kind: "failed", error: noSuchPath(config) };
    if (error.statusCode === 400 || error.statusCode === 422) {
      return verdictOfRefusal(
        errorTextIn(error.body ?? "") ?? `The server answered ${error.statusCode}.`,
        lines,
      );
    }
  }
  return { kind: "failed", error: failureOf(error, config, nowMs) };
}

/** VictoriaMetrics answers 400 to a path that it does not know, where others say 404. No line is to blame. */
export function isAboutPath({ statusCode, body }: HttpError): boolean {
  return statusCode === 400 && /unsupported path requested/i.test(body ?? "");
}

/** Without the server's words, which repeat the whole request. */
function noSuchPath(config: InfluxConfig): ConfigError {
  return new ConfigError(`${new URL(config.url).origin} answered 400: it takes no points at this path.`, {
    field: "url",
    hint: "Leave the path out of url, or set it to what stands before /api/v2/write or /write there.",
  });
}

/**
 * What an error means that is not about single lines.
 *
 * | Answer          | Meaning      | Because                                                            |
 * | --------------- | ------------ | ------------------------------------------------------------------ |
 * | 401, 403        | ConfigError  | the token or password has to be set right                          |
 * | 404             | ConfigError  | no such organisation, bucket, database, or no such endpoint        |
 * | 429, 503        | Throttled    | told to wait                                                       |
 * | 408, 425, 5xx   | Retryable    | may pass                                                           |
 * | other 3xx, 4xx  | ConfigError  | nothing that a line could cause: it must not cost a single event   |
 * | none            | as listed in src/core/http/connection-problem.ts                                                   |
 */
export function failureOf(error: unknown, config: InfluxConfig, nowMs: number): Failure {
  if (!(error instanceof HttpError)) return failureOfConnection(error, serverAt(config));
  const { statusCode: status } = error;
  const said = `${new URL(config.url).origin} answered ${status}`;
  const serverText = errorTextIn(error.body ?? "");
  if (status === 401 || status === 403) {
    return new ConfigError(
      `${said}: it does not let us write${serverText === null ? "." : ` (${serverText}).`}`,
      {
        reason: status === 401 ? "unauthenticated" : "forbidden",
        hint: "Check token, or username and password, and their right to write.",
      },
    );
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

/** The server's own words say which of several things is missing; without them all are named. */
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

/** The server in the words of src/core/http/connection-problem.ts, which knows what it means that there was no answer. */
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
 * InfluxDB 1.x and 2 answer like this to points that are older than the bucket keeps. They look at it last: everything
 * else of the request is stored, and a faulty line would have been named instead.
 */
const TOO_OLD = /points (beyond|outside) retention policy/i;

/** `dropped=3` in the words of InfluxDB 1.x and 2: how many lines of the request were not stored. */
function verdictOfRefusal(reason: string, lines: number): Verdict {
  const dropped = /\bdropped=(\d+)/.exec(reason)?.[1];
  if (TOO_OLD.test(reason)) {
    return { kind: "stored", tooOld: { points: dropped === undefined ? 1 : Number(dropped), reason } };
  }
  return { kind: "poison", reason, all: dropped !== undefined && Number(dropped) >= lines };
}

/** The sentence in an error body: JSON with `message` (v2, v3) or `error` (v1, v3), or plain text. */
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
