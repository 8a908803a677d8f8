import { pathToFileURL } from "node:url";

/** Runs commands in one process: the start of a process is nine tenths of a short command. */
export interface HostedCommand {
  readonly args: readonly string[];
  readonly folder: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const WATCHED_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "uncaughtException", "unhandledRejection"] as const;

const main = pathToFileURL(process.argv[2] ?? "").href;
let commands = 0;

async function run({ args, folder, environment }: HostedCommand): Promise<CommandResult> {
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    process[name].write = ((text: string | Uint8Array) => {
      output[name] += typeof text === "string" ? text : Buffer.from(text).toString();
      return true;
    }) as typeof process.stdout.write;
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
  process.chdir(folder);
  process.argv = [process.execPath, main, ...args];
  process.exitCode = undefined;
  const exitSignal = Promise.withResolvers<void>();
  process.exit = ((code?: number) => {
    // Without a code it is the end of an earlier command.
    if (code === undefined) return;
    process.exitCode = code;
    exitSignal.resolve();
  }) as typeof process.exit;
  commands += 1;
  // Another address is another module, so the program runs again.
  import(`${main}?command=${commands}`).then(() => exitSignal.resolve(), exitSignal.reject);
  await exitSignal.promise;
  for (const name of WATCHED_SIGNALS) process.removeAllListeners(name);
  return { code: Number(process.exitCode ?? 0), ...output };
}

process.on("message", (request: HostedCommand) => {
  void run(request).then((result) => process.send?.(result));
});
process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
