import { Command } from "commander";
import { VERSION } from "../version.ts";
import { addAlarms } from "./alarms.ts";
import { addAudit } from "./audit.ts";
import { addBackfill } from "./backfill.ts";
import { addCheck } from "./check.ts";
import { createCliContext } from "./context.ts";
import { addDemo } from "./demo.ts";
import { addExplain } from "./explain.ts";
import { addGaps } from "./gaps.ts";
import { addHistory } from "./history.ts";
import { addOutbox } from "./outbox.ts";
import { addPlan } from "./plan.ts";
import { addRead } from "./read.ts";
import { addRun } from "./run.ts";
import { addSchema } from "./schema.ts";
import { addSilenceCommands } from "./silence.ts";
import { addSimulate } from "./simulate.ts";
import { addSink } from "./sink.ts";
import { addSites } from "./sites.ts";
import { addState } from "./state.ts";
import { addStatus } from "./status.ts";
import { parserOutput } from "./terminal.ts";
import { addWrite } from "./write.ts";
import { addWrites } from "./writes.ts";

/** Every command. `signal` aborts on Ctrl-C; `environment` may name the configuration file by PLENUM_CONFIG. */
export function createProgram(
  signal: AbortSignal,
  environment: Readonly<Record<string, string | undefined>>,
): Command {
  const program = new Command("plenum")
    .description("Connects a building-automation monitoring service to MQTT, InfluxDB, webhooks and files.")
    .version(VERSION)
    .option(
      "-c, --config <file>",
      "configuration file; also by PLENUM_CONFIG",
      environment.PLENUM_CONFIG ?? "plenum.yaml",
    )
    .option("--json", "print data as JSON")
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError("(plenum --help shows what there is)")
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput(parserOutput())
    .addHelpText(
      "after",
      "\nExamples:\n  plenum demo\n  plenum check --config plenum.yaml\n  plenum read 10001 10002 --json\n" +
        "\nExit codes: 0 done, 1 tried and failed, 2 wrong command line, 75 not available now, 78 configuration.",
    );
  const context = createCliContext(program, signal);
  for (const add of [addDemo, addRun, addCheck, addSites, addAlarms, addRead, addHistory, addWrite])
    add(program, context);
  for (const add of [addOutbox, addSink, addSilenceCommands, addStatus, addWrites, addAudit, addSimulate])
    add(program, context);
  for (const add of [addPlan, addGaps, addBackfill, addExplain, addState]) add(program, context);
  addSchema(program, context);
  return program;
}
