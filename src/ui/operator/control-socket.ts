import { chmodSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createAdaptorServer, type ServerType } from "@hono/node-server";
import type { Hono } from "hono";
import { ConfigError } from "../../core/errors/errors.ts";
import { type Service, startedOnce } from "../../core/runtime/lifecycle.ts";
import { connectTo, lookAtSocket, socketIn, withShortPath } from "./socket.ts";

/** Command lines at once; a person has one, a script a few. */
const MOST_CONNECTIONS = 64;

/** Nobody but our own command line comes here, and it sends a request in one piece, milliseconds. */
const TIMES = {
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  // Also while nobody is connected, and each time wakes a machine that rests.
  connectionsCheckingInterval: 10_000,
  keepAliveTimeout: 1_000,
};

/**
 * The door of a running worker for the command line. Who may come in, the state folder's permissions say: whoever can
 * read the folder may operate, so there is no key besides.
 *
 * Only the worker that holds the folder's lock opens it, so a socket that is there belongs to one that was killed, and
 * is replaced. One behind which somebody listens all the same is never taken away.
 */
export function createControlSocket({
  stateFolder,
  routes,
}: {
  readonly stateFolder: string;
  readonly routes: Hono;
}): Service {
  let server: ServerType | undefined;

  async function close(): Promise<void> {
    const running = server;
    server = undefined;
    if (running === undefined) return;
    await new Promise<void>((resolve) => {
      running.close(() => resolve());
      if ("closeAllConnections" in running) running.closeAllConnections();
    });
    takeAway(stateFolder);
  }

  return startedOnce({
    name: "operator",
    async start(signal) {
      await makeRoom(stateFolder);
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

async function makeRoom(stateFolder: string): Promise<void> {
  if (process.platform === "win32" || lookAtSocket(stateFolder) === "nothing") return;
  if (await isAnswered(stateFolder)) {
    throw new ConfigError(`Somebody answers at ${socketIn(stateFolder)} already.`, {
      hint: "Another worker uses this state folder; stop it, or set state.folder to another folder for this one.",
    });
  }
  takeAway(stateFolder);
}

async function isAnswered(stateFolder: string): Promise<boolean> {
  try {
    (await connectTo(stateFolder)).destroy();
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== "ECONNREFUSED" && code !== "ENOENT";
  }
}

function takeAway(stateFolder: string): void {
  if (process.platform !== "win32") rmSync(socketIn(stateFolder), { force: true });
}

function listen(server: ServerType, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      reject(
        new ConfigError(
          `The door for the command line cannot be opened in the state folder (${error.code}).`,
          {
            hint: "Set state.folder to a folder on a local disk, which can hold a socket.",
            cause: error,
          },
        ),
      );
    });
    server.listen(path, () => resolve());
  });
}
