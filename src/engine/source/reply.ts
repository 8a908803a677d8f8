import {
  ConfigError,
  type Failure,
  Malformed,
  NoTagLog,
  Rejected,
  Retryable,
  Throttled,
} from "../../core/errors/errors.ts";
import { parseHeaderSeconds, parseRetryAfterMs } from "../../core/http/retry-after.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import type { TransportReply } from "./transport.ts";

/** Result of parsing untrusted JSON: depth and numbers are limited, outermost keys unique, ids beyond 2^53 are text. */
export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly reason: string };

const JSON_DEPTH_MAX = 32;
export const MAX_JSON_NUMBER_LENGTH = 400;

export function parseJson(bytes: Uint8Array, outerDepth = 0): ParsedJson {
  let bodyText: string;
  try {
    bodyText = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { ok: false, reason: "it is not valid UTF-8" };
  }
  const unsafeIdRanges: NumberTextRange[] = [];
  const jsonProblem = findJsonProblem(bodyText, unsafeIdRanges, outerDepth);
  if (jsonProblem !== null) return { ok: false, reason: jsonProblem };
  try {
    return { ok: true, value: JSON.parse(quoteUnsafeIds(bodyText, unsafeIdRanges)) };
  } catch {
    return { ok: false, reason: "it is not JSON" };
  }
}

interface NumberTextRange {
  readonly startIndex: number;
  readonly endIndex: number;
}

const UNSAFE_NUMBER_DIGITS_MIN = 16;
const ID_KEY_PATTERN = /"id"\s*:\s*$/;
const ID_KEY_LENGTH_MAX = 40;

/** Quotes ids above 2^53, because as numbers two of them could become equal. */
function quoteUnsafeIds(text: string, idRanges: readonly NumberTextRange[]): string {
  if (idRanges.length === 0) return text;
  const jsonTextParts: string[] = [];
  let copiedEndIndex = 0;
  for (const { startIndex, endIndex } of idRanges) {
    jsonTextParts.push(text.slice(copiedEndIndex, startIndex), `"${text.slice(startIndex, endIndex)}"`);
    copiedEndIndex = endIndex;
  }
  jsonTextParts.push(text.slice(copiedEndIndex));
  return jsonTextParts.join("");
}

function isUnsafeNumericId(text: string, { startIndex, endIndex }: NumberTextRange): boolean {
  const numberDigits = text.slice(startIndex, endIndex);
  if (!/^[1-9]\d*$/.test(numberDigits) || Number.isSafeInteger(Number(numberDigits))) return false;
  return ID_KEY_PATTERN.test(text.slice(Math.max(0, startIndex - ID_KEY_LENGTH_MAX), startIndex));
}

/** Returns why a JSON text must not be parsed, or null; collects ids beyond 2^53 in `unsafeIdRanges`. */
function findJsonProblem(text: string, unsafeIdRanges: NumberTextRange[], outerDepth: number): string | null {
  const outermostJsonKeys = new Set<string>();
  let nestingDepth = outerDepth;
  for (let charIndex = 0; charIndex < text.length; charIndex++) {
    const charCode = text.charCodeAt(charIndex);
    if (charCode === QUOTE_CODE) {
      const end = findJsonStringEnd(text, charIndex);
      if (nestingDepth === 1 && nextVisibleCharCode(text, end + 1) === COLON_CODE) {
        const key = text.slice(charIndex, end + 1);
        // Reject escapes in the outermost keys: no serialiser writes them, and they could hide a duplicate key.
        if (outermostJsonKeys.has(key) || key.includes("\\")) return `its key ${key.slice(0, 40)} is ambiguous`;
        outermostJsonKeys.add(key);
      }
      charIndex = end;
    } else if (isOpeningBracket(charCode)) {
      nestingDepth++;
      if (nestingDepth > JSON_DEPTH_MAX) return `it is nested deeper than ${JSON_DEPTH_MAX} levels`;
    } else if (isClosingBracket(charCode)) {
      nestingDepth--;
    } else if (isDigit(charCode)) {
      const numberStart = charIndex;
      while (isNumberCharacter(text.charCodeAt(charIndex + 1))) charIndex++;
      if (charIndex - numberStart > MAX_JSON_NUMBER_LENGTH) return "it contains an absurdly long number";
      if (charIndex - numberStart + 1 < UNSAFE_NUMBER_DIGITS_MIN) continue;
      const numberRange = { startIndex: numberStart, endIndex: charIndex + 1 };
      if (isUnsafeNumericId(text, numberRange)) unsafeIdRanges.push(numberRange);
    }
  }
  return null;
}

