import { maskSecrets } from "../values/secret-masking.ts";

/**
 * Classes of failures that packages report to each other. The code that detects a failure chooses its class.
 *
 * | class          | meaning                                | what the caller does                                       |
 * | -------------- | -------------------------------------- | ---------------------------------------------------------- |
 * | `Retryable`    | a failure that may pass                | retries with back-off; also for unknown errors             |
 * | `LocalFailure` | this machine failed, not the server    | retries within seconds; the server counts as healthy       |
 * | `Throttled`    | the server demands a pause             | waits that long; does not count as an attempt              |
 * | `ConfigError`  | a person has to change something       | stops the job or sink, reports it, checks again slowly     |
 * | `Rejected`     | this one object is never accepted      | dead letter, or a final result                             |
 * | `NoTagLog`     | a tag of the request has no history    | splits the request to find and record the tags without it  |
 * | `Malformed`    | an invalid response                    | counts it, keeps a sample, retries at the next tick        |
 */
export type Failure = Retryable | Throttled | ConfigError | Rejected | NoTagLog | Malformed;

interface FailureOptions {
  readonly cause?: unknown;
  /** Advice for a person, in one sentence. */
  readonly hint?: string;
}

abstract class ClassifiedFailure extends Error {
  readonly hint: string | undefined;
  constructor(message: string, options: FailureOptions = {}) {
    // A message may quote a server's text, which may contain a secret.
    super(maskSecrets(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.hint = options.hint === undefined ? undefined : maskSecrets(options.hint);
  }
}

export class Retryable extends ClassifiedFailure {
  readonly kind = "retryable";
}

export class LocalFailure extends Retryable {}

export class Throttled extends ClassifiedFailure {
  readonly kind = "throttled";
  /** Wait in milliseconds that the server demands; null if it states none. */
  readonly retryAfterMs: number | null;
  /** `allowance`: the shared rate limit (429). `everything`: the complete server is in maintenance (503). */
  readonly scope: "allowance" | "everything";
  /** False when a proxy may have answered, so that the server may have executed the request. */
  readonly isFromServer: boolean;
  /** True when the service demanded a wait of 0 s, which is no evidence of a rate limit. */
  readonly demandsZeroWait: boolean;
  constructor(
    message: string,
    retryAfterMs: number | null,
    options: FailureOptions & {
      readonly scope?: "allowance" | "everything";
      readonly isFromServer?: boolean;
      readonly demandsZeroWait?: boolean;
    } = {},
  ) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
    this.scope = options.scope ?? "allowance";
    this.isFromServer = options.isFromServer ?? true;
    this.demandsZeroWait = options.demandsZeroWait ?? false;
  }
}

export type ConfigErrorReason = "unauthenticated" | "forbidden" | "validation" | "settings" | "gone";

export class ConfigError extends ClassifiedFailure {
  readonly kind = "config";
  readonly reason: ConfigErrorReason;
  /** The invalid field, when the server or the schema names one. */
  readonly field: string | undefined;
  constructor(
    message: string,
    options: FailureOptions & { readonly reason?: ConfigErrorReason; readonly field?: string } = {},
  ) {
    super(message, options);
    this.reason = options.reason ?? "settings";
    this.field = options.field;
  }
}

export class Rejected extends ClassifiedFailure {
  readonly kind = "rejected";
}

export class NoTagLog extends ClassifiedFailure {
  readonly kind = "no-log";
}

export class Malformed extends ClassifiedFailure {
  readonly kind = "malformed";
  /** First characters of the received text, for the log. */
  readonly sample: string;
  constructor(message: string, sample: string, options: FailureOptions = {}) {
    super(message, options);
    this.sample = maskSecrets(sample).slice(0, 500);
  }
}

export class EndlessList extends Malformed {}

/** Converts a thrown value to a failure; an unknown error becomes `Retryable`. */
export function asFailure(error: unknown): Failure {
  if (error instanceof ClassifiedFailure) return error as Failure;
  return new Retryable(error instanceof Error ? error.message : String(error), { cause: error });
}

export function errorText(error: unknown): string {
  const failure = asFailure(error);
  return failure.hint === undefined ? failure.message : `${failure.message} ${failure.hint}`;
}
