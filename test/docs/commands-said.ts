import type { Command } from "commander";

/** Returns the error in the arguments of a documented `plenum` command, or null. */
export function commandComplaint(program: Command, words: readonly string[]): string | null {
  let command = program;
  for (const word of words) {
    if (word === "…" || word === "--" || word.startsWith("#")) break;
    if (word.startsWith("-")) {
      const [name = ""] = word.split(/[=.,;)]/);
      const all = [...command.options, ...program.options];
      const known = all.some(({ long, short }) => long === name || short === name);
      if (!known && !["--help", "-h"].includes(name)) return `${command.name()} has no option ${name}`;
      continue;
    }
    const next = command.commands.find((each) => each.name() === word);
    if (next !== undefined) command = next;
    else if (command === program) return isWord(word) ? `there is no command ${word}` : null;
    else if (mustNameOne(command) && isWord(word)) return `${command.name()} has no command ${word}`;
  }
  return null;
}

/** Returns whether the next word must be a subcommand. */
function mustNameOne(command: Command): boolean {
  return command.commands.length > 0 && command.registeredArguments.length === 0;
}

function isWord(word: string): boolean {
  return /^[a-z][a-z-]+$/.test(word);
}
