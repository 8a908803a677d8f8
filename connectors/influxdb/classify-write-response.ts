import { HttpError } from "@influxdata/influxdb-client";
import { ConfigError, type Failure, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { asksForTls, connectionFailure, needsTlsError } from "../../src/core/http/connection-problem.ts";
import { isHtmlPage } from "../../src/core/http/html-page-detection.ts";
import { describeReceiver } from "../../src/core/http/outbound/request.ts";
import { parseRetryAfterMs } from "../../src/core/http/retry-after.ts";
import type { InfluxConfig } from "./config.ts";
import type { InfluxHttpResponse } from "./http-client.ts";
import type { WriteOutcome } from "./write-lines-to-server.ts";

const MAX_ERROR_REASON_LENGTH = 300;

/** Classifies the response to a write. InfluxDB 3 responds 201 with an error text when it stored only some lines. */
export function classifyWriteResponse(response: InfluxHttpResponse, config: InfluxConfig, lines: number): WriteOutcome {
  const error = findErrorInSuccessResponse(response, config);
  if (error !== null) return { kind: "failed", error };
  const reason = response.status === 201 ? parseErrorText(response.body) : null;
  return reason === null ? { kind: "stored", droppedPoints: null } : classifyErrorText(reason, lines);
}

/** Detects HTML pages and errors (InfluxDB 1.x) in responses with status 200; null for a real success. */
export function findErrorInSuccessResponse({ status, body }: InfluxHttpResponse, config: InfluxConfig): Failure | null {
  const summary = `${new URL(config.url).origin} answered ${status}`;
  if (isHtmlPage(body)) {
    const hint = "If that stays so, check whether url leads to the database itself, and not to a page for signing in.";
    return new Retryable(`${summary} with a page, and does not say that it stored anything.`, { hint });
  }
  const errorText = status !== 201 && body.trimStart().startsWith("{") ? parseErrorText(body) : null;
  return errorText === null ? null : new Retryable(`${summary}, and refused it all the same: ${errorText}`);
}

export function classifyWriteError(error: unknown, config: InfluxConfig, lines: number, nowMs: number): WriteOutcome {
  const { statusCode: status, body = "" } = error instanceof HttpError ? error : {};
  if (status === 413) return { kind: "too-large" };
  const isLineError = status === 422 || (status === 400 && !asksForTls(body) && !isWrongPathError(error as HttpError));
  if (!isLineError) return { kind: "failed", error: mapWriteError(error, config, nowMs) };
  return classifyErrorText(parseErrorText(body) ?? `The server answered ${status}.`, lines);
}

/** Detects a wrong path at VictoriaMetrics, which responds 400; other servers respond 404. */
export function isWrongPathError({ statusCode, body }: HttpError): boolean {
  return statusCode === 400 && /unsupported path requested/i.test(body ?? "");
}

/** Maps the error of a write that failed as a whole. An unknown status is a ConfigError, which drops no event. */
export function mapWriteError(error: unknown, config: InfluxConfig, nowMs: number): Failure {
  const { origin } = new URL(config.url);
  if (!(error instanceof HttpError)) return connectionFailure(error, describeReceiver(origin));
  const { body = "", headers = {}, statusCode: status } = error;
  if (status === 400 && asksForTls(body)) return needsTlsError(describeReceiver(origin));
  const summary = `${origin} answered ${status}`;
  if (isWrongPathError(error)) {
    const hint = "Leave the path out of url, or set it to what stands before /api/v2/write or /write there.";
    return new ConfigError(`${summary}: it takes no points at this path.`, { field: "url", hint });
  }
  const errorText = parseErrorText(body);
  if (status === 401 || status === 403) {
    const message = `${summary}: it does not let us write${errorText === null ? "." : ` (${errorText}).`}`;
    const hint = "Check token, or username and password, and their right to write.";
    return new ConfigError(message, { reason: status === 401 ? "unauthenticated" : "forbidden", hint });
  }
  if (status === 404) {
    const [field, hint, message = errorText] = describeMissingInfluxObject(errorText ?? "", config);
    return new ConfigError(`${summary}: ${message}`, { field, hint });
  }
  if (status === 429 || status === 503) {
    const waitMs = parseRetryAfterMs(headers["retry-after"], nowMs, headers.date);
    const throttleScope = status === 429 ? "allowance" : "everything";
    return new Throttled(`${summary}: it asks us to wait.`, waitMs, { scope: throttleScope });
  }
  if (status === 408 || status === 425 || status >= 500)
    return new Retryable(errorText === null ? `${summary}.` : `${summary}: ${errorText}`);
  const hint = "Check url and api, and what stands between.";
  return new ConfigError(`${summary} to a write${errorText === null ? "." : `: ${errorText}`}`, { field: "url", hint });
}

/** Describes the missing bucket or database after status 404. */
function describeMissingInfluxObject(
  errorText: string,
  { api, bucket, database }: InfluxConfig,
): readonly [field: string, hint: string, message?: string] {
  if (/organi[sz]ation/i.test(errorText)) return ["org", "Set org to an organisation that influx org list shows."];
  if (/retention policy/i.test(errorText))
    return ["retention_policy", "Create it, or leave retention_policy out for the default one."];
  if (api === "v1") {
    const hint = `Create it with CREATE DATABASE "${database}", or set create_database: true.`;
    return errorText === "" ? ["database", hint, `there is no database "${database}".`] : ["database", hint];
  }
  const creationHint = `Create it with influx bucket create --name ${bucket}`;
  if (/bucket/i.test(errorText)) return ["bucket", `${creationHint}.`];
  const message = `there is no bucket "${bucket}", or no InfluxDB 2 API.`;
  return ["bucket", `${creationHint}; an InfluxDB 1.x needs api: v1.`, message];
}

/** Error text for points beyond the retention. InfluxDB 1.x and 2 store all other points of the request. */
const POINTS_TOO_OLD_PATTERN = /points (beyond|outside) retention policy/i;

/** Classifies an error text. `dropped=3` means that InfluxDB 1.x or 2 stored all lines except three. */
function classifyErrorText(reason: string, lineCount: number): WriteOutcome {
  const droppedCount = /\bdropped=(\d+)/.exec(reason)?.[1];
  if (POINTS_TOO_OLD_PATTERN.test(reason))
    return { kind: "stored", droppedPoints: { points: droppedCount === undefined ? 1 : Number(droppedCount), reason } };
  return { kind: "poison", reason, refusesAllLines: droppedCount !== undefined && Number(droppedCount) >= lineCount };
}

export function parseErrorText(body: string): string | null {
  const trimmedResponseBody = body.trim();
  if (trimmedResponseBody === "") return null;
  try {
    const { message, error } = JSON.parse(trimmedResponseBody) as { message?: unknown; error?: unknown };
    const reason = [message, error].find((value) => typeof value === "string" && value !== "");
    return typeof reason === "string" ? reason.slice(0, MAX_ERROR_REASON_LENGTH) : null;
  } catch {
    return trimmedResponseBody.slice(0, MAX_ERROR_REASON_LENGTH);
  }
}
