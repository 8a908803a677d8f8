import { meaningOf, Retryable, sentence } from "../../core/errors/errors.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";

/**
 * One thing that `plenum check` looked at.
 *
 * - `ok`: as it has to be;
 * - `warning`: it runs, and something of it does nothing or costs something;
 * - `unavailable`: trouble that may pass by itself;
 * - `wrong`: a person has to change something before it works.
 */
export interface CheckLine {
  readonly what: string;
  readonly result: "ok" | "warning" | "unavailable" | "wrong";
  readonly detail: string;
  /** Where it stands in the configuration, as `plenum.yaml:12:9`; absent where it stands nowhere. */
  readonly place?: string;
}

const PROBE_WITHIN_MS = 20_000;

/** Asks with a time limit; running into it is told as such. */
export async function within<T>(signal: AbortSignal, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const limit = AbortSignal.timeout(PROBE_WITHIN_MS);
  try {
    return await ask(AbortSignal.any([signal, limit]));
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted) throw error;
    throw new Retryable(`There was no answer within ${PROBE_WITHIN_MS / 1_000} s.`, { cause: error });
  }
}

export function trouble(what: string, error: unknown): CheckLine {
  const result = meaningOf(error).kind === "config" ? "wrong" : "unavailable";
  return { what, result, detail: withoutCredentials(sentence(error)) };
}
