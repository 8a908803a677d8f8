import { lstatSync, mkdtempSync, rmdirSync, symlinkSync, unlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

/** Control socket in the state folder; on Windows a pipe named after the folder. */
const SOCKET_NAME = "operator.sock";

/** The longest path that every Unix can bind, in bytes; Linux takes 107, macOS 103. */
const LONGEST_PATH_BYTES = 100;

/** Loads built-in modules without an import wrapper, which makes the frequent health check a sixth cheaper. */
const loadBuiltIn = process.getBuiltinModule;
const HAS_PIPES = process.platform === "win32";

export function socketPath(stateFolder: string): string {
  const folder = resolve(stateFolder);
  if (!HAS_PIPES) return join(folder, SOCKET_NAME);
  const digest = loadBuiltIn("node:crypto").createHash("sha256").update(folder.toLowerCase()).digest("hex");
  return `\\\\.\\pipe\\plenum-${digest.slice(0, 32)}`;
}

/** Checks the socket's path. Throws ConfigError for anything but a socket, including a symbolic link to one. */
export function findSocket(stateFolder: string): "nothing" | "socket" {
  // A Windows pipe is no file; connecting shows whether it exists.
  if (HAS_PIPES) return "socket";
  const path = socketPath(stateFolder);
  let fileStats: ReturnType<typeof lstatSync> | undefined;
  try {
    fileStats = lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOTDIR") return "nothing";
    throw new ConfigError(`The state folder ${stateFolder} cannot be looked into (${code}).`, {
      hint: "Run this as the user that runs the worker.",
      cause: error,
    });
  }
  if (fileStats === undefined) return "nothing";
  if (fileStats.isSocket()) return "socket";
  throw new ConfigError(`${path} is not a socket, and no worker has put it there.`, {
    hint: "Find out who did, and take it away.",
  });
}

/**
 * Passes a path that is short enough to be bound or connected. For a longer one, it creates a temporary private folder with a
 * symbolic link to the state folder: /tmp/plenum-a1B2c3/state/operator.sock.
 */
export async function withShortPath<T>(stateFolder: string, use: (path: string) => Promise<T>): Promise<T> {
  const path = socketPath(stateFolder);
  if (HAS_PIPES || Buffer.byteLength(path) <= LONGEST_PATH_BYTES) return use(path);
  const folder = mkdtempSync(join(tmpdir(), "plenum-"));
  const link = join(folder, "state");
  try {
    symlinkSync(resolve(stateFolder), link);
    try {
      return await use(join(link, SOCKET_NAME));
    } finally {
      unlinkSync(link);
    }
  } finally {
    rmdirSync(folder);
  }
}

/** Connects to the worker in this folder. Rejects with the system's error; ECONNREFUSED means that no worker listens. */
export function connectToWorker(stateFolder: string, signal?: AbortSignal): Promise<Socket> {
  return withShortPath(
    stateFolder,
    (path) =>
      new Promise((resolveWith, reject) => {
        const socket = loadBuiltIn("node:net").connect({ path, ...(signal === undefined ? {} : { signal }) });
        socket.once("error", reject);
        socket.once("connect", () => {
          socket.off("error", reject);
          resolveWith(socket);
        });
      }),
  );
}
