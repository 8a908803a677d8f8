import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
import { asFailure, errorText, Retryable } from "../../core/errors/errors.ts";
import { maskCredentials } from "../../core/runtime/log.ts";

/** Result of a check. `warning`: an option has no effect; `unavailable`: temporary failure; `wrong`: change needed. */
export interface CheckResult {
  readonly what: string;
  readonly result: "ok" | "warning" | "unavailable" | "wrong";
  readonly detail: string;
  readonly place?: string | undefined;
}

type OptionPath = Parameters<LocateOption>[0];

export type CheckReport = ReturnType<typeof createCheckReport>;
/** Adds results with the same `what` to the report. */
export type CheckTopic = ReturnType<CheckReport["about"]>;

/** Collects results in the order of the checks. Replaces the path of an option with its location in the file. */
export function createCheckReport(locateOption: LocateOption) {
  const results: CheckResult[] = [];
  return {
    results,
    about(topic: string) {
      const add = (result: CheckResult["result"], detail: string, path?: OptionPath) =>
        void results.push({ what: topic, result, detail, place: path && locateOption(path) });
      return {
        add,
        ok: (detail: string) => add("ok", detail),
        warn: (detail: string, path?: OptionPath) => add("warning", detail, path),
        wrong: (detail: string) => add("wrong", detail),
        fail: (error: unknown, path?: OptionPath, result = resultOfError(error)) =>
          add(result, maskCredentials(errorText(error)), path),
      };
    },
  };
}

function resultOfError(error: unknown): CheckResult["result"] {
  return asFailure(error).kind === "config" ? "wrong" : "unavailable";
}

const REQUEST_TIMEOUT_MS = 20_000;

export async function withTimeLimit<T>(signal: AbortSignal, request: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const timeoutSignal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  try {
    return await request(AbortSignal.any([signal, timeoutSignal]));
  } catch (error) {
    signal.throwIfAborted();
    if (!timeoutSignal.aborted) throw error;
    throw new Retryable(`There was no response within ${REQUEST_TIMEOUT_MS / 1_000} s.`, { cause: error });
  }
}
