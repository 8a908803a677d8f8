import { format } from "node:util";
import { createLog, type Log, withoutCredentials } from "../../core/runtime/log.ts";
import { EXIT } from "./exit.ts";
import { createTerminal } from "./terminal.ts";

/** Log of the worker in this process; null before it starts. */
let workerLog: Log | null = null;

/**
 * Turns standard error into the log of a worker, where readers expect only JSON lines: warnings of Node.js and prints of
 * libraries become log lines. Standard output stays free for data.
 */
export function redirectStandardError(log: Log): void {
  workerLog = log;
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    const { code } = warning as { code?: string };
    log.warn({ warning: warning.name, code, text: withoutCredentials(warning.message) }, "the runtime warns");
  });
  const print = (...words: readonly unknown[]) =>
    log.warn({ text: withoutCredentials(format(...words)) }, "a library prints");
  for (const method of ["log", "info", "debug", "warn", "error", "trace"] as const) console[method] = print;
}

/**
 * Ends the process at an uncaught error, because its memory may be inconsistent. Committed data is on disk, and a service
 * manager restarts the process.
 */
export function exitOnUncaughtErrors(): void {
  const fail = (error: unknown) => {
    // The reader closed the pipe, as in `plenum alarms | head`.
    if ((error as NodeJS.ErrnoException | null)?.code === "EPIPE") process.exit(EXIT.ok);
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    createLog({ level: "fatal" }).fatal(
      { err: error, stack: withoutCredentials(stack ?? "") },
      "an uncaught error ends the process",
    );
    // The log of a worker contains the line above, and only JSON.
    if (workerLog !== null) process.exit(EXIT.failure);
    createTerminal({ json: false }).say(
      `Plenum has a fault of its own and ends: ${withoutCredentials(message)}. Please report it with the line above; what was committed is safe.`,
    );
    process.exit(EXIT.failure);
  };
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
}
