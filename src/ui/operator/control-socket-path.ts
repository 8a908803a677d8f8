import { lstatSync, mkdtempSync, rmdirSync, symlinkSync, unlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

const SOCKET_FILE_NAME = "operator.sock";

/** Linux allows 107 bytes in the path of a socket, macOS 103. */
const MAX_SOCKET_PATH_BYTES = 100;

/** Loading built-in modules this way makes the frequent health check a sixth cheaper than an import. */
const loadNodeModule = process.getBuiltinModule;
const USES_WINDOWS_PIPES = process.platform === "win32";

export function socketPath(stateFolder: string): string {
  const folderPath = resolve(stateFolder);
  if (!USES_WINDOWS_PIPES) return join(folderPath, SOCKET_FILE_NAME);
  const pathDigest = loadNodeModule("node:crypto").createHash("sha256").update(folderPath.toLowerCase()).digest("hex");
  return `\\\\.\\pipe\\plenum-${pathDigest.slice(0, 32)}`;
}

/** Throws ConfigError if the path contains anything but a socket, such as a symbolic link to a socket. */
export function findControlSocket(stateFolder: string): "nothing" | "socket" {
  // A Windows pipe is no file; only a connection shows whether the pipe exists.
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

/** Links the state folder from a temporary private folder if the path is too long: /tmp/plenum-a1B2c3/state/operator.sock. */
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

/** Rejects with the system's error; ECONNREFUSED means that no worker listens on the socket. */
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
