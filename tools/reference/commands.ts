import { type Argument, type Command, Help, type Option } from "commander";
import { EXIT_CODE, EXIT_CODE_NAMES, EXIT_MEANINGS } from "../../src/cli/shell/exit-codes.ts";
import { anchor, code, fenced, page, table } from "./markdown.ts";

/** Every command with its arguments, options and examples, from commander's own tree. */

export const COMMANDS_FILE = "docs/reference/commands.md";

export function commandsText(program: Command): string {
  const all = [...commandsIn(program)];
  return page(
    INTRODUCTION,
    table(
      ["Command", "What it does"],
      all.map(({ name, command }) => [`[\`${name}\`](#${anchor(name)})`, command.description()]),
    ),
    "## Options of every command",
    optionsTable(visible(program.options)),
    "## Exit codes",
    table(
      ["Code", "Means"],
      EXIT_CODE_NAMES.map((key) => [`\`${EXIT_CODE[key]}\``, EXIT_MEANINGS[key]]),
    ),
    ...all.map(({ name, command }) => commandSection(name, command)),
  );
}

export interface NamedCommand {
  /** `outbox dead`. */
  readonly name: string;
  readonly command: Command;
}

export function* commandsIn(parent: Command, before = ""): Generator<NamedCommand> {
  for (const command of visibleSubcommands(parent)) {
    const name = `${before}${command.name()}`;
    yield { name, command };
    yield* commandsIn(command, `${name} `);
  }
}

function visibleSubcommands(parent: Command): readonly Command[] {
  return new Help().visibleCommands(parent).filter((command) => command.name() !== "help");
}

function commandSection(name: string, command: Command): string {
  const notes = notesOf(command);
  return page(
    `## ${name}`,
    `${sentence(command.description())}`,
    fenced("text", `plenum ${name}${usageOf(command)}`),
    argumentsTable(command.registeredArguments),
    optionsTable(visible(command.options)),
    subcommandLinks(name, command),
    ...notes,
  ).trimEnd();
}

function usageOf(command: Command): string {
  const usage = command.usage().replace("[options] [command]", "[options]").trim();
  const parts = usage.split(" ").filter((part) => part !== "[options]" || visible(command.options).length > 0);
  return parts.length === 0 ? "" : ` ${parts.join(" ")}`;
}

function subcommandLinks(name: string, command: Command): string {
  const names = visibleSubcommands(command).map((each) => `${name} ${each.name()}`);
  return names.length === 0 ? "" : `Below it: ${names.map((each) => `[\`${each}\`](#${anchor(each)})`).join(", ")}.`;
}

function argumentsTable(args: readonly Argument[]): string {
  if (args.length === 0) return "";
  const rows = args.map((argument) => {
    const name = `${argument.name()}${argument.variadic ? "…" : ""}`;
    return [code(argument.required ? `<${name}>` : `[${name}]`), argument.description];
  });
  return table(["Argument", "Meaning"], rows);
}

function optionsTable(options: readonly Option[]): string {
  if (options.length === 0) return "";
  const rows = options.map((option) => [code(option.flags), optionMeaning(option)]);
  return table(["Option", "Meaning"], rows);
}

function optionMeaning({ description, mandatory, defaultValue, argChoices, ...option }: Option): string {
  const isShown = defaultValue !== undefined && defaultValue !== false && !isEmptyList(defaultValue);
  return [
    description,
    mandatory ? "Required." : "",
    argChoices === undefined ? "" : `One of ${argChoices.map(code).join(", ")}.`,
    isShown ? `Default: ${option.defaultValueDescription ?? code(String(defaultValue))}.` : "",
  ]
    .filter((part) => part !== "")
    .map((part) => sentence(part))
    .join(" ");
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

function visible(options: readonly Option[]): readonly Option[] {
  return options.filter(({ hidden }) => !hidden);
}

/** Notes as text and examples as code blocks, from the end of the help. */
function notesOf(command: Command): readonly string[] {
  const blocks = helpEpilogue(command)
    .split(/\n\s*\n/)
    .map((block) => block.trimEnd())
    .filter((block) => block.trim() !== "");
  return blocks.map((block) => {
    const [first = "", ...rest] = block.replace(/^\n+/, "").split("\n");
    if (!/^Examples?:$/.test(first)) return `${first}\n${rest.join("\n")}`.trim();
    return fenced("sh", rest.map((line) => line.replace(/^ {2}/, "")).join("\n"));
  });
}

function helpEpilogue(command: Command): string {
  let text = "";
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  const standard = command.helpInformation();
  const at = text.indexOf(standard);
  return at < 0 ? "" : text.slice(at + standard.length);
}

function sentence(text: string): string {
  const whole = /[.!?:]$/.test(text) ? text : `${text}.`;
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}

const INTRODUCTION = `# Commands

Written by \`npm run reference\` from the command line itself; \`plenum <command> --help\` says the same. In a clone the
program is \`./plenum\`, on Windows \`.\\plenum.cmd\`. Data go to standard output, everything else to standard error; with
\`--json\` data are JSON. Commands that need the service ask through the running worker where there is one, so that both
share one quota.`;
