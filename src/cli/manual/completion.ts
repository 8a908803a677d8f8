// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the shell expands these placeholders, not JavaScript

import { Argument, type Command, Option } from "commander";
import type { CliContext } from "../shell/context.ts";
import { type CommandFacts, type Described, factsOf } from "./command-tree.ts";

export function define(command: Command, context: CliContext): void {
  command
    .addArgument(new Argument("[shell]", "whose completion is printed").choices(["bash", "zsh", "fish"]))
    .addOption(
      new Option("--names <of>", "print names out of the configuration, as the scripts ask").choices([
        "sinks",
        "sources",
      ]),
    )
    .addHelpText(
      "after",
      "\nExamples:\n  source <(plenum completion bash)\n  plenum completion zsh > ~/.zfunc/_plenum\n" +
        "  plenum completion fish > ~/.config/fish/completions/plenum.fish",
    )
    .action(async (shell: Shell | undefined, options: { readonly names?: "sinks" | "sources" }) => {
      const terminal = context.terminal();
      if (options.names !== undefined) {
        terminal.text(Object.keys(context.config()[options.names]));
        return;
      }
      if (shell === undefined) command.error("error: name a shell: bash, zsh or fish");
      terminal.text(completionScript(shell, factsOf(await context.allCommands())));
    });
}

/**
 * Generates completion scripts for three shells. A script contains all words, and asks the program only for the names
 * of sinks and sources in the configuration of the command line.
 */
export type Shell = "bash" | "zsh" | "fish";

export function completionScript(shell: Shell, facts: readonly CommandFacts[]): readonly string[] {
  switch (shell) {
    case "bash":
      return bash(facts);
    case "zsh":
      return zsh(facts);
    case "fish":
      return fish(facts);
  }
}

/** Value names of options that take a path. */
const FILES = new Set(["file", "folder", "path"]);

/** Words that may follow a command: subcommands, its options and global options. */
function wordsOf({ path, commands, options }: CommandFacts, root: CommandFacts): readonly Described[] {
  const general = path === "" ? [] : root.options;
  return [...commands, ...options, ...general, { name: "--help", description: "display help" }];
}

const rootOf = (facts: readonly CommandFacts[]): CommandFacts => {
  const root = facts.find(({ path }) => path === "");
  if (root === undefined) throw new Error("there is no program");
  return root;
};

/** Groups the options that take a value: a file, a source, a choice, or free text. */
function optionsTaking(facts: readonly CommandFacts[]) {
  const all = facts.flatMap(({ options }) => options).filter(({ takes }) => takes !== null);
  const flagsOf = ({ usage }: { readonly usage: string }) => usage.match(/(?<![\w-])--?[a-z-]+/g) ?? [];
  const files = new Set(all.filter(({ takes }) => FILES.has(takes ?? "")).flatMap(flagsOf));
  const sources = new Set(all.filter(({ name }) => name === "--source").flatMap(flagsOf));
  const choices = new Map(all.filter((each) => each.choices.length > 0).map((each) => [each.name, each.choices]));
  const others = new Set(
    all.flatMap(flagsOf).filter((flag) => !files.has(flag) && !sources.has(flag) && !choices.has(flag)),
  );
  return { files, sources, choices, others };
}

const takesSink = (facts: readonly CommandFacts[]) =>
  facts.filter((each) => each.arguments[0]?.name === "sink").map(({ path }) => path);

/** Follows the typed words through the subcommands; bash and zsh share this `case`. */
function walkLine(facts: readonly CommandFacts[]): string {
  const paths = facts.map(({ path }) => path).filter((path) => path !== "");
  return `      ${paths.map(quoted).join("|")}) way="\${way:+$way }$word" ;;`;
}

function bash(facts: readonly CommandFacts[]): readonly string[] {
  const root = rootOf(facts);
  const { files, sources, choices, others } = optionsTaking(facts);
  const names = (what: string) => `$(plenum "\${config[@]}" completion --names ${what} 2>/dev/null)`;
  return [
    "# Completion of plenum for bash: source <(plenum completion bash)",
    "_plenum() {",
    '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" way="" word words="" i',
    "  local -a config=()",
    "  COMPREPLY=()",
    "  for ((i = 1; i < COMP_CWORD; i++)); do",
    '    word="${COMP_WORDS[i]}"',
    '    [[ $word == -c || $word == --config ]] && config=(--config "${COMP_WORDS[i+1]}")',
    '    case "${way:+$way }$word" in',
    walkLine(facts),
    "    esac",
    "  done",
    '  case "$prev" in',
    `    ${[...files].join("|")}) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;`,
    `    ${[...sources].join("|")}) mapfile -t COMPREPLY < <(compgen -W "${names("sources")}" -- "$cur"); return ;;`,
    ...[...choices].map(
      ([flag, all]) => `    ${flag}) mapfile -t COMPREPLY < <(compgen -W "${all.join(" ")}" -- "$cur"); return ;;`,
    ),
    `    ${[...others].join("|")}) return ;;`,
    "  esac",
    '  case "$way" in',
    ...facts.map((each) => {
      const words = wordsOf(each, root).map(({ name }) => name);
      return `    ${quoted(each.path)}) words=${quoted(words.join(" "))} ;;`;
    }),
    "  esac",
    '  case "$way" in',
    `    ${takesSink(facts).map(quoted).join("|")}) [[ $cur != -* ]] && words="$words ${names("sinks")}" ;;`,
    "  esac",
    '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
    "}",
    "complete -o default -F _plenum plenum",
  ];
}

