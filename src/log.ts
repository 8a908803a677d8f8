import { inspect } from "node:util";
import { type DestinationStream, type Logger, pino } from "pino";

export type Log = Logger;

/**
 * A token, password or signing key. It prints as `[redacted]` wherever it may end up; only `reveal()` gives the
 * text, so that a search for `reveal` shows every place that handles a secret.
 */
export class Secret {
  readonly #text: string;
  constructor(text: string) {
    this.#text = text;
  }
  reveal(): string {
    return this.#text;
  }
  toString(): string {
    return "[redacted]";
  }
  toJSON(): string {
    return "[redacted]";
  }
  [inspect.custom](): string {
    return "[redacted]";
  }
}

/** Takes user names and passwords out of every address inside a text; libraries put them into messages. */
export function withoutCredentials(text: string): string {
  return text
    .replace(/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@]+@/gi, "$1[redacted]@")
    .replace(
      /(\bauthorization\W{1,3})?\b(bearer|token|basic)(\s+)([\w.~+/=|-]{8,})/gi,
      (whole, header: string | undefined, scheme: string, space: string, rest: string) =>
        header === undefined && isOrdinary(scheme, rest)
          ? whole
          : `${header ?? ""}${scheme}${space}[redacted]`,
    );
}

/** What may follow the words "basic" and "bearer" in a sentence; both are otherwise followed by a credential. */
const AFTER_A_SCHEME = /^(auth|authentication|authorization|credentials?|tokens?|scheme)[.]?$/i;
/** Small letters alone, as of a word or of several with hyphens; what a machine made has digits or capitals in it. */
const WORDS = /^[a-z]+([-/][a-z]+)*[.]?$/;
/** The longest that is believed to be words, in characters ("misconfiguration" has 16). */
const LONGEST_WORD = 20;

/** Whether what follows is part of a sentence and no secret: "the token information tells which". */
function isOrdinary(scheme: string, rest: string): boolean {
  if (scheme.toLowerCase() !== "token") return AFTER_A_SCHEME.test(rest);
  return rest.length <= LONGEST_WORD && WORDS.test(rest.charAt(0).toLowerCase() + rest.slice(1));
}

export interface LogOptions {
  readonly level: string;
  /** Where the JSON lines go; standard error unless told otherwise, so that data can have standard output. */
  readonly destination?: DestinationStream;
}

/** JSON lines by pino. Warnings and errors have a static message and fields, so that they can be counted. */
export function createLog(options: LogOptions): Log {
  return pino(
    {
      name: "plenum",
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: {
        paths: [
          "token",
          "password",
          "secret",
          "authorization",
          "*.token",
          "*.password",
          "*.secret",
          "*.authorization",
        ],
        censor: "[redacted]",
      },
      serializers: { err: describe, error: describe },
    },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

/** An error as log fields: no stack at the levels that people read, no credentials anywhere. */
function describe(error: unknown): unknown {
  if (!(error instanceof Error)) return withoutCredentials(String(error));
  const { kind, hint, code } = error as { kind?: string; hint?: string; code?: string };
  return {
    type: error.name,
    message: withoutCredentials(error.message),
    ...(kind === undefined ? {} : { kind }),
    ...(hint === undefined ? {} : { hint }),
    ...(code === undefined ? {} : { code }),
    ...(error.cause === undefined ? {} : { cause: describe(error.cause) }),
  };
}