function findJsonStringEnd(text: string, openingQuoteIndex: number): number {
  let end = text.indexOf('"', openingQuoteIndex + 1);
  while (end !== -1 && isQuoteEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end === -1 ? text.length : end;
}

function isQuoteEscaped(text: string, quoteIndex: number): boolean {
  let charIndex = quoteIndex - 1;
  while (text.charCodeAt(charIndex) === BACKSLASH_CODE) charIndex--;
  return (quoteIndex - charIndex) % 2 === 0;
}

function nextVisibleCharCode(text: string, startIndex: number): number {
  let charIndex = startIndex;
  while (text.charCodeAt(charIndex) <= 32) charIndex++;
  return text.charCodeAt(charIndex);
}

export const QUOTE_CODE = 34;
export const COLON_CODE = 58;
const BACKSLASH_CODE = 92;
const isOpeningBracket = (code: number) => code === 91 || code === 123;
const isClosingBracket = (code: number) => code === 93 || code === 125;
export const isDigit = (code: number) => code >= 48 && code <= 57;
const isNumberCharacter = (code: number) =>
  isDigit(code) || code === 43 || code === 45 || code === 46 || code === 69 || code === 101;

export interface ReplyContext {
  readonly endpoint: string;
  readonly meaningOf404: "no-log" | "rejected" | "settings";
  readonly nowMs: number;
}

export interface DecodedReply {
  readonly envelope: Readonly<Record<string, unknown>>;
  readonly sample: string;
}

/**
 * Returns an envelope that has `data`, or throws the failure; errors also arrive with HTTP 200 (interface, Errors).
 * | 401, 403; 422 and other 4xx           | `ConfigError`                                      |
 * | 429; 503                              | `Throttled`, scope `allowance`; scope `everything` |
 * | 404 in the body                       | history: `NoTagLog`, tag: `Rejected`, else config  |
 * | 5xx, `errors` without a status        | `Retryable`                                        |
 * | redirect, HTML, broken JSON, no data  | `Malformed`, never an empty list                   |
 * The most restrictive of several statuses counts. `errors` with `data` is a failure; empty `errors` are no failure.
 */
export function decodeReply(
  reply: TransportReply,
  context: ReplyContext,
  parsed: ParsedJson = parseJson(reply.body),
): DecodedReply {
  const bodySample = () => printableText(new TextDecoder("utf-8").decode(reply.body.subarray(0, 4000)));
  const { status } = reply;
  if (status >= 300 && status < 400) throw createRedirectFailure(reply, context, bodySample());
  if (!parsed.ok || !isRecord(parsed.value)) {
    // A reply without JSON may come from a proxy: use its status only if it concerns the whole service.
    if (status === 401 || status === 403 || status === 429 || status >= 500)
      throw buildServiceFailure(status, [], undefined, reply, context);
    const unusableReplyReason = parsed.ok ? "it is no JSON object" : parsed.reason;
    const message = `The response to ${context.endpoint} (HTTP ${status}) cannot be used: ${unusableReplyReason}.`;
    throw new Malformed(message, bodySample());
  }

  const replyEnvelope = parsed.value;
  const errors = parseServiceErrors(replyEnvelope.errors);
  if (errors.length > 0 || status >= 400) throw createFailureFromErrors(reply, context, replyEnvelope, errors);
  if (!Object.hasOwn(replyEnvelope, "data"))
    throw new Malformed(`The response to ${context.endpoint} has neither data nor errors.`, bodySample());
  return {
    envelope: replyEnvelope,
    // The sample is computed on demand, because masking the secrets of every reply would cost more than parsing it.
    get sample() {
      return bodySample();
    },
  };
}

interface ServiceError {
  readonly status: number | null;
  readonly message: string;
  readonly field: string | null;
  readonly meta: unknown;
}

function parseServiceErrors(errors: unknown): ServiceError[] {
  if (errors === undefined || errors === null) return [];
  if (isRecord(errors)) {
    // Laravel states validation errors as an object of messages by field.
    return Object.entries(errors).map(([field, messages]) => ({
      ...toServiceError(messages),
      field: printableText(field),
    }));
  }
  if (!Array.isArray(errors)) return [toServiceError(errors)];
  return errors.map((entry: unknown) => {
    if (!isRecord(entry)) return toServiceError(entry);
    const field = typeof entry.source === "string" ? printableText(entry.source) : null;
    return { status: parseHttpStatus(entry.status), message: printableText(entry.message), field, meta: entry.meta };
  });
}

function toServiceError(message: unknown): ServiceError {
  return { status: null, message: printableText(message), field: null, meta: undefined };
}

function createFailureFromErrors(
  reply: TransportReply,
  context: ReplyContext,
  envelope: Readonly<Record<string, unknown>>,
  errors: readonly ServiceError[],
): Failure {
  const statusesOfErrors = errors.flatMap(({ status }) => status ?? []);
  const allFailureStatuses = reply.status >= 400 ? [...statusesOfErrors, reply.status] : statusesOfErrors;
  const [status = null] = allFailureStatuses.toSorted((a, b) => httpStatusRank(a) - httpStatusRank(b));
  if (status === 404 && !statusesOfErrors.includes(404)) {
    // A 404 without an error record comes from a proxy. It does not mean that the service logs no history of the tag.
    const message = `The service does not know ${context.endpoint} (HTTP 404).`;
    return new ConfigError(message, { hint: CHECK_BASE_URL_HINT });
  }
  return buildServiceFailure(
    status,
    errors.length > 0 ? errors : [toServiceError(envelope.message)],
    envelope.meta,
    reply,
    context,
  );
}

const CHECK_BASE_URL_HINT = "Check base_url, and that the requested object still exists.";

function buildServiceFailure(
  status: number | null,
  errors: readonly ServiceError[],
  meta: unknown,
  { headers, status: httpStatus }: TransportReply,
  context: ReplyContext,
): Failure {
  const message = `${context.endpoint}: ${describeServiceErrors(status ?? httpStatus, errors)}`;
  const retryAfterHeaderMs = parseRetryAfterMs(headers["retry-after"], context.nowMs, headers.date);
  switch (status) {
    case 401: {
      const hint = "Put a valid token where `token` in the configuration says.";
      return new ConfigError(message, { reason: "unauthenticated", hint });
    }
    case 403: {
      const hint = "The token lacks the ability, the site or the permission; the token information tells which.";
      return new ConfigError(message, { reason: "forbidden", hint });
    }
    case 429: {
      const statedWaits = [...errors.map((error) => error.meta), meta].map(
        (meta) => isRecord(meta) && meta.retry_after,
      );
      const retryAfterHeaderSeconds = retryAfterHeaderMs === null ? null : retryAfterHeaderMs / 1000;
      const { waitMs, noWait } = parseThrottleWait([...statedWaits, headers["retry-after"], retryAfterHeaderSeconds]);
      return new Throttled(message, waitMs, { demandsZeroWait: noWait });
    }
    case 503: {
      // The service's own 503 has an error with this status (interface, Errors).
      const isServiceUnavailable = errors.some((error) => error.status === 503);
      return new Throttled(message, retryAfterHeaderMs, { scope: "everything", isFromServer: isServiceUnavailable });
    }
    case 404:
      if (context.meaningOf404 === "no-log" && areErrorsAboutTagLog(errors)) return new NoTagLog(message);
      if (context.meaningOf404 !== "settings") return new Rejected(message);
      return new ConfigError(message, { hint: CHECK_BASE_URL_HINT });
  }
  if (status === null || status < 400 || status >= 500 || status === 408) return new Retryable(message);
  const field = errors.find((error) => error.field !== null)?.field ?? undefined;
  return new ConfigError(message, { reason: "validation", ...(field === undefined ? {} : { field }) });
}

/** True if a 404 for history means that a tag has no log: no message, or one on logs ("all tags must have logs"). */
function areErrorsAboutTagLog(errors: readonly ServiceError[]): boolean {
  const joinedMessages = errors
    .filter(({ status }) => status === null || status === 404)
    .map(({ message }) => message)
    .join(" ")
    .trim();
  return joinedMessages === "" || /\blog(s|g(ed|ing|ar|er|en|ene)?)?\b|histor/i.test(joinedMessages);
}

function httpStatusRank(status: number): number {
  const statusIndex = HTTP_STATUSES_BY_RANK.indexOf(status);
  if (statusIndex >= 0) return statusIndex;
  return status >= 400 && status < 500 ? HTTP_STATUSES_BY_RANK.length : HTTP_STATUSES_BY_RANK.length + 1;
}

const HTTP_STATUSES_BY_RANK = [401, 403, 429, 503, 422, 404];

function describeServiceErrors(status: number, errors: readonly ServiceError[]): string {
  const errorMessages = errors.map(({ status: errorStatus, message, field }) =>
    [errorStatus === null || errorStatus === status ? "" : `${errorStatus}`, field === null ? "" : `${field}:`, message]
      .filter((messagePart) => messagePart !== "")
      .join(" "),
  );
  const joinedMessages = [...new Set(errorMessages.filter((message) => message !== ""))].join("; ");
  return joinedMessages === "" ? `the service answered ${status}.` : `${status}, ${joinedMessages.slice(0, 1000)}`;
}

function createRedirectFailure(reply: TransportReply, context: ReplyContext, sample: string): Malformed {
  const redirectUrl = URL.parse(reply.headers.location ?? "");
  const redirectOrigin = redirectUrl === null || redirectUrl.origin === "null" ? "another address" : redirectUrl.origin;
  return new Malformed(
    `The service redirects ${context.endpoint} to ${redirectOrigin} (HTTP ${reply.status}); that is not followed.`,
    sample,
    { hint: "If the service has moved, change base_url." },
  );
}

function parseHttpStatus(value: unknown): number | null {
  const status = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof status === "number" && Number.isInteger(status) && status >= 100 && status <= 599 ? status : null;
}

export function printableText(value: unknown): string {
  const rawValueText = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  return maskCredentials(rawValueText.slice(0, 4000))
    .slice(0, 500)
    .replace(/\p{Cc}+/gu, " ")
    .toWellFormed()
    .trim();
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const DEFAULT_THROTTLE_WAIT_SECONDS = 60;
const THROTTLE_WAIT_SECONDS_MAX = 3_600;
/** Added to the stated wait: a service that rounds down to whole seconds states up to 1 s too little. */
const THROTTLE_WAIT_ROUNDING_SECONDS = 1;

function parseThrottleWait(candidates: readonly unknown[]) {
  const statedWaitSeconds = candidates.map(parseHeaderSeconds).find((seconds) => seconds !== null);
  if (statedWaitSeconds === undefined) return { waitMs: DEFAULT_THROTTLE_WAIT_SECONDS * 1000, noWait: false };
  const throttleWaitSeconds = Math.min(Math.max(Math.ceil(statedWaitSeconds), 1), THROTTLE_WAIT_SECONDS_MAX);
  return { waitMs: (throttleWaitSeconds + THROTTLE_WAIT_ROUNDING_SECONDS) * 1000, noWait: statedWaitSeconds === 0 };
}
