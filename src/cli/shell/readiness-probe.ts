import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { connectToWorker, findControlSocket } from "../../ui/operator/control-socket-path.ts";
import { trustedPointers } from "./worker-location-file.ts";

/** Time limit of the fast readiness check; then the complete `plenum status --probe` runs and reports the problem. */
const RESPONSE_TIMEOUT_MS = 4_000;

/** Returns true if the worker is ready. Needs a tenth of the time of the complete `plenum status --probe`. */
export async function isWorkerReady(args: readonly string[], environment: ProcessEnv): Promise<boolean> {
  const configFile = probedConfigFile(args, environment);
  if (configFile === null) return false;
  for (const { isFleet, stateFolder } of trustedPointers(configFile)) {
    try {
      for (const folder of isFleet ? [stateFolder, ...listSubfolders(stateFolder)] : [stateFolder])
        if (!isWritableByOthers(folder) && findControlSocket(folder) === "socket" && (await workerReportsReady(folder)))
          return true;
    } catch {
      // Ignore the error, because the complete `plenum status --probe` reports the problem.
    }
  }
  return false;
}

function probedConfigFile(args: readonly string[], environment: ProcessEnv): string | null {
  const options = { config: { type: "string", short: "c" }, probe: { type: "boolean" } } as const;
  const { values, positionals } = parseArgs({ args: [...args], options, strict: false });
  const { config: file = environment.PLENUM_CONFIG ?? "plenum.yaml", probe, ...otherOptions } = values;
  const isProbe = probe === true && positionals.join(" ") === "status" && Object.keys(otherOptions).length === 0;
  return isProbe && typeof file === "string" && file !== "" ? file : null;
}

export function listSubfolders(folder: string): readonly string[] {
  try {
    const folderEntries = readdirSync(folder, { withFileTypes: true });
    return folderEntries.filter((entry) => entry.isDirectory()).map(({ name }) => join(folder, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** In a folder that other users can write to, another user could respond in place of the worker. */
function isWritableByOthers(folder: string): boolean {
  return process.platform !== "win32" && (statSync(folder).mode & 0o022) !== 0;
}

async function workerReportsReady(stateFolder: string): Promise<boolean> {
  const socket = await connectToWorker(stateFolder);
  // The request is written without `node:http`, whose loading takes longer than the request.
  socket.setEncoding("utf8").end("GET /ready HTTP/1.0\r\nhost: plenum\r\n\r\n");
  const timeoutTimer = setTimeout(() => socket.destroy(new Error("No answer in time.")), RESPONSE_TIMEOUT_MS);
  const responseText = await new Promise<string>((resolve, reject) => {
    let receivedText = "";
    socket.on("data", (text) => {
      receivedText += text;
    });
    socket.once("end", () => resolve(receivedText)).once("error", reject);
  });
  clearTimeout(timeoutTimer);
  const [statusAndHeaders = "", body = ""] = responseText.split("\r\n\r\n");
  return (
    /^HTTP\/1\.. 200 /.test(statusAndHeaders) && (JSON.parse(body) as { readonly result: unknown }).result === null
  );
}
