import {
  ConfigError,
  type ConfigReason,
  type Failure,
  Malformed,
  meaningOf,
  NoLog,
  Rejected,
  Retryable,
  sentence,
  Throttled,
} from "../../core/errors/errors.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";

/** A failure on its way from the worker to the command line: its meaning and its sentence, so the exit code stays. */
export interface EncodedFailure {
  readonly failure: Failure["kind"];
  readonly message: string;
  /** Reason of a configuration error, and the field, when known. */
  readonly reason?: ConfigReason | undefined;
  readonly field?: string | undefined;
}

export function encodeFailure(error: unknown): EncodedFailure {
  const failure = meaningOf(error);
  const told: EncodedFailure = { failure: failure.kind, message: withoutCredentials(sentence(error)) };
  if (failure.kind !== "config") return told;
  const { reason, field } = failure;
  return { ...told, reason, field };
}

export function decodeFailure({ failure, message, reason, field }: EncodedFailure): Failure {
  switch (failure) {
    case "config":
      return new ConfigError(message, {
        ...(reason === undefined ? {} : { reason }),
        ...(field === undefined ? {} : { field }),
      });
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
