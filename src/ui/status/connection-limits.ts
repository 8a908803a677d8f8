import type { IncomingMessage, Server, ServerOptions, ServerResponse } from "node:http";
import type { ListenOptions, Server as NetServer, Socket } from "node:net";
import { startServiceOnce, type WorkerService } from "../../core/runtime/lifecycle.ts";

/** At each limit, a new connection replaces the oldest one for which the server is not preparing a response. */

export const REQUEST_TIMEOUTS = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 5_000,
  // Interval at which Node.js looks for expired connections; a shorter one would wake an idle machine more often.
  connectionsCheckingInterval: 4_000,
} satisfies ServerOptions;

const IDLE_CONNECTION_TIMEOUT_MS = 300_000;

const DEFAULT_CONNECTION_LIMITS = {
  maxTotal: 200,
  /** Maximum for all clients except this machine and the proxy, so that those two always get a connection. */
  others: 150,
  /** Maximum for one IPv4 address, or for one IPv6 network of 64 bits. */
  perAddress: 32,
  /** Maximum for this machine, and for the proxy, which sends the requests of many clients. */
  localAndProxy: 150,
};

/** Connections whose password is checked after a delay. A new connection may replace them. */
export const delayedConnections = new WeakSet<object>();

interface OpenConnection {
  readonly socket: Socket;
  readonly owner: string;
  readonly isLocalOrProxy: boolean;
  exchange: { readonly request: IncomingMessage; readonly response: ServerResponse } | null;
}

function isPreparingResponse({ exchange, socket }: OpenConnection): boolean {
  return exchange?.request.complete === true && !exchange.response.writableEnded && !delayedConnections.has(socket);
}

const isSendingResponse = ({ exchange }: OpenConnection): boolean => exchange?.response.writableEnded === true;

/** Limits open connections. `proxyAddress`: the trusted proxy, to which another limit applies. */
export function limitConnections(
  server: Server,
  proxyAddress: string | null = null,
  limits = DEFAULT_CONNECTION_LIMITS,
): void {
  const proxyClient = proxyAddress === null ? null : clientOfAddress(proxyAddress);
  const openConnections = new Map<Socket, OpenConnection>();
  server.setTimeout(IDLE_CONNECTION_TIMEOUT_MS);
  function closeConnection(socket: Socket): void {
    openConnections.delete(socket);
    socket.destroy();
  }

  /** Closes the oldest idle `isMember` connection if there are too many; returns false if none is idle. */
  function ensureConnectionSlot(maxConnections: number, isMember: (connection: OpenConnection) => boolean): boolean {
    const memberConnections = [...openConnections.values()].filter(isMember);
    if (memberConnections.length < maxConnections) return true;
    const idleConnection =
      memberConnections.find((connection) => !isPreparingResponse(connection) && !isSendingResponse(connection)) ??
      memberConnections.find(isSendingResponse);
    if (idleConnection !== undefined) closeConnection(idleConnection.socket);
    return idleConnection !== undefined;
  }

  server.on("connection", (socket: Socket) => {
    const owner = clientOfAddress(socket.remoteAddress ?? "");
    const isLocalOrProxy = owner === LOOPBACK_CLIENT || owner === proxyClient;
    const ownerLimit = isLocalOrProxy ? limits.localAndProxy : limits.perAddress;
    const hasConnectionSlot =
      ensureConnectionSlot(ownerLimit, (connection) => connection.owner === owner) &&
      (isLocalOrProxy || ensureConnectionSlot(limits.others, (connection) => !connection.isLocalOrProxy)) &&
      ensureConnectionSlot(limits.maxTotal, () => true);
    if (!hasConnectionSlot) return void socket.destroy();
    openConnections.set(socket, { socket, owner, isLocalOrProxy, exchange: null });
    socket.once("close", () => openConnections.delete(socket));
  });

  // Prepended, because a short response ends while the request handler still runs.
  server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
    const connection = openConnections.get(request.socket);
    if (connection === undefined) return;
    connection.exchange = { request, response };
    response.once("close", () => {
      if (connection.exchange?.response === response) connection.exchange = null;
    });
  });
}

const LOOPBACK_CLIENT = "loopback";

/** Turns `::ffff:192.0.2.7` into `192.0.2.7`. */
export const normalizeIp = (address: string): string => address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");

/** Returns `192.0.2.7`, `2001:db8:0:7::/64` or `loopback`. */
export function clientOfAddress(address: string): string {
  const normalizedAddress = normalizeIp(address).replace(/%.*$/, "");
  if (normalizedAddress === "::1" || normalizedAddress.startsWith("127.")) return LOOPBACK_CLIENT;
  if (!normalizedAddress.includes(":")) return normalizedAddress;
  const [head = "", tail = ""] = normalizedAddress.split("::");
  const leadingGroups = head === "" ? [] : head.split(":");
  const trailingGroups = tail === "" ? [] : tail.split(":");
  const omittedZeros = normalizedAddress.includes("::")
    ? Array<string>(Math.max(0, 8 - leadingGroups.length - trailingGroups.length)).fill("0")
    : [];
  return `${[...leadingGroups, ...omittedZeros, ...trailingGroups].slice(0, 4).join(":")}::/64`;
}

export function listen(server: NetServer, target: ListenOptions, toError: (error: NodeJS.ErrnoException) => Error) {
  return new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(toError(error)));
    server.listen(target, resolve);
  });
}

/** Wraps an HTTP server as a service; its stop closes every connection and then calls `onClosed`. */
export function createListeningService(
  name: string,
  openServer: () => Promise<Server>,
  onClosed: () => void = () => {},
): WorkerService {
  let server: Server | undefined;
  async function stopServer(): Promise<void> {
    const closingServer = server;
    server = undefined;
    if (closingServer === undefined) return;
    await new Promise<void>((resolve) => {
      closingServer.close(() => resolve());
      closingServer.closeAllConnections();
    });
    onClosed();
  }
  return startServiceOnce({
    name,
    async start(signal) {
      server = await openServer();
      signal.addEventListener("abort", () => void stopServer(), { once: true });
      if (signal.aborted) await stopServer();
    },
    stop: stopServer,
  });
}
