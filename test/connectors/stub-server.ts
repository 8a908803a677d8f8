import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Server } from "node:net";
import { gunzipSync } from "node:zlib";
import { onTestFinished } from "vitest";

export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface StubResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

export type StubServer = Awaited<ReturnType<typeof startStub>>;
/** `null`: never answer. A function of the raw response may do worse. */
type RespondFunction = (seen: SeenRequest, response: ServerResponse) => StubResponse | null | undefined;

export function reply(status: number, body?: string, headers?: Readonly<Record<string, string>>): StubResponse {
  return { status, ...(body === undefined ? {} : { body }), ...(headers === undefined ? {} : { headers }) };
}

interface StubOptions {
  readonly host?: string;
  readonly tls?: { readonly key: string; readonly cert: string };
}

export async function startStub(options: StubOptions = {}) {
  const host = options.host ?? "127.0.0.1";
  const seenRequests: SeenRequest[] = [];
  let connections = 0;
  let port = 0;
  const respond = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const raw = Buffer.concat(chunks);
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const body = headers["content-encoding"] === "gzip" ? gunzipSync(raw) : raw;
    const receivedRequest: SeenRequest = { method: request.method ?? "", url: request.url ?? "", headers, body };
    const stubResponse = stub.respond(receivedRequest, response);
    seenRequests.push(receivedRequest);
    if (stubResponse === null || stubResponse === undefined) return;
    response.writeHead(stubResponse.status, stubResponse.headers);
    response.end(stubResponse.body);
  };
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    respond(request, response).catch(() => response.destroy());
  };

  const newServer = () =>
    options.tls === undefined ? createServer(listener) : createSecureServer(options.tls, listener);
  let server = newServer();
  const stub = {
    get port() {
      return port;
    },
    get url() {
      return `${options.tls === undefined ? "http" : "https"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
    },
    seen: seenRequests as readonly SeenRequest[],
    get connections() {
      return connections;
    },
    respond: (() => ({ status: 204 })) as RespondFunction,
    stop() {
      return new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
    start() {
      server = newServer();
      server.on("connection", () => {
        connections += 1;
      });
      return new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, host, () => {
          port = (server.address() as AddressInfo).port;
          resolve();
        });
      });
    },
  };
  await stub.start();
  return stub;
}

/** Listens until the test ends, and returns the address, e.g. `127.0.0.1:40123`. */
export async function listenTo(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}
