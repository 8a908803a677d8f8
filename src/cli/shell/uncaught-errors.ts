import { format } from "node:util";
import { createLog, type Log, maskCredentials } from "../../core/runtime/log.ts";
import { EXIT_CODE } from "./exit-codes.ts";
import { createTerminal } from "./terminal-output.ts";

let workerLog: Log | null = null;

/** Writes warnings of Node.js and output of libraries to the log, so that standard error has JSON lines only. */
export function redirectStandardError(log: Log): void {
  workerLog = log;
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    const { code } = warning as { code?: string };
    log.warn({ warning: warning.name, code, text: maskCredentials(warning.message) }, "the runtime warns");
  });
  const logLibraryOutput = (...words: readonly unknown[]) =>
    log.warn({ text: maskCredentials(format(...words)) }, "a library prints");
  for (const method of ["log", "info", "debug", "warn", "error", "trace"] as const) console[method] = logLibraryOutput;
}

/** Ends the process, because its memory may be inconsistent after an uncaught error; committed data is on disk. */
export function exitOnUncaughtErrors(): void {
  const exitOnError = (error: unknown) => {
    // The reader closed the pipe, as in `plenum alarms | head`.
    if ((error as NodeJS.ErrnoException | null)?.code === "EPIPE") process.exit(EXIT_CODE.ok);
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    createLog({ level: "fatal" }).fatal(
      { err: error, stack: maskCredentials(stack ?? "") },
      "an uncaught error ends the process",
    );
    if (workerLog !== null) process.exit(EXIT_CODE.failure);
    createTerminal({ json: false }).info(
      `Plenum has a fault of its own and ends: ${maskCredentials(message)}. Please report it with the line above; what was committed is safe.`,
    );
    process.exit(EXIT_CODE.failure);
  };
  process.on("uncaughtException", exitOnError);
  process.on("unhandledRejection", exitOnError);
}
