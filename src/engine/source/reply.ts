import {
  ConfigError,
  type Failure,
  Malformed,
  NoLog,
  Rejected,
  Retryable,
  Throttled,
} from "../../core/errors/errors.ts";
import { retryAfterMs, secondsIn } from "../../core/http/retry-after.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import { type ParsedJson, parseJson } from "./json.ts";
import type { TransportReply } from "./transport.ts";

/**
 * Decides whether a reply is a response or an error, because errors also arrive with HTTP 200 (interface, Errors).
 *
 * | Seen                                             | Becomes                                        |
 * | ------------------------------------------------ | ---------------------------------------------- |
 * | 401, 403, in the body or as HTTP status          | `ConfigError` unauthenticated, forbidden       |
 * | 429                                              | `Throttled` allowance, always with a time      |
 * | 503, whatever its body                           | `Throttled` everything, null if not stated;    |
 * |                                                  | a stated time counts only in its errors        |
 * | 422 and other 4xx in the body                    | `ConfigError` validation, naming the field     |
 * | 404 in the body: of history, about a log         | `NoLog`                                        |
 * | 404 in the body: of a tag of read, write, history | `Rejected`                                    |
 * | 404 in the body: of anything else                | `ConfigError` settings                         |
 * | 5xx                                              | `Retryable`                                    |
 * | `errors` without a status that says something    | `Retryable`                                    |
 * | a redirect, HTML, broken JSON, no `data`         | `Malformed`; never "an empty list"             |
 *
 * Of several statuses the most restrictive counts, and the HTTP status is one of them. `errors` together with `data`
 * is a failure; an empty `errors` is none.
 */
export interface ReplyContext {
  /** Endpoint for the message, e.g. `tags/history`. */
  readonly endpoint: string;
  /** Meaning of a 404 inside the body. */
  readonly missing: "no-log" | "rejected" | "settings";
  /** Wall time, milliseconds since 1970, for a date without anything to compare it with. */
  readonly nowMs: number;
}

/** A reply that is an answer: the envelope, and its first characters for complaints about its inside. */
export interface DecodedReply {
  readonly envelope: Readonly<Record<string, unknown>>;
  readonly sample: string;
}

/** Throws the failure that the reply means; otherwise returns an envelope that has `data`. */
export function decodeReply(
  reply: TransportReply,
  context: ReplyContext,
  parsed: ParsedJson = parseJson(reply.body),
): DecodedReply {
  const sample = () => sampleOf(reply.body);
  if (reply.status >= 300 && reply.status < 400) throw redirected(reply, context, sample());

  if (!parsed.ok || !isRecord(parsed.value)) {
    const reason = parsed.ok ? "it is no JSON object" : parsed.reason;
    throw (
      plainFailure(reply, context) ??
      new Malformed(`The answer to ${context.endpoint} (HTTP ${reply.status}) cannot be used: ${reason}.`, sample())
    );
  }

  const envelope = parsed.value;
  const complaints = complaintsIn(envelope.errors);
  if (complaints !== null || reply.status >= 400) {
    throw statedFailure(reply, context, envelope, complaints ?? []);
  }
  if (!Object.hasOwn(envelope, "data")) {
    throw new Malformed(`The answer to ${context.endpoint} has neither data nor errors.`, sample());
  }
  return {
    envelope,
    // Made when somebody complains: looking for secrets in every reply would cost more than reading it.
    get sample() {
      return sample();
    },
  };
}

interface Complaint {
  readonly status: number | null;
  readonly message: string;
  readonly field: string | null;
  readonly meta: unknown;
}

