import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import { maskCredentials } from "../../core/runtime/log.ts";

/** `warning`: a part has no effect. `unavailable`: a temporary failure. `wrong`: somebody has to change something. */
export interface CheckResult {
  readonly what: string;
  readonly result: "ok" | "warning" | "unavailable" | "wrong";
  readonly detail: string;
  readonly place?: string | undefined;
}

const createCheckResult = (result: CheckResult["result"]) => {
  return (what: string, detail: string, place?: string): CheckResult => ({ what, result, detail, place });
};
export const passedCheck = createCheckResult("ok");
export const warnedCheck = createCheckResult("warning");
export const wrongCheck = createCheckResult("wrong");

/** Sends a request; throws Retryable if no response arrives in time. */
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

export function failedCheck(what: string, error: unknown, place?: string): CheckResult {
  const result = asFailure(error).kind === "config" ? "wrong" : "unavailable";
  return { what, result, detail: maskCredentials(errorText(error)), place };
}
