import { once } from "node:events";
import { lstatSync, mkdtempDisposableSync, symlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

const SOCKET_FILE_NAME = "operator.sock";

/** Linux allows 107 bytes in the path of a socket, macOS 103. */
const MAX_SOCKET_PATH_BYTES = 100;

/** Loads a module of Node.js only when it is needed, which makes the frequent health check a sixth cheaper. */
const loadNodeModule = process.getBuiltinModule;
const USES_WINDOWS_PIPES = process.platform === "win32";

export function socketPath(stateFolder: string): string {
  const folderPath = resolve(stateFolder);
  if (!USES_WINDOWS_PIPES) return join(folderPath, SOCKET_FILE_NAME);
  const pathDigest = loadNodeModule("node:crypto").createHash("sha256").update(folderPath.toLowerCase()).digest("hex");
  return `\\\\.\\pipe\\plenum-${pathDigest.slice(0, 32)}`;
}

/** Finds the control socket of a worker. Throws ConfigError if another kind of file has its path. */
export function findControlSocket(stateFolder: string): "nothing" | "socket" {
  // A Windows pipe is no file; only a connection shows whether the pipe exists.
  if (USES_WINDOWS_PIPES) return "socket";
  const socketFilePath = socketPath(stateFolder);
  let fileStats: ReturnType<typeof lstatSync> | undefined;
  try {
    fileStats = lstatSync(socketFilePath, { throwIfNoEntry: false });
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
  throw new ConfigError(`${socketFilePath} is not a socket, and no worker has put it there.`, {
    hint: "Find out who did, and take it away.",
  });
}

/** Calls `usePath` with the socket's path; links a too long path, as in /tmp/plenum-a1B2c3/state/operator.sock. */
export async function withShortSocketPath<T>(stateFolder: string, usePath: (path: string) => Promise<T>): Promise<T> {
  const path = socketPath(stateFolder);
  if (USES_WINDOWS_PIPES || Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return usePath(path);
  using temporaryFolder = mkdtempDisposableSync(join(tmpdir(), "plenum-"));
  const stateFolderLink = join(temporaryFolder.path, "state");
  symlinkSync(resolve(stateFolder), stateFolderLink);
  return await usePath(join(stateFolderLink, SOCKET_FILE_NAME));
}

/** Connects to the control socket. Rejects with ECONNREFUSED if no worker listens on it. */
export function connectToWorker(stateFolder: string, signal?: AbortSignal): Promise<Socket> {
  return withShortSocketPath(stateFolder, async (path) => {
    const socket = loadNodeModule("node:net").connect({ path, ...(signal === undefined ? {} : { signal }) });
    await once(socket, "connect");
    return socket;
  });
}
