import { format } from "node:util";
import { type Log, withoutCredentials } from "../../core/runtime/log.ts";

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
export function logOfWorker(): Log | null {
  return workerLog;
}
