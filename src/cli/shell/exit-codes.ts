import { basename, delimiter, dirname } from "node:path";
import { CommanderError } from "commander";
import { ConfigurationError, formatConfigProblem } from "../../app/config/config-problems.ts";
import { asFailure, errorText } from "../../core/errors/errors.ts";
import { maskCredentials } from "../../core/runtime/log.ts";

export const EXIT_CODE = {
  ok: 0,
  failure: 1,
  usage: 2,
  incomplete: 3,
  unavailable: 75,
  configuration: 78,
} as const;

export const EXIT_MEANINGS = {
  ok: "done",
  failure: "tried and failed",
  usage: "wrong command line",
  incomplete: "data are missing (plenum complete, plenum export)",
  unavailable: "the service or the worker does not respond, try again",
  configuration: "the configuration, the token or a permission has to change",
} as const satisfies Record<keyof typeof EXIT_CODE, string>;

export const EXIT_CODE_NAMES = Object.keys(EXIT_CODE) as readonly (keyof typeof EXIT_CODE)[];

export const EXIT_CODES_TEXT = EXIT_CODE_NAMES.map((key) => `${EXIT_CODE[key]} ${EXIT_MEANINGS[key]}`).join("; ");

export function toExitCode(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_CODE.ok : EXIT_CODE.usage;
  if (isProgramBug(error)) return EXIT_CODE.failure;
  const { kind } = asFailure(error);
  if (kind === "config") return EXIT_CODE.configuration;
  return kind === "retryable" || kind === "throttled" ? EXIT_CODE.unavailable : EXIT_CODE.failure;
}

/** Formats an error as a sentence without stack trace; a wrong configuration gets one line per mistake. */
export function formatErrorLines(error: unknown): readonly string[] {
  if (error instanceof ConfigurationError) return error.problems.map(formatConfigProblem);
  const maskedMessage = maskCredentials(errorText(error));
  return [isProgramBug(error) ? `Plenum has a fault of its own, please report it: ${maskedMessage}` : maskedMessage];
}

function isProgramBug(error: unknown): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
}

/** Returns the program name as the user typed it: `./plenum` in a clone, `plenum` if installed. */
export function programName({ PLENUM_CALLED: path = "plenum", PATH = "" }: NodeJS.ProcessEnv = process.env): string {
  const isProgramInSearchPath = PATH.split(delimiter).includes(dirname(path));
  return quoteForShell(isProgramInSearchPath ? basename(path) : path);
}

/** Replaces the program name in commands such as ``Make one with `plenum init`.`` */
export function insertProgramName(sentence: string, program = programName()): string {
  return sentence.replaceAll(/`plenum (?=[a-z])/g, () => `\`${program} `);
}

export function quoteForShell(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
