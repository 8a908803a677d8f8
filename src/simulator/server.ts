import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { ServiceReply } from "./reply-bodies.ts";
import type { Simulator } from "./simulator.ts";
import { handleControlRequest } from "./simulator-control-api.ts";

export type SimulatorServer = Awaited<ReturnType<typeof startSimulatorServer>>;

const CONTROL_PATH_PREFIX = "/_simulator/";
const MAX_REQUEST_BODY_BYTES = 1_048_576;

/** Serves the simulator over HTTP and carries out connection faults. Port 0 means any free port. */
export async function startSimulatorServer(
  simulator: Simulator,
  { host = "127.0.0.1", port: requestedPort = 0 }: { readonly host?: string; readonly port?: number } = {},
) {
  const closeController = new AbortController();
  const server = createServer((request, response) => {
    handleHttpRequest(simulator, request, response, closeController.signal).catch((error: unknown) => {
      // A broken connection is no error of the simulator.
      if (closeController.signal.aborted || response.destroyed) return;
      response.statusCode = 500;
      response.end(`The simulator failed: ${error instanceof Error ? error.stack : String(error)}\n`);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(requestedPort, host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    async close(): Promise<void> {
      closeController.abort();
      if (!server.listening) return;
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

async function handleHttpRequest(
  simulator: Simulator,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
) {
  const receivedAtMs = simulator.now();
  const url = new URL(request.url ?? "/", "http://simulator.invalid");
  const method = request.method ?? "GET";
  const body = await readRequestBody(request);
  if (body === undefined) return void response.writeHead(413, { connection: "close" }).end();

  if (url.pathname.startsWith(CONTROL_PATH_PREFIX)) {
    const path = url.pathname.slice(CONTROL_PATH_PREFIX.length);
    const error = "The control interface accepts only JSON requests from this machine.";
    const { status, body: data } = mayUseControlInterface(request)
      ? handleControlRequest(simulator, method, path, url.searchParams, body)
      : { status: 403, body: { error } };
    return void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(data));
  }
  const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, value?.toString()]));
  const { pathname: path, searchParams: query } = url;
  const reply = simulator.handle({ method, path, query, headers, body, receivedAtMs });
  await sendReply(reply, request, response, signal);
}

async function sendReply(reply: ServiceReply, request: IncomingMessage, response: ServerResponse, signal: AbortSignal) {
  const { delayMs = 0, cutAfterBytes, dripBytes, dripEveryMs = 0, reset = false } = reply.transport ?? {};
  if (delayMs > 0) await pause(delayMs, undefined, { signal });
  if (reset) return void request.socket.resetAndDestroy();

  const responseBytes = Buffer.from(reply.body);
  response.writeHead(reply.status, { ...reply.headers, "content-length": responseBytes.length });
  const endOffset = Math.min(cutAfterBytes ?? responseBytes.length, responseBytes.length);
  const bytesPerPiece = dripBytes ?? Math.max(1, endOffset);
  response.flushHeaders();
  for (let start = 0; start < endOffset; start += bytesPerPiece) {
    const responseBodyPiece = responseBytes.subarray(start, Math.min(endOffset, start + bytesPerPiece));
    await new Promise<void>((resolve) => response.write(responseBodyPiece, () => resolve()));
    if (dripBytes !== undefined && start + bytesPerPiece < endOffset) await pause(dripEveryMs, undefined, { signal });
    if (response.destroyed) return;
  }
  if (endOffset < responseBytes.length) return void request.socket.destroy();
  response.end();
}

async function readRequestBody(request: IncomingMessage): Promise<string | undefined> {
  const requestBodyPieces: Buffer[] = [];
  let requestBodyBytes = 0;
  for await (const piece of request) {
    requestBodyBytes += piece.length;
    if (requestBodyBytes > MAX_REQUEST_BODY_BYTES) return undefined;
    requestBodyPieces.push(piece);
  }
  return Buffer.concat(requestBodyPieces).toString("utf8");
}

/** Requires the content type JSON, because browsers do not send JSON to other origins without permission. */
function mayUseControlInterface(request: IncomingMessage): boolean {
  const remoteAddress = request.socket.remoteAddress ?? "";
  const isLocalAddress =
    remoteAddress === "::1" || remoteAddress.startsWith("127.") || remoteAddress.startsWith("::ffff:127.");
  const sendsJson = request.method === "GET" || (request.headers["content-type"] ?? "").startsWith("application/json");
  const isSameOriginRequest =
    request.headers.origin === undefined || request.headers.origin === `http://${request.headers.host}`;
  return isLocalAddress && sendsJson && isSameOriginRequest;
}
