import { basename, delimiter, dirname } from "node:path";
import { CommanderError } from "commander";
import { ConfigurationError, problemLine } from "../../app/config/problems.ts";
import { meaningOf, sentence } from "../../core/errors/errors.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";

/** Exit codes, the same for every command. */
export const EXIT = {
  ok: 0,
  /** It was tried and did not work. */
  failure: 1,
  /** The command line is wrong. */
  usage: 2,
  /** `plenum complete`: something of the days that were asked for is not known. */
  incomplete: 3,
  /** Trouble that may pass by itself: the service or the worker does not answer; try again. */
  unavailable: 75,
  /** A person has to change the configuration, the token or a permission. */
  configuration: 78,
} as const;

/** For the help and the documentation. */
export const EXIT_MEANINGS = {
  ok: "done",
  failure: "tried and failed",
  usage: "wrong command line",
  incomplete: "not complete",
  unavailable: "not available now, try again",
  configuration: "configuration, token or permission",
} as const satisfies Record<keyof typeof EXIT, string>;

/** All of them in one line: `0 done, 1 tried and failed …`. */
export const EXIT_LINE = (Object.keys(EXIT) as (keyof typeof EXIT)[])
  .map((key) => `${EXIT[key]} ${EXIT_MEANINGS[key]}`)
  .join("; ");

export function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (isOwnFault(error)) return EXIT.failure;
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

/** What a person reads: one clear sentence, never a stack trace; of a configuration a line for each mistake. */
export function complaint(error: unknown): readonly string[] {
  if (error instanceof ConfigurationError) return error.problems.map(problemLine);
  const text = withoutCredentials(sentence(error));
  return [isOwnFault(error) ? `Plenum has a fault of its own, please report it: ${text}` : text];
}

/** Trying again does not help against a mistake in the program. */
function isOwnFault(error: unknown): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
}

/** The program as somebody can type it who typed it before: `./plenum` in a clone, `plenum` where it is installed. */
export function called({ PLENUM_CALLED: by = "plenum", PATH = "" }: NodeJS.ProcessEnv = process.env): string {
  // The shell says where it has found what it was called by its name alone.
  const isFound = PATH.split(delimiter).includes(dirname(by));
  return shellWord(isFound ? basename(by) : by);
}

/** The same for commands that a sentence names: ``Make one with `plenum init`.`` */
export function asCalled(sentence: string, program = called()): string {
  return sentence.replaceAll(/`plenum (?=[a-z])/g, () => `\`${program} `);
}

export function shellWord(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