/** The entries of `errors`; null when there is none, so that `[]` and an absent member are the same. */
function complaintsIn(errors: unknown): Complaint[] | null {
  if (errors === undefined || errors === null) return null;
  if (isRecord(errors)) {
    // The framework's own validation reply: field → messages.
    const fields = Object.entries(errors);
    if (fields.length === 0) return null;
    return fields.map(([field, told]) => ({ ...bare(told), field: textOf(field) }));
  }
  if (!Array.isArray(errors)) return [bare(errors)];
  if (errors.length === 0) return null;
  return errors.map((entry: unknown) => {
    if (!isRecord(entry)) return bare(entry);
    return {
      status: statusOf(entry.status),
      message: textOf(entry.message),
      field: typeof entry.source === "string" ? textOf(entry.source) : null,
      meta: entry.meta,
    };
  });
}

function bare(message: unknown): Complaint {
  return { status: null, message: textOf(message), field: null, meta: undefined };
}

/** A failure that the HTTP status alone says, the body being no JSON: a proxy's page, or maintenance. */
function plainFailure(reply: TransportReply, context: ReplyContext): Failure | null {
  const { status } = reply;
  const decides = status === 401 || status === 403 || status === 429 || status >= 500;
  return decides ? failureOf(status, [], undefined, reply, context) : null;
}

function statedFailure(
  reply: TransportReply,
  context: ReplyContext,
  envelope: Readonly<Record<string, unknown>>,
  complaints: readonly Complaint[],
): Failure {
  const stated = complaints.flatMap((complaint) => complaint.status ?? []);
  const statuses = reply.status >= 400 ? [...stated, reply.status] : stated;
  const decisive = statuses.reduce<number | null>(moreRestrictive, null);
  const told = complaints.length > 0 ? complaints : [bare(envelope.message)];
  // Only the service's own word says that a log is missing: a proxy's 404 must not.
  const status = decisive === 404 && !stated.includes(404) ? 0 : decisive;
  return status === 0
    ? new ConfigError(`The service does not know ${context.endpoint} (HTTP 404).`, { hint: CHECK_ADDRESS })
    : failureOf(status, told, envelope.meta, reply, context);
}

const CHECK_ADDRESS = "Check base_url, and that what was asked for still exists.";

function failureOf(
  status: number | null,
  complaints: readonly Complaint[],
  topMeta: unknown,
  reply: TransportReply,
  context: ReplyContext,
): Failure {
  const text = `${context.endpoint}: ${said(status ?? reply.status, complaints)}`;
  if (status === 401) {
    return new ConfigError(text, {
      reason: "unauthenticated",
      hint: "Put a valid token where `token` in the configuration says.",
    });
  }
  if (status === 403) {
    return new ConfigError(text, {
      reason: "forbidden",
      hint: "The token lacks the ability, the site or the permission; the token information tells which.",
    });
  }
  if (status === 429) {
    const told = complaints.map((complaint) => retryAfterIn(complaint.meta));
    const header = reply.headers["retry-after"];
    const date = retryAfterMs(header, context.nowMs, reply.headers.date);
    const waits = [...told, retryAfterIn(topMeta), header, date === null ? null : date / 1000];
    const { waitMs, saysNow } = throttleWait(waits);
    return new Throttled(text, waitMs, { saysNow });
  }
  if (status === 503) {
    const waitMs = retryAfterMs(reply.headers["retry-after"], context.nowMs, reply.headers.date);
    // The service's own has the errors array with this status (interface, Errors).
    const isOwnWord = complaints.some((complaint) => complaint.status === 503);
    return new Throttled(text, waitMs, { scope: "everything", isOwnWord });
  }
  if (status === 404) {
    if (context.missing === "no-log" && isAboutLog(complaints)) return new NoLog(text);
    if (context.missing !== "settings") return new Rejected(text);
    return new ConfigError(text, { hint: CHECK_ADDRESS });
  }
  if (status !== null && status >= 400 && status < 500 && status !== 408) {
    const field = complaints.find((complaint) => complaint.field !== null)?.field;
    return new ConfigError(text, {
      reason: "validation",
      ...(field === null || field === undefined ? {} : { field }),
    });
  }
  return new Retryable(text);
}

