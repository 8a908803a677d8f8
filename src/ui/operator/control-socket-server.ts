import { chmodSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createAdaptorServer } from "@hono/node-server";
import type { Hono } from "hono";
import { ConfigError } from "../../core/errors/errors.ts";
import type { WorkerService } from "../../core/runtime/lifecycle.ts";
import { createListeningService, listen } from "../status/connection-limits.ts";
import { connectToWorker, findControlSocket, socketPath, withShortSocketPath } from "./control-socket-path.ts";

const MAX_SOCKET_CONNECTIONS = 64;

const SOCKET_SERVER_TIMEOUTS = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  // Interval at which Node.js looks for expired connections; a shorter one would wake an idle machine more often.
  connectionsCheckingInterval: 10_000,
  keepAliveTimeout: 1_000,
};

/** Lets any user who can read the state folder operate the worker. Never replaces the socket of a running worker. */
export function createControlSocket(options: { readonly stateFolder: string; readonly routes: Hono }): WorkerService {
  const { stateFolder, routes } = options;
  return createListeningService(
    "operator",
    async () => {
      await removeLeftoverSocket(stateFolder);
      const server = createAdaptorServer({ fetch: routes.fetch, serverOptions: SOCKET_SERVER_TIMEOUTS }) as Server;
      server.maxConnections = MAX_SOCKET_CONNECTIONS;
      await withShortSocketPath(stateFolder, (path) => listen(server, { path }, socketCreationError));
      if (process.platform !== "win32") chmodSync(socketPath(stateFolder), 0o600);
      return server;
    },
    () => removeSocket(stateFolder),
  );
}

async function removeLeftoverSocket(stateFolder: string): Promise<void> {
  if (process.platform === "win32" || findControlSocket(stateFolder) === "nothing") return;
  const connectErrorCode = await connectToWorker(stateFolder).then(
    (socket) => void socket.destroy(),
    (error: NodeJS.ErrnoException) => error.code,
  );
  if (connectErrorCode !== "ECONNREFUSED" && connectErrorCode !== "ENOENT")
    throw new ConfigError(`A program already listens on ${socketPath(stateFolder)}.`, {
      hint: "Another worker uses this state folder; stop it, or set state.folder to another folder for this one.",
    });
  removeSocket(stateFolder);
}

function removeSocket(stateFolder: string): void {
  if (process.platform !== "win32") rmSync(socketPath(stateFolder), { force: true });
}

function socketCreationError(error: NodeJS.ErrnoException): ConfigError {
  return new ConfigError(`The control socket cannot be created in the state folder (${error.code}).`, {
    hint: "Set state.folder to a folder on a local disk, which can hold a socket.",
    cause: error,
  });
}
