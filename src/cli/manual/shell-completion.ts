// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the shell expands these placeholders, not JavaScript

import { Argument, type Command, Option } from "commander";
import type { CliContext } from "../shell/command-context.ts";
import { type CommandDescription, describeCommands, type OptionDescription } from "./command-tree.ts";

export function defineCommand(command: Command, context: CliContext): void {
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
      if (options.names !== undefined) return terminal.printText(Object.keys(context.config()[options.names]));
      if (shell === undefined) command.error("error: name a shell: bash, zsh or fish");
      terminal.printText(buildCompletionScript(shell, describeCommands(await context.allCommands())));
    });
}

export type Shell = "bash" | "zsh" | "fish";

/** Builds the completion script, which asks the program only for the names of sinks and sources. */
export function buildCompletionScript(shell: Shell, descriptions: readonly CommandDescription[]): readonly string[] {
  return shell === "fish"
    ? buildFishScript(descriptions)
    : buildBashOrZshScript(descriptions, shell === "bash" ? BASH_DIALECT : ZSH_DIALECT);
}

const FILE_ARGUMENT_NAMES = new Set(["file", "folder", "path"]);

const listCommandPaths = (descriptions: readonly CommandDescription[]) =>
  descriptions.map(({ path }) => path).filter((path) => path !== "");

const commandPathsWithSink = (descriptions: readonly CommandDescription[]) =>
  descriptions.filter((command) => command.arguments[0]?.name === "sink").map(({ path }) => path);

interface ShellDialect {
  readonly headLines: readonly string[];
  /** Shell expressions: array of the typed words, index after the program's name, index of the current word. */
  readonly wordVariables: readonly [words: string, first: number, current: string];
  readonly fileCompletion: string;
  readonly completeWords: (words: string) => string;
  readonly namesExpression: (kind: "sinks" | "sources") => string;
  readonly setWords: (words: readonly Pick<OptionDescription, "name" | "description">[]) => string;
  readonly linesBeforeSinks: readonly string[];
  readonly addSinkNames: (names: string) => string;
  readonly tailLines: readonly string[];
}

const BASH_DIALECT: ShellDialect = {
  headLines: [
    "# Completion of plenum for bash: source <(plenum completion bash)",
    "_plenum() {",
    '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" way="" word words="" i',
    "  local -a config=()",
    "  COMPREPLY=()",
  ],
  wordVariables: ["COMP_WORDS", 1, "COMP_CWORD"],
  fileCompletion: 'mapfile -t COMPREPLY < <(compgen -f -- "$cur")',
  completeWords: (words) => `mapfile -t COMPREPLY < <(compgen -W "${words}" -- "$cur")`,
  namesExpression: (kind) => `$(plenum "\${config[@]}" completion --names ${kind} 2>/dev/null)`,
  setWords: (words) => `words=${quoteWord(words.map(({ name }) => name).join(" "))}`,
  linesBeforeSinks: [],
  addSinkNames: (names) => `[[ $cur != -* ]] && words="$words ${names}"`,
  tailLines: [
    '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")',
    "}",
    "complete -o default -F _plenum plenum",
  ],
};

const ZSH_DIALECT: ShellDialect = {
  headLines: [
    "#compdef plenum",
    "# Completion of plenum for zsh: plenum completion zsh > a folder of $fpath, as _plenum",
    "_plenum() {",
    '  local way="" word prev="${words[CURRENT-1]}" i',
    "  local -a config=() all=()",
  ],
  wordVariables: ["words", 2, "CURRENT"],
  fileCompletion: "_files",
  completeWords: (words) => `compadd -- ${words}`,
  namesExpression: (kind) => `\${(f)"$(plenum $config completion --names ${kind} 2>/dev/null)"}`,
  setWords(words) {
    const items = words.map(({ name, description }) => quoteWord(`${name.replaceAll(":", "\\:")}:${description}`));
    return `all=(${items.join(" ")})`;
  },
  linesBeforeSinks: ["  _describe plenum all"],
  addSinkNames: (names) => `compadd -- ${names}`,
  tailLines: ["}", '_plenum "$@"'],
};

