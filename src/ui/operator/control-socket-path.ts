import { lstatSync, mkdtempSync, rmdirSync, symlinkSync, unlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

/** Control socket in the state folder; on Windows a pipe named after the folder. */
const SOCKET_FILE_NAME = "operator.sock";

/** The longest path that every Unix can bind, in bytes; Linux takes 107, macOS 103. */
const MAX_SOCKET_PATH_BYTES = 100;

/** Loads built-in modules without an import wrapper, which makes the frequent health check a sixth cheaper. */
const loadNodeModule = process.getBuiltinModule;
const USES_WINDOWS_PIPES = process.platform === "win32";

export function socketPath(stateFolder: string): string {
  const folderPath = resolve(stateFolder);
  if (!USES_WINDOWS_PIPES) return join(folderPath, SOCKET_FILE_NAME);
  const pathDigest = loadNodeModule("node:crypto").createHash("sha256").update(folderPath.toLowerCase()).digest("hex");
  return `\\\\.\\pipe\\plenum-${pathDigest.slice(0, 32)}`;
}

/** Checks the socket's path. Throws ConfigError for anything but a socket, including a symbolic link to one. */
export function findControlSocket(stateFolder: string): "nothing" | "socket" {
  // A Windows pipe is no file; connecting shows whether it exists.
  if (USES_WINDOWS_PIPES) return "socket";
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
export async function withShortSocketPath<T>(stateFolder: string, use: (path: string) => Promise<T>): Promise<T> {
  const path = socketPath(stateFolder);
  if (USES_WINDOWS_PIPES || Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return use(path);
  const temporaryFolder = mkdtempSync(join(tmpdir(), "plenum-"));
  const stateFolderLink = join(temporaryFolder, "state");
  try {
    symlinkSync(resolve(stateFolder), stateFolderLink);
    try {
      return await use(join(stateFolderLink, SOCKET_FILE_NAME));
    } finally {
      unlinkSync(stateFolderLink);
    }
  } finally {
    rmdirSync(temporaryFolder);
  }
}

/** Connects to the worker in this folder. Rejects with the system's error; ECONNREFUSED means that no worker listens. */
export function connectToWorker(stateFolder: string, signal?: AbortSignal): Promise<Socket> {
  return withShortSocketPath(
    stateFolder,
    (path) =>
      new Promise((resolveWith, reject) => {
        const socket = loadNodeModule("node:net").connect({ path, ...(signal === undefined ? {} : { signal }) });
        socket.once("error", reject);
        socket.once("connect", () => {
          socket.off("error", reject);
          resolveWith(socket);
        });
      }),
  );
}
