import {
  ConfigError,
  type Failure,
  Malformed,
  meaningOf,
  NoLog,
  Rejected,
  Retryable,
  sentence,
  Throttled,
} from "../errors.ts";
import { withoutCredentials } from "../log.ts";

/** A failure on its way from the worker to the command line: its meaning and its sentence, so the exit code stays. */
export interface ToldFailure {
  readonly failure: Failure["kind"];
  readonly message: string;
}

export function tellFailure(error: unknown): ToldFailure {
  return { failure: meaningOf(error).kind, message: withoutCredentials(sentence(error)) };
}

export function toldFailure({ failure, message }: ToldFailure): Failure {
  switch (failure) {
    case "config":
      return new ConfigError(message);
    case "throttled":
      return new Throttled(message, null);
    case "rejected":
      return new Rejected(message);
    case "no-log":
      return new NoLog(message);
    case "malformed":
      return new Malformed(message, "");
    default:
      return new Retryable(message);
  }
}
