import { createHash } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Seen, type StubAnswer, startStub } from "../connectors/stub-server.ts";
import { temporaryFolder } from "../real-servers.ts";
import { createInterruptions, type ReceiverFarEnd, type Thing } from "./far-end.ts";

export const SERVICENOW_USER = "plenum.integration";
export const SERVICENOW_PASSWORD = "canary-of-servicenow-!2b7e91";

export interface SnowRecord {
  readonly sys_id: string;
  readonly number: string;
  readonly fields: Record<string, string>;
  /** The journal of work notes. */
  readonly notes: string[];
  /** Every short_description, description and close_notes that it ever had, and every note. */
  readonly texts: string[];
}

/** One table of an instance, as the Table API shows it. */
export interface ServiceNowEnd extends ReceiverFarEnd {
  readonly url: string;
  readonly records: SnowRecord[];
  readonly seen: readonly Seen[];
  /** Fields that the table has; another is ignored without a word, in a record as in a query. */
  readonly columns: Set<string>;
  /** Fields that a data policy asks for, at the latest when a record is resolved. */
  readonly mandatory: Set<string>;
  /** Fields that our user may not write: what is sent is ignored without a word. */
  readonly readOnly: Set<string>;
  /** A business rule aborts every change. */
  ruleRefuses: boolean;
  /** Whether our user may read the records. */
  mayRead: boolean;
  password: string;
  /** Answers in place of the instance where it returns something. */
  instead: (seen: Seen) => StubAnswer | null;
}

const TEXTS = ["short_description", "description", "close_notes"];
/** Longer texts are cut off without a word. */
const LENGTHS: Readonly<Record<string, number>> = {
  short_description: 160,
  description: 4_000,
  close_notes: 4_000,
  work_notes: 4_000,
  correlation_id: 100,
};

export async function startServiceNowEnd(): Promise<ServiceNowEnd> {
  const stub = await startStub();
  const folder = temporaryFolder("plenum-servicenow");
  const passwordFile = join(folder, "password");
  writeFileSync(passwordFile, `${SERVICENOW_PASSWORD}\n`, { mode: 0o600 });
  const interruptions = createInterruptions({
    status: 429,
    headers: { "retry-after": "30", "x-ratelimit-limit": "500" },
  });

  const end: ServiceNowEnd = {
    url: stub.url,
    config: {
      url: stub.url,
      user: SERVICENOW_USER,
      password: { file: passwordFile },
      close_code: "Solution provided",
      allow_networks: ["127.0.0.0/8"],
    },
    records: [],
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
    mandatory: new Set(["close_code", "close_notes"]),
    readOnly: new Set(),
    ruleRefuses: false,
    mayRead: true,
    password: SERVICENOW_PASSWORD,
    instead: () => null,

    things: () => end.records.map(thingOf),
    loseAnswers: interruptions.loseAnswers,
    tellToWait: interruptions.tellToWait,
    troubleBy: interruptions.troubleBy,
    requests: () => stub.seen.length,
    async stop() {
      await stub.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };

  stub.answer = (seen, response) => {
    const other = end.instead(seen);
    if (other !== null) return other;
    return seen.method === "GET" ? route(seen) : interruptions.answer(() => route(seen), response);
  };

  function route(seen: Seen): StubAnswer {
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
    return seen.method === "PATCH" ? change(record, seen) : json(200, shown(record));
  }

  function create(seen: Seen): StubAnswer {
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
    return json(201, shown(record));
  }

  function change(record: SnowRecord, seen: Seen): StubAnswer {
    return write(record, seen, false) ?? json(200, shown(record));
  }

  function write(record: SnowRecord, seen: Seen, isNew: boolean): StubAnswer | null {
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
    return { ...json(200, end.mayRead ? rows.map(shown) : [], String(found.length)) };
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

/** 7 is closed, 8 is cancelled; what is resolved (6) is active. */
function isClosed({ fields }: SnowRecord): boolean {
  return fields.state === "7" || fields.state === "8";
}

function thingOf(record: SnowRecord): Thing {
  const { fields, texts } = record;
  return { key: fields.correlation_id ?? null, isOpen: !isClosed(record) && fields.state !== "6", texts };
}

function json(status: number, result: unknown, count?: string): StubAnswer {
  return {
    status,
    headers: { "content-type": "application/json", ...(count === undefined ? {} : { "x-total-count": count }) },
    body: JSON.stringify({ result }),
  };
}

function refusal(status: number, message: string, detail: string | null): StubAnswer {
  return { status, body: JSON.stringify({ error: { message, detail }, status: "failure" }) };
}
