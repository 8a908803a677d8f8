import { format } from "node:util";
import { createLog, type Log, withoutCredentials } from "../../core/runtime/log.ts";
import { EXIT } from "./exit.ts";
import { createTerminal } from "./terminal.ts";

/** Where a fault that nobody caught is told once a worker has a log; null until then. */
let workerLog: Log | null = null;

/**
 * From here on standard error is the log of a worker: whoever reads it expects a JSON line and nothing else. What the
 * runtime warns about, and what a library prints past us, becomes one. (Standard output belongs to the data.)
 */
export function takeStandardError(log: Log): void {
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

/** The log of the worker that this process is, if it is one. */
function logOfWorker(): Log | null {
  return workerLog;
}

/**
 * What nobody caught is a fault of the program: it ends at once, because nobody knows what is still true in memory.
 * What is committed is on disk, and a service manager starts it again.
 */
export function watchForFaults(): void {
  const fail = (error: unknown) => {
    // `plenum alarms | head`: the reader has had enough.
    if ((error as NodeJS.ErrnoException | null)?.code === "EPIPE") process.exit(EXIT.ok);
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    createLog({ level: "fatal" }).fatal(
      { err: error, stack: withoutCredentials(stack ?? "") },
      "a fault that nobody caught ends the process",
    );
    // In the log of a worker the line above has said it, and a sentence would not be one of JSON.
    if (logOfWorker() !== null) process.exit(EXIT.failure);
    createTerminal({ json: false }).say(
      `Plenum has a fault of its own and ends: ${withoutCredentials(message)}. Please report it with the line above; what was committed is safe.`,
    );
    process.exit(EXIT.failure);
  };
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
}
