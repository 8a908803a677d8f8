import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import { maskCredentials } from "../../core/runtime/log.ts";

/** Result of one check. `warning`: an option has no effect; `unavailable`: temporary failure; `wrong`: needs a change. */
export interface CheckResult {
  readonly what: string;
  readonly result: "ok" | "warning" | "unavailable" | "wrong";
  readonly detail: string;
  readonly place?: string | undefined;
}

const createCheckResult =
  (result: CheckResult["result"]) =>
  (what: string, detail: string, place?: string): CheckResult => ({ what, result, detail, place });
export const passedResult = createCheckResult("ok");
export const warningResult = createCheckResult("warning");
export const wrongResult = createCheckResult("wrong");

export async function withTimeLimit<T>(
  signal: AbortSignal,
  request: (signal: AbortSignal) => Promise<T>,
  limitMs = 20_000,
): Promise<T> {
  const timeoutSignal = AbortSignal.timeout(limitMs);
  try {
    return await request(AbortSignal.any([signal, timeoutSignal]));
  } catch (error) {
    signal.throwIfAborted();
    if (!timeoutSignal.aborted) throw error;
    throw new Retryable(`There was no response within ${limitMs / 1_000} s.`, { cause: error });
  }
}

export function errorToCheckResult(what: string, error: unknown, place?: string): CheckResult {
  const result = asFailure(error).kind === "config" ? "wrong" : "unavailable";
  return { what, result, detail: maskCredentials(errorText(error)), place };
}
