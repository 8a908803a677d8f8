import type { EventEmitter } from "node:events";
import type { Argument, Command, Option } from "commander";

/** Description of one command; completion scripts and the manual page are generated from it. */
export type CommandDescription = ReturnType<typeof describeCommand>;
export type OptionDescription = ReturnType<typeof describeOption>;

/** Lists every command and subcommand in the order of the help. All commands have to be defined. */
export function describeCommands(program: Command): readonly CommandDescription[] {
  const describeCommandTree = (command: Command, path: string): readonly CommandDescription[] => [
    describeCommand(command, path),
    ...listSubcommands(command).flatMap((subcommand) =>
      describeCommandTree(subcommand, `${path} ${subcommand.name()}`.trimStart()),
    ),
  ];
  return describeCommandTree(program, "");
}

const listSubcommands = ({ commands }: Command) => commands.filter((subcommand) => subcommand.name() !== "help");

function describeCommand(command: Command, path: string) {
  return {
    path,
    description: command.description(),
    commands: listSubcommands(command).map((subcommand) => ({
      name: subcommand.name(),
      description: subcommand.description(),
    })),
    options: command.options.map(describeOption),
    arguments: command.registeredArguments.map(describeArgument),
    addedHelpText: collectAddedHelpTexts(command),
  };
}

function describeOption(option: Option) {
  const { flags, description, long, defaultValue, defaultValueDescription, argChoices = [] } = option;
  return {
    name: long ?? flags,
    usage: flags,
    description,
    /** Name of the option's value, such as `file`; null for a flag. */
    valueName: /[<[]([^>\]]+)[>\]]$/.exec(flags)?.[1] ?? null,
    choices: argChoices,
    defaultText: defaultValueDescription ?? (defaultValue === undefined ? null : String(defaultValue)),
  };
}

function describeArgument(argument: Argument) {
  const name = argument.name();
  const usageName = `${name}${argument.variadic ? "..." : ""}`;
  return { name, description: argument.description, usage: argument.required ? `<${usageName}>` : `[${usageName}]` };
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
