import { createServer } from "node:http";
import { parseArgs } from "node:util";

/**
 * A monitoring service whose lists never change: so many active alarms and so many tags in one building. Every page is
 * made once, so that what is measured is the worker. `/served` says how many records of each list were sent.
 */
const { values: options } = parseArgs({
  options: {
    tags: { type: "string", default: "0" },
    alarms: { type: "string", default: "0" },
  },
});
const TAGS = Number(options.tags);
const ALARMS = Number(options.alarms);
const site = { id: 1, display_name: "Building" };
const served = { alarms: 0, tags: 0 };

function tag(place: number): unknown {
  const id = 10_001 + place;
  const description = `Description of the tag ${id}`;
  return {
    type: "tags",
    id: String(id),
    attributes: { display_name: `AHU ${place % 40}, supply air temperature ${id}`, description, unit: "°C" },
  };
}

function alarm(place: number): unknown {
  const id = 500_001 + place;
  const day = String(1 + (place % 28)).padStart(2, "0");
  const triggered_at = `2026-05-${day}T08:${String(place % 60).padStart(2, "0")}:00+02:00`;
  const acknowledged = place % 4 === 0;
  return {
    type: "alarms",
    id: String(id),
    attributes: {
      site,
      trigger: {
        ...{
          id,
          display_name: `Supply temperature too low ${id}`,
          priority: "ABC"[place % 3],
          enabled: true,
        },
        description: "Raised when the supply air stays below its limit for ten minutes.",
      },
      ...{ status: "active", source: `AHU ${place % 40}`, triggered_at, acknowledged },
      description: "Supply air temperature is below the limit.",
      ...{ resolved_at: null, recovering_until: null, acknowledged_message: null },
      acknowledged_by: acknowledged ? "Operator" : null,
      acknowledged_at: acknowledged ? triggered_at : null,
      last_active_event: {
        ...{ id, source: `AHU ${place % 40}`, type: "limit", triggered_on: "value", value: 12.5 },
        ...{ textlist_value: null, triggered_at },
      },
    },
  };
}

const gateway = {
  ...{ type: "gateways", id: "7" },
  attributes: {
    ...{ display_name: "Gateway", online: true, version: "1", hardware: "x", ip_address: "10.0.0.7" },
    location: "",
  },
};

const me = {
  data: {
    user: { id: 1, name: "Bench", email: "bench@example.com" },
    token: {
      name: "bench",
      abilities: ["alarms", "tags", "gateways", "hosts", "systems"].map((what) => `read:${what}`),
      ...{ expires_at: "2036-01-01T00:00:00Z", sites: [site] },
    },
  },
};

interface MadePage {
  readonly body: Buffer;
  readonly count: number;
}

const made = new Map<string, MadePage>();

function page(query: URLSearchParams, path: string, total: number, record: (place: number) => unknown): MadePage {
  const perPage = Math.min(Number(query.get("per_page") ?? 100), 500);
  const number = Number(query.get("page") ?? 1);
  const key = `${path} ${total} ${perPage} ${number}`;
  const known = made.get(key);
  if (known !== undefined) return known;
  const last = Math.max(1, Math.ceil(total / perPage));
  const from = (number - 1) * perPage;
  const count = Math.max(0, Math.min(perPage, total - from));
  const link = (to: number) => (to < 1 || to > last ? null : `${path}?page=${to}&per_page=${perPage}`);
  const body = bytes({
    data: Array.from({ length: count }, (_, n) => record(from + n)),
    links: { first: link(1), last: link(last), prev: link(number - 1), next: link(number + 1) },
    meta: {
      ...{ current_page: number, from: from + 1, last_page: last, path, per_page: perPage },
      ...{ to: from + count, total },
    },
  });
  made.set(key, { body, count });
  return { body, count };
}

function bytes(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

function answer(path: string, query: URLSearchParams): Buffer {
  switch (path.slice(path.indexOf("/api/v1/") + 8)) {
    case "tags/read":
      return bytes({
        data: (query.get("tags") ?? "").split(",").map((id) => ({
          ...(tag(Number(id) - 10_001) as object),
          value: (Date.now() % 1_000) / 10,
        })),
      });
    case "tags": {
      const { body, count } = page(query, path, TAGS, tag);
      served.tags += count;
      return body;
    }
    case "alarms": {
      const total = query.get("status") === "resolved" ? 0 : ALARMS;
      const { body, count } = page(query, path, total, alarm);
      served.alarms += count;
      return body;
    }
    case "sites":
      return page(query, path, 1, () => site).body;
    case "gateways":
      return page(query, path, 1, () => gateway).body;
    case "hosts":
    case "systems":
      return page(query, path, 0, () => null).body;
    case "healthcheck":
      return bytes({ status: "healthy", timestamp: new Date().toISOString() });
    case "me":
      return bytes(me);
    case "served":
      return bytes(served);
    default:
      return bytes({ errors: [{ status: 404, message: "Not found." }] });
  }
}

const server = createServer((request, response) => {
  const [path = "", query = ""] = (request.url ?? "").split("?");
  const body = answer(path, new URLSearchParams(query));
  response.writeHead(200, { "content-type": "application/json", "content-length": body.byteLength });
  response.end(body);
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`port ${typeof address === "object" ? address?.port : ""}\n`);
});
