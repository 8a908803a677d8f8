import { ConfigError, type Failure, Rejected, Throttled } from "../../src/core/errors/errors.ts";
import { indicatesTls, wantsTls } from "../../src/core/http/connection-problem.ts";
import { type HttpResponse, receiverAt } from "../../src/core/http/outbound/http-end.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";

/**
 * What an answer means; null for success. Only 2xx is success (Standard Webhooks), and nothing else is final:
 * a receiver that answers 400 or 422 today may have been repaired tomorrow, and only the delivery room knows for
 * how long the schedule of retries runs before an event becomes a dead letter.
 */
export function failureOf(answer: HttpResponse, origin: string, nowMs: number): Failure | null {
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
      hint: "Set another url, or remove the sink. `plenum outbox revive` with its name tries the same one again.",
    });
  }
  if (status === 401 || status === 403) {
    return new ConfigError(`${said}: it does not accept who we are.`, {
      reason: status === 401 ? "unauthenticated" : "forbidden",
      hint: "Check secrets and headers.",
    });
  }
  if (status === 429 || status === 502 || status === 503 || status === 504) {
    const { date, "retry-after": retryAfter } = answer.headers;
    return new Throttled(`${said}: it asks us to wait.`, retryAfterMs(retryAfter, nowMs, date), {
      scope: status === 429 ? "allowance" : "everything",
    });
  }
  if (status === 413) {
    return new Rejected(`${said}: the event is larger than it takes.`, {
      hint: "Raise the receiver's limit, or filter that kind of event.",
    });
  }
  if (status === 400 && indicatesTls(answer.body)) return wantsTls(receiverAt(origin));
  return new Rejected(`${said}.`);
}
