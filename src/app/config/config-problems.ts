import { ConfigError, errorText } from "../../core/errors/errors.ts";
import { maskCredentials } from "../../core/runtime/log.ts";

/** Problem in a configuration file. Lines and columns count from 1. */
export interface ConfigProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Dotted option path, e.g. `sinks.lake.influxdb.url`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
}

export interface ConfigContradiction {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export class ConfigurationError extends ConfigError {
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    super(problems.map(formatConfigProblem).join("\n"));
    this.problems = problems;
  }
}

export function formatConfigProblem(problem: ConfigProblem): string {
  const filePosition = `${problem.file}:${problem.line}:${problem.column}`;
  return `${filePosition} ${problem.path === "" ? "" : `${problem.path}: `}${problem.message}`;
}

export function formatConfigProblems(error: unknown): readonly string[] {
  const lines = error instanceof ConfigurationError ? error.problems.map(formatConfigProblem) : [errorText(error)];
  return lines.map(maskCredentials);
}
