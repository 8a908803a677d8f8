import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { answerControl } from "./control-requests.ts";
import type { SimReply } from "./exchange.ts";
import type { Simulator } from "./simulator.ts";

export interface SimulatorServer {
  /** Base address without a trailing slash. */
  readonly url: string;
  readonly port: number;
  /** Breaks open connections and frees the port; a second call is fine. */
  close(): Promise<void>;
}

export interface SimulatorAddress {
  readonly host?: string;
  /** 0, the default, takes a free port. */
  readonly port?: number;
}

const CONTROL_PREFIX = "/_simulator/";
const MAX_BODY_BYTES = 1_048_576;

/** Puts the simulator behind node:http and does to the replies what their transport says. */
export async function startSimulatorServer(
  simulator: Simulator,
  address: SimulatorAddress = {},
): Promise<SimulatorServer> {
  const host = address.host ?? "127.0.0.1";
  const closing = new AbortController();
  const server = createServer((request, response) => {
    exchange(simulator, request, response, closing.signal).catch((error: unknown) => {
      // A broken connection is the client's matter, or a fault that was asked for; anything else must be seen.
      if (closing.signal.aborted || response.destroyed) return;
      response.statusCode = 500;
      response.end(`The simulator failed: ${error instanceof Error ? error.stack : String(error)}\n`);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(address.port ?? 0, host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    async close() {
      closing.abort();
      if (!server.listening) return;
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

async function exchange(
  simulator: Simulator,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
) {
  const receivedAtMs = simulator.now();
  const url = new URL(request.url ?? "/", "http://simulator.invalid");
  const method = request.method ?? "GET";
  const body = await bodyOf(request);
  if (body === undefined) return void response.writeHead(413, { connection: "close" }).end();

  if (url.pathname.startsWith(CONTROL_PREFIX)) {
    const { status, body: answer } = mayControl(request)
      ? answerControl(simulator, method, url.pathname.slice(CONTROL_PREFIX.length), url.searchParams, body)
      : {
          status: 403,
          body: { error: "The control interface answers only this machine, and JSON requests." },
        };
    return void response
      .writeHead(status, { "content-type": "application/json" })
      .end(JSON.stringify(answer));
  }
  const headers = Object.fromEntries(
    Object.entries(request.headers).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.join(", ") : value,
    ]),
  );
  const reply = simulator.handle({
    method,
    path: url.pathname,
    query: url.searchParams,
    headers,
    body,
    receivedAtMs,
  });
  await send(reply, request, response, signal);
}

async function send(
  reply: SimReply,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
) {
  const { delayMs = 0, cutAfterBytes, dripBytes, dripEveryMs = 0, reset = false } = reply.transport ?? {};
  if (delayMs > 0) await pause(delayMs, undefined, { signal });
  if (reset) return void request.socket.resetAndDestroy();

  const bytes = Buffer.from(reply.body);
  response.writeHead(reply.status, { ...reply.headers, "content-length": bytes.length });
  const end = Math.min(cutAfterBytes ?? bytes.length, bytes.length);
  const step = dripBytes ?? Math.max(1, end);
  response.flushHeaders();
  for (let start = 0; start < end; start += step) {
    await written(response, bytes.subarray(start, Math.min(end, start + step)));
    if (dripBytes !== undefined && start + step < end) await pause(dripEveryMs, undefined, { signal });
    if (response.destroyed) return;
  }
  if (end < bytes.length) return void request.socket.destroy();
  response.end();
}

function written(response: ServerResponse, piece: Buffer): Promise<void> {
  return new Promise((resolve) => {
    response.write(piece, () => resolve());
  });
}

/** undefined: larger than the simulator takes. */
async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > MAX_BODY_BYTES) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

/** Only from this machine; a page in a browser cannot send JSON elsewhere without being asked first. */
function mayControl(request: IncomingMessage): boolean {
  const from = request.socket.remoteAddress ?? "";
  const isLocal = from === "::1" || from.startsWith("127.") || from.startsWith("::ffff:127.");
  const isJson =
    request.method === "GET" || (request.headers["content-type"] ?? "").startsWith("application/json");
  const isSameOrigin =
    request.headers.origin === undefined || request.headers.origin === `http://${request.headers.host}`;
  return isLocal && isJson && isSameOrigin;
}
