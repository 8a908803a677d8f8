import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { connectTo, lookAtSocket } from "../../ui/operator/socket.ts";
import { lookForPointers } from "./pointer.ts";

/** How long a worker may take to answer, milliseconds; then the whole command asks again and says what is wrong. */
const ANSWER_WITHIN_MS = 4_000;

/**
 * True where these are the arguments of `plenum status --probe` and a worker of the configuration file is ready: at a tenth
 * of the cost of the command, which loads 3 MB of program and reads the configuration. Every other case is the command's.
 */
export async function isReady(
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): Promise<boolean> {
  const configFile = probedConfig(args, environment);
  if (configFile === null) return false;
  for (const { isFleet, stateFolder } of lookForPointers(configFile)) {
    try {
      for (const folder of isFleet ? [stateFolder, ...foldersIn(stateFolder)] : [stateFolder])
        if (!isOpenToOthers(folder) && lookAtSocket(folder) === "socket" && (await answersReady(folder)))
          return true;
    } catch {
      // The command finds out what is wrong.
    }
  }
  return false;
}

/** The configuration file of a probe; null for any other command line. */
function probedConfig(
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): string | null {
  let file = environment.PLENUM_CONFIG ?? "plenum.yaml";
  const words: string[] = [];
  for (let n = 0; n < args.length; n++) {
    const [name, value] = args[n]?.split(/=(.*)/s) ?? [];
    if (name === "--config" || args[n] === "-c") {
      file = value ?? args[n + 1] ?? "";
      if (value === undefined) n += 1;
    } else words.push(args[n] ?? "");
  }
  return file !== "" && words.toSorted().join(" ") === "--probe status" ? file : null;
}

function foldersIn(folder: string): readonly string[] {
  const entries = readdirSync(folder, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(folder, name));
}

/** Anybody could answer there. */
function isOpenToOthers(folder: string): boolean {
  return process.platform !== "win32" && (statSync(folder).mode & 0o022) !== 0;
}

async function answersReady(stateFolder: string): Promise<boolean> {
  const socket = await connectTo(stateFolder);
  // By hand, because to load `node:http` takes longer than all the rest.
  socket.setEncoding("utf8").end("GET /ready HTTP/1.0\r\nhost: plenum\r\n\r\n");
  const limit = setTimeout(() => socket.destroy(new Error("No answer in time.")), ANSWER_WITHIN_MS);
  const answer = await new Promise<string>((resolve, reject) => {
    let received = "";
    socket.on("data", (text) => {
      received += text;
    });
    socket.once("end", () => resolve(received)).once("error", reject);
  });
  clearTimeout(limit);
  const [head = "", body = ""] = answer.split("\r\n\r\n");
  return /^HTTP\/1\.. 200 /.test(head) && (JSON.parse(body) as { readonly result: unknown }).result === null;
}