/** Builds a script that finds the typed command, then completes option values, subcommands, options or sink names. */
function buildBashOrZshScript(descriptions: readonly CommandDescription[], dialect: ShellDialect): readonly string[] {
  const { headLines, wordVariables, setWords, namesExpression, linesBeforeSinks, addSinkNames, tailLines } = dialect;
  const [wordsVariable, firstIndex, currentIndex] = wordVariables;
  const globalOptions = descriptions.find(({ path }) => path === "")?.options ?? [];
  const helpOption = { name: "--help", description: "display help" };
  return [
    ...headLines,
    `  for ((i = ${firstIndex}; i < ${currentIndex}; i++)); do`,
    `    word="\${${wordsVariable}[i]}"`,
    `    [[ $word == -c || $word == --config ]] && config=(--config "\${${wordsVariable}[i+1]}")`,
    '    case "${way:+$way }$word" in',
    `      ${listCommandPaths(descriptions).map(quoteWord).join("|")}) way="\${way:+$way }$word" ;;`,
    "    esac",
    "  done",
    '  case "$prev" in',
    ...optionValueCases(descriptions, dialect),
    "  esac",
    '  case "$way" in',
    ...descriptions.map(({ path, commands, options }) => {
      const completionWords = [...commands, ...options, ...(path === "" ? [] : globalOptions), helpOption];
      return `    ${quoteWord(path)}) ${setWords(completionWords)} ;;`;
    }),
    "  esac",
    ...linesBeforeSinks,
    '  case "$way" in',
    `    ${commandPathsWithSink(descriptions).map(quoteWord).join("|")}) ${addSinkNames(namesExpression("sinks"))} ;;`,
    "  esac",
    ...tailLines,
  ];
}

function optionValueCases(
  descriptions: readonly CommandDescription[],
  { fileCompletion, completeWords, namesExpression }: ShellDialect,
): readonly string[] {
  const options = descriptions.flatMap(({ options }) => options).filter(({ valueName }) => valueName !== null);
  const flagsOfOption = ({ usage }: OptionDescription) => usage.match(/(?<![\w-])--?[a-z-]+/g) ?? [];
  const fileFlags = new Set(
    options.filter(({ valueName }) => FILE_ARGUMENT_NAMES.has(valueName ?? "")).flatMap(flagsOfOption),
  );
  const sourceFlags = new Set(options.filter(({ name }) => name === "--source").flatMap(flagsOfOption));
  const choicesByFlag = new Map(
    options.filter((option) => option.choices.length > 0).map((option) => [option.name, option.choices]),
  );
  const flagsWithCompletion = new Set([...fileFlags, ...sourceFlags, ...choicesByFlag.keys()]);
  const flagsWithoutCompletion = new Set(options.flatMap(flagsOfOption)).difference(flagsWithCompletion);
  return [
    `    ${[...fileFlags].join("|")}) ${fileCompletion}; return ;;`,
    `    ${[...sourceFlags].join("|")}) ${completeWords(namesExpression("sources"))}; return ;;`,
    ...[...choicesByFlag].map(
      ([flag, optionChoices]) => `    ${flag}) ${completeWords(optionChoices.join(" "))}; return ;;`,
    ),
    `    ${[...flagsWithoutCompletion].join("|")}) return ;;`,
  ];
}

function buildFishScript(descriptions: readonly CommandDescription[]): readonly string[] {
  const namesCommand = (kind: string) => quoteWord(`(plenum (__plenum_config) completion --names ${kind} 2>/dev/null)`);
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
    `  set -l known ${listCommandPaths(descriptions).map(quoteWord).join(" ")}`,
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
    ...descriptions.flatMap(({ path, commands, options }) => [
      ...commands.map(
        ({ name, description }) =>
          `complete -c plenum -n ${quoteWord(`__plenum_at ${doubleQuote(path)}`)} -a ${name} -d ${quoteWord(description)}`,
      ),
      ...options.map(({ name, usage, description, valueName, choices }) => {
        const shortFlag = /^-([a-z]),/.exec(usage)?.[1];
        const commandCondition = path === "" ? "" : ` -n ${quoteWord(`__plenum_at ${doubleQuote(path)}`)}`;
        const optionValueArgument = fishOptionValue({ name, valueName, choices }, namesCommand("sources"));
        return `complete -c plenum${commandCondition} -l ${name.slice(2)}${shortFlag === undefined ? "" : ` -s ${shortFlag}`}${optionValueArgument} -d ${quoteWord(description)}`;
      }),
    ]),
    ...commandPathsWithSink(descriptions).map(
      (path) => `complete -c plenum -n ${quoteWord(`__plenum_at ${doubleQuote(path)}`)} -a ${namesCommand("sinks")}`,
    ),
  ];
}

function fishOptionValue(
  { name, valueName, choices }: Pick<OptionDescription, "name" | "valueName" | "choices">,
  sourcesCommand: string,
): string {
  if (FILE_ARGUMENT_NAMES.has(valueName ?? "")) return " -r -F";
  if (name === "--source") return ` -x -a ${sourcesCommand}`;
  if (choices.length > 0) return ` -x -a ${quoteWord(choices.join(" "))}`;
  return valueName === null ? "" : " -x";
}

/** Quotes a word; replaces quotes inside by a similar character. */
const quoteWord = (text: string): string => `'${text.replaceAll("'", "’")}'`;

const doubleQuote = (text: string): string => `"${text}"`;
