import { z } from "zod";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import {
  createHttpClient,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { printable } from "../../src/core/values/printable.ts";
import { cut } from "../shared/receiver/text.ts";
import { authorizationOf, failureWithText } from "../shared/receiver/ticket.ts";
import type { ServiceNowConfig } from "./config.ts";

const WITH_ERROR_TEXT = [400, 401, 403, 404];
const MAX_ERROR_TEXT = 400;
const MAX_ROWS = 20;
const FIELDS = "sys_id,number,state,active,correlation_id";

const Refusal = z.object({ error: z.object({ message: z.string().nullish(), detail: z.string().nullish() }) });

const Row = z.object({
  sys_id: z.string().regex(/^[0-9a-f]{32}$/),
  number: z.string().optional(),
  state: z.string().optional(),
  active: z.string().optional(),
  correlation_id: z.string().optional(),
});
export type Row = z.infer<typeof Row>;

export function createTable(config: ServiceNowConfig, clock: Clock) {
  const base = new URL(config.url);
  const path = `${base.pathname.replace(/\/+$/, "")}/api/now/table/${config.table}`;
  const end = createHttpClient({ url: base, config, clock });
  const authorization = authorizationOf(config, clock);

  async function call(question: ReceiverRequest, signal: AbortSignal): Promise<ReceiverResponse> {
    const sent = { ...question, headers: authorization(), allow: WITH_ERROR_TEXT };
    const response = await sendRequest(end, sent, clock, signal);
    const errorText = errorTextOf(response);
    if (response.status < 300) {
      if (errorText === "") return response;
      throw new Rejected(
        `${end.origin} answered ${response.status}, and refused it all the same. It said: ${errorText}`,
      );
    }
    // A 404 without an error text does not come from ServiceNow.
    if (response.status === 404 && errorText !== "" && question.allow?.includes(404)) return response;
    throw failureOf(response, errorText, end.origin, clock.now());
  }

  async function callForRow(
    method: "GET" | "PATCH",
    id: string,
    json: unknown,
    signal: AbortSignal,
  ): Promise<Row | null> {
    const response = await call({ method, path: `${path}/${id}?sysparm_fields=${FIELDS}`, json, allow: [404] }, signal);
    if (response.status !== 404) return readAs(response, z.object({ result: Row }), end.origin).result;
    // ServiceNow reports a hidden record like a deleted one; the total count of a search reveals it.
    await search(`sys_id=${id}`, signal);
    return null;
  }

  /** Returns the oldest first. Throws `ConfigError` when the user may not see some records of the encoded query. */
  async function search(query: string, signal: AbortSignal): Promise<readonly Row[]> {
    const parameters = new URLSearchParams({
      sysparm_query: `${query}^ORDERBYsys_created_on`,
      sysparm_fields: FIELDS,
      sysparm_limit: String(MAX_ROWS),
    });
    const response = await call({ method: "GET", path: `${path}?${parameters.toString()}` }, signal);
    const { result } = readAs(response, z.object({ result: z.array(Row) }), end.origin);
    const count = Math.min(Number(response.headers["x-total-count"] ?? 0), MAX_ROWS);
    if (result.length >= count) return result;
    const message = `${end.origin} has records in ${config.table} that it does not show us.`;
    const hint = "Give the user a role that may read the table, such as itil.";
    throw new ConfigError(message, { reason: "forbidden", field: "user", hint });
  }

  return {
    async create(json: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<Row> {
      const response = await call({ method: "POST", path: `${path}?sysparm_fields=${FIELDS}`, json }, signal);
      return readAs(response, z.object({ result: Row }), end.origin).result;
    },
    read: (id: string, signal: AbortSignal) => callForRow("GET", id, undefined, signal),
    change: (id: string, json: Readonly<Record<string, unknown>>, signal: AbortSignal) =>
      callForRow("PATCH", id, json, signal),
    search,
    progressMs: end.progressMs,
    close: () => end.close(),
  };
}

function errorTextOf({ json }: ReceiverResponse): string {
  const { message, detail } = Refusal.safeParse(json).data?.error ?? {};
  return cut(printable([message, detail].filter((text) => text).join(": ")), MAX_ERROR_TEXT);
}

/** Throws for an invalid response, after which the result of the request is unknown. */
function readAs<T>(response: ReceiverResponse, schema: z.ZodType<T>, origin: string): T {
  const read = schema.safeParse(response.json);
  if (read.success) return read.data;
  const hint = "Check that url leads to the instance itself, and that the instance is not asleep.";
  throw new Retryable(`${origin} answered ${response.status}, but not as ServiceNow does.`, { hint });
}

function failureOf(response: ReceiverResponse, errorText: string, origin: string, nowMs: number): Error {
  const { status } = response;
  const sentence = `${origin} answered ${status}. It said: ${errorText}`;
  if (errorText !== "" && status === 400) {
    return new ConfigError(sentence, {
      reason: "validation",
      field: /table/i.test(errorText) ? "table" : "fields",
      hint: "Check the table and the fields in the options.",
    });
  }
  // A rule of the instance rejected this one record; the right to write exists.
  if (status === 403 && /business rule/i.test(errorText)) return new Rejected(sentence);
  if (status === 403 && /data policy|mandatory/i.test(errorText)) {
    const hint = "Give the mandatory fields a value: under `fields`, or with close_code and close_notes.";
    return new ConfigError(sentence, { reason: "validation", field: "fields", hint });
  }
  return failureWithText(response, errorText, origin, nowMs);
}
