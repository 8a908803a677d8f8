import { pino } from "pino";
import type { Log } from "#src/core/runtime/log.ts";

/** How a part fails: as asynchronous code should, or by throwing before it has begun. */
export type Way = "rejects" | "throws";
export const WAYS: readonly Way[] = ["rejects", "throws"];

/** Wraps an object so that all its calls, also of its parts, fail while `isBroken` returns true. */
export interface Breakable<T extends object> {
  readonly part: T;
  failed(): number;
}

export function breakable<T extends object>(whole: T, way: Way, isBroken: (call: string) => boolean): Breakable<T> {
  let failed = 0;
  const wrap = <P extends object>(inner: P): P =>
    new Proxy(inner, {
      get(target, key, receiver) {
        const value: unknown = Reflect.get(target, key, receiver);
        if (typeof value === "object" && value !== null) return wrap(value);
        if (typeof value !== "function") return value;
        return (...given: unknown[]) => {
          if (!isBroken(String(key))) return value.apply(target, given);
          failed += 1;
          const trouble = new Error(`${String(key)} is out of order`);
          if (way === "throws") throw trouble;
          return Promise.reject(trouble);
        };
      },
    });
  return { part: wrap(whole), failed: () => failed };
}

/** Counts lines and throws beyond a maximum, which ends an endless loop without timers. */
export function countingLog(most: number): { readonly log: Log; lines(): number } {
  let lines = 0;
  const write = () => {
    lines += 1;
    if (lines > most) throw new Error(`more than ${most} lines`);
  };
  return { log: pino({ base: null }, { write }), lines: () => lines };
}
