import type { RetryAfter } from "./options.ts";

// Requests and replies of the simulated service without a socket, and the reply bodies that all endpoints share.

export interface SimRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body?: string | undefined;
  readonly receivedAtMs: number;
}

/** Faults of the connection. `handle` only states them; the server, or the test, carries them out. */
export interface Transport {
  readonly delayMs?: number;
  readonly cutAfterBytes?: number;
  /** The body is sent in pieces of this size, one every `dripEveryMs`. */
  readonly dripBytes?: number;
  readonly dripEveryMs?: number;
  readonly reset?: boolean;
}

export interface SimReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly transport?: Transport;
}

export function jsonReply(status: number, body: unknown, headers: Record<string, string> = {}): SimReply {
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}

export function htmlReply(status: number, title: string, headers: Record<string, string> = {}): SimReply {
  const body = `<!DOCTYPE html>\n<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`;
  return { status, headers: { "content-type": "text/html; charset=UTF-8", ...headers }, body };
}

export const UNEXPECTED_ERROR = "An unexpected error occurred. Please try again later.";

/** An error inside HTTP 200, as the interface demands (Errors), or with another HTTP status. */
export function errorReply(status: number, message: string, httpStatus = 200): SimReply {
  return jsonReply(httpStatus, { errors: [{ status, message, meta: [] }] });
}

export interface InvalidField {
  readonly source: string;
  readonly message: string;
}

export function invalidReply(fields: readonly InvalidField[]): SimReply {
  const errors = fields.map(({ source, message }) => ({ status: 422, message, source, meta: [] }));
  return jsonReply(200, { errors });
}

export function forbiddenReply(form: "inside" | "real"): SimReply {
  return errorReply(403, "This action is unauthorized.", form === "real" ? 403 : 200);
}

export const notFoundReply = (message = "The requested resource could not be found.") => errorReply(404, message);

export function tooManyReply(retryAfterS: number, { form, places }: RetryAfter): SimReply {
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

export interface PageRequest {
  readonly address: string;
  readonly query: URLSearchParams;
  readonly page: number;
  readonly perPage: number;
  readonly links: "drop" | "keep";
  readonly emptyMeta: "null" | "zero";
}

/** Returns one page in the list envelope and builds the records of that page only. */
export function listReply<Row>(
  rows: readonly Row[],
  record: (row: Row) => unknown,
  { address, query, page, perPage, links, emptyMeta }: PageRequest,
): SimReply {
  const lastPage = Math.max(1, Math.ceil(rows.length / perPage));
  const start = (page - 1) * perPage;
  const data = rows.slice(start, start + perPage).map(record);
  const buildPageLink = (to: number) => {
    const parameters = new URLSearchParams(links === "keep" ? query : undefined);
    parameters.set("page", String(to));
    return `${address}?${parameters.toString()}`;
  };
  const emptyRangePosition = emptyMeta === "zero" ? 0 : null;
  return jsonReply(200, {
    data,
    links: {
      first: buildPageLink(1),
      last: buildPageLink(lastPage),
      prev: page > 1 ? buildPageLink(page - 1) : null,
      next: page < lastPage ? buildPageLink(page + 1) : null,
    },
    meta: {
      current_page: page,
      from: data.length === 0 ? emptyRangePosition : start + 1,
      last_page: lastPage,
      path: address,
      per_page: perPage,
      to: data.length === 0 ? emptyRangePosition : start + data.length,
      total: rows.length,
    },
  });
}
