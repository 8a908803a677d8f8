import { chmodSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createAdaptorServer, type ServerType } from "@hono/node-server";
import type { Hono } from "hono";
import { ConfigError } from "../../core/errors/errors.ts";
import { type Service, startedOnce } from "../../core/runtime/lifecycle.ts";
import { connectTo, lookAtSocket, socketIn, withShortPath } from "./socket.ts";

/** Most simultaneous command lines: a person has one, a script a few. */
const MOST_CONNECTIONS = 64;

/** Time limits in milliseconds. Only the command line connects, and it sends each request at once. */
const TIMES = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  // The timer runs without connections, too, and each run wakes an idle machine.
  connectionsCheckingInterval: 10_000,
  keepAliveTimeout: 1_000,
};

/**
 * Control socket of a running worker for the command line. The permissions of the state folder decide who may connect: a user who
 * can read the folder may operate the worker.
 *
 * Only the worker that holds the folder's lock creates the socket. A leftover socket of a killed worker is replaced; one with a
 * listener is never removed.
 */
export function createControlSocket(options: { readonly stateFolder: string; readonly routes: Hono }): Service {
  const { stateFolder, routes } = options;
  let server: ServerType | undefined;

  async function close(): Promise<void> {
    const running = server;
    server = undefined;
    if (running === undefined) return;
    await new Promise<void>((resolve) => {
      running.close(() => resolve());
      if ("closeAllConnections" in running) running.closeAllConnections();
    });
    removeSocket(stateFolder);
  }

  return startedOnce({
    name: "operator",
    async start(signal) {
      await removeLeftover(stateFolder);
      const created = createAdaptorServer({ fetch: routes.fetch, createServer, serverOptions: TIMES });
      (created as ReturnType<typeof createServer>).maxConnections = MOST_CONNECTIONS;
      await withShortPath(stateFolder, (path) => listen(created, path));
      if (process.platform !== "win32") chmodSync(socketIn(stateFolder), 0o600);
      server = created;
      signal.addEventListener("abort", () => void close(), { once: true });
      if (signal.aborted) await close();
    },
    stop: close,
  });
}

/** Removes the socket of a killed worker. Throws ConfigError if a worker listens on it. */
async function removeLeftover(stateFolder: string): Promise<void> {
  if (process.platform === "win32" || lookAtSocket(stateFolder) === "nothing") return;
  const code = await connectTo(stateFolder).then(
    (socket) => void socket.destroy(),
    (error: NodeJS.ErrnoException) => error.code,
  );
  if (code !== "ECONNREFUSED" && code !== "ENOENT") {
    throw new ConfigError(`A program already listens on ${socketIn(stateFolder)}.`, {
      hint: "Another worker uses this state folder; stop it, or set state.folder to another folder for this one.",
    });
  }
  removeSocket(stateFolder);
}

function removeSocket(stateFolder: string): void {
  if (process.platform !== "win32") rmSync(socketIn(stateFolder), { force: true });
}

function listen(server: ServerType, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        new ConfigError(`The control socket cannot be created in the state folder (${error.code}).`, {
          hint: "Set state.folder to a folder on a local disk, which can hold a socket.",
          cause: error,
        }),
      ),
    );
    server.listen(path, () => resolve());
  });
}
