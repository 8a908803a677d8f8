import { createLog, withoutCredentials } from "../../core/runtime/log.ts";
import { EXIT } from "./exit.ts";
import { logOfWorker } from "./log-stream.ts";
import { createTerminal } from "./terminal.ts";

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
