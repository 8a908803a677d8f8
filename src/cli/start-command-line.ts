import "./shell/prevent-second-undici.ts";
import { CommanderError, InvalidArgumentError } from "commander";
import { createProgram } from "./command-line-program.ts";
import { EXIT_CODE, formatErrorLines, insertProgramName, toExitCode } from "./shell/exit-codes.ts";
import { createTerminal } from "./shell/terminal-output.ts";
import { exitOnUncaughtErrors } from "./shell/uncaught-errors.ts";

/** Maximum time for which the exit waits for a program that reads the output slowly. */
const EXIT_TIMEOUT_MS = 1_000;

export async function runCommandLine(): Promise<never> {
  const stopController = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.on(signal, () => {
      if (stopController.signal.aborted) process.exit(EXIT_CODE.failure);
      stopController.abort();
    });
  exitOnUncaughtErrors();

  const program = createProgram(stopController.signal, process.env);
  try {
    await program.parseAsync();
  } catch (error) {
    const { json, utc } = program.opts();
    const { info: printLines } = createTerminal({ json: json === true, utc: utc === true });
    if (stopController.signal.aborted) printLines("Stopped before the command was done.");
    else if (!(error instanceof CommanderError) || error instanceof InvalidArgumentError)
      printLines(...formatErrorLines(error).map((line) => insertProgramName(line)));
    process.exitCode = stopController.signal.aborted ? EXIT_CODE.failure : toExitCode(error);
  }
  // Exit after 1 s even if a library still has a running timer.
  setTimeout(() => process.exit(), EXIT_TIMEOUT_MS).unref();
  // Wait for an empty write, which ends after all earlier writes. Node.js emits `drain` only after a full buffer.
  for (const stream of [process.stdout, process.stderr])
    if (stream.writableLength > 0) await new Promise((resolve) => stream.once("close", resolve).write("", resolve));
  process.exit();
}
