import { masked } from "../values/masking.ts";

/**
 * Every failure that crosses a room has one of these meanings, decided once, where it is known.
 *
 * | class         | meaning                                   | what the caller does                                  |
 * | ------------- | ----------------------------------------- | ----------------------------------------------------- |
 * | `Retryable`   | trouble that may pass by itself           | try again with back-off; an unknown error counts here |
 * | `LocalFailure`  | this machine could not do its part        | try again within seconds; nobody else is blamed       |
 * | `Throttled`   | told to wait                              | wait that long; it does not count as an attempt       |
 * | `ConfigError` | a person has to change something          | stop that job or sink, say so, re-check slowly        |
 * | `Rejected`    | this one thing will never be accepted     | dead letter, or a terminal result                     |
 * | `NoLog`       | a tag of the group has no history         | split the group, remember the tags                    |
 * | `Malformed`   | an answer that is not what it should be   | count, keep a sample, next tick; never "empty"        |
 */
export type Failure = Retryable | Throttled | ConfigError | Rejected | NoLog | Malformed;

interface FailureOptions {
  readonly cause?: unknown;
  /** What a person can do about it, as one sentence. */
  readonly hint?: string;
}

abstract class Meaningful extends Error {
  readonly hint: string | undefined;
  constructor(message: string, options: FailureOptions = {}) {
    // The words may be those of somebody else, and go from here to the log, the state, the status and the sinks.
    super(masked(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.hint = options.hint === undefined ? undefined : masked(options.hint);
  }
}

export class Retryable extends Meaningful {
  readonly kind = "retryable";
}

/** This machine could not do its part: nobody else's fault, and nothing is proved about anybody else. */
export class LocalFailure extends Retryable {}

export class Throttled extends Meaningful {
  readonly kind = "throttled";
  /** How long to wait, in milliseconds, as told; null when nobody said. */
  readonly retryAfterMs: number | null;
  /** `bucket`: the shared rate limit (429). `everything`: the whole far end is in maintenance (503). */
  readonly scope: "allowance" | "everything";
  /**
   * False when somebody on the way may have said it, and the request may have been carried out: a proxy answers 503 also
   * when the far end broke off after it had the request.
   */
  readonly isOwnWord: boolean;
  /** True when the service said to wait 0 s. That is no evidence of a limit: a service that counts a minute names one. */
  readonly saysNow: boolean;
  constructor(
    message: string,
    retryAfterMs: number | null,
    options: FailureOptions & {
      readonly scope?: "allowance" | "everything";
      readonly isOwnWord?: boolean;
      readonly saysNow?: boolean;
    } = {},
  ) {
    super(message, options);
    this.retryAfterMs = retryAfterMs;
    this.scope = options.scope ?? "allowance";
    this.isOwnWord = options.isOwnWord ?? true;
    this.saysNow = options.saysNow ?? false;
  }
}

export type ConfigReason = "unauthenticated" | "forbidden" | "validation" | "settings" | "gone";

export class ConfigError extends Meaningful {
  readonly kind = "config";
  readonly reason: ConfigReason;
  /** The offending field, where the far end or the schema names one. */
  readonly field: string | undefined;
  constructor(
    message: string,
    options: FailureOptions & { readonly reason?: ConfigReason; readonly field?: string } = {},
  ) {
    super(message, options);
    this.reason = options.reason ?? "settings";
    this.field = options.field;
  }
}

export class Rejected extends Meaningful {
  readonly kind = "rejected";
}

export class NoLog extends Meaningful {
  readonly kind = "no-log";
}

export class Malformed extends Meaningful {
  readonly kind = "malformed";
  /** The first characters of what came, for the log. */
  readonly sample: string;
  constructor(message: string, sample: string, options: FailureOptions = {}) {
    super(message, options);
    this.sample = masked(sample).slice(0, 500);
  }
}

/** A list whose pages do not lead to its end, whoever asks for them and however often. */
export class Unwalkable extends Malformed {}

/** Gives any thrown thing its meaning: an unknown error may pass by itself, so it is kept and tried again. */
export function meaningOf(error: unknown): Failure {
  if (
    error instanceof Retryable ||
    error instanceof Throttled ||
    error instanceof ConfigError ||
    error instanceof Rejected ||
    error instanceof NoLog ||
    error instanceof Malformed
  ) {
    return error;
  }
  return new Retryable(error instanceof Error ? error.message : String(error), { cause: error });
}

/** One line for a log or a person: the message, and what to do about it where that is known. */
export function sentence(error: unknown): string {
  const failure = meaningOf(error);
  return failure.hint === undefined ? failure.message : `${failure.message} ${failure.hint}`;
}
