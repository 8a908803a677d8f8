import { jsonReply, type SimReply } from "./exchange.ts";
import type { RetryAfter } from "./limit-options.ts";

export interface ErrorEntry {
  readonly status: number;
  readonly message: string;
  readonly source?: string;
  readonly meta?: unknown;
}

/** Errors come with HTTP status 200; only 429 and 503 carry the real one (interface, Errors). */
function errorsReply(errors: readonly ErrorEntry[], httpStatus = 200): SimReply {
  return jsonReply(httpStatus, { errors });
}

export function errorReply(status: number, message: string, httpStatus = 200): SimReply {
  return errorsReply([{ status, message, meta: [] }], httpStatus);
}

export function invalidReply(
  problems: readonly { readonly source: string; readonly message: string }[],
): SimReply {
  return errorsReply(problems.map(({ source, message }) => ({ status: 422, message, source, meta: [] })));
}

export function forbiddenReply(form: "inside" | "real", message = "This action is unauthorized."): SimReply {
  return errorReply(403, message, form === "real" ? 403 : 200);
}

export function notFoundReply(message = "The requested resource could not be found."): SimReply {
  return errorReply(404, message);
}

export function tooManyReply(retryAfterS: number, setting: RetryAfter): SimReply {
  const wait = waitIn(setting.form, retryAfterS);
  const meta = wait === undefined ? {} : { retry_after: wait };
  const error = {
    status: 429,
    message: "Too many requests.",
    meta: setting.places.includes("errors_meta") ? meta : [],
  };
  const body = setting.places.includes("top_meta") ? { errors: [error], meta } : { errors: [error] };
  const header: Record<string, string> =
    setting.places.includes("header") && wait !== undefined ? { "retry-after": String(wait) } : {};
  return jsonReply(429, body, header);
}

function waitIn(form: RetryAfter["form"], seconds: number): number | string | undefined {
  switch (form) {
    case "number":
      return seconds;
    case "string":
      return String(seconds);
    case "float":
      return seconds - 0.25;
    case "negative":
      return -seconds;
    case "zero":
      return 0;
    case "absent":
      return undefined;
  }
}

export interface ListSetting {
  /** Origin and path of the list, without query. */
  readonly address: string;
  readonly query: URLSearchParams;
  readonly page: number;
  readonly perPage: number;
  readonly links: "drop" | "keep";
  readonly emptyMeta: "null" | "zero";
}

/** Cuts one page out of all records and wraps it into the list envelope. Records are built for that page only. */
export function listReply<T>(
  rows: readonly T[],
  record: (row: T) => unknown,
  setting: ListSetting,
): SimReply {
  const { address, page, perPage } = setting;
  const lastPage = Math.max(1, Math.ceil(rows.length / perPage));
  const start = (page - 1) * perPage;
  const data = rows.slice(start, start + perPage).map(record);
  const link = (to: number) => {
    const query = new URLSearchParams(setting.links === "keep" ? setting.query : undefined);
    query.set("page", String(to));
    return `${address}?${query.toString()}`;
  };
  const nothing = setting.emptyMeta === "zero" ? 0 : null;
  return jsonReply(200, {
    data,
    links: {
      first: link(1),
      last: link(lastPage),
      prev: page > 1 ? link(page - 1) : null,
      next: page < lastPage ? link(page + 1) : null,
    },
    meta: {
      current_page: page,
      from: data.length === 0 ? nothing : start + 1,
      last_page: lastPage,
      path: address,
      per_page: perPage,
      to: data.length === 0 ? nothing : start + data.length,
      total: rows.length,
    },
  });
}
