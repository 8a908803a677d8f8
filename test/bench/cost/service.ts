import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";

/**
 * Many small monitoring services in one process, each below a path of its own (`/s0`, `/s1` …), that answer at once and
 * never refuse: so that what is measured is the worker. Every value changes with each reading, or none does.
 */
const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    tags: { type: "string", default: "20" },
    alarms: { type: "string", default: "0" },
    steady: { type: "boolean", default: false },
  },
});
const TAGS = Number(options.tags);
const ALARMS = Number(options.alarms);
const site = { id: 1, display_name: "Building" };
let reading = 0;
let values = 0;

const tag = (id: number) => ({
  type: "tags",
  id: String(id),
  attributes: { display_name: `Tag ${id}`, description: `Description of the tag ${id}`, unit: "°C" },
});

const alarm = (id: number) => ({
  type: "alarms",
  id: String(id),
  attributes: {
    site,
    trigger: { id, display_name: `Trigger ${id}`, description: null, priority: "B", enabled: true },
    status: "active",
    source: "trigger",
    description: `Description of the alarm ${id}`,
    triggered_at: "2026-11-01T08:00:00+01:00",
    resolved_at: null,
    recovering_until: null,
    acknowledged: false,
    acknowledged_by: null,
    acknowledged_message: null,
    acknowledged_at: null,
    last_active_event: {
      ...{ id, source: "tag", type: "threshold", triggered_on: `Tag ${id}`, value: 21.5 },
      ...{ textlist_value: null, triggered_at: "2026-11-01T08:00:00+01:00" },
    },
  },
});

function page(query: URLSearchParams, path: string, count: number, record: (place: number) => unknown): object {
  const perPage = Math.min(Number(query.get("per_page") ?? 100), 500);
  const number = Number(query.get("page") ?? 1);
  const last = Math.max(1, Math.ceil(count / perPage));
  const from = (number - 1) * perPage;
  const data = Array.from({ length: Math.max(0, Math.min(perPage, count - from)) }, (_, n) => record(from + n));
  const link = (to: number) => (to < 1 || to > last ? null : `${path}?page=${to}&per_page=${perPage}`);
  return {
    data,
    links: { first: link(1), last: link(last), prev: link(number - 1), next: link(number + 1) },
    meta: {
      ...{ current_page: number, from: from + 1, last_page: last, path, per_page: perPage },
      ...{ to: from + data.length, total: count },
    },
  };
}

function answer(path: string, query: URLSearchParams): unknown {
  const ids = (query.get("tags") ?? "").split(",").map(Number);
  const endpoint = path.slice(path.indexOf("/api/v1/") + 8);
  switch (endpoint) {
    case "tags/read":
      reading += 1;
      values += ids.length;
      return {
        data: ids.map((id) => ({
          ...tag(id),
          value: options.steady ? id / 10 : ((reading + id) % 1_000) / 10,
        })),
      };
    case "tags":
      return page(query, path, TAGS, (place) => tag(10_001 + place));
    case "alarms":
      return query.get("status") === "resolved"
        ? page(query, path, 0, alarm)
        : page(query, path, ALARMS, (place) => alarm(500_001 + place));
    case "sites":
      return page(query, path, 1, () => site);
    case "gateways":
      return page(query, path, 1, () => ({
        ...{ type: "gateways", id: "7" },
        attributes: {
          ...{ display_name: "Gateway", online: true, version: "1", hardware: "x", ip_address: "10.0.0.7" },
          location: "",
        },
      }));
    case "hosts":
    case "systems":
      return page(query, path, 0, () => null);
    case "healthcheck":
      return { status: "healthy", timestamp: new Date().toISOString() };
    case "me": {
      const abilities = ["alarms", "tags", "gateways", "hosts", "systems"].map((what) => `read:${what}`);
      return {
        data: {
          user: { id: 1, name: "Bench", email: "bench@example.com" },
          token: { name: "bench", abilities, expires_at: "2036-01-01T00:00:00Z", sites: [site] },
        },
      };
    }
    case "values":
      return values;
    case "records":
      return records;
    default:
      return { errors: [{ status: 404, message: "Not found." }] };
  }
}

/** Records of a ServiceNow table that both receivers write to. */
let records = 0;

/** As the Table API: what is created or changed comes back as it is now, and a search finds nothing. */
function answerReceiver(request: IncomingMessage, response: ServerResponse): void {
  let text = "";
  request.on("data", (piece: Buffer) => {
    text += piece.toString();
  });
  request.on("end", () => {
    const isSearch = request.method === "GET";
    const id = /\/([0-9a-f]{32})/.exec(request.url ?? "")?.[1];
    if (!isSearch && id === undefined) records += 1;
    const own = { sys_id: id ?? records.toString(16).padStart(32, "0"), number: `INC${records}` };
    const result = isSearch ? [] : { ...(JSON.parse(text) as object), ...own };
    response.writeHead(request.method === "POST" ? 201 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify({ result }));
  });
}

const server = createServer((request, response) => {
  const [path = "", query = ""] = (request.url ?? "").split("?");
  if (path.startsWith("/api/now/")) return answerReceiver(request, response);
  const body = JSON.stringify(answer(path, new URLSearchParams(query)));
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
});
// As nginx does, and not the 5 s of Node.js: who asks every 3 s need not connect anew each time. 75 s, in milliseconds:
// https://nginx.org/en/docs/http/ngx_http_core_module.html#keepalive_timeout
server.keepAliveTimeout = 75_000;
server.listen(Number(options.port), "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`port ${typeof address === "object" ? address?.port : ""}\n`);
});
