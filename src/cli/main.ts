#!/usr/bin/env node
import { Command, CommanderError } from "commander";
import { Settings } from "luxon";
import { VERSION } from "../version.ts";
import { addAlarms } from "./alarms.ts";
import { addAudit } from "./audit.ts";
import { addCheck } from "./check.ts";
import { createCliContext } from "./context.ts";
import { addDemo } from "./demo.ts";
import { complaint, EXIT, exitCodeOf } from "./exit.ts";
import { addHistory } from "./history.ts";
import { addOutbox } from "./outbox.ts";
import { addRead } from "./read.ts";
import { addRun } from "./run.ts";
import { addSchema } from "./schema.ts";
import { addSimulate } from "./simulate.ts";
import { addSites } from "./sites.ts";
import { addStatus } from "./status.ts";
import { addWrite } from "./write.ts";
import { addWrites } from "./writes.ts";

Settings.throwOnInvalid = false;

const program = new Command("plenum")
  .description("Connects a building-automation monitoring service to MQTT, InfluxDB, webhooks and files.")
  .version(VERSION)
  .option("-c, --config <file>", "configuration file", process.env.PLENUM_CONFIG ?? "plenum.yaml")
  .option("--json", "print data as JSON")
  .showHelpAfterError("(plenum --help shows what there is)")
  .showSuggestionAfterError()
  .exitOverride()
  .addHelpText(
    "after",
    "\nExamples:\n  plenum demo\n  plenum check --config plenum.yaml\n  plenum read 10001 10002 --json\n" +
      "\nExit codes: 0 done, 1 tried and failed, 2 wrong command line, 75 not available now, 78 configuration.",
  );

const stopping = new AbortController();
const context = createCliContext(program, stopping.signal);
for (const add of [addDemo, addRun, addCheck, addSites, addAlarms, addRead, addHistory, addWrite])
  add(program, context);
for (const add of [addOutbox, addStatus, addWrites, addAudit, addSimulate]) add(program, context);
addSchema(program);
for (const command of program.commands) command.exitOverride().option("--json", "print data as JSON");

process.once("SIGTERM", () => stopping.abort());
process.on("SIGINT", () => {
  // The first Ctrl-C asks, the second insists.
  if (stopping.signal.aborted) process.exit(EXIT.failure);
  stopping.abort();
});

try {
  await program.parseAsync();
} catch (error) {
  // Commander has said what is wrong with the command line by itself.
  if (!(error instanceof CommanderError)) process.stderr.write(`${complaint(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
