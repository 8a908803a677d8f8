import { ConfigError, type Failure, meaningOf, Rejected, Retryable, Throttled } from "../../src/errors.ts";
import { retryAfterMs } from "../../src/retry-after.ts";

export interface Answer {
  readonly status: number;
  readonly retryAfter: string | undefined;
}

/**
 * What an answer means; null for success. Only 2xx is success (Standard Webhooks), and nothing else is final:
 * a receiver that answers 400 or 422 today may have been repaired tomorrow, and only the delivery room knows for
 * how long the schedule of retries runs before an event becomes a dead letter.
 */
export function failureOf(answer: Answer, origin: string, nowMs: number): Failure | null {
  const { status } = answer;
  const said = `${origin} answered ${status}`;
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400) {
    return new ConfigError(`${said}: a redirect, which is never followed.`, {
      field: "url",
      hint: "Set url to the address that finally answers.",
    });
  }
  if (status === 410) {
    return new ConfigError(`${said}: the endpoint wants no more events.`, {
      reason: "gone",
      field: "url",
      hint: "Remove the sink, or set another url.",
    });
  }
  if (status === 401 || status === 403) {
    return new ConfigError(`${said}: it does not accept who we are.`, {
      reason: status === 401 ? "unauthenticated" : "forbidden",
      hint: "Check secrets and headers.",
    });
  }
  if (status === 429 || status === 502 || status === 503 || status === 504) {
    return new Throttled(`${said}: it asks us to wait.`, retryAfterMs(answer.retryAfter, nowMs), {
      scope: status === 429 ? "bucket" : "everything",
    });
  }
  if (status === 413) {
    return new Rejected(`${said}: the event is larger than it takes.`, {
      hint: "Raise the receiver's limit, or filter that kind of event.",
    });
  }
  return new Rejected(`${said}.`);
}

/** Codes of TLS that time does not heal. */
const UNTRUSTED =
  /^(CERT_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|HOSTNAME_MISMATCH|INVALID_CA|ERR_TLS_CERT_ALTNAME_INVALID)/;

/** What it means that there was no answer. */
export function meaningOfNoAnswer(error: unknown, origin: string): Failure {
  const code = codeOf(error);
  if (UNTRUSTED.test(code)) {
    return new ConfigError(`The certificate of ${origin} is not trusted (${code}).`, {
      field: "ca_file",
      hint: "Give the private certificate authority as ca_file, or have the certificate repaired.",
      cause: error,
    });
  }
  const failure = meaningOf(error);
  if (failure.cause !== error) return failure;
  return new Retryable(`${origin} did not answer (${code}).`, { cause: error });
}

/** A system's or library's code; the name of the error (such as TimeoutError) where there is none. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? code : error.name;
}
