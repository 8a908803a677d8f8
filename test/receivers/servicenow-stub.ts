import { createHash } from "node:crypto";
import type { SeenRequest, StubAnswer } from "../connectors/stub-server.ts";
import { json, startReceiverStub, type Thing } from "./receiver-server.ts";

export const SERVICENOW_USER = "plenum.integration";
export const SERVICENOW_PASSWORD = "canary-of-servicenow-!2b7e91";

export interface SnowRecord {
  readonly sys_id: string;
  readonly number: string;
  readonly fields: Record<string, string>;
  readonly notes: string[];
  readonly texts: string[];
}

export type ServiceNowEnd = Awaited<ReturnType<typeof startServiceNowEnd>>;

const TEXTS = ["short_description", "description", "close_notes"];
const LENGTHS: Readonly<Record<string, number>> = {
  short_description: 160,
  description: 4_000,
  close_notes: 4_000,
  work_notes: 4_000,
  correlation_id: 100,
};

export async function startServiceNowEnd() {
  const busy = { status: 429, headers: { "retry-after": "30", "x-ratelimit-limit": "500" } };
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;

  const end = {
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
      ...Object.keys(LENGTHS),
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
    things: (): readonly Thing[] => end.records.map(thingOf),
    clear: (): void => void end.records.splice(0),
  };

  stub.answer = (seen, response) => (seen.method === "GET" ? route(seen) : interrupt(() => route(seen), response));

  function route(seen: SeenRequest): StubAnswer {
    const { pathname, searchParams: query } = new URL(seen.url, stub.url);
    const known = Buffer.from(`${SERVICENOW_USER}:${end.password}`).toString("base64");
    if (seen.headers.authorization !== `Basic ${known}`)
      return refusal(401, "User Not Authenticated", "Required to provide Auth information");
    const [, table, id] = /^\/api\/now\/table\/([a-z_]+)(?:\/([^/]+))?$/.exec(pathname) ?? [];
    if (table === undefined) return { status: 404, body: "<html>Page not found</html>" };
    if (table !== "incident") return refusal(400, `Invalid table ${table}`, null);
    if (id === undefined) return seen.method === "POST" ? create(seen) : search(query);
    const record = end.records.find(({ sys_id }) => sys_id === id);
    if (record === undefined || !end.mayRead)
      return refusal(404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval");
    return seen.method === "PATCH" ? change(record, seen) : json(200, { result: shown(record) });
  }

  function create(seen: SeenRequest): StubAnswer {
    const number = end.records.length + 1;
    const record: SnowRecord = {
      sys_id: createHash("md5").update(`incident ${number}`).digest("hex"),
      number: `INC${String(10_000 + number).padStart(7, "0")}`,
      fields: { state: "1" },
      notes: [],
      texts: [],
    };
    const refused = write(record, seen, true);
    if (refused !== null) return refused;
    end.records.push(record);
    return json(201, { result: shown(record) });
  }

  function change(record: SnowRecord, seen: SeenRequest): StubAnswer {
    return write(record, seen, false) ?? json(200, { result: shown(record) });
  }

  function write(record: SnowRecord, seen: SeenRequest, isNew: boolean): StubAnswer | null {
    if (end.ruleRefuses) {
      return refusal(
        403,
        "Operation Failed",
        "Operation against file 'incident' was aborted by Business Rule 'Only in office hours^0a1b'.",
      );
    }
    const given = JSON.parse(seen.body.toString()) as Record<string, unknown>;
    const kept = Object.entries(given)
      .filter(([name]) => end.columns.has(name) && !end.readOnly.has(name))
      .map(([name, value]) => [name, String(value).slice(0, LENGTHS[name] ?? 40)] as const);
    const next = { ...record.fields, ...Object.fromEntries(kept) };
    const missing = [...end.mandatory].filter((name) => (next[name] ?? "") === "");
    const isAsked = (name: string) => !name.startsWith("close_") || next.state === "6";
    if (missing.some(isAsked)) {
      return refusal(
        403,
        "Operation Failed",
        `Data Policy Exception: The following fields are mandatory: ${missing.filter(isAsked).join(", ")}`,
      );
    }
    if (!isNew && isClosed(record)) return refusal(403, "Operation Failed", "ACL Exception Update Failed");
    for (const [name, value] of kept) {
      if (name === "work_notes") record.notes.push(value);
      else record.fields[name] = value;
      if (name === "work_notes" || TEXTS.includes(name)) record.texts.push(value);
    }
    return null;
  }

  function search(query: URLSearchParams): StubAnswer {
    const conditions = (query.get("sysparm_query") ?? "").split("^").filter((each) => each.includes("="));
    const found = end.records.filter((record) =>
      conditions.every((condition) => {
        const [name = "", value = ""] = condition.split("=");
        if (name === "active") return isClosed(record) === (value === "false");
        if (name === "sys_id") return record.sys_id === value;
        return !end.columns.has(name) || record.fields[name] === value;
      }),
    );
    const rows = found.slice(0, Number(query.get("sysparm_limit")));
    const result = end.mayRead ? rows.map(shown) : [];
    return json(200, { result }, { "x-total-count": String(found.length) });
  }

  function shown(record: SnowRecord) {
    const { state = "", correlation_id = "" } = record.fields;
    return {
      sys_id: record.sys_id,
      number: record.number,
      state,
      active: String(!isClosed(record)),
      ...(end.columns.has("correlation_id") ? { correlation_id } : {}),
    };
  }

  return end;
}

const isClosed = ({ fields }: SnowRecord): boolean => fields.state === "7" || fields.state === "8";

function thingOf(record: SnowRecord): Thing {
  const { fields, texts } = record;
  return { key: fields.correlation_id ?? null, isOpen: !isClosed(record) && fields.state !== "6", texts };
}

function refusal(status: number, message: string, detail: string | null): StubAnswer {
  return { status, body: JSON.stringify({ error: { message, detail }, status: "failure" }) };
}
