#!/usr/bin/env node
// Before anything that imports node:http.
import "./shell/one-undici.ts";
import { CommanderError, InvalidArgumentError } from "commander";
import { createProgram } from "./program.ts";
import { asCalled } from "./shell/called.ts";
import { complaint, EXIT, exitCodeOf } from "./shell/exit.ts";
import { watchForFaults } from "./shell/last-resort.ts";
import { createTerminal } from "./shell/terminal.ts";

/** How long what some library forgot may keep a finished command from ending, in milliseconds. */
const END_WITHIN_MS = 1_000;

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    // The first asks, the second insists.
    if (stopping.signal.aborted) process.exit(EXIT.failure);
    stopping.abort();
  });
}
watchForFaults();

const program = createProgram(stopping.signal, process.env);
try {
  await program.parseAsync();
} catch (error) {
  const { json, utc } = program.opts();
  const { say } = createTerminal({ json: json === true, utc: utc === true });
  if (stopping.signal.aborted) say("Stopped before it was done.");
  // Commander has said what is wrong with the command line by itself, unless a command found it out.
  else if (!(error instanceof CommanderError) || error instanceof InvalidArgumentError)
    say(...complaint(error).map((line) => asCalled(line)));
  process.exitCode = stopping.signal.aborted ? EXIT.failure : exitCodeOf(error);
}
setTimeout(() => process.exit(), END_WITHIN_MS).unref();
