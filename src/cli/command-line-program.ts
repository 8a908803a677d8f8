import { Command, Help } from "commander";
import { VERSION } from "../core/runtime/version.ts";
import type { CliContext } from "./shell/command-context.ts";
import { EXIT_CODES_TEXT } from "./shell/exit-codes.ts";
import { createParserOutput } from "./shell/terminal-output.ts";

type DefineCommand = (command: Command, context: CliContext) => void;

const COMMAND_DESCRIPTIONS = {
  demo: "run a demo: simulator, broker, worker and page in one process, without a configuration",
  "init [address]": "create a configuration for a building from an address and a token",
  run: "run the worker until Ctrl-C or SIGTERM",
  reload: "make the running worker read its configuration file again, or show what would change",
  check: "check the configuration, the token, the building and every sink, without writing an event",
  sites: "list the sites that the token can see",
  alarms: "list alarms as the service shows them now",
  "tags [id...]": "list and search the tags that can be selected, with class, log and last value",
  names: "print or write the names file of a source, with names from Nordic component codes; check it",
  "gateways [id...]": "list and search gateways, and whether they are online",
  "hosts [id...]": "list and search hosts (devices)",
  "systems [id...]": "list and search technical systems, whose ids `select` takes",
  "read <tag...>": "read the present values of tags (one request of the quota for every 20)",
  "history <tag...>": "fetch logged history of up to 20 tags (one request of the quota)",
  "write <tag> <value>": "write a tag through the running worker's gate, and wait for the result",
  events: "show the log of events, with filters; --follow continues with new events",
  outbox: "show what each sink still has to receive, and what it refused",
  sink: "try one sink",
  silence: "set times in which alarms create no tickets, messages or pages",
  status: "show the status: sources, sinks and their lag, quota, alarms",
  writes: "show locks; control writing to buildings: arm, stop, lock, approve, second",
  audit: "show the log of every command and its result",
  simulate: "run the simulator of the monitoring service, replaying real building readings",
  plan: "plan the quota: requests by lane, freshness of each class, end of the backfill",
  "gaps [tag...]": "list gaps in the followed history, with the reason",
  complete: "show whether a day is complete: buckets expected, fetched, without a value, refused, pending",
  "backfill [tag...]": "fetch a range of the past next to live reads, or show the progress",
  "export [tag...]": "write history once as the tables of the lake, into a folder, with no worker and no sink",
  "explain <id>": "explain the state of a tag or an alarm: requests, what is due next, what was skipped, sinks",
  state: "check the state for damage, salvage undelivered events from a damaged file, move it into a database",
  fleet: "show the members of a fleet, their sources and takeovers; drain a member before maintenance",
  man: "print the manual page",
  schema: "print the JSON schema of the configuration, for editors",
} as const;

/** Commands are imported when they run, so that a worker does not hold the other commands in memory. */
const COMMAND_DEFINITIONS: Readonly<Record<keyof typeof COMMAND_DESCRIPTIONS, () => Promise<DefineCommand>>> = {
  demo: async () => (await import("./running/demo-command.ts")).defineCommand,
  "init [address]": async () => (await import("./running/init-command.ts")).defineCommand,
  run: async () => (await import("./running/run-command.ts")).defineCommand,
  reload: async () => (await import("./running/reload-command.ts")).defineCommand,
  check: async () => (await import("./checking/check-command.ts")).defineCommand,
  sites: async () => (await import("./building/object-list-commands.ts")).defineSitesCommand,
  alarms: async () => (await import("./building/object-list-commands.ts")).defineAlarmsCommand,
  "tags [id...]": async () => (await import("./building/tags-command.ts")).defineCommand,
  names: async () => (await import("./building/tag-names-file-command.ts")).defineCommand,
  "gateways [id...]": async () => (await import("./building/object-list-commands.ts")).defineGatewaysCommand,
  "hosts [id...]": async () => (await import("./building/object-list-commands.ts")).defineHostsCommand,
  "systems [id...]": async () => (await import("./building/object-list-commands.ts")).defineSystemsCommand,
  "read <tag...>": async () => (await import("./building/read-and-history-commands.ts")).defineReadTagsCommand,
  "history <tag...>": async () => (await import("./building/read-and-history-commands.ts")).defineHistoryCommand,
  "write <tag> <value>": async () => (await import("./writing/write-tag-command.ts")).defineCommand,
  events: async () => (await import("./watching/events-command.ts")).defineCommand,
  outbox: async () => (await import("./watching/outbox-and-sink-commands.ts")).defineOutboxCommand,
  sink: async () => (await import("./watching/outbox-and-sink-commands.ts")).defineSinkCommand,
  silence: async () => (await import("./watching/silence-command.ts")).defineCommand,
  status: async () => (await import("./watching/status-command.ts")).defineCommand,
  writes: async () => (await import("./writing/writes-command.ts")).defineCommand,
  audit: async () => (await import("./writing/audit-command.ts")).defineCommand,
  simulate: async () => (await import("./running/simulate-command.ts")).defineCommand,
  plan: async () => (await import("./watching/quota-plan-command.ts")).defineCommand,
  "gaps [tag...]": async () => (await import("./past/history-gaps-command.ts")).defineCommand,
  complete: async () => (await import("./past/day-completeness-command.ts")).defineCommand,
  "backfill [tag...]": async () => (await import("./past/backfill-command.ts")).defineCommand,
  "export [tag...]": async () => (await import("./past/export-command.ts")).defineCommand,
  "explain <id>": async () => (await import("./watching/explain-tag-or-alarm-command.ts")).defineCommand,
  state: async () => (await import("./watching/state-store-command.ts")).defineCommand,
  fleet: async () => (await import("./watching/fleet-command.ts")).defineCommand,
  man: async () => (await import("./manual/man-and-schema-commands.ts")).defineManCommand,
  schema: async () => (await import("./manual/man-and-schema-commands.ts")).defineSchemaCommand,
};

