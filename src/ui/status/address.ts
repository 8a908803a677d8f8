import { createServer } from "node:net";
import { ConfigError } from "../../core/errors/errors.ts";

/** Why the status page cannot listen on its address, and what to do. */
export function addressTrouble(error: NodeJS.ErrnoException, host: string, port: number): ConfigError {
  const isOwn = error.code !== "EADDRNOTAVAIL" && error.code !== "ENOTFOUND";
  const why = error.code === "EADDRINUSE" ? "is in use by another program" : `cannot be used (${error.code})`;
  const hint = isOwn
    ? "Set status.port to a free port, or to 0 for any free one."
    : "Set status.host to an address of this machine, such as 127.0.0.1.";
  return new ConfigError(`The status page's address ${host}:${port} ${why}.`, { hint, cause: error });
}

/** Listens for a moment where the status page would. Throws ConfigError where that does not work. */
export async function tryAddress(host: string, port: number): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(addressTrouble(error, host, port)));
    server.listen(port, host, () => server.close(() => resolve()));
  });
}