function zsh(facts: readonly CommandFacts[]): readonly string[] {
  const root = rootOf(facts);
  const { files, sources, choices, others } = optionsTaking(facts);
  const names = (what: string) => `\${(f)"$(plenum $config completion --names ${what} 2>/dev/null)"}`;
  return [
    "#compdef plenum",
    "# Completion of plenum for zsh: plenum completion zsh > a folder of $fpath, as _plenum",
    "_plenum() {",
    '  local way="" word prev="${words[CURRENT-1]}" i',
    "  local -a config=() all=()",
    "  for ((i = 2; i < CURRENT; i++)); do",
    '    word="${words[i]}"',
    '    [[ $word == -c || $word == --config ]] && config=(--config "${words[i+1]}")',
    '    case "${way:+$way }$word" in',
    walkLine(facts),
    "    esac",
    "  done",
    '  case "$prev" in',
    `    ${[...files].join("|")}) _files; return ;;`,
    `    ${[...sources].join("|")}) compadd -- ${names("sources")}; return ;;`,
    ...[...choices].map(([flag, all]) => `    ${flag}) compadd -- ${all.join(" ")}; return ;;`),
    `    ${[...others].join("|")}) return ;;`,
    "  esac",
    '  case "$way" in',
    ...facts.map((each) => {
      const all = wordsOf(each, root).map(({ name, description }) =>
        quoted(`${name.replaceAll(":", "\\:")}:${description}`),
      );
      return `    ${quoted(each.path)}) all=(${all.join(" ")}) ;;`;
    }),
    "  esac",
    "  _describe plenum all",
    '  case "$way" in',
    `    ${takesSink(facts).map(quoted).join("|")}) compadd -- ${names("sinks")} ;;`,
    "  esac",
    "}",
    '_plenum "$@"',
  ];
}

function fish(facts: readonly CommandFacts[]): readonly string[] {
  const paths = facts.map(({ path }) => path).filter((path) => path !== "");
  const names = (what: string) => quoted(`(plenum (__plenum_config) completion --names ${what} 2>/dev/null)`);
  return [
    "# Completion of plenum for fish: plenum completion fish > ~/.config/fish/completions/plenum.fish",
    "function __plenum_config",
    "  set -l words (commandline -opc)",
    "  for i in (seq (count $words))",
    "    if contains -- $words[$i] -c --config; and test $i -lt (count $words)",
    "      echo --config",
    "      echo $words[(math $i + 1)]",
    "    end",
    "  end",
    "end",
    "function __plenum_at",
    `  set -l known ${paths.map(quoted).join(" ")}`,
    "  set -l way ''",
    "  for word in (commandline -opc)[2..-1]",
    '    set -l next (string trim -- "$way $word")',
    '    if contains -- "$next" $known',
    '      set way "$next"',
    "    end",
    "  end",
    '  test "$way" = "$argv[1]"',
    "end",
    "complete -c plenum -f",
    ...facts.flatMap(({ path, commands, options }) => [
      ...commands.map(
        ({ name, description }) =>
          `complete -c plenum -n ${quoted(`__plenum_at ${quotedInside(path)}`)} -a ${name} -d ${quoted(description)}`,
      ),
      ...options.map(({ name, usage, description, takes, choices }) => {
        const short = /^-([a-z]),/.exec(usage)?.[1];
        const where = path === "" ? "" : ` -n ${quoted(`__plenum_at ${quotedInside(path)}`)}`;
        const what = FILES.has(takes ?? "")
          ? " -r -F"
          : name === "--source"
            ? ` -x -a ${names("sources")}`
            : choices.length > 0
              ? ` -x -a ${quoted(choices.join(" "))}`
              : takes === null
                ? ""
                : " -x";
        return `complete -c plenum${where} -l ${name.slice(2)}${short === undefined ? "" : ` -s ${short}`}${what} -d ${quoted(description)}`;
      }),
    ]),
    ...takesSink(facts).map(
      (path) => `complete -c plenum -n ${quoted(`__plenum_at ${quotedInside(path)}`)} -a ${names("sinks")}`,
    ),
  ];
}

/** Puts a text into single quotes of a shell; replaces quotes inside by a similar character. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "’")}'`;
}

function quotedInside(text: string): string {
  return `"${text}"`;
}
