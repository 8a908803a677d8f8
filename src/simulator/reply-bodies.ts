import type { RetryAfterOptions } from "./options.ts";

export interface ServiceRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body?: string | undefined;
  readonly receivedAtMs: number;
}

/** Connection faults that the server, or a test, carries out when it sends the reply. */
export interface ConnectionFaults {
  readonly delayMs?: number;
  readonly cutAfterBytes?: number;
  /** Size of the pieces in which the body is sent, one piece every `dripEveryMs`. */
  readonly dripBytes?: number;
  readonly dripEveryMs?: number;
  readonly reset?: boolean;
}

export interface ServiceReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly transport?: ConnectionFaults;
}

export function jsonReply(status: number, body: unknown, headers: Record<string, string> = {}): ServiceReply {
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}

export function htmlReply(status: number, title: string, headers: Record<string, string> = {}): ServiceReply {
  const body = `<!DOCTYPE html>\n<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`;
  return { status, headers: { "content-type": "text/html; charset=UTF-8", ...headers }, body };
}

export const UNEXPECTED_ERROR_MESSAGE = "An unexpected error occurred. Please try again later.";

/** The interface specification requires HTTP 200 also for errors. */
export function errorReply(status: number, message: string, httpStatus = 200): ServiceReply {
  return jsonReply(httpStatus, { errors: [{ status, message, meta: [] }] });
}

export interface InvalidRequestField {
  readonly source: string;
  readonly message: string;
}

export function invalidFieldsReply(fields: readonly InvalidRequestField[]): ServiceReply {
  const errors = fields.map(({ source, message }) => ({ status: 422, message, source, meta: [] }));
  return jsonReply(200, { errors });
}

export function forbiddenReply(form: "inside" | "real"): ServiceReply {
  return errorReply(403, "This action is unauthorized.", form === "real" ? 403 : 200);
}

export const notFoundReply = (message = "The requested resource could not be found.") => errorReply(404, message);

export function tooManyRequestsReply(retryAfterS: number, { form, places }: RetryAfterOptions): ServiceReply {
  const retryAfterByForm = {
    number: retryAfterS,
    string: String(retryAfterS),
    float: retryAfterS - 0.25,
    negative: -retryAfterS,
    zero: 0,
    absent: undefined,
  };
  const retryAfterValue = retryAfterByForm[form];
  const meta = retryAfterValue === undefined ? {} : { retry_after: retryAfterValue };
  const error = { status: 429, message: "Too many requests.", meta: places.includes("errors_meta") ? meta : [] };
  const body = places.includes("top_meta") ? { errors: [error], meta } : { errors: [error] };
  const sendsRetryAfterHeader = places.includes("header") && retryAfterValue !== undefined;
  return jsonReply(429, body, sendsRetryAfterHeader ? { "retry-after": String(retryAfterValue) } : {});
}
