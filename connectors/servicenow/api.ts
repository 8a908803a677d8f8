import { z } from "zod";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import {
  createHttpClient,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { printableLine } from "../../src/core/values/printable-text.ts";
import { cutText } from "../shared/receiver/message-texts.ts";
import { createAuthorizationReader, mapTicketError } from "../shared/receiver/ticket-receiver.ts";
import type { ServiceNowConfig } from "./config.ts";

const STATUSES_WITH_ERROR_TEXT = [400, 401, 403, 404];
const MAX_ERROR_TEXT_LENGTH = 400;
const MAX_SEARCH_ROWS = 20;
const REQUESTED_RECORD_FIELDS = "sys_id,number,state,active,correlation_id";

const ErrorResponse = z.object({ error: z.object({ message: z.string().nullish(), detail: z.string().nullish() }) });

const TaskRecord = z.object({
  sys_id: z.string().regex(/^[0-9a-f]{32}$/),
  number: z.string().optional(),
  state: z.string().optional(),
  active: z.string().optional(),
  correlation_id: z.string().optional(),
});
export type TaskRecord = z.infer<typeof TaskRecord>;

export function createServiceNowTableApi(config: ServiceNowConfig, clock: Clock) {
  const baseUrl = new URL(config.url);
  const tablePath = `${baseUrl.pathname.replace(/\/+$/, "")}/api/now/table/${config.table}`;
  const client = createHttpClient({ url: baseUrl, config, clock });
  const readAuthorization = createAuthorizationReader(config, clock);

  async function callTable(request: ReceiverRequest, signal: AbortSignal): Promise<ReceiverResponse> {
    const authorizedRequest = { ...request, headers: readAuthorization(), allow: STATUSES_WITH_ERROR_TEXT };
    const response = await sendRequest(client, authorizedRequest, clock, signal);
    const errorText = formatServiceNowErrorText(response);
    if (response.status < 300) {
      if (errorText === "") return response;
      const refusalDescription = `answered ${response.status}, and refused it all the same`;
      throw new Rejected(`${client.origin} ${refusalDescription}. It said: ${errorText}`);
    }
    // A 404 without an error text does not come from ServiceNow.
    if (response.status === 404 && errorText !== "" && request.allow?.includes(404)) return response;
    throw mapServiceNowError(response, errorText, client.origin, clock.now());
  }

  async function requestTaskRecord(method: "GET" | "PATCH", id: string, json: unknown, signal: AbortSignal) {
    const path = `${tablePath}/${id}?sysparm_fields=${REQUESTED_RECORD_FIELDS}`;
    const response = await callTable({ method, path, json, allow: [404] }, signal);
    if (response.status !== 404) return parseResponse(response, z.object({ result: TaskRecord }), client.origin).result;
    // ServiceNow responds 404 for a hidden record too. This search throws if the user may not see the record.
    await searchTaskRecords(`sys_id=${id}`, signal);
    return null;
  }

  /** Returns matching records, oldest first. Throws `ConfigError` if the user may not see all of them. */
  async function searchTaskRecords(query: string, signal: AbortSignal): Promise<readonly TaskRecord[]> {
    const parameters = new URLSearchParams({
      sysparm_query: `${query}^ORDERBYsys_created_on`,
      sysparm_fields: REQUESTED_RECORD_FIELDS,
      sysparm_limit: String(MAX_SEARCH_ROWS),
    });
    const response = await callTable({ method: "GET", path: `${tablePath}?${parameters.toString()}` }, signal);
    const { result } = parseResponse(response, z.object({ result: z.array(TaskRecord) }), client.origin);
    const expectedRowCount = Math.min(Number(response.headers["x-total-count"] ?? 0), MAX_SEARCH_ROWS);
    if (result.length >= expectedRowCount) return result;
    const message = `${client.origin} has records in ${config.table} that it does not show us.`;
    const hint = "Give the user a role that may read the table, such as itil.";
    throw new ConfigError(message, { reason: "forbidden", field: "user", hint });
  }

  return {
    async createRecord(json: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<TaskRecord> {
      const path = `${tablePath}?sysparm_fields=${REQUESTED_RECORD_FIELDS}`;
      const response = await callTable({ method: "POST", path, json }, signal);
      return parseResponse(response, z.object({ result: TaskRecord }), client.origin).result;
    },
    readRecord: (id: string, signal: AbortSignal) => requestTaskRecord("GET", id, undefined, signal),
    changeRecord: (id: string, json: Readonly<Record<string, unknown>>, signal: AbortSignal) =>
      requestTaskRecord("PATCH", id, json, signal),
    search: searchTaskRecords,
    progressMs: client.progressMs,
    close: () => client.close(),
  };
}

function formatServiceNowErrorText({ json }: ReceiverResponse): string {
  const { message, detail } = ErrorResponse.safeParse(json).data?.error ?? {};
  return cutText(printableLine([message, detail].filter((text) => text).join(": ")), MAX_ERROR_TEXT_LENGTH);
}

function parseResponse<T>(response: ReceiverResponse, schema: z.ZodType<T>, origin: string): T {
  const parsedBody = schema.safeParse(response.json);
  if (parsedBody.success) return parsedBody.data;
  const hint = "Check that url leads to the instance itself, and that the instance is not asleep.";
  throw new Retryable(`${origin} answered ${response.status}, but not as ServiceNow does.`, { hint });
}

function mapServiceNowError(response: ReceiverResponse, errorText: string, origin: string, nowMs: number): Error {
  const { status } = response;
  const errorSentence = `${origin} answered ${status}. It said: ${errorText}`;
  if (errorText !== "" && status === 400)
    return new ConfigError(errorSentence, {
      reason: "validation",
      field: /table/i.test(errorText) ? "table" : "fields",
      hint: "Check the table and the fields in the options.",
    });
  // A business rule rejected only this record; the user has the right to write.
  if (status === 403 && /business rule/i.test(errorText)) return new Rejected(errorSentence);
  if (status === 403 && /data policy|mandatory/i.test(errorText)) {
    const hint = "Give the mandatory fields a value: under `fields`, or with close_code and close_notes.";
    return new ConfigError(errorSentence, { reason: "validation", field: "fields", hint });
  }
  return mapTicketError(response, errorText, origin, nowMs);
}
