import { inspect } from "node:util";
import { type DestinationStream, type Logger, pino } from "pino";
import { toPrintableJson } from "../values/printable-text.ts";
import { maskSecrets, registerSecret } from "../values/secret-masking.ts";

export type Log = Logger;

/** A token, password or signing key. Prints as `[redacted]`; only `reveal()` returns the text. */
export class Secret {
  readonly #text: string;
  constructor(text: string) {
    this.#text = text;
    registerSecret(text);
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

/** Masks secrets, user names and passwords in addresses, and text that looks like credentials. */
export function maskCredentials(text: string): string {
  // The limit of 30 characters for a URL scheme keeps the search fast in long texts.
  return maskSecrets(text)
    .replace(/\b([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@]+@/gi, "$1[redacted]@")
    .replace(
      /(\bauthorization\W{1,3})?\b(bearer|token|basic)(\s+)([\w.~+/=|-]{8,})/gi,
      (matchedText, header: string | undefined, scheme: string, space: string, wordAfterScheme: string) =>
        header === undefined && isOrdinaryText(scheme, wordAfterScheme)
          ? matchedText
          : `${header ?? ""}${scheme}${space}[redacted]`,
    );
}

/** Words after "basic" and "bearer" in ordinary sentences; any other word there is a credential. */
const WORD_AFTER_AUTH_SCHEME = /^(auth|authentication|authorization|credentials?|tokens?|scheme)[.]?$/i;
/** Lower-case words, possibly with hyphens; generated text contains digits or capitals. */
const ORDINARY_WORDS = /^[a-z]+([-/][a-z]+)*[.]?$/;
const MAX_ORDINARY_WORD_LENGTH = 20;

/** True if `wordAfterScheme` continues a sentence and is no secret, as in "the token information tells which". */
function isOrdinaryText(scheme: string, wordAfterScheme: string): boolean {
  if (scheme.toLowerCase() !== "token") return WORD_AFTER_AUTH_SCHEME.test(wordAfterScheme);
  return (
    wordAfterScheme.length <= MAX_ORDINARY_WORD_LENGTH &&
    ORDINARY_WORDS.test(wordAfterScheme.charAt(0).toLowerCase() + wordAfterScheme.slice(1))
  );
}

const SECRET_FIELDS = ["token", "password", "secret", "authorization"];

/** Creates a logger. A line's field that repeats a field of the logger is omitted if equal, else named `line_…`. */
export function createLog(options: {
  readonly level: string;
  /** Destination of the JSON lines; standard error by default, so that standard output is free for data. */
  readonly destination?: DestinationStream;
}): Log {
  const logLevelThreshold = { minLevel: logLevelNumber(options.level) };
  const log: Log = pino(
    {
      // pino accepts all levels, because `logMethod` compares with a threshold that can change later.
      level: "trace",
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: { paths: SECRET_FIELDS.flatMap((key) => [key, `*.${key}`]), censor: "[redacted]" },
      serializers: { err: serializeError, error: serializeError },
      hooks: {
        // Masks secrets and removes control characters that could steer a terminal.
        streamWrite: (line) => toPrintableJson(maskSecrets(line)),
        logMethod(args, method, level) {
          if (level < logLevelThreshold.minLevel) return;
          method.apply(this, withUniqueLogFields(args as unknown[], this.bindings()) as typeof args);
        },
      },
    },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
  const createChildLogger = log.child;
  log.child = function createChildWithUniqueFields(this: Log, bindings: object, ...childOptions: []) {
    return createChildLogger.call(this, renameDuplicateLogFields(bindings, this.bindings()), ...childOptions);
  } as typeof log.child;
  logThresholds.set(log, logLevelThreshold);
  return log;
}

const logThresholds = new WeakMap<Log, { minLevel: number }>();

export function setLogLevel(log: Log, level: string): void {
  const logLevelThreshold = logThresholds.get(log);
  if (logLevelThreshold !== undefined) logLevelThreshold.minLevel = logLevelNumber(level);
}

function logLevelNumber(level: string): number {
  return pino.levels.values[level] ?? Number.POSITIVE_INFINITY;
}

const PINO_KEYS = ["level", "time", "msg"];

function withUniqueLogFields(args: readonly unknown[], boundFields: Readonly<Record<string, unknown>>): unknown[] {
  const [firstArgument, ...furtherArguments] = args;
  if (typeof firstArgument !== "object" || firstArgument === null) return [...args];
  const logFields: Record<string, unknown> =
    firstArgument instanceof Error ? { err: firstArgument } : { ...firstArgument };
  const errorMessage = logFields.err instanceof Error ? maskCredentials(logFields.err.message) : undefined;
  const logMessage = furtherArguments.length > 0 ? furtherArguments : [logFields.msg ?? errorMessage];
  if (logFields.msg === logMessage[0]) delete logFields.msg;
  return [renameDuplicateLogFields(logFields, boundFields), ...logMessage];
}

function renameDuplicateLogFields(
  fields: object,
  boundFields: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const lineFields = new Map<string, unknown>();
  const isTakenKey = (key: string) => PINO_KEYS.includes(key) || Object.hasOwn(boundFields, key) || lineFields.has(key);
  for (const [key, value] of Object.entries(fields)) {
    const isBoundKey = Object.hasOwn(boundFields, key);
    // A masked field must keep its name, because the name marks the field as a secret.
    if (isBoundKey && (SECRET_FIELDS.includes(key) || JSON.stringify(value) === JSON.stringify(boundFields[key])))
      continue;
    let unusedKey = key;
    while (isTakenKey(unusedKey)) unusedKey = `line_${unusedKey}`;
    // pino serializes errors only in the fields `err` and `error`.
    const isUsualErrorField = unusedKey === "err" || unusedKey === "error";
    lineFields.set(unusedKey, value instanceof Error && !isUsualErrorField ? serializeError(value) : value);
  }
  return Object.fromEntries(lineFields);
}

function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return maskCredentials(String(error));
  const { kind, hint, code } = error as { kind?: string; hint?: string; code?: string };
  const serializedCause = error.cause === undefined ? undefined : serializeError(error.cause);
  return { type: error.name, message: maskCredentials(error.message), kind, hint, code, cause: serializedCause };
}
