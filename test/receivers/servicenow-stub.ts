import { createHash } from "node:crypto";
import type { SeenRequest, StubResponse } from "../connectors/stub-server.ts";
import { jsonReply, type ReceiverIncident, startReceiverStub } from "./receiver-server.ts";

export const SERVICENOW_USER = "plenum.integration";
export const SERVICENOW_PASSWORD = "canary-of-servicenow-!2b7e91";

export interface SnowRecord {
  readonly sys_id: string;
  readonly number: string;
  readonly fields: Record<string, string>;
  readonly notes: string[];
  readonly texts: string[];
}

export type ServiceNowStub = Awaited<ReturnType<typeof startServiceNowStub>>;

const TEXT_COLUMNS = ["short_description", "description", "close_notes"];
const MAX_LENGTHS: Readonly<Record<string, number>> = {
  short_description: 160,
  description: 4_000,
  close_notes: 4_000,
  work_notes: 4_000,
  correlation_id: 100,
};

export async function startServiceNowStub() {
  const busy = { status: 429, headers: { "retry-after": "30", "x-ratelimit-limit": "500" } };
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;
  const server = {
    ...common,
    url: stub.url,
    config: {
      url: stub.url,
      user: SERVICENOW_USER,
      password: secret(SERVICENOW_PASSWORD),
      close_code: "Solution provided",
      allow_networks: ["127.0.0.0/8"],
    },
    records: [] as SnowRecord[],
    seen: stub.seen,
    columns: new Set([
      ...Object.keys(MAX_LENGTHS),
      "correlation_display",
      "state",
      "close_code",
      "impact",
      "urgency",
      "assignment_group",
      "caller_id",
    ]),
    /** Fields that a data policy requires, at the latest when a record is resolved. */
    mandatory: new Set(["close_code", "close_notes"]),
    /** Fields that our user cannot write: values for them are ignored silently. */
    readOnly: new Set<string>(),
    /** A business rule aborts every change. */
    ruleRefuses: false,
    mayRead: true,
    password: SERVICENOW_PASSWORD,
    incidents: (): readonly ReceiverIncident[] => server.records.map(toReceiverIncident),
    clear: (): void => void server.records.splice(0),
  };

  stub.respond = (seen, response) => (seen.method === "GET" ? route(seen) : interrupt(() => route(seen), response));

  function route(seen: SeenRequest): StubResponse {
    const { pathname, searchParams: query } = new URL(seen.url, stub.url);
    const expectedCredentials = Buffer.from(`${SERVICENOW_USER}:${server.password}`).toString("base64");
    if (seen.headers.authorization !== `Basic ${expectedCredentials}`)
      return errorReply(401, "User Not Authenticated", "Required to provide Auth information");
    const [, table, id] = /^\/api\/now\/table\/([a-z_]+)(?:\/([^/]+))?$/.exec(pathname) ?? [];
    if (table === undefined) return { status: 404, body: "<html>Page not found</html>" };
    if (table !== "incident") return errorReply(400, `Invalid table ${table}`, null);
    if (id === undefined) return seen.method === "POST" ? create(seen) : search(query);
    const record = server.records.find(({ sys_id }) => sys_id === id);
    if (record === undefined || !server.mayRead)
      return errorReply(404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval");
    return seen.method === "PATCH" ? changeRecord(record, seen) : jsonReply(200, { result: formatRecord(record) });
  }

  function create(seen: SeenRequest): StubResponse {
    const number = server.records.length + 1;
    const record: SnowRecord = {
      sys_id: createHash("md5").update(`incident ${number}`).digest("hex"),
      number: `INC${String(10_000 + number).padStart(7, "0")}`,
      fields: { state: "1" },
      notes: [],
      texts: [],
    };
    const writeError = write(record, seen, true);
    if (writeError !== null) return writeError;
    server.records.push(record);
    return jsonReply(201, { result: formatRecord(record) });
  }

  function changeRecord(record: SnowRecord, seen: SeenRequest): StubResponse {
    return write(record, seen, false) ?? jsonReply(200, { result: formatRecord(record) });
  }

  function write(record: SnowRecord, seen: SeenRequest, isNew: boolean): StubResponse | null {
    if (server.ruleRefuses)
      return refusal("Operation against file 'incident' was aborted by Business Rule 'Only in office hours^0a1b'.");
    const givenFields = JSON.parse(seen.body.toString()) as Record<string, unknown>;
    const storedFields = Object.entries(givenFields)
      .filter(([name]) => server.columns.has(name) && !server.readOnly.has(name))
      .map(([name, value]) => [name, String(value).slice(0, MAX_LENGTHS[name] ?? 40)] as const);
    const nextFields = { ...record.fields, ...Object.fromEntries(storedFields) };
    const isRequired = (name: string) => !name.startsWith("close_") || nextFields.state === "6";
    const missingFields = [...server.mandatory].filter((name) => !nextFields[name] && isRequired(name)).join(", ");
    if (missingFields !== "")
      return refusal(`Data Policy Exception: The following fields are mandatory: ${missingFields}`);
    if (!isNew && isClosed(record)) return refusal("ACL Exception Update Failed");
    for (const [name, value] of storedFields) {
      if (name === "work_notes") record.notes.push(value);
      else record.fields[name] = value;
      if (name === "work_notes" || TEXT_COLUMNS.includes(name)) record.texts.push(value);
    }
    return null;
  }

  function search(query: URLSearchParams): StubResponse {
    const conditions = (query.get("sysparm_query") ?? "").split("^").filter((each) => each.includes("="));
    const matchingRecords = server.records.filter((record) =>
      conditions.every((condition) => {
        const [name = "", value = ""] = condition.split("=");
        if (name === "active") return isClosed(record) === (value === "false");
        if (name === "sys_id") return record.sys_id === value;
        return !server.columns.has(name) || record.fields[name] === value;
      }),
    );
    const rows = matchingRecords.slice(0, Number(query.get("sysparm_limit")));
    const result = server.mayRead ? rows.map(formatRecord) : [];
    return jsonReply(200, { result }, { "x-total-count": String(matchingRecords.length) });
  }

  function formatRecord(record: SnowRecord) {
    const { state = "", correlation_id = "" } = record.fields;
    return {
      sys_id: record.sys_id,
      number: record.number,
      state,
      active: String(!isClosed(record)),
      ...(server.columns.has("correlation_id") ? { correlation_id } : {}),
    };
  }

  return server;
}

const isClosed = ({ fields }: SnowRecord): boolean => fields.state === "7" || fields.state === "8";

function toReceiverIncident(record: SnowRecord): ReceiverIncident {
  const { fields, texts } = record;
  return { key: fields.correlation_id ?? null, isOpen: !isClosed(record) && fields.state !== "6", texts };
}

const refusal = (detail: string): StubResponse => errorReply(403, "Operation Failed", detail);

function errorReply(status: number, message: string, detail: string | null): StubResponse {
  return { status, body: JSON.stringify({ error: { message, detail }, status: "failure" }) };
}