export function createProgram(signal: AbortSignal, environment: Readonly<Record<string, string | undefined>>): Command {
  const usageByCommand = new WeakMap<Command, string>();
  const pendingDefinitions = new WeakMap<Command, () => Promise<DefineCommand>>();
  const program = new Command("plenum")
    .description("Connects a building-automation monitoring service to MQTT, InfluxDB, webhooks and files.")
    .version(VERSION)
    .option(
      "-c, --config <file>",
      "configuration file; also by PLENUM_CONFIG",
      environment.PLENUM_CONFIG ?? "plenum.yaml",
    )
    .option("--demo", "use the running demo instead of a configuration; the default if there is no plenum.yaml")
    .option("--json", "print data as JSON, with times in UTC")
    .option("--utc", "print times in UTC")
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: (command) => usageByCommand.get(command) ?? new Help().subcommandTerm(command),
    })
    .showHelpAfterError("(plenum --help lists the commands)")
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput(createParserOutput())
    // Commander's help command does not wait for the hook that loads a command, so `help` is defined below.
    .helpCommand(false)
    .addHelpText(
      "after",
      "\nExamples:\n  plenum demo\n  plenum check --config plenum.yaml\n  plenum read 10001 10002 --json\n" +
        `\nExit codes: ${EXIT_CODES_TEXT}.`,
    )
    .hook("preSubcommand", (_, command) => defineCommandOnce(command));
  async function defineCommandOnce(command: Command): Promise<void> {
    const loadDefinition = pendingDefinitions.get(command);
    if (loadDefinition === undefined) return;
    pendingDefinitions.delete(command);
    const [{ createCliContext }, defineCommand] = await Promise.all([
      import("./shell/command-context.ts"),
      loadDefinition(),
    ]);
    defineCommand(command, createCliContext(program, command.name(), signal, defineAllCommands));
  }
  /** Defines nested commands such as `outbox dead`; returns false for an unknown command. */
  async function defineNestedCommand(commandNames: readonly string[]): Promise<boolean> {
    let parentCommand = program;
    for (const name of commandNames) {
      const subcommand = parentCommand.commands.find((command) => command.name() === name);
      if (subcommand === undefined) return false;
      await defineCommandOnce(subcommand);
      parentCommand = subcommand;
    }
    return true;
  }
  async function defineAllCommands(): Promise<Command> {
    for (const command of program.commands) await defineCommandOnce(command);
    return program;
  }
  for (const [usage, loadDefinition] of Object.entries(COMMAND_DEFINITIONS)) {
    const [name = ""] = usage.split(" ");
    const command = program.command(name).description(COMMAND_DESCRIPTIONS[usage as keyof typeof COMMAND_DESCRIPTIONS]);
    usageByCommand.set(command, usage);
    pendingDefinitions.set(command, loadDefinition);
  }
  program
    .command("help")
    .description("the help of a command")
    .argument("[command...]", "its name")
    .action(async (commandNames: readonly string[]) => {
      const isKnownCommand = await defineNestedCommand(commandNames);
      // Run an unknown command, so that it fails with the usual error.
      await program.parseAsync(isKnownCommand ? [...commandNames, "--help"] : commandNames, { from: "user" });
    });
  return program;
}
