import type { EventEmitter } from "node:events";
import type { Argument, Command, Option } from "commander";
import { configJsonSchema } from "../../app/config/config.ts";
import { RELEASE_VERSION } from "../../core/runtime/version.ts";
import type { CliContext } from "../shell/command-context.ts";
import { EXIT_CODE, EXIT_CODE_NAMES, EXIT_MEANINGS } from "../shell/exit-codes.ts";

export function defineManCommand(command: Command, context: CliContext): void {
  command
    .addHelpText("after", "\nExamples:\n  plenum man > /usr/local/share/man/man1/plenum.1\n  plenum man | man -l -")
    .action(async () => {
      context.terminal().printText(buildManualPage(await context.allCommands(), RELEASE_VERSION));
    });
}

/** Builds the manual page of a program whose commands are all defined. */
export function buildManualPage(program: Command, version: string): readonly string[] {
  const commands = program.commands.filter((command) => command.name() !== "help");
  return [
    '.\\" Made by `npm run man` from the commands; edit those.',
    `.TH PLENUM 1 "" "Plenum ${version}" "User Commands"`,
    ".SH NAME",
    "plenum \\- sends building monitoring data to many systems",
    ".SH SYNOPSIS",
    ".B plenum",
    "[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]",
    ".SH DESCRIPTION",
    escapeRoff(program.description()),
    ".SH OPTIONS",
    ...program.options.flatMap(optionToRoff),
    ".SH COMMANDS",
    ...commands.flatMap((command) => commandToRoff(command, command.name())),
    ".SH EXIT STATUS",
    ...EXIT_CODE_NAMES.flatMap((key) => [".TP", `.B ${EXIT_CODE[key]}`, escapeRoff(toSentence(EXIT_MEANINGS[key]))]),
    ".SH ENVIRONMENT",
    ".TP",
    ".B PLENUM_CONFIG",
    "The configuration file, where \\-\\-config names none.",
    ".SH FILES",
    ".TP",
    ".I plenum.yaml",
    "The configuration, in the folder in which the command is started.",
    ".TP",
    ".I state/",
    "The state that survives restarts, unless state.folder names another folder.",
  ];
}

/** Describes a command, then its subcommands in the order of the help. */
function commandToRoff(command: Command, path: string): readonly string[] {
  const { registeredArguments, options } = command;
  const addedHelpText = collectAddedHelpTexts(command);
  return [
    `.SS ${escapeRoff(["plenum", path, ...registeredArguments.map(argumentUsage)].join(" "))}`,
    escapeRoff(toSentence(command.description())),
    ...registeredArguments.flatMap((argument) => [
      ".TP",
      `.I ${escapeRoff(argumentUsage(argument))}`,
      escapeRoff(toSentence(argument.description)),
    ]),
    ...options.flatMap(optionToRoff),
    ...(addedHelpText === "" ? [] : [".PP", ".nf", ...addedHelpText.split("\n").map(escapeRoff), ".fi"]),
    ...command.commands.flatMap((subcommand) => commandToRoff(subcommand, `${path} ${subcommand.name()}`)),
  ];
}

function argumentUsage(argument: Argument): string {
  const usageName = `${argument.name()}${argument.variadic ? "..." : ""}`;
  return argument.required ? `<${usageName}>` : `[${usageName}]`;
}

/** Collects the added help texts (examples, exit codes), which commander stores as listeners. */
function collectAddedHelpTexts(command: Command): string {
  let helpText = "";
  const appendHelpText = (textPiece: string) => {
    helpText += textPiece;
  };
  (command as unknown as EventEmitter).emit("afterHelp", { error: false, command, write: appendHelpText });
  return helpText.trim();
}

function optionToRoff(option: Option): readonly string[] {
  const { flags, description, argChoices = [], defaultValue } = option;
  const defaultText = option.defaultValueDescription ?? String(defaultValue ?? false);
  const optionNotes = [
    ...(argChoices.length === 0 ? [] : [`one of ${argChoices.join(", ")}`]),
    ...(defaultText === "false" ? [] : [`default: ${defaultText}`]),
  ];
  const descriptionWithNotes = optionNotes.length === 0 ? description : `${description} (${optionNotes.join("; ")})`;
  return [".TP", `.B ${escapeRoff(flags)}`, escapeRoff(toSentence(descriptionWithNotes))];
}

function toSentence(phrase: string): string {
  const capitalizedText = phrase.charAt(0).toUpperCase() + phrase.slice(1);
  return /[.!?]$/.test(capitalizedText) ? capitalizedText : `${capitalizedText}.`;
}

function escapeRoff(line: string): string {
  return line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll("'", "\\(aq")
    .replaceAll("`", "\\(ga")
    .replaceAll("“", "\\(lq")
    .replaceAll("”", "\\(rq")
    .replaceAll("…", "...")
    .replaceAll("–", "\\(en")
    .replace(/^\./, "\\&.");
}

export function defineSchemaCommand(command: Command, context: CliContext): void {
  command.addHelpText("after", "\nExample:\n  plenum schema > schema.json").action(() => {
    const configSchema = configJsonSchema();
    const terminal = context.terminal();
    if (terminal.json) terminal.print(configSchema, []);
    else terminal.printText(JSON.stringify(configSchema, null, 2).split("\n"));
  });
}
