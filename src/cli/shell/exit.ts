import { basename, delimiter, dirname } from "node:path";
import { CommanderError } from "commander";
import { ConfigurationError, problemLine } from "../../app/config/problems.ts";
import { meaningOf, sentence } from "../../core/errors/errors.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";

/** Exit codes of every command. */
export const EXIT = {
  ok: 0,
  /** It was tried and did not work. */
  failure: 1,
  /** The command line is wrong. */
  usage: 2,
  /** `plenum complete`: readings of the requested days are missing. */
  incomplete: 3,
  /** Temporary failure: the service or the worker does not respond. */
  unavailable: 75,
  /** The configuration, the token or a permission has to change. */
  configuration: 78,
} as const;

/** Meanings for the help and the documentation. */
export const EXIT_MEANINGS = {
  ok: "done",
  failure: "tried and failed",
  usage: "wrong command line",
  incomplete: "data are missing (plenum complete, plenum export)",
  unavailable: "the service or the worker does not respond, try again",
  configuration: "the configuration, the token or a permission has to change",
} as const satisfies Record<keyof typeof EXIT, string>;

export const EXIT_CODES = Object.keys(EXIT) as readonly (keyof typeof EXIT)[];

/** `0 done; 1 tried and failed; …`. */
export const EXIT_LINE = EXIT_CODES.map((key) => `${EXIT[key]} ${EXIT_MEANINGS[key]}`).join("; ");

export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (isProgramBug(error)) return EXIT.failure;
  switch (meaningOf(error).kind) {
    case "config":
      return EXIT.configuration;
    case "retryable":
    case "throttled":
      return EXIT.unavailable;
    default:
      return EXIT.failure;
  }
}

/** Describes an error in one sentence without a stack trace; a wrong configuration in one line for each mistake. */
export function errorLines(error: unknown): readonly string[] {
  if (error instanceof ConfigurationError) return error.problems.map(problemLine);
  const text = withoutCredentials(sentence(error));
  return [isProgramBug(error) ? `Plenum has a fault of its own, please report it: ${text}` : text];
}

/** True for a bug in the program, which a retry does not solve. */
function isProgramBug(error: unknown): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
}

/** Name of the program as the user typed it: `./plenum` in a clone, `plenum` where it is installed. */
export function programName({ PLENUM_CALLED: by = "plenum", PATH = "" }: NodeJS.ProcessEnv = process.env): string {
  // If the program is on the PATH, its name alone is enough.
  const isFound = PATH.split(delimiter).includes(dirname(by));
  return shellWord(isFound ? basename(by) : by);
}

/** Replaces the program name in commands of a sentence, such as ``Make one with `plenum init`.`` */
export function withProgramName(sentence: string, program = programName()): string {
  return sentence.replaceAll(/`plenum (?=[a-z])/g, () => `\`${program} `);
}

export function shellWord(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
