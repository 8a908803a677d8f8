import { pino } from "pino";
import type { Log } from "#src/core/runtime/log.ts";

/** How a part fails: as asynchronous code should, or by throwing before it has begun. */
export type FailureMode = "rejects" | "throws";
export const FAILURE_MODES: readonly FailureMode[] = ["rejects", "throws"];

/** Wraps an object so that all its calls, also of its parts, fail while `isBroken` returns true. */
export interface Breakable<T extends object> {
  readonly part: T;
  failed(): number;
}

export function breakable<T extends object>(
  target: T,
  failureMode: FailureMode,
  isBroken: (call: string) => boolean,
): Breakable<T> {
  let failed = 0;
  const wrap = <P extends object>(inner: P): P =>
    new Proxy(inner, {
      get(target, key, receiver) {
        const value: unknown = Reflect.get(target, key, receiver);
        if (typeof value === "object" && value !== null) return wrap(value);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          if (!isBroken(String(key))) return value.apply(target, args);
          failed += 1;
          const outOfOrderError = new Error(`${String(key)} is out of order`);
          if (failureMode === "throws") throw outOfOrderError;
          return Promise.reject(outOfOrderError);
        };
      },
    });
  return { part: wrap(target), failed: () => failed };
}

/** Counts lines and throws beyond a maximum, which ends an endless loop without timers. */
export function countingLog(linesMax: number): { readonly log: Log; lines(): number } {
  let lines = 0;
  const write = () => {
    lines += 1;
    if (lines > linesMax) throw new Error(`more than ${linesMax} lines`);
  };
  return { log: pino({ base: null }, { write }), lines: () => lines };
}
