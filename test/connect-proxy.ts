import { createServer, type IncomingMessage, type Server } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";

export interface ConnectProxy {
  readonly url: string;
  readonly port: number;
  readonly requests: readonly { readonly authority: string; readonly headers: IncomingMessage["headers"] }[];
  readonly inClear: readonly string[];
  readonly connections: number;
  passed(): Buffer;
}

export interface ConnectProxyOptions {
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Required `user:password`; other requests get a 407. */
  readonly credentials?: () => string;
  /** Raw response in place of a tunnel. */
  readonly respond?: (request: IncomingMessage) => string | null;
  /** Targets of host names, as `host:port`; other names are used as they are. */
  readonly hosts?: Readonly<Record<string, string>>;
}

export async function startConnectProxy(options: ConnectProxyOptions = {}): Promise<ConnectProxy> {
  const { tls, credentials, respond, hosts = {} } = options;
  const requests: ConnectProxy["requests"][number][] = [];
  const inClear: string[] = [];
  const chunks: Buffer[] = [];
  const sockets = new Set<Duplex>();
  let connections = 0;
  const server: Server = tls === undefined ? createServer() : createSecureServer(tls);
  server.on("connection", (socket: Socket) => {
    connections += 1;
    sockets.add(socket.on("error", () => socket.destroy()));
  });
  server.on("request", (request, response) => {
    inClear.push(`${request.method} ${request.url}`);
    response.writeHead(501).end();
  });
  server.on("connect", (request, client) => {
    const authority = request.url ?? "";
    requests.push({ authority, headers: request.headers });
    client.on("error", () => client.destroy());
    const proxyReply = respond === undefined ? refusalOf(request) : respond(request);
    if (proxyReply !== null) {
      client.end(proxyReply);
      return;
    }
    const [, host = "", port = ""] = /^\[?(.*?)\]?:(\d+)$/.exec(hosts[authority] ?? authority) ?? [];
    const serverSocket = connect({ host, port: Number(port) });
    sockets.add(serverSocket);
    serverSocket.once("error", () => client.end("HTTP/1.1 502 Bad Gateway\r\n\r\n"));
    serverSocket.once("connect", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      for (const side of [client, serverSocket]) side.on("data", (chunk: Buffer) => chunks.push(chunk));
      client.pipe(serverSocket).pipe(client);
    });
  });

  function refusalOf({ headers }: IncomingMessage): string | null {
    if (credentials === undefined) return null;
    const wanted = `Basic ${Buffer.from(credentials()).toString("base64")}`;
    if (headers["proxy-authorization"] === wanted) return null;
    return 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="out"\r\n\r\n';
  }
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `${tls === undefined ? "http" : "https"}://127.0.0.1:${port}`,
    port,
    requests,
    inClear,
    get connections() {
      return connections;
    },
    passed: () => Buffer.concat(chunks),
  };
}
