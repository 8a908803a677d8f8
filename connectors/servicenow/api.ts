import { z } from "zod";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { createHttpClient } from "../../src/core/http/outbound/http-end.ts";
import {
  failureOfResponse,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import { printable } from "../../src/core/values/printable.ts";
import { cut } from "../shared/receiver/text.ts";
import type { ServiceNowConfig } from "./config.ts";

/** Statuses with an error text of ServiceNow. */
const WITH_ERROR_TEXT = [400, 401, 403, 404];
/** Longest error text that is passed on, in characters. */
const MAX_ERROR_TEXT = 400;
/** More records for one question are not looked at. */
const MAX_ROWS = 20;
/** Requested fields of a record. */
const FIELDS = "sys_id,number,state,active,correlation_id";

const Refusal = z.object({
  error: z.object({ message: z.string().nullish(), detail: z.string().nullish() }),
});

const Row = z.object({
  sys_id: z.string().regex(/^[0-9a-f]{32}$/),
  number: z.string().optional(),
  state: z.string().optional(),
  active: z.string().optional(),
  correlation_id: z.string().optional(),
});
export type Row = z.infer<typeof Row>;

/** One table of one instance (Table API), with the user's name on every question. */
export interface Table {
  readonly origin: string;
  create(fields: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<Row>;
  /** Null when it is not there any more. */
  read(id: string, signal: AbortSignal): Promise<Row | null>;
  change(id: string, fields: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<Row | null>;
  /** By an encoded query, the oldest first. Throws `ConfigError` where there are records that we may not see. */
  search(query: string, signal: AbortSignal): Promise<readonly Row[]>;
  /** When the last request began, on the monotonic clock. */
  lastStepMs(): number;
  close(): Promise<void>;
}

export function createTable(config: ServiceNowConfig, clock: Clock): Table {
  const base = new URL(config.url);
  const path = `${base.pathname.replace(/\/+$/, "")}/api/now/table/${config.table}`;
  const end = createHttpClient({ url: base, config, clock });
  const authorization = authorizationOf(config, clock);

  async function call(question: ReceiverRequest, signal: AbortSignal): Promise<ReceiverResponse> {
    const headers = { authorization: authorization() };
    const said = await sendRequest(end, { ...question, headers, allow: WITH_ERROR_TEXT }, clock, signal);
    const words = errorTextOf(said);
    if (said.status < 300) {
      if (words === "") return said;
      throw new Rejected(`${end.origin} answered ${said.status}, and refused it all the same. It said: ${words}`);
    }
    // A page, rather than an error in words, is not ServiceNow's.
    if (said.status === 404 && words !== "" && question.allow?.includes(404) === true) return said;
    throw failureOf(said, words, end.origin, clock.now());
  }

  async function row(question: ReceiverRequest, signal: AbortSignal): Promise<Row | null> {
    const said = await call(question, signal);
    return said.status === 404 ? null : readAs(said, z.object({ result: Row }), end.origin).result;
  }

  /** ServiceNow reports a hidden record like a deleted one; the total count reveals it. */
  async function assertNotHidden(id: string, signal: AbortSignal): Promise<null> {
    await table.search(`sys_id=${id}`, signal);
    return null;
  }

  const table: Table = {
    origin: end.origin,
    lastStepMs: end.lastStepMs,

    async create(json, signal) {
      const said = await call({ method: "POST", path: `${path}?sysparm_fields=${FIELDS}`, json }, signal);
      return readAs(said, z.object({ result: Row }), end.origin).result;
    },

    async read(id, signal) {
      const question = {
        method: "GET",
        path: `${path}/${id}?sysparm_fields=${FIELDS}`,
        allow: [404],
      } as const;
      return (await row(question, signal)) ?? assertNotHidden(id, signal);
    },

    async change(id, json, signal) {
      const question = {
        method: "PATCH",
        path: `${path}/${id}?sysparm_fields=${FIELDS}`,
        json,
        allow: [404],
      } as const;
      return (await row(question, signal)) ?? assertNotHidden(id, signal);
    },

    async search(query, signal) {
      const parameters = new URLSearchParams({
        sysparm_query: `${query}^ORDERBYsys_created_on`,
        sysparm_fields: FIELDS,
        sysparm_limit: String(MAX_ROWS),
      });
      const said = await call({ method: "GET", path: `${path}?${parameters.toString()}` }, signal);
      const { result } = readAs(said, z.object({ result: z.array(Row) }), end.origin);
      // Hidden records are counted before they are removed from the list.
      if (result.length < Math.min(Number(said.headers["x-total-count"] ?? 0), MAX_ROWS)) throw hidden();
      return result;
    },

    close: () => end.close(),
  };

  function hidden(): ConfigError {
    return new ConfigError(`${end.origin} has records in ${config.table} that it does not show us.`, {
      reason: "forbidden",
      field: "user",
      hint: "Give the user a role that may read the table, such as itil.",
    });
  }

  return table;
}

function authorizationOf(config: ServiceNowConfig, clock: Clock): () => string {
  const { user, password, token } = config;
  if (password !== undefined) {
    const secret = cachedSecret(password, clock);
    return () => `Basic ${Buffer.from(`${user}:${secret().reveal()}`).toString("base64")}`;
  }
  if (token === undefined) throw new ConfigError("There is neither a token nor a password.", { field: "token" });
  const secret = cachedSecret(token, clock);
  return () => {
    const text = secret().reveal();
    if (/^[\x21-\x7e]+$/.test(text)) return `Bearer ${text}`;
    throw new ConfigError("A token is one line of plain ASCII characters without blanks.", {
      field: "token",
      hint: "Put nothing but the token into the file or the variable.",
    });
  };
}

/** Error text of ServiceNow on one line; empty without one. */
function errorTextOf({ json }: ReceiverResponse): string {
  const { message, detail } = Refusal.safeParse(json).data?.error ?? {};
  return cut(printable([message, detail].filter((text) => text).join(": ")), MAX_ERROR_TEXT);
}

/** Validates a response. For an invalid one the result of the request is unknown. */
function readAs<T>(said: ReceiverResponse, schema: z.ZodType<T>, origin: string): T {
  const read = schema.safeParse(said.json);
  if (read.success) return read.data;
  throw new Retryable(`${origin} answered ${said.status}, but not as ServiceNow does.`, {
    hint: "Check that url leads to the instance itself, and that the instance is not asleep.",
  });
}

function failureOf(said: ReceiverResponse, words: string, origin: string, nowMs: number): Error {
  const { status } = said;
  const sentence = `${origin} answered ${status}. It said: ${words}`;
  if (words !== "" && status === 400) {
    return new ConfigError(sentence, {
      reason: "validation",
      field: /table/i.test(words) ? "table" : "fields",
      hint: "Check the table and the fields in the options.",
    });
  }
  // A rule of the instance looked at this one record; the right to write is there.
  if (status === 403 && /business rule/i.test(words)) return new Rejected(sentence);
  if (status === 403 && /data policy|mandatory/i.test(words)) {
    return new ConfigError(sentence, {
      reason: "validation",
      field: "fields",
      hint: "Give the mandatory fields a value: under `fields`, or with close_code and close_notes.",
    });
  }
  const body = said.json === undefined ? said.body : words;
  return (
    failureOfResponse({ status, headers: said.headers, body, isCut: false }, origin, nowMs) ??
    new Retryable(`${origin} answered ${status}.`)
  );
}
