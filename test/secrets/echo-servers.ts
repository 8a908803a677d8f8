import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createSocketServer, type Server } from "node:net";
import { text } from "node:stream/consumers";
import { onTestFinished } from "vitest";
import { createEcho } from "./canaries.ts";

/** Servers that repeat the credentials which they received in every part of their responses. */

async function listenOnAnyPort(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

interface EchoResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

async function startEchoServer(
  respond: (request: IncomingMessage, body: string) => Promise<EchoResponse> | EchoResponse,
): Promise<string> {
  const server = createServer((request, response: ServerResponse) => {
    void text(request).then(async (body) => {
      const { status, headers = {}, body: said = "" } = await respond(request, body);
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(said);
    });
  });
  onTestFinished(() => server.closeAllConnections());
  return `http://127.0.0.1:${await listenOnAnyPort(server)}`;
}

function createEchoResponses(): (echo: string) => EchoResponse {
  const toAscii = (echo: string) => echo.replaceAll(/[^\x20-\x7e]/g, "?");
  const all: readonly ((echo: string) => EchoResponse)[] = [
    (echo) => ({ status: 422, body: JSON.stringify({ errors: [{ status: 422, message: echo }] }) }),
    (echo) => ({ status: 400, body: JSON.stringify({ code: "invalid", message: echo, error: echo }) }),
    (echo) => ({ status: 400, headers: { "content-type": "text/plain" }, body: echo }),
    (echo) => ({ status: 500, headers: { "content-type": "text/html" }, body: `<html>${echo}</html>` }),
    (echo) => ({ status: 302, headers: { location: `http://${toAscii(encodeURIComponent(echo))}.example/` } }),
    (echo) => ({ status: 307, headers: { location: `https://me:${encodeURIComponent(echo)}@host.example/` } }),
    (echo) => ({ status: 200, headers: { "content-encoding": toAscii(echo).slice(0, 500) }, body: "{}" }),
    (echo) => ({ status: 200, body: `{"data":[],${JSON.stringify(echo)}:1,${JSON.stringify(echo)}:2}` }),
    (echo) => ({ status: 200, body: `{"data": ${echo}` }),
    (echo) => ({ status: 503, headers: { "retry-after": toAscii(echo).slice(0, 500) }, body: echo }),
    (echo) => ({ status: 404, body: JSON.stringify({ message: echo, errors: { [echo]: [echo] } }) }),
    (echo) => ({ status: 401, headers: { "www-authenticate": toAscii(echo) }, body: JSON.stringify({ error: echo }) }),
  ];
  let responseCount = 0;
  return (echo) => {
    const way = all[responseCount % all.length];
    responseCount += 1;
    return way?.(echo) ?? { status: 500 };
  };
}

export function echoingService(serviceUrl: string, refusing: RegExp): Promise<string> {
  const echo = createEcho();
  const way = createEchoResponses();
  return startEchoServer(async (request, body) => {
    const { authorization = "", accept = "" } = request.headers;
    if (refusing.test(request.url ?? "")) return way(echo(authorization));
    const reply = await fetch(new URL(request.url ?? "/", serviceUrl), {
      method: request.method ?? "GET",
      headers: { authorization, accept, "content-type": "application/json" },
      ...(body === "" ? {} : { body }),
    });
    const appendEcho = (key: string, value: unknown) =>
      /name$|^(description|unit|location|version|message|source)$/.test(key) && typeof value === "string"
        ? `${value} ${echo(authorization)}`
        : value;
    return { status: reply.status, body: JSON.stringify(await reply.json(), appendEcho) };
  });
}

/** After so many rejected events the receiver has used each way of responding. */
const REFUSALS = 40;

export function echoingReceiver(): Promise<string> {
  const echo = createEcho();
  const way = createEchoResponses();
  let requestCount = 0;
  return startEchoServer(({ headers }) => {
    const message = echo(headers.authorization ?? "");
    requestCount += 1;
    if (requestCount > REFUSALS) return way(message);
    return { status: 400, body: requestCount % 2 === 0 ? message : JSON.stringify({ message, error: message }) };
  });
}

export async function echoingProxy(): Promise<string> {
  const echo = createEcho();
  const statuses = [407, 403, 502, 302];
  let requestCount = 0;
  const server = createServer();
  server.on("connect", ({ headers }, socket) => {
    const message = echo(headers["proxy-authorization"] ?? "").replaceAll(/[^\x20-\x7e]/g, "?");
    const status = statuses[requestCount % statuses.length];
    requestCount += 1;
    socket.on("error", () => socket.destroy());
    socket.end(
      `HTTP/1.1 ${status} ${message}\r\nProxy-Authenticate: Basic realm="${message}"\r\nLocation: http://${message}/\r\n\r\n${message}`,
    );
  });
  return `http://127.0.0.1:${await listenOnAnyPort(server)}`;
}

export async function echoingBroker(password: string): Promise<string> {
  const echo = createEcho();
  const server = createSocketServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", () => {
      const reason = Buffer.from(echo(password).slice(0, 600));
      const property = Buffer.concat([Buffer.from([0x1f, reason.length >> 8, reason.length & 0xff]), reason]);
      const body = Buffer.concat([Buffer.from([0, 0x86]), variable(property.length), property]);
      socket.end(Buffer.concat([Buffer.from([0x20]), variable(body.length), body]));
    });
  });
  return `mqtt://127.0.0.1:${await listenOnAnyPort(server)}`;
}

function variable(length: number): Buffer {
  return length < 128 ? Buffer.from([length]) : Buffer.from([(length & 0x7f) | 0x80, length >> 7]);
}
