import { HttpError } from "@influxdata/influxdb-client";
import { ConfigError, type Failure, meaningOf, Retryable, Throttled } from "../../src/errors.ts";
import { retryAfterMs } from "../../src/retry-after.ts";
import type { InfluxConfig } from "./config.ts";
import type { Answer } from "./exchange.ts";
import type { Verdict } from "./store-lines.ts";

/** Longest reason that is kept with a dead letter, in characters. */
const MAX_REASON = 300;

/**
 * InfluxDB 3 answers 201 to a request of which it stored only a part, and says so in the body; any other answer
 * below 300 means that every line is stored.
 */
export function verdictOfAnswer(answer: Answer, lines: number): Verdict {
  const reason = answer.status === 201 ? complaintIn(answer.body) : null;
  return reason === null ? { kind: "stored" } : poison(reason, lines);
}

/** What a request that was not answered with success says about its lines. */
export function verdictOfError(error: unknown, config: InfluxConfig, lines: number, nowMs: number): Verdict {
  if (error instanceof HttpError) {
    if (error.statusCode === 413) return { kind: "too-large" };
    if (error.statusCode === 400 || error.statusCode === 422) {
      return poison(complaintIn(error.body ?? "") ?? `The server answered ${error.statusCode}.`, lines);
    }
  }
  return { kind: "failed", error: failureOf(error, config, nowMs) };
}

/**
 * What an error means that is not about single lines.
 *
 * | Answer          | Meaning      | Because                                                            |
 * | --------------- | ------------ | ------------------------------------------------------------------ |
 * | 401, 403        | ConfigError  | the token or password has to be set right                          |
 * | 404             | ConfigError  | no such database or bucket, or no such endpoint                    |
 * | 429, 503        | Throttled    | told to wait                                                       |
 * | 408, 425, 5xx   | Retryable    | may pass                                                           |
 * | other 3xx, 4xx  | ConfigError  | nothing that a line could cause: it must not cost a single event   |
 * | none            | Retryable    | network and time-outs; certificates need a person                  |
 */
export function failureOf(error: unknown, config: InfluxConfig, nowMs: number): Failure {
  const { origin } = new URL(config.url);
  if (!(error instanceof HttpError)) return meaningOfNoAnswer(error, origin);
  const { statusCode: status } = error;
  const said = `${origin} answered ${status}`;
  if (status === 401 || status === 403) {
    return new ConfigError(`${said}: it does not let us write.`, {
      reason: status === 401 ? "unauthenticated" : "forbidden",
      hint: "Check token, or username and password, and their right to write.",
    });
  }
  if (status === 404) return notFound(said, config);
  if (status === 429 || status === 503) {
    const header = error.headers?.["retry-after"];
    const waitMs = retryAfterMs(typeof header === "string" ? header : undefined, nowMs);
    return new Throttled(`${said}: it asks us to wait.`, waitMs, {
      scope: status === 429 ? "bucket" : "everything",
    });
  }
  if (status === 408 || status === 425 || status >= 500) {
    const reason = complaintIn(error.body ?? "");
    return new Retryable(reason === null ? `${said}.` : `${said}: ${reason}`);
  }
  return new ConfigError(`${said} to a write.`, {
    field: "url",
    hint: "Check url and api, and what stands between.",
  });
}

function notFound(said: string, config: InfluxConfig): ConfigError {
  if (config.api === "v1") {
    return new ConfigError(`${said}: there is no database "${config.database}".`, {
      field: "database",
      hint: `Create it with CREATE DATABASE "${config.database}", or set create_database: true.`,
    });
  }
  return new ConfigError(`${said}: there is no bucket "${config.bucket}", or no InfluxDB 2 API.`, {
    field: "bucket",
    hint: `Create it with influx bucket create --name ${config.bucket}; an InfluxDB 1.x needs api: v1.`,
  });
}

/** `dropped=3` in the words of InfluxDB 1.x and 2: how many lines of the request were not stored. */
function poison(reason: string, lines: number): Verdict {
  const dropped = /\bdropped=(\d+)/.exec(reason)?.[1];
  return { kind: "poison", reason, all: dropped !== undefined && Number(dropped) >= lines };
}

/** The sentence in an error body: JSON with `message` (v2, v3) or `error` (v1, v3), or plain text. */
function complaintIn(body: string): string | null {
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

/** Codes of TLS that time does not heal. */
const UNTRUSTED =
  /^(CERT_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|HOSTNAME_MISMATCH|INVALID_CA|ERR_TLS_CERT_ALTNAME_INVALID)/;

function meaningOfNoAnswer(error: unknown, origin: string): Failure {
  const { code, name } = error instanceof Error ? (error as NodeJS.ErrnoException) : {};
  const label = typeof code === "string" ? code : (name ?? "unknown");
  if (UNTRUSTED.test(label)) {
    return new ConfigError(`The certificate of ${origin} is not trusted (${label}).`, {
      field: "ca_file",
      hint: "Give the private certificate authority as ca_file, or have the certificate repaired.",
      cause: error,
    });
  }
  const failure = meaningOf(error);
  if (failure.cause !== error) return failure;
  return new Retryable(`${origin} did not answer (${label}).`, { cause: error });
}
