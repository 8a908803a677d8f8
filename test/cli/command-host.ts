import { pathToFileURL } from "node:url";

/**
 * A process that is the command line over and over: it is told a command, runs `main.js` of the bundle for it as Node.js
 * would for a new process, in that folder and with those variables, and answers with what it printed and its exit code.
 * The start of a process is nine tenths of a short command. `Workplace.plenum` starts it: `node command-host.ts MAIN`.
 */
export interface Asked {
  readonly args: readonly string[];
  readonly folder: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a program adds for as long as it lives. */
const LISTENED = ["SIGINT", "SIGTERM", "SIGHUP", "uncaughtException", "unhandledRejection"] as const;

const main = pathToFileURL(process.argv[2] ?? "").href;
let commands = 0;

async function run({ args, folder, environment }: Asked): Promise<Ended> {
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    process[name].write = ((text: string | Uint8Array) => {
      printed[name] += typeof text === "string" ? text : Buffer.from(text).toString();
      return true;
    }) as typeof process.stdout.write;
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
  process.chdir(folder);
  process.argv = [process.execPath, main, ...args];
  process.exitCode = undefined;
  const ended = Promise.withResolvers<void>();
  process.exit = ((code?: number) => {
    // Without a code it is the end of a command that is long over, whose process something would have kept.
    if (code === undefined) return;
    process.exitCode = code;
    ended.resolve();
  }) as typeof process.exit;
  commands += 1;
  // Another address is another module: it runs anew, and what it imports is what the last one imported.
  import(`${main}?command=${commands}`).then(() => ended.resolve(), ended.reject);
  await ended.promise;
  for (const name of LISTENED) process.removeAllListeners(name);
  return { code: Number(process.exitCode ?? 0), ...printed };
}

process.on("message", (asked: Asked) => {
  void run(asked).then((answered) => process.send?.(answered));
});
process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
