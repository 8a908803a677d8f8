import type { Command } from "commander";
import { configJsonSchema } from "../../app/config/config.ts";
import { RELEASE_VERSION } from "../../core/runtime/version.ts";
import type { CliContext } from "../shell/command-context.ts";
import { EXIT_CODE, EXIT_CODE_NAMES, EXIT_MEANINGS } from "../shell/exit-codes.ts";
import { type CommandDescription, describeCommands, type OptionDescription } from "./command-tree.ts";

export function defineManCommand(command: Command, context: CliContext): void {
  command
    .addHelpText("after", "\nExamples:\n  plenum man > /usr/local/share/man/man1/plenum.1\n  plenum man | man -l -")
    .action(async () => {
      context.terminal().printText(buildManualPage(describeCommands(await context.allCommands()), RELEASE_VERSION));
    });
}

export function buildManualPage(descriptions: readonly CommandDescription[], version: string): readonly string[] {
  const [rootCommand, ...commands] = descriptions;
  if (rootCommand === undefined) throw new Error("there is no program");
  return [
    '.\\" Made by `npm run man` from the commands; edit those.',
    `.TH PLENUM 1 "" "Plenum ${version}" "User Commands"`,
    ".SH NAME",
    "plenum \\- sends building monitoring data to many systems",
    ".SH SYNOPSIS",
    ".B plenum",
    "[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]",
    ".SH DESCRIPTION",
    escapeRoff(rootCommand.description),
    ".SH OPTIONS",
    ...rootCommand.options.flatMap(optionToRoff),
    ".SH COMMANDS",
    ...commands.flatMap(commandToRoff),
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

function commandToRoff({
  path,
  description,
  options,
  arguments: args,
  addedHelpText,
}: CommandDescription): readonly string[] {
  const argumentsUsageText = args.map(({ usage }) => ` ${usage}`).join("");
  return [
    `.SS ${escapeRoff(`plenum ${path}${argumentsUsageText}`)}`,
    escapeRoff(toSentence(description)),
    ...args.flatMap(({ usage, description: argumentDescription }) => [
      ".TP",
      `.I ${escapeRoff(usage)}`,
      escapeRoff(toSentence(argumentDescription)),
    ]),
    ...options.flatMap(optionToRoff),
    ...(addedHelpText === "" ? [] : [".PP", ".nf", ...addedHelpText.split("\n").map(escapeRoff), ".fi"]),
  ];
}

function optionToRoff({ usage, description, choices, defaultText }: OptionDescription): readonly string[] {
  const optionNotes = [
    ...(choices.length === 0 ? [] : [`one of ${choices.join(", ")}`]),
    ...(defaultText === null || defaultText === "false" ? [] : [`default: ${defaultText}`]),
  ];
  const descriptionWithNotes = optionNotes.length === 0 ? description : `${description} (${optionNotes.join("; ")})`;
  return [".TP", `.B ${escapeRoff(usage)}`, escapeRoff(toSentence(descriptionWithNotes))];
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