/**
 * True when a 404 of history means a missing log ("message advises that all tags must have logs", interface, Errors), not an unknown
 * or hidden tag. A 404 without a message means a missing log. A message that is not recognized costs more requests and has the same
 * result.
 */
function isAboutLog(complaints: readonly Complaint[]): boolean {
  const words = complaints
    .filter(({ status }) => status === null || status === 404)
    .map(({ message }) => message)
    .join(" ")
    .trim();
  return words === "" || /\blog(s|g(ed|ing|ar|er|en|ene)?)?\b|histor/i.test(words);
}

/** 401 > 403 > 429 > 503 > 422 > 404 > other 4xx > the rest. */
function moreRestrictive(most: number | null, status: number): number {
  return most === null || rank(status) < rank(most) ? status : most;
}

const RANKED = [401, 403, 429, 503, 422, 404];

function rank(status: number): number {
  const place = RANKED.indexOf(status);
  if (place >= 0) return place;
  return status >= 400 && status < 500 ? RANKED.length : RANKED.length + 1;
}

/** Every message of the service in one line. */
function said(status: number, complaints: readonly Complaint[]): string {
  const messages = complaints.map(({ status: own, message, field }) =>
    [own === null || own === status ? "" : `${own}`, field === null ? "" : `${field}:`, message]
      .filter((part) => part !== "")
      .join(" "),
  );
  const text = [...new Set(messages.filter((message) => message !== ""))].join("; ");
  return text === "" ? `the service answered ${status}.` : `${status}, ${text.slice(0, 1000)}`;
}

function redirected(reply: TransportReply, context: ReplyContext, sample: string): Malformed {
  const target = URL.parse(reply.headers.location ?? "");
  const where = target === null || target.origin === "null" ? "another address" : target.origin;
  return new Malformed(
    `The service redirects ${context.endpoint} to ${where} (HTTP ${reply.status}); that is not followed.`,
    sample,
    { hint: "If the service has moved, change base_url." },
  );
}

function retryAfterIn(meta: unknown): unknown {
  return isRecord(meta) ? meta.retry_after : undefined;
}

function statusOf(value: unknown): number | null {
  const status = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof status === "number" && Number.isInteger(status) && status >= 100 && status <= 599 ? status : null;
}

/** Whatever a message is made of, as one printable line. Secrets leave before anything is cut in half. */
export function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  return withoutCredentials(text.slice(0, 4000))
    .slice(0, 500)
    .replace(/\p{Cc}+/gu, " ")
    .toWellFormed()
    .trim();
}

function sampleOf(body: Uint8Array): string {
  return textOf(new TextDecoder("utf-8").decode(body.subarray(0, 4000)));
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** When a 429 does not say: the longest window that a limit per minute can have (interface, Limits). */
const UNSAID_SECONDS = 60;
const LONGEST_THROTTLE_SECONDS = 3_600;
/**
 * A service that counts in whole seconds, `floor(opened) + 60 - floor(now)`, names up to one second too little,
 * even 0; asking again that early would be refused again.
 */
const SHORTFALL_SECONDS = 1;

/** Wait that a 429 requests, in milliseconds, and whether the service itself stated 0 s. */
interface ThrottleWait {
  readonly waitMs: number;
  readonly saysNow: boolean;
}

/**
 * `told` are the candidates in order of trust: the body's `meta.retry_after`, then the header. The first that is a number
 * of seconds counts, rounded up and held within 1 s and 1 h.
 */
function throttleWait(told: readonly unknown[]): ThrottleWait {
  for (const candidate of told) {
    const seconds = secondsIn(candidate);
    if (seconds === null) continue;
    const waited = Math.min(Math.max(Math.ceil(seconds), 1), LONGEST_THROTTLE_SECONDS);
    return { waitMs: (waited + SHORTFALL_SECONDS) * 1000, saysNow: seconds === 0 };
  }
  return { waitMs: UNSAID_SECONDS * 1000, saysNow: false };
}
