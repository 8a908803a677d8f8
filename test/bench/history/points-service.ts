import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { gunzipSync } from "node:zlib";

/**
 * A monitoring service of 20 tags whose logs have a value for every five minutes, and a database that counts the lines
 * it is sent. Replies of history wait until `/go` was asked for, so that what a worker uses for its start is not counted.
 */
const TAGS = 20;
const BUCKET_MS = 300_000;
const site = { id: 1, display_name: "Building" };
const go = Promise.withResolvers<void>();
let points = 0;
let largest = 0;
let lines = 0;

const tag = (id: number) => ({
  type: "tags",
  id: String(id),
  attributes: { display_name: `Tag ${id}`, description: `Description of the tag ${id}`, unit: "°C" },
});

/** By hand, because it is millions of them. Two decimals, as sensors have them; the same at each asking. */
function series(id: number, fromMs: number, toMs: number): string {
  const texts: string[] = [];
  for (let atMs = fromMs; atMs < toMs; atMs += BUCKET_MS) {
    const value = ((Math.imul(atMs / BUCKET_MS + id, 2_654_435_761) >>> 8) % 4_000) / 100;
    texts.push(`{"timestamp":"${new Date(atMs).toISOString().slice(0, 19)}Z","value":${value}}`);
  }
  points += texts.length;
  return texts.join(",");
}

function history(query: URLSearchParams): string {
  const ids = (query.get("tags") ?? "").split(",").map(Number);
  const width = query.get("resolution") === "5m" ? BUCKET_MS : Number.POSITIVE_INFINITY;
  const fromMs = Math.ceil(Date.parse(query.get("from") ?? "") / BUCKET_MS) * BUCKET_MS;
  const toMs = Math.min(Date.parse(query.get("to") ?? ""), Number.isFinite(width) ? Infinity : fromMs + 1);
  const before = points;
  const records = ids.map(
    (id) => `${JSON.stringify(tag(id)).slice(0, -1)},"measurements":[${series(id, fromMs, toMs)}]}`,
  );
  largest = Math.max(largest, points - before);
  return `{"data":[${records.join(",")}]}`;
}

function page(path: string, items: readonly unknown[]): string {
  const links = { first: path, last: path, prev: null, next: null };
  const meta = {
    current_page: 1,
    from: 1,
    last_page: 1,
    path,
    per_page: 500,
    to: items.length,
    total: items.length,
  };
  return JSON.stringify({ data: items, links, meta });
}

async function answer(path: string, query: URLSearchParams): Promise<string> {
  switch (path.slice("/api/v1/".length)) {
    case "tags/history":
      await go.promise;
      return history(query);
    case "tags":
      return page(
        path,
        Array.from({ length: TAGS }, (_, n) => tag(10_001 + n)),
      );
    case "sites":
      return page(path, [site]);
    case "healthcheck":
      return JSON.stringify({ status: "healthy", timestamp: new Date().toISOString() });
    case "me": {
      const abilities = ["alarms", "tags", "gateways", "hosts", "systems"].map((what) => `read:${what}`);
      const token = { name: "bench", abilities, expires_at: "2036-01-01T00:00:00Z", sites: [site] };
      return JSON.stringify({ data: { user: { id: 1, name: "Bench", email: "bench@example.com" }, token } });
    }
    default:
      return page(path, []);
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  return request.headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
}

async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
  if (request.method === "POST") {
    const body = await bodyOf(request);
    for (let at = body.indexOf("tag_history,"); at >= 0; at = body.indexOf("tag_history,", at + 1)) lines += 1;
    response.writeHead(204).end();
    return;
  }
  if (pathname === "/go") go.resolve();
  const counted = pathname === "/go" || pathname === "/count";
  const body = counted ? JSON.stringify({ points, largest, lines }) : await answer(pathname, searchParams);
  response.writeHead(200, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}

const server = createServer((request, response) => void respond(request, response));
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`port ${typeof address === "object" ? address?.port : ""}\n`);
});
