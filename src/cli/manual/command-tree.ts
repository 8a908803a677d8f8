import type { EventEmitter } from "node:events";
import type { Argument, Command, Option } from "commander";

/** Description of one command; completion scripts and the manual page are generated from it. */
export interface CommandFacts {
  /** Such as `outbox dead`; empty for the program itself. */
  readonly path: string;
  readonly description: string;
  readonly commands: readonly Described[];
  readonly options: readonly OptionFacts[];
  readonly arguments: readonly ArgumentFacts[];
  /** Text below the help: examples, exit codes. */
  readonly more: string;
}

export interface Described {
  readonly name: string;
  readonly description: string;
}

export interface OptionFacts extends Described {
  /** Usage, such as `-c, --config <file>`. */
  readonly usage: string;
  /** Name of its value, such as `file`; null for a flag. */
  readonly takes: string | null;
  readonly choices: readonly string[];
  readonly preset: string | null;
}

export interface ArgumentFacts extends Described {
  /** Usage, such as `<sink>` or `[tag...]`. */
  readonly usage: string;
}

/** Lists every command and subcommand in the order of the help. All commands have to be defined. */
export function factsOf(program: Command): readonly CommandFacts[] {
  const walk = (command: Command, path: string): readonly CommandFacts[] => [
    factsOfOne(command, path),
    ...command.commands
      .filter((each) => each.name() !== "help")
      .flatMap((each) => walk(each, path === "" ? each.name() : `${path} ${each.name()}`)),
  ];
  return walk(program, "");
}

function factsOfOne(command: Command, path: string): CommandFacts {
  const commands = command.commands.filter((each) => each.name() !== "help");
  return {
    path,
    description: command.description(),
    commands: commands.map((each) => ({ name: each.name(), description: each.description() })),
    options: command.options.map(factsOfOption),
    arguments: command.registeredArguments.map(factsOfArgument),
    more: moreOf(command),
  };
}

function factsOfOption(option: Option): OptionFacts {
  const { flags, description, long, defaultValue, defaultValueDescription, argChoices = [] } = option;
  return {
    name: long ?? flags,
    usage: flags,
    description,
    takes: /[<[]([^>\]]+)[>\]]$/.exec(flags)?.[1] ?? null,
    choices: argChoices,
    preset: defaultValueDescription ?? (defaultValue === undefined ? null : String(defaultValue)),
  };
}

function factsOfArgument(argument: Argument): ArgumentFacts {
  const dots = argument.variadic ? "..." : "";
  const inside = `${argument.name()}${dots}`;
  return {
    name: argument.name(),
    description: argument.description,
    usage: argument.required ? `<${inside}>` : `[${inside}]`,
  };
}

/** Collects the added help texts, which commander stores as listeners. */
function moreOf(command: Command): string {
  let text = "";
  const write = (piece: string) => {
    text += piece;
  };
  (command as unknown as EventEmitter).emit("afterHelp", { error: false, command, write });
  return text.trim();
}
