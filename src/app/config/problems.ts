import { ConfigError } from "../../core/errors/errors.ts";

/** One thing that is wrong, where it stands, and what to do. Lines and columns count from 1. */
export interface ConfigProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Dotted path, e.g. `sinks.lake.influxdb.url`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
}

/** A contradiction between two sections of the configuration. */
export interface Contradiction {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** All that is wrong with a configuration file, told at once. */
export class ConfigurationError extends ConfigError {
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    super(problems.map(problemLine).join("\n"));
    this.problems = problems;
  }
}

export function problemLine(problem: ConfigProblem): string {
  const place = `${problem.file}:${problem.line}:${problem.column}`;
  return `${place} ${problem.path === "" ? "" : `${problem.path}: `}${problem.message}`;
}
