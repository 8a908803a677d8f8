import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";

/** Monitoring services at `/s0`, `/s1` …; `/counts` returns counters; history waits for a request to `/go`. */
const { values: options } = parseArgs({
  options: {
    tags: { type: "string", default: "20" },
    alarms: { type: "string", default: "0" },
    steady: { type: "boolean", default: false },
  },
});
const TAGS = Number(options.tags);
const ALARMS = Number(options.alarms);
const FIRST_TAG = 10_001;
const BUCKET_MS = 300_000;
const site = { id: 1, display_name: "Building" };
const counts = { values: 0, records: 0, tickets: 0, points: 0, largest: 0, lines: 0, bytes: 0 };
const go = Promise.withResolvers<void>();
let reads = 0;

const tag = (id: number) => ({
  type: "tags",
  id: String(id),
  attributes: { display_name: `Tag ${id}`, description: `Description of the tag ${id}`, unit: "°C" },
});

const TRIGGERED_AT = "2026-11-01T08:00:00+01:00";
const alarm = (id: number) => ({
  type: "alarms",
  id: String(id),
  attributes: {
    site,
    trigger: { id, display_name: `Trigger ${id}`, description: null, priority: "B", enabled: true },
    ...{ status: "active", source: "trigger", description: `Description of the alarm ${id}` },
    ...{ triggered_at: TRIGGERED_AT, resolved_at: null, recovering_until: null },
    ...{ acknowledged: false, acknowledged_by: null, acknowledged_message: null, acknowledged_at: null },
    last_active_event: {
      ...{ id, source: "tag", type: "threshold", triggered_on: `Tag ${id}`, value: 21.5 },
      ...{ textlist_value: null, triggered_at: TRIGGERED_AT },
    },
  },
});

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

const pages = new Map<string, string>();

function page(path: string, query: URLSearchParams, total: number, record: (index: number) => unknown): string {
  const perPage = Math.min(Number(query.get("per_page") ?? 100), 500);
  const number = Number(query.get("page") ?? 1);
  const firstIndex = (number - 1) * perPage;
  const count = Math.max(0, Math.min(perPage, total - firstIndex));
  if (/(alarms|tags)$/.test(path)) counts.records += count;
  const key = `${path} ${total} ${perPage} ${number}`;
  const cachedPage = pages.get(key);
  if (cachedPage !== undefined) return cachedPage;
  const lastPage = Math.max(1, Math.ceil(total / perPage));
  const link = (to: number) => (to < 1 || to > lastPage ? null : `${path}?page=${to}&per_page=${perPage}`);
  const pageJson = JSON.stringify({
    data: Array.from({ length: count }, (_, n) => record(firstIndex + n)),
    links: { first: link(1), last: link(lastPage), prev: link(number - 1), next: link(number + 1) },
    meta: {
      ...{ current_page: number, from: firstIndex + 1, last_page: lastPage, path, per_page: perPage },
      ...{ to: firstIndex + count, total },
    },
  });
  pages.set(key, pageJson);
  return pageJson;
}

/** Text of the points of a tag, with two decimals and the same values for each request. Concatenated for speed. */
function series(id: number, fromMs: number, toMs: number): string {
  const texts: string[] = [];
  for (let atMs = fromMs; atMs < toMs; atMs += BUCKET_MS) {
    const value = ((Math.imul(atMs / BUCKET_MS + id, 2_654_435_761) >>> 8) % 4_000) / 100;
    texts.push(`{"timestamp":"${new Date(atMs).toISOString().slice(0, 19)}Z","value":${value}}`);
  }
  counts.points += texts.length;
  return texts.join(",");
}

function history(query: URLSearchParams, ids: readonly number[]): string {
  const fromMs = Math.ceil(Date.parse(query.get("from") ?? "") / BUCKET_MS) * BUCKET_MS;
  // Any other resolution only tests whether a log exists: one point.
  const toMs = query.get("resolution") === "5m" ? Date.parse(query.get("to") ?? "") : fromMs + 1;
  const pointsBefore = counts.points;
  const records = ids.map(
    (id) => `${JSON.stringify(tag(id)).slice(0, -1)},"measurements":[${series(id, fromMs, toMs)}]}`,
  );
  counts.largest = Math.max(counts.largest, counts.points - pointsBefore);
  return `{"data":[${records.join(",")}]}`;
}

async function buildResponse(path: string, query: URLSearchParams): Promise<string> {
  const ids = (query.get("tags") ?? "").split(",").map(Number);
  switch (path.slice(path.indexOf("/api/v1/") + 8)) {
    case "tags/read": {
      reads += 1;
      counts.values += ids.length;
      const value = (id: number) => (options.steady ? id / 10 : ((reads + id) % 1_000) / 10);
      return JSON.stringify({ data: ids.map((id) => ({ ...tag(id), value: value(id) })) });
    }
    case "tags/history":
      await go.promise;
      return history(query, ids);
    case "tags":
      return page(path, query, TAGS, (index) => tag(FIRST_TAG + index));
    case "alarms":
      return page(path, query, query.get("status") === "resolved" ? 0 : ALARMS, (index) => alarm(500_001 + index));
    case "sites":
      return page(path, query, 1, () => site);
    case "gateways":
      return page(path, query, 1, () => gateway);
    case "healthcheck":
      return JSON.stringify({ status: "healthy", timestamp: new Date().toISOString() });
    case "me":
      return JSON.stringify(me);
    default:
      return page(path, query, 0, () => null);
  }
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function ticket(method: string | undefined, path: string, body: Buffer): string {
  if (method === "GET") return JSON.stringify({ result: [] });
  const id = /\/([0-9a-f]{32})/.exec(path)?.[1];
  if (id === undefined) counts.tickets += 1;
  const ticketFields = { sys_id: id ?? counts.tickets.toString(16).padStart(32, "0"), number: `INC${counts.tickets}` };
  return JSON.stringify({ result: { ...(JSON.parse(body.toString()) as object), ...ticketFields } });
}

function countLines(body: Buffer, encoding: string | undefined): void {
  counts.bytes += body.length;
  const content = encoding === "gzip" ? gunzipSync(body) : body;
  for (let at = content.indexOf("tag_history,"); at >= 0; at = content.indexOf("tag_history,", at + 1))
    counts.lines += 1;
}

async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
  const body = await readBody(request);
  const send = (status: number, text: string) => {
    response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.end(text);
  };
  if (pathname.startsWith("/api/now/"))
    send(request.method === "POST" ? 201 : 200, ticket(request.method, pathname, body));
  else if (request.method === "POST") {
    countLines(body, request.headers["content-encoding"]);
    response.writeHead(204).end();
  } else if (pathname === "/counts" || pathname === "/go") {
    if (pathname === "/go") go.resolve();
    send(200, JSON.stringify(counts));
  } else send(200, await buildResponse(pathname, searchParams));
}

const server = createServer((request, response) => void respond(request, response));
// Keep connections open for 75 s, as nginx does, so a client with a request every 3 s does not reconnect.
server.keepAliveTimeout = 75_000;
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`port ${typeof address === "object" ? address?.port : ""}\n`);
});
